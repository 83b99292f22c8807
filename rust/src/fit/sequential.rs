//! Tipping & Faul's fast maximization of the marginal likelihood, for a Gaussian likelihood.
//!
//! The loop of the paper, section 4, runs on a [`WorkingSet`] of candidates; passes over the whole dictionary only choose the
//! next working set. Every step raises the evidence, and the convergence criterion is the paper's (section 4.4): all
//! |change in ln alpha| below tolerance and no function of the dictionary with a gain.

use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::greedy::maximize;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::{Plateau, Refined};
use crate::fit::rollback::{evidence_fell, roll_back, roll_back_if_indefinite};
use crate::fit::search::lns::{Opening, search};
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// How [`complete`] starts.
#[derive(Default)]
pub(crate) struct Start {
    /// The working set of the whole dictionary, if there is one.
    whole: Option<WorkingSet>,
    /// Number of searches.
    searches: usize,
    /// How the first search begins.
    opening: Opening,
}

impl Start {
    /// From the result of [`initial_model`], on `n` rows.
    pub(crate) fn after_initial_model(whole: Option<WorkingSet>, n: f64, state: &State) -> Self {
        // With fixed noise a restart lowers the noise in stages and finds another model.
        let opening = if whole.is_some() && !state.has_given_noise() {
            Opening::Refine
        } else {
            Opening::Restart
        };
        Self {
            whole,
            searches: Tuning::searches(n),
            opening,
        }
    }

    /// From a model that has nearly converged.
    pub(crate) fn warm(searches: usize) -> Self {
        Self {
            searches,
            ..Self::default()
        }
    }
}

/// Continues from a model to convergence over the dictionary, which has to be refreshed.
///
/// If round-off makes the posterior precision indefinite, the last converged model is restored.
pub(crate) fn complete(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    start: Start,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let outcome = converge(stats, state, &mut good, dictionary, start, rules, recorder);
    roll_back_if_indefinite(outcome, state, &good, Action::Joint, recorder)
}

/// [`complete`] without the rollback; `good` becomes the last converged model.
fn converge(
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
    let mut effort = Effort {
        tol: Tuning::LOOSE_TOL.max(rules.tol),
        ..Tuning::FINE_EFFORT
    };
    let mut plateau = Plateau::new();
    loop {
        let next;
        let set = if whole.is_some() {
            whole.as_ref()
        } else if searches > 0 || dictionary.has_gain(state) {
            next = next_working_set(stats, state, dictionary, searches > 0)?;
            Some(&next)
        } else {
            None
        };
        if let Some(set) = set {
            if searches > 0 {
                let opening = std::mem::take(&mut opening);
                let found = improve(stats, state, set, opening, recorder)?;
                // One search exhausts a working set; another one needs other substitutes.
                searches = if found && whole.is_none() {
                    searches - 1
                } else {
                    0
                };
            }
            set.within(state, recorder, |state, recorder| {
                maximize(set, state, effort, recorder)
            })?;
        }
        refresh_or_update(stats, state, dictionary, whole.as_ref())?;
        let mut refined = refine::converge(stats, state, effort, recorder)?;
        if evidence_fell(state, good) {
            return roll_back(state, good, Action::Joint, recorder);
        }
        good.clone_from(state);
        dictionary.update_factors(state);
        // Round-off may promise gains for ever that no step achieves, or lead back to the same model.
        let idle = plateau.length_at(state.log_posterior());
        let is_idle = idle >= Tuning::MAX_IDLE_ROUNDS;
        if searches > 0 || (!is_idle && dictionary.has_gain(state)) {
            continue;
        }
        if effort.tol > rules.tol {
            effort.tol = rules.tol;
            refined = refine::converge(stats, state, effort, recorder)?;
            dictionary.update_factors(state);
            if !is_idle && dictionary.has_gain(state) {
                continue;
            }
        }
        return Ok(match refined {
            _ if is_idle || dictionary.excludes_gain(state) => Status::Stalled,
            Refined::Stalled => Status::Stalled,
            Refined::Converged if state.at_noise_floor() => Status::NoiseFloor,
            Refined::Converged => Status::Converged,
        });
    }
}

/// A first model from a sample of the dictionary, until no candidate gains much. If the sample is the whole dictionary, its working
/// set is returned.
///
/// An estimated noise level is fixed at first: free from the first function on, it would absorb the signal that later functions
/// explain.
pub(crate) fn initial_model(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    recorder: &mut Recorder<'_>,
) -> Result<Option<WorkingSet>, Stop> {
    dictionary.refresh(stats, state)?;
    let mut members = dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY);
    let mut fix_noise = state.estimates_noise();
    loop {
        let set = WorkingSet::about(stats, state, dictionary.priors(), &members)?;
        let is_whole = dictionary.n_candidates() == set.len();
        maximize_coarsely(&set, state, std::mem::take(&mut fix_noise), recorder)?;
        if is_whole {
            // The working set has the Gram matrix; the exact residual comes from the rows.
            state.centre(stats)?;
            return Ok(Some(set));
        }
        refresh_or_update(stats, state, dictionary, None)?;
        if dictionary.largest_gain(state) <= Tuning::MAX_INITIAL_GAIN {
            return Ok(None);
        }
        members = dictionary.best_candidates(state, Tuning::SAMPLE_SIZE);
    }
}

/// [`initial_model`] without the passes that follow the first working set.
pub(crate) fn model_of_sample(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let members = dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY);
    let set = WorkingSet::about(stats, state, priors, &members)?;
    maximize_coarsely(&set, state, state.estimates_noise(), recorder)
}

/// Maximizes on a working set with coarse effort, at first with fixed noise if asked for.
fn maximize_coarsely(
    set: &WorkingSet,
    state: &mut State,
    fix_noise: bool,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    set.within(state, recorder, |state, recorder| {
        if fix_noise {
            maximize(set, state, Tuning::HELD_NOISE_EFFORT, recorder)?;
        }
        maximize(set, state, Tuning::COARSE_EFFORT, recorder)
    })
}

/// The searches of [`complete`] without its last passes: continues until no candidate gains much.
pub(crate) fn nearly_complete(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let effort = Effort {
        tol: Tuning::LOOSE_TOL,
        ..Tuning::TRIAL_EFFORT
    };
    let (mut searches, mut opening) = (Tuning::MAX_SEARCHES, Opening::Restart);
    for _ in 0..Tuning::MAX_WORKING_SETS {
        let searching = searches > 0 && dictionary.largest_gain(state) <= Tuning::MAX_INITIAL_GAIN;
        let set = next_working_set(stats, state, &mut dictionary, searching)?;
        if searching {
            let found = improve(stats, state, &set, opening, recorder)?;
            opening = Opening::Plain;
            searches = if found { searches - 1 } else { 0 };
        }
        set.within(state, recorder, |state, recorder| {
            maximize(&set, state, effort, recorder)
        })?;
        refresh_or_update(stats, state, &mut dictionary, None)?;
        refine::converge(stats, state, effort, recorder)?;
        dictionary.update_factors(state);
        if searches == 0 && dictionary.largest_gain(state) <= Tuning::MAX_LOW_RANK_ERROR {
            break;
        }
    }
    Ok(())
}

/// The next working set: candidates that gain, and for a search substitutes of the active functions, otherwise candidates that nearly
/// gain.
pub(crate) fn next_working_set(
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
        members.extend(dictionary.near_candidates(state, Tuning::SAMPLE_SIZE));
    }
    let set = WorkingSet::about(stats, state, dictionary.priors(), &members)?;
    Ok(set)
}

/// Searches the working set for a better model, and returns whether there was one.
fn improve(
    stats: &mut dyn Statistics,
    state: &mut State,
    set: &WorkingSet,
    opening: Opening,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Stop> {
    let trials = Tuning::trials(stats.facts().n_obs);
    let found = set.within(state, recorder, |state, _| {
        search(set, state, trials, opening)
    })?;
    if found {
        // The exact residual of the new model comes from the rows.
        state.centre(stats)?;
        recorder.step(Action::Search, None, state)?;
    }
    Ok(found)
}

/// Brings S and Q of the dictionary to the present state: by a pass over the data only if the model has functions whose Gram columns are
/// unknown, and without computing these if `whole`, a working set of all candidates, has them.
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
    if let Some(set) = whole {
        dictionary.take_columns(set, state);
    }
    dictionary.refresh(stats, state)?;
    Ok(())
}
