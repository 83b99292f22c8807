//! Sums over rows, in the units of the rows: what somebody else has to answer for a fit of rows he holds.

use crate::data::Sweep;
use crate::{Likelihood, Result};

/// Products among a few functions: `gradient` and `gram` as in [`Sweep`], for these functions alone.
#[derive(Debug, Clone)]
pub struct CandidateProducts {
    /// Minus twice the log-likelihood at `mu`; for a Gaussian the weighted residual sum of squares.
    pub deviance: f64,
    /// phi_i^T of the working residual for each i asked for.
    pub gradient: Vec<f64>,
    /// phi_i^T W phi_j for each two asked for, column-major.
    pub gram: Vec<f64>,
}

/// Rows that answer for themselves, wherever they are; a [`ProviderStatistics`](crate::data::Scaled) turns the answers into
/// [`Statistics`](crate::data::Statistics).
///
/// Each answer is a sum over rows and nothing else: columns and targets have the units given, and no question refers to
/// one before. So what the parts of a set of rows answer adds up to what the set has to answer. `mu` holds the weights of
/// the functions `active`; all other weights are zero.
pub trait RowProvider {
    /// K.
    fn n_basis(&self) -> usize;

    /// The likelihood of all rows.
    fn likelihood(&self) -> Likelihood;

    /// Sums of w, w (t - centre) and w (t - centre)^2 over targets t and sample weights w.
    ///
    /// # Errors
    /// Whatever the rows meet; [`Error::Interrupted`](crate::Error::Interrupted) when asked to end. So for all questions.
    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]>;

    /// Minus twice the log-likelihood.
    ///
    /// # Errors
    /// As [`RowProvider::target_moments`].
    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64>;

    /// The deviance, and phi_i^T of the working residual for each active i.
    ///
    /// # Errors
    /// As [`RowProvider::target_moments`].
    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)>;

    /// Products among the functions `js`, which mostly are the active ones.
    ///
    /// # Errors
    /// As [`RowProvider::target_moments`].
    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts>;

    /// Products of all K functions with the residual, themselves and those wanted.
    ///
    /// # Errors
    /// As [`RowProvider::target_moments`].
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// With T = `Phi_A` Sigma the matrix `sum_n skew_n T_nj^2 T_nk`, skew being the derivative of the working weight in eta:
    /// see [`Statistics::variance_drift`](crate::data::Statistics::variance_drift). Both matrices are column-major. Not asked of a
    /// Gaussian, whose weights do not move.
    ///
    /// # Errors
    /// As [`RowProvider::target_moments`].
    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>>;
}
