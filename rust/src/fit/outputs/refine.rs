//! Refinement of the alphas and noise levels of several outputs: re-estimation and deletion of active functions, no additions.

use crate::data::OutputStatistics;
use crate::fit::newton::Coordinates;
use crate::fit::outputs::model::OutputState;
use crate::fit::outputs::newton;
use crate::fit::outputs::noise::NoiseLevels;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::{Change, Plateau, Refined};
use crate::fit::shared_evidence::{SharedFactors, Term};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::NotPositiveDefinite;

/// The re-estimation of active function `k`, or its deletion.
fn proposal(state: &OutputState, k: usize, terms: &mut Vec<Term>) -> Change {
    state.factors(k, terms);
    let (shared, old) = (SharedFactors(terms), state.alpha[k]);
    let (alpha, gain) = match shared.reestimated(old) {
        Some(alpha) => (alpha, shared.gain_of_moving(old, alpha)),
        None => (f64::INFINITY, shared.gain_of_deleting(old)),
    };
    Change { k, alpha, gain }
}

/// The step on one active function with the largest gain. Re-estimations count only if they gain `least`.
///
/// # Errors
/// [`NotPositiveDefinite`] if a posterior variance is not positive by round-off: its gain would be arbitrary.
pub(crate) fn best_step(
    state: &OutputState,
    least: f64,
) -> Result<Option<Change>, NotPositiveDefinite> {
    state.check_variances()?;
    let mut terms = Vec::with_capacity(state.levels.len());
    let steps = (0..state.len()).map(|k| proposal(state, k, &mut terms));
    Ok(steps
        .filter(|step| step.alpha.is_infinite() || step.gain >= least)
        .fold(None, |best: Option<Change>, step| match best {
            Some(best) if best.gain >= step.gain => Some(best),
            _ => Some(step),
        }))
}

/// Largest |change in ln alpha| or |change in ln beta| to the maximum.
fn residual(state: &OutputState, noise: &NoiseLevels) -> f64 {
    let mut terms = Vec::with_capacity(state.levels.len());
    let mut residual = 0.0_f64;
    for k in 0..state.len() {
        state.factors(k, &mut terms);
        residual = residual.max(SharedFactors(&terms).change_from(state.alpha[k]));
    }
    for l in 0..state.levels.len() {
        residual = residual.max(noise.change(state, l).abs());
    }
    residual
}

/// What the loops of a fit share.
pub(crate) struct Fit<'a, 'w> {
    pub(crate) stats: &'a mut dyn OutputStatistics,
    pub(crate) state: &'a mut OutputState,
    pub(crate) noise: &'a NoiseLevels,
    pub(crate) recorder: &'a mut Recorder<'w>,
}

impl Fit<'_, '_> {
    /// Records a step with its predicted gain.
    pub(crate) fn record(&mut self, action: Action, gain: Option<f64>) -> Result<(), Stop> {
        self.recorder.step(action, gain, self.state)
    }

    /// Converges to a maximum over the active set: by steps on one function while they gain, then by joint steps. Every step raises
    /// the evidence.
    pub(crate) fn converge(&mut self, effort: Effort) -> Result<Refined, Stop> {
        let mut damping = Coordinates::Inverses.damping();
        let (mut failures, mut plateau) = (0, Plateau::new());
        loop {
            self.step_singly(effort)?;
            self.update_noise()?;
            if best_step(self.state, f64::INFINITY)?.is_some() {
                continue;
            }
            if residual(self.state, self.noise) <= effort.tol {
                return Ok(Refined::Converged);
            }
            // If round-off keeps the residual above the tolerance, steps would never end.
            if plateau.length_at(self.state.log_evidence()) >= Tuning::MAX_PLATEAU {
                return Ok(Refined::Stalled);
            }
            if newton::step(self.stats, self.state, self.noise, &mut damping)? {
                self.record(Action::Joint, None)?;
                failures = 0;
            } else if failures < 3 && self.state.len() > 0 {
                failures += 1;
                self.reestimate_all(effort.tol)?;
            } else {
                return Ok(Refined::Stalled);
            }
        }
    }

    /// Steps on one function, largest gain first, while they gain `effort.step` or delete.
    fn step_singly(&mut self, effort: Effort) -> Result<(), Stop> {
        // Rank-one updates accumulate round-off; a recomputation removes it.
        let refresh_after = 2 * self.state.len() + 20;
        let mut steps = 0;
        while let Some(change) = best_step(self.state, effort.step)? {
            self.apply(change)?;
            steps += 1;
            if steps % refresh_after == 0 {
                self.state.recompute()?;
            }
        }
        Ok(())
    }

    /// Re-estimates each alpha that is further than `tol` from its maximum.
    pub(crate) fn reestimate_all(&mut self, tol: f64) -> Result<(), Stop> {
        let mut terms = Vec::with_capacity(self.state.levels.len());
        for k in 0..self.state.len() {
            let change = proposal(self.state, k, &mut terms);
            if change.alpha.is_finite() && (change.alpha / self.state.alpha[k]).ln().abs() > tol {
                self.apply(change)?;
            }
        }
        self.state.recompute()?;
        Ok(())
    }

    fn apply(&mut self, change: Change) -> Result<(), Stop> {
        let Change { k, alpha, gain } = change;
        let j = self.state.active[k];
        let action = if alpha.is_finite() {
            self.state.reestimate(k, alpha)?;
            Action::Reestimate(j)
        } else {
            self.state.delete(k);
            Action::Delete(j)
        };
        self.state.recentre(self.stats)?;
        self.record(action, Some(gain))
    }

    /// Moves the noise levels towards their fixed points, by steps that are halved until the evidence rises.
    fn update_noise(&mut self) -> Result<(), Stop> {
        let (state, noise) = (&mut *self.state, self.noise);
        // Small changes are left to the joint steps. In an empty model there are none.
        let min_change = if state.len() > 0 {
            Tuning::COARSE_TOL
        } else {
            Tuning::ROUNDING
        };
        let mut changes: Vec<f64> = (0..state.levels.len())
            .map(|l| noise.change(state, l))
            .collect();
        if changes.iter().all(|change| change.abs() < min_change) {
            return Ok(());
        }
        let (alpha, betas, evidence) = (state.alpha.clone(), state.betas(), state.log_evidence());
        for _ in 0..20 {
            let moved: Vec<f64> = (0..betas.len())
                .map(|l| noise.snapped(l, betas[l] * changes[l].exp()))
                .collect();
            state.set_hyperparameters(&alpha, &moved)?;
            state.recentre(self.stats)?;
            if state.log_evidence() > evidence {
                return self.record(Action::Noise, None);
            }
            for change in &mut changes {
                *change *= 0.5;
            }
        }
        state.set_hyperparameters(&alpha, &betas)?;
        Ok(())
    }
}
