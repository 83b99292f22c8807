//! The data of a fit: sums over rows, returned by providers through the trait [`Statistics`].
//!
//! [`Observations`] computes them from rows in memory, with one output or several, [`SoftmaxStatistics`] from rows with class labels,
//! [`SumStatistics`] from sufficient statistics, and [`ProviderStatistics`] from any [`RowProvider`].

pub(crate) mod low_rank;

mod column_cache;
mod design;
mod part;
mod provider;
mod row_subsample;
mod rows;
mod softmax;
mod sums;
mod targets;

pub use crate::data::design::{Block, DenseDesign, Design, Family, JoinedDesign, KernelDesign};
pub(crate) use crate::data::low_rank::bounds::{BoundSample, ScreeningBounds};
pub(crate) use crate::data::low_rank::statistics::LowRankStatistics;
pub(crate) use crate::data::part::Subset;
pub use crate::data::provider::{
    CandidateProducts, CentredProvider, ProviderStatistics, RowPart, RowProvider,
};
pub(crate) use crate::data::row_subsample::SubsampledStatistics;
pub use crate::data::rows::Observations;
pub use crate::data::softmax::SoftmaxStatistics;
pub use crate::data::sums::{SufficientStatistics, SumStatistics};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::check_flag;
use crate::linalg::Matrix;
use crate::linalg::vector::mirrored;
use crate::{Error, Result};

fn no_bound() -> Error {
    let what = "scheme must not be 'variational' for these data: their likelihood, or the provider of it, has no \
                quadratic lower bound";
    Error::Invalid { what: what.into() }
}

/// The result of a pass over the dictionary, at the `mu` of the call and for columns of unit norm. W is the diagonal matrix of working
/// weights there (for a Gaussian likelihood the sample weights).
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// phi_i^T W phi_i for every i: length K. Zero marks a column that can never be added.
    pub diag: Vec<f64>,
    /// phi_i^T e for every i, with e the working residual: length K; for several outputs one after the other.
    pub gradient: Vec<f64>,
    /// Phi^T W phi_j for each j of `wanted`, in that order: each of length K.
    pub gram: Vec<Vec<f64>>,
    /// Minus twice the log-likelihood at `mu`, for each output; for a Gaussian the weighted residual sum of squares.
    pub deviances: Vec<f64>,
}

/// The properties of the data of a fit, which never change.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Sum of the sample weights; N without them.
    pub n_obs: f64,
    /// Linear predictors per row: 1 unless there are several classes. The functions of the first predictor come first, then the same
    /// functions of the second, and so on; K counts all of them.
    pub n_predictors: usize,
    /// Whether the working weights do not depend on `mu`, which holds for a Gaussian likelihood only.
    pub is_linear: bool,
    /// Length of each original column; 0 for columns that can never be added, NaN for columns not yet measured.
    pub norms: Vec<f64>,
    /// The standard deviation by which Gaussian targets were divided; 1 for other likelihoods.
    pub target_scale: f64,
    /// The flag with which the caller interrupts a fit. Long loops that do not call the provider check it.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Facts {
    /// K.
    #[must_use]
    pub fn n_basis(&self) -> usize {
        self.norms.len()
    }

    /// [`Error::Interrupted`] if the caller has raised the flag.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    /// These facts for columns with these lengths.
    pub(crate) fn with_norms(&self, norms: Vec<f64>) -> Self {
        let cancel = self.cancel.clone();
        Self {
            norms,
            cancel,
            ..*self
        }
    }
}

/// A Gram matrix, whose elements above the diagonal have no meaning, and the gradient of the same functions.
pub type GramAndGradient = (Matrix, Vec<f64>);

/// What a fit asks of the data.
///
/// A fit sees the data through this trait only. It passes the weights `mu` of the functions listed in `active`; all other weights are
/// zero. It gets sums over rows. Nothing that is passed or returned has the length of the rows, so the rows may be on other computers.
/// `docs/architecture.md` has a table of all questions with their costs.
///
/// Here e are the working residuals and W the working weights of the rows at `mu`, times the sample weights. Columns have unit
/// (weighted) length and Gaussian targets unit variance; [`Facts::norms`] and [`Facts::target_scale`] convert a fitted
/// model to the units of the caller. No method but [`bound`](Self::bound) changes the result of a later call. Implementations keep what
/// they computed at the latest `mu`, so that several calls at one point cost one evaluation of the likelihood.
///
/// # Errors
/// Every method may return an error of the provider, and returns [`Error::Interrupted`] once the caller has raised the flag.
#[allow(clippy::missing_errors_doc)] // stated above for all methods
pub trait Statistics {
    /// The properties of the data, which never change.
    fn facts(&self) -> &Facts;

    /// Minus twice the log-likelihood.
    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64>;

    /// The deviance, and Gram matrix (both triangles) and gradient of the active functions.
    ///
    /// The default asks [`Statistics::gradient`] and [`Statistics::among`].
    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        let mut gradient = vec![0.0; mu.len()];
        let deviances = self.gradient(active, mu, &mut gradient)?;
        let gram = mirrored(self.among(active, mu, active)?.0);
        Ok((deviances.iter().sum(), (gram, gradient)))
    }

    /// Writes the gradient of the active functions; returns the deviance.
    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>>;

    /// How posterior variances change as the mode moves from `mu`, through the working weights alone.
    ///
    /// With T = Phi_A Sigma and `skew` the derivative of a working weight in the linear predictor, it is the m x m matrix
    /// `sum_n skew_n T_nj^2 T_nk`. Where a row has several linear predictors, it is the negative third derivative of its log-likelihood,
    /// applied to `T_nj, T_nj, T_nk`. The default is zero, as for a Gaussian likelihood.
    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        debug_assert!(self.facts().is_linear);
        let _ = (mu, sigma);
        Ok(Matrix::zeros(active.len(), active.len()))
    }

    /// One pass over the dictionary.
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// The Gram matrix and the gradient of `js`.
    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient>;

    /// The gradient of each of `js`.
    fn project(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<Vec<f64>> {
        Ok(self.among(active, mu, js)?.1)
    }

    /// Replaces the log-likelihood by a quadratic lower bound in all later calls: the bound that is tightest in expectation over weights
    /// with this mean and covariance (leading block of `sigma`). Its working weights are constant until the next call.
    ///
    /// The default does nothing for a Gaussian likelihood, which is its own bound, and returns [`Error::Invalid`] for others.
    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<()> {
        let _ = (active, mu, sigma);
        if self.facts().is_linear {
            Ok(())
        } else {
            Err(no_bound())
        }
    }

    /// Restores the log-likelihood after [`Statistics::bound`].
    fn remove_bound(&mut self) {}
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The answers to all questions at `mu`, those about some functions for `js`.
    pub(crate) fn all_sums(
        stats: &mut dyn Statistics,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Vec<f64> {
        let (deviance, (gram, mut gradient)) = stats.local(active, mu).unwrap();
        let mut all = vec![stats.facts().n_obs, deviance];
        all.push(stats.deviance(active, mu).unwrap());
        all.extend(gram.iter().chain(&gradient));
        all.extend(stats.gradient(active, mu, &mut gradient).unwrap());
        let sweep = stats.sweep(active, mu, js).unwrap();
        all.extend([gradient, sweep.deviances, sweep.diag, sweep.gradient].concat());
        all.extend(sweep.gram.concat());
        let (among, slopes) = stats.among(active, mu, js).unwrap();
        all.extend(mirrored(among).iter().chain(&slopes));
        all
    }

    pub(crate) fn assert_near(a: &[f64], b: &[f64], tol: f64) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < tol * (1.0 + b.abs()), "{a} {b}");
        }
    }
}
