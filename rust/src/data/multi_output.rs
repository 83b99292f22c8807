//! Rows in memory with several targets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::Facts;
use crate::data::column_cache::{
    ActiveColumns, add_squares, divide_by_norms, lengths, squared_length,
};
use crate::data::design::Design;
use crate::data::row_blocks::{ROW_BLOCK, over_blocks};
use crate::data::targets::{check_rows, target_scale, total_weight};
use crate::linalg::column_combination::{add_combination, product};
use crate::linalg::gemm::TallMatrix;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// The residuals t - Phi mu of all outputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Residuals {
    /// Phi^T W (t - Phi mu), a vector for each output: of length K, or of length m for the active functions only.
    pub(crate) projections: Vec<Vec<f64>>,
    /// The weighted residual sum of squares of each output.
    pub(crate) squares: Vec<f64>,
}

/// Rows in memory with C Gaussian outputs: the counterpart of [`Observations`](crate::Observations).
///
/// A fit passes weights `mu`, m x C, of the functions listed in `active`. Columns have unit (sample-weighted) length, and targets have
/// one common unit: priors are shared, so scaling a single output would change the model. No result depends on the
/// noise. The targets may change between two fits; the Gram columns do not depend on them.
pub struct OutputObservations<'a> {
    design: Box<dyn Design + Send + 'a>,
    /// N x C, column after column.
    targets: Vec<f64>,
    weights: Option<Vec<f64>>,
    /// The unit of the targets is the root of their mean variance.
    facts: Facts,
    columns: ActiveColumns,
    /// Variance of each output in the unit of the targets; never zero.
    variances: Vec<f64>,
}

impl<'a> OutputObservations<'a> {
    /// Joins a design with its `n_outputs` targets (N x C, column after column) and optional sample weights.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`]; the last also when a basis function overflows.
    pub fn new(
        design: impl Design + Send + 'a,
        targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        Self::cancellable(design, targets, n_outputs, weights, None)
    }

    /// [`OutputObservations::new`]; it and every later call return [`Error::Interrupted`] once `cancel` is raised.
    ///
    /// # Errors
    /// As [`OutputObservations::new`].
    pub fn cancellable(
        design: impl Design + Send + 'a,
        targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Box::new(design), targets, n_outputs, weights, true)?;
        this.facts.cancel = cancel;
        this.measure()
    }

    /// [`OutputObservations::new`] with targets in the unit given, now and after [`OutputObservations::set_targets`].
    ///
    /// # Errors
    /// As [`OutputObservations::new`].
    pub fn unscaled(
        design: impl Design + Send + 'a,
        targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        Self::unmeasured(Box::new(design), targets, n_outputs, weights, false)?.measure()
    }

    fn unmeasured(
        design: Box<dyn Design + Send + 'a>,
        mut targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
        scaled: bool,
    ) -> Result<Self> {
        let n = design.n_rows();
        if n_outputs == 0 {
            let what = "y has no columns; at least one output is needed".into();
            return Err(Error::Invalid { what });
        }
        if n == 0 {
            check_rows(n, &[], None)?;
        }
        Error::check_len("y", n * n_outputs, targets.len())?;
        for target in targets.chunks_exact(n) {
            check_rows(n, target, weights.as_deref())?;
        }
        let (mut scale, mut variances) = (1.0, vec![1.0; n_outputs]);
        if scaled {
            let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
            (scale, variances) = common_scale(targets.chunks_exact(n), weight);
            for t in &mut targets {
                *t /= scale;
            }
        }
        Ok(Self {
            facts: Facts {
                n_obs: total_weight(n, weights.as_deref()),
                n_predictors: 1,
                is_linear: true,
                norms: Vec::new(),
                target_scale: scale,
                cancel: None,
            },
            design,
            targets,
            weights,
            columns: ActiveColumns::default(),
            variances,
        })
    }

    /// One pass for the length of each column.
    fn measure(mut self) -> Result<Self> {
        let weights = self.weights.as_deref();
        let check = || self.facts.check_cancelled();
        let sums = over_blocks(&*self.design, 0, check, |block, squares, _| {
            add_squares(block, weights, squares);
        })?;
        self.facts.norms = lengths(&sums.diag)?;
        Ok(self)
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.set_cancel(flag);
        self
    }

    /// [`OutputObservations::cancelled_by`] for a provider already in use.
    pub fn set_cancel(&mut self, flag: Arc<AtomicBool>) {
        self.facts.cancel = Some(flag);
    }

    /// Replaces the targets (N x C, column after column), in the unit of the first targets.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::NonFinite`].
    pub fn set_targets(&mut self, mut targets: Vec<f64>) -> Result<()> {
        Error::check_len("targets", self.targets.len(), targets.len())?;
        Error::check_finite("targets", &targets)?;
        for t in &mut targets {
            *t /= self.facts.target_scale;
        }
        self.targets = targets;
        Ok(())
    }

    /// The properties of the data, which never change.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// C.
    pub(crate) fn n_outputs(&self) -> usize {
        self.variances.len()
    }

    /// Variance of each output in the unit of the targets; never zero.
    pub(crate) fn variances(&self) -> &[f64] {
        &self.variances
    }

    /// The sample weights, if there are any.
    pub(crate) fn row_weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    fn activate(&mut self, active: &[usize]) {
        self.columns
            .set_active(&*self.design, &self.facts.norms, active);
    }

    /// The unit-norm columns of the active functions, N x m.
    pub(crate) fn active_columns(&mut self, active: &[usize]) -> Vec<f64> {
        self.activate(active);
        self.columns.at(&(0..self.n_rows())).concat()
    }

    /// Phi mu at every row, N x C column after column, in the unit of the targets.
    pub fn predictions(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Vec<f64> {
        let n = self.n_rows();
        self.activate(active);
        let columns = self.columns.at(&(0..n));
        product(
            TallMatrix::listed(&columns),
            mu.as_slice(),
            n,
            self.n_outputs(),
        )
    }

    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    /// Phi^T times each of the `right` vectors of length N, for unit-norm columns.
    fn project(&self, right: &[f64], count: usize) -> Result<Vec<Vec<f64>>> {
        let (n, check) = (self.n_rows(), || self.facts.check_cancelled());
        let sums = over_blocks(&*self.design, count, check, |block, diag, products| {
            let right = TallMatrix::new(&right[block.rows.start..], n, count);
            block.add_products(right, products, diag.len());
        })?;
        let mut products = sums.products;
        for product in &mut products {
            divide_by_norms(product, &self.facts.norms);
        }
        Ok(products)
    }

    /// Residuals times the sample weights, N x C, and their weighted squares.
    fn weighted_residuals(
        &mut self,
        active: &[usize],
        mu: &DMatrix<f64>,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        self.facts.check_cancelled()?;
        self.activate(active);
        let n = self.n_rows();
        let mut residuals = self.targets.clone();
        let mut squares = Vec::with_capacity(self.n_outputs());
        for (c, residual) in residuals.chunks_exact_mut(n).enumerate() {
            let minus_mu: Vec<f64> = mu.column(c).iter().map(|w| -w).collect();
            let parts = map_pieces(n, ROW_BLOCK, |rows| {
                let mut part = residual[rows.clone()].to_vec();
                add_combination(&self.columns.at(&rows), &minus_mu, &mut part);
                let weights = self.weights.as_ref().map(|w| &w[rows]);
                let square = squared_length(&part, weights);
                if let Some(w) = weights {
                    part.iter_mut().zip(w).for_each(|(r, w)| *r *= w);
                }
                (part, square)
            });
            squares.push(parts.iter().map(|part| part.1).sum());
            for (piece, (part, _)) in residual.chunks_mut(ROW_BLOCK).zip(parts) {
                piece.copy_from_slice(&part);
            }
        }
        Ok((residuals, squares))
    }

    /// Phi^T W `phi_j` for each of `js`, each of length K: one pass over the dictionary.
    pub(crate) fn gram_columns(&mut self, js: &[usize]) -> Result<Vec<Vec<f64>>> {
        let columns = self.columns.columns(&*self.design, &self.facts.norms, js);
        let mut columns = columns.concat();
        if let Some(w) = &self.weights {
            for column in columns.chunks_exact_mut(w.len()) {
                column.iter_mut().zip(w).for_each(|(v, w)| *v *= w);
            }
        }
        self.project(&columns, js.len())
    }

    /// The residuals, projected on the whole dictionary: one pass over it.
    pub(crate) fn residuals(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Result<Residuals> {
        let (residuals, squares) = self.weighted_residuals(active, mu)?;
        let projections = self.project(&residuals, self.n_outputs())?;
        Ok(Residuals {
            projections,
            squares,
        })
    }

    /// The residuals, projected on the active functions only.
    pub(crate) fn active_residuals(
        &mut self,
        active: &[usize],
        mu: &DMatrix<f64>,
    ) -> Result<Residuals> {
        let (residuals, squares) = self.weighted_residuals(active, mu)?;
        let project = |residual: &[f64]| {
            let mut projection = vec![0.0; active.len()];
            self.columns.products(residual, &mut projection);
            projection
        };
        Ok(Residuals {
            projections: residuals.chunks_exact(self.n_rows()).map(project).collect(),
            squares,
        })
    }
}

/// The root mean variance of the outputs that are not zero everywhere, and the variance of each output in that unit.
fn common_scale<'t>(
    targets: impl Iterator<Item = &'t [f64]>,
    weight: impl Fn(usize) -> f64,
) -> (f64, Vec<f64>) {
    let scale_or_zero = |target: &[f64]| {
        let zero = target.iter().all(|&t| t == 0.0);
        if zero {
            0.0
        } else {
            target_scale(target, &weight)
        }
    };
    let scales: Vec<f64> = targets.map(scale_or_zero).collect();
    let largest = scales.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return (1.0, vec![1.0; scales.len()]);
    }
    let count = scales.iter().filter(|&&s| s > 0.0).count();
    // Divided by the largest first, so that no square over- or underflows.
    let mean = scales.iter().map(|s| (s / largest).powi(2)).sum::<f64>() / count as f64;
    let scale = largest * mean.sqrt();
    let variance = |&s: &f64| if s > 0.0 { (s / scale).powi(2) } else { 1.0 };
    (scale, scales.iter().map(variance).collect())
}
