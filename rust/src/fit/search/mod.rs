//! Searches for a better model than the greedy optimum.

pub(crate) mod exchange;
pub(crate) mod lns;
pub(crate) mod local;

mod backward_elimination;
mod moves;
mod restarts;

use crate::Error;
use crate::fit::greedy::maximize;
use crate::fit::model::State;
use crate::fit::record::{Recorder, Stop};
use crate::fit::tuning::Effort;
use crate::fit::working_set::WorkingSet;

/// The result of a trial, or `None` if round-off made a posterior precision indefinite.
fn unless_indefinite<T>(trial: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match trial {
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => Ok(None),
        trial => trial.map(Some),
    }
}

/// The greedy algorithm on a working set, without a record.
fn maximize_silently(set: &WorkingSet, state: &mut State, effort: Effort) -> Result<(), Stop> {
    maximize(set, state, effort, &mut Recorder::silent())
}
