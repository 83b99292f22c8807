//! Tipping & Faul's loop on a working set: apply the change with the largest gain until none remains.
//!
//! This is section 4 of the paper: S and Q of every candidate are updated at every step ([`Candidates`]) by the formulae of
//! its appendix. A step on a [`WorkingSet`] costs (members x active functions) and touches no data.

use crate::Error;
use crate::fit::candidates::Candidates;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Change;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// Maximizes the evidence on the working set until no change gains more than `effort` asks for.
pub(crate) fn maximize(
    set: &WorkingSet,
    state: &mut State,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut candidates = Candidates::new(set, state);
    maximize_from(set, state, &mut candidates, effort, recorder)
}

/// [`maximize`] with given S and Q of the members.
pub(crate) fn maximize_from(
    set: &WorkingSet,
    state: &mut State,
    candidates: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let coarse = effort.tol.max(Tuning::COARSE_TOL);
    let mut tol = coarse;
    loop {
        step_greedily(set, state, candidates, effort, recorder)?;
        let before = state.clone();
        match refine::converge(&mut &*set, state, Effort { tol, ..effort }, recorder) {
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
                // The working set is too ill-conditioned; the caller continues on the data, or ends as stalled.
                state.clone_from(&before);
                return Ok(());
            }
            outcome => outcome?,
        };
        if (&state.alpha, state.betas()) != (&before.alpha, before.betas()) {
            candidates.refresh(set, state);
        }
        let added = add_several(set, state, candidates, effort, recorder)?;
        if added == 0 && tol <= effort.tol {
            return Ok(());
        }
        tol = if added == 0 { effort.tol } else { coarse };
    }
}

/// Single changes, largest gain first: section 4 of the paper, steps 4 to 8, 10 and 11, at fixed noise.
///
/// Functions that gain less than `effort.step` wait until the active set has converged: next to a function that has not,
/// a similar one would be added.
pub(crate) fn step_greedily(
    set: &WorkingSet,
    state: &mut State,
    candidates: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let min_gain = effort.gain.max(effort.step);
    let mut good = None;
    for steps in 1.. {
        set.check_cancel()?;
        // Step 4, as in section 4.2: of all candidates the one with the largest gain, equations (27), (32) and (37).
        let addition = candidates.best_addition(state, min_gain);
        // A duplicate of an active function gains as much as its re-estimation, up to round-off: do not add it.
        let is_better = |change: &Change| {
            addition.is_none_or(|(_, gain)| change.gain >= gain * (1.0 - Tuning::TIE))
        };
        let change = refine::best_change(state, effort).filter(is_better);
        let Some(function) = change
            .map(|change| state.active[change.k])
            .or(addition.map(|(i, _)| i))
        else {
            break; // step 11: nothing gains enough
        };
        let good = good.get_or_insert_with(|| state.clone());
        // Steps 5, 6 and 8: theta = q^2 - s decides whether an active function is re-estimated (20) or deleted (21). Step 7:
        // a candidate is added at its optimal alpha (20). Step 10: each updates S and Q of all candidates, appendix A.2 to A.4.
        let mut outcome = match change {
            Some(change) => candidates.apply(set, state, change, recorder),
            None => candidates.add(set, state, function, recorder),
        };
        // Rank-one updates accumulate round-off; recomputation removes it: equations (6), (24) and (25).
        if outcome.is_ok() && steps % (2 * state.len() + 20) == 0 {
            outcome = state.recompute().map_err(Stop::from);
            if outcome.is_ok() {
                candidates.refresh(set, state);
                good.clone_from(state);
            }
        }
        match outcome {
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
                state.clone_from(good);
                if good.len() > 0 {
                    candidates.delete_cheapest(set, state, recorder)?;
                    good.clone_from(state);
                } else {
                    // Restart from the empty model without the function of the failed step.
                    candidates.refresh(set, state);
                    candidates.exclude(function);
                    recorder.step(Action::Search, None, state)?;
                }
            }
            outcome => outcome?,
        }
    }
    Ok(())
}

/// Adds the candidate with the largest gain and further ones with a fixed fraction of it; returns how many.
fn add_several(
    set: &WorkingSet,
    state: &mut State,
    candidates: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<usize, Stop> {
    let mut min_gain = effort.gain;
    for added in 0..Tuning::MAX_JOINT_ADDITIONS {
        let Some((i, gain)) = candidates.best_addition(state, min_gain) else {
            return Ok(added);
        };
        // Once the active duplicate has converged, this function may gain nothing.
        if added > 0 && set.has_duplicate(i, &state.active) {
            return Ok(added);
        }
        min_gain = min_gain.max(Tuning::JOINT_GAIN_RATIO * gain);
        candidates.add(set, state, i, recorder)?;
    }
    Ok(Tuning::MAX_JOINT_ADDITIONS)
}

impl WorkingSet {
    /// Whether one of the functions `active` is a duplicate of function `i`.
    fn has_duplicate(&self, i: usize, active: &[usize]) -> bool {
        let (products, diagonal) = (self.gram.column(i), self.gram.diagonal());
        let limit = |j: usize| Tuning::DUPLICATE_COS2 * diagonal[i] * diagonal[j];
        active.iter().any(|&j| products[j].powi(2) > limit(j))
    }
}
