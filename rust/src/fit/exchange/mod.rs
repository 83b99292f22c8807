//! From an optimum of the sequential scheme to better ones: functions exchanged, merged and split.
//!
//! Tipping & Faul (2003) note that their algorithm may end at a poor local maximum. Here functions of a model that has
//! converged change places with others, first on a pool of those that come into question; what is found there is settled on
//! all of the data like any other model, and the fit never ends lower than where it came from.

mod descent;
mod leaving;
mod linearised;
mod local;
mod moves;
mod restarts;

pub(super) use self::leaving::Leaving;
pub(super) use self::linearised::go_on_at_modes;

use self::local::{Reach, improve};
use super::Status;
use super::dictionary::Dictionary;
use super::joint::NoiseRange;
use super::pool::Pool;
use super::prior::Priors;
use super::record::{Action, Halt, Recorder};
use super::sequential::{Start, complete, look_again};
use super::settings::{CONTENDERS, Rules, SAMPLE, Search, WHOLE};
use super::state::State;
use crate::Error;
use crate::stats::{Statistics, check_flag};

/// Pools to search, each about what was found on the one before.
const MOST_ROUNDS: usize = 8;

/// Goes on from an optimum, with a Gaussian likelihood; never to a lower one.
pub(super) fn go_on(
    found: Status,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    limits: (&Rules, NoiseRange),
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    if limits.0.search == Search::Greedy || state.len() == 0 {
        return Ok(found);
    }
    let greedy = state.clone();
    let outcome = search(stats, state, priors, limits, recorder);
    keep_better(found, outcome, &greedy, stats, state, recorder)
}

/// Exchanges that a fit tries which asks for no search, where its functions are few: on the pool as it is, a quadratic likelihood.
pub(super) fn exchange_few(pool: &Pool, state: &mut State) -> Result<bool, Halt> {
    improve(pool, state, None, &mut Reach::of(Search::Greedy))
}

/// The better of two ends: that of the search, or where it set out from.
fn keep_better(
    found: Status,
    outcome: Result<Option<Status>, Halt>,
    greedy: &State,
    stats: &dyn Statistics,
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let status = match outcome {
        Ok(status) => status,
        Err(Halt::Failed(Error::NotPositiveDefinite(_))) => {
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
    (rules, range): (&Rules, NoiseRange),
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Halt> {
    let noise = rules.free_noise(range);
    let mut reach = Reach::of(rules.search);
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let loose = rules.loosened();
    let whole = dictionary.n_candidates() <= WHOLE;
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
        look_again(stats, state, &mut dictionary, None)?;
        let rules = if whole { rules } else { &loose };
        let (start, dictionary) = (Start::warm(0), &mut dictionary);
        status = Some(complete(
            stats, state, dictionary, start, rules, range, recorder,
        )?);
    }
    if status.is_some() && !whole {
        let (start, dictionary) = (Start::warm(0), &mut dictionary);
        status = Some(complete(
            stats, state, dictionary, start, rules, range, recorder,
        )?);
    }
    Ok(status)
}

/// All that is tried on one pool; whether it led to a better model.
fn search_pool(
    pool: &Pool,
    state: &mut State,
    noise: Option<NoiseRange>,
    reach: &mut Reach,
    first: bool,
) -> Result<bool, Halt> {
    /// Pools of so few functions are searched in a small part of the time that anything else takes.
    const SMALL: usize = 256;
    let crowded = is_crowded(pool, state);
    let mut found = false;
    if first && crowded && pool.len() <= WHOLE {
        found |= descent::descend(pool, state, noise)?;
    }
    if crowded {
        // Of so many functions few moves are better than that, and each takes long.
        *reach = Reach::short();
    }
    found |= improve(pool, state, noise, reach)?;
    if first && !crowded && pool.len() <= SMALL {
        found |= restarts::restart(pool, state, noise)?;
        found |= improve(pool, state, noise, reach)?;
    }
    Ok(found)
}

/// Whether a model has so many functions for its rows that it may have gone astray early on.
fn is_crowded(pool: &Pool, state: &State) -> bool {
    /// Rows for each function.
    const FEW: f64 = 4.0;
    FEW * state.len() as f64 > pool.n_obs
}

/// The functions of the model and those that could take their places.
fn pool(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &Dictionary,
) -> Result<Pool, Halt> {
    let members = if dictionary.n_candidates() <= WHOLE {
        dictionary.sample(SAMPLE, WHOLE)
    } else {
        let mut members = dictionary.stand_ins(state);
        members.extend(dictionary.contenders(state, CONTENDERS));
        members
    };
    Ok(Pool::about(stats, state, dictionary.priors(), &members)?)
}
