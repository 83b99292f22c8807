//! Restarts on a working set: a random third of the functions is deleted, and the model is grown again without them.

use crate::fit::greedy::maximize_from;
use crate::fit::model::State;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::search::{maximize_silently, unless_indefinite};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// The pseudo-random generator `SplitMix64` (Steele, Lea & Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    /// The generator of one restart. Its seed is fixed, so that fits are reproducible.
    fn of(restart: usize) -> Self {
        let mut this = Self(0);
        this.0 = this.draw() ^ restart as u64;
        this
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Replaces `state` by the best result of several restarts if that is better; returns whether it is.
pub(crate) fn restart(set: &WorkingSet, state: &mut State) -> Result<bool, Stop> {
    // All restarts begin with the same model, so the result does not depend on the number of threads.
    let outcomes = map_pieces(Tuning::TRIAL_BATCH, 1, |range| {
        let mut state = without_a_third(set, state, &mut SplitMix::of(range.start))?;
        maximize_silently(set, &mut state, Tuning::COARSE_EFFORT)?;
        improve(set, &mut state, &mut SearchBudget::short())?;
        Ok(state)
    });
    let mut best = state.clone();
    for outcome in outcomes {
        if let Some(other) = unless_indefinite(outcome)?
            && other.log_posterior() > best.log_posterior() + Tuning::MIN_EXCHANGE_GAIN
        {
            best = other;
        }
    }
    let better = best.log_posterior() > state.log_posterior();
    *state = best;
    Ok(better)
}

/// The model after about a third of its functions is deleted and others are added instead; the deleted ones stay excluded.
fn without_a_third(set: &WorkingSet, best: &State, random: &mut SplitMix) -> Result<State, Stop> {
    let mut model = Model::new(set, best.clone());
    for &i in &best.active {
        if random.draw().is_multiple_of(3) {
            if let Some(k) = model.state.active.iter().position(|&j| j == i) {
                model.inactive.delete(set, &mut model.state, k);
            }
            model.inactive.exclude(i);
        }
    }
    model.state.recompute()?;
    model.inactive.refresh(set, &model.state);
    let Model {
        mut state,
        mut inactive,
        ..
    } = model;
    let silent = &mut Recorder::silent();
    maximize_from(
        set,
        &mut state,
        &mut inactive,
        Tuning::COARSE_EFFORT,
        silent,
    )?;
    Ok(state)
}
