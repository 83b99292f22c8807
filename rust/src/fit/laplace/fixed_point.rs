//! Solves the fixed-point equations of [`residual`](crate::fit::laplace::residual): Newton's method, with Rprop as fallback.

use crate::data::{Statistics, check_flag};
use crate::fit::laplace::complementarity::josephy_newton_step;
use crate::fit::laplace::mode::{expand_about, find_mode};
use crate::fit::laplace::residual::{
    MAX_HALVINGS, MAX_LN_STEP, Residual, bounded, damped_step, jacobian, solve, stepped,
};
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Refined;
use crate::{Error, Result};

/// Brings the active set to the fixed point: by Newton's method, and by Rprop to a closer start where Newton's method stalls.
pub(crate) fn converge(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    let mut near = 0.1;
    loop {
        let before = state.alpha.clone();
        if newton(stats, state, tol, recorder)? == Refined::Converged {
            return Ok(Refined::Converged);
        }
        if Residual::of(state).is_rounding(state) {
            return Ok(Refined::Stalled);
        }
        // From the same alphas Newton's method would stall again.
        let stuck = state.alpha == before;
        let mut moved = false;
        while !moved {
            if near <= tol {
                return Ok(Refined::Stalled);
            }
            near *= 0.2;
            moved = rprop(stats, state, near, recorder)? || !stuck;
        }
    }
}

/// Newton's method to the fixed point. Functions whose alpha tends to infinity are deleted once the others have converged.
pub(crate) fn newton(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    const MAX_STEPS: usize = 60;
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MAX_STEPS {
        let here = Residual::of(state);
        if here.distance(state) <= tol {
            if !here.vanishing.contains(&true) {
                return Ok(Refined::Converged);
            }
            delete(stats, state, &here.vanishing, recorder)?;
            continue;
        }
        let jacobian = here.hold(jacobian(stats, state)?);
        let moved = if here.is_rounding(state) {
            damped_step(stats, state, &jacobian, &here, 1)?
        } else {
            damped_step(stats, state, &jacobian, &here, MAX_HALVINGS)?
                || josephy_newton_step(stats, state, &jacobian, &here)?
        };
        if !moved {
            return Ok(Refined::Stalled);
        }
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(Refined::Stalled)
}

/// Deletes the marked functions, and finds the mode without them.
fn delete(
    stats: &mut dyn Statistics,
    state: &mut State,
    marked: &[bool],
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    for k in (0..marked.len()).rev().filter(|&k| marked[k]) {
        let j = state.active[k];
        let gain = state.factors(k).gain_of_deleting(state.alpha[k]);
        state.delete(k);
        recorder.step(Action::Delete(j), Some(gain), state)?;
    }
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)
}

/// Rprop (Riedmiller & Braun 1993) with R as the gradient: each alpha follows the sign of its R with its own step, which
/// grows while the sign stays the same and halves when it changes. Returns whether any step was taken.
///
/// Slow but robust: where R demands alpha = infinity, but not at the alpha that a Newton step predicts, R changes its sign
/// in between, and halving finds the root. Ends within `near` of the fixed point, at the round-off of R, or after 150 rounds.
fn rprop(
    stats: &mut dyn Statistics,
    state: &mut State,
    near: f64,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    const MAX_ROUNDS: usize = 150;
    const FIRST_STEP: f64 = 0.5;
    find_mode(stats, state)?;
    let mut steps = vec![(FIRST_STEP, 0.0); state.len()];
    for round in 0..MAX_ROUNDS {
        let here = Residual::of(state);
        if here.distance(state) <= near || here.is_rounding(state) {
            return Ok(round > 0);
        }
        let mut alphas = Vec::with_capacity(state.len());
        for (k, ((step, last), &r)) in steps.iter_mut().zip(&here.values).enumerate() {
            *step = if *last * r < 0.0 {
                *step * 0.5
            } else {
                (*step * 1.3).min(MAX_LN_STEP)
            };
            *last = r;
            let change = if r == 0.0 { 0.0 } else { step.copysign(r) };
            alphas.push(bounded(state.alpha[k] * change.exp(), state.sparsity(k)));
        }
        state.set_alphas(&alphas)?;
        find_mode(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(true)
}

/// Newton steps that refine a fixed point from the tolerance to round-off, in the alphas and in the mode, so that the
/// published result does not depend on the order in which sums over rows were accumulated.
pub(crate) fn refine_to_rounding(
    stats: &mut dyn Statistics,
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut best = state.clone();
    match take_full_steps(stats, state, &mut best) {
        Ok(()) => {}
        Err(Error::NotPositiveDefinite(_)) => {
            check_flag(stats.cancel_flag().as_deref())?;
            state.clone_from(&best);
        }
        Err(error) => return Err(error.into()),
    }
    match recorder.step(Action::Joint, None, state) {
        // The fit has converged in any case.
        Err(Stop::MaxIterations) => Ok(()),
        outcome => outcome,
    }
}

/// The steps of [`refine_to_rounding`]. `best` is the most accurate state so far.
fn take_full_steps(stats: &mut dyn Statistics, state: &mut State, best: &mut State) -> Result<()> {
    const ROUNDING_TOL: f64 = 1e-12;
    const MAX_STEPS: usize = 2;
    step_to_mode(stats, state)?;
    for _ in 0..MAX_STEPS {
        let here = Residual::of(state);
        best.clone_from(state);
        if here.distance(state) <= ROUNDING_TOL || here.vanishing.contains(&true) {
            break;
        }
        let jacobian = here.hold(jacobian(stats, state)?);
        let Some(direction) = solve(&jacobian, &here.values, &here.retained(), 0.0) else {
            break;
        };
        state.set_alphas(&stepped(state, &direction, 1.0))?;
        step_to_mode(stats, state)?;
        // False for NaN.
        if Residual::of(state).norm() < here.norm() {
            continue;
        }
        state.clone_from(best);
        break;
    }
    Ok(())
}

/// One full Newton step to the mode. So close to it the likelihood cannot tell whether a step raises it.
fn step_to_mode(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    let mu = state.mu.clone();
    expand_about(stats, state, &mu)
}
