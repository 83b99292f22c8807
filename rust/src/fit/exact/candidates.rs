//! Candidates outside the model, by the slope of the Laplace evidence itself.
//!
//! A function outside that enters with a small prior variance v changes L by `v/2 [Q (Q - U) - S]`: the mode moves along it
//! by v Q, and the others answer (`slope.rs`). That sum is the condition for a maximum with v >= 0, and with q^2 = Q (Q - U)
//! the classic gain, which goes beyond first order, says whom to try first. What is tried stays if the evidence has risen.

use super::super::action::Factors;
use super::super::dictionary::Dictionary;
use super::super::ranking::ranked;
use super::super::record::{Action, Halt, Recorder};
use super::super::state::{Entrant, State};
use super::ascent::rounding;
use super::slope::Slope;
use super::to_mode;
use crate::linalg::blas::axpy;
use crate::stats::{Statistics, check_flag};
use crate::{Error, Result};

/// What a look at the candidates has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// One of them has entered.
    Added,
    /// None has anything to gain.
    Nothing,
    /// Some should, and rounding stands in the way.
    Refused,
}

/// Lets in the candidate with most to gain that raises the evidence.
pub(super) fn add_best(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &mut Dictionary,
    recorder: &mut Recorder<'_>,
) -> Result<Look, Halt> {
    const TRIALS: usize = 16;
    /// As in the certificate.
    const WORTH_TELLING: f64 = 1e-6;
    dictionary.refresh(stats, state)?;
    let factors = factors_outside(stats, state, dictionary)?;
    let outside = dictionary.outside(state);
    let gain = |i: usize| {
        if outside[i] {
            dictionary.gain(i, factors[i], state)
        } else {
            0.0
        }
    };
    let best = ranked((0..factors.len()).map(|i| (gain(i), i)), TRIALS);
    let most = best.first().map_or(0.0, |&i| gain(i));
    let before = state.clone();
    for &i in &best {
        dictionary.note_offers(&[i]);
        if enters(stats, state, dictionary, i, factors[i])? {
            recorder.step(Action::Add(i), None, state)?;
            return Ok(Look::Added);
        }
        state.clone_from(&before);
    }
    if !best.is_empty() {
        to_mode(stats, state)?;
    }
    Ok(if most > WORTH_TELLING {
        Look::Refused
    } else {
        Look::Nothing
    })
}

/// S of every candidate, and q with q^2 = Q (Q - U). Right after a pass over the dictionary.
fn factors_outside(
    stats: &mut dyn Statistics,
    state: &State,
    dictionary: &Dictionary,
) -> Result<Vec<Factors>> {
    let slope = Slope::at(stats, state)?;
    let mut u = stats.skew_projections(&state.active, state.reference(), &slope.factor)?;
    for (column, &c) in dictionary.active_columns(state).iter().zip(&slope.pull) {
        axpy(-c, column, &mut u);
    }
    let factors = u.iter().enumerate().map(|(i, u)| {
        let classic = dictionary.factors_of(i);
        Factors {
            q: (classic.q * (classic.q - u)).max(0.0).sqrt(),
            ..classic
        }
    });
    Ok(factors.collect())
}

/// Puts candidate `i` into the model, with an alpha at which the evidence rises; `false`, and a state to be dropped, if none
/// of those tried is one.
fn enters(
    stats: &mut dyn Statistics,
    state: &mut State,
    dictionary: &Dictionary,
    i: usize,
    factors: Factors,
) -> Result<bool> {
    /// To first order half the gain is left at each smaller prior variance.
    const CAUTION: [f64; 5] = [1.0, 4.0, 16.0, 64.0, 256.0];
    let Some(alpha) = factors.optimal_alpha() else {
        return Ok(false);
    };
    let products: Vec<f64> = state
        .active
        .iter()
        .map(|&j| dictionary.product(j, i))
        .collect();
    let entrant = Entrant {
        index: i,
        gram: &products,
        gram_self: dictionary.diag(i),
        gradient: dictionary.gradient_of(i),
        prior: factors.prior,
    };
    let before = state.clone();
    let from = before.log_posterior();
    for caution in CAUTION {
        let projection = state.project(&entrant);
        let there = state
            .add(&entrant, projection, caution * alpha)
            .and_then(|()| to_mode(stats, state));
        match there {
            // False for NaN.
            Ok(()) if state.log_posterior() > from + rounding(from) => return Ok(true),
            Ok(()) => {}
            Err(Error::NotPositiveDefinite(_)) => check_flag(stats.cancel_flag().as_deref())?,
            Err(error) => return Err(error),
        }
        state.clone_from(&before);
    }
    Ok(false)
}
