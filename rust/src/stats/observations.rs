//! Rows in memory: a design, its targets, and a likelihood.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use super::blocks::{ROW_BLOCK, Sums, over_blocks, sum_over_rows};
use super::bound::{no_bound, tightest};
use super::columns::{Packed, column_into, columns_into, unit_columns};
use super::compressed::Compressed;
use super::design::Design;
use super::factor::Factor;
use super::rows::{check_rows, spread};
use super::screen::Prepared;
use super::skew::tilts;
use super::thinned::Thinned;
use super::{Statistics, Sweep, check_flag};
use crate::likelihood::WorkingRows;
use crate::linalg::blas::{axpy, dot, mirror, weighted_square};
use crate::linalg::parallel::{fill_pieces, map_pieces, pieces};
use crate::linalg::product::{Tall, add_combination, add_transpose_product};
use crate::{Likelihood, Result};

/// Columns of a Gram matrix that one thread makes at a time: with fewer, less lies above the diagonal.
pub(super) const GRAM_COLUMNS: usize = 24;
/// Rows of a Gram matrix at a time: some hundred columns this high stay in the caches, where at a distance of a power of two they
/// would share their places.
pub(super) const GRAM_ROWS: usize = 504;

/// [`Statistics`] of rows that this process can see.
///
/// Between calls `working` and `residual` hold the working weights and residuals (times the sample weights) at the
/// `mu` last asked about.
pub struct Observations<'a> {
    pub(super) design: Arc<dyn Design + Send + 'a>,
    pub(super) likelihood: Likelihood,
    pub(super) target: Vec<f64>,
    pub(super) weights: Option<Vec<f64>>,
    n_obs: f64,
    pub(super) norms: Vec<f64>,
    pub(super) packed: Packed,
    pub(super) working: Vec<f64>,
    pub(super) residual: Vec<f64>,
    skew: Vec<f64>,
    /// The weights last asked about, and the deviance there.
    place: Option<Place>,
    constant_deviance: f64,
    pub(super) target_scale: f64,
    /// Whether columns divided by their `norms` have lengths of their own, rather than 1.
    pub(super) uneven: bool,
    /// Their squares, for a Gaussian likelihood, once a pass has found them.
    squares: Option<Vec<f64>>,
    /// Where the bound that stands for the log-likelihood touches it, row by row; `None`: nothing stands for it.
    xi: Option<Vec<f64>>,
    /// The pass at mu = 0, made together with the norms.
    pub(super) start: Option<Sweep>,
    /// What bounds on the functions of each family of the design are made from.
    pub(super) prepared: Vec<Prepared>,
    /// The design as a product of two matrices with few columns, if it is one but for rounding.
    pub(super) factor: Option<Arc<Factor>>,
    /// Its leading features, if they are much fewer.
    pub(super) leading: Option<Arc<Factor>>,
    /// F^T W F for the weights of the moment, once it has been asked for.
    factor_gram: Option<Arc<DMatrix<f64>>>,
    /// The same of the leading features.
    leading_gram: Option<Arc<DMatrix<f64>>>,
    /// These rows in a few features that say almost the same, until they are asked for.
    pub(super) nearly: Option<Compressed>,
    pub(super) cancel: Option<Arc<AtomicBool>>,
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
    pub(super) fn unmeasured(
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
    pub(super) fn as_given(
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
    pub(super) fn targets(&self) -> (&[f64], Option<&[f64]>) {
        (&self.target, self.weights.as_deref())
    }

    /// Ends every later question with [`Error::Interrupted`](crate::Error::Interrupted) once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    pub(super) fn check_cancel(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    /// The sums of a pass at the `mu` last asked about, in the units of the columns given.
    pub(super) fn factor_sums(&mut self, factor: &Factor, wanted: &[usize]) -> Result<Sums> {
        let gram = self.factor_gram(factor)?;
        let right = factor.project(&self.residual);
        let sums = factor.sums(&gram, &right, (wanted, &self.norms), true);
        self.check_cancel()?;
        Ok(sums)
    }

    /// F^T W F at the `mu` last asked about.
    fn factor_gram(&mut self, factor: &Factor) -> Result<Arc<DMatrix<f64>>> {
        self.check_cancel()?;
        if let Some(gram) = &self.factor_gram {
            return Ok(gram.clone());
        }
        let gram = Arc::new(factor.gram(&self.working));
        self.factor_gram = Some(gram.clone());
        Ok(gram)
    }

    /// That of the leading features.
    fn leading_gram(&mut self, leading: &Factor) -> Result<Arc<DMatrix<f64>>> {
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
    pub(super) fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
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
        self.working.clear();
        self.residual.clear();
        self.skew.clear();
        let mut deviance = self.constant_deviance;
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

    /// W times columns that hold these rows alone, side by side.
    pub(super) fn weighted(&self, columns: &[&[f64]], rows: &Range<usize>) -> Vec<f64> {
        let working = &self.working[rows.clone()];
        let mut weighted = Vec::with_capacity(columns.len() * rows.len());
        for column in columns {
            weighted.extend(column.iter().zip(working).map(|(v, w)| v * w));
        }
        weighted
    }

    /// Some rows of W times the columns, and of the residuals, side by side.
    pub(super) fn right(&self, columns: &[Cow<'_, [f64]>], rows: &Range<usize>) -> Vec<f64> {
        let working = &self.working[rows.clone()];
        let mut right = Vec::with_capacity((columns.len() + 1) * rows.len());
        for column in columns {
            right.extend(column[rows.clone()].iter().zip(working).map(|(v, w)| v * w));
        }
        right.extend_from_slice(&self.residual[rows.clone()]);
        right
    }

    /// Adds the share of some rows to the lower triangle of Phi^T W Phi; `columns` hold these rows alone.
    fn add_gram(&self, columns: &[&[f64]], rows: &Range<usize>, out: &mut [f64]) {
        let m = columns.len();
        fill_pieces(out, GRAM_COLUMNS * m, |start, out| {
            if self.check_cancel().is_err() {
                return;
            }
            let (first, width) = (start / m, out.len() / m);
            let below = &columns[first..];
            let weighted;
            let right = if self.is_plain() {
                Tall::listed(&below[..width])
            } else {
                weighted = self.weighted(&below[..width], rows);
                Tall::new(&weighted, rows.len(), width)
            };
            add_transpose_product(Tall::listed(below), right, rows.len(), &mut out[first..], m);
        });
    }

    /// Whether all working weights are 1, whatever mu.
    fn is_plain(&self) -> bool {
        self.weights.is_none() && self.likelihood.is_linear()
    }
}

impl Statistics for Observations<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn is_linear(&self) -> bool {
        self.likelihood.is_linear()
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        self.packed.products(&self.residual, gradient);
        let m = active.len();
        let n = self.target.len();
        let mut sum = sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            self.add_gram(&self.packed.at(&rows), &rows, out);
        });
        self.check_cancel()?;
        mirror(&mut sum);
        gram.view_mut((0, 0), (m, m)).copy_from(&sum);
        Ok(deviance)
    }

    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
        if !self.likelihood.has_bound() {
            return Err(no_bound());
        }
        if !self.is_linear() {
            self.pack(active);
            let n = self.target.len();
            self.xi = Some(tightest(
                &self.packed.at(&(0..n)),
                n,
                mu,
                sigma,
                self.cancel.as_deref(),
            )?);
            self.place = None;
        }
        self.check_cancel()
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        self.packed.products(&self.residual, gradient);
        Ok(deviance)
    }

    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        self.check_cancel()?;
        self.pack(active);
        let (n, m) = (self.target.len(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let columns = self.packed.at(&rows);
            let height = rows.len();
            let t = DMatrix::from_fn(height, m, |i, k| columns[k][i]) * sigma;
            let squares = t.map(|v| v * v);
            let skewed = DMatrix::from_fn(height, m, |i, k| self.skew[rows.start + i] * t[(i, k)]);
            let (a, b) = (squares.as_slice(), skewed.as_slice());
            let (a, b) = (Tall::new(a, height, m), Tall::new(b, height, m));
            add_transpose_product(a, b, height, out, m);
        }))
    }

    fn skew_projections(
        &mut self,
        active: &[usize],
        mu: &[f64],
        factor: &DMatrix<f64>,
    ) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        let tilts = tilts(&self.packed, factor, &self.skew);
        let sums = over_blocks(
            &*self.design,
            1,
            || self.check_cancel(),
            |block, _, products| {
                for (c, product) in products.iter_mut().enumerate() {
                    let column = block.values.column(c, block.rows.len());
                    *product += dot(column, &tilts[block.rows.clone()]);
                }
            },
        )?;
        Ok(unit_columns(sums, &self.norms, true, 0.0).gradient)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        if active.is_empty()
            && wanted.is_empty()
            && self.xi.is_none()
            && let Some(start) = self.start.take()
        {
            self.move_to(active, mu)?;
            return Ok(start);
        }
        let deviance = self.move_to(active, mu)?;
        if let Some(factor) = self.factor.clone() {
            let sums = self.factor_sums(&factor, wanted)?;
            return Ok(unit_columns(sums, &self.norms, false, deviance));
        }
        let columns = self.packed.columns(&*self.design, &self.norms, wanted);
        let fixed = self.is_linear() && (!self.uneven || self.squares.is_some());
        let sums = over_blocks(
            &*self.design,
            wanted.len() + 1,
            || self.check_cancel(),
            |block, diag, products| {
                let rows = &block.rows;
                let values = Tall::new(block.values.data, block.values.stride, diag.len());
                // Made anew for each block: of N rows it would be as large as the active columns.
                let right = self.right(&columns, rows);
                let right = Tall::new(&right, rows.len(), wanted.len() + 1);
                add_transpose_product(values, right, rows.len(), products, diag.len());
                if !fixed {
                    for (c, diag) in diag.iter_mut().enumerate() {
                        *diag += weighted_square(
                            block.values.column(c, rows.len()),
                            &self.working[rows.clone()],
                        );
                    }
                }
            },
        )?;
        let mut sweep = unit_columns(sums, &self.norms, fixed, deviance);
        if self.is_linear() && self.uneven {
            let squares = self.squares.get_or_insert_with(|| sweep.diag.clone());
            sweep.diag.copy_from_slice(squares);
        }
        Ok(sweep)
    }

    fn on_fewer_rows(
        &mut self,
        share: usize,
        least: usize,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        let design = Arc::clone(&self.design);
        let Some(thinned) = Thinned::of(&*design, share, least) else {
            return Ok(());
        };
        let target = thinned.pick(&self.target);
        let weights = self.weights.as_ref().map(|w| thinned.pick(w));
        let (likelihood, cancel) = (self.likelihood, self.cancel.clone());
        let mut part = Observations::cancellable(&thinned, likelihood, target, weights, cancel)?;
        see(self, &mut part);
        Ok(())
    }

    fn on_few_features(
        &mut self,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        if let Some(mut part) = self.nearly.take() {
            see(self, &mut part);
        }
        Ok(())
    }

    fn project(&mut self, js: &[usize]) -> Result<Vec<f64>> {
        if let Some(factor) = &self.factor {
            let right = factor.project(&self.residual);
            return Ok(factor.projections(&right, js, &self.norms));
        }
        let parts = map_pieces(self.target.len(), ROW_BLOCK, |rows| -> Result<Vec<f64>> {
            self.check_cancel()?;
            let mut column = vec![0.0; rows.len()];
            let residual = &self.residual[rows.clone()];
            let of = |&j: &usize| {
                column_into(&*self.design, &self.norms, j, &rows, &mut column);
                dot(&column, residual)
            };
            Ok(js.iter().map(of).collect())
        });
        let mut sum = vec![0.0; js.len()];
        for part in parts {
            axpy(1.0, &part?, &mut sum);
        }
        Ok(sum)
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        self.check_cancel()?;
        if let Some(factor) = self.factor.clone() {
            let gram = self.factor_gram(&factor)?;
            let right = factor.project(&self.residual);
            return Ok(factor.among(&gram, &right, js, &self.norms));
        }
        let m = js.len();
        let mut gram = DMatrix::zeros(m, m);
        // Most of a shortlist never enters the model, so its columns are not kept.
        let mut columns = Vec::new();
        let mut gradient = vec![0.0; m];
        for rows in pieces(self.target.len(), GRAM_ROWS) {
            columns_into(&*self.design, &self.norms, js, &rows, &mut columns);
            let columns: Vec<&[f64]> = columns.chunks_exact(rows.len()).collect();
            self.add_gram(&columns, &rows, gram.as_mut_slice());
            for (g, column) in gradient.iter_mut().zip(&columns) {
                *g += dot(column, &self.residual[rows.clone()]);
            }
        }
        self.check_cancel()?;
        mirror(&mut gram);
        Ok((gram, gradient))
    }

    fn nearly_sweep(
        &mut self,
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Option<Sweep>> {
        let Some(leading) = self.leading.clone() else {
            return Ok(None);
        };
        let deviance = self.move_to(active, mu)?;
        let gram = self.leading_gram(&leading)?;
        let right = leading.project(&self.residual);
        let sums = leading.sums(&gram, &right, (wanted, &self.norms), true);
        self.check_cancel()?;
        Ok(Some(unit_columns(sums, &self.norms, false, deviance)))
    }

    fn nearly_among(&mut self, js: &[usize]) -> Result<Option<(DMatrix<f64>, Vec<f64>)>> {
        let (Some(leading), None) = (self.leading.clone(), &self.factor_gram) else {
            return Ok(None);
        };
        let gram = self.leading_gram(&leading)?;
        let right = leading.project(&self.residual);
        Ok(Some(leading.among(&gram, &right, js, &self.norms)))
    }
}
