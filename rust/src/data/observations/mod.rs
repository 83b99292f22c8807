//! Rows in memory: a design, targets and a likelihood.

mod measure;
mod statistics;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::ActiveColumns;
use crate::data::column_table::Table;
use crate::data::design::Design;
use crate::data::low_rank::bounds::FamilyBasis;
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::low_rank::statistics::LowRankStatistics;
use crate::data::row_blocks::{ROW_BLOCK, Sums};
use crate::data::row_subsample::RowSubsample;
use crate::data::targets::{check_rows, target_scale, total_weight};
use crate::data::{Facts, Sweep};
use crate::likelihood::WorkingRows;
use crate::linalg::LowerTriangle;
use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::column_combination::add_combination;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product};
use crate::linalg::vector::multiply_into;
use crate::parallel::{fill_pieces_of, map_pieces};
use crate::{Error, Likelihood, Result};

/// Columns of a Gram matrix that one thread computes at a time.
pub(crate) const GRAM_COLUMNS: usize = 24;
/// Rows of a block of a Gram matrix: some hundred columns of this height stay in the caches. A power of two would make columns compete
/// for the same cache sets.
pub(crate) const GRAM_ROWS: usize = 504;

/// [`Statistics`](crate::data::Statistics) of rows in memory.
///
/// Invariant: `working` and `residual` hold the working weights and residuals, times the sample weights, at the `mu` of
/// `evaluation`.
pub struct Observations<'a> {
    pub(crate) design: Arc<dyn Design + Send + 'a>,
    pub(crate) likelihood: Likelihood,
    pub(crate) target: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    pub(crate) facts: Facts,
    pub(crate) columns: ActiveColumns,
    pub(crate) working: Vec<f64>,
    pub(crate) residual: Vec<f64>,
    skew: Vec<f64>,
    evaluation: Option<Evaluation>,
    constant_deviance: f64,
    /// Whether columns divided by their norms have lengths other than 1, because the norms are approximate or all 1.
    pub(crate) inexact_norms: bool,
    /// Squared lengths of such columns, for a Gaussian likelihood, once a pass has computed them.
    squares: Option<Vec<f64>>,
    /// For each row, the linear predictor at which the bound that replaces the log-likelihood is tangent to it.
    xi: Option<Vec<f64>>,
    /// The pass at mu = 0, made together with the norms.
    start: Option<Sweep>,
    /// The Newton basis of each family of the design, for screening bounds.
    pub(crate) bases: Vec<FamilyBasis>,
    /// Features that represent the design to rounding, if their number is small.
    factor: Option<WeightedFeatures>,
    /// Approximate statistics in a few features, if the dictionary has them.
    low_rank: Option<LowRankStatistics>,
}

/// Weights of some functions, and the deviance there.
struct Evaluation {
    active: Vec<usize>,
    mu: Vec<f64>,
    deviance: f64,
}

/// Low-rank features F, and F^T W F for the present working weights once it has been computed.
struct WeightedFeatures {
    features: LowRankFeatures,
    gram: Option<Table>,
}

impl WeightedFeatures {
    fn new(features: LowRankFeatures) -> Self {
        let gram = None;
        Self { features, gram }
    }

    /// The sums of a pass over the dictionary; `wanted` are the Gram columns asked for, and the norms of all columns.
    fn sums(&mut self, working: &[f64], residual: &[f64], wanted: (&[usize], &[f64])) -> Sums {
        let right = self.features.project(residual);
        let gram = self.gram.get_or_insert_with(|| self.features.gram(working));
        self.features.sums(gram, &right, wanted, true)
    }

    /// The Gram matrix of `js` and the gradient of each.
    fn lower_among(
        &mut self,
        working: &[f64],
        residual: &[f64],
        js: &[usize],
        norms: &[f64],
    ) -> (LowerTriangle, Vec<f64>) {
        let right = self.features.project(residual);
        let gram = self.gram.get_or_insert_with(|| self.features.gram(working));
        self.features.lower_among(gram, &right, js, norms)
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
        let mut this = Self::unmeasured(Arc::new(design), likelihood, target, weights, true)?;
        this.facts.cancel = cancel;
        this.measure()?;
        Ok(this)
    }

    /// [`Observations::new`] without the lengths of columns, for the methods about parts of the dictionary only (`data/dictionary_part.rs`).
    ///
    /// # Errors
    /// As [`Observations::new`], except that the columns are not checked.
    pub fn in_part(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(Arc::new(design), likelihood, target, weights, true)?;
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
        let mut this = Self::unmeasured(Arc::from(design), likelihood, target, weights, false)?;
        this.facts.norms = vec![1.0; this.design.n_basis()];
        this.inexact_norms = true;
        Ok(this)
    }

    fn unmeasured(
        design: Arc<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        mut target: Vec<f64>,
        weights: Option<Vec<f64>>,
        scaled: bool,
    ) -> Result<Self> {
        let n = design.n_rows();
        if scaled || n > 0 {
            check_rows(n, &target, weights.as_deref())?;
        }
        Error::check_len("y", n, target.len())?;
        let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
        let mut scale = 1.0;
        if scaled && likelihood.is_linear() {
            scale = target_scale(&target, weight);
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
            constant_deviance: (0..n).map(constant).sum(),
            design,
            likelihood,
            weights,
            columns: ActiveColumns::default(),
            working: vec![1.0; n],
            residual: vec![0.0; n],
            skew: vec![0.0; n],
            evaluation: None,
            inexact_norms: false,
            squares: None,
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
        self.facts.cancel = Some(flag);
        self
    }

    /// Approximate statistics in a few low-rank features, for a Gaussian likelihood; `None` if the dictionary has no such features.
    pub(crate) fn low_rank(&self) -> Option<LowRankStatistics> {
        self.low_rank.clone()
    }

    /// One row in `share`, evenly distributed over all rows; `None` if this makes fewer than `least` rows.
    pub(crate) fn subsample(&self, share: usize, least: usize) -> Result<Option<Observations<'a>>> {
        let Some(sample) = RowSubsample::of(Arc::clone(&self.design), share, least) else {
            return Ok(None);
        };
        let target = sample.pick(&self.target);
        let weights = self.weights.as_ref().map(|w| sample.pick(w));
        let design = Arc::new(sample);
        let mut part = Self::unmeasured(design, self.likelihood, target, weights, true)?;
        part.facts.cancel.clone_from(&self.facts.cancel);
        part.measure()?;
        Ok(Some(part))
    }

    /// Evaluates the columns of the active functions.
    fn activate(&mut self, active: &[usize]) {
        self.columns
            .set_active(&*self.design, &self.facts.norms, active);
    }

    /// Evaluates `working` and `residual` at `mu`, unless they belong to it already, and returns the deviance.
    pub(crate) fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.facts.check_cancelled()?;
        self.activate(active);
        if let Some(last) = &self.evaluation
            && (&last.active[..], &last.mu[..]) == (active, mu)
        {
            return Ok(last.deviance);
        }
        if let Some(features) = &mut self.factor {
            features.gram = None;
        }
        let pieces = map_pieces(self.target.len(), ROW_BLOCK, |rows| {
            let mut eta = vec![0.0; rows.len()];
            add_combination(&self.columns.at(&rows), mu, &mut eta);
            let mut here = self.working_at(&rows, &eta);
            if let Some(weights) = &self.weights {
                here.weigh(&weights[rows]);
            }
            here
        });
        let mut pieces = pieces.into_iter();
        // There is usually only one piece: its memory is reused.
        let first = pieces.next().unwrap_or_default();
        let mut deviance = self.constant_deviance + first.deviance.iter().sum::<f64>();
        (self.working, self.residual, self.skew) = (first.weight, first.residual, first.skew);
        for piece in pieces {
            self.skew.extend(piece.skew);
            self.working.extend(piece.weight);
            self.residual.extend(piece.residual);
            deviance += piece.deviance.iter().sum::<f64>();
        }
        self.evaluation = Some(Evaluation {
            active: active.to_vec(),
            mu: mu.to_vec(),
            deviance,
        });
        Ok(deviance)
    }

    /// Working weights, residuals and deviances of some rows, or those of the bound that replaces the log-likelihood.
    fn working_at(&self, rows: &Range<usize>, eta: &[f64]) -> WorkingRows {
        let targets = &self.target[rows.clone()];
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

    /// W times columns that hold these rows only, a [`stride`] apart.
    pub(crate) fn weighted(&self, columns: &[&[f64]], rows: &Range<usize>) -> AlignedColumns {
        let (working, stride) = (&self.working[rows.clone()], stride(rows.len()));
        let mut weighted = AlignedColumns::with_room(columns.len() * stride);
        for column in columns {
            multiply_into(column, working, weighted.grow(stride));
        }
        weighted
    }

    /// Some rows of W times the columns, followed by those of the residual, a [`stride`] apart.
    pub(crate) fn right(&self, columns: &[Cow<'_, [f64]>], rows: &Range<usize>) -> AlignedColumns {
        let (working, stride) = (&self.working[rows.clone()], stride(rows.len()));
        let mut right = AlignedColumns::with_room((columns.len() + 1) * stride);
        for column in columns {
            multiply_into(&column[rows.clone()], working, right.grow(stride));
        }
        right.grow(stride)[..rows.len()].copy_from_slice(&self.residual[rows.clone()]);
        right
    }

    /// Adds the contribution of some rows to the lower triangle of Phi^T W Phi; `columns` hold these rows only.
    fn add_gram(&self, columns: &[&[f64]], rows: &Range<usize>, out: &mut [f64]) {
        let m = columns.len();
        let work = m * m * rows.len();
        fill_pieces_of(work, out, GRAM_COLUMNS * m, |start, out| {
            let (first, width) = (start / m, out.len() / m);
            self.add_gram_columns(columns, rows, first..first + width, &mut out[first..], m);
        });
    }

    /// Adds to some columns of the Gram matrix, from the row of the first of them down, `out_stride` apart.
    fn add_gram_columns(
        &self,
        columns: &[&[f64]],
        rows: &Range<usize>,
        these: Range<usize>,
        out: &mut [f64],
        out_stride: usize,
    ) {
        if self.facts.check_cancelled().is_err() {
            return;
        }
        let (below, width) = (&columns[these.start..], these.len());
        let weighted;
        let right = if self.weights.is_none() && self.likelihood.is_linear() {
            // All working weights are 1.
            TallMatrix::listed(&below[..width])
        } else {
            weighted = self.weighted(&below[..width], rows);
            TallMatrix::new(&weighted, stride(rows.len()), width)
        };
        let below = TallMatrix::listed(below);
        add_lower_transpose_product(below, right, rows.len(), out, out_stride);
    }
}
