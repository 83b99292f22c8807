//! Which functions of a pool could change places with others, and what that gains.

use crate::fit::candidates::Candidates;
use crate::fit::evidence::Factors;
use crate::fit::model::State;
use crate::fit::ranking::most_aligned;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::search::removal::Removal;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// Functions more alike than this (the cosine of their columns) are one suggestion.
const ALIKE: f64 = 0.95;

/// Exchanges suggested for each active function.
const SUGGESTED: usize = 2;

/// First functions that a split of each active function is tried with.
const FIRSTS: usize = 3;

/// Functions that leave a model and functions that take their place; by their places in the pool.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) leaving: Vec<usize>,
    pub(crate) entering: Vec<usize>,
    /// At the noise and the other precisions as they are, with the best precisions for those that enter one by one.
    pub(crate) gain: f64,
}

/// The moves a search may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// One function for another.
    Exchanges,
    /// Also two for one and one for two.
    All,
}

/// What the pool suggests, best first.
pub(crate) fn suggestions(
    pool: &WorkingSet,
    model: &mut Model,
    moves: Moves,
    least: f64,
) -> Result<Vec<Move>, Stop> {
    let view = View::of(pool, model);
    let pieces = map_pieces(view.state.len(), 1, |range| view.of_one(range.start, moves));
    let mut found = Vec::new();
    for piece in pieces {
        found.extend(piece?);
    }
    found.retain(|change| change.gain > least);
    found.sort_by(|a, b| {
        let order = b.gain.total_cmp(&a.gain);
        let names = |m: &Move| (m.leaving.clone(), m.entering.clone());
        order.then_with(|| names(a).cmp(&names(b)))
    });
    Ok(found)
}

/// A model over a pool, and for each active function k `beta Sigma_k^T Phi^T phi_i` of every member i.
struct View<'a> {
    pool: &'a WorkingSet,
    state: &'a State,
    outside: &'a Candidates,
    covariances: Vec<Vec<f64>>,
}

impl<'a> View<'a> {
    fn of(pool: &'a WorkingSet, model: &'a mut Model) -> Self {
        let Model { state, outside, .. } = model;
        let covariances = (0..state.len())
            .map(|k| outside.covariances(pool, state, k))
            .collect();
        Self {
            pool,
            state,
            outside,
            covariances,
        }
    }

    /// What the active function at place `k` could leave for.
    fn of_one(&self, k: usize, moves: Moves) -> Result<Vec<Move>, Stop> {
        self.pool.check_cancel()?;
        let mut found = self.best_for(&[k], FIRSTS)?;
        if moves == Moves::All {
            let mut larger = Vec::new();
            for first in &found {
                larger.extend(self.split(first)?);
            }
            for l in self.neighbours(k) {
                larger.extend(self.best_for(&[k, l], 1)?);
            }
            found.truncate(SUGGESTED);
            found.extend(larger);
        } else {
            found.truncate(SUGGESTED);
        }
        Ok(found)
    }

    /// At most `limit` functions that could take the place of those at these places, no two of them alike.
    fn best_for(&self, places: &[usize], limit: usize) -> Result<Vec<Move>, Stop> {
        let leaving = Removal::new(self.state, places)?;
        let mut gains: Vec<(f64, usize)> = (0..self.pool.len())
            .filter(|&i| self.outside.is_open(i))
            .filter_map(|i| Some((self.gain_after(&leaving, places, i)?, i)))
            .collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut chosen: Vec<(f64, usize)> = Vec::new();
        for (gain, i) in gains {
            if chosen.len() == limit {
                break;
            }
            if chosen
                .iter()
                .all(|&(_, c)| self.pool.gram[(c, i)].abs() < ALIKE)
            {
                chosen.push((gain, i));
            }
        }
        let names: Vec<usize> = places.iter().map(|&k| self.state.active[k]).collect();
        let change = |(gain, i)| Move {
            leaving: names.clone(),
            entering: vec![i],
            gain: leaving.gain + gain,
        };
        Ok(chosen.into_iter().map(change).collect())
    }

    /// What member `i` gains once these have left; `None` if nothing, or if it cannot be told from rounding.
    fn gain_after(&self, leaving: &Removal, places: &[usize], i: usize) -> Option<f64> {
        let mut u = [0.0; 2];
        let u = &mut u[..places.len()];
        for (u, &k) in u.iter_mut().zip(places) {
            *u = self.covariances[k][i];
        }
        let factors = leaving.factors_after(self.outside.factors_of(i), u);
        enters(factors, self.state).then(|| factors.gain_of_adding())
    }

    /// An exchange followed by what then gains most.
    fn split(&self, exchange: &Move) -> Result<Option<Move>, Stop> {
        let (mut state, mut outside) = (self.state.clone(), self.outside.clone());
        for &i in &exchange.leaving {
            outside.exclude(i);
        }
        apply(self.pool, &mut state, &mut outside, exchange)?;
        let second = outside.best_addition(&state, 0.0);
        Ok(second.map(|(i, gain)| Move {
            leaving: exchange.leaving.clone(),
            entering: [&exchange.entering[..], &[i]].concat(),
            gain: exchange.gain + gain,
        }))
    }

    /// The active functions most like the one at place `k`.
    fn neighbours(&self, k: usize) -> Vec<usize> {
        const NEAREST: usize = 2;
        let active = &self.state.active;
        let products = self.pool.gram.column(active[k]);
        let others = (0..active.len()).filter(|&l| l != k);
        most_aligned(others.map(|l| (products[active[l]], l)), NEAREST)
    }
}

/// Whether a function with these factors would enter, and its S is more than rounding.
fn enters(factors: Factors, state: &State) -> bool {
    factors.s > Tuning::MIN_ORTHOGONAL_PART * state.beta && factors.optimal_alpha().is_some()
}

/// Makes a move, and what is known of the pool follows.
pub(crate) fn apply(
    pool: &WorkingSet,
    state: &mut State,
    outside: &mut Candidates,
    change: &Move,
) -> Result<(), Stop> {
    for &i in &change.leaving {
        if let Some(k) = state.active.iter().position(|&j| j == i) {
            outside.delete(pool, state, k);
        }
    }
    for &i in &change.entering {
        outside.add(pool, state, i, &mut Recorder::silent())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::data::{DenseDesign, Observations, Statistics};
    use crate::fit::greedy::maximize;
    use crate::fit::prior::{Gamma, Priors};
    use crate::fit::tuning::Tuning;

    const ROWS: usize = 60;
    const COLUMNS: usize = 30;

    /// A model over bumps that overlap, and the pool of them all; with a prior if one is given.
    fn model(prior: [f64; 2]) -> (WorkingSet, Model) {
        let x = |row: usize| row as f64 / ROWS as f64;
        let bump = |j: usize| {
            let centre = j as f64 / COLUMNS as f64;
            (0..ROWS).map(move |row| (-((x(row) - centre) / 0.06).powi(2)).exp())
        };
        let columns: Vec<f64> = (0..COLUMNS).flat_map(bump).collect();
        let noise = |row: usize| ((row * 7919) as f64).sin();
        let target = (0..ROWS).map(|row| (14.0 * x(row)).sin() + 0.3 * noise(row));
        let design = DenseDesign::new(&columns, ROWS, COLUMNS).unwrap();
        let kind = Likelihood::Gaussian;
        let mut stats = Observations::new(&design, kind, target.collect(), None).unwrap();
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(10.0, Gamma::FLAT, deviance, stats.n_obs());
        let priors = Priors::new(prior, stats.norms(), stats.target_scale());
        let everything: Vec<usize> = (0..COLUMNS).collect();
        let pool = WorkingSet::about(&mut stats, &mut state, &priors, &everything).unwrap();
        maximize(
            &pool,
            &mut state,
            None,
            Tuning::COARSE_EFFORT,
            &mut Recorder::silent(),
        )
        .unwrap();
        let model = Model::new(&pool, state);
        (pool, model)
    }

    /// The evidence of a model computed from scratch, after a move.
    fn achieved(pool: &WorkingSet, model: &Model, change: &Move) -> f64 {
        let (mut state, mut outside) = (model.state.clone(), model.outside.clone());
        apply(pool, &mut state, &mut outside, change).unwrap();
        state.recompute().unwrap();
        state.log_posterior()
    }

    #[test]
    fn moves_gain_what_they_say() {
        for prior in [[0.0, 0.0], [0.5, 0.02]] {
            let (pool, mut model) = model(prior);
            let before = model.state.log_posterior();
            let moves = suggestions(&pool, &mut model, Moves::All, f64::NEG_INFINITY).unwrap();
            for sizes in [(1, 1), (2, 1), (1, 2)] {
                let of_size = |m: &&Move| (m.leaving.len(), m.entering.len()) == sizes;
                let some: Vec<&Move> = moves.iter().filter(of_size).collect();
                assert!(!some.is_empty(), "no move of {sizes:?}");
                for change in some {
                    let gain = achieved(&pool, &model, change) - before;
                    assert!(
                        (gain - change.gain).abs() < 1e-8 * (1.0 + gain.abs()),
                        "{change:?} gained {gain}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_best_exchange_is_the_best_of_all() {
        let (pool, mut model) = model([0.0; 2]);
        let before = model.state.log_posterior();
        let moves = suggestions(&pool, &mut model, Moves::Exchanges, f64::NEG_INFINITY).unwrap();
        let mut best = f64::NEG_INFINITY;
        for &out in &model.state.active {
            for i in (0..COLUMNS).filter(|i| !model.state.active.contains(i)) {
                let change = Move {
                    leaving: vec![out],
                    entering: vec![i],
                    gain: 0.0,
                };
                best = best.max(achieved(&pool, &model, &change) - before);
            }
        }
        assert!((best - moves[0].gain).abs() < 1e-8, "{best} {:?}", moves[0]);
    }
}
