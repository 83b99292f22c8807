//! Rows in memory with class labels, and one linear predictor for each class.
//!
//! A softmax over C classes and K basis functions is a model with K C *expanded* functions: number `c K + j` adds
//! `phi_j` to the logit of class c. With `W_n = w_n (diag(p_n) - p_n p_n^T)`, the negative second derivatives of the
//! log-likelihood of row n in its C logits, the Gram matrix of (j, c) and (k, d) is `sum_n phi_nj W_n,cd phi_nk`, the full
//! block Hessian of Tipping (2001), section 3, for several classes; the gradient is `sum_n phi_nj w_n (y_nc - p_nc)`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::{
    ActiveColumns, columns_into_strips, divide_by_norms, lengths, unit_columns, unit_square,
};
use crate::data::column_cache::{
    GRAM_COLUMNS, GRAM_ROWS, ROW_BLOCK, Sums, over_blocks, sum_over_rows,
};
use crate::data::design::Design;
use crate::data::targets::{check_rows, total_weight};
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::linalg::Matrix;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot, mirror};
use crate::parallel::{fill_pieces_of, map_pieces, pieces};
use crate::{Error, Result};

/// Probabilities and derivatives at the linear predictors of all rows: a vector for each class.
///
/// With p the probabilities and w the sample weights, the negative second derivative of the log-likelihood of a row is
/// `w (diag(p) - p p^T)`: element (c, c) is `own`, and (c, d) is `-p_c weighted_d`.
#[derive(Debug, Default)]
struct SoftmaxRows {
    /// p of each class.
    p: Vec<Vec<f64>>,
    /// w p.
    weighted: Vec<Vec<f64>>,
    /// w p (1 - p).
    own: Vec<Vec<f64>>,
    /// w (y - p), where y is 1 for the rows of the class and 0 for others.
    residual: Vec<Vec<f64>>,
}

impl SoftmaxRows {
    /// Evaluates the rows; `eta(rows, out)` adds their linear predictors to zeros, class after class. Returns the deviance as well.
    fn at(
        labels: &[usize],
        weights: Option<&[f64]>,
        n_classes: usize,
        eta: impl Fn(Range<usize>, &mut [f64]) + Sync + Send,
    ) -> (Self, f64) {
        let parts = map_pieces(labels.len(), ROW_BLOCK, |rows| {
            let height = rows.len();
            let mut values = vec![0.0; n_classes * height];
            eta(rows.clone(), &mut values);
            let mut part = Self::zeros(height, n_classes);
            let mut row = vec![0.0; n_classes];
            let mut deviance = 0.0;
            for i in 0..height {
                let weight = weights.map_or(1.0, |w| w[rows.start + i]);
                for (c, value) in row.iter_mut().enumerate() {
                    *value = values[c * height + i];
                }
                deviance += weight * part.set(i, &mut row, labels[rows.start + i], weight);
            }
            (part, deviance)
        });
        let mut all = Self::zeros(0, n_classes);
        let mut deviance = 0.0;
        for (part, share) in parts {
            for (to, from) in [
                (&mut all.p, part.p),
                (&mut all.weighted, part.weighted),
                (&mut all.own, part.own),
                (&mut all.residual, part.residual),
            ] {
                for (to, from) in to.iter_mut().zip(from) {
                    to.extend(from);
                }
            }
            deviance += share;
        }
        (all, deviance)
    }

    fn zeros(n: usize, n_classes: usize) -> Self {
        let zeros = vec![vec![0.0; n]; n_classes];
        Self {
            p: zeros.clone(),
            weighted: zeros.clone(),
            own: zeros.clone(),
            residual: zeros,
        }
    }

    /// Sets row `i` and returns minus twice its log-likelihood; overwrites `eta`.
    fn set(&mut self, i: usize, eta: &mut [f64], label: usize, weight: f64) -> f64 {
        let top = (1..eta.len()).fold(0, |top, c| if eta[c] > eta[top] { c } else { top });
        let (highest, difference) = (eta[top], eta[top] - eta[label]);
        // Relative to the largest, so that nothing overflows; `rest` is the sum without the 1 of the largest.
        let mut rest = 0.0;
        for (c, value) in eta.iter_mut().enumerate() {
            *value = (*value - highest).exp();
            rest += if c == top { 0.0 } else { *value };
        }
        for (c, e) in eta.iter().enumerate() {
            let p = e / (1.0 + rest);
            // 1 - p without cancellation: only the largest can be near 1.
            let others = if c == top {
                rest / (1.0 + rest)
            } else {
                1.0 - p
            };
            self.p[c][i] = p;
            self.weighted[c][i] = weight * p;
            self.own[c][i] = weight * p * others;
            self.residual[c][i] = weight * if c == label { others } else { -p };
        }
        2.0 * (difference + rest.ln_1p())
    }
}

/// Class labels as integers, and the number of classes.
///
/// # Errors
/// [`Error::Invalid`] unless the labels are 0, 1, ..., at least two, and each has a row.
fn labels(target: &[f64]) -> Result<(Vec<usize>, usize)> {
    let mut labels = Vec::with_capacity(target.len());
    let mut seen = vec![false; target.len()];
    for &t in target {
        // Whole and in range, so the conversion is exact.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let label = (t.fract() == 0.0 && t >= 0.0 && t < target.len() as f64).then_some(t as usize);
        let Some(label) = label else { break };
        seen[label] = true;
        labels.push(label);
    }
    let n_classes = seen.iter().take_while(|&&s| s).count();
    if labels.len() < target.len() || n_classes < 2 || seen[n_classes..].contains(&true) {
        let what = "y must hold class numbers 0, 1, ..., each of them, two at least, on some row";
        return Err(Error::Invalid { what: what.into() });
    }
    Ok((labels, n_classes))
}

/// A list of expanded functions (`c * n_basis + j` adds function j to the logit of class c), sorted by class.
///
/// Invariant: `places` are positions in the list and `functions` the j of each; those of class c are at `bounds[c]..bounds[c + 1]` of
/// both.
#[derive(Debug, Default)]
struct ByClass {
    places: Vec<usize>,
    functions: Vec<usize>,
    bounds: Vec<usize>,
}

impl ByClass {
    fn new(list: &[usize], n_basis: usize, n_classes: usize) -> Self {
        let mut places: Vec<usize> = (0..list.len()).collect();
        places.sort_by_key(|&k| list[k] / n_basis);
        let bound = |c| places.partition_point(|&k| list[k] / n_basis < c);
        Self {
            functions: places.iter().map(|&k| list[k] % n_basis).collect(),
            bounds: (0..=n_classes).map(bound).collect(),
            places,
        }
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    /// The sorted positions of a class.
    fn of(&self, class: usize) -> Range<usize> {
        self.bounds[class]..self.bounds[class + 1]
    }

    /// A symmetric matrix in the order of the list, from its lower triangle in sorted order.
    fn unsorted(&self, mut sorted: Matrix) -> Matrix {
        mirror(&mut sorted);
        let m = self.len();
        let mut out = Matrix::zeros(m, m);
        for (b, &to) in self.places.iter().enumerate() {
            for (a, &from) in self.places.iter().enumerate() {
                out[(from, to)] = sorted[(a, b)];
            }
        }
        out
    }
}

impl SoftmaxRows {
    /// Adds the contribution of some rows to the lower triangle of the Gram matrix, in the order of `groups`; `columns` hold these rows
    /// only.
    fn add_gram(&self, columns: &[&[f64]], rows: &Range<usize>, groups: &ByClass, out: &mut [f64]) {
        let (m, height) = (groups.len(), rows.len());
        // Some columns times the weights of the rows, and a sign.
        let weighted = |these: Range<usize>, weights: &[f64], sign: f64| {
            let mut out = Vec::with_capacity(these.len() * height);
            for column in &columns[these] {
                extend_product(&mut out, column, &weights[rows.clone()], sign);
            }
            out
        };
        let left = (0..self.p.len()).map(|c| weighted(groups.of(c), &self.p[c], 1.0));
        let left: Vec<f64> = left.collect::<Vec<_>>().concat();
        fill_pieces_of(m * m * height, out, GRAM_COLUMNS * m, |start, out| {
            let mine = start / m..(start + out.len()) / m;
            for c in 0..self.p.len() {
                let Range { start: first, end } = groups.of(c);
                let here = first.max(mine.start)..end.min(mine.end);
                if here.is_empty() {
                    continue;
                }
                let out = &mut out[(here.start - mine.start) * m..];
                // Within a class: w p (1 - p).
                let right = weighted(here.clone(), &self.own[c], 1.0);
                let right = TallMatrix::new(&right, height, here.len());
                let below = TallMatrix::listed(&columns[here.start..end]);
                add_lower_transpose_product(below, right, height, &mut out[here.start..], m);
                if end == m {
                    continue;
                }
                // Between two classes: -p w p.
                let right = weighted(here.clone(), &self.weighted[c], -1.0);
                let right = TallMatrix::new(&right, height, here.len());
                let below = TallMatrix::new(&left[end * height..], height, m - end);
                add_transpose_product(below, right, height, &mut out[end..], m);
            }
        });
    }

    /// Appends `W_cd phi_d` of every function of `groups`, at all rows, for one class c.
    fn extend_weighted(
        &self,
        c: usize,
        columns: &[Cow<'_, [f64]>],
        groups: &ByClass,
        out: &mut Vec<f64>,
    ) {
        for d in 0..self.p.len() {
            let pairs = self.p[c].iter().zip(&self.weighted[d]);
            let cross: Vec<f64> = pairs.map(|(p, w)| -p * w).collect();
            let weights = if c == d { &self.own[c] } else { &cross };
            for column in &columns[groups.of(d)] {
                extend_product(out, column, weights, 1.0);
            }
        }
    }
}

/// Appends `c a b`, element by element.
fn extend_product(out: &mut Vec<f64>, a: &[f64], b: &[f64], c: f64) {
    out.extend(a.iter().zip(b).map(|(a, b)| c * a * b));
}

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
    /// The `mu` to which `rows` belong, and the deviance there.
    evaluation: Option<(Vec<f64>, f64)>,
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
            evaluation: None,
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

    fn n(&self) -> usize {
        self.labels.len()
    }

    /// One pass for the length of each column and the gradient of the empty model.
    fn measure(&mut self) -> Result<()> {
        let deviance = self.move_to(&[], &[])?;
        let ones = vec![1.0; self.n()];
        let weights = self.weights.as_ref().unwrap_or(&ones);
        let mut sums = self.pass(weights, &self.rows.residual.concat())?;
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
            self.evaluation = None;
        }
    }

    /// Brings `rows` to `mu` and returns the deviance.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.facts.check_cancelled()?;
        self.activate(active);
        if let Some((at, deviance)) = &self.evaluation
            && at == mu
        {
            return Ok(*deviance);
        }
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
        self.evaluation = Some((mu.to_vec(), deviance));
        Ok(deviance)
    }

    /// One pass over original columns. Returns vectors of length K: squares under each set of `weights`, and products with each column on the
    /// `right`.
    fn pass(&self, weights: &[f64], right: &[f64]) -> Result<Vec<Vec<f64>>> {
        let n = self.n();
        let (n_weights, n_right) = (weights.len() / n, right.len() / n);
        let check = || self.facts.check_cancelled();
        let n_products = n_weights + n_right;
        let sums = over_blocks(self.design, n_products, check, |block, diag, products| {
            let (start, height, width) = (block.rows.start, block.rows.len(), diag.len());
            let mut squares = Vec::with_capacity(width * height);
            for c in 0..width {
                squares.extend(block.values.column(c, height).iter().map(|v| v * v));
            }
            let squares = TallMatrix::new(&squares, height, width);
            let weights = TallMatrix::new(&weights[start..], n, n_weights);
            let (of_squares, products) = products.split_at_mut(n_weights * width);
            add_transpose_product(squares, weights, height, of_squares, width);
            let right = TallMatrix::new(&right[start..], n, n_right);
            block.add_products(right, products, width);
        })?;
        Ok(sums.products)
    }

    /// `T_ck - E T_k` of some rows for each class c, an N x m matrix: T = `Phi_A` Sigma, and the mean E is under p.
    fn deviations(&self, rows: &Range<usize>, sigma: &Matrix) -> Vec<Matrix> {
        let (m, height) = (self.groups.len(), rows.len());
        let (columns, sigma) = (self.columns.at(rows), sigma.view((0, 0), (m, m)));
        let t = |c: usize| {
            let group = self.groups.of(c);
            let phi = Matrix::from_fn(height, group.len(), |i, k| columns[group.start + k][i]);
            phi * sigma.select_rows(&self.groups.places[group])
        };
        let mut deviations: Vec<Matrix> = (0..self.n_classes).map(t).collect();
        let mut mean = Matrix::zeros(height, m);
        for (c, t) in deviations.iter().enumerate() {
            let p = &self.rows.p[c][rows.clone()];
            mean += Matrix::from_fn(height, m, |i, k| p[i] * t[(i, k)]);
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

    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        let m = active.len();
        let mut gradient = vec![0.0; m];
        let deviance = self.gradient(active, mu, &mut gradient)?[0];
        let sum = sum_over_rows(self.n(), ROW_BLOCK, m, |rows, out| {
            let columns = self.columns.at(&rows);
            self.rows.add_gram(&columns, &rows, &self.groups, out);
        });
        Ok((deviance, (self.groups.unsorted(sum), gradient)))
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
    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        self.move_to(active, mu)?;
        let (n, m) = (self.n(), active.len());
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let height = rows.len();
            for (c, t) in self.deviations(&rows, sigma).iter().enumerate() {
                let w = &self.rows.weighted[c][rows.clone()];
                let squares = Matrix::from_fn(height, m, |i, k| w[i] * t[(i, k)] * t[(i, k)]);
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
        let mut right = self.rows.residual.concat();
        for c in 0..self.n_classes {
            self.rows.extend_weighted(c, &columns, &groups, &mut right);
        }
        let own = self.rows.own.concat();
        let mut squares = self.pass(&own, &right)?;
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

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.move_to(active, mu)?;
        let groups = ByClass::new(js, self.design.n_basis(), self.n_classes);
        let m = js.len();
        let (mut gram, mut gradient) = (Matrix::zeros(m, m), vec![0.0; m]);
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
        Ok((groups.unsorted(gram), gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DenseDesign;

    fn at(eta: [f64; 3], label: usize) -> (SoftmaxRows, f64) {
        SoftmaxRows::at(&[label], Some(&[2.0]), 3, |_, out| {
            out.copy_from_slice(&eta);
        })
    }

    #[test]
    fn extreme_predictors_stay_finite_and_precise() {
        for label in 0..3 {
            let (rows, deviance) = at([-900.0, 40.0, 0.0], label);
            assert!(deviance.is_finite() && (0..3).all(|c| rows.own[c][0] >= 0.0));
            // 1 - p of the certain class, to full relative precision.
            assert!((rows.own[1][0] / (2.0 * (-40.0_f64).exp()) - 1.0).abs() < 1e-14);
        }
        let (_, deviance) = at([-900.0, 40.0, 0.0], 1);
        assert!((deviance / (4.0 * (-40.0_f64).exp()) - 1.0).abs() < 1e-14);
    }

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

    fn along(mu: &[f64], direction: &[f64], h: f64) -> Vec<f64> {
        mu.iter().zip(direction).map(|(m, d)| m + h * d).collect()
    }

    #[test]
    fn variance_drift_is_the_derivative_of_the_variances() {
        let design = design();
        let mut stats = stats(&design);
        let sigma_at = |stats: &mut SoftmaxStatistics<'_>, mu: &[f64]| {
            let (_, (gram, _)) = stats.local(&ACTIVE, mu).unwrap();
            let prior = Matrix::from_diagonal_element(5, 5, 0.3);
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
