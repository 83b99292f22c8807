//! Where the numbers of the evidence loop come from.
//!
//! Sparse Bayesian learning sees data only through sums over rows. [`Statistics`] is that seam: everything a fit may
//! ask of the data, at two speeds. *Active-only* questions (the Gram matrix and gradient of the m functions in the
//! model) cost N m^2 and are asked at every Newton step. *Dictionary-wide* ones ([`Statistics::sweep`]) touch all K
//! candidates, cost N K and are asked once per pass.

pub(crate) mod low_rank;

mod centred;
mod class_index;
mod column_cache;
mod column_norms;
mod column_table;
mod dense_design;
mod design;
mod dictionary_part;
mod joined_design;
mod kernel_design;
mod multi_output;
mod observations;
mod provider;
mod provider_statistics;
mod quadratic_bound;
mod row_blocks;
mod row_major_design;
mod row_part;
mod row_subsample;
mod softmax_rows;
mod softmax_statistics;
mod softmax_sums;
mod subset;
mod sufficient_statistics;
mod sums;
mod targets;

pub use crate::data::centred::CentredProvider;
pub use crate::data::dense_design::DenseDesign;
pub use crate::data::design::{Block, Design, Family};
pub use crate::data::dictionary_part::DictionaryPart;
pub use crate::data::joined_design::JoinedDesign;
pub use crate::data::kernel_design::KernelDesign;
pub use crate::data::low_rank::bounds::{BoundSample, ScreeningBounds};
pub use crate::data::multi_output::{OutputObservations, OutputStatistics, Residuals};
pub use crate::data::observations::Observations;
pub use crate::data::provider::{CandidateProducts, RowProvider};
pub use crate::data::provider_statistics::ProviderStatistics;
pub use crate::data::row_major_design::RowMajorDesign;
pub use crate::data::row_part::RowPart;
pub use crate::data::softmax_statistics::SoftmaxStatistics;
pub(crate) use crate::data::subset::Subset;
pub use crate::data::sufficient_statistics::SufficientStatistics;
pub use crate::data::sums::SumStatistics;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nalgebra::DMatrix;

use crate::linalg::LowerTriangle;
use crate::{Error, Result};

/// [`Error::Interrupted`] once the caller has raised the flag.
pub(crate) fn check_flag(cancel: Option<&AtomicBool>) -> Result<()> {
    match cancel {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// What [`Statistics::lower_among`] says, with both triangles.
fn completed((gram, gradient): (LowerTriangle, Vec<f64>)) -> (DMatrix<f64>, Vec<f64>) {
    (gram.whole(), gradient)
}

/// What one pass over the dictionary brings back. All of it is taken at the `mu` of the question, in the units of
/// unit-norm columns; W is the diagonal of working weights there (for a Gaussian, the sample weights).
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// phi_i^T W phi_i for every i: length K. Zero marks a column that can never enter.
    pub diag: Vec<f64>,
    /// phi_i^T of the working residual for every i: length K.
    pub gradient: Vec<f64>,
    /// Phi^T W phi_j for each j asked for, in the order asked: each of length K.
    pub gram: Vec<Vec<f64>>,
    /// Minus twice the log-likelihood at `mu`; for a Gaussian the weighted residual sum of squares.
    pub deviance: f64,
}

/// Everything a fit may ask of the data. `mu` always belongs to the functions listed in `active`.
///
/// A provider takes mu, an m-vector, and never hands out anything of length N: one whose rows live on other machines
/// sends mu there and adds up what comes back. Columns are normalised to unit (sample-weighted) length behind the
/// seam, so that the loop has no units; [`Statistics::norms`] undoes it at the end.
pub trait Statistics {
    /// Sum of the sample weights; N without them.
    fn n_obs(&self) -> f64;

    /// K.
    fn n_basis(&self) -> usize;

    /// Linear predictors of a row, one unless there are several classes. The basis functions of the first come first, then
    /// the same ones of the second, and so on; K counts them all.
    fn n_predictors(&self) -> usize {
        1
    }

    /// Whether the working weights stay put when mu moves, as those of a Gaussian likelihood alone do.
    fn is_linear(&self) -> bool;

    /// Length of each original column; 0 for columns that can never enter.
    fn norms(&self) -> &[f64];

    /// What Gaussian targets were divided by, so that their spread is 1; 1 for the other likelihoods.
    fn target_scale(&self) -> f64;

    /// Raised when the caller asks for the end, for loops that ask nothing else for a while.
    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// The deviance alone: what a line search asks.
    ///
    /// # Errors
    /// Whatever the provider meets; [`Error::Interrupted`](crate::Error::Interrupted) when asked to end.
    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64>;

    /// Active-only: the m x m weighted Gram matrix (leading block of `gram`) and the gradient; returns the deviance.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64>;

    /// Active-only: from now on a quadratic lower bound stands for the log-likelihood in every answer, the one that is
    /// tightest in expectation over weights with this mean and covariance (leading block of `sigma`); its working weights
    /// stay put until the next call. A Gaussian likelihood is its own bound, and does nothing.
    ///
    /// # Errors
    /// As [`Statistics::deviance`]; [`Error::Invalid`] for a likelihood that has no such bound.
    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
        let _ = (active, mu, sigma);
        Err(quadratic_bound::no_bound())
    }

    /// Active-only gradient at `mu`, for the fixed weights of a Gaussian; returns the deviance.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Active-only, right after [`Statistics::local`] at the same `mu`: how the posterior variances answer to moves of
    /// the mode through the weights alone. With T = Phi_A Sigma it is the m x m matrix `sum_n skew_n T_nj^2 T_nk`; where
    /// a row has several linear predictors, the third derivative of its log-likelihood, negated, applied to
    /// `T_nj, T_nj, T_nk`.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>>;

    /// Dictionary-wide: one pass that brings the Gram columns of `wanted`, diagonal and gradient of all K.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// Shows `see` these statistics and those of one row in `share`, spread evenly over all of them, as if these were all
    /// there are. Not if that makes fewer than `least` rows, and a provider need not at all.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn on_fewer_rows(
        &mut self,
        share: usize,
        least: usize,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        let _ = (share, least, see);
        Ok(())
    }

    /// Shows `see` these statistics and others that are almost these, of a Gaussian likelihood, whose passes over the dictionary
    /// cost little. Not where there are none, and a provider need not at all.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn on_few_features(
        &mut self,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        let _ = see;
        Ok(())
    }

    /// The gradient of each of `js`, at the `mu` last asked about.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn project(&mut self, js: &[usize]) -> Result<Vec<f64>> {
        Ok(self.among(js)?.1)
    }

    /// The Gram matrix among `js` (|js| x |js|) and the gradient of each, at the `mu` last asked about.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)>;

    /// The same from the diagonal down.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn lower_among(&mut self, js: &[usize]) -> Result<(LowerTriangle, Vec<f64>)> {
        let (gram, gradient) = self.among(js)?;
        Ok((LowerTriangle::of(&gram), gradient))
    }

    /// [`Statistics::sweep`] to six digits or so, if that is less work: to see where to look, not to end on. Its parts are those of the
    /// likelihood of [`Statistics::nearly_among`].
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn nearly_sweep(
        &mut self,
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Option<Sweep>> {
        let _ = (active, mu, wanted);
        Ok(None)
    }

    /// [`Statistics::lower_among`] to six digits or so, if that is less work: to choose functions by, not to end on. Both parts of the
    /// answer are those of one likelihood close to that of the rows, of which a posterior never promises more than it has.
    ///
    /// # Errors
    /// As [`Statistics::deviance`].
    fn nearly_among(&mut self, js: &[usize]) -> Result<Option<(LowerTriangle, Vec<f64>)>> {
        let _ = js;
        Ok(None)
    }
}
