//! Rows in memory with several targets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::{
    ActiveColumns, add_squares, columns_into_strips, lengths, squared_length, unit_columns,
};
use crate::data::design::Design;
use crate::data::observations::GRAM_ROWS;
use crate::data::row_blocks::{ROW_BLOCK, over_blocks};
use crate::data::targets::{check_rows, target_scale, total_weight};
use crate::data::{Facts, Statistics, Sweep};
use crate::linalg::LowerTriangle;
use crate::linalg::column_combination::{add_combination, product};
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product};
use crate::linalg::vector::column_dot;
use crate::parallel::{map_pieces, pieces};
use crate::{Error, Result};

/// [`Statistics`] of C Gaussian outputs, from rows in memory.
///
/// Targets have one common unit: priors are shared, so scaling a single output would change the model. The targets may be replaced
/// between two fits; Gram matrices do not depend on them.
pub struct OutputObservations<'a> {
    design: Box<dyn Design + Send + 'a>,
    /// N x C, column after column.
    targets: Vec<f64>,
    /// Residuals at the latest `mu` times the sample weights, N x C.
    residuals: Vec<f64>,
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
            residuals: targets.clone(),
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
    pub fn predictions(&mut self, active: &[usize], mu: &[f64]) -> Vec<f64> {
        let n = self.n_rows();
        self.activate(active);
        let columns = self.columns.at(&(0..n));
        product(TallMatrix::listed(&columns), mu, n, self.n_outputs())
    }

    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    /// Variance of each output in the unit of [`Facts::target_scale`]; never zero.
    pub(crate) fn variances(&self) -> &[f64] {
        &self.variances
    }

    fn n_outputs(&self) -> usize {
        self.variances.len()
    }

    /// Computes the residuals at these weights; returns their weighted squares.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<Vec<f64>> {
        self.facts.check_cancelled()?;
        self.activate(active);
        let (n, m) = (self.n_rows(), active.len());
        self.residuals.clone_from(&self.targets);
        let mut squares = Vec::with_capacity(self.n_outputs());
        for (c, residual) in self.residuals.chunks_exact_mut(n).enumerate() {
            let minus_mu: Vec<f64> = mu[c * m..][..m].iter().map(|w| -w).collect();
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
        Ok(squares)
    }

    /// Multiplies columns of N rows by the sample weights.
    fn weigh(&self, columns: &mut [f64], rows: &std::ops::Range<usize>) {
        if let Some(w) = &self.weights {
            for column in columns.chunks_exact_mut(rows.len()) {
                let weights = &w[rows.clone()];
                column.iter_mut().zip(weights).for_each(|(v, w)| *v *= w);
            }
        }
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

impl Statistics for OutputObservations<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        Ok(self.move_to(active, mu)?.iter().sum())
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let deviances = self.move_to(active, mu)?;
        let n = self.n_rows();
        for (c, residual) in self.residuals.chunks_exact(n).enumerate() {
            let own = &mut gradient[c * active.len()..][..active.len()];
            self.columns.products(residual, own);
        }
        Ok(deviances)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let deviances = self.move_to(active, mu)?;
        let (n, check) = (self.n_rows(), || self.facts.check_cancelled());
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, wanted);
        let mut right = columns.concat();
        self.weigh(&mut right, &(0..n));
        right.extend_from_slice(&self.residuals);
        let count = wanted.len() + deviances.len();
        let sums = over_blocks(&*self.design, count, check, |block, diag, products| {
            let right = TallMatrix::new(&right[block.rows.start..], n, count);
            block.add_products(right, products, diag.len());
        })?;
        Ok(unit_columns(sums, &self.facts.norms, true, deviances))
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        self.move_to(active, mu)?;
        let (n, m) = (self.n_rows(), js.len());
        let mut gram = LowerTriangle::zeros(m);
        let (mut strips, mut gradient) = (Vec::new(), vec![0.0; m * self.n_outputs()]);
        for rows in pieces(n, GRAM_ROWS) {
            self.facts.check_cancelled()?;
            let columns =
                columns_into_strips(&*self.design, &self.facts.norms, js, &rows, &mut strips);
            gram.add(m * m * rows.len(), |strip, out| {
                let height = m - strip.start;
                let below = TallMatrix::listed(&columns[strip.start..]);
                let mut weighted;
                let right = if self.weights.is_none() {
                    TallMatrix::listed(&columns[strip])
                } else {
                    weighted = columns[strip].concat();
                    self.weigh(&mut weighted, &rows);
                    TallMatrix::new(&weighted, rows.len(), weighted.len() / rows.len())
                };
                add_lower_transpose_product(below, right, rows.len(), out, height);
            });
            for (gradient, residual) in gradient
                .chunks_exact_mut(m.max(1))
                .zip(self.residuals.chunks_exact(n))
            {
                for (g, column) in gradient.iter_mut().zip(&columns) {
                    *g += column_dot(column, &residual[rows.clone()]);
                }
            }
        }
        Ok((gram, gradient))
    }
}
