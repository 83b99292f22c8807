//! Exchanges on a pool, each tried out, until none of those promising enough leads to a better model.

use std::collections::BTreeSet;

use crate::Error;
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::search::moves::{Move, Moves, apply, suggestions};
use crate::fit::settings::Search;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// How far a search on pools goes.
pub(crate) struct SearchBudget {
    pub(crate) moves: Moves,
    /// Trials of moves that gain nothing by themselves and may once the others have followed, still to be had.
    pub(crate) trials: usize,
    /// Moves that may still be made.
    pub(crate) moves_left: usize,
}

impl SearchBudget {
    /// The reach of a setting.
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

    /// For models that are cut down and grown again, and for models of many functions.
    pub(crate) fn short() -> Self {
        Self {
            moves: Moves::Exchanges,
            trials: 24,
            moves_left: usize::MAX,
        }
    }
}

/// Looks for a better model; whether one was found. `state` then stands at it, loosely settled.
pub(crate) fn improve(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    reach: &mut SearchBudget,
) -> Result<bool, Stop> {
    let before = state.log_posterior();
    let mut best = Model::new(pool, state.clone());
    let mut refused = BTreeSet::new();
    while reach.moves_left > 0 {
        // There are many larger moves: they are looked at once exchanges lead nowhere.
        let mut better = next(
            pool,
            &mut best,
            noise,
            Moves::Exchanges,
            reach,
            &mut refused,
        )?;
        if better.is_none() && reach.moves == Moves::All {
            better = next(pool, &mut best, noise, Moves::All, reach, &mut refused)?;
        }
        let Some(better) = better else { break };
        best = better;
        reach.moves_left -= 1;
    }
    let found = best.evidence > before + Tuning::MIN_EXCHANGE_GAIN;
    if found {
        *state = best.state;
    }
    Ok(found)
}

/// The best that comes of the first few moves of which one leads anywhere.
fn next(
    pool: &WorkingSet,
    model: &mut Model,
    noise: Option<NoiseRange>,
    kind: Moves,
    reach: &mut SearchBudget,
    refused: &mut BTreeSet<(Vec<usize>, Vec<usize>)>,
) -> Result<Option<Model>, Stop> {
    let name = |change: &Move| (change.leaving.clone(), change.entering.clone());
    let mut moves = suggestions(pool, model, kind, -Tuning::MAX_TRIAL_DEFICIT)?;
    moves.retain(|change| !refused.contains(&name(change)));
    for batch in moves.chunks(Tuning::TRIAL_BATCH) {
        pool.check_cancel()?;
        let sure = batch[0].gain > Tuning::MIN_EXCHANGE_GAIN;
        if !sure {
            if reach.trials == 0 {
                break;
            }
            reach.trials -= batch.len().min(reach.trials);
        }
        // All of a batch start from the same model, so threads do not show in the result.
        let outcomes = map_pieces(batch.len(), 1, |range| {
            after(pool, model, &batch[range.start], noise)
        });
        let mut better: Option<Model> = None;
        for outcome in outcomes {
            let bar = better
                .as_ref()
                .map_or(model.evidence + Tuning::MIN_EXCHANGE_GAIN, |b| b.evidence);
            match outcome {
                Ok(Some(other)) if other.evidence > bar => better = Some(other),
                // One that lost its definiteness to rounding is no better.
                Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {}
                Err(halt) => return Err(halt),
            }
        }
        if better.is_some() {
            return Ok(better);
        }
        refused.extend(batch.iter().map(name));
    }
    Ok(None)
}

/// What becomes of a model after a move, with a fresh factor and everything settled anew; `None` if nothing better.
fn after(
    pool: &WorkingSet,
    model: &Model,
    change: &Move,
    noise: Option<NoiseRange>,
) -> Result<Option<Model>, Stop> {
    let (mut state, mut outside) = (model.state.clone(), model.outside.clone());
    apply(pool, &mut state, &mut outside, change)?;
    state.recompute()?;
    outside.refresh(pool, &state);
    model.challenge(pool, state, outside, noise, &mut Recorder::silent())
}
