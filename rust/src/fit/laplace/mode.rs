//! The posterior mode at given alphas: Tipping & Faul (2003), equation (10).

use crate::data::Statistics;
use crate::fit::context::Fit;
use crate::fit::model::Model;
use crate::fit::tuning::Tuning;
use crate::linalg::Cholesky;
use crate::linalg::vector::dot;
use crate::{Error, Result};

/// Moves the model's quadratic model to the mode of the posterior at its alphas: damped Newton on equation (10).
///
/// The log posterior is concave, so a short enough Newton step always raises it; the prior bounds the mode, on separable
/// data too. Stops when the predicted rise is round-off, or, near the mode, no less than for the step before: with almost
/// linearly dependent functions the predicted rise is round-off only, and the steps would alternate for ever.
pub(crate) fn find_mode(stats: &mut dyn Statistics, model: &mut Model) -> Result<()> {
    let m = model.len();
    let mut mu = starting_point(stats, model)?;
    let mut chol = Cholesky::with_capacity(m.max(1));
    chol.cancelled_by(stats.facts().cancel.clone());
    let (mut deviance, (mut gram, mut gradient)) = stats.local(&model.active, &mu)?;
    let mut last = f64::INFINITY;
    for _ in 0..Tuning::MAX_STEPS {
        let slope: Vec<f64> = (0..m)
            .map(|k| gradient[k] - model.alpha[k] * mu[k])
            .collect();
        chol.refactor(m, |i, j| {
            gram[(i, j)] + if i == j { model.alpha[i] } else { 0.0 }
        })?;
        let mut step = slope.clone();
        chol.solve_in_place(&mut step);
        let rise = dot(&slope, &step);
        let height = penalised(deviance, &model.alpha, &mu);
        // `rise` is twice the rise that the quadratic model predicts.
        let size = 1.0 + height.abs();
        if rise <= Tuning::ROUNDING * size || (last <= Tuning::MIN_GAIN * size && rise > 0.1 * last)
        {
            break;
        }
        last = rise;
        let Some(next) = line_search(stats, model, &mu, &step, height, rise)? else {
            break;
        };
        mu = next;
        (deviance, (gram, gradient)) = stats.local(&model.active, &mu)?;
    }
    model.set_data(&mu, &gradient, &[deviance], Some(&gram))
}

impl Fit<'_, '_> {
    /// [`find_mode`] of the model of this fit.
    pub(crate) fn find_mode(&mut self) -> Result<()> {
        find_mode(self.stats, self.model)
    }

    /// [`find_mode`]; while the posterior precision is indefinite by round-off, deletes the function that costs least.
    pub(crate) fn find_some_mode(&mut self) -> Result<()> {
        loop {
            let before = self.model.clone();
            let outcome = self.find_mode();
            let Err(Error::NotPositiveDefinite(_)) = outcome else {
                return outcome;
            };
            self.model.clone_from(&before);
            let Some(k) = self.model.cheapest_deletion() else {
                return outcome;
            };
            self.model.delete(k);
        }
    }
}

/// The mean of the quadratic model, unless the posterior density is higher at its reference or at zero: a large step
/// leaves the region where the quadratic model is accurate.
fn starting_point(stats: &mut dyn Statistics, model: &Model) -> Result<Vec<f64>> {
    let mut best = (f64::INFINITY, vec![0.0; model.len()]);
    // The mean, mostly the best, comes last: its evaluation is still cached by the provider.
    for mu in [model.reference(), model.mu()] {
        let height = penalised(stats.deviance(&model.active, mu)?, &model.alpha, mu);
        // False for NaN and infinity.
        if height.is_finite() && height <= best.0 {
            best = (height, mu.to_vec());
        }
    }
    Ok(best.1)
}

/// Half the penalised deviance, which the mode minimises.
fn penalised(deviance: f64, alpha: &[f64], mu: &[f64]) -> f64 {
    0.5 * (deviance + alpha.iter().zip(mu).map(|(a, m)| a * m * m).sum::<f64>())
}

/// The longest of 1, 1/2, 1/4, ... times `step` that lowers the penalised deviance enough (Armijo).
fn line_search(
    stats: &mut dyn Statistics,
    model: &Model,
    mu: &[f64],
    step: &[f64],
    height: f64,
    rise: f64,
) -> Result<Option<Vec<f64>>> {
    let mut length = 1.0;
    for _ in 0..60 {
        let next: Vec<f64> = mu.iter().zip(step).map(|(m, s)| m + length * s).collect();
        let deviance = stats.deviance(&model.active, &next)?;
        // False for NaN and infinity, which an overflowing exponential gives.
        if penalised(deviance, &model.alpha, &next) <= height - 1e-4 * length * rise {
            return Ok(Some(next));
        }
        length *= 0.5;
    }
    Ok(None)
}
