//! The trait of providers that return sums over rows, in the units of the rows.

use crate::data::Sweep;
use crate::{Likelihood, Result};

/// Sums for a few functions: `gradient` and `gram` as in [`Sweep`], for these functions only.
#[derive(Debug, Clone)]
pub struct CandidateProducts {
    /// Minus twice the log-likelihood at `mu`; for a Gaussian the weighted residual sum of squares.
    pub deviance: f64,
    /// phi_i^T e for each i of `js`, with e the working residual.
    pub gradient: Vec<f64>,
    /// phi_i^T W phi_j for each pair of `js`, column-major.
    pub gram: Vec<f64>,
}

/// A provider of sums over rows, which may be anywhere. [`ProviderStatistics`](crate::data::ProviderStatistics) makes
/// [`Statistics`](crate::data::Statistics) of it.
///
/// Each result is a plain sum over rows: columns and targets have the units given, and no call refers to
/// an earlier one. So the results for parts of the rows add up to the result for all rows. `mu` holds the weights of
/// the functions `active`; all other weights are zero.
///
/// # Errors
/// Every method may return an error of the provider, and [`Error::Interrupted`](crate::Error::Interrupted) when interrupted.
#[allow(clippy::missing_errors_doc)] // stated above for all methods
pub trait RowProvider {
    /// K.
    fn n_basis(&self) -> usize;

    /// The likelihood of all rows.
    fn likelihood(&self) -> Likelihood;

    /// Sums of w, w (t - centre) and w (t - centre)^2 over targets t and sample weights w.
    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]>;

    /// Minus twice the log-likelihood.
    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64>;

    /// The deviance, and phi_i^T e for each active i.
    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)>;

    /// The sums for the functions `js`, which usually are the active ones.
    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts>;

    /// Products of all K functions with the residual, with themselves, and with those of `wanted`.
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// The matrix `sum_n skew_n T_nj^2 T_nk` with T = `Phi_A` Sigma and skew the derivative of the working weight in eta:
    /// see [`Statistics::variance_drift`](crate::data::Statistics::variance_drift). Both matrices are column-major. Not called for a
    /// Gaussian likelihood, whose working weights are constant.
    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>>;
}
