//! Rollback: if round-off prevents convergence, the last converged model is restored and the fit ends as stalled.

use crate::Error;
use crate::fit::Status;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::Tuning;

/// Whether the evidence is below that of `before`. Every step raises it, so this is an effect of round-off.
pub(crate) fn evidence_fell(state: &State, before: &State) -> bool {
    let (now, then) = (state.log_posterior(), before.log_posterior());
    now < then - Tuning::MIN_REPORTED_GAIN * (1.0 + then.abs())
}

/// Restores `good`, the last converged model, and records that as `action`; the fit ends as stalled.
pub(crate) fn roll_back(
    state: &mut State,
    good: &State,
    action: Action,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    state.clone_from(good);
    recorder.step(action, None, state)?;
    Ok(Status::Stalled)
}

/// [`roll_back`] if the outcome is an indefinite posterior precision; other outcomes are returned.
pub(crate) fn roll_back_if_indefinite(
    outcome: Result<Status, Stop>,
    state: &mut State,
    good: &State,
    action: Action,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    match outcome {
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            roll_back(state, good, action, recorder)
        }
        outcome => outcome,
    }
}
