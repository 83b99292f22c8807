//! Rows in memory with class labels, and one linear predictor for each class.
//!
//! A softmax over C classes and K basis functions is a model with K C *expanded* functions: number `c K + j` adds
//! `phi_j` to the logit of class c. With `W_n = w_n (diag(p_n) - p_n p_n^T)`, the negative second derivatives of the
//! log-likelihood of row n in its C logits, the Gram matrix of (j, c) and (k, d) is `sum_n phi_nj W_n,cd phi_nk`, the full
//! block Hessian of Tipping (2001), section 3, for several classes; the gradient is `sum_n phi_nj w_n (y_nc - p_nc)`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::column_cache::{
    ActiveColumns, columns_into_strips, divide_by_norms, lengths, unit_columns, unit_square,
};
use crate::data::design::Design;
use crate::data::observations::GRAM_ROWS;
use crate::data::row_blocks::{ROW_BLOCK, Sums, sum_over_rows};
use crate::data::softmax_rows::{SoftmaxRows, labels};
use crate::data::softmax_sums::ByClass;
use crate::data::targets::{check_rows, total_weight};
use crate::data::{Facts, Statistics, Sweep};
use crate::linalg::LowerTriangle;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot};
use crate::parallel::pieces;
use crate::{Error, Result};

/// [`Statistics`] of rows with class labels, under a softmax.
///
/// Invariant: `rows` holds probabilities and residuals at the latest `mu`; `groups` has the functions `active`, sorted by class, and
/// `columns` their columns in the same order.
pub struct SoftmaxStatistics<'a> {
    design: &'a dyn Design,
    labels: Vec<usize>,
    n_classes: usize,
    weights: Option<Vec<f64>>,
    /// The norms are those of the K C expanded functions.
    facts: Facts,
    /// Lengths of the K columns.
    lengths: Vec<f64>,
    columns: ActiveColumns,
    active: Vec<usize>,
    groups: ByClass,
    rows: SoftmaxRows,
    /// The pass at mu = 0, made together with the norms.
    start: Option<Sweep>,
}

impl<'a> SoftmaxStatistics<'a> {
    /// Joins a design with the class of each row and optional sample weights. Classes are 0, 1, ..., and each has at least one row.
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
            facts: Facts {
                n_obs: total_weight(labels.len(), weights.as_deref()),
                n_predictors: n_classes,
                is_linear: false,
                norms: Vec::new(),
                target_scale: 1.0,
                cancel: None,
            },
            labels,
            n_classes,
            weights,
            lengths: Vec::new(),
            columns: ActiveColumns::default(),
            active: Vec::new(),
            groups: ByClass::new(&[], design.n_basis(), n_classes),
            rows: SoftmaxRows::default(),
            start: None,
        };
        this.measure()?;
        Ok(this)
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.facts.cancel = Some(flag);
        self
    }

    /// C: the number of classes, and of linear predictors per row.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    fn n(&self) -> usize {
        self.labels.len()
    }

    /// One pass for the length of each column and the gradient of the empty model.
    fn measure(&mut self) -> Result<()> {
        let deviance = self.move_to(&[], &[])?;
        let ones = vec![1.0; self.n()];
        let weights = self.weights.as_ref().unwrap_or(&ones);
        let mut sums = self.pass((weights, 1), &[])?;
        self.lengths = lengths(&sums.remove(0))?;
        self.facts.norms = self.lengths.repeat(self.n_classes);
        // In the empty model all classes are equally likely.
        let p = 1.0 / self.n_classes as f64;
        let diag = |&norm: &f64| p * (1.0 - p) * unit_square(norm);
        let mut gradient = sums.concat();
        divide_by_norms(&mut gradient, &self.facts.norms);
        self.start = Some(Sweep {
            diag: self.facts.norms.iter().map(diag).collect(),
            gradient,
            gram: Vec::new(),
            deviances: vec![deviance],
        });
        Ok(())
    }

    /// Brings `columns` and `groups` to the active functions.
    fn activate(&mut self, active: &[usize]) {
        if self.active != active {
            self.groups = ByClass::new(active, self.design.n_basis(), self.n_classes);
            let functions = &self.groups.functions;
            self.columns
                .set_active(self.design, &self.lengths, functions);
            self.active = active.to_vec();
        }
    }

    /// Brings `rows` to `mu` and returns the deviance.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.facts.check_cancelled()?;
        self.activate(active);
        let eta = |rows: Range<usize>, eta: &mut [f64]| {
            let columns = self.columns.at(&rows);
            for (c, eta) in eta.chunks_exact_mut(rows.len()).enumerate() {
                for k in self.groups.of(c) {
                    axpy(mu[self.groups.places[k]], columns[k], eta);
                }
            }
        };
        let (rows, deviance) =
            SoftmaxRows::at(&self.labels, self.weights.as_deref(), self.n_classes, eta);
        self.rows = rows;
        Ok(deviance)
    }

    fn pass(&self, weights: (&[f64], usize), right: &[f64]) -> Result<Vec<Vec<f64>>> {
        let check = || self.facts.check_cancelled();
        self.rows.pass(self.design, check, weights, right)
    }

    /// `T_ck - E T_k` of some rows for each class c, an N x m matrix: T = `Phi_A` Sigma, and the mean E is under p.
    fn deviations(&self, rows: &Range<usize>, sigma: &DMatrix<f64>) -> Vec<DMatrix<f64>> {
        let (m, height) = (self.groups.len(), rows.len());
        let (columns, sigma) = (self.columns.at(rows), sigma.view((0, 0), (m, m)));
        let t = |c: usize| {
            let group = self.groups.of(c);
            let phi = DMatrix::from_fn(height, group.len(), |i, k| columns[group.start + k][i]);
            phi * sigma.select_rows(&self.groups.places[group])
        };
        let mut deviations: Vec<DMatrix<f64>> = (0..self.n_classes).map(t).collect();
        let mut mean = DMatrix::zeros(height, m);
        for (c, t) in deviations.iter().enumerate() {
            let p = &self.rows.p[c][rows.clone()];
            mean += DMatrix::from_fn(height, m, |i, k| p[i] * t[(i, k)]);
        }
        for t in &mut deviations {
            *t -= &mean;
        }
        deviations
    }
}

impl Statistics for SoftmaxStatistics<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
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
        let deviance = self.gradient(active, mu, gradient)?[0];
        let m = active.len();
        let sum = sum_over_rows(self.n(), ROW_BLOCK, m, |rows, out| {
            let columns = self.columns.at(&rows);
            self.rows.add_gram(&columns, &rows, &self.groups, out);
        });
        gram.view_mut((0, 0), (m, m))
            .copy_from(&self.groups.unsorted(sum));
        Ok(deviance)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let deviance = self.move_to(active, mu)?;
        let columns = self.columns.at(&(0..self.n()));
        for c in 0..self.n_classes {
            for k in self.groups.of(c) {
                gradient[self.groups.places[k]] = column_dot(columns[k], &self.rows.residual[c]);
            }
        }
        Ok(vec![deviance])
    }

    /// The third derivatives of the log-sum-exp are the third central moments of the indicator of a class drawn from p:
    /// element (j, k) is `sum_n w_n sum_c p_c (T_cj - E T_j)^2 (T_ck - E T_k)`, the mean E under p_n.
    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        self.move_to(active, mu)?;
        let (n, m) = (self.n(), active.len());
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let height = rows.len();
            for (c, t) in self.deviations(&rows, sigma).iter().enumerate() {
                let w = &self.rows.weighted[c][rows.clone()];
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
            && let Some(start) = &self.start
        {
            self.facts.check_cancelled()?;
            return Ok(start.clone());
        }
        let deviance = self.move_to(active, mu)?;
        let groups = ByClass::new(wanted, self.design.n_basis(), self.n_classes);
        let columns = self
            .columns
            .columns(self.design, &self.lengths, &groups.functions);
        let mut right = Vec::new();
        for c in 0..self.n_classes {
            self.rows.extend_weighted(c, &columns, &groups, &mut right);
        }
        let own = self.rows.own.concat();
        let mut squares = self.pass((&own, self.n_classes), &right)?;
        let mut gradient = squares.split_off(self.n_classes);
        let products = gradient.split_off(self.n_classes);
        let mut gram = vec![Vec::with_capacity(self.facts.n_basis()); wanted.len()];
        for (k, product) in products.into_iter().enumerate() {
            gram[groups.places[k % wanted.len()]].extend(product);
        }
        gram.push(gradient.concat());
        let sums = Sums {
            diag: squares.concat(),
            products: gram,
        };
        Ok(unit_columns(sums, &self.facts.norms, false, vec![deviance]))
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        self.move_to(active, mu)?;
        let groups = ByClass::new(js, self.design.n_basis(), self.n_classes);
        let m = js.len();
        let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
        // Most functions of a working set are never added to the model, so their columns are not kept.
        let mut strips = Vec::new();
        let (lengths, functions) = (&self.lengths, &groups.functions);
        for rows in pieces(self.n(), GRAM_ROWS) {
            let columns = columns_into_strips(self.design, lengths, functions, &rows, &mut strips);
            self.rows
                .add_gram(&columns, &rows, &groups, gram.as_mut_slice());
            for c in 0..self.n_classes {
                let residual = &self.rows.residual[c][rows.clone()];
                for k in groups.of(c) {
                    gradient[groups.places[k]] += column_dot(columns[k], residual);
                }
            }
        }
        Ok((LowerTriangle::of(&groups.unsorted(gram)), gradient))
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
    fn variance_drift_is_the_derivative_of_the_variances() {
        let design = design();
        let mut stats = stats(&design);
        let sigma_at = |stats: &mut SoftmaxStatistics<'_>, mu: &[f64]| {
            let (gram, ..) = local(stats, mu);
            let prior = DMatrix::from_diagonal_element(5, 5, 0.3);
            (gram + prior).try_inverse().unwrap()
        };
        let sigma = sigma_at(&mut stats, &MU);
        let drift = stats.variance_drift(&ACTIVE, &MU, &sigma).unwrap();
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
    fn a_sweep_agrees_with_the_gram_matrix_of_all_functions() {
        let design = design();
        let mut stats = stats(&design);
        for (active, mu) in [(&[][..], &[][..]), (&ACTIVE[..], &MU[..])] {
            let sweep = stats.sweep(active, mu, active).unwrap();
            let all: Vec<usize> = (0..K * CLASSES).rev().collect();
            let (gram, gradient) = stats.among(active, mu, &all).unwrap();
            let gram = gram.whole();
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
