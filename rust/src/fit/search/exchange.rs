//! From an optimum of the sequential scheme to better ones: functions exchanged, merged and split.
//!
//! Tipping & Faul (2003) note that their algorithm may end at a poor local maximum. Here functions of a model that has
//! converged change places with others, first on a pool of those that come into question; what is found there is settled on
//! all of the data like any other model, and the fit never ends lower than where it came from.

pub(crate) use crate::fit::search::at_mode::go_on_at_modes;

use crate::Error;
use crate::data::{Statistics, check_flag};
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::sequential::{Start, complete, refresh_or_update};
use crate::fit::settings::{Rules, Search};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;

/// Pools to search, each about what was found on the one before.
pub(crate) const MOST_ROUNDS: usize = 8;

/// Goes on from an optimum, with a Gaussian likelihood; never to a lower one.
pub(crate) fn go_on(
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

/// Exchanges that a fit tries which asks for no search, where its functions are few: on the pool as it is, a quadratic likelihood.
pub(crate) fn exchange_few(pool: &WorkingSet, state: &mut State) -> Result<bool, Stop> {
    improve(pool, state, None, &mut SearchBudget::of(Search::Greedy))
}

/// The better of two ends: that of the search, or where it set out from.
pub(crate) fn keep_better(
    found: Status,
    outcome: Result<Option<Status>, Stop>,
    greedy: &State,
    stats: &dyn Statistics,
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let status = match outcome {
        Ok(status) => status,
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            // A factorisation that was told to end early looks like one that broke down.
            check_flag(stats.cancel_flag().as_deref())?;
            None
        }
        Err(halt) => return Err(halt),
    };
    if let Some(status) = status
        && state.log_posterior() >= greedy.log_posterior()
    {
        return Ok(status);
    }
    let moved = state.log_posterior().to_bits() != greedy.log_posterior().to_bits();
    state.clone_from(greedy);
    if moved {
        recorder.step(Action::Search, None, state)?;
    }
    Ok(found)
}

/// Rounds of a pool and what follows from it; `None` if nothing was found.
fn search(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Stop> {
    let noise = rules.noise_range();
    let mut reach = SearchBudget::of(rules.search);
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let loose = rules.loosened();
    let whole = dictionary.n_candidates() <= Tuning::MAX_WHOLE_DICTIONARY;
    let mut status = None;
    for round in 0..MOST_ROUNDS {
        if whole && round > 0 {
            // The pool is the same, and so would be most that is tried.
            reach.trials = 0;
        }
        let pool = pool(stats, state, &dictionary)?;
        let better = pool.within(state, recorder, |state, _| {
            search_pool(&pool, state, noise, &mut reach, round == 0)
        })?;
        if !better {
            break;
        }
        state.centre(stats)?;
        recorder.step(Action::Search, None, state)?;
        refresh_or_update(stats, state, &mut dictionary, None)?;
        let rules = if whole { rules } else { &loose };
        let (start, dictionary) = (Start::warm(0), &mut dictionary);
        status = Some(complete(stats, state, dictionary, start, rules, recorder)?);
    }
    if status.is_some() && !whole {
        let (start, dictionary) = (Start::warm(0), &mut dictionary);
        status = Some(complete(stats, state, dictionary, start, rules, recorder)?);
    }
    Ok(status)
}

/// All that is tried on one pool; whether it led to a better model.
fn search_pool(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    reach: &mut SearchBudget,
    first: bool,
) -> Result<bool, Stop> {
    /// Pools of so few functions are searched in a small part of the time that anything else takes.
    const SMALL: usize = 256;
    let crowded = is_crowded(pool, state);
    let mut found = false;
    if first && crowded && pool.len() <= Tuning::MAX_WHOLE_DICTIONARY {
        found |= crate::fit::search::backward_elimination::descend(pool, state, noise)?;
    }
    if crowded {
        // Of so many functions few moves are better than that, and each takes long.
        *reach = SearchBudget::short();
    }
    found |= improve(pool, state, noise, reach)?;
    if first && !crowded && pool.len() <= SMALL {
        found |= crate::fit::search::restarts::restart(pool, state, noise)?;
        found |= improve(pool, state, noise, reach)?;
    }
    Ok(found)
}

/// Whether a model has so many functions for its rows that it may have gone astray early on.
fn is_crowded(pool: &WorkingSet, state: &State) -> bool {
    /// Rows for each function.
    const FEW: f64 = 4.0;
    FEW * state.len() as f64 > pool.n_obs
}

/// The functions of the model and those that could take their places.
fn pool(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &Dictionary,
) -> Result<WorkingSet, Stop> {
    let members = if dictionary.n_candidates() <= Tuning::MAX_WHOLE_DICTIONARY {
        dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY)
    } else {
        let mut members = dictionary.substitutes(state);
        members.extend(dictionary.near_candidates(state, Tuning::NEAR_CANDIDATES));
        members
    };
    Ok(WorkingSet::about(
        stats,
        state,
        dictionary.priors(),
        &members,
    )?)
}
