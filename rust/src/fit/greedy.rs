//! Tipping & Faul's loop over a pool: the single change that gains most, again and again.
//!
//! This is section 4 of the paper as it stands: S and Q of every candidate are known after every step ([`Candidates`]), by the
//! update formulae of its appendix. On a [`WorkingSet`] a step costs (members x active functions), all of it in the cache.

use crate::Error;
use crate::fit::candidates::Candidates;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Proposal;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// Functions that come in together once single steps are over, and the part of the first one's gain that is the least of the others':
/// after them all are settled anew.
const TOGETHER: usize = 32;
const LEAST_SHARE: f64 = 0.03;

/// Squared cosine of two columns from which the functions are duplicates.
const DUPLICATE_COS2: f64 = 0.999_999;

/// How close to their maxima hyperparameters are before functions come in together. What is left of the way they go with these.
const ROUGHLY: f64 = 0.1;

/// Brings the state to where nothing in the pool gains more than `effort` cares for.
pub(crate) fn maximize(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut outside = Candidates::new(pool, state);
    maximize_from(pool, state, &mut outside, noise, effort, recorder)
}

/// [`maximize`] with the factors of the members at hand.
pub(crate) fn maximize_from(
    pool: &WorkingSet,
    state: &mut State,
    outside: &mut Candidates,
    noise: Option<NoiseRange>,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let rough = effort.tol.max(ROUGHLY);
    let mut tol = rough;
    loop {
        step_greedily(pool, state, outside, effort, recorder)?;
        let before = state.clone();
        let settling = Effort { tol, ..effort };
        match refine::converge(&mut &*pool, state, noise, settling, recorder) {
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
                pool.check_cancel()?;
                // Rounding rules here: what comes next sees more than the pool, or says so.
                state.clone_from(&before);
                return Ok(());
            }
            outcome => outcome?,
        };
        if (&state.alpha, state.beta) != (&before.alpha, before.beta) {
            outside.refresh(pool, state);
        }
        let added = add_several(pool, state, outside, effort, recorder)?;
        if added == 0 && tol <= effort.tol {
            return Ok(());
        }
        tol = if added == 0 { effort.tol } else { rough };
    }
}

/// One change at a time, greatest gain first: the paper's section 4, steps 4 to 8 and 10.
///
/// Functions that gain less than single steps are worth here have to wait until the others are settled: next to one
/// that is not, its like would enter in its place.
pub(crate) fn step_greedily(
    pool: &WorkingSet,
    state: &mut State,
    outside: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let least = effort.gain.max(effort.step);
    let mut good = None;
    for steps in 1.. {
        pool.check_cancel()?;
        let inside = refine::best_change(state, effort);
        let addition = outside.best_addition(state, least);
        // The twin of an active function gains what re-estimating that one does, but for rounding: not an addition.
        let better = |step: &Proposal| {
            addition.is_none_or(|(_, gain)| step.gain >= gain * (1.0 - Tuning::TIE))
        };
        let step = inside.filter(better);
        let Some(concerned) = step
            .map(|step| state.active[step.k])
            .or(addition.map(|(i, _)| i))
        else {
            break;
        };
        let good = good.get_or_insert_with(|| state.clone());
        let mut taken = match step {
            Some(step) => outside.apply(pool, state, step, recorder),
            None => outside.add(pool, state, concerned, recorder),
        };
        // Rank-one updates drift; each recomputation starts afresh.
        if taken.is_ok() && steps % (2 * state.len() + 20) == 0 {
            taken = state.recompute().map_err(Stop::from);
            if taken.is_ok() {
                outside.refresh(pool, state);
                good.clone_from(state);
            }
        }
        match taken {
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
                pool.check_cancel()?;
                state.clone_from(good);
                if good.len() > 0 {
                    outside.make_do(pool, state, recorder)?;
                    good.clone_from(state);
                } else {
                    // From nothing again, without the function over which it came to grief.
                    outside.refresh(pool, state);
                    outside.exclude(concerned);
                    recorder.step(Action::Search, None, state)?;
                }
            }
            taken => taken?,
        }
    }
    Ok(())
}

/// Adds the candidate with most to gain, and those that after it still have a good part of that; returns how many.
fn add_several(
    pool: &WorkingSet,
    state: &mut State,
    outside: &mut Candidates,
    effort: Effort,
    recorder: &mut Recorder<'_>,
) -> Result<usize, Stop> {
    let mut least = effort.gain;
    for added in 0..TOGETHER {
        let Some((i, gain)) = outside.best_addition(state, least) else {
            return Ok(added);
        };
        // A duplicate of an active function may gain nothing any more once that one has converged.
        if added > 0 && pool.has_duplicate(i, &state.active) {
            return Ok(added);
        }
        least = least.max(LEAST_SHARE * gain);
        outside.add(pool, state, i, recorder)?;
    }
    Ok(TOGETHER)
}

impl WorkingSet {
    /// Whether one of these functions is a duplicate of function `i`.
    fn has_duplicate(&self, i: usize, active: &[usize]) -> bool {
        let (products, diagonal) = (self.gram.column(i), self.gram.diagonal());
        let limit = |j: usize| DUPLICATE_COS2 * diagonal[i] * diagonal[j];
        active.iter().any(|&j| products[j].powi(2) > limit(j))
    }
}
