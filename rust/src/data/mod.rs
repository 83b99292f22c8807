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

use nalgebra::DMatrix;

use crate::error::check_flag;
use crate::linalg::vector::mirrored;
use crate::{Error, Result};

fn no_bound() -> Error {
    let what =
        "scheme must not be 'variational' for this likelihood: it has no quadratic lower bound";
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

/// What a fit asks of the data.
///
/// A fit sees the data through this trait only. It passes the weights `mu` of the functions listed in `active`; all other weights are
/// zero. It gets sums over rows. Nothing that is passed or returned has the length of the rows, so the rows may be on other computers.
/// With N rows, K basis functions, m active ones and a working set of p functions:
///
/// | method | returns | cost | called |
/// |---|---|---|---|
/// | [`deviance`](Self::deviance) | minus twice the log-likelihood | N m | at each step of a line search |
/// | [`gradient`](Self::gradient) | and Phi_A^T e | N m | to recentre the quadratic model of a Gaussian likelihood |
/// | [`local`](Self::local) | and Phi_A^T W Phi_A | N m^2 | at each Newton step on the weights |
/// | [`variance_drift`](Self::variance_drift) | derivatives of the posterior variances | N m^2 | for Newton's method on the Laplace fixed point |
/// | [`sweep`](Self::sweep) | diagonal and gradient of all functions, some Gram columns | N K | once per pass over the dictionary |
/// | [`among`](Self::among) | Gram matrix and gradient of a working set | N p^2 | once per working set |
/// | [`project`](Self::project) | gradient of a working set | N p | where its Gram matrix is known |
/// | [`bound`](Self::bound) | nothing; replaces the likelihood by a bound | N m^2 | by the variational scheme, at each step |
/// | [`remove_bound`](Self::remove_bound) | nothing; restores the likelihood | | at the end of that scheme |
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

    /// Writes the gradient of the active functions and, into the leading block of `gram`, their weighted Gram matrix; returns the deviance.
    ///
    /// The default asks [`Statistics::gradient`] and [`Statistics::among`].
    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let deviances = self.gradient(active, mu, gradient)?;
        let own = mirrored(self.among(active, mu, active)?.0);
        gram.view_mut((0, 0), own.shape()).copy_from(&own);
        Ok(deviances.iter().sum())
    }

    /// Writes the gradient of the active functions; returns the deviance.
    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>>;

    /// How posterior variances change as the mode moves from `mu`, through the working weights alone.
    ///
    /// With T = Phi_A Sigma and `skew` the derivative of a working weight in the linear predictor, it is the m x m matrix
    /// `sum_n skew_n T_nj^2 T_nk`. Where a row has several linear predictors, it is the negative third derivative of its log-likelihood,
    /// applied to `T_nj, T_nj, T_nk`. The default is zero, as for a Gaussian likelihood.
    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        debug_assert!(self.facts().is_linear);
        let _ = (mu, sigma);
        Ok(DMatrix::zeros(active.len(), active.len()))
    }

    /// One pass over the dictionary.
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// The Gram matrix of `js` (|js| x |js|), and the gradient of each. Elements above the diagonal have no meaning.
    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(DMatrix<f64>, Vec<f64>)>;

    /// The gradient of each of `js`.
    fn project(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<Vec<f64>> {
        Ok(self.among(active, mu, js)?.1)
    }

    /// Replaces the log-likelihood by a quadratic lower bound in all later calls: the bound that is tightest in expectation over weights
    /// with this mean and covariance (leading block of `sigma`). Its working weights are constant until the next call.
    ///
    /// The default does nothing for a Gaussian likelihood, which is its own bound, and returns [`Error::Invalid`] for others.
    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
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
