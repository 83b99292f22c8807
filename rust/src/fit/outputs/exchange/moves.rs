//! Which functions of a model of several outputs could change places with others, and what that gains.

use super::super::super::ranking::most_aligned;
use super::super::super::record::Halt;
use super::super::super::shared::Shared;
use super::super::candidates::Candidates;
use super::super::state::{Entrant, OutputState};
use super::super::terms::collect_terms;
use super::leaving::Leaving;
use crate::linalg::parallel::map_pieces;
use crate::stats::{OutputStatistics, check_flag};

/// Functions more alike than this (the cosine of their columns) are one suggestion.
const ALIKE: f64 = 0.95;
/// The active functions most like one that could leave with it.
const NEAREST: usize = 2;

/// Functions that leave a model and functions that take their place.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// Indices of functions in the model.
    pub leaving: Vec<usize>,
    /// Indices of functions outside.
    pub entering: Vec<usize>,
    /// What the evidence of the targets gains at the precisions of the others as they are.
    pub gain: f64,
}

impl Exchange {
    /// What it is known by.
    fn name(&self) -> (&[usize], &[usize]) {
        (&self.leaving, &self.entering)
    }
}

/// For each active function the two unlike ones that could best take its place, and the best in the place of it and a
/// neighbour. Best first.
pub(in super::super) fn suggestions(
    stats: &mut dyn OutputStatistics,
    state: &OutputState,
    candidates: &mut Candidates,
) -> Result<Vec<Exchange>, Halt> {
    let cancel = stats.cancel_flag();
    let view = View::of(state, candidates);
    let firsts = each(state.len(), |k| {
        check_flag(cancel.as_deref())?;
        view.first_of(k)
    })?;
    let covariances = view.covariances;
    // Which functions are like another its Gram column tells.
    let entering = |found: &Vec<Exchange>| -> Vec<usize> {
        let alone = found.iter().filter(|change| change.leaving.len() == 1);
        alone.flat_map(|change| change.entering.clone()).collect()
    };
    let entering: Vec<Vec<usize>> = firsts.iter().map(entering).collect();
    candidates.fetch_all(stats, &entering.concat())?;
    let view = View {
        state,
        candidates,
        covariances,
    };
    let seconds = each(state.len(), |k| {
        check_flag(cancel.as_deref())?;
        if entering[k].is_empty() {
            return Ok(Vec::new());
        }
        let second = view.best_for(&[k], &entering[k])?;
        Ok(second.into_iter().collect())
    })?;
    let mut found = [firsts.concat(), seconds.concat()].concat();
    found.sort_by(|a, b| {
        b.gain
            .total_cmp(&a.gain)
            .then_with(|| a.name().cmp(&b.name()))
    });
    found.dedup_by(|a, b| a.name() == b.name());
    Ok(found)
}

fn each(
    len: usize,
    f: impl Fn(usize) -> Result<Vec<Exchange>, Halt> + Sync + Send,
) -> Result<Vec<Vec<Exchange>>, Halt> {
    let pieces = map_pieces(len, 1, |range| f(range.start));
    pieces.into_iter().collect()
}

/// A model, and for each active function k `beta Sigma_k^T Phi^T phi_i` of every candidate i, level after level.
struct View<'a> {
    state: &'a OutputState,
    candidates: &'a Candidates,
    covariances: Vec<Vec<Vec<f64>>>,
}

impl<'a> View<'a> {
    fn of(state: &'a OutputState, candidates: &'a Candidates) -> Self {
        let of_level = |k: usize, l: usize| candidates.covariances(state, l, k);
        let of_function = |k: usize| (0..state.levels.len()).map(|l| of_level(k, l)).collect();
        Self {
            state,
            candidates,
            covariances: (0..state.len()).map(of_function).collect(),
        }
    }

    /// The best that comes in the place of the active function at place `k`, and of it and a neighbour.
    fn first_of(&self, k: usize) -> Result<Vec<Exchange>, Halt> {
        let mut found: Vec<Exchange> = self.best_for(&[k], &[])?.into_iter().collect();
        for l in self.neighbours(k) {
            found.extend(self.best_for(&[k.min(l), k.max(l)], &[])?);
        }
        Ok(found)
    }

    /// The function that gains most in the place of those at these places and is not like these; `None` if none gains anything.
    fn best_for(&self, places: &[usize], unlike: &[usize]) -> Result<Option<Exchange>, Halt> {
        let leaving = Leaving::new(self.state, places)?;
        let n_levels = self.state.levels.len();
        let (mut u, mut terms) = (vec![0.0; places.len() * n_levels], Vec::new());
        let mut best: Option<(usize, f64)> = None;
        for i in 0..self.candidates.len() {
            let alike = |&j: &usize| self.candidates.product(j, i).abs() >= ALIKE;
            if !self.candidates.may_enter(i) || unlike.iter().any(alike) {
                continue;
            }
            for (l, u) in u.chunks_exact_mut(places.len()).enumerate() {
                let entries = u.iter_mut().zip(places);
                entries.for_each(|(u, &k)| *u = self.covariances[k][l][i]);
            }
            let model = (self.state, self.candidates);
            if leaving.terms_after(model, i, &mut u, &mut terms) {
                let hurdle = best.map_or(0.0, |b| b.1);
                if let Some((_, gain)) = Shared(&terms).best_above(hurdle) {
                    best = Some((i, gain));
                }
            }
        }
        let names = self.names(places);
        Ok(best.map(|(i, gain)| Exchange {
            leaving: names,
            entering: vec![i],
            gain: leaving.gain + gain,
        }))
    }

    fn names(&self, places: &[usize]) -> Vec<usize> {
        places.iter().map(|&k| self.state.active[k]).collect()
    }

    /// The active functions most like the one at place `k`.
    fn neighbours(&self, k: usize) -> Vec<usize> {
        let others = (0..self.state.len()).filter(|&l| l != k);
        most_aligned(others.map(|l| (self.state.gram(k, l), l)), NEAREST)
    }
}

/// The state after a move, with a fresh factor; `None` where a function would not enter after all. The Gram columns of those that
/// enter have to be at hand.
pub(super) fn moved(
    state: &OutputState,
    candidates: &Candidates,
    change: &Exchange,
) -> Result<Option<OutputState>, Halt> {
    let mut state = state.clone();
    for i in &change.leaving {
        if let Some(k) = state.active.iter().position(|j| j == i) {
            state.delete(k);
        }
    }
    for &i in &change.entering {
        let (products, gradient) = candidates.entrant(&state, i);
        let entrant = Entrant {
            index: i,
            gram: &products,
            gradient: &gradient,
        };
        let (s, q) = state.factors_outside(&entrant);
        let mut terms = Vec::new();
        let resolved = collect_terms(&state, |l| s[l], |c| q[c], &mut terms);
        let Some((alpha, _)) = Shared(&terms).best().filter(|_| resolved) else {
            return Ok(None);
        };
        state.add(&entrant, alpha)?;
    }
    state.recompute()?;
    Ok(Some(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{DenseDesign, OutputObservations};

    const ROWS: usize = 40;
    const COLUMNS: usize = 25;
    const OUTPUTS: usize = 3;

    /// Bumps that overlap, and three targets.
    fn problem() -> OutputObservations<'static> {
        let x = |row: usize| row as f64 / ROWS as f64;
        let bump = |j: usize| {
            let centre = j as f64 / COLUMNS as f64;
            (0..ROWS).map(move |row| (-((x(row) - centre) / 0.1).powi(2)).exp())
        };
        let columns: Vec<f64> = (0..COLUMNS).flat_map(bump).collect();
        let target = |c: usize| {
            (0..ROWS).map(move |row| {
                (9.0 * x(row) + 2.0 * c as f64).sin() + 0.3 * ((row * 7919 + c) as f64).sin()
            })
        };
        let design = DenseDesign::new(columns, ROWS, COLUMNS).unwrap();
        let targets: Vec<f64> = (0..OUTPUTS).flat_map(target).collect();
        OutputObservations::unscaled(design, targets, OUTPUTS, None).unwrap()
    }

    #[test]
    fn moves_gain_what_they_say() {
        for betas in [&[5.0][..], &[2.0, 10.0, 50.0]] {
            let mut stats = problem();
            let empty = nalgebra::DMatrix::zeros(0, OUTPUTS);
            let squares = stats.active_residuals(&[], &empty).unwrap().squares;
            let mut state = OutputState::empty(betas, &squares, stats.n_obs());
            let mut candidates = Candidates::new(&mut stats, &mut state).unwrap();
            for (i, alpha) in [(2, 0.5), (9, 1.0), (12, 0.2), (20, 3.0)] {
                candidates.enter(&mut stats, &mut state, i, alpha).unwrap();
            }
            candidates.refresh(&mut stats, &mut state).unwrap();
            let before = state.log_evidence();
            let moves = suggestions(&mut stats, &state, &mut candidates).unwrap();
            let everything: Vec<usize> = (0..COLUMNS).collect();
            candidates.fetch_all(&mut stats, &everything).unwrap();
            for sizes in [(1, 1), (2, 1)] {
                let of_size = |m: &&Exchange| (m.leaving.len(), m.entering.len()) == sizes;
                let some: Vec<&Exchange> = moves.iter().filter(of_size).collect();
                assert!(!some.is_empty(), "no move of {sizes:?}");
                for change in some {
                    let after = moved(&state, &candidates, change).unwrap().unwrap();
                    let gain = after.log_evidence() - before;
                    assert!(
                        (gain - change.gain).abs() < 1e-8 * (1.0 + gain.abs()),
                        "{change:?} gained {gain}"
                    );
                }
            }
        }
    }
}
