//! Rows in memory: a design, its targets, and a likelihood.

mod statistics;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::Packed;
use crate::data::column_table::Table;
use crate::data::design::Design;
use crate::data::low_rank::bounds::Prepared;
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::low_rank::statistics::LowRankStatistics;
use crate::data::row_blocks::{ROW_BLOCK, Sums};
use crate::data::targets::{check_rows, spread};
use crate::data::{Sweep, check_flag};
use crate::likelihood::WorkingRows;
use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::column_combination::add_combination;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product};
use crate::linalg::vector::multiply_into;
use crate::parallel::{fill_pieces_of, map_pieces};
use crate::{Likelihood, Result};

/// Columns of a Gram matrix that one thread makes at a time.
pub(crate) const GRAM_COLUMNS: usize = 24;
/// Rows of a Gram matrix at a time: some hundred columns this high stay in the caches, where at a distance of a power of two they
/// would share their places.
pub(crate) const GRAM_ROWS: usize = 504;

/// [`Statistics`](crate::data::Statistics) of rows that this process can see.
///
/// Between calls `working` and `residual` hold the working weights and residuals (times the sample weights) at the
/// `mu` last asked about.
pub struct Observations<'a> {
    pub(crate) design: Arc<dyn Design + Send + 'a>,
    pub(crate) likelihood: Likelihood,
    pub(crate) target: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    n_obs: f64,
    pub(crate) norms: Vec<f64>,
    pub(crate) packed: Packed,
    pub(crate) working: Vec<f64>,
    pub(crate) residual: Vec<f64>,
    skew: Vec<f64>,
    /// The weights last asked about, and the deviance there.
    place: Option<Place>,
    constant_deviance: f64,
    pub(crate) target_scale: f64,
    /// Whether columns divided by their `norms` have lengths of their own, rather than 1.
    pub(crate) uneven: bool,
    /// Their squares, for a Gaussian likelihood, once a pass has found them.
    squares: Option<Vec<f64>>,
    /// Where the bound that stands for the log-likelihood touches it, row by row; `None`: nothing stands for it.
    xi: Option<Vec<f64>>,
    /// The pass at mu = 0, made together with the norms.
    pub(crate) start: Option<Sweep>,
    /// What bounds on the functions of each family of the design are made from.
    pub(crate) prepared: Vec<Prepared>,
    /// The design as a product of two matrices with few columns, if it is one but for rounding.
    pub(crate) factor: Option<Arc<LowRankFeatures>>,
    /// Its leading features, if they are much fewer.
    pub(crate) leading: Option<Arc<LowRankFeatures>>,
    /// F^T W F for the weights of the moment, once it has been asked for.
    factor_gram: Option<Arc<Table>>,
    /// The same of the leading features.
    leading_gram: Option<Arc<Table>>,
    /// These rows in a few features that say almost the same, until they are asked for.
    pub(crate) nearly: Option<LowRankStatistics>,
    pub(crate) cancel: Option<Arc<AtomicBool>>,
}

/// Weights of some functions, and the deviance there.
struct Place {
    active: Vec<usize>,
    mu: Vec<f64>,
    deviance: f64,
}

impl<'a> Observations<'a> {
    /// Joins a design with its targets and optional sample weights.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape), [`Error::NonFinite`](crate::Error::NonFinite) or
    /// [`Error::Invalid`](crate::Error::Invalid) for input outside the likelihood's domain;
    /// [`Error::NonFinite`](crate::Error::NonFinite) also when a basis function overflows.
    pub fn new(
        design: &'a dyn Design,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        Self::cancellable(design, likelihood, target, weights, None)
    }

    /// [`Observations::new`]; this and every later question end with
    /// [`Error::Interrupted`](crate::Error::Interrupted) once `cancel` is raised.
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
        let mut this = Self::unmeasured(design, likelihood, target, weights)?;
        this.cancel = cancel;
        this.measure()?;
        Ok(this)
    }

    /// With no lengths of columns.
    pub(crate) fn unmeasured(
        design: &'a dyn Design,
        likelihood: Likelihood,
        mut target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        check_rows(design.n_rows(), &target, weights.as_deref())?;
        let mut target_scale = 1.0;
        if likelihood.is_linear() {
            target_scale = spread(&target, |row| weights.as_ref().map_or(1.0, |w| w[row]));
            for t in &mut target {
                *t /= target_scale;
            }
        }
        likelihood.check_targets(&target)?;
        let mut this = Self::assemble(Arc::new(design), likelihood, target, weights);
        this.target_scale = target_scale;
        Ok(this)
    }

    /// The same without units: columns and targets are taken as they are, and so is all that is answered.
    pub(crate) fn as_given(
        design: Box<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        check_rows(design.n_rows(), &target, weights.as_deref())?;
        likelihood.check_targets(&target)?;
        let mut this = Self::assemble(Arc::from(design), likelihood, target, weights);
        this.norms = vec![1.0; this.design.n_basis()];
        this.uneven = true;
        Ok(this)
    }

    /// From rows that have been checked; lengths of columns are the caller's affair.
    fn assemble(
        design: Arc<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Self {
        let n = target.len();
        let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
        let n_obs = (0..n).map(weight).sum();
        let constant_deviance = (0..n)
            .map(|row| weight(row) * likelihood.constant_deviance(target[row]))
            .sum();
        Self {
            norms: Vec::new(),
            design,
            likelihood,
            weights,
            n_obs,
            packed: Packed::default(),
            working: vec![1.0; n],
            residual: vec![0.0; n],
            skew: vec![0.0; n],
            place: None,
            constant_deviance,
            target_scale: 1.0,
            uneven: false,
            squares: None,
            xi: None,
            start: None,
            prepared: Vec::new(),
            factor: None,
            leading: None,
            factor_gram: None,
            leading_gram: None,
            nearly: None,
            target,
            cancel: None,
        }
    }

    /// Targets and sample weights.
    pub(crate) fn targets(&self) -> (&[f64], Option<&[f64]>) {
        (&self.target, self.weights.as_deref())
    }

    /// Ends every later question with [`Error::Interrupted`](crate::Error::Interrupted) once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    pub(crate) fn check_cancel(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    /// The sums of a pass at the `mu` last asked about, in the units of the columns given.
    pub(crate) fn factor_sums(
        &mut self,
        factor: &LowRankFeatures,
        wanted: &[usize],
    ) -> Result<Sums> {
        let gram = self.factor_gram(factor)?;
        let right = factor.project(&self.residual);
        let sums = factor.sums(&gram, &right, (wanted, &self.norms), true);
        self.check_cancel()?;
        Ok(sums)
    }

    /// F^T W F at the `mu` last asked about.
    fn factor_gram(&mut self, factor: &LowRankFeatures) -> Result<Arc<Table>> {
        self.check_cancel()?;
        if let Some(gram) = &self.factor_gram {
            return Ok(gram.clone());
        }
        let gram = Arc::new(factor.gram(&self.working));
        self.factor_gram = Some(gram.clone());
        Ok(gram)
    }

    /// That of the leading features.
    fn leading_gram(&mut self, leading: &LowRankFeatures) -> Result<Arc<Table>> {
        self.check_cancel()?;
        if let Some(gram) = &self.leading_gram {
            return Ok(gram.clone());
        }
        let gram = Arc::new(leading.gram(&self.working));
        self.leading_gram = Some(gram.clone());
        self.check_cancel()?;
        Ok(gram)
    }

    /// Brings `packed` to the active columns.
    fn pack(&mut self, active: &[usize]) {
        self.packed.bring_to(&*self.design, &self.norms, active);
    }

    /// Brings `working` and `residual` to `mu`, unless they are there, and returns the deviance.
    pub(crate) fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.check_cancel()?;
        self.pack(active);
        if let Some(place) = &self.place
            && (&place.active[..], &place.mu[..]) == (active, mu)
        {
            return Ok(place.deviance);
        }
        (self.factor_gram, self.leading_gram) = (None, None);
        let n = self.target.len();
        let pieces = map_pieces(n, ROW_BLOCK, |rows| {
            let mut eta = vec![0.0; rows.len()];
            add_combination(&self.packed.at(&rows), mu, &mut eta);
            let mut here = self.working_at(&rows, &eta);
            if let Some(weights) = &self.weights {
                here.weigh(&weights[rows]);
            }
            here
        });
        let mut pieces = pieces.into_iter();
        // Mostly the only one.
        let first = pieces.next().unwrap_or_default();
        let mut deviance = self.constant_deviance + first.deviance.iter().sum::<f64>();
        (self.working, self.residual, self.skew) = (first.weight, first.residual, first.skew);
        for piece in pieces {
            self.skew.extend(piece.skew);
            self.working.extend(piece.weight);
            self.residual.extend(piece.residual);
            deviance += piece.deviance.iter().sum::<f64>();
        }
        self.place = Some(Place {
            active: active.to_vec(),
            mu: mu.to_vec(),
            deviance,
        });
        Ok(deviance)
    }

    /// What some rows contribute, or their bounds.
    fn working_at(&self, rows: &Range<usize>, eta: &[f64]) -> WorkingRows {
        let targets = &self.target[rows.clone()];
        let mut here = self.likelihood.working_rows(eta, targets);
        if let Some(xi) = &self.xi {
            for (k, (xi, (eta, target))) in xi[rows.clone()]
                .iter()
                .zip(eta.iter().zip(targets))
                .enumerate()
            {
                if let Some(bounded) = self.likelihood.bounded(*xi, *eta, *target) {
                    here.set(k, bounded);
                }
            }
        }
        here
    }

    /// W times columns that hold these rows alone, a [`stride`] apart.
    pub(crate) fn weighted(&self, columns: &[&[f64]], rows: &Range<usize>) -> AlignedColumns {
        let (working, apart) = (&self.working[rows.clone()], stride(rows.len()));
        let mut weighted = AlignedColumns::with_room(columns.len() * apart);
        for column in columns {
            multiply_into(column, working, weighted.grow(apart));
        }
        weighted
    }

    /// Some rows of W times the columns, and of the residuals, a [`stride`] apart.
    pub(crate) fn right(&self, columns: &[Cow<'_, [f64]>], rows: &Range<usize>) -> AlignedColumns {
        let (working, apart) = (&self.working[rows.clone()], stride(rows.len()));
        let mut right = AlignedColumns::with_room((columns.len() + 1) * apart);
        for column in columns {
            multiply_into(&column[rows.clone()], working, right.grow(apart));
        }
        right.grow(apart)[..rows.len()].copy_from_slice(&self.residual[rows.clone()]);
        right
    }

    /// Adds the share of some rows to the lower triangle of Phi^T W Phi; `columns` hold these rows alone.
    fn add_gram(&self, columns: &[&[f64]], rows: &Range<usize>, out: &mut [f64]) {
        let m = columns.len();
        let work = m * m * rows.len();
        fill_pieces_of(work, out, GRAM_COLUMNS * m, |start, out| {
            let (first, width) = (start / m, out.len() / m);
            self.add_gram_columns(columns, rows, first..first + width, &mut out[first..], m);
        });
    }

    /// Some columns of it, from the row of the first of them down, `apart` from each other.
    fn add_gram_columns(
        &self,
        columns: &[&[f64]],
        rows: &Range<usize>,
        these: Range<usize>,
        out: &mut [f64],
        apart: usize,
    ) {
        if self.check_cancel().is_err() {
            return;
        }
        let (below, width) = (&columns[these.start..], these.len());
        let weighted;
        let right = if self.is_plain() {
            TallMatrix::listed(&below[..width])
        } else {
            weighted = self.weighted(&below[..width], rows);
            TallMatrix::new(&weighted, stride(rows.len()), width)
        };
        add_lower_transpose_product(TallMatrix::listed(below), right, rows.len(), out, apart);
    }

    /// Whether all working weights are 1, whatever mu.
    fn is_plain(&self) -> bool {
        self.weights.is_none() && self.likelihood.is_linear()
    }
}
