//! A start from part of the rows: where N is large the search for a first model is made on some of them.
//!
//! Functions that explain a sixteenth of the rows are nearly those that explain all of them, and so are alphas and noise,
//! which have the same units on both. What remains is to see to the end of a fit that begins near it, and that is the
//! end of the full problem all the same: the loop that follows asks all rows, and all of the dictionary.

use std::ops::ControlFlow;

use nalgebra::DMatrix;

use super::action::ALPHA_FLOOR;
use super::joint::NoiseRange;
use super::prior::Priors;
use super::settings::{LOOSE_TOL, Rules, Settings};
use super::state::State;
use crate::model::Posterior;
use crate::stats::{Statistics, check_flag};
use crate::{Error, Result};

/// One row in so many.
const SHARE: usize = 16;

/// Rows that a first model needs, whatever the dictionary.
const LEAST_ROWS: usize = 1 << 14;

/// Values of the whole design (N K) from which on it pays.
const LEAST_VALUES: usize = 1 << 28;

/// Puts the model of part of the rows into an empty state, if there are rows enough; whether it has.
///
/// `priors` are those of all rows. A part on which the fit fails is no start, and no failure.
pub(super) fn take(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    noise: Option<NoiseRange>,
) -> Result<bool> {
    let least = LEAST_ROWS.max(LEAST_VALUES / SHARE / stats.n_basis().max(1));
    let rules = rough(rules)?;
    let mut found = None;
    let outcome = stats.on_part(SHARE, least, &mut |part| {
        found = Some(super::fit(
            part,
            &rules,
            &mut |_| ControlFlow::Continue(()),
        )?);
        Ok(())
    });
    check_flag(stats.cancel_flag().as_deref())?;
    let Some(model) = found.filter(|model| outcome.is_ok() && !model.active.is_empty()) else {
        return Ok(false);
    };
    let empty = state.clone();
    match put(stats, state, priors, &model, noise) {
        Ok(()) => Ok(true),
        Err(Error::NotPositiveDefinite(_)) => {
            check_flag(stats.cancel_flag().as_deref())?;
            state.clone_from(&empty);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Rules that do not ask for an end to many digits.
fn rough(rules: &Rules) -> Result<Rules> {
    let tol = LOOSE_TOL.max(rules.tol);
    Settings { tol, ..**rules }.check()
}

/// Fills an empty state with a model in the caller's units.
fn put(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    model: &Posterior,
    noise: Option<NoiseRange>,
) -> Result<()> {
    let scale = stats.target_scale();
    // A weight on a column of length c is 1 / c times that on the unit column.
    let units: Vec<f64> = model
        .active
        .iter()
        .map(|&j| scale / stats.norms()[j])
        .collect();
    let mu: Vec<f64> = model.mu.iter().zip(&units).map(|(mu, u)| mu / u).collect();
    state.fill(&model.active, 1.0, priors, None);
    for (alpha, (given, u)) in state.alpha.iter_mut().zip(model.alpha.iter().zip(&units)) {
        *alpha = (given * u * u).max(ALPHA_FLOOR);
    }
    if let Some(range) = noise {
        state.beta = (model.beta * scale * scale).min(range.beta_max);
    }
    let m = mu.len();
    let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
    let deviance = stats.local(&model.active, &mu, &mut gram, &mut gradient)?;
    state.set_data(&mu, &gradient, deviance, Some(&gram))
}
