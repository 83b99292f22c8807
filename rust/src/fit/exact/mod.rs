//! The maximum of the Laplace evidence itself, whose working weights move with the mode.
//!
//! The classic fixed point of `laplace.rs` holds B while it maximises over alpha. With w the mode at alpha,
//! `L(alpha) = ln p(t | w) - 1/2 w^T A w + 1/2 ln|A| - 1/2 ln|H|`, `H = A + Phi^T B(w) Phi`: Tipping (2001), section 3. Its
//! first two terms are stationary in w, and H is not, so that the slope has a part through the mode that the fixed point
//! leaves out. From there on L is climbed along its whole slope (`ascent.rs`), on the functions in the model; functions
//! whose alpha goes to infinity leave, and the candidates outside come in where the whole slope says that they gain
//! (`candidates.rs`), whenever the evidence, computed anew, has risen. So L never falls.

mod ascent;
mod candidates;
mod slope;

use super::Status;
use super::dictionary::Dictionary;
use super::inner::Settled;
use super::mode::find_mode;
use super::prior::Priors;
use super::record::{Action, Halt, Recorder};
use super::settings::{LOOSE_TOL, Rules};
use super::settled::unless_indefinite;
use super::state::State;
use super::stationary::step_to_mode;
use crate::linalg::NotPositiveDefinite;
use crate::stats::Statistics;
use crate::{Error, Result};
use ascent::ascend;
use candidates::{Look, add_best};

/// Steps before the climb is given up. Most take ten or twenty; where it leads to where the approximation means nothing,
/// weights a thousand times those of the fixed point, it takes hundreds.
const MOST_STEPS: usize = 500;

/// What a Gaussian likelihood says to `laplace='exact'`.
pub(super) fn no_laplace() -> Error {
    let what = "laplace='exact' is for likelihoods that are not Gaussian: a Gaussian one has no Laplace approximation";
    Error::Invalid { what: what.into() }
}

/// Climbs from a fixed point of the classic iteration to a maximum of the Laplace evidence.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    to_mode(stats, state)?;
    if recorder.n_iter() >= rules.max_iter {
        return Err(Halt::MaxIterations);
    }
    recorder.step(Action::Mode, None, state)?;
    let mut good = state.clone();
    let outcome = rounds(stats, state, &mut good, priors, rules, recorder);
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

/// Ascents and looks at the candidates, in turn. `good` is kept at the last model that an ascent led to.
fn rounds(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone());
    let last = recorder.n_iter() + MOST_STEPS;
    let mut tol = LOOSE_TOL.max(rules.tol);
    while recorder.n_iter() < last {
        let settled = ascend(stats, state, tol, recorder)?;
        good.clone_from(state);
        match add_best(stats, state, &mut dictionary, recorder)? {
            Look::Added => {}
            Look::Nothing | Look::Refused if tol > rules.tol => tol = rules.tol,
            Look::Nothing if settled == Settled::Converged => return Ok(Status::Converged),
            Look::Nothing | Look::Refused => break,
        }
    }
    Ok(Status::Stalled)
}

/// Brings a state to its mode, and one full step of Newton's method further: the log determinant is not stationary there,
/// and shows an error of the mode at first order.
///
/// # Errors
/// [`Error::NotPositiveDefinite`] also where that step still moves: on classes that can be separated weights may be so large
/// that no mode is found, and what the quadratic model then promises (an evidence of 1e9, where none is above 0) is not true.
fn to_mode(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    const STILL: f64 = 1e-6;
    find_mode(stats, state)?;
    let found = depth(state);
    step_to_mode(stats, state)?;
    let moved = (depth(state) - found).abs();
    // False for NaN.
    if moved <= STILL * (1.0 + found.abs()) {
        Ok(())
    } else {
        Err(NotPositiveDefinite { pivot: 0 }.into())
    }
}

/// What the mode minimises: minus the log likelihood, less a constant, and the penalty of the weights.
fn depth(state: &State) -> f64 {
    let penalties = state.alpha.iter().zip(&state.mu).map(|(a, m)| a * m * m);
    0.5 * (state.deviance_at_mean() + penalties.sum::<f64>())
}
