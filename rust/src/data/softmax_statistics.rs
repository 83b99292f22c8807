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

use crate::data::class_index::ByClass;
use crate::data::column_cache::{Columns, columns_into, lengths};
use crate::data::design::Design;
use crate::data::observations::GRAM_ROWS;
use crate::data::row_blocks::{ROW_BLOCK, sum_over_rows};
use crate::data::softmax_rows::{Rows, labels};
use crate::data::softmax_sums::Pass;
use crate::data::targets::check_rows;
use crate::data::{Statistics, Sweep, check_flag};
use crate::linalg::aligned_columns::AlignedColumns;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot};
use crate::parallel::pieces;
use crate::{Error, Result};

/// [`Statistics`] of rows with class labels, under a softmax.
///
/// Between calls `rows` holds probabilities and residuals at the `mu` last asked about; `packed` the columns of the
/// functions in `groups`, those of `packed_for` sorted by class.
pub struct SoftmaxStatistics<'a> {
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

impl<'a> SoftmaxStatistics<'a> {
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
        let mut sums = self.pass((weights, 1), &[])?;
        let squares = sums.diag.pop().unwrap_or_default();
        self.lengths = lengths(&squares)?;
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

    fn pass(&self, weights: (&[f64], usize), right: &[f64]) -> Result<Pass> {
        self.rows
            .pass(self.design, || self.check_cancel(), weights, right)
    }

    /// Sums over original columns, turned into those over unit-norm columns; over K C functions or the K of one class.
    fn scaled(&self, sums: &[f64]) -> Vec<f64> {
        let unit = |(v, &norm): (&f64, &f64)| if norm > 0.0 { v / norm } else { 0.0 };
        sums.iter().zip(&self.norms).map(unit).collect()
    }

    /// `T_ck - E T_k` of some rows for each class c, an N x m matrix: T = `Phi_A` Sigma, and the mean E is under p.
    fn moves(&self, rows: &Range<usize>, sigma: &DMatrix<f64>) -> Vec<DMatrix<f64>> {
        let (n, m, height) = (self.n(), self.groups.len(), rows.len());
        let sigma = sigma.view((0, 0), (m, m));
        let moved = |c: usize| {
            let group = self.groups.of(c);
            let phi = DMatrix::from_fn(height, group.len(), |i, k| {
                self.packed[(group.start + k) * n + rows.start + i]
            });
            phi * sigma.select_rows(&self.groups.places()[group])
        };
        let mut moves: Vec<DMatrix<f64>> = (0..self.n_classes).map(moved).collect();
        let mut mean = DMatrix::zeros(height, m);
        for (c, t) in moves.iter().enumerate() {
            let p = &self.rows.p(c)[rows.clone()];
            mean += DMatrix::from_fn(height, m, |i, k| p[i] * t[(i, k)]);
        }
        for t in &mut moves {
            *t -= &mean;
        }
        moves
    }

    fn active_gradient(&self, gradient: &mut [f64]) {
        let n = self.n();
        for c in 0..self.n_classes {
            for k in self.groups.of(c) {
                let column = &self.packed[k * n..(k + 1) * n];
                gradient[self.groups.places()[k]] = column_dot(column, self.rows.residual(c));
            }
        }
    }
}

impl Statistics for SoftmaxStatistics<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis() * self.n_classes
    }

    fn n_predictors(&self) -> usize {
        self.n_classes
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
        let sum = sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            self.rows
                .add_gram(&self.packed[rows.start..], n, &rows, &self.groups, out);
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
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let height = rows.len();
            for (c, t) in self.moves(&rows, sigma).iter().enumerate() {
                let w = &self.rows.weighted(c)[rows.clone()];
                let squares = DMatrix::from_fn(height, m, |i, k| w[i] * t[(i, k)] * t[(i, k)]);
                let (a, b) = (squares.as_slice(), t.as_slice());
                let (a, b) = (TallMatrix::new(a, height, m), TallMatrix::new(b, height, m));
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
            self.rows.spread_over(c, &columns, &groups, &mut right);
        }
        let own: Vec<&[f64]> = (0..self.n_classes).map(|c| self.rows.own(c)).collect();
        let sums = self.pass((&own.concat(), self.n_classes), &right)?;
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
        let mut columns = AlignedColumns::default();
        let mut gradient = vec![0.0; m];
        for rows in pieces(self.n(), GRAM_ROWS) {
            let height = rows.len();
            let apart = columns_into(
                self.design,
                &self.lengths,
                groups.functions(),
                &rows,
                &mut columns,
            );
            self.rows
                .add_gram(&columns, apart, &rows, &groups, gram.as_mut_slice());
            for c in 0..self.n_classes {
                let residual = &self.rows.residual(c)[rows.clone()];
                for k in groups.of(c) {
                    let column = &columns[k * apart..][..height];
                    gradient[groups.places()[k]] += column_dot(column, residual);
                }
            }
        }
        Ok((groups.unsorted(gram), gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DenseDesign;

    const N: usize = 40;
    const K: usize = 5;
    const CLASSES: usize = 3;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    fn stats<'a>(design: &'a DenseDesign<'static>) -> SoftmaxStatistics<'a> {
        let target: Vec<f64> = (0..N).map(|i| ((i * i) % CLASSES) as f64).collect();
        let target: Vec<f64> = target
            .iter()
            .enumerate()
            .map(|(i, &t)| if i % 7 == 0 { 2.0 } else { t })
            .collect();
        let weights = (0..N).map(|i| 1.0 + 0.5 * wave(i, 0.7)).collect();
        SoftmaxStatistics::new(design, &target, Some(weights)).unwrap()
    }

    fn design() -> DenseDesign<'static> {
        let values: Vec<f64> = (0..N * K).map(|i| 3.0 * wave(i, 0.37)).collect();
        DenseDesign::new(values, N, K).unwrap()
    }

    /// Functions of all classes, not in order, one column in two classes.
    const ACTIVE: [usize; 5] = [12, 1, 7, 2, 6];
    const MU: [f64; 5] = [0.8, -1.5, 2.0, 0.3, -0.7];

    fn local(stats: &mut SoftmaxStatistics<'_>, mu: &[f64]) -> (DMatrix<f64>, Vec<f64>, f64) {
        let m = mu.len();
        let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
        let deviance = stats.local(&ACTIVE, mu, &mut gram, &mut gradient).unwrap();
        (gram, gradient, deviance)
    }

    fn along(mu: &[f64], direction: &[f64], h: f64) -> Vec<f64> {
        mu.iter().zip(direction).map(|(m, d)| m + h * d).collect()
    }

    #[test]
    fn gradient_and_gram_are_derivatives_of_the_deviance() {
        let design = design();
        let mut stats = stats(&design);
        let (gram, gradient, _) = local(&mut stats, &MU);
        for k in 0..MU.len() {
            let mut unit = [0.0; 5];
            unit[k] = 1.0;
            let (_, up, high) = local(&mut stats, &along(&MU, &unit, 1e-5));
            let (_, down, low) = local(&mut stats, &along(&MU, &unit, -1e-5));
            assert!((gradient[k] + (high - low) / 4e-5).abs() < 1e-8);
            for j in 0..MU.len() {
                assert!((gram[(j, k)] + (up[j] - down[j]) / 2e-5).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn the_drift_is_how_variances_answer_to_the_mode() {
        let design = design();
        let mut stats = stats(&design);
        let sigma_at = |stats: &mut SoftmaxStatistics<'_>, mu: &[f64]| {
            let (gram, ..) = local(stats, mu);
            let prior = DMatrix::from_diagonal_element(5, 5, 0.3);
            (gram + prior).try_inverse().unwrap()
        };
        let sigma = sigma_at(&mut stats, &MU);
        let drift = stats.variance_drift(&ACTIVE, &sigma).unwrap();
        for k in 0..MU.len() {
            let column = sigma.column(k).clone_owned();
            let up = sigma_at(&mut stats, &along(&MU, column.as_slice(), 1e-5));
            let down = sigma_at(&mut stats, &along(&MU, column.as_slice(), -1e-5));
            for j in 0..MU.len() {
                let change = (up[(j, j)] - down[(j, j)]) / 2e-5;
                assert!(
                    (drift[(j, k)] + change).abs() < 1e-7 * (1.0 + change.abs()),
                    "{j} {k}: {} {change}",
                    drift[(j, k)]
                );
            }
        }
    }

    #[test]
    fn a_sweep_says_of_all_functions_what_is_said_among_them() {
        let design = design();
        let mut stats = stats(&design);
        for (active, mu) in [(&[][..], &[][..]), (&ACTIVE[..], &MU[..])] {
            let sweep = stats.sweep(active, mu, active).unwrap();
            let all: Vec<usize> = (0..stats.n_basis()).rev().collect();
            let (gram, gradient) = stats.among(&all).unwrap();
            for (a, &i) in all.iter().enumerate() {
                assert!((sweep.diag[i] - gram[(a, a)]).abs() < 1e-12);
                assert!((sweep.gradient[i] - gradient[a]).abs() < 1e-12);
                for (column, &j) in sweep.gram.iter().zip(active) {
                    let b = all.len() - 1 - j;
                    assert!((column[i] - gram[(a, b)]).abs() < 1e-12);
                }
            }
        }
    }
}
