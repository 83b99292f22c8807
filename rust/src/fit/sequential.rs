//! Tipping & Faul's fast maximisation of the marginal likelihood, for a Gaussian likelihood.
//!
//! The paper's loop, section 4, on a schedule: the active set is brought to its maximum before the dictionary is
//! looked at again, and several functions enter at a time. Every step still raises the evidence, and the end is the
//! paper's own (section 4.4): all |change in ln alpha| below tolerance and no function outside with anything to gain.

use super::Status;
use super::dictionary::Dictionary;
use super::inner::{self, Settled};
use super::joint::NoiseRange;
use super::record::{Halt, Recorder};
use super::search::search;
use super::settings::{BLOCK, LOOSE_TOL, Noise, Rules, TRIAL_TOL};
use super::state::State;
use crate::stats::Statistics;

/// Runs from the state given to convergence.
///
/// An estimated noise level is held at its start until the dictionary has nothing more to offer, and freed then: were
/// it free from the first function on, it would swallow the signal that later functions explain.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    rules: &Rules,
    range: NoiseRange,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut dictionary = Dictionary::new(stats.n_basis());
    let mut noise = None;
    let mut waiting = (rules.noise == Noise::Estimated).then_some(range);
    let mut searched = false;
    let mut tol = LOOSE_TOL.max(rules.tol);
    loop {
        let mut settled = inner::converge(stats, state, noise, tol, recorder)?;
        dictionary.refresh(stats, state)?;
        if dictionary.add(BLOCK, stats, state, recorder)? > 0 {
            continue;
        }
        if waiting.is_some() {
            noise = waiting.take();
            continue;
        }
        if !searched {
            searched = true;
            if search(stats, &dictionary, state, noise, recorder)? {
                continue;
            }
        }
        if tol > rules.tol || inner::residual(state, noise) > rules.tol {
            // The pass may have moved the state by what rounding had left; look once more from there.
            if tol <= rules.tol && settled == Settled::Stalled {
                return Ok(Status::Stalled);
            }
            tol = rules.tol;
            continue;
        }
        if dictionary.refuses(state) {
            settled = Settled::Stalled;
        }
        return Ok(status(settled, state, rules, range));
    }
}

fn status(settled: Settled, state: &State, rules: &Rules, range: NoiseRange) -> Status {
    match settled {
        Settled::Stalled => Status::Stalled,
        Settled::Converged if rules.noise == Noise::Estimated && state.beta >= range.beta_max => {
            Status::NoiseFloor
        }
        Settled::Converged => Status::Converged,
    }
}

/// The paper's loop alone, loosely settled: what a search runs from each of its starting points. Up to `block` functions
/// enter at a time.
pub(super) fn climb(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    block: usize,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    let mut dictionary = Dictionary::new(stats.n_basis());
    loop {
        inner::converge(stats, state, noise, TRIAL_TOL, recorder)?;
        dictionary.refresh(stats, state)?;
        if dictionary.add(block, stats, state, recorder)? == 0 {
            return Ok(());
        }
    }
}
