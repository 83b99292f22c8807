//! Exchange search: from an optimum of the greedy algorithm to better ones by exchanging, merging and splitting functions.
//!
//! Tipping & Faul (2003) note that their algorithm may converge to a poor local maximum. Here functions of a converged
//! model are exchanged for others on a working set; what is found there converges on all of the data like any other model,
//! and the result is never worse than the start.
//!
//! For other likelihoods than the Gaussian the working set is linearised at the posterior mode. The gain of a move there is
//! a prediction: the mode is recomputed, the fit converges, and the move is kept if the Laplace evidence is higher. Large
//! moves leave the region where the linearisation is accurate; so if several moves fail together, the first is tried alone.

use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::{self, mode::find_mode};
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::search::backward_elimination::eliminate;
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::search::restarts::restart;
use crate::fit::search::unless_indefinite;
use crate::fit::sequential::{Start, complete, refresh_or_update};
use crate::fit::settings::{Rules, Search};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;

/// Continues from an optimum if the settings ask for a search. Returns the status of the better model, which `state` holds.
pub(crate) fn continue_from(
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
    let outcome = if stats.facts().is_linear {
        search(stats, state, priors, rules, recorder)
    } else {
        let mut fit = laplace::Fit {
            stats,
            state,
            rules,
            recorder,
        };
        search_at_modes(&mut fit, priors)
    };
    let status = unless_indefinite(outcome)?.flatten();
    if let Some(status) = status
        && state.log_posterior() >= greedy.log_posterior()
    {
        return Ok(status);
    }
    let moved = state.log_posterior().to_bits() != greedy.log_posterior().to_bits();
    state.clone_from(&greedy);
    if moved {
        recorder.step(Action::Search, None, state)?;
    }
    Ok(found)
}

/// Alternates between searches on a working set and convergence on all data; `None` if no better model was found.
fn search(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Status>, Stop> {
    let mut budget = SearchBudget::of(rules.search);
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let loose = rules.loosened();
    let whole = dictionary.n_candidates() <= Tuning::MAX_WHOLE_DICTIONARY;
    let mut status = None;
    for round in 0..Tuning::MAX_WORKING_SETS {
        if whole && round > 0 {
            // The working set is the same as before, and with it most trials.
            budget.trials = 0;
        }
        let set = working_set(stats, state, &dictionary)?;
        let better = set.within(state, recorder, |state, _| {
            search_set(&set, state, &mut budget, round == 0)
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

/// Runs every search on one working set; returns whether one of them found a better model.
fn search_set(
    set: &WorkingSet,
    state: &mut State,
    budget: &mut SearchBudget,
    first: bool,
) -> Result<bool, Stop> {
    // Early additions may have led the greedy algorithm far from the best model.
    let crowded = Tuning::MIN_ROWS_PER_FUNCTION * state.len() as f64 > set.facts.n_obs;
    let mut found = false;
    if first && crowded && set.len() <= Tuning::MAX_WHOLE_DICTIONARY {
        found |= eliminate(set, state)?;
    }
    if crowded {
        // In so large a model few exchanges beat the elimination, and each takes long.
        *budget = SearchBudget::short();
    }
    found |= improve(set, state, budget)?;
    // On larger working sets restarts take a large part of the time of a fit.
    if first && !crowded && set.len() <= Tuning::SAMPLE_SIZE {
        found |= restart(set, state)?;
        found |= improve(set, state, budget)?;
    }
    Ok(found)
}

/// The active functions and their substitutes.
fn working_set(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &Dictionary,
) -> Result<WorkingSet, Stop> {
    let members = if dictionary.n_candidates() <= Tuning::MAX_WHOLE_DICTIONARY {
        dictionary.sample(Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY)
    } else {
        let mut members = dictionary.substitutes(state);
        members.extend(dictionary.near_candidates(state, Tuning::SAMPLE_SIZE));
        members
    };
    Ok(WorkingSet::about(
        stats,
        state,
        dictionary.priors(),
        &members,
    )?)
}

/// Searches on linearisations of the likelihood, each at the mode of the model found before.
fn search_at_modes(
    fit: &mut laplace::Fit<'_, '_>,
    priors: &Priors,
) -> Result<Option<Status>, Stop> {
    let mut status = None;
    let mut budget = SearchBudget::of(fit.rules.search);
    for _ in 0..Tuning::MAX_WORKING_SETS {
        let mut better = None;
        for max_moves in [usize::MAX, 1] {
            budget.moves_left = max_moves;
            better = search_at_mode(fit, priors, &mut budget)?;
            // With at most one move made, a limit of one move would give the same result.
            if better.is_some() || max_moves - budget.moves_left <= 1 {
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

/// Makes moves on the linearisation at the mode, and continues the fit from there. Returns `None`, with the state restored,
/// if it does not converge to a better model.
fn search_at_mode(
    fit: &mut laplace::Fit<'_, '_>,
    priors: &Priors,
    budget: &mut SearchBudget,
) -> Result<Option<Status>, Stop> {
    let before = fit.state.clone();
    let mut dictionary = Dictionary::new(fit.stats.facts().n_basis(), priors.clone());
    find_mode(fit.stats, fit.state)?;
    dictionary.refresh(fit.stats, fit.state)?;
    let members = dictionary.substitutes(fit.state);
    let set = WorkingSet::about(fit.stats, fit.state, priors, &members)?;
    let moved = set.within(fit.state, fit.recorder, |state, _| {
        improve(&set, state, budget)
    });
    let outcome = match moved {
        Ok(true) => continue_fit(fit, &before, priors),
        moved => moved.map(|_| None),
    };
    let status = unless_indefinite(outcome)?.flatten();
    if status.is_none() {
        fit.state.clone_from(&before);
    }
    Ok(status)
}

/// Fits to convergence after moves; `None` if the result is not better than `before`.
fn continue_fit(
    fit: &mut laplace::Fit<'_, '_>,
    before: &State,
    priors: &Priors,
) -> Result<Option<Status>, Stop> {
    find_mode(fit.stats, fit.state)?;
    if fit.state.log_posterior() + Tuning::MAX_TRIAL_DEFICIT < before.log_posterior() {
        return Ok(None);
    }
    fit.recorder.step(Action::Search, None, fit.state)?;
    let mut dictionary = Dictionary::new(fit.stats.facts().n_basis(), priors.clone());
    let status = fit.run(&mut fit.state.clone(), &mut dictionary, 0)?;
    let better = fit.state.log_posterior() > before.log_posterior() + Tuning::MIN_EXCHANGE_GAIN;
    if better && status == Status::Converged {
        return Ok(Some(status));
    }
    // The state before is restored: record its evidence.
    fit.recorder.step(Action::Search, None, before)?;
    Ok(None)
}
