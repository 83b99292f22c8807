//! From an optimum of the multinomial probit machine to better ones: functions exchanged and merged.
//!
//! With the targets held, what a move gains in their evidence it gains in the variational bound at least: the bound is that
//! evidence and a part of the targets' posterior alone, which the E-step that follows raises further. So exact gains at the targets
//! as they are propose; a climb of the bound with the functions so changed decides.

mod leaving;
mod moves;
mod trial;

use std::collections::HashMap;
use std::ops::Range;

use super::super::record::Halt;
use super::super::settings::{LEAST_EXCHANGE, TRIALS_AT_A_TIME};
use super::candidates::Candidates;
use super::state::OutputState;
use crate::Error;
use crate::linalg::parallel::map_pieces;
use crate::probit::Probit;
use crate::stats::{OutputObservations, OutputStatistics, check_flag};

pub use self::moves::Exchange;
pub(super) use self::moves::suggestions;
pub(super) use self::trial::place;
use self::trial::{Arena, Found, Rows};

/// Looks for a move that leads to a higher bound, and makes it; the targets of the E-step there, or `None` and the model as
/// it was. No more than `trials` are tried, but for those that gain with the targets as they are; `trials` is lowered by as many.
pub(super) fn improve(
    stats: &mut OutputObservations<'_>,
    state: &mut OutputState,
    candidates: &mut Candidates,
    (probit, labels): (&Probit, &[usize]),
    trials: &mut usize,
) -> Result<Option<Vec<f64>>, Halt> {
    let mut moves = suggestions(stats, state, candidates)?;
    let is_sure = |change: &Exchange| change.gain > LEAST_EXCHANGE;
    moves.truncate(moves.partition_point(is_sure).max(*trials));
    let columns = columns_of(stats, state, candidates, &moves)?;
    let arena = Arena {
        rows: Rows {
            probit,
            labels,
            weights: stats.row_weights(),
        },
        cancel: stats.cancel_flag(),
        state,
        candidates,
        columns,
    };
    let bar = arena.bound_of(state)?;
    let mut found = None;
    for batch in moves.chunks(TRIALS_AT_A_TIME) {
        check_flag(arena.cancel.as_deref())?;
        *trials = trials.saturating_sub(batch.len());
        // All of a batch start from the same model, so threads do not show in the result.
        let tried = |range: Range<usize>| arena.tried(&batch[range.start], bar);
        found = best_of(map_pieces(batch.len(), 1, tried))?;
        if found.is_some() {
            break;
        }
    }
    Ok(found.map(|found| {
        *state = found.state;
        found.targets
    }))
}

/// The columns of the functions in the model and of those that moves put there; their Gram columns are then at hand too.
fn columns_of(
    stats: &mut OutputObservations<'_>,
    state: &OutputState,
    candidates: &mut Candidates,
    moves: &[Exchange],
) -> crate::Result<HashMap<usize, Vec<f64>>> {
    let mut functions = state.active.clone();
    functions.extend(moves.iter().flat_map(|change| &change.entering));
    functions.sort_unstable();
    functions.dedup();
    candidates.fetch_all(stats, &functions)?;
    let values = stats.active_columns(&functions);
    let height = values.len() / functions.len().max(1);
    let columns = values.chunks(height.max(1)).map(<[f64]>::to_vec);
    Ok(functions.into_iter().zip(columns).collect())
}

/// The best model of a batch; one that lost its definiteness to rounding is none.
fn best_of(outcomes: Vec<Result<Option<Found>, Halt>>) -> Result<Option<Found>, Halt> {
    let mut best: Option<Found> = None;
    for outcome in outcomes {
        match outcome {
            Ok(Some(found)) if best.as_ref().is_none_or(|b| found.bound > b.bound) => {
                best = Some(found);
            }
            Ok(_) | Err(Halt::Failed(Error::NotPositiveDefinite(_))) => {}
            Err(halt) => return Err(halt),
        }
    }
    Ok(best)
}
