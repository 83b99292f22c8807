//! The inner loop: alphas and noise of the active set, to convergence. The dictionary is not touched.

use std::cmp::Reverse;
use std::ops::Range;

use super::joint::{self, Coordinates, NoiseRange};
use super::prospects::{TOGETHER, most_gains};
use super::record::{Action, Halt, Recorder};
use super::settings::Effort;
use super::state::State;
use crate::linalg::parallel::pieces;
use crate::stats::Statistics;

/// How the inner loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// Every hyperparameter is within tolerance of its maximum.
    Converged,
    /// Rounding keeps some hyperparameter from its maximum.
    Stalled,
}

/// What is left to do on the active set.
#[derive(Default)]
struct Outlook {
    /// The move of one alpha that gains most.
    best_move: Option<Proposal>,
    /// The deletion that gains most.
    best_deletion: Option<Proposal>,
    /// Largest |change in ln alpha| (infinite for a deletion) and |change in ln beta|.
    residual: f64,
}

/// A step on one function.
#[derive(Clone, Copy)]
pub(super) struct Proposal {
    /// Position in the active set.
    pub(super) k: usize,
    /// New alpha; infinite for a deletion.
    pub(super) alpha: f64,
    pub(super) gain: f64,
}

impl Proposal {
    /// Of equals the first in the model wins.
    fn keep_better(best: &mut Option<Self>, other: Self) {
        let rank = |step: &Self| (step.gain, Reverse(step.k));
        let is_better = |best: Self| rank(&other) > rank(&best);
        if best.is_none_or(is_better) {
            *best = Some(other);
        }
    }
}

impl Outlook {
    /// Of the whole active set; moves that gain less than `least` do not count.
    fn of(state: &State, least: f64) -> Self {
        let (mut this, mut most) = (Self::default(), [0.0; TOGETHER]);
        for these in pieces(state.len(), TOGETHER) {
            most_gains(state, these.clone(), &mut most);
            this.consider_all(state, these, &most, least);
        }
        this
    }

    /// Takes functions into account of which each gains at most so much by a move.
    fn consider_all(&mut self, state: &State, these: Range<usize>, most: &[f64], least: f64) {
        let enough = |this: &Self| this.best_move.map_or(least, |best| best.gain.max(least));
        // What one gains that promises most is more than others promise, as a rule, and they need no logarithm.
        let finite = these.clone().zip(most).filter(|(_, most)| most.is_finite());
        let first = finite.max_by(|a, b| a.1.total_cmp(b.1)).map(|(k, _)| k);
        let others = these.clone().filter(|&k| Some(k) != first);
        for k in first.into_iter().chain(others) {
            if most[k - these.start] >= enough(self) {
                self.consider(state, k, least);
            }
        }
    }

    /// Takes function `k` into account.
    fn consider(&mut self, state: &State, k: usize, least: f64) {
        let (factors, old) = (state.factors(k), state.alpha[k]);
        let (best, alpha, gain) = if let Some(alpha) = factors.optimal_alpha() {
            // Most moves are small, and their logarithm is not worth taking.
            let most = factors.most_gain_of_moving(old, alpha);
            if most < least || self.best_move.is_some_and(|best| most < best.gain) {
                return;
            }
            (
                &mut self.best_move,
                alpha,
                factors.gain_of_moving(old, alpha),
            )
        } else {
            (
                &mut self.best_deletion,
                f64::INFINITY,
                factors.gain_of_deleting(old),
            )
        };
        Proposal::keep_better(best, Proposal { k, alpha, gain });
    }

    /// The single-function step to take: moves too small to matter are left to the joint steps, deletions never.
    fn coarse_step(&self, least: f64) -> Option<Proposal> {
        match (
            self.best_move.filter(|p| p.gain >= least),
            self.best_deletion,
        ) {
            (Some(a), Some(b)) => Some(if a.gain > b.gain { a } else { b }),
            (a, b) => a.or(b),
        }
    }
}

/// Rounds of nothing but rounding after which there is nothing more to gain.
pub(super) const MOST_LEVEL: usize = 50;

/// Rounds in a row that raise the objective by nothing but its last digits.
pub(super) struct Plateau {
    highest: f64,
    length: usize,
}

impl Plateau {
    pub(super) fn new() -> Self {
        Self {
            highest: f64::NEG_INFINITY,
            length: 0,
        }
    }

    /// Takes in the objective after one more round; how many there are now.
    pub(super) fn length_at(&mut self, objective: f64) -> usize {
        /// A rise by less than this part of the objective is rounding.
        const ROUNDING: f64 = 1e-14;
        let risen = objective > self.highest + ROUNDING * objective.abs();
        self.length = if risen { 0 } else { self.length + 1 };
        self.highest = self.highest.max(objective);
        self.length
    }
}

/// Brings the active set to a maximum: one function at a time while that pays, all together near the end.
///
/// Every step raises the evidence. `noise` is given where beta may move.
pub(super) fn converge(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    let mut damping = Coordinates::of(stats).damping();
    let (mut failures, mut plateau) = (0, Plateau::new());
    loop {
        climb(stats, state, effort, recorder)?;
        move_noise(stats, state, noise, recorder)?;
        let outlook = look(state, noise);
        if outlook.best_deletion.is_some() {
            continue;
        }
        if outlook.residual <= effort.tol {
            return Ok(Settled::Converged);
        }
        // Where rounding leaves more of the residual than is asked for, steps could go on for ever.
        if plateau.length_at(state.log_posterior()) >= MOST_LEVEL {
            return Ok(Settled::Stalled);
        }
        if joint::step(stats, state, noise, &mut damping)? {
            recorder.step(Action::Joint, None, state)?;
            failures = 0;
        } else if failures < 3 && state.len() > 0 {
            failures += 1;
            sweep_once(stats, state, effort.tol, recorder)?;
        } else {
            return Ok(Settled::Stalled);
        }
    }
}

/// Largest distance of a hyperparameter from its maximum, in logs.
pub(super) fn residual(state: &State, noise: Option<NoiseRange>) -> f64 {
    look(state, noise).residual
}

/// The single-function step on the active set that gains most, if any is worth the effort.
pub(super) fn coarse_step(state: &State, effort: Effort) -> Option<Proposal> {
    Outlook::of(state, effort.step).coarse_step(effort.step)
}

/// Single-function steps, greatest gain first, while they gain much or delete.
fn climb(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    // Rank-one updates drift; each recomputation starts afresh.
    let refresh_after = 2 * state.len() + 20;
    let mut steps = 0;
    loop {
        let Some(proposal) = coarse_step(state, effort) else {
            return Ok(());
        };
        apply(stats, state, proposal, recorder)?;
        steps += 1;
        if steps % refresh_after == 0 {
            state.recompute()?;
        }
    }
}

/// One step on each function that is further from its maximum than `tol`.
fn sweep_once(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    for k in 0..state.len() {
        let factors = state.factors(k);
        if let Some(alpha) = factors.optimal_alpha()
            && factors.change_from(state.alpha[k]) > tol
        {
            let gain = factors.gain_of_moving(state.alpha[k], alpha);
            apply(stats, state, Proposal { k, alpha, gain }, recorder)?;
        }
    }
    state.recompute()?;
    Ok(())
}

fn apply(
    stats: &mut dyn Statistics,
    state: &mut State,
    proposal: Proposal,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    let Proposal { k, alpha, gain } = proposal;
    let j = state.active[k];
    let action = if alpha.is_finite() {
        state.reestimate(k, alpha)?;
        Action::Reestimate(j)
    } else {
        state.delete(k);
        Action::Delete(j)
    };
    state.recentre(stats)?;
    recorder.step(action, Some(gain), state)
}

/// Moves beta towards its fixed point (Tipping & Faul 2003, section 4, step 9), shortening the move until the
/// evidence rises.
fn move_noise(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    let Some(range) = noise else { return Ok(()) };
    let mut change = (noise_fixed_point(state, range) / state.beta).ln();
    // Small moves are left to the joint steps; in an empty model this is the whole optimum.
    let worthwhile = if state.len() > 0 { 0.1 } else { 1e-12 };
    if change.abs() < worthwhile {
        return Ok(());
    }
    let (alpha, beta, evidence) = (state.alpha.clone(), state.beta, state.log_posterior());
    for _ in 0..20 {
        state.set_hyperparameters(&alpha, range.snapped(beta * change.exp()))?;
        state.recentre(stats)?;
        if state.log_posterior() > evidence {
            return recorder.step(Action::Noise, None, state);
        }
        change *= 0.5;
    }
    state.set_hyperparameters(&alpha, beta)?;
    Ok(())
}

/// (N - sum gamma + 2 c) / (||t - Phi mu||^2 + 2 d), within range: Tipping (2001), appendix A.
fn noise_fixed_point(state: &State, range: NoiseRange) -> f64 {
    let gamma: f64 = (0..state.len()).map(|k| state.gamma(k)).sum();
    let prior = state.noise_prior;
    let degrees = (state.n_noise() - gamma + 2.0 * prior.shape).max(f64::MIN_POSITIVE);
    let residual = state.deviance_at_mean().max(0.0) + 2.0 * prior.rate;
    // Written so that a residual of zero gives the floor of the noise, not infinity.
    if residual * range.beta_max <= degrees {
        range.beta_max
    } else {
        degrees / residual
    }
}

fn look(state: &State, noise: Option<NoiseRange>) -> Outlook {
    // Of moves only the way they have to go is asked.
    let mut outlook = Outlook::of(state, f64::INFINITY);
    for k in 0..state.len() {
        outlook.residual = outlook
            .residual
            .max(state.factors(k).change_from(state.alpha[k]));
    }
    if let Some(range) = noise
        && !joint::held_at_floor(state, range)
    {
        outlook.residual = outlook
            .residual
            .max((noise_fixed_point(state, range) / state.beta).ln().abs());
    }
    outlook
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::super::prior::{Gamma, Priors};
    use super::super::settings::FREE;
    use super::*;
    use crate::stats::{DenseDesign, Observations};
    use crate::{Likelihood, Result};

    /// A model of so many functions on a hundred rows, all with an alpha of 1.
    fn model(size: usize, prior: [f64; 2]) -> Result<State> {
        let n = 100;
        let value = |i: usize| ((i * 7919 % 1009) as f64 * 0.37).sin();
        let values: Vec<f64> = (0..n * size).map(value).collect();
        let target = (0..n).map(|i| (0.3 * i as f64).cos()).collect();
        let design = DenseDesign::new(&values, n, size)?;
        let mut stats = Observations::new(&design, Likelihood::Gaussian, target, None)?;
        let deviance = stats.deviance(&[], &[])?;
        let mut state = State::empty(30.0, Gamma::FLAT, deviance, stats.n_obs());
        let priors = Priors::new(prior, stats.norms(), stats.target_scale());
        let everything: Vec<usize> = (0..size).collect();
        let pool = Pool::about(&mut stats, &mut state, &priors, &everything)?;
        for i in 0..size {
            let mut products = Vec::new();
            let entrant = pool.entrant(i, &state, &mut products);
            let projection = state.project(&entrant);
            state.add(&entrant, projection, 1.0)?;
        }
        Ok(state)
    }

    /// [`coarse_step`] one by one.
    fn best_of_all(state: &State, least: f64) -> Option<Proposal> {
        let [mut moves, mut deletions] = [None, None];
        for k in 0..state.len() {
            let (factors, old) = (state.factors(k), state.alpha[k]);
            let (best, alpha, gain) = match factors.optimal_alpha() {
                Some(new) => (&mut moves, new, factors.gain_of_moving(old, new)),
                None => (&mut deletions, f64::INFINITY, factors.gain_of_deleting(old)),
            };
            if !alpha.is_finite() || gain >= least {
                Proposal::keep_better(best, Proposal { k, alpha, gain });
            }
        }
        [moves, deletions]
            .into_iter()
            .flatten()
            .max_by(|a: &Proposal, b| a.gain.total_cmp(&b.gain))
    }

    #[test]
    fn the_step_that_gains_most_is_found_without_a_look_at_all() {
        for (size, prior) in [
            (1, [0.0; 2]),
            (5, [0.0; 2]),
            (5, [0.5, 0.1]),
            (80, [0.0; 2]),
        ] {
            let mut state = model(size, prior).unwrap();
            for round in 0..40 {
                let alpha = |k: usize| 10_f64.powf(3.0 * ((k * 31 + round * 17) as f64).sin());
                let alphas: Vec<f64> = (0..size).map(alpha).collect();
                state.set_hyperparameters(&alphas, 30.0).unwrap();
                let (found, best) = (coarse_step(&state, FREE), best_of_all(&state, FREE.step));
                let step = |p: Proposal| (p.k, p.alpha, p.gain);
                assert_eq!(found.map(step), best.map(step));
            }
        }
    }

    #[test]
    fn of_steps_that_gain_the_same_the_first_in_the_model_is_taken() {
        let step = |k: usize, gain: f64| Proposal {
            k,
            alpha: 1.0,
            gain,
        };
        let mut best = None;
        for (k, gain) in [(4, 1.0), (7, 1.0), (2, 1.0), (1, f64::NAN), (9, 0.5)] {
            Proposal::keep_better(&mut best, step(k, gain));
        }
        assert_eq!(best.map(|best| best.k), Some(2));
    }
}
