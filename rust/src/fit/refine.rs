//! Refinement: the alphas of the active set and the noise to convergence, without a pass over the dictionary.

use crate::data::Statistics;
use crate::fit::model::Model;
use crate::fit::newton;
use crate::fit::newton::Damping;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::{Effort, Tuning};

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
    /// The change of active function `k` to its optimal alpha, or to the nearest maximum; its alpha stays if it can gain no more than
    /// `least`.
    fn near(model: &Model, k: usize, least: f64) -> Self {
        let (alpha, gain) = model.factors(k).near_move(model.alpha[k], least);
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
/// Every step raises the evidence. Returns whether every hyperparameter is within tolerance of its maximum; `false` where round-off
/// prevents that.
pub(crate) fn converge(
    stats: &mut dyn Statistics,
    model: &mut Model,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    let mut damping = Damping::of(stats);
    let (mut failures, mut plateau) = (0, Plateau::new());
    loop {
        apply_best_changes(stats, model, effort, recorder)?;
        update_noise(stats, model, effort, recorder)?;
        // At the new noise some functions may have to be deleted.
        let is_deleted = |k| Change::near(model, k, effort.step).alpha == f64::INFINITY;
        if model.penalized().any(is_deleted) {
            continue;
        }
        if residual(model, effort) <= effort.tol {
            return Ok(true);
        }
        // Round-off may keep the residual above the tolerance for ever.
        if plateau.length_at(model.log_posterior()) >= Tuning::MAX_STEPS / 4 {
            return Ok(false);
        }
        if newton::step(stats, model, effort, &mut damping)? {
            recorder.step(Action::Joint, None, model)?;
            failures = 0;
        } else if failures < 3 && model.len() > 0 {
            failures += 1;
            reestimate_each(stats, model, effort.tol, recorder)?;
        } else {
            return Ok(false);
        }
    }
}

/// The largest distance of a ln alpha or ln beta from its own optimum; infinite if a function should be deleted.
pub(crate) fn residual(model: &Model, effort: Effort) -> f64 {
    let change = |k: usize| model.factors(k).change_from(model.alpha[k]);
    let alphas = model.penalized().map(change).fold(0.0, f64::max);
    let free = model.free_levels(effort).into_iter();
    free.map(|l| model.noise_change(l).abs())
        .fold(alphas, f64::max)
}

/// The re-estimation or deletion with the largest gain. Re-estimations have to gain at least `effort.step`. Of equal gains the
/// first in the model wins.
pub(crate) fn best_change(model: &Model, effort: Effort) -> Option<Change> {
    model
        .penalized()
        .map(|k| Change::near(model, k, effort.step))
        .filter(|change| change.gain >= effort.step || change.alpha == f64::INFINITY)
        .reduce(|best, next| if next.gain > best.gain { next } else { best })
}

/// Changes of single functions, largest gain first, while [`best_change`] has any.
fn apply_best_changes(
    stats: &mut dyn Statistics,
    model: &mut Model,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Rank-one updates accumulate round-off; recomputation removes it.
    let recompute_after = 2 * model.len() + 20;
    let mut steps = 0;
    while let Some(change) = best_change(model, effort) {
        apply(stats, model, change, recorder)?;
        steps += 1;
        if steps % recompute_after == 0 {
            model.recompute()?;
        }
    }
    Ok(())
}

/// Re-estimates each function whose ln alpha is further than `tol` from its maximum.
pub(crate) fn reestimate_each(
    stats: &mut dyn Statistics,
    model: &mut Model,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    for k in model.penalized().collect::<Vec<_>>() {
        let (alpha, gain) = model.factors(k).best_move(model.alpha[k]);
        if alpha.is_finite() && (alpha / model.alpha[k]).ln().abs() > tol {
            apply(stats, model, Change { k, alpha, gain }, recorder)?;
        }
    }
    model.recompute()?;
    Ok(())
}

pub(crate) fn apply(
    stats: &mut dyn Statistics,
    model: &mut Model,
    change: Change,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let Change { k, alpha, gain } = change;
    let j = model.active[k];
    let action = if alpha.is_finite() {
        model.reestimate(k, alpha)?;
        Action::Reestimate(j)
    } else {
        model.delete(k);
        Action::Delete(j)
    };
    model.recentre(stats)?;
    recorder.step(action, Some(gain), model)
}

/// Moves each beta towards its fixed point (Tipping & Faul 2003, section 4, step 9), with step halving until the evidence
/// rises.
fn update_noise(
    stats: &mut dyn Statistics,
    model: &mut Model,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    // Small changes are left to the joint steps, which an empty model does not have.
    let min_change = if model.len() > 0 {
        Tuning::COARSE_TOL
    } else {
        Tuning::ROUNDING
    };
    let change = |l: usize| (l, model.noise_change(l));
    let mut changes: Vec<(usize, f64)> =
        model.free_levels(effort).into_iter().map(change).collect();
    if changes.iter().all(|(_, change)| change.abs() < min_change) {
        return Ok(());
    }
    let (alpha, betas, evidence) = (model.alpha.clone(), model.betas(), model.log_posterior());
    for _ in 0..20 {
        let mut moved = betas.clone();
        for &(l, change) in &changes {
            moved[l] = model.levels[l].noise.limited(betas[l] * change.exp());
        }
        model.set_hyperparameters(&alpha, &moved)?;
        model.recentre(stats)?;
        if model.log_posterior() > evidence {
            return recorder.step(Action::Noise, None, model);
        }
        for (_, change) in &mut changes {
            *change *= 0.5;
        }
    }
    model.set_hyperparameters(&alpha, &betas)?;
    Ok(())
}
