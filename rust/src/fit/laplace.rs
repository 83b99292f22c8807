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
use super::creep::creep;
use super::dictionary::Dictionary;
use super::inner::{self, Settled};
use super::mode::find_mode;
use super::record::{Action, Halt, Recorder};
use super::settings::{BLOCK, LOOSE_TOL, Rules};
use super::state::State;
use super::stationary::polish;
use crate::stats::Statistics;

/// Rounds of mode and alphas between two passes over the dictionary.
const ROUNDS: usize = 3;

/// Runs from the state given to convergence.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut dictionary = Dictionary::new(stats.n_basis());
    let mut fine = false;
    loop {
        let mut settled = None;
        if fine {
            settled = Some(settle(stats, state, rules.tol, recorder)?);
        } else {
            alternate(stats, state, LOOSE_TOL.max(rules.tol), recorder)?;
        }
        dictionary.refresh(stats, state)?;
        if dictionary.add(BLOCK, stats, state, recorder)? > 0 {
            fine |= dictionary.returns();
            continue;
        }
        match settled {
            None => fine = true,
            Some(Settled::Converged) if !dictionary.refuses(state) => return Ok(Status::Converged),
            Some(_) => return Ok(Status::Stalled),
        }
    }
}

/// Brings the active set to the fixed point: by Newton's method, if need be from a point nearer by.
fn settle(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    let mut near = 0.1;
    while polish(stats, state, tol, recorder)? == Settled::Stalled {
        if near <= tol {
            return Ok(Settled::Stalled);
        }
        near *= 0.2;
        creep(stats, state, near, recorder)?;
    }
    Ok(Settled::Converged)
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
        inner::converge(stats, state, None, tol.min(0.1 * distance), recorder)?;
    }
    Ok(())
}
