//! Fitted models in the caller's units: plain data.

mod finite_checks;

use nalgebra::DMatrix;

use crate::Result;
use crate::model::finite_checks::{check_evidence, check_precisions, check_weights};

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
    /// Prior precision of each weight.
    pub alpha: Vec<f64>,
    /// Posterior mean: equation (6).
    pub mu: Vec<f64>,
    /// Posterior covariance: equation (6).
    pub sigma: DMatrix<f64>,
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
    /// Checks that all numbers are finite in the caller's units.
    pub(crate) fn checked(self) -> Result<Self> {
        check_evidence(&self.trace, &[self.log_evidence])?;
        check_precisions(&self.alpha, &[self.beta])?;
        check_weights(&self.mu, self.sigma.as_slice())?;
        Ok(self)
    }

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
    pub mu: DMatrix<f64>,
    /// Posterior covariance for each noise level.
    pub sigma: Vec<DMatrix<f64>>,
    /// Noise precision of each output, or one for all.
    pub beta: Vec<f64>,
    /// For each noise level, whether it was estimated and ended at the noise floor.
    pub at_floor: Vec<bool>,
    /// Joint log evidence of all outputs at the start and after each step.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

impl OutputPosterior {
    /// Checks that all numbers are finite in the caller's units.
    pub(crate) fn checked(self) -> Result<Self> {
        check_evidence(&self.trace, &[])?;
        check_precisions(&self.alpha, &self.beta)?;
        for sigma in &self.sigma {
            check_weights(self.mu.as_slice(), sigma.as_slice())?;
        }
        Ok(self)
    }

    /// Final joint log evidence of all outputs.
    #[must_use]
    pub fn log_evidence(&self) -> f64 {
        self.trace.last().copied().unwrap_or(f64::NAN)
    }

    /// Number of steps.
    #[must_use]
    pub fn n_iter(&self) -> usize {
        self.trace.len().saturating_sub(1)
    }
}
