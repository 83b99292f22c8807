//! Solves the fixed-point equations of [`residual`](crate::fit::laplace::residual): Newton's method, with Rprop as fallback.

use crate::fit::laplace::Fit;
use crate::fit::laplace::complementarity::josephy_newton_step;
use crate::fit::laplace::mode::{expand_about, find_mode};
use crate::fit::laplace::residual::{Residual, bounded, damped_step, jacobian, solve, stepped};
use crate::fit::model::State;
use crate::fit::record::{Action, Stop};
use crate::fit::refine::Refined;
use crate::fit::tuning::Tuning;
use crate::{Error, Result};

impl Fit<'_, '_> {
    /// Brings the active set to the fixed point: by Newton's method, and by Rprop to a closer start where Newton's method stalls.
    pub(super) fn converge(&mut self, tol: f64) -> Result<Refined, Stop> {
        let mut near = 0.1;
        loop {
            let before = self.state.alpha.clone();
            if self.newton(tol)? == Refined::Converged {
                return Ok(Refined::Converged);
            }
            if Residual::of(self.state).is_rounding(self.state) {
                return Ok(Refined::Stalled);
            }
            // From the same alphas Newton's method would stall again.
            let stuck = self.state.alpha == before;
            let mut moved = false;
            while !moved {
                if near <= tol {
                    return Ok(Refined::Stalled);
                }
                near *= 0.2;
                moved = self.rprop(near)? || !stuck;
            }
        }
    }

    /// Newton's method to the fixed point. Functions whose alpha tends to infinity are deleted once the others have converged.
    pub(super) fn newton(&mut self, tol: f64) -> Result<Refined, Stop> {
        self.record_mode()?;
        for _ in 0..Tuning::MAX_STEPS {
            let here = Residual::of(self.state);
            if here.distance(self.state) <= tol {
                if !here.vanishing.contains(&true) {
                    return Ok(Refined::Converged);
                }
                self.delete(&here.vanishing)?;
                continue;
            }
            let jacobian = here.hold(jacobian(self.stats, self.state)?);
            let moved = if here.is_rounding(self.state) {
                damped_step(self.stats, self.state, &jacobian, &here, 1)?
            } else {
                damped_step(
                    self.stats,
                    self.state,
                    &jacobian,
                    &here,
                    Tuning::MAX_HALVINGS,
                )? || josephy_newton_step(self.stats, self.state, &jacobian, &here)?
            };
            if !moved {
                return Ok(Refined::Stalled);
            }
            self.record(Action::Joint, None)?;
        }
        Ok(Refined::Stalled)
    }

    /// Deletes the marked functions, and finds the mode without them.
    fn delete(&mut self, marked: &[bool]) -> Result<(), Stop> {
        for k in (0..marked.len()).rev().filter(|&k| marked[k]) {
            let j = self.state.active[k];
            let gain = self.state.factors(k).gain_of_deleting(self.state.alpha[k]);
            self.state.delete(k);
            self.record(Action::Delete(j), Some(gain))?;
        }
        self.record_mode()
    }

    /// Rprop (Riedmiller & Braun 1993) with R as the gradient: each alpha follows the sign of its R with its own step, which
    /// grows while the sign stays the same and halves when it changes. Returns whether any step was taken.
    ///
    /// Slow but robust: where R demands alpha = infinity, but not at the alpha that a Newton step predicts, R changes its sign
    /// in between, and halving finds the root. Ends within `near` of the fixed point, at the round-off of R, or after [`Tuning::MAX_STEPS`] rounds.
    fn rprop(&mut self, near: f64) -> Result<bool, Stop> {
        find_mode(self.stats, self.state)?;
        let mut steps = vec![(0.5_f64, 0.0); self.state.len()];
        for round in 0..Tuning::MAX_STEPS {
            let here = Residual::of(self.state);
            if here.distance(self.state) <= near || here.is_rounding(self.state) {
                return Ok(round > 0);
            }
            let mut alphas = Vec::with_capacity(self.state.len());
            for (k, ((step, last), &r)) in steps.iter_mut().zip(&here.values).enumerate() {
                *step = if *last * r < 0.0 {
                    *step * 0.5
                } else {
                    (*step * 1.3).min(Tuning::MAX_LN_CHANGE)
                };
                *last = r;
                let change = if r == 0.0 { 0.0 } else { step.copysign(r) };
                alphas.push(bounded(
                    self.state.alpha[k] * change.exp(),
                    self.state.sparsity(k),
                ));
            }
            self.state.set_alphas(&alphas)?;
            find_mode(self.stats, self.state)?;
            self.record(Action::Joint, None)?;
        }
        Ok(true)
    }

    /// Newton steps that refine a fixed point from the tolerance to round-off, in the alphas and in the mode, so that the
    /// published result does not depend on the order in which sums over rows were accumulated.
    pub(super) fn refine_to_rounding(&mut self) -> Result<(), Stop> {
        let mut best = self.state.clone();
        match self.take_full_steps(&mut best) {
            Ok(()) => {}
            Err(Error::NotPositiveDefinite(_)) => self.state.clone_from(&best),
            Err(error) => return Err(error.into()),
        }
        match self.record(Action::Joint, None) {
            // The fit has converged in any case.
            Err(Stop::MaxIterations) => Ok(()),
            outcome => outcome,
        }
    }

    /// The steps of [`refine_to_rounding`]. `best` is the most accurate state so far.
    fn take_full_steps(&mut self, best: &mut State) -> Result<()> {
        self.step_to_mode()?;
        for _ in 0..2 {
            let here = Residual::of(self.state);
            best.clone_from(self.state);
            if here.distance(self.state) <= Tuning::ROUNDING || here.vanishing.contains(&true) {
                break;
            }
            let jacobian = here.hold(jacobian(self.stats, self.state)?);
            let Some(direction) = solve(&jacobian, &here.values, &here.retained(), 0.0) else {
                break;
            };
            self.state
                .set_alphas(&stepped(self.state, &direction, 1.0))?;
            self.step_to_mode()?;
            // False for NaN.
            if Residual::of(self.state).norm() < here.norm() {
                continue;
            }
            self.state.clone_from(best);
            break;
        }
        Ok(())
    }

    /// One full Newton step to the mode. So close to it the likelihood cannot tell whether a step raises it.
    fn step_to_mode(&mut self) -> Result<()> {
        let mu = self.state.mu().to_vec();
        expand_about(self.stats, self.state, &mu)
    }
}
