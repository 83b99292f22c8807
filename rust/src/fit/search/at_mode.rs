//! Exchanges through the Laplace approximation.
//!
//! At the posterior mode the likelihood is replaced by a quadratic, on which exchanges are what they are for a Gaussian.
//! What a move gains there is a proposal: the mode is found anew, the fit settles, and the move stands if the Laplace
//! evidence that has been computed again is higher. Far moves take the quadratic further than it holds; so where several
//! together fail the first is tried alone.

use crate::Error;
use crate::data::{Statistics, check_flag};
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::mode::find_mode;
use crate::fit::laplace::schedule::finish;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::search::exchange::{MOST_ROUNDS, keep_better};
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::settings::{Rules, Search};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;

/// Moves that are made before the mode is found anew.
const TOGETHER: [usize; 2] = [usize::MAX, 1];

/// Goes on from a fixed point of a fit by the Laplace approximation; never to a lower one.
pub(crate) fn go_on_at_modes(
    found: Status,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    if rules.search == Search::Greedy || state.len() == 0 {
        return Ok(found);
    }
    let greedy = state.clone();
    let outcome = search(stats, state, priors, rules, recorder);
    keep_better(found, outcome, &greedy, stats, state, recorder)
}

fn search(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Stop> {
    let mut status = None;
    let mut reach = SearchBudget::of(rules.search);
    for _ in 0..MOST_ROUNDS {
        let mut better = None;
        for most_moves in TOGETHER {
            reach.moves_left = most_moves;
            better = attempt(stats, state, priors, rules, &mut reach, recorder)?;
            // One move has been tried alone then, or there was none.
            if better.is_some() || most_moves - reach.moves_left <= 1 {
                break;
            }
        }
        if better.is_none() {
            break;
        }
        status = better;
    }
    Ok(status)
}

/// Moves on the quadratic at the mode, and how the fit ends that goes on from there; `None`, and the state as it was, if it
/// does not end higher.
fn attempt(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    reach: &mut SearchBudget,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Stop> {
    let before = state.clone();
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    find_mode(stats, state)?;
    dictionary.refresh(stats, state)?;
    let members = dictionary.substitutes(state);
    let pool = WorkingSet::about(stats, state, priors, &members)?;
    let moved = pool.within(state, recorder, |state, _| {
        improve(&pool, state, None, reach)
    });
    let outcome = match moved {
        Ok(true) => settled(stats, state, &before, priors, rules, recorder),
        Ok(false) => Ok(None),
        Err(halt) => Err(halt),
    };
    match outcome {
        Ok(Some(status)) => return Ok(Some(status)),
        Ok(None) => {}
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            check_flag(stats.cancel_flag().as_deref())?;
        }
        Err(halt) => return Err(halt),
    }
    state.clone_from(&before);
    Ok(None)
}

/// Settles a state that has moved; `None` if that does not end above `before`.
fn settled(
    stats: &mut dyn Statistics,
    state: &mut State,
    before: &State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Stop> {
    find_mode(stats, state)?;
    if state.log_posterior() + Tuning::MAX_TRIAL_DEFICIT < before.log_posterior() {
        return Ok(None);
    }
    recorder.step(Action::Search, None, state)?;
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    let status = finish(stats, state, &mut dictionary, 0, rules, recorder)?;
    let better = state.log_posterior() > before.log_posterior() + Tuning::MIN_EXCHANGE_GAIN;
    if better && status == Status::Converged {
        return Ok(Some(status));
    }
    // The record goes on from where the state goes back to.
    recorder.step(Action::Search, None, before)?;
    Ok(None)
}
