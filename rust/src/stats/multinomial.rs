//! Rows in memory with a class each, and a linear predictor for every class.
//!
//! A softmax over C classes and K basis functions is a model over K C *expanded* functions: number `c K + j` adds
//! `phi_j` to the logit of class c. With `W_n = w_n (diag(p_n) - p_n p_n^T)`, minus the second derivatives of the
//! log-likelihood of row n in its C logits, the Gram matrix of (j, c) and (k, d) is `sum_n phi_nj W_n,cd phi_nk`, the full
//! block Hessian of Tipping (2001), section 3, for several classes; the gradient is `sum_n phi_nj w_n (y_nc - p_nc)`.
//! Everything else in a fit stays as it is for two classes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use super::blocks::{over_blocks, sum_over_rows};
use super::by_class::ByClass;
use super::columns::{Columns, columns_into};
use super::design::Design;
use super::rows::check_rows;
use super::softmax::{Rows, labels};
use super::{Statistics, Sweep, check_flag};
use crate::linalg::blas::{axpy, dot};
use crate::linalg::parallel::{fill_pieces, pieces};
use crate::linalg::product::{Tall, add_transpose_product};
use crate::{Error, Result};

/// Columns of a Gram matrix that one thread makes at a time, and rows: as for `Observations`.
const GRAM_COLUMNS: usize = 64;
const GRAM_ROWS: usize = 512;

/// [`Statistics`] of rows with class labels, under a softmax.
///
/// Between calls `rows` holds probabilities and residuals at the `mu` last asked about; `packed` the columns of the
/// functions in `groups`, those of `packed_for` sorted by class.
pub struct Multinomial<'a> {
    design: &'a dyn Design,
    labels: Vec<usize>,
    n_classes: usize,
    weights: Option<Vec<f64>>,
    n_obs: f64,
    /// Of the K columns, and of the K C expanded functions.
    lengths: Vec<f64>,
    norms: Vec<f64>,
    columns: Columns,
    packed: Vec<f64>,
    packed_for: Vec<usize>,
    groups: ByClass,
    rows: Rows,
    /// The pass at mu = 0, made together with the norms.
    start: Option<Sweep>,
    cancel: Option<Arc<AtomicBool>>,
}

impl<'a> Multinomial<'a> {
    /// Joins a design with the class of each row (0, 1, ..., every one of them on some row) and optional sample weights.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] for input outside its domain; [`Error::Invalid`] also
    /// when a basis function overflows.
    pub fn new(design: &'a dyn Design, target: &[f64], weights: Option<Vec<f64>>) -> Result<Self> {
        check_rows(design.n_rows(), target, weights.as_deref())?;
        let (labels, n_classes) = labels(target)?;
        if design.n_basis().checked_mul(n_classes).is_none() {
            let what = "too many classes and basis functions to count their products".into();
            return Err(Error::Invalid { what });
        }
        let mut this = Self {
            design,
            n_obs: weights
                .as_ref()
                .map_or(labels.len() as f64, |w| w.iter().sum()),
            labels,
            n_classes,
            weights,
            lengths: Vec::new(),
            norms: Vec::new(),
            columns: Columns::default(),
            packed: Vec::new(),
            packed_for: Vec::new(),
            groups: ByClass::new(&[], design.n_basis(), n_classes),
            rows: Rows::default(),
            start: None,
            cancel: None,
        };
        this.measure()?;
        Ok(this)
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// C: the classes, and the linear predictors of a row.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    fn check_cancel(&self) -> Result<()> {
        check_flag(self.cancel.as_deref())
    }

    fn n(&self) -> usize {
        self.labels.len()
    }

    /// One pass for the length of each column, and for what the empty model leaves to each.
    fn measure(&mut self) -> Result<()> {
        let deviance = self.move_to(&[], &[])?;
        let ones = vec![1.0; self.n()];
        let weights = self.weights.as_ref().unwrap_or(&ones);
        let mut sums = self.pass(weights, 1, &[])?;
        let squares = sums.diag.pop().unwrap_or_default();
        if squares.iter().any(|s| !s.is_finite()) {
            let what = "a column of the design matrix is not finite or too large to square; rescale X or the kernel";
            return Err(Error::Invalid { what: what.into() });
        }
        // Columns too small to divide by can never enter.
        let length = |&square: &f64| if square > 1e-290 { square.sqrt() } else { 0.0 };
        self.lengths = squares.iter().map(length).collect();
        self.norms = self.lengths.repeat(self.n_classes);
        // Without a model every class is as likely as the others.
        let p = 1.0 / self.n_classes as f64;
        let unit = |&norm: &f64| if norm > 0.0 { p * (1.0 - p) } else { 0.0 };
        self.start = Some(Sweep {
            diag: self.norms.iter().map(unit).collect(),
            gradient: self.scaled(&sums.gradient),
            gram: Vec::new(),
            deviance,
        });
        Ok(())
    }

    /// Brings `packed` and `groups` to the active functions.
    fn pack(&mut self, active: &[usize]) {
        if self.packed_for != active {
            self.groups = ByClass::new(active, self.design.n_basis(), self.n_classes);
            let functions = self.groups.functions();
            self.columns
                .gather(self.design, &self.lengths, functions, &mut self.packed);
            self.packed_for.clear();
            self.packed_for.extend_from_slice(active);
        }
    }

    /// Brings `rows` to `mu` and returns the deviance.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.check_cancel()?;
        self.pack(active);
        let (n, places) = (self.n(), self.groups.places());
        let eta = |rows: Range<usize>, eta: &mut [f64]| {
            for (c, eta) in eta.chunks_exact_mut(rows.len()).enumerate() {
                for k in self.groups.of(c) {
                    axpy(
                        mu[places[k]],
                        &self.packed[k * n..(k + 1) * n][rows.clone()],
                        eta,
                    );
                }
            }
        };
        let (rows, deviance) = Rows::at(&self.labels, self.weights.as_deref(), self.n_classes, eta);
        self.rows = rows;
        Ok(deviance)
    }

    fn active_gradient(&self, gradient: &mut [f64]) {
        let n = self.n();
        for c in 0..self.n_classes {
            for k in self.groups.of(c) {
                let column = &self.packed[k * n..(k + 1) * n];
                gradient[self.groups.places()[k]] = dot(column, self.rows.residual(c));
            }
        }
    }

    /// Adds the share of some rows to the lower triangle of the Gram matrix, in the order of `groups`; `columns` holds
    /// these rows alone.
    fn add_gram(
        &self,
        columns: &[f64],
        stride: usize,
        rows: &Range<usize>,
        groups: &ByClass,
        out: &mut [f64],
    ) {
        let (m, height) = (groups.len(), rows.len());
        let column = |k: usize| &columns[k * stride..k * stride + height];
        let mut left = Vec::with_capacity(m * height);
        for c in 0..self.n_classes {
            let p = &self.rows.p(c)[rows.clone()];
            groups
                .of(c)
                .for_each(|k| extend_product(&mut left, column(k), p, 1.0));
        }
        fill_pieces(out, GRAM_COLUMNS * m, |start, out| {
            let mine = start / m..(start + out.len()) / m;
            for c in 0..self.n_classes {
                let Range { start: first, end } = groups.of(c);
                let here = first.max(mine.start)..end.min(mine.end);
                if here.is_empty() {
                    continue;
                }
                let out = &mut out[(here.start - mine.start) * m..];
                let mut right = Vec::with_capacity(here.len() * height);
                // Within a class: w p (1 - p).
                let own = &self.rows.own(c)[rows.clone()];
                here.clone()
                    .for_each(|k| extend_product(&mut right, column(k), own, 1.0));
                let below = Tall::new(&columns[here.start * stride..], stride, end - here.start);
                let tall = Tall::new(&right, height, here.len());
                add_transpose_product(below, tall, height, &mut out[here.start..], m);
                if end == m {
                    continue;
                }
                // Between two: -p w p.
                right.clear();
                let other = &self.rows.weighted(c)[rows.clone()];
                here.clone()
                    .for_each(|k| extend_product(&mut right, column(k), other, -1.0));
                let below = Tall::new(&left[end * height..], height, m - end);
                let tall = Tall::new(&right, height, here.len());
                add_transpose_product(below, tall, height, &mut out[end..], m);
            }
        });
    }

    /// `W_cd phi_d` of every function of `groups`, one after another, for one class c and all rows.
    fn spread_over(&self, c: usize, columns: &[f64], groups: &ByClass, out: &mut Vec<f64>) {
        let n = self.n();
        let mut cross = vec![0.0; n];
        for d in 0..self.n_classes {
            for (cross, (p, w)) in cross
                .iter_mut()
                .zip(self.rows.p(c).iter().zip(self.rows.weighted(d)))
            {
                *cross = -p * w;
            }
            let weights = if c == d { self.rows.own(c) } else { &cross };
            groups
                .of(d)
                .for_each(|k| extend_product(out, &columns[k * n..(k + 1) * n], weights, 1.0));
        }
    }
}

/// Sums of a pass over the design, for each class in turn, over original columns.
struct Pass {
    /// Squares, one vector of length K for each set of weights.
    diag: Vec<Vec<f64>>,
    /// Length K C.
    gradient: Vec<f64>,
    /// For each column on the right, of length K.
    products: Vec<Vec<f64>>,
}

impl Multinomial<'_> {
    /// One pass: squares under each of `n_weights` sets of weights, residuals, and products with columns on the `right`.
    fn pass(&self, weights: &[f64], n_weights: usize, right: &[f64]) -> Result<Pass> {
        let n = self.n();
        let n_right = right.len() / n;
        let residuals: Vec<&[f64]> = (0..self.n_classes).map(|c| self.rows.residual(c)).collect();
        let residuals = residuals.concat();
        let n_products = n_weights + self.n_classes + n_right;
        let sums = over_blocks(
            self.design,
            n_products,
            || self.check_cancel(),
            |block, diag, products| {
                let (rows, width) = (&block.rows, diag.len());
                let mut squares = Vec::with_capacity(width * rows.len());
                for c in 0..width {
                    squares.extend(block.values.column(c, rows.len()).iter().map(|v| v * v));
                }
                let squares = Tall::new(&squares, rows.len(), width);
                let values = Tall::new(block.values.data, block.values.stride, width);
                let mut products = products;
                for (left, right, count) in [
                    (squares, weights, n_weights),
                    (values, &residuals[..], self.n_classes),
                    (values, right, n_right),
                ] {
                    let (out, rest) = products.split_at_mut(count * width);
                    if count > 0 {
                        let right = Tall::new(&right[rows.start..], n, count);
                        add_transpose_product(left, right, rows.len(), out, width);
                    }
                    products = rest;
                }
            },
        )?;
        let mut diag = sums.products;
        let mut gradient = diag.split_off(n_weights);
        let products = gradient.split_off(self.n_classes);
        Ok(Pass {
            diag,
            gradient: gradient.concat(),
            products,
        })
    }

    /// Sums over original columns, turned into those over unit-norm columns; over K C functions or the K of one class.
    fn scaled(&self, sums: &[f64]) -> Vec<f64> {
        let unit = |(v, &norm): (&f64, &f64)| if norm > 0.0 { v / norm } else { 0.0 };
        sums.iter().zip(&self.norms).map(unit).collect()
    }
}

impl Statistics for Multinomial<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis() * self.n_classes
    }

    fn is_linear(&self) -> bool {
        false
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        1.0
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
        self.active_gradient(gradient);
        let (n, m) = (self.n(), active.len());
        let sum = sum_over_rows(n, m, |rows, out| {
            self.add_gram(&self.packed[rows.start..], n, &rows, &self.groups, out);
        });
        gram.view_mut((0, 0), (m, m))
            .copy_from(&self.groups.unsorted(sum));
        Ok(deviance)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        self.active_gradient(gradient);
        Ok(deviance)
    }

    /// The third derivatives of the log-sum-exp are the third central moments of the indicator of a class drawn from p:
    /// element (j, k) is `sum_n w_n sum_c p_c (T_cj - E T_j)^2 (T_ck - E T_k)`, the mean E under p_n.
    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        self.check_cancel()?;
        self.pack(active);
        let (n, m) = (self.n(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        let of_class = |c| sigma.select_rows(&self.groups.places()[self.groups.of(c)]);
        let sigmas: Vec<DMatrix<f64>> = (0..self.n_classes).map(of_class).collect();
        Ok(sum_over_rows(n, m, |rows, out| {
            let height = rows.len();
            let moved = |c: usize| {
                let group = self.groups.of(c);
                let phi = DMatrix::from_fn(height, group.len(), |i, k| {
                    self.packed[(group.start + k) * n + rows.start + i]
                });
                phi * &sigmas[c]
            };
            let mut moves: Vec<DMatrix<f64>> = (0..self.n_classes).map(moved).collect();
            let mut mean = DMatrix::zeros(height, m);
            for (c, t) in moves.iter().enumerate() {
                let p = &self.rows.p(c)[rows.clone()];
                mean += DMatrix::from_fn(height, m, |i, k| p[i] * t[(i, k)]);
            }
            for (c, t) in moves.iter_mut().enumerate() {
                *t -= &mean;
                let w = &self.rows.weighted(c)[rows.clone()];
                let squares = DMatrix::from_fn(height, m, |i, k| w[i] * t[(i, k)] * t[(i, k)]);
                let (a, b) = (squares.as_slice(), t.as_slice());
                let (a, b) = (Tall::new(a, height, m), Tall::new(b, height, m));
                add_transpose_product(a, b, height, out, m);
            }
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        if active.is_empty()
            && wanted.is_empty()
            && let Some(start) = self.start.take()
        {
            self.move_to(active, mu)?;
            return Ok(start);
        }
        let deviance = self.move_to(active, mu)?;
        let groups = ByClass::new(wanted, self.design.n_basis(), self.n_classes);
        let (mut columns, mut right) = (Vec::new(), Vec::new());
        self.columns
            .gather(self.design, &self.lengths, groups.functions(), &mut columns);
        for c in 0..self.n_classes {
            self.spread_over(c, &columns, &groups, &mut right);
        }
        let own: Vec<&[f64]> = (0..self.n_classes).map(|c| self.rows.own(c)).collect();
        let sums = self.pass(&own.concat(), self.n_classes, &right)?;
        let mut gram = vec![Vec::with_capacity(self.n_basis()); wanted.len()];
        for (k, product) in sums.products.iter().enumerate() {
            gram[groups.places()[k % wanted.len()]].extend(self.scaled(product));
        }
        Ok(Sweep {
            diag: self.scaled(&self.scaled(&sums.diag.concat())),
            gradient: self.scaled(&sums.gradient),
            gram,
            deviance,
        })
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        self.check_cancel()?;
        let groups = ByClass::new(js, self.design.n_basis(), self.n_classes);
        let m = js.len();
        let mut gram = DMatrix::zeros(m, m);
        // Most of a shortlist never enters the model, so its columns are not kept.
        let mut columns = Vec::new();
        let mut gradient = vec![0.0; m];
        for rows in pieces(self.n(), GRAM_ROWS) {
            let height = rows.len();
            columns_into(
                self.design,
                &self.lengths,
                groups.functions(),
                &rows,
                &mut columns,
            );
            self.add_gram(&columns, height, &rows, &groups, gram.as_mut_slice());
            for c in 0..self.n_classes {
                let residual = &self.rows.residual(c)[rows.clone()];
                for k in groups.of(c) {
                    let column = &columns[k * height..(k + 1) * height];
                    gradient[groups.places()[k]] += dot(column, residual);
                }
            }
        }
        Ok((groups.unsorted(gram), gradient))
    }
}

/// Appends `c a b`, element by element.
fn extend_product(out: &mut Vec<f64>, a: &[f64], b: &[f64], c: f64) {
    out.extend(a.iter().zip(b).map(|(a, b)| c * a * b));
}
