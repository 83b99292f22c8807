//! Rows in memory: a design, its targets, and a likelihood.

use std::sync::atomic::{AtomicBool, Ordering};

use nalgebra::DMatrix;

use super::blocks::{ROW_BLOCK, Sums, over_blocks, sum_over_rows};
use super::columns::{Columns, append_column};
use super::design::Design;
use super::rows::{check_rows, spread};
use super::{Statistics, Sweep};
use crate::linalg::blas::{add_transpose_product, axpy, dot};
use crate::linalg::parallel::map_pieces;
use crate::{Error, Likelihood, Result};

/// [`Statistics`] of rows that this process can see.
///
/// Between calls `working` and `residual` hold the working weights and residuals (times the sample weights) at the
/// `mu` last asked about.
pub struct Observations<'a> {
    design: &'a dyn Design,
    likelihood: Likelihood,
    target: Vec<f64>,
    weights: Option<Vec<f64>>,
    n_obs: f64,
    norms: Vec<f64>,
    columns: Columns,
    packed: Vec<f64>,
    packed_for: Vec<usize>,
    working: Vec<f64>,
    residual: Vec<f64>,
    skew: Vec<f64>,
    constant_deviance: f64,
    target_scale: f64,
    cancel: Option<&'a AtomicBool>,
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
        mut target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        check_rows(design.n_rows(), likelihood, &target, weights.as_deref())?;
        let n = target.len();
        let weight = |row: usize| weights.as_ref().map_or(1.0, |w| w[row]);
        let n_obs = (0..n).map(weight).sum();
        let target_scale = if likelihood.is_linear() {
            spread(&target, weight)
        } else {
            1.0
        };
        for t in &mut target {
            *t /= target_scale;
        }
        let constant_deviance = (0..n)
            .map(|row| weight(row) * likelihood.constant_deviance(target[row]))
            .sum();
        let mut this = Self {
            design,
            likelihood,
            weights,
            n_obs,
            norms: Vec::new(),
            columns: Columns::default(),
            packed: Vec::new(),
            packed_for: Vec::new(),
            working: vec![1.0; n],
            residual: vec![0.0; n],
            skew: vec![0.0; n],
            constant_deviance,
            target_scale,
            target,
            cancel: None,
        };
        this.norms = this.column_norms()?;
        Ok(this)
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Weighted length of each column; 0 where it is too small to divide by.
    fn column_norms(&self) -> Result<Vec<f64>> {
        let squares = over_blocks(
            self.design,
            0,
            || self.check_cancel(),
            |block, out, _| {
                for (c, out) in out.iter_mut().enumerate() {
                    let column = block.values.column(c, block.rows.len());
                    *out += match &self.weights {
                        None => dot(column, column),
                        Some(w) => weighted_square(column, &w[block.rows.clone()]),
                    };
                }
            },
        )?;
        if squares.diag.iter().any(|s| !s.is_finite()) {
            let what = "a column of the design matrix is not finite or too large to square; rescale X or the kernel";
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(squares
            .diag
            .iter()
            .map(|&s| if s > 1e-290 { s.sqrt() } else { 0.0 })
            .collect())
    }

    /// Brings `packed` to the active columns, N x m.
    fn pack(&mut self, active: &[usize]) {
        if self.packed_for != active {
            self.columns
                .gather(self.design, &self.norms, active, &mut self.packed);
            self.packed_for.clear();
            self.packed_for.extend_from_slice(active);
        }
    }

    /// Brings `working` and `residual` to `mu` and returns the deviance.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.check_cancel()?;
        self.pack(active);
        let n = self.target.len();
        let pieces = map_pieces(n, ROW_BLOCK, |rows| {
            let mut eta = vec![0.0; rows.len()];
            for (k, &mu) in mu.iter().enumerate() {
                axpy(mu, &self.packed[k * n..(k + 1) * n][rows.clone()], &mut eta);
            }
            let mut working = Vec::with_capacity(rows.len());
            let mut skew = Vec::with_capacity(rows.len());
            let mut deviance = 0.0;
            for (row, eta) in rows.zip(&mut eta) {
                let at = self.likelihood.working(*eta, self.target[row]);
                let w = self.weights.as_ref().map_or(1.0, |w| w[row]);
                working.push(w * at.weight);
                skew.push(w * at.skew);
                *eta = w * at.residual;
                deviance += w * at.deviance;
            }
            (working, skew, eta, deviance)
        });
        self.working.clear();
        self.residual.clear();
        self.skew.clear();
        let mut deviance = self.constant_deviance;
        for (working, skew, residual, part) in pieces {
            self.skew.extend(skew);
            self.working.extend(working);
            self.residual.extend(residual);
            deviance += part;
        }
        Ok(deviance)
    }

    /// W times the columns in `packed`.
    fn weighted(&self, packed: &[f64]) -> Vec<f64> {
        let n = self.target.len();
        packed
            .chunks_exact(n)
            .flat_map(|column| column.iter().zip(&self.working).map(|(v, w)| v * w))
            .collect()
    }

    fn active_gradient(&self, gradient: &mut [f64]) {
        let n = self.target.len();
        for (g, column) in gradient.iter_mut().zip(self.packed.chunks_exact(n)) {
            *g = dot(column, &self.residual);
        }
    }

    /// Phi^T W Phi of the m columns side by side in `columns`.
    fn gram_of(&self, columns: &[f64], m: usize) -> DMatrix<f64> {
        let n = self.target.len();
        let weighted = self.weighted(columns);
        let mut gram = sum_over_rows(n, m, |rows, out| {
            let (a, b) = (&columns[rows.start..], &weighted[rows.start..]);
            add_transpose_product(a, n, b, n, rows.len(), out, m);
        });
        // The two triangles differ in the last bits; the factor reads one and the gradients the other.
        gram.fill_upper_triangle_with_lower_triangle();
        gram
    }
}

fn weighted_square(column: &[f64], weights: &[f64]) -> f64 {
    column.iter().zip(weights).map(|(v, w)| v * v * w).sum()
}

impl Statistics for Observations<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn likelihood(&self) -> Likelihood {
        self.likelihood
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn check_cancel(&self) -> Result<()> {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
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
        self.active_gradient(gradient);
        let m = active.len();
        gram.view_mut((0, 0), (m, m))
            .copy_from(&self.gram_of(&self.packed, m));
        Ok(deviance)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        self.active_gradient(gradient);
        Ok(deviance)
    }

    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        self.check_cancel()?;
        self.pack(active);
        let (n, m) = (self.target.len(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        Ok(sum_over_rows(n, m, |rows, out| {
            let columns: Vec<&[f64]> = self
                .packed
                .chunks_exact(n)
                .map(|c| &c[rows.clone()])
                .collect();
            let height = rows.len();
            let t = DMatrix::from_fn(height, m, |i, k| columns[k][i]) * sigma;
            let squares = t.map(|v| v * v);
            let skewed = DMatrix::from_fn(height, m, |i, k| self.skew[rows.start + i] * t[(i, k)]);
            let (a, b) = (squares.as_slice(), skewed.as_slice());
            add_transpose_product(a, height, b, height, height, out, m);
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let deviance = self.move_to(active, mu)?;
        let n = self.target.len();
        let mut columns = Vec::new();
        self.columns
            .gather(self.design, &self.norms, wanted, &mut columns);
        let mut right = self.weighted(&columns);
        right.extend_from_slice(&self.residual);
        let fixed = self.likelihood.is_linear();
        let sums = over_blocks(
            self.design,
            wanted.len() + 1,
            || self.check_cancel(),
            |block, diag, products| {
                let rows = &block.rows;
                let (values, stride) = (block.values.data, block.values.stride);
                add_transpose_product(
                    values,
                    stride,
                    &right[rows.start..],
                    n,
                    rows.len(),
                    products,
                    diag.len(),
                );
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
        Ok(self.normalise(sums, fixed, deviance))
    }

    fn gram_among(&mut self, js: &[usize]) -> Result<DMatrix<f64>> {
        self.check_cancel()?;
        // Most of a shortlist never enters the model, so its columns are not kept.
        let mut columns = Vec::with_capacity(js.len() * self.target.len());
        for &j in js {
            append_column(self.design, &self.norms, j, &mut columns);
        }
        Ok(self.gram_of(&columns, js.len()))
    }
}

impl Observations<'_> {
    /// Sums over original columns, turned into those over unit-norm columns.
    fn normalise(&self, sums: Sums, fixed: bool, deviance: f64) -> Sweep {
        let scale = |values: &mut [f64]| {
            for (v, &norm) in values.iter_mut().zip(&self.norms) {
                *v = if norm > 0.0 { *v / norm } else { 0.0 };
            }
        };
        let Sums {
            mut diag,
            products: mut gram,
        } = sums;
        if fixed {
            for (d, &norm) in diag.iter_mut().zip(&self.norms) {
                *d = if norm > 0.0 { 1.0 } else { 0.0 };
            }
        } else {
            scale(&mut diag);
            scale(&mut diag);
        }
        for column in &mut gram {
            scale(column);
        }
        let gradient = gram.pop().unwrap_or_default();
        Sweep {
            diag,
            gradient,
            gram,
            deviance,
        }
    }
}
