//! Models on a pool that are cut down by a random third of their functions and grown again.

use crate::Error;
use crate::fit::greedy::{maximize, maximize_from};
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::Model;
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// Random numbers of no great quality: Steele, Lea & Flood's `SplitMix64`.
struct Random(u64);

impl Random {
    /// The generator of one restart, from a seed of 0: a fit comes out the same each time.
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

    /// True one time in `n`.
    fn one_in(&mut self, n: u64) -> bool {
        self.draw().is_multiple_of(n)
    }
}

/// Looks for a better model by restarts, and replaces `state` by it if there is one; returns whether there was.
pub(crate) fn restart(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
) -> Result<bool, Stop> {
    const RESTARTS: usize = 3;
    // All start from the same model, so the result does not depend on the number of threads.
    let outcomes = map_pieces(RESTARTS, 1, |range| {
        let start = without_some(pool, state, &mut Random::of(range.start))?;
        finished(pool, start, noise)
    });
    let mut best = state.clone();
    for outcome in outcomes {
        match outcome {
            Ok(other)
                if other.log_posterior() > best.log_posterior() + Tuning::MIN_EXCHANGE_GAIN =>
            {
                best = other;
            }
            // A model that lost its definiteness to rounding is no better.
            Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {}
            Err(halt) => return Err(halt),
        }
    }
    let found = best.log_posterior() > state.log_posterior() + Tuning::MIN_EXCHANGE_GAIN;
    if found {
        *state = best;
    }
    Ok(found)
}

/// Adds functions until nothing gains, and then exchanges functions.
fn finished(pool: &WorkingSet, mut state: State, noise: Option<NoiseRange>) -> Result<State, Stop> {
    maximize(
        pool,
        &mut state,
        noise,
        Tuning::COARSE_EFFORT,
        &mut Recorder::silent(),
    )?;
    improve(pool, &mut state, noise, &mut SearchBudget::short())?;
    Ok(state)
}

/// The model without one function in three, which are kept out while others come in.
fn without_some(pool: &WorkingSet, best: &State, random: &mut Random) -> Result<State, Stop> {
    let mut model = Model::new(pool, best.clone());
    for &i in &best.active {
        if random.one_in(3) {
            if let Some(k) = model.state.active.iter().position(|&j| j == i) {
                model.outside.delete(pool, &mut model.state, k);
            }
            model.outside.exclude(i);
        }
    }
    model.state.recompute()?;
    model.outside.refresh(pool, &model.state);
    let Model {
        mut state,
        mut outside,
        ..
    } = model;
    maximize_from(
        pool,
        &mut state,
        &mut outside,
        None,
        Tuning::COARSE_EFFORT,
        &mut Recorder::silent(),
    )?;
    Ok(state)
}
