//! Tipping & Faul's fast maximisation of the marginal likelihood, for a Gaussian likelihood.
//!
//! The paper's loop, section 4, on a schedule: it runs over a [`WorkingSet`] of candidates, and the whole dictionary is
//! looked at only to fill the next pool. Every step still raises the evidence, and the end is the paper's own (section
//! 4.4): all |change in ln alpha| below tolerance and no function of the dictionary with anything to gain.

use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::greedy::maximize;
use crate::fit::low_rank_start;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::{Plateau, Refined};
use crate::fit::rollback::{evidence_fell, roll_back, roll_back_if_indefinite};
use crate::fit::row_subsample;
use crate::fit::search::lns::{Opening, search};
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// Runs from the state given to convergence.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let (noise, own) = (rules.noise_range(), priors);
    if let Some(mut dictionary) = low_rank_start::approach(stats, state, &own, rules, recorder)? {
        let start = Start::default();
        return complete(stats, state, &mut dictionary, start, rules, recorder);
    }
    let mut dictionary = Dictionary::new(stats.n_basis(), own.clone());
    let mut begin = |whole: &mut dyn Statistics, state: &mut State, recorder: &mut Recorder<'_>| {
        let mut dictionary = Dictionary::new(whole.n_basis(), own.clone());
        dictionary.refresh(whole, state)?;
        let members = dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY);
        let pool = WorkingSet::about(whole, state, dictionary.priors(), &members)?;
        first_model(&pool, state, noise, noise.is_some(), recorder)
    };
    let mut go = |part: &mut dyn Statistics, state: &mut State, recorder: &mut Recorder<'_>| {
        let mut dictionary = Dictionary::new(part.n_basis(), own.clone());
        dictionary.refresh(part, state)?;
        approach(part, state, &mut dictionary, noise, recorder)
    };
    if row_subsample::approach(stats, state, recorder, &mut begin, &mut go)? {
        dictionary.refresh(stats, state)?;
        let start = Start::default();
        return complete(stats, state, &mut dictionary, start, rules, recorder);
    }
    let whole = rough(stats, state, &mut dictionary, noise, recorder)?;
    let start = Start::rough(whole, stats.n_obs(), noise);
    complete(stats, state, &mut dictionary, start, rules, recorder)
}

/// Where [`complete`] sets out from.
#[derive(Default)]
pub(crate) struct Start {
    /// The pool of the whole dictionary, if there is one.
    whole: Option<WorkingSet>,
    /// Searches to make.
    searches: usize,
    /// How the first of them begins.
    opening: Opening,
}

impl Start {
    /// From what [`rough`] brought, on `n` rows.
    pub(crate) fn rough(whole: Option<WorkingSet>, n: f64, noise: Option<NoiseRange>) -> Self {
        // Where the noise is given a restart comes down to it in stages, and to another model.
        let again = whole.is_some() && noise.is_some();
        Self {
            whole,
            searches: Tuning::searches(n),
            opening: if again {
                Opening::Refine
            } else {
                Opening::Restart
            },
        }
    }

    /// From a model that is nearly settled, with so many searches to make.
    pub(crate) fn warm(searches: usize) -> Self {
        Self {
            searches,
            ..Self::default()
        }
    }
}

/// Takes a model that has seen the dictionary to convergence.
///
/// Where rounding takes the definiteness of the posterior precision on the way, the last model that was settled stands.
pub(crate) fn complete(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    start: Start,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let outcome = go_on(stats, state, &mut good, dictionary, start, rules, recorder);
    let cancel = stats.cancel_flag();
    roll_back_if_indefinite(
        outcome,
        state,
        &good,
        Action::Joint,
        cancel.as_deref(),
        recorder,
    )
}

/// Rounds in a row that raise nothing after which a fit is over.
const MOST_IDLE: usize = 4;

/// [`complete`]; `good` is kept at the last settled model.
fn go_on(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    dictionary: &mut Dictionary,
    Start {
        whole,
        mut searches,
        mut opening,
    }: Start,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let noise = rules.noise_range();
    let mut effort = Effort {
        gain: Tuning::MIN_GAIN,
        step: Tuning::FINE_STEP,
        tol: Tuning::LOOSE_TOL.max(rules.tol),
    };
    let mut plateau = Plateau::new();
    loop {
        let next;
        let pool = if whole.is_some() {
            whole.as_ref()
        } else if searches > 0 || dictionary.has_gain(state) {
            next = next_pool(stats, state, dictionary, searches > 0)?;
            Some(&next)
        } else {
            // A model from elsewhere may have nothing to look for in a pool.
            None
        };
        if let Some(pool) = pool {
            if searches > 0 {
                let opening = std::mem::take(&mut opening);
                let found = improve(stats, state, pool, noise, opening, recorder)?;
                // What a pool can give one search finds; the next is for stand-ins that were not in it.
                searches = if found && whole.is_none() {
                    searches - 1
                } else {
                    0
                };
            }
            pool.within(state, recorder, |state, recorder| {
                maximize(pool, state, noise, effort, recorder)
            })?;
        }
        refresh_or_update(stats, state, dictionary, whole.as_ref())?;
        let mut settled = refine::converge(stats, state, noise, effort, recorder)?;
        if evidence_fell(state, good) {
            return roll_back(state, good, Action::Joint, recorder);
        }
        good.clone_from(state);
        dictionary.update_factors(state);
        // A look from afar may promise what rounding denies from nearby, and again after every round; or a round
        // may end where it began, after steps that came to nothing.
        let idle = plateau.length_at(state.log_posterior());
        if searches > 0 || (idle < MOST_IDLE && dictionary.has_gain(state)) {
            continue;
        }
        if effort.tol > rules.tol {
            effort.tol = rules.tol;
            settled = refine::converge(stats, state, noise, effort, recorder)?;
            dictionary.update_factors(state);
            if idle < MOST_IDLE && dictionary.has_gain(state) {
                continue;
            }
        }
        if dictionary.excludes_gain(state) || idle >= MOST_IDLE {
            settled = Refined::Stalled;
        }
        return Ok(status(settled, state, rules));
    }
}

/// A first model, from a sample of the dictionary: what is left to gain outside is little. If the sample is all there is
/// its pool comes back, for all that follows.
///
/// An estimated noise level is held at its start until the sample has little more to offer, and freed then: were it free
/// from the first function on, it would swallow the signal that later functions explain.
pub(crate) fn rough(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> Result<Option<WorkingSet>, Stop> {
    const LITTLE: f64 = 2.0;
    dictionary.refresh(stats, state)?;
    let mut members = dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY);
    let mut held = noise.is_some();
    loop {
        let pool = WorkingSet::about(stats, state, dictionary.priors(), &members)?;
        let is_all = dictionary.n_candidates() == pool.len();
        first_model(&pool, state, noise, std::mem::take(&mut held), recorder)?;
        if is_all {
            // What candidates gain the pool says itself; the rows, what the model leaves of the targets.
            state.centre(stats)?;
            return Ok(Some(pool));
        }
        refresh_or_update(stats, state, dictionary, None)?;
        if dictionary.largest_gain(state) <= LITTLE {
            return Ok(None);
        }
        members = dictionary.best_candidates(state, Tuning::SAMPLE_SIZE);
    }
}

/// Climbs as far as is worth it before the dictionary has been looked at; at first with the noise held if that is asked.
fn first_model(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    held: bool,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    pool.within(state, recorder, |state, recorder| {
        if held {
            maximize(pool, state, None, Tuning::HELD_NOISE_EFFORT, recorder)?;
        }
        maximize(pool, state, noise, Tuning::COARSE_EFFORT, recorder)
    })
}

/// The searches of [`complete`], until the dictionary has little more to offer; not to the end.
fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    const ROUGH: f64 = 2.0;
    const LITTLE: f64 = 0.3;
    const MOST_ROUNDS: usize = 10;
    let effort = Effort {
        gain: 0.01,
        step: Tuning::FINE_STEP,
        tol: Tuning::LOOSE_TOL,
    };
    let (mut searches, mut opening) = (Tuning::MAX_SEARCHES, Opening::Restart);
    for _ in 0..MOST_ROUNDS {
        let searching = searches > 0 && dictionary.largest_gain(state) <= ROUGH;
        let pool = next_pool(stats, state, dictionary, searching)?;
        if searching {
            let found = improve(stats, state, &pool, noise, opening, recorder)?;
            opening = Opening::Plain;
            searches = if found { searches - 1 } else { 0 };
        }
        pool.within(state, recorder, |state, recorder| {
            maximize(&pool, state, noise, effort, recorder)
        })?;
        refresh_or_update(stats, state, dictionary, None)?;
        refine::converge(stats, state, noise, effort, recorder)?;
        dictionary.update_factors(state);
        if searches == 0 && dictionary.largest_gain(state) <= LITTLE {
            break;
        }
    }
    Ok(())
}

/// Candidates for the next stretch: those that gain or might, or in a search those that could stand in for others.
fn next_pool(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    searching: bool,
) -> Result<WorkingSet, Stop> {
    let mut members = dictionary.best_candidates(state, Tuning::SAMPLE_SIZE);
    if searching {
        members.extend(dictionary.substitutes(state));
    } else {
        dictionary.count_entries(&members);
        members.extend(dictionary.near_candidates(state, Tuning::NEAR_CANDIDATES));
    }
    Ok(WorkingSet::about(
        stats,
        state,
        dictionary.priors(),
        &members,
    )?)
}

/// Searches the pool for a better model; whether there was one.
fn improve(
    stats: &mut dyn Statistics,
    state: &mut State,
    pool: &WorkingSet,
    noise: Option<NoiseRange>,
    opening: Opening,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    let trials = Tuning::trials(stats.n_obs());
    let found = pool.within(state, recorder, |state, _| {
        search(pool, state, noise, trials, opening)
    })?;
    if found {
        // The pool knows the targets by their projections alone; the rows say what the new model leaves of them.
        state.centre(stats)?;
        recorder.step(Action::Search, None, state)?;
    }
    Ok(found)
}

/// The factors of the whole dictionary, with a pass over the data only if the model holds functions new to it; or with one that
/// brings no Gram columns, where there is a pool that has all of them.
pub(crate) fn refresh_or_update(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    whole: Option<&WorkingSet>,
) -> Result<(), Stop> {
    if dictionary.has_columns(state) {
        state.centre(stats)?;
        dictionary.update_factors(state);
        return Ok(());
    }
    if let Some(pool) = whole {
        dictionary.take_columns(pool, state);
    }
    dictionary.refresh(stats, state)?;
    Ok(())
}

fn status(settled: Refined, state: &State, rules: &Rules) -> Status {
    match settled {
        Refined::Stalled => Status::Stalled,
        Refined::Converged
            if rules
                .noise_range()
                .is_some_and(|range| state.beta >= range.beta_max) =>
        {
            Status::NoiseFloor
        }
        Refined::Converged => Status::Converged,
    }
}
