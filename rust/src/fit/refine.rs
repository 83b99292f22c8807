//! The inner loop: alphas and noise of the active set, to convergence. The dictionary is not touched.

use crate::data::Statistics;
use crate::fit::model::State;
use crate::fit::newton;
use crate::fit::newton::{Coordinates, NoiseRange};
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::{Effort, Tuning};

/// How the inner loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refined {
    /// Every hyperparameter is within tolerance of its maximum.
    Converged,
    /// Rounding keeps some hyperparameter from its maximum.
    Stalled,
}

/// A step on one function.
#[derive(Clone, Copy)]
pub(crate) struct Proposal {
    /// Position in the active set.
    pub(crate) k: usize,
    /// New alpha; infinite for a deletion.
    pub(crate) alpha: f64,
    pub(crate) gain: f64,
}

/// Rounds in a row that raise the objective by nothing but its last digits.
pub(crate) struct Plateau {
    highest: f64,
    length: usize,
}

impl Plateau {
    pub(crate) fn new() -> Self {
        Self {
            highest: f64::NEG_INFINITY,
            length: 0,
        }
    }

    /// Takes in the objective after one more round; how many there are now.
    pub(crate) fn length_at(&mut self, objective: f64) -> usize {
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
pub(crate) fn converge(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    let mut damping = Coordinates::of(stats).damping();
    let (mut failures, mut plateau) = (0, Plateau::new());
    loop {
        climb(stats, state, effort, recorder)?;
        move_noise(stats, state, noise, recorder)?;
        // The move of the noise may leave functions that are better deleted.
        if (0..state.len()).any(|k| state.factors(k).optimal_alpha().is_none()) {
            continue;
        }
        if residual(state, noise) <= effort.tol {
            return Ok(Refined::Converged);
        }
        // Where rounding leaves more of the residual than is asked for, steps could go on for ever.
        if plateau.length_at(state.log_posterior()) >= Tuning::MAX_PLATEAU {
            return Ok(Refined::Stalled);
        }
        if newton::step(stats, state, noise, &mut damping)? {
            recorder.step(Action::Joint, None, state)?;
            failures = 0;
        } else if failures < 3 && state.len() > 0 {
            failures += 1;
            sweep_once(stats, state, effort.tol, recorder)?;
        } else {
            return Ok(Refined::Stalled);
        }
    }
}

/// Largest |change in ln alpha| (infinite where a function should leave) or |change in ln beta| to the maximum.
pub(crate) fn residual(state: &State, noise: Option<NoiseRange>) -> f64 {
    let change = |k: usize| state.factors(k).change_from(state.alpha[k]);
    let alphas = (0..state.len()).map(change).fold(0.0, f64::max);
    match noise {
        Some(range) if !newton::held_at_floor(state, range) => {
            alphas.max((noise_fixed_point(state, range) / state.beta).ln().abs())
        }
        _ => alphas,
    }
}

/// The re-estimation or deletion on the active set that gains most. Re-estimations that gain less than `effort.step` are left to
/// the joint steps, deletions never. Of equal gains the first in the model wins.
pub(crate) fn best_change(state: &State, effort: Effort) -> Option<Proposal> {
    let mut best: Option<Proposal> = None;
    for k in 0..state.len() {
        let (factors, old) = (state.factors(k), state.alpha[k]);
        let step = match factors.optimal_alpha() {
            Some(alpha) => Proposal {
                k,
                alpha,
                gain: factors.gain_of_moving(old, alpha),
            },
            None => Proposal {
                k,
                alpha: f64::INFINITY,
                gain: factors.gain_of_deleting(old),
            },
        };
        let is_worth_it = step.gain >= effort.step || step.alpha == f64::INFINITY;
        if is_worth_it && best.is_none_or(|best| step.gain > best.gain) {
            best = Some(step);
        }
    }
    best
}

/// Single-function steps, greatest gain first, while they gain much or delete.
fn climb(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Rank-one updates drift; each recomputation starts afresh.
    let refresh_after = 2 * state.len() + 20;
    let mut steps = 0;
    loop {
        let Some(proposal) = best_change(state, effort) else {
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
) -> Result<(), Stop> {
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
) -> Result<(), Stop> {
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
) -> Result<(), Stop> {
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
