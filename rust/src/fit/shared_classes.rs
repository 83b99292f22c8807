//! The softmax with one alpha for each basis function, shared by all classes: sequential, through the Laplace approximation.
//!
//! The scheme of [`laplace`](super::laplace) with basis functions for functions: the likelihood is linearised at the mode,
//! alphas are moved and functions with their C weights enter and leave where the Gaussian evidence of that gains most
//! ([`Shared`](super::shared::Shared), in the eigenvectors of the sparsity matrix), and the end is left to Newton's method
//! on the fixed-point equations, `alpha = (sum_c gamma_c) / (sum_c mu_c^2)`, with the motion of the mode and of the working
//! weights in the Jacobian. What is certified is that fixed point.

use super::Status;
use super::inner::{Proposal, Settled};
use super::laplace::settle;
use super::mode::find_mode;
use super::record::{Action, Halt, Recorder};
use super::settings::{FINE_STEP, FREE, LOOSE_TOL, Rules};
use super::settled::unless_indefinite;
use super::shared_candidates::SharedCandidates;
use super::state::State;
use super::stationary::polish;
use crate::stats::Statistics;

/// Rounds of mode and alphas between two passes over the dictionary.
const ROUNDS: usize = 3;

/// Runs from an empty model to convergence.
///
/// Where rounding takes the definiteness of the posterior precision, the last model that was settled stands.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    state.sharing = stats.n_predictors();
    let mut good = state.clone();
    let outcome = go_on(stats, state, &mut good, rules, recorder);
    let cancel = stats.cancel_flag();
    unless_indefinite(
        outcome,
        state,
        &good,
        Action::Mode,
        cancel.as_deref(),
        recorder,
    )
}

/// [`maximise`]; `good` is kept at the last model before functions were added.
fn go_on(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut candidates = SharedCandidates::new(stats);
    let loose = LOOSE_TOL.max(rules.tol);
    let (mut fine, mut last_gain) = (false, f64::INFINITY);
    loop {
        let mut settled = None;
        if fine {
            settled = Some(settle(stats, state, rules.tol, recorder)?);
        } else if !alternate(stats, state, loose, recorder)? && last_gain < FREE.gain {
            // Otherwise functions enter for what moving those in the model would gain as well.
            polish(stats, state, loose, recorder)?;
        }
        candidates.refresh(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        good.clone_from(state);
        if let Some(gain) = candidates.add(stats, state, recorder)? {
            last_gain = gain;
            fine |= candidates.returns();
            continue;
        }
        match settled {
            None => fine = true,
            Some(Settled::Converged) if !candidates.refuses(state) => return Ok(Status::Converged),
            Some(_) => return Ok(Status::Stalled),
        }
    }
}

/// Mode and alphas of the active set, in turn, a few times or until the alphas stay where they are; whether they do. Ends
/// at a mode.
fn alternate(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Halt> {
    let mut round = 0;
    loop {
        find_mode(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        let far = (0..state.n_alphas()).map(|k| state.change_of(k));
        let there = far.fold(0.0, f64::max) <= tol;
        if there || round >= ROUNDS {
            return Ok(there);
        }
        climb(state, recorder)?;
        round += 1;
    }
}

/// Moves and deletions of one alpha at a time on the likelihood as it is linearised, greatest gain first.
fn climb(state: &mut State, recorder: &mut Recorder<'_>) -> Result<(), Halt> {
    // Rank-one updates drift; each recomputation starts afresh.
    let refresh_after = 2 * state.n_alphas() + 20;
    let mut steps = 0;
    while let Some(Proposal { k, alpha, gain }) = best_step(state) {
        let j = state.active[state.members(k).start];
        let action = if alpha.is_finite() {
            state.reestimate_together(k, alpha)?;
            Action::Reestimate(j)
        } else {
            state.delete_together(k);
            Action::Delete(j)
        };
        recorder.step(action, Some(gain), state)?;
        steps += 1;
        if steps % refresh_after == 0 {
            state.recompute()?;
        }
    }
    state.recompute()?;
    Ok(())
}

/// The step on one alpha that gains most: a move only if it gains enough, a deletion always.
fn best_step(state: &State) -> Option<Proposal> {
    let steps = (0..state.n_alphas()).map(|k| state.proposal(k));
    steps
        .filter(|step| step.alpha.is_infinite() || step.gain >= FINE_STEP)
        .fold(None, |best: Option<Proposal>, step| match best {
            Some(best) if best.gain >= step.gain => Some(best),
            _ => Some(step),
        })
}
