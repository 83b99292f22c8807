//! Local search on a working set: tries promising moves until none of them leads to a better model.

use std::collections::BTreeSet;

use crate::fit::model::State;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::search::moves::{Move, Moves, apply, suggestions};
use crate::fit::search::unless_indefinite;
use crate::fit::settings::Search;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// Limits of a search on working sets.
pub(crate) struct SearchBudget {
    moves: Moves,
    /// Remaining trials of moves that gain nothing by themselves, but may after re-estimation of the other functions.
    pub(crate) trials: usize,
    /// Moves that may still be made.
    pub(crate) moves_left: usize,
}

impl SearchBudget {
    /// The budget for a setting.
    pub(crate) fn of(search: Search) -> Self {
        let trials = match search {
            Search::Exchange => 160,
            Search::Greedy => 24,
        };
        Self {
            moves: Moves::All,
            trials,
            moves_left: usize::MAX,
        }
    }

    /// The budget for restarts, and for models with many functions.
    pub(crate) fn short() -> Self {
        Self {
            moves: Moves::Exchanges,
            trials: 24,
            moves_left: usize::MAX,
        }
    }
}

/// Searches for a better model; returns whether one was found. `state` then holds it, converged to a loose tolerance.
pub(crate) fn improve(
    set: &WorkingSet,
    state: &mut State,
    budget: &mut SearchBudget,
) -> Result<bool, Stop> {
    let before = state.log_posterior();
    let mut best = Model::new(set, state.clone());
    let mut rejected = BTreeSet::new();
    while budget.moves_left > 0 {
        // Merges and splits are many: they are tried once no exchange leads to a better model.
        let mut better = None;
        for kind in [Moves::Exchanges, Moves::All] {
            if better.is_none() && (kind == Moves::Exchanges || budget.moves == Moves::All) {
                better = best_of_batch(set, &mut best, kind, budget, &mut rejected)?;
            }
        }
        let Some(better) = better else { break };
        best = better;
        budget.moves_left -= 1;
    }
    let found = best.evidence > before + Tuning::MIN_EXCHANGE_GAIN;
    if found {
        *state = best.state;
    }
    Ok(found)
}

/// The best model from the first batch of moves in which one leads to a better model.
fn best_of_batch(
    set: &WorkingSet,
    model: &mut Model,
    kind: Moves,
    budget: &mut SearchBudget,
    rejected: &mut BTreeSet<(Vec<usize>, Vec<usize>)>,
) -> Result<Option<Model>, Stop> {
    let key = |change: &Move| (change.deleted.clone(), change.added.clone());
    let mut moves = suggestions(set, model, kind, -Tuning::MAX_TRIAL_DEFICIT)?;
    moves.retain(|change| !rejected.contains(&key(change)));
    for batch in moves.chunks(Tuning::TRIAL_BATCH) {
        set.check_cancel()?;
        let predicted_better = batch[0].gain > Tuning::MIN_EXCHANGE_GAIN;
        if !predicted_better {
            if budget.trials == 0 {
                break;
            }
            budget.trials -= batch.len().min(budget.trials);
        }
        // All moves of a batch start from the same model, so the result does not depend on the number of threads.
        let outcomes = map_pieces(batch.len(), 1, |range| {
            try_move(set, model, &batch[range.start])
        });
        let mut better: Option<Model> = None;
        for outcome in outcomes {
            let bar = better
                .as_ref()
                .map_or(model.evidence + Tuning::MIN_EXCHANGE_GAIN, |b| b.evidence);
            if let Some(other) = unless_indefinite(outcome)?.flatten()
                && other.evidence > bar
            {
                better = Some(other);
            }
        }
        if better.is_some() {
            return Ok(better);
        }
        rejected.extend(batch.iter().map(key));
    }
    Ok(None)
}

/// The model after a move and its refinement; `None` if it is too far below the model to become better.
fn try_move(set: &WorkingSet, model: &Model, change: &Move) -> Result<Option<Model>, Stop> {
    let (mut state, mut inactive) = (model.state.clone(), model.inactive.clone());
    apply(set, &mut state, &mut inactive, change)?;
    state.recompute()?;
    inactive.refresh(set, &state);
    model.refine_trial(set, state, inactive, &mut Recorder::silent())
}
