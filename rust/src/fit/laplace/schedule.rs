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

use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::fixed_point::{Residual, polish, sharpen};
use crate::fit::laplace::mode::find_mode;
use crate::fit::laplace::rprop::creep;
use crate::fit::laplace::working_sets::{Pools, first_model};
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Refined;
use crate::fit::rollback::roll_back_if_indefinite;
use crate::fit::settings::Rules;
use crate::fit::tuning::{Effort, Tuning};

/// Rounds of mode and alphas between two passes over the dictionary.
const ROUNDS: usize = 3;

/// Passes followed by a pool at all: most fits need two or three.
const POOLS: usize = 12;

/// Runs from the state given, an empty model, to convergence.
///
/// Some choices of functions have no fixed point: one of them is wanted by the others' linearisation and not by its own.
/// If pools have led to such a choice the fit starts again without them; not where all that is left is rounding.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let empty = state.clone();
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    first_model(stats, state, &dictionary, recorder)?;
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
pub(crate) fn resume(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let status = finish_or_go_back(stats, state, dictionary, POOLS, rules, recorder)?;
    if status == Status::Converged || Residual::of(state).is_rounding(state) {
        return Ok(status);
    }
    finish_or_go_back(stats, state, dictionary, 0, rules, recorder)
}

/// [`finish`]; where rounding takes the definiteness of the posterior precision on the way, the last model whose mode was found
/// stands.
pub(crate) fn finish_or_go_back(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut good = state.clone();
    let outcome = finish_keeping(
        &mut good, stats, state, dictionary, most_pools, rules, recorder,
    );
    let cancel = stats.cancel_flag();
    roll_back_if_indefinite(
        outcome,
        state,
        &good,
        Action::Mode,
        cancel.as_deref(),
        recorder,
    )
}

/// Runs from the state given to convergence, with at most so many pools on the way.
pub(crate) fn finish(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
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
    most_pools: usize,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Stop> {
    let mut pools = Pools::at_most(most_pools);
    let mut fine = false;
    loop {
        let settled = if fine {
            Some(settle(stats, state, rules.tol, recorder)?)
        } else {
            approach(stats, state, pools.have_begun(), rules, recorder)?
        };
        let steering = !fine && pools.are_left();
        let exchanging = steering && pools.may_exchange(state);
        let gains = look(stats, state, dictionary, (steering, exchanging))?;
        recorder.step(Action::Mode, None, state)?;
        good.clone_from(state);
        if steering && (gains || exchanging) {
            fine = pools.next(stats, state, dictionary, (gains, exchanging), recorder)?;
            continue;
        }
        if dictionary.add(Tuning::MAX_BLOCK_ADDITIONS, stats, state, recorder)? > 0 {
            fine |= dictionary.has_reentries();
            continue;
        }
        match settled {
            None => fine = true,
            Some(Refined::Converged) if !dictionary.excludes_gain(state) => {
                sharpen(stats, state, recorder)?;
                return Ok(Status::Converged);
            }
            Some(_) => return Ok(Status::Stalled),
        }
    }
}

/// Nears the fixed point of the functions in the model, and ends at a mode; how it is settled if `polishing` has brought it there.
fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    polishing: bool,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Refined>, Stop> {
    alternate(stats, state, Tuning::LOOSE_TOL.max(rules.tol), recorder)?;
    if !polishing {
        return Ok(None);
    }
    // A pass costs more than the end of the active set; at worst that is done again when it matters.
    let settled = polish(stats, state, rules.tol, recorder)?;
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    Ok((settled == Refined::Converged).then_some(settled))
}

/// Looks at the whole dictionary; whether something outside gains. That is near enough as long as it only says what pool to make,
/// not where it says that there is none to make.
fn look(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    (steering, exchanging): (bool, bool),
) -> Result<bool, Stop> {
    if steering {
        dictionary.refresh_approximately(stats, state)?;
        let gains = dictionary.has_gain(state);
        if gains || exchanging {
            return Ok(gains);
        }
    }
    dictionary.refresh(stats, state)?;
    Ok(dictionary.has_gain(state))
}

/// Brings the active set to the fixed point: by Newton's method, if need be from a point nearer by.
fn settle(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    let mut near = 0.1;
    loop {
        let before = state.alpha.clone();
        if polish(stats, state, tol, recorder)? == Refined::Converged {
            return Ok(Refined::Converged);
        }
        if Residual::of(state).is_rounding(state) {
            return Ok(Refined::Stalled);
        }
        // What was in the way of a step still is where nothing has moved since.
        let stuck = state.alpha == before;
        let mut crept = false;
        while !crept {
            if near <= tol {
                return Ok(Refined::Stalled);
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
) -> Result<(), Stop> {
    for round in 0.. {
        find_mode(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        let distance = refine::residual(state, None);
        if distance <= tol || round >= ROUNDS {
            break;
        }
        let effort = Effort {
            gain: 0.0,
            step: Tuning::COARSE_STEP,
            tol: tol.min(0.1 * distance),
        };
        refine::converge(stats, state, None, effort, recorder)?;
    }
    Ok(())
}
