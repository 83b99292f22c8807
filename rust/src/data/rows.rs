//! [`Statistics`] of rows in memory: a design, targets and a likelihood.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DVector;

use crate::data::column_cache::{
    ActiveColumns, add_squares, add_weighted_gram, column_into, columns_into_strips, lengths,
    unit_columns,
};
use crate::data::column_cache::{GRAM_ROWS, ROW_BLOCK, Sums, over_blocks, sum_over_rows};
use crate::data::design::{DenseDesign, Design};
use crate::data::low_rank::bounds::FamilyBasis;
use crate::data::low_rank::features::{EXACT_COLUMN, LowRankFeatures, LowRankPolicy};
use crate::data::low_rank::statistics::LowRankStatistics;
use crate::data::row_subsample::RowSubsample;
use crate::data::targets::{check_rows, common_scale, total_weight};
use crate::data::{Facts, GramAndGradient, Statistics, Sweep, no_bound};
use crate::likelihood::WorkingRows;
use crate::linalg::Matrix;
use crate::linalg::columns::Table;
use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::gemm::{TallMatrix, add_combination, add_transpose_product, product};
use crate::linalg::vector::{axpy, column_dot, mirrored, multiply_into};
use crate::parallel::{fill_pieces_of, map_pieces, pieces};
use crate::{Error, Likelihood, Result};

/// Lazy designs of at most so many values are stored: a fit makes about four passes over them.
const MAX_STORED: usize = 3 << 19;

/// [`Statistics`] of rows in memory, with one output, or several Gaussian ones that share the design and the sample weights.
///
/// The targets of several outputs have one common unit: priors are shared, so scaling a single output would change the model. Gaussian
/// targets may be replaced between two fits; Gram matrices do not depend on them.
///
/// Invariant: `working` and `residual` hold the working weights and residuals, times the sample weights, at the `mu` of
/// `evaluation`.
pub struct Observations<'a> {
    pub(crate) design: Arc<dyn Design + Send + 'a>,
    pub(crate) likelihood: Likelihood,
    /// N x C, column after column; C = 1 unless the likelihood is Gaussian.
    pub(crate) target: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    /// Added to the linear predictor of each row.
    offset: Option<Vec<f64>>,
    /// The unit of Gaussian targets is the root of their mean variance.
    pub(crate) facts: Facts,
    /// Variance of each output in the unit of the targets; never zero.
    pub(crate) variances: Vec<f64>,
    pub(crate) columns: ActiveColumns,
    pub(crate) working: Vec<f64>,
    /// N x C.
    pub(crate) residual: Vec<f64>,
    skew: Vec<f64>,
    evaluation: Option<Evaluation>,
    constant_deviance: f64,
    /// Whether columns divided by their norms have lengths other than 1, because the norms are approximate or all 1.
    pub(crate) inexact_norms: bool,
    /// For each row, the linear predictor at which the bound that replaces the log-likelihood is tangent to it.
    xi: Option<Vec<f64>>,
    /// The pass at mu = 0, made together with the norms.
    start: Option<Sweep>,
    /// The Newton basis of each family of the design, for screening bounds.
    pub(crate) bases: Vec<FamilyBasis>,
    /// Features that represent the design to rounding, if their number is small.
    factor: Option<WeightedFeatures>,
    /// Approximate statistics in a few features, for a Gaussian likelihood, if the dictionary has them.
    pub(crate) low_rank: Option<LowRankStatistics>,
}

/// Weights of some functions, and the deviance of each output there.
struct Evaluation {
    active: Vec<usize>,
    mu: Vec<f64>,
    deviances: Vec<f64>,
}

/// Low-rank features F, and F^T W F for the present working weights once it has been computed.
struct WeightedFeatures {
    features: LowRankFeatures,
    gram: Option<Table>,
}

impl WeightedFeatures {
    /// The sums of a pass over the dictionary; `wanted` are the Gram columns asked for, and the norms of all columns.
    fn sums(&mut self, working: &[f64], residual: &[f64], wanted: (&[usize], &[f64])) -> Sums {
        let right = self.features.project(residual);
        let gram = self.gram.get_or_insert_with(|| self.features.gram(working));
        self.features.sums(gram, &right, wanted, true)
    }
}

impl<'a> Observations<'a> {
    /// Joins a design with its targets and optional sample weights.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] for input outside the likelihood's domain;
    /// [`Error::NonFinite`] also when a basis function overflows.
    pub fn new(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        Self::cancellable(design, likelihood, target, weights, None)
    }

    /// [`Observations::new`]; it and every later call return [`Error::Interrupted`] once `cancel` is raised.
    ///
    /// # Errors
    /// As [`Observations::new`].
    pub fn cancellable(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        Self::with_offset(design, likelihood, target, weights, None, cancel)
    }

    /// [`Observations::cancellable`] with numbers added to the linear predictors, such as log exposures of counts.
    ///
    /// # Errors
    /// As [`Observations::new`].
    pub fn with_offset(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
        offset: Option<Vec<f64>>,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        if let Some(offset) = &offset {
            Error::check_len("offset", target.len(), offset.len())?;
            Error::check_finite("offset", offset)?;
            if likelihood.is_linear() {
                let what = "offset must be None for a Gaussian likelihood; subtract it from y";
                return Err(Error::Invalid { what: what.into() });
            }
        }
        let mut this = Self::unmeasured(Arc::new(design), likelihood, target, 1, weights, true)?;
        this.offset = offset;
        this.measured(cancel)
    }

    /// [`Observations::cancellable`] with `n_outputs` Gaussian targets (N x C, column after column).
    ///
    /// # Errors
    /// As [`Observations::new`].
    pub fn outputs(
        design: impl Design + Send + 'a,
        values: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        let (design, likelihood) = (Arc::new(design), Likelihood::Gaussian);
        Self::unmeasured(design, likelihood, values, n_outputs, weights, true)?.measured(cancel)
    }

    /// [`Observations::outputs`] with targets in the unit given, now and after [`Observations::set_targets`].
    ///
    /// # Errors
    /// As [`Observations::new`].
    pub fn unscaled_outputs(
        design: impl Design + Send + 'a,
        values: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        if design.n_rows() == 0 {
            check_rows(0, &[], None)?;
        }
        let (design, likelihood) = (Arc::new(design), Likelihood::Gaussian);
        Self::unmeasured(design, likelihood, values, n_outputs, weights, false)?.measured(None)
    }

    /// [`Observations::new`] without the lengths of columns, for the methods about parts of the dictionary only (`data/part.rs`).
    ///
    /// # Errors
    /// As [`Observations::new`], except that the columns are not checked.
    pub fn in_part(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Arc::new(design), likelihood, target, 1, weights, true)?;
        this.facts
            .norms
            .try_reserve_exact(design.n_basis())
            .map_err(|_| Error::no_memory_for("a number for each function", design.n_basis()))?;
        this.facts.norms.resize(design.n_basis(), f64::NAN);
        Ok(this)
    }

    /// Rows whose columns and targets keep the units given; there may be no rows.
    pub(crate) fn unscaled(
        design: Box<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Arc::from(design), likelihood, target, 1, weights, false)?;
        this.facts.norms = vec![1.0; this.design.n_basis()];
        this.inexact_norms = true;
        Ok(this)
    }

    /// Rows whose columns have no lengths yet. Gaussian targets are divided by their common unit if `scaled`.
    fn unmeasured(
        design: Arc<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        mut target: Vec<f64>,
        n_outputs: usize,
        weights: Option<Vec<f64>>,
        scaled: bool,
    ) -> Result<Self> {
        let n = design.n_rows();
        if n_outputs == 0 {
            let what = "y has no columns; at least one output is needed".into();
            return Err(Error::Invalid { what });
        }
        if scaled && n == 0 {
            check_rows(n, &[], None)?;
        }
        Error::check_len("y", n * n_outputs, target.len())?;
        for target in target.chunks_exact(n.max(1)) {
            check_rows(n, target, weights.as_deref())?;
        }
        let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
        let (mut scale, mut variances) = (1.0, vec![1.0; n_outputs]);
        if scaled && likelihood.is_linear() {
            (scale, variances) = common_scale(target.chunks_exact(n), weight);
            for t in &mut target {
                *t /= scale;
            }
        }
        likelihood.check_targets(&target)?;
        let constant = |row| weight(row) * likelihood.constant_deviance(target[row]);
        Ok(Self {
            facts: Facts {
                n_obs: total_weight(n, weights.as_deref()),
                n_predictors: 1,
                is_linear: likelihood.is_linear(),
                norms: Vec::new(),
                target_scale: scale,
                cancel: None,
            },
            variances,
            constant_deviance: (0..n).map(constant).sum(),
            design,
            likelihood,
            weights,
            offset: None,
            columns: ActiveColumns::default(),
            working: vec![1.0; n],
            residual: target.clone(),
            skew: vec![0.0; n],
            evaluation: None,
            inexact_norms: false,
            xi: None,
            start: None,
            bases: Vec::new(),
            factor: None,
            low_rank: None,
            target,
        })
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.set_cancel(flag);
        self
    }

    /// [`Observations::cancelled_by`] for rows already in use.
    pub fn set_cancel(&mut self, flag: Arc<AtomicBool>) {
        self.facts.cancel = Some(flag);
    }

    /// Replaces Gaussian targets (N x C, column after column), in the unit of the first targets.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::NonFinite`].
    pub fn set_targets(&mut self, mut targets: Vec<f64>) -> Result<()> {
        Error::check_len("targets", self.target.len(), targets.len())?;
        Error::check_finite("targets", &targets)?;
        for t in &mut targets {
            *t /= self.facts.target_scale;
        }
        self.target = targets;
        (self.evaluation, self.start, self.low_rank) = (None, None, None);
        Ok(())
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
        product(TallMatrix::listed(&columns), mu, n, self.variances.len())
    }

    /// One row in `share`, evenly distributed over all rows; `None` if this makes fewer than `least` rows.
    pub(crate) fn subsample(&self, share: usize, least: usize) -> Result<Option<Observations<'a>>> {
        let Some(sample) = RowSubsample::of(Arc::clone(&self.design), share, least) else {
            return Ok(None);
        };
        let targets = self.target.chunks_exact(self.n_rows());
        let target = targets.flat_map(|t| sample.pick(t)).collect();
        let weights = self.weights.as_ref().map(|w| sample.pick(w));
        let n_outputs = self.variances.len();
        let design = Arc::new(sample);
        let part = Self::unmeasured(design, self.likelihood, target, n_outputs, weights, true)?;
        Ok(Some(part.measured(self.facts.cancel.clone())?))
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.working.len()
    }

    /// The working residuals of output `c`.
    fn residual_of(&self, c: usize) -> &[f64] {
        &self.residual[c * self.n_rows()..][..self.n_rows()]
    }

    /// Evaluates the columns of the active functions.
    fn activate(&mut self, active: &[usize]) {
        self.columns
            .set_active(&*self.design, &self.facts.norms, active);
    }

    /// Evaluates `working` and `residual` at `mu`, unless they belong to it already, and returns the deviance of each output.
    pub(crate) fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<Vec<f64>> {
        self.facts.check_cancelled()?;
        self.activate(active);
        if let Some(last) = &self.evaluation
            && (&last.active[..], &last.mu[..]) == (active, mu)
        {
            return Ok(last.deviances.clone());
        }
        if let Some(features) = &mut self.factor {
            features.gram = None;
        }
        let (n, m) = (self.n_rows(), active.len());
        let mut deviances = Vec::with_capacity(self.variances.len());
        let (mut working, mut skew, mut residual) = (Vec::new(), Vec::new(), Vec::new());
        for c in 0..self.variances.len() {
            let pieces = map_pieces(n, ROW_BLOCK, |rows| {
                let offset = self.offset.as_ref();
                let mut eta =
                    offset.map_or_else(|| vec![0.0; rows.len()], |o| o[rows.clone()].to_vec());
                add_combination(&self.columns.at(&rows), &mu[c * m..][..m], &mut eta);
                let mut here = self.working_at(c, &rows, &eta);
                if let Some(weights) = &self.weights {
                    here.weigh(&weights[rows]);
                }
                here
            });
            let mut deviance = self.constant_deviance;
            for piece in pieces {
                deviance += piece.deviance.iter().sum::<f64>();
                residual.extend(piece.residual);
                // Working weights are the same for all outputs.
                if c == 0 {
                    working.extend(piece.weight);
                    skew.extend(piece.skew);
                }
            }
            deviances.push(deviance);
        }
        (self.working, self.residual, self.skew) = (working, residual, skew);
        self.evaluation = Some(Evaluation {
            active: active.to_vec(),
            mu: mu.to_vec(),
            deviances: deviances.clone(),
        });
        Ok(deviances)
    }

    /// Working weights, residuals and deviances of some rows of output `c`, or those of the bound that replaces the log-likelihood.
    fn working_at(&self, c: usize, rows: &Range<usize>, eta: &[f64]) -> WorkingRows {
        let targets = &self.target[c * self.n_rows()..][rows.clone()];
        let mut here = self.likelihood.working_rows(eta, targets);
        if let Some(xi) = &self.xi {
            for (k, xi) in xi[rows.clone()].iter().enumerate() {
                if let Some(bounded) = self.likelihood.bounded(*xi, eta[k], targets[k]) {
                    here.set(k, bounded);
                }
            }
        }
        here
    }

    /// Some rows of W times the columns, followed by those of the residual of each output, a [`stride`] apart.
    pub(crate) fn right(&self, columns: &[Cow<'_, [f64]>], rows: &Range<usize>) -> AlignedColumns {
        let (working, stride) = (&self.working[rows.clone()], stride(rows.len()));
        let n_outputs = self.variances.len();
        let mut right = AlignedColumns::with_room((columns.len() + n_outputs) * stride);
        for column in columns {
            multiply_into(&column[rows.clone()], working, right.grow(stride));
        }
        for c in 0..n_outputs {
            let residual = &self.residual_of(c)[rows.clone()];
            right.grow(stride)[..rows.len()].copy_from_slice(residual);
        }
        right
    }

    /// Adds the contribution of some rows to the lower triangle of Phi^T W Phi; `columns` hold these rows only.
    fn add_gram(&self, columns: &[&[f64]], rows: &Range<usize>, out: &mut [f64]) {
        let are_ones = self.weights.is_none() && self.likelihood.is_linear();
        let working = (!are_ones).then(|| &self.working[rows.clone()]);
        add_weighted_gram(columns, working, self.facts.cancel.as_deref(), out);
    }
}

impl Observations<'_> {
    /// Computes the norms by a pass over the rows, or from low-rank features where these suffice.
    fn measured(mut self, cancel: Option<Arc<AtomicBool>>) -> Result<Self> {
        self.facts.cancel = cancel;
        let deviances = self.move_to(&[], &[])?;
        if self.measure_by_factor(deviances[0])? || self.measure_approximately()? {
            return Ok(self);
        }
        let n_values = self.design.n_rows().saturating_mul(self.design.n_basis());
        // A design with families is lazy.
        if n_values <= MAX_STORED && !self.design.families().is_empty() {
            let stored = DenseDesign::evaluated(&*self.design, || self.facts.check_cancelled())?;
            self.design = Arc::new(stored);
        }
        let check = || self.facts.check_cancelled();
        let n_outputs = self.variances.len();
        let sums = over_blocks(
            &*self.design,
            n_outputs,
            check,
            |block, squares, products| {
                add_squares(block, self.weights.as_deref(), squares);
                for (c, products) in products.chunks_exact_mut(squares.len()).enumerate() {
                    let residual = &self.residual_of(c)[block.rows.clone()];
                    for (j, product) in products.iter_mut().enumerate() {
                        *product += column_dot(block.values.column(j, residual.len()), residual);
                    }
                }
            },
        )?;
        self.facts.norms = lengths(&sums.diag)?;
        if let Some(weight) = self.first_weight() {
            let mut start = unit_columns(sums, &self.facts.norms, true, deviances);
            start.diag.iter_mut().for_each(|d| *d *= weight);
            self.start = Some(start);
        }
        Ok(self)
    }

    /// The ratio of working weights to sample weights at mu = 0, if it is the same for all rows.
    fn first_weight(&self) -> Option<f64> {
        let is_same = self.likelihood.has_expected_weights() && self.offset.is_none();
        is_same.then(|| self.likelihood.working(0.0, self.target[0]).weight)
    }

    /// Computes the norms from features that represent the design to rounding; returns whether there are such features.
    ///
    /// Not for a Gaussian likelihood, where the noise may be a millionth of the targets and what the features leave out matters.
    fn measure_by_factor(&mut self, deviance: f64) -> Result<bool> {
        if self.facts.is_linear {
            return Ok(false);
        }
        let features = LowRankPolicy::exact(&*self.design)
            .and_then(|policy| LowRankFeatures::of(&*self.design, self.weights.as_deref(), policy));
        let Some(features) = features else {
            return Ok(false);
        };
        self.facts.check_cancelled()?;
        let gram = None;
        let mut factor = WeightedFeatures { features, gram };
        let weight = self.first_weight();
        let ones;
        let working = match (weight, &self.weights) {
            (Some(_), _) => &self.working,
            (None, Some(weights)) => weights,
            (None, None) => {
                ones = vec![1.0; self.n_rows()];
                &ones
            }
        };
        let sums = factor.sums(working, &self.residual, (&[], &[]));
        self.facts.check_cancelled()?;
        let squares: Vec<f64> = (sums.diag.iter())
            .map(|d| d / weight.unwrap_or(1.0))
            .collect();
        self.facts.norms = lengths(&squares)?;
        let exact = factor
            .features
            .error_within(EXACT_COLUMN, &self.facts.norms);
        if exact {
            if weight.is_some() {
                self.start = Some(unit_columns(sums, &self.facts.norms, false, vec![deviance]));
            } else {
                factor.gram = None;
            }
            self.factor = Some(factor);
        }
        Ok(exact)
    }

    /// Computes approximate norms from a few features; returns whether these are close enough.
    ///
    /// Any number near the length of a column serves as its unit, because later passes compute the squared lengths as well.
    fn measure_approximately(&mut self) -> Result<bool> {
        /// Largest error of a column, relative to its norm.
        const MAX_ERROR: f64 = 0.5;
        let weights = self.weights.as_deref();
        let for_one = self.facts.is_linear && self.variances.len() == 1;
        let features = (LowRankPolicy::coarse(&*self.design).filter(|_| for_one))
            .and_then(|policy| LowRankFeatures::of(&*self.design, weights, policy));
        self.facts.check_cancelled()?;
        let Some(features) = features else {
            return Ok(false);
        };
        let (scale, cancel) = (self.facts.target_scale, self.facts.cancel.clone());
        let low_rank = LowRankStatistics::new(features, &self.target, weights, scale, cancel)?;
        self.inexact_norms = low_rank
            .features
            .error_within(MAX_ERROR, &low_rank.facts().norms);
        if self.inexact_norms {
            self.facts.norms.clone_from(&low_rank.facts().norms);
        }
        self.low_rank = Some(low_rank);
        Ok(self.inexact_norms)
    }
}

impl Statistics for Observations<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        Ok(self.move_to(active, mu)?.iter().sum())
    }

    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        let m = active.len();
        let mut gradient = vec![0.0; m];
        let deviances = self.gradient(active, mu, &mut gradient)?;
        let gram = sum_over_rows(self.n_rows(), ROW_BLOCK, m, |rows, out| {
            self.add_gram(&self.columns.at(&rows), &rows, out);
        });
        self.facts.check_cancelled()?;
        Ok((deviances.iter().sum(), (mirrored(gram), gradient)))
    }

    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<()> {
        if !self.likelihood.has_bound() {
            return Err(no_bound());
        }
        if !self.facts.is_linear {
            self.activate(active);
            self.xi = Some(self.tightest_bounds(mu, sigma)?);
            self.evaluation = None;
        }
        self.facts.check_cancelled()
    }

    fn remove_bound(&mut self) {
        if self.xi.take().is_some() {
            self.evaluation = None;
        }
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let deviances = self.move_to(active, mu)?;
        let m = active.len();
        for c in 0..deviances.len() {
            let own = &mut gradient[c * m..][..m];
            self.columns.products(self.residual_of(c), own);
        }
        Ok(deviances)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        self.move_to(active, mu)?;
        let (n, m) = (self.n_rows(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let columns = self.columns.at(&rows);
            let height = rows.len();
            let t = Matrix::from_fn(height, m, |i, k| columns[k][i]) * sigma;
            let squares = t.map(|v| v * v);
            let skewed = Matrix::from_fn(height, m, |i, k| self.skew[rows.start + i] * t[(i, k)]);
            let (a, b) = (squares.as_slice(), skewed.as_slice());
            let (a, b) = (TallMatrix::new(a, height, m), TallMatrix::new(b, height, m));
            add_transpose_product(a, b, height, out, m);
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        if active.is_empty()
            && wanted.is_empty()
            && self.xi.is_none()
            && let Some(start) = &self.start
        {
            self.facts.check_cancelled()?;
            return Ok(start.clone());
        }
        let deviances = self.move_to(active, mu)?;
        if let Some(factor) = &mut self.factor {
            let sums = factor.sums(&self.working, &self.residual, (wanted, &self.facts.norms));
            self.facts.check_cancelled()?;
            return Ok(unit_columns(sums, &self.facts.norms, false, deviances));
        }
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, wanted);
        let n_products = wanted.len() + deviances.len();
        let fixed = self.facts.is_linear && !self.inexact_norms;
        let check = || self.facts.check_cancelled();
        let sums = over_blocks(&*self.design, n_products, check, |block, diag, products| {
            let rows = &block.rows;
            // Computed for each block: for all rows it would be as large as the active columns.
            let right = self.right(&columns, rows);
            let right = TallMatrix::new(&right, stride(rows.len()), n_products);
            block.add_products(right, products, diag.len());
            if !fixed {
                add_squares(block, Some(&self.working), diag);
            }
        })?;
        Ok(unit_columns(sums, &self.facts.norms, fixed, deviances))
    }

    fn project(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        if let Some(factor) = &self.factor {
            let right = factor.features.project(&self.residual);
            return Ok(factor.features.projections(&right, js, &self.facts.norms));
        }
        let (p, n_outputs) = (js.len(), self.variances.len());
        let parts = map_pieces(self.n_rows(), ROW_BLOCK, |rows| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            let (mut column, mut part) = (vec![0.0; rows.len()], vec![0.0; p * n_outputs]);
            for (k, &j) in js.iter().enumerate() {
                column_into(&*self.design, &self.facts.norms, j, &rows, &mut column);
                for c in 0..n_outputs {
                    part[c * p + k] = column_dot(&column, &self.residual_of(c)[rows.clone()]);
                }
            }
            Ok(part)
        });
        let mut sum = vec![0.0; p * n_outputs];
        for part in parts {
            axpy(1.0, &part?, &mut sum);
        }
        Ok(sum)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        /// Columns that one thread multiplies with the residual.
        const COLUMNS: usize = 32;
        self.move_to(active, mu)?;
        if let Some(factor) = &mut self.factor {
            let right = factor.features.project(&self.residual);
            let gram = factor
                .gram
                .get_or_insert_with(|| factor.features.gram(&self.working));
            return Ok(factor
                .features
                .lower_among(gram, &right, js, &self.facts.norms));
        }
        let m = js.len();
        // Most functions of a working set are never added to the model, so their columns are not kept.
        let (mut strips, mut gradient) = (Vec::new(), vec![0.0; m * self.variances.len()]);
        if self.target.is_empty() {
            return Ok((Matrix::zeros(m, m), gradient));
        }
        let mut gram = Matrix::zeros(m, m);
        for rows in pieces(self.n_rows(), GRAM_ROWS) {
            let columns =
                columns_into_strips(&*self.design, &self.facts.norms, js, &rows, &mut strips);
            self.add_gram(&columns, &rows, gram.as_mut_slice());
            for (c, gradient) in gradient.chunks_exact_mut(m.max(1)).enumerate() {
                let residual = &self.residual_of(c)[rows.clone()];
                fill_pieces_of(m * rows.len(), gradient, COLUMNS, |first, out| {
                    for (g, column) in out.iter_mut().zip(&columns[first..]) {
                        *g += column_dot(column, residual);
                    }
                });
            }
        }
        self.facts.check_cancelled()?;
        Ok((gram, gradient))
    }
}

impl Observations<'_> {
    /// The root of `E[eta_n^2]` for each row, at which its quadratic bound is tightest (Jaakkola & Jordan 2000).
    fn tightest_bounds(&self, mu: &[f64], sigma: &Matrix) -> Result<Vec<f64>> {
        /// Rows between two checks of the flag.
        const ROWS: usize = 64;
        let m = mu.len();
        let (mu, sigma) = (DVector::from_column_slice(mu), sigma.view((0, 0), (m, m)));
        let parts = map_pieces(self.n_rows(), ROWS, |rows| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            let columns = self.columns.at(&rows);
            let phi = Matrix::from_fn(rows.len(), m, |i, k| columns[k][i]);
            let variances = (&phi * sigma).component_mul(&phi).column_sum();
            let eta = &phi * &mu;
            let moments = variances.iter().zip(eta.iter());
            Ok(moments
                .map(|(v, eta)| (v.max(0.0) + eta * eta).sqrt())
                .collect())
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }
}
