//! Other ways through a pool: from models of which a random part is missing, and from none.

use crate::Error;
use crate::fit::candidates::Outside;
use crate::fit::greedy::{climb, climb_from};
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::{Recorder, Stop};
use crate::fit::search::lns::{Model, levels};
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::settings::{
    FREE, HELD, LEAST_EXCHANGE, START_NOISE, Search, TRIAL, TRIALS_AT_A_TIME,
};
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// Random numbers of no great quality: Steele, Lea & Flood's `SplitMix64`.
struct Random(u64);

impl Random {
    /// Those of one restart out of many.
    fn of(seed: u64, restart: usize) -> Self {
        let mut this = Self(seed);
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

/// Looks for a better model by restarts; whether one was found, at which `state` then stands, loosely settled.
pub(crate) fn restart(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    seed: u64,
    search: Search,
) -> Result<bool, Stop> {
    /// For a whole fit, and for one that is to stay short: there models are cut down alone, which takes less time.
    const RESTARTS: usize = 16;
    const FEW: usize = 3;
    let thorough = search == Search::Thorough;
    let restarts = if thorough { RESTARTS } else { FEW };
    let before = state.log_posterior();
    let mut best = state.clone();
    let numbers: Vec<usize> = (0..restarts).collect();
    for batch in numbers.chunks(TRIALS_AT_A_TIME) {
        // All of a batch start from the same model, so threads do not show in the result.
        let outcomes = map_pieces(batch.len(), 1, |range| {
            let restart = batch[range.start];
            let mut random = Random::of(seed, restart);
            let state = if thorough && restart % 2 == 1 {
                anew(pool, &best, noise, &mut random)
            } else {
                without_some(pool, &best, &mut random)
            };
            finished(pool, state?, noise)
        });
        for outcome in outcomes {
            match outcome {
                Ok(other) if other.log_posterior() > best.log_posterior() + LEAST_EXCHANGE => {
                    best = other;
                }
                // One that lost its definiteness to rounding is no better.
                Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {}
                Err(halt) => return Err(halt),
            }
        }
    }
    let found = best.log_posterior() > before + LEAST_EXCHANGE;
    if found {
        *state = best;
    }
    Ok(found)
}

/// Where a restart ends that has come so far.
fn finished(pool: &WorkingSet, mut state: State, noise: Option<NoiseRange>) -> Result<State, Stop> {
    climb(pool, &mut state, noise, FREE, &mut Recorder::silent())?;
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
            model.outside.keep_out(i);
        }
    }
    model.state.recompute()?;
    model.outside.refresh(pool, &model.state);
    let Model {
        mut state,
        mut outside,
        ..
    } = model;
    climb_from(
        pool,
        &mut state,
        &mut outside,
        None,
        FREE,
        &mut Recorder::silent(),
    )?;
    Ok(state)
}

/// From an empty model, one half of the functions being kept out at first.
fn anew(
    pool: &WorkingSet,
    best: &State,
    noise: Option<NoiseRange>,
    random: &mut Random,
) -> Result<State, Stop> {
    let (start, prior) = (1.0 / START_NOISE, best.noise_prior);
    let mut state = State::empty(start, prior, pool.target_sq, pool.n_obs);
    let hidden: Vec<usize> = (0..pool.len()).filter(|_| random.one_in(2)).collect();
    for level in levels(best.beta, noise.is_some()) {
        let alpha = state.alpha.clone();
        state.set_hyperparameters(&alpha, level)?;
        let mut outside = Outside::new(pool, &state);
        for &i in &hidden {
            outside.keep_out(i);
        }
        climb_from(
            pool,
            &mut state,
            &mut outside,
            None,
            HELD,
            &mut Recorder::silent(),
        )?;
    }
    Ok(state)
}

/// The model found from all functions of the pool in place of `state`, if it is better; whether it is.
pub(crate) fn descend(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
) -> Result<bool, Stop> {
    let attempt = || {
        let mut other = crate::fit::search::backward_elimination::from_everything(pool, state)?;
        climb(pool, &mut other, noise, FREE, &mut Recorder::silent())?;
        climb(pool, &mut other, noise, TRIAL, &mut Recorder::silent())?;
        Ok(other)
    };
    match attempt() {
        Ok(other) if other.log_posterior() > state.log_posterior() + LEAST_EXCHANGE => {
            *state = other;
            Ok(true)
        }
        Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
            pool.check_cancel()?;
            Ok(false)
        }
        Err(halt) => Err(halt),
    }
}
