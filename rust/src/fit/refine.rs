//! Refinement: the alphas of the active set and the noise to convergence, without a pass over the dictionary.

use crate::data::Statistics;
use crate::fit::model::State;
use crate::fit::newton;
use crate::fit::newton::{Coordinates, NoiseRange};
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::{Effort, Tuning};

/// How refinement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refined {
    /// Every hyperparameter is within tolerance of its maximum.
    Converged,
    /// Round-off prevents convergence of some hyperparameter.
    Stalled,
}

/// A change of one active function.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    /// Position in the active set.
    pub(crate) k: usize,
    /// New alpha; infinite for a deletion.
    pub(crate) alpha: f64,
    pub(crate) gain: f64,
}

impl Change {
    /// The change of active function `k` to its optimal alpha.
    fn of(state: &State, k: usize) -> Self {
        let (factors, old) = (state.factors(k), state.alpha[k]);
        let (alpha, gain) = match factors.optimal_alpha() {
            Some(alpha) => (alpha, factors.gain_of_moving(old, alpha)),
            None => (f64::INFINITY, factors.gain_of_deleting(old)),
        };
        Self { k, alpha, gain }
    }
}

/// Counts consecutive rounds that raise the objective by no more than round-off.
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

    /// Registers the objective after one more round and returns the count.
    pub(crate) fn length_at(&mut self, objective: f64) -> usize {
        let risen = objective > self.highest + Tuning::ROUNDING * objective.abs();
        self.length = if risen { 0 } else { self.length + 1 };
        self.highest = self.highest.max(objective);
        self.length
    }
}

/// Maximizes the evidence over the active set: first changes of single functions, then joint steps.
///
/// Every step raises the evidence. `noise` is the range of beta, `None` if beta is fixed.
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
        apply_best_changes(stats, state, effort, recorder)?;
        update_noise(stats, state, noise, recorder)?;
        // At the new noise some functions may have to be deleted.
        if (0..state.len()).any(|k| state.factors(k).optimal_alpha().is_none()) {
            continue;
        }
        if residual(state, noise) <= effort.tol {
            return Ok(Refined::Converged);
        }
        // Round-off may keep the residual above the tolerance for ever.
        if plateau.length_at(state.log_posterior()) >= Tuning::MAX_PLATEAU {
            return Ok(Refined::Stalled);
        }
        if newton::step(stats, state, noise, &mut damping)? {
            recorder.step(Action::Joint, None, state)?;
            failures = 0;
        } else if failures < 3 && state.len() > 0 {
            failures += 1;
            reestimate_each(stats, state, effort.tol, recorder)?;
        } else {
            return Ok(Refined::Stalled);
        }
    }
}

/// The largest distance of a ln alpha or ln beta from its own optimum; infinite if a function should be deleted.
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

/// The re-estimation or deletion with the largest gain. Re-estimations have to gain at least `effort.step`. Of equal gains the
/// first in the model wins.
pub(crate) fn best_change(state: &State, effort: Effort) -> Option<Change> {
    (0..state.len())
        .map(|k| Change::of(state, k))
        .filter(|change| change.gain >= effort.step || change.alpha == f64::INFINITY)
        .reduce(|best, next| if next.gain > best.gain { next } else { best })
}

/// Changes of single functions, largest gain first, while [`best_change`] has any.
fn apply_best_changes(
    stats: &mut dyn Statistics,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Rank-one updates accumulate round-off; recomputation removes it.
    let recompute_after = 2 * state.len() + 20;
    let mut steps = 0;
    while let Some(change) = best_change(state, effort) {
        apply(stats, state, change, recorder)?;
        steps += 1;
        if steps % recompute_after == 0 {
            state.recompute()?;
        }
    }
    Ok(())
}

/// Re-estimates each function whose ln alpha is further than `tol` from its maximum.
fn reestimate_each(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    for k in 0..state.len() {
        let change = Change::of(state, k);
        let distance = (change.alpha / state.alpha[k]).ln().abs();
        if change.alpha.is_finite() && distance > tol {
            apply(stats, state, change, recorder)?;
        }
    }
    state.recompute()?;
    Ok(())
}

fn apply(
    stats: &mut dyn Statistics,
    state: &mut State,
    change: Change,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let Change { k, alpha, gain } = change;
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

/// Moves beta towards its fixed point (Tipping & Faul 2003, section 4, step 9), with step halving until the evidence
/// rises.
fn update_noise(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let Some(range) = noise else { return Ok(()) };
    let mut change = (noise_fixed_point(state, range) / state.beta).ln();
    // Small changes are left to the joint steps, which an empty model does not have.
    let min_change = if state.len() > 0 {
        Tuning::COARSE_TOL
    } else {
        Tuning::ROUNDING
    };
    if change.abs() < min_change {
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
    // A residual of zero gives the noise floor, not infinity.
    if residual * range.beta_max <= degrees {
        range.beta_max
    } else {
        degrees / residual
    }
}
