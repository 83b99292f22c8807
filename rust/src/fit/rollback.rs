//! Where rounding keeps a fit from its end the last model that was settled stands.

use std::sync::atomic::AtomicBool;

use crate::Error;
use crate::data::check_flag;
use crate::fit::Status;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorded, Recorder, Stop};

/// Whether the evidence is less than it was, which no step makes it: then rounding rules.
pub(crate) fn evidence_fell(state: &State, before: &State) -> bool {
    const SLACK: f64 = 1e-6;
    let (now, then) = (state.log_posterior(), before.log_posterior());
    now < then - SLACK * (1.0 + then.abs())
}

/// Goes back to `good`, the last settled model, which ends the fit. `action`: what that is on record as.
pub(crate) fn roll_back<S: Recorded + Clone>(
    state: &mut S,
    good: &S,
    action: Action,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    state.clone_from(good);
    recorder.step(action, None, state)?;
    Ok(Status::Stalled)
}

/// [`roll_back`] if rounding took the definiteness of a posterior precision, or else the outcome as it is.
pub(crate) fn roll_back_if_indefinite<S: Recorded + Clone>(
    outcome: Result<Status, Stop>,
    state: &mut S,
    good: &S,
    action: Action,
    cancel: Option<&AtomicBool>,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    match outcome {
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            // A factorisation that was told to end early looks like one that broke down.
            check_flag(cancel)?;
            roll_back(state, good, action, recorder)
        }
        outcome => outcome,
    }
}
