//! Several targets of one design: what a fit of all of them together may ask, and rows in memory that answer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::check_flag;
use crate::data::column_cache::{Columns, lengths, squared_length};
use crate::data::design::Design;
use crate::data::row_blocks::{ROW_BLOCK, Sums, over_blocks};
use crate::data::targets::{check_rows, spread};
use crate::linalg::column_combination::{add_combination, product};
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::column_dot;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// What the weights asked about leave of the targets.
#[derive(Debug, Clone, Default)]
pub struct Residuals {
    /// Phi^T W (t - Phi mu), a vector of length K for each output (or of length m, where only the active functions were asked
    /// about).
    pub projections: Vec<Vec<f64>>,
    /// The weighted residual sum of squares of each output.
    pub squares: Vec<f64>,
}

/// All that a fit of C Gaussian outputs may ask of the data: the counterpart of [`Statistics`](crate::Statistics).
///
/// `mu` is m x C and belongs to the functions listed in `active`. Columns have unit (sample-weighted) length and targets are
/// in one common unit: priors are shared, so scaling one output alone would change the model. Nothing here depends on the
/// noise. A provider may change its targets between two fits: the Gram columns stay what they were.
pub trait OutputStatistics {
    /// Sum of the sample weights; N without them.
    fn n_obs(&self) -> f64;

    /// K.
    fn n_basis(&self) -> usize;

    /// C.
    fn n_outputs(&self) -> usize;

    /// Length of each original column; 0 for columns that can never enter.
    fn norms(&self) -> &[f64];

    /// What all targets were divided by: the root of their mean variance.
    fn target_scale(&self) -> f64;

    /// Variance of each output in the unit of [`OutputStatistics::target_scale`]; never zero.
    fn variances(&self) -> &[f64];

    /// Raised when the caller asks for the end, for loops that ask nothing else for a while.
    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Phi^T W `phi_j` for each of `js`, each of length K: one pass over the dictionary.
    ///
    /// # Errors
    /// Whatever the provider meets; [`Error::Interrupted`] when asked to end.
    fn gram_columns(&mut self, js: &[usize]) -> Result<Vec<Vec<f64>>>;

    /// The residuals, projected on the whole dictionary: one pass over it.
    ///
    /// # Errors
    /// As [`OutputStatistics::gram_columns`].
    fn residuals(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Result<Residuals>;

    /// The residuals, projected on the active functions alone.
    ///
    /// # Errors
    /// As [`OutputStatistics::gram_columns`].
    fn active_residuals(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Result<Residuals>;
}

/// [`OutputStatistics`] of rows that this process can see.
pub struct OutputObservations<'a> {
    design: Box<dyn Design + Send + 'a>,
    /// N x C, column after column.
    targets: Vec<f64>,
    weights: Option<Vec<f64>>,
    n_obs: f64,
    norms: Vec<f64>,
    columns: Columns,
    target_scale: f64,
    variances: Vec<f64>,
    cancel: Option<Arc<AtomicBool>>,
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

    /// The same, where raising `cancel` ends the pass that measures the columns too.
    ///
    /// # Errors
    /// As [`OutputObservations::new`]; [`Error::Interrupted`] once `cancel` is raised.
    pub fn cancellable(
        design: impl Design + Send + 'a,
        targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Box::new(design), targets, n_outputs, weights, true)?;
        this.cancel = cancel;
        this.measure()?;
        Ok(this)
    }

    /// The same without a unit of their own: targets stay as they are given, now and by
    /// [`OutputObservations::set_targets`].
    ///
    /// # Errors
    /// As [`OutputObservations::new`].
    pub fn unscaled(
        design: impl Design + Send + 'a,
        targets: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Box::new(design), targets, n_outputs, weights, false)?;
        this.measure()?;
        Ok(this)
    }

    /// With no lengths of columns.
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
        let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
        let (target_scale, variances) = if scaled {
            common_unit(targets.chunks_exact(n), weight)
        } else {
            (1.0, vec![1.0; n_outputs])
        };
        for t in &mut targets {
            *t /= target_scale;
        }
        Ok(Self {
            design,
            n_obs: (0..n).map(weight).sum(),
            targets,
            weights,
            norms: Vec::new(),
            columns: Columns::default(),
            target_scale,
            variances,
            cancel: None,
        })
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.set_cancel(flag);
        self
    }

    /// The same for a provider already in use.
    pub fn set_cancel(&mut self, flag: Arc<AtomicBool>) {
        self.cancel = Some(flag);
    }

    /// Other targets for the same design (N x C, column after column), in the unit of the first.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::NonFinite`].
    pub fn set_targets(&mut self, mut targets: Vec<f64>) -> Result<()> {
        Error::check_len("targets", self.targets.len(), targets.len())?;
        Error::check_finite("targets", &targets)?;
        for t in &mut targets {
            *t /= self.target_scale;
        }
        self.targets = targets;
        Ok(())
    }

    /// The sample weights, if there are any.
    pub(crate) fn row_weights(&self) -> Option<&[f64]> {
        self.weights.as_deref()
    }

    /// The unit-norm columns of functions that are active or about to be, N x |js|.
    pub(crate) fn active_columns(&mut self, js: &[usize]) -> Vec<f64> {
        let mut columns = Vec::new();
        self.columns
            .gather(&*self.design, &self.norms, js, &mut columns);
        columns
    }

    /// Phi mu at every row, N x C column after column, in the unit of the targets.
    pub fn predictions(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Vec<f64> {
        let n = self.n_rows();
        let columns = self.active_columns(active);
        let columns = TallMatrix::new(&columns, n, active.len());
        product(columns, mu.as_slice(), n, self.n_outputs())
    }

    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    fn check_cancel(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    /// One pass for the length of each column.
    fn measure(&mut self) -> Result<()> {
        let check = || self.check_cancel();
        let sums = over_blocks(&*self.design, 0, check, |block, squares, _| {
            let rows = block.rows.clone();
            for (c, square) in squares.iter_mut().enumerate() {
                let column = block.values.column(c, rows.len());
                let weights = self.weights.as_ref().map(|w| &w[rows.clone()]);
                *square += squared_length(column, weights);
            }
        })?;
        self.norms = lengths(&sums.diag)?;
        Ok(())
    }

    /// Phi^T times each of the `right` vectors of length N, for unit-norm columns.
    fn project(&self, right: &[f64], count: usize) -> Result<Vec<Vec<f64>>> {
        let n = self.n_rows();
        let Sums { mut products, .. } = over_blocks(
            &*self.design,
            count,
            || self.check_cancel(),
            |block, diag, products| {
                let rows = &block.rows;
                let values = TallMatrix::new(block.values.data, block.values.stride, diag.len());
                let right = TallMatrix::new(&right[rows.start..], n, count);
                add_transpose_product(values, right, rows.len(), products, diag.len());
            },
        )?;
        for product in &mut products {
            for (v, &norm) in product.iter_mut().zip(&self.norms) {
                *v = if norm > 0.0 { *v / norm } else { 0.0 };
            }
        }
        Ok(products)
    }

    /// Residuals times the sample weights, N x C, and their weighted squares; `columns` are the active ones.
    fn weighted_residuals(&self, columns: &[f64], mu: &DMatrix<f64>) -> (Vec<f64>, Vec<f64>) {
        let n = self.n_rows();
        let columns = TallMatrix::new(columns, n, mu.nrows());
        let mut residuals = self.targets.clone();
        let mut squares = Vec::with_capacity(self.n_outputs());
        for (c, residual) in residuals.chunks_exact_mut(n).enumerate() {
            let parts = map_pieces(n, ROW_BLOCK, |rows| {
                let mut part = residual[rows.clone()].to_vec();
                let weights: Vec<f64> = mu.column(c).iter().map(|w| -w).collect();
                add_combination(&columns.columns(&rows), &weights, &mut part);
                let weights = self.weights.as_ref().map(|w| &w[rows]);
                let square = squared_length(&part, weights);
                if let Some(w) = weights {
                    part.iter_mut().zip(w).for_each(|(r, w)| *r *= w);
                }
                (part, square)
            });
            squares.push(parts.iter().map(|part| part.1).sum());
            let mut start = 0;
            for (part, _) in parts {
                residual[start..start + part.len()].copy_from_slice(&part);
                start += part.len();
            }
        }
        (residuals, squares)
    }
}

/// The root mean variance of the outputs that are not zero throughout, and each output's variance in that unit.
fn common_unit<'t>(
    targets: impl Iterator<Item = &'t [f64]>,
    weight: impl Fn(usize) -> f64,
) -> (f64, Vec<f64>) {
    let spreads: Vec<f64> = targets
        .map(|target| {
            if target.iter().all(|&t| t == 0.0) {
                0.0
            } else {
                spread(target, &weight)
            }
        })
        .collect();
    let largest = spreads.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return (1.0, vec![1.0; spreads.len()]);
    }
    let count = spreads.iter().filter(|&&s| s > 0.0).count();
    // Divided by the largest first, so that no square over- or underflows.
    let mean = spreads.iter().map(|s| (s / largest).powi(2)).sum::<f64>() / count as f64;
    let scale = largest * mean.sqrt();
    let variance = |&s: &f64| if s > 0.0 { (s / scale).powi(2) } else { 1.0 };
    (scale, spreads.iter().map(variance).collect())
}

impl OutputStatistics for OutputObservations<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn n_outputs(&self) -> usize {
        self.variances.len()
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn variances(&self) -> &[f64] {
        &self.variances
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
    }

    fn gram_columns(&mut self, js: &[usize]) -> Result<Vec<Vec<f64>>> {
        let mut columns = self.active_columns(js);
        if let Some(w) = &self.weights {
            for column in columns.chunks_exact_mut(w.len()) {
                column.iter_mut().zip(w).for_each(|(v, w)| *v *= w);
            }
        }
        self.project(&columns, js.len())
    }

    fn residuals(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Result<Residuals> {
        self.check_cancel()?;
        let columns = self.active_columns(active);
        let (residuals, squares) = self.weighted_residuals(&columns, mu);
        let projections = self.project(&residuals, self.n_outputs())?;
        Ok(Residuals {
            projections,
            squares,
        })
    }

    fn active_residuals(&mut self, active: &[usize], mu: &DMatrix<f64>) -> Result<Residuals> {
        self.check_cancel()?;
        let n = self.n_rows();
        let columns = self.active_columns(active);
        let (residuals, squares) = self.weighted_residuals(&columns, mu);
        let onto_active = |residual: &[f64]| -> Vec<f64> {
            let columns = columns.chunks_exact(n);
            columns.map(|column| column_dot(column, residual)).collect()
        };
        Ok(Residuals {
            projections: residuals.chunks_exact(n).map(onto_active).collect(),
            squares,
        })
    }
}
