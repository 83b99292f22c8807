//! Fitted models in the caller's units: plain data.

use crate::linalg::Matrix;
use crate::{Error, Result};

/// How a fit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// At a maximum: Tipping & Faul (2003), section 4.4, over the whole dictionary.
    Converged,
    /// At a maximum with the noise estimate at its floor, a millionth of the variance of the targets.
    NoiseFloor,
    /// At a maximum with some alpha at its floor: the data ask for an unbounded weight.
    AlphaFloor,
    /// After the largest number of steps allowed.
    MaxIterations,
    /// The callback ended the fit.
    Stopped,
    /// Round-off prevents a certified maximum.
    Stalled,
}

impl Status {
    /// The name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::NoiseFloor => "noise_floor",
            Self::AlphaFloor => "alpha_floor",
            Self::MaxIterations => "max_iter",
            Self::Stopped => "stopped",
            Self::Stalled => "stalled",
        }
    }
}

/// Active basis functions, hyperparameters and the posterior of the weights, in the units of the given columns and targets.
///
/// Entries are in the order of `active`, which is ascending.
#[derive(Debug, Clone)]
pub struct Posterior {
    /// Indices of the active basis functions.
    pub active: Vec<usize>,
    /// Prior precision of each weight; 0 for a flat prior.
    pub alpha: Vec<f64>,
    /// Posterior mean: equation (6).
    pub mu: Vec<f64>,
    /// Posterior covariance: equation (6).
    pub sigma: Matrix,
    /// 1 - `alpha_j` `sigma_jj`: how well the data determine each weight.
    pub gamma: Vec<f64>,
    /// Noise precision; 1 for likelihoods without one.
    pub beta: f64,
    /// Final log evidence.
    pub log_evidence: f64,
    /// The objective at the start and after each step: the log evidence, with the log densities of the
    /// hyperparameters where they have priors.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

impl Posterior {
    /// Number of steps.
    #[must_use]
    pub fn n_iter(&self) -> usize {
        self.trace.len().saturating_sub(1)
    }
}

/// Shared basis functions and alphas, noise levels, and the posterior of each output's weights.
///
/// Entries are in the order of `active`, which is ascending.
#[derive(Debug, Clone)]
pub struct OutputPosterior {
    /// Indices of the active basis functions.
    pub active: Vec<usize>,
    /// Prior precision of the weights of each function.
    pub alpha: Vec<f64>,
    /// Posterior means, m x C.
    pub mu: Matrix,
    /// Posterior covariance for each noise level.
    pub sigma: Vec<Matrix>,
    /// Noise precision of each output, or one for all.
    pub beta: Vec<f64>,
    /// For each noise level, whether it was estimated and ended at the noise floor.
    pub at_floor: Vec<bool>,
    /// Joint log evidence of all outputs.
    pub log_evidence: f64,
    /// The objective, which is that evidence if all priors are flat, at the start and after each step.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

impl OutputPosterior {
    /// Checks that all numbers are finite in the caller's units.
    pub(crate) fn checked(self) -> Result<Self> {
        check_evidence(&self.trace, &[self.log_evidence])?;
        check_precisions(&self.alpha, &self.beta)?;
        for sigma in &self.sigma {
            check_weights(self.mu.as_slice(), sigma.as_slice())?;
        }
        Ok(self)
    }

    /// Number of steps.
    #[must_use]
    pub fn n_iter(&self) -> usize {
        self.trace.len().saturating_sub(1)
    }
}

// Checks that all numbers of a fitted model are finite before it is returned.

/// The log evidence does not depend on units: a value that is not finite is an arithmetic breakdown.
fn check_evidence(trace: &[f64], log_evidence: &[f64]) -> Result<()> {
    if trace.iter().chain(log_evidence).all(|v| v.is_finite()) {
        return Ok(());
    }
    let what = "the log evidence";
    Err(Error::Breakdown { what })
}

fn check_precisions(alpha: &[f64], beta: &[f64]) -> Result<()> {
    check("a prior precision", alpha, |v| v >= 0.0)?;
    // Its inverse, the noise variance, must also be finite.
    check("the noise precision", beta, |v| {
        v > 0.0 && v.recip().is_finite()
    })
}

fn check_weights(mu: &[f64], sigma: &[f64]) -> Result<()> {
    check("a weight", mu, |_| true)?;
    check("the variance of a weight", sigma, |_| true)
}

/// NaN is an arithmetic breakdown; overflow and underflow come from the caller's units.
fn check(what: &'static str, values: &[f64], is_valid: impl Fn(f64) -> bool) -> Result<()> {
    if values.iter().any(|v| v.is_nan()) {
        return Err(Error::Breakdown { what });
    }
    if values.iter().all(|&v| v.is_finite() && is_valid(v)) {
        return Ok(());
    }
    let what = format!(
        "{what} is out of the range of numbers in the units of X and y; rescale the columns of X, the kernel or y"
    );
    Err(Error::Invalid { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_are_errors() {
        assert!(check_evidence(&[0.0, -1e300], &[1.0]).is_ok());
        assert!(check_precisions(&[1e-300], &[1e300]).is_ok());
        assert!(check_weights(&[0.0, -1.0], &[0.0]).is_ok());
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(check_evidence(&[bad], &[]).is_err());
            assert!(check_evidence(&[], &[bad]).is_err());
            assert!(check_precisions(&[1.0, bad], &[1.0]).is_err());
            assert!(check_weights(&[1.0], &[bad]).is_err());
        }
        let units = check_precisions(&[1.0], &[0.0]).err().unwrap();
        assert!(units.is_invalid_input() && units.to_string().contains("rescale"));
        assert!(
            !check_weights(&[f64::NAN], &[])
                .err()
                .unwrap()
                .is_invalid_input()
        );
    }
}
