//! Moves on a working set: which active functions to exchange for which inactive ones, and the gain of that.
//!
//! Delete the functions J at fixed noise and other precisions. As a function of A_J alone the log evidence is, up to a
//! constant, `1/2 [ln|A_J| - ln|A_J + s| + q^T (A_J + s)^-1 q]`: equation (18) of Tipping & Faul (2003) with the matrix s and
//! the vector q of the model without J. It is 0 at A_J = infinity, and in the model `Sigma_JJ = (A_J + s)^-1` and
//! `mu_J = Sigma_JJ q` (equation 23 for several functions). So the deletion gains
//!
//! `-1/2 [ln|A_J Sigma_JJ| + mu_J^T Sigma_JJ^-1 mu_J]`,
//!
//! and, since it replaces Sigma by `Sigma - Sigma_J Sigma_JJ^-1 Sigma_J^T` (appendix A.4 for several functions), the factors of
//! a candidate i with `u = beta Sigma_J^T Phi^T phi_i` become
//!
//! `S + u^T Sigma_JJ^-1 u` and `Q + u^T Sigma_JJ^-1 mu_J`.
//!
//! The gain of adding i at its best precision is equation (27) at these factors. Both gains are exact. With several outputs the gains
//! are sums over them, and the outputs of one noise level share S, s and Sigma.

use crate::fit::candidates::Candidates;
use crate::fit::evidence::Factors;
use crate::fit::model::State;
use crate::fit::ranking::most_aligned;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::vector::dot;
use crate::linalg::{Cholesky, FactorizationError};
use crate::parallel::map_pieces;

/// A change of the active set. Functions are numbered as in the working set.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) deleted: Vec<usize>,
    pub(crate) added: Vec<usize>,
    /// Gain in log evidence at fixed noise and other precisions, where each added function gets its best precision in turn.
    pub(crate) gain: f64,
}

/// The kinds of moves that a search may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// One function for another.
    Exchanges,
    /// Also merges (two for one) and splits (one for two).
    All,
}

/// The moves with a gain above `least`, best first.
pub(crate) fn suggestions(
    set: &WorkingSet,
    model: &mut Model,
    moves: Moves,
    least: f64,
) -> Result<Vec<Move>, Stop> {
    let view = View::of(set, model);
    let pieces = map_pieces(view.state.len(), 1, |range| {
        view.moves_of(range.start, moves)
    });
    let mut found = Vec::new();
    for piece in pieces {
        found.extend(piece?);
    }
    found.retain(|change| change.gain > least);
    found.sort_by(|a, b| {
        let order = b.gain.total_cmp(&a.gain);
        let key = |m: &Move| (m.deleted.clone(), m.added.clone());
        order.then_with(|| key(a).cmp(&key(b)))
    });
    Ok(found)
}

/// A model, and for each noise level and active function k the products `beta Sigma_k^T Phi^T phi_i` with every member i.
struct View<'a> {
    set: &'a WorkingSet,
    state: &'a State,
    inactive: &'a Candidates,
    covariances: Vec<Vec<Vec<f64>>>,
}

impl<'a> View<'a> {
    fn of(set: &'a WorkingSet, model: &'a mut Model) -> Self {
        let Model {
            state, inactive, ..
        } = model;
        let mut at_level = |l: usize| {
            let functions = 0..state.len();
            functions
                .map(|k| inactive.covariances(set, state, k, l))
                .collect()
        };
        let covariances = (0..state.levels.len()).map(&mut at_level).collect();
        Self {
            set,
            state,
            inactive,
            covariances,
        }
    }

    /// Moves that delete the active function at position `k`.
    fn moves_of(&self, k: usize, moves: Moves) -> Result<Vec<Move>, Stop> {
        self.set.check_cancel()?;
        let mut found = self.best_for(&[k], Tuning::EXCHANGES_PER_FUNCTION)?;
        if moves == Moves::All {
            for first in found.clone() {
                found.extend(self.split(&first)?);
            }
            for l in self.neighbours(k) {
                found.extend(self.best_for(&[k, l], 1)?);
            }
        }
        Ok(found)
    }

    /// At most `limit` moves that replace the functions at these positions by one other.
    fn best_for(&self, positions: &[usize], limit: usize) -> Result<Vec<Move>, Stop> {
        let deletion = Deletion::new(self.state, positions)?;
        let mut gains: Vec<(f64, usize)> = (0..self.set.len())
            .filter(|&i| self.inactive.is_open(i))
            .filter_map(|i| Some((self.gain_after(&deletion, positions, i)?, i)))
            .collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        gains.truncate(limit);
        let deleted: Vec<usize> = positions.iter().map(|&k| self.state.active[k]).collect();
        let change = |(gain, i)| Move {
            deleted: deleted.clone(),
            added: vec![i],
            gain: deletion.gain + gain,
        };
        Ok(gains.into_iter().map(change).collect())
    }

    /// The gain of adding member `i` after a deletion; `None` if there is none, or its S is round-off.
    fn gain_after(&self, deletion: &Deletion, positions: &[usize], i: usize) -> Option<f64> {
        let factors = deletion.factors_after(self, positions, i);
        let is_resolved = self
            .state
            .resolves(&factors, Tuning::MIN_ORTHOGONAL_PART, 1.0);
        factors
            .best_above(0.0)
            .filter(|_| is_resolved)
            .map(|(_, gain)| gain)
    }

    /// The exchange followed by the best further addition.
    fn split(&self, exchange: &Move) -> Result<Option<Move>, Stop> {
        let (mut state, mut inactive) = (self.state.clone(), self.inactive.clone());
        for &i in &exchange.deleted {
            inactive.exclude(i);
        }
        apply(self.set, &mut state, &mut inactive, exchange)?;
        let second = inactive.best_addition(&state, 0.0);
        Ok(second.map(|(i, gain)| Move {
            deleted: exchange.deleted.clone(),
            added: [&exchange.added[..], &[i]].concat(),
            gain: exchange.gain + gain,
        }))
    }

    /// The active functions most aligned with the one at position `k`.
    fn neighbours(&self, k: usize) -> Vec<usize> {
        let active = &self.state.active;
        let products = self.set.gram.column(active[k]);
        let others = (0..active.len()).filter(|&l| l != k);
        most_aligned(
            others.map(|l| (products[active[l]], l)),
            Tuning::EXCHANGES_PER_FUNCTION,
        )
    }
}

/// Deletion of several active functions together.
struct Deletion {
    /// Cholesky factor L of Sigma_JJ at each noise level.
    chol: Vec<Cholesky>,
    /// L^-1 mu_J of each output.
    means: Vec<Vec<f64>>,
    /// Gain in log evidence: mostly negative.
    gain: f64,
}

impl Deletion {
    fn new(state: &State, positions: &[usize]) -> Result<Self, FactorizationError> {
        let mut chol = vec![Cholesky::with_capacity(positions.len()); state.levels.len()];
        for (chol, level) in chol.iter_mut().zip(&state.levels) {
            chol.refactor(positions.len(), |a, b| {
                level.sigma[(positions[a], positions[b])]
            })?;
        }
        let prior = |&k: &usize| {
            let (prior, alpha) = (state.priors[k], state.alpha[k]);
            let density = if prior.is_flat() {
                0.0
            } else {
                prior.log_density(alpha)
            };
            0.5 * state.outputs.len() as f64 * alpha.ln() + density
        };
        let mut gain = -positions.iter().map(prior).sum::<f64>();
        let mut means = Vec::with_capacity(state.outputs.len());
        for (c, output) in state.outputs.iter().enumerate() {
            let chol = &chol[state.level_of(c)];
            let mut own: Vec<f64> = positions.iter().map(|&k| output.mu[k]).collect();
            chol.solve_lower_in_place(&mut own);
            gain -= 0.5 * (chol.ln_det() + dot(&own, &own));
            means.push(own);
        }
        Ok(Self { chol, means, gain })
    }

    /// The factors of inactive member `i` after the deletion of the functions at `positions`.
    fn factors_after(&self, view: &View<'_>, positions: &[usize], i: usize) -> Factors {
        let mut products = [[0.0; 2]; 1];
        let mut more = Vec::new();
        let products = if self.chol.len() == 1 {
            &mut products[..]
        } else {
            more.resize(self.chol.len(), [0.0; 2]);
            &mut more[..]
        };
        for (l, (u, chol)) in products.iter_mut().zip(&self.chol).enumerate() {
            for (u, &k) in u.iter_mut().zip(positions) {
                *u = view.covariances[l][k][i];
            }
            chol.solve_lower_in_place(&mut u[..positions.len()]);
        }
        let (state, inactive) = (view.state, view.inactive);
        let own = |l: usize| &products[l][..positions.len()];
        let s = |l: usize| inactive.sparsity(i, l) + dot(own(l), own(l));
        let q = |c: usize| inactive.quality(i, c) + dot(own(state.level_of(c)), &self.means[c]);
        state.combine(s, q, inactive.prior(i))
    }
}

/// Makes a move, and updates the factors of the inactive members.
pub(crate) fn apply(
    set: &WorkingSet,
    state: &mut State,
    inactive: &mut Candidates,
    change: &Move,
) -> Result<(), Stop> {
    for &i in &change.deleted {
        if let Some(k) = state.active.iter().position(|&j| j == i) {
            inactive.delete(set, state, k);
        }
    }
    for &i in &change.added {
        inactive.add(set, state, i, &mut Recorder::silent())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::data::{DenseDesign, Observations, Statistics};
    use crate::fit::noise::NoisePrecision;
    use crate::fit::prior::{Gamma, Priors};
    use crate::fit::search::maximize_silently;

    const ROWS: usize = 60;
    const COLUMNS: usize = 30;

    /// A working set of overlapping bumps, and the greedy model on it.
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
        let mut state = State::empty(
            &[NoisePrecision::fixed(10.0)],
            Gamma::FLAT,
            &[deviance],
            stats.facts().n_obs,
        );
        let priors = Priors::new(prior, &stats.facts().norms, stats.facts().target_scale);
        let everything: Vec<usize> = (0..COLUMNS).collect();
        let set = WorkingSet::about(&mut stats, &mut state, &priors, &everything).unwrap();
        maximize_silently(&set, &mut state, Tuning::COARSE_EFFORT).unwrap();
        let model = Model::new(&set, state);
        (set, model)
    }

    /// The evidence after a move, computed from scratch.
    fn achieved(set: &WorkingSet, model: &Model, change: &Move) -> f64 {
        let (mut state, mut inactive) = (model.state.clone(), model.inactive.clone());
        apply(set, &mut state, &mut inactive, change).unwrap();
        state.recompute().unwrap();
        state.log_posterior()
    }

    #[test]
    fn predicted_gains_of_moves_are_achieved() {
        for prior in [[0.0, 0.0], [0.5, 0.02]] {
            let (set, mut model) = model(prior);
            let before = model.state.log_posterior();
            let moves = suggestions(&set, &mut model, Moves::All, f64::NEG_INFINITY).unwrap();
            for sizes in [(1, 1), (2, 1), (1, 2)] {
                let of_size = |m: &&Move| (m.deleted.len(), m.added.len()) == sizes;
                let some: Vec<&Move> = moves.iter().filter(of_size).collect();
                assert!(!some.is_empty(), "no move of {sizes:?}");
                for change in some {
                    let gain = achieved(&set, &model, change) - before;
                    assert!(
                        (gain - change.gain).abs() < 1e-8 * (1.0 + gain.abs()),
                        "{change:?} gained {gain}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_best_exchange_is_the_best_of_all_pairs() {
        let (set, mut model) = model([0.0; 2]);
        let before = model.state.log_posterior();
        let moves = suggestions(&set, &mut model, Moves::Exchanges, f64::NEG_INFINITY).unwrap();
        let mut best = f64::NEG_INFINITY;
        for &out in &model.state.active {
            for i in (0..COLUMNS).filter(|i| !model.state.active.contains(i)) {
                let change = Move {
                    deleted: vec![out],
                    added: vec![i],
                    gain: 0.0,
                };
                best = best.max(achieved(&set, &model, &change) - before);
            }
        }
        assert!((best - moves[0].gain).abs() < 1e-8, "{best} {:?}", moves[0]);
    }
}
