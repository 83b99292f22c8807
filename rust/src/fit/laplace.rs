//! Likelihoods other than the Gaussian, through the Laplace approximation: Tipping & Faul (2003), section 2.2.
//!
//! The likelihood is linearised at the posterior mode, the alphas are brought to the maximum of the resulting
//! Gaussian evidence, and so on until neither moves. What is certified at the end is this classic fixed point, which
//! treats the working weights B as constants in alpha; it is close to, and not exactly, a stationary point of the
//! Laplace evidence itself, and the evidence need not rise when the mode is found anew.
//!
//! Alternating gets near the fixed point fast but need not reach it: a function may enter under one linearisation and
//! be thrown out under the next, for ever. The end is therefore left to Newton's method on the fixed-point equations
//! themselves, with the motion of the mode and of B in the Jacobian.

use super::Status;
use super::climb::climb;
use super::creep::creep;
use super::dictionary::Dictionary;
use super::inner::{self, Settled};
use super::mode::find_mode;
use super::pool::Pool;
use super::prior::Priors;
use super::record::{Action, Halt, Recorder};
use super::search::{Opening, search};
use super::settings::{
    BLOCK, COARSE_GAIN, Effort, FINE_STEP, FREE, LEAST_GAIN, LOOSE_TOL, Rules, SMALL_SAMPLE, WHOLE,
};
use super::settled::unless_indefinite;
use super::state::State;
use super::stationary::{Residual, polish, sharpen};
use crate::Error;
use crate::stats::Statistics;

/// Rounds of mode and alphas between two passes over the dictionary.
const ROUNDS: usize = 3;

/// Passes after which pools are searched, and passes followed by a pool at all: most fits need two or three.
const SEARCHES: usize = 3;
const POOLS: usize = 12;

/// Candidates that gain, and that might, in a pool: its Gram matrix is made anew at each mode.
const CONTENDERS: usize = 64;

/// Neighbourhoods tried in a pool.
const TRIALS: usize = 16;

/// For a pool about a model that has seen the whole dictionary.
const LATE: Effort = Effort {
    gain: LEAST_GAIN,
    step: FINE_STEP,
    tol: f64::INFINITY,
};

/// Runs from the state given, an empty model, to convergence.
///
/// Some choices of functions have no fixed point: one of them is wanted by the others' linearisation and not by its own.
/// If pools have led to such a choice the fit starts again without them; not where all that is left is rounding.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let empty = state.clone();
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    let sample = sample(&dictionary, stats.n_predictors());
    let first = Stretch {
        others: &sample,
        effort: FREE,
        trials: TRIALS,
        // The mode has moved since the first functions came in, and with it what is best beside them.
        opening: Opening::Restart,
    };
    relinearise(stats, state, priors, &first, recorder)?;
    let status = finish_or_go_back(stats, state, &mut dictionary, POOLS, rules, recorder)?;
    if status == Status::Converged || Residual::of(state).is_rounding(state) {
        return Ok(status);
    }
    let stalled = state.clone();
    state.clone_from(&empty);
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    let status = finish_or_go_back(stats, state, &mut dictionary, 0, rules, recorder)?;
    if status != Status::Converged && stalled.log_posterior() > state.log_posterior() {
        state.clone_from(&stalled);
        recorder.step(Action::Mode, None, state)?;
    }
    Ok(status)
}

/// Goes on from a model that was settled before there were more functions to choose from.
pub(super) fn resume(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let status = finish_or_go_back(stats, state, dictionary, POOLS, rules, recorder)?;
    if status == Status::Converged || Residual::of(state).is_rounding(state) {
        return Ok(status);
    }
    finish_or_go_back(stats, state, dictionary, 0, rules, recorder)
}

/// [`finish`]; where rounding takes the definiteness of the posterior precision on the way, the last model whose mode was found
/// stands.
pub(super) fn finish_or_go_back(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut good = state.clone();
    let outcome = finish_keeping(
        &mut good, stats, state, dictionary, most_pools, rules, recorder,
    );
    let cancel = stats.cancel_flag();
    unless_indefinite(
        outcome,
        state,
        &good,
        Action::Mode,
        cancel.as_deref(),
        recorder,
    )
}

/// Runs from the state given to convergence, with at most so many pools on the way.
pub(super) fn finish(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut good = state.clone();
    finish_keeping(
        &mut good, stats, state, dictionary, most_pools, rules, recorder,
    )
}

/// [`finish`]; `good` is kept at the last model whose mode was found.
fn finish_keeping(
    good: &mut State,
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    mut most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut pools = 0;
    let mut fine = false;
    loop {
        let mut settled = None;
        if fine {
            settled = Some(settle(stats, state, rules.tol, recorder)?);
        } else {
            alternate(stats, state, LOOSE_TOL.max(rules.tol), recorder)?;
            // A pass costs more than the end of the active set; at worst that is done again when it matters.
            if pools > 0 && most_pools > 0 {
                if polish(stats, state, rules.tol, recorder)? == Settled::Converged {
                    settled = Some(Settled::Converged);
                }
                find_mode(stats, state)?;
                recorder.step(Action::Mode, None, state)?;
            }
        }
        dictionary.refresh(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        good.clone_from(state);
        if !fine && pools < most_pools && dictionary.gains(state) {
            pools += 1;
            let before = state.active.clone();
            let trials = if pools <= SEARCHES { TRIALS } else { 0 };
            let members = members(dictionary, state, trials > 0);
            let stretch = Stretch {
                others: &members,
                effort: LATE,
                trials,
                opening: Opening::Plain,
            };
            if relinearise(stats, state, dictionary.priors(), &stretch, recorder)? {
                fine = state.active == before;
            } else {
                // The linearisation does not reach as far as the pool went: one block at a time, then.
                most_pools = 0;
            }
            continue;
        }
        if dictionary.add(BLOCK, stats, state, recorder)? > 0 {
            fine |= dictionary.returns();
            continue;
        }
        match settled {
            None => fine = true,
            Some(Settled::Converged) if !dictionary.refuses(state) => {
                sharpen(stats, state, recorder)?;
                return Ok(Status::Converged);
            }
            Some(_) => return Ok(Status::Stalled),
        }
    }
}

/// Candidates for a first model: functions from all over the dictionary, the same ones for each linear predictor, so that
/// no class is served better than another.
fn sample(dictionary: &Dictionary, n_predictors: usize) -> Vec<usize> {
    let size = SMALL_SAMPLE.min(WHOLE / n_predictors).max(1);
    let n_each = dictionary.n_basis() / n_predictors;
    let mut sample: Vec<usize> = (0..n_each).filter(|&j| dictionary.diag(j) > 0.0).collect();
    if sample.len() > size {
        sample = (0..size).map(|k| sample[k * sample.len() / size]).collect();
    }
    let of_each = |c| sample.iter().map(move |j| c * n_each + j);
    (0..n_predictors).flat_map(of_each).collect()
}

/// Candidates for a pool about the state.
fn members(dictionary: &Dictionary, state: &State, searching: bool) -> Vec<usize> {
    let mut members = dictionary.gainers(state, CONTENDERS);
    members.extend(dictionary.contenders(state, CONTENDERS));
    if searching {
        members.extend(dictionary.stand_ins(state));
    }
    members
}

/// What a stretch on pools is to do.
struct Stretch<'a> {
    /// Candidates beside the active functions.
    others: &'a [usize],
    effort: Effort,
    /// Neighbourhoods to try.
    trials: usize,
    /// What searches begin with.
    opening: Opening,
}

/// The Gaussian scheme over a pool of candidates and the active functions, on the likelihood as it is linearised at the
/// mode, which is then found anew; until the choice of functions stays.
fn relinearise(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    stretch: &Stretch<'_>,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Halt> {
    const MOST_MODES: usize = 8;
    let mut useful = false;
    // The pool and the state have to speak of the same linearisation.
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MOST_MODES {
        let before = state.clone();
        let pool = Pool::nearly_about(stats, state, priors, stretch.others)?;
        let outcome = pool.within(state, recorder, |state, recorder| {
            pool.take_up(state)?;
            climb(&pool, state, None, stretch.effort, recorder)?;
            if stretch.trials > 0 && search(&pool, state, None, stretch.trials, stretch.opening)? {
                recorder.step(Action::Search, None, state)?;
            }
            Ok(())
        });
        match outcome.and_then(|()| Ok(find_mode(stats, state)?)) {
            Ok(()) => {}
            // Far from its mode a likelihood can be too steep for its linearisation.
            Err(Halt::Failed(Error::NotPositiveDefinite(_))) => state.clone_from(&before),
            Err(halt) => return Err(halt),
        }
        let risen = state.log_posterior() > before.log_posterior();
        if !risen {
            state.clone_from(&before);
        }
        recorder.step(Action::Mode, None, state)?;
        useful |= risen;
        if !risen || state.active == before.active {
            break;
        }
    }
    Ok(useful)
}

/// Brings the active set to the fixed point: by Newton's method, if need be from a point nearer by.
pub(super) fn settle(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    let mut near = 0.1;
    loop {
        let before = state.alpha.clone();
        if polish(stats, state, tol, recorder)? == Settled::Converged {
            return Ok(Settled::Converged);
        }
        if Residual::of(state).is_rounding(state) {
            return Ok(Settled::Stalled);
        }
        // What was in the way of a step still is where nothing has moved since.
        let stuck = state.alpha == before;
        let mut crept = false;
        while !crept {
            if near <= tol {
                return Ok(Settled::Stalled);
            }
            near *= 0.2;
            crept = creep(stats, state, near, recorder)? || !stuck;
        }
    }
}

/// Mode and alphas of the active set, in turn, a few times or until the alphas stay where they are. Ends at a mode.
fn alternate(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    for round in 0.. {
        find_mode(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        let distance = inner::residual(state, None);
        if distance <= tol || round >= ROUNDS {
            break;
        }
        let effort = Effort {
            gain: 0.0,
            step: COARSE_GAIN,
            tol: tol.min(0.1 * distance),
        };
        inner::converge(stats, state, None, effort, recorder)?;
    }
    Ok(())
}
