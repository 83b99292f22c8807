//! The posterior variance of linear predictors, phi^T Sigma phi: equation (22) of Tipping (2001).
//!
//! The terms of a row are added in the same order whatever the number of rows, so that the bits of a row do not depend on
//! other rows.

use crate::likelihood::probit::packed;
use crate::linalg::simd::{Simd, WithSimd, axpy, dispatch};

/// Basis functions at a batch of rows: function j at row r is `values[j * rows + r]`.
#[derive(Clone, Copy)]
pub(crate) struct Functions<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) rows: usize,
    /// Indices of the functions used; `None`: all of them.
    pub(crate) chosen: Option<&'a [usize]>,
}

impl<'a> Functions<'a> {
    pub(crate) fn column(&self, k: usize) -> &'a [f64] {
        let j = self.chosen.map_or(k, |chosen| chosen[k]);
        &self.values[j * self.rows..][..self.rows]
    }
}

/// A quadratic form: the lower triangle of Sigma + Sigma^T, column-major, with the diagonal of Sigma.
#[derive(Debug, Clone)]
pub(crate) struct QuadraticForm {
    size: usize,
    values: Vec<f64>,
}

impl QuadraticForm {
    /// From a row-major matrix.
    pub(crate) fn new(matrix: &[f64], size: usize) -> Self {
        let mut values = Vec::with_capacity(size * (size + 1) / 2);
        for j in 0..size {
            values.push(matrix[j * size + j]);
            values.extend((j + 1..size).map(|i| matrix[i * size + j] + matrix[j * size + i]));
        }
        Self { size, values }
    }

    /// The form and its gradient in phi, (Sigma + Sigma^T) phi.
    fn with_gradient(&self, phi: &[f64]) -> (f64, Vec<f64>) {
        let (mut gradient, mut rest) = (vec![0.0; self.size], self.values.as_slice());
        for j in 0..self.size {
            let (column, after) = rest.split_at(self.size - j);
            gradient[j] += 2.0 * column[0] * phi[j];
            for (i, s) in (j + 1..).zip(&column[1..]) {
                gradient[i] += s * phi[j];
                gradient[j] += s * phi[i];
            }
            rest = after;
        }
        let value = gradient.iter().zip(phi).map(|(g, p)| 0.5 * g * p).sum();
        (value, gradient)
    }

    /// The form at each row; `work` has at least as many elements as there are rows, or functions.
    fn at_rows(&self, phi: Functions<'_>, work: &mut [f64], out: &mut [f64]) {
        if let (1, None) = (phi.rows, phi.chosen) {
            out[0] = self.at_row(&phi.values[..self.size], &mut work[..self.size]);
        } else {
            let work = &mut work[..phi.rows];
            out.fill(0.0);
            for i in 0..self.size {
                let row = (0..=i).scan(i, |at, j| {
                    let term = (self.values[*at], phi.column(j));
                    *at += self.size - j - 1;
                    Some(term)
                });
                combine(row, work);
                add_product(work, phi.column(i), out);
            }
        }
        // Rounding can make a tiny variance negative.
        for v in out {
            *v = v.max(0.0);
        }
    }

    /// The form at one row, with loops over the functions.
    fn at_row(&self, phi: &[f64], work: &mut [f64]) -> f64 {
        work.fill(0.0);
        let mut rest = self.values.as_slice();
        for (j, &phi) in phi.iter().enumerate() {
            let (column, after) = rest.split_at(self.size - j);
            dispatch(|| axpy(phi, column, &mut work[j..]));
            rest = after;
        }
        let terms = work.iter().zip(phi);
        terms.fold(0.0, |sum, (t, phi)| sum + t * phi)
    }
}

/// The joint covariance of the weights of all linear predictors, one predictor after another.
#[derive(Debug, Clone)]
pub(crate) struct Joint {
    /// First weight of each predictor, and the number of weights.
    starts: Vec<usize>,
    /// Column-major.
    values: Vec<f64>,
}

impl Joint {
    /// From a row-major matrix and the number of weights of each predictor.
    pub(crate) fn new(matrix: &[f64], sizes: impl Iterator<Item = usize>) -> Self {
        let mut starts = vec![0];
        starts.extend(sizes.scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        }));
        let size = starts.last().copied().unwrap_or(0);
        let symmetric = |i: usize, j: usize| 0.5 * (matrix[i * size + j] + matrix[j * size + i]);
        let values = (0..size * size).map(|at| symmetric(at % size, at / size));
        Self {
            values: values.collect(),
            starts,
        }
    }

    /// The covariances of the predictors at each row in [`packed`] order: pair p at row r is `out[p * rows + r]`. `of(c)` returns
    /// the basis functions of output c.
    fn at_rows<'a>(&self, of: impl Fn(usize) -> Functions<'a>, work: &mut [f64], out: &mut [f64]) {
        out.fill(0.0);
        let size = self.starts.last().copied().unwrap_or(0);
        for d in 0..self.starts.len() - 1 {
            let right = of(d);
            for c in 0..=d {
                let (left, rows) = (of(c), right.rows);
                let to = &mut out[packed(d, c) * rows..][..rows];
                for i in self.starts[c]..self.starts[c + 1] {
                    let first = self.starts[d];
                    let term = |j: usize| (self.values[j * size + i], right.column(j - first));
                    combine((first..self.starts[d + 1]).map(term), &mut work[..rows]);
                    add_product(&work[..rows], left.column(i - self.starts[c]), to);
                }
            }
        }
    }
}

/// `sum = sum_j c_j x_j` for each row.
pub(crate) fn combine<'a>(terms: impl Iterator<Item = (f64, &'a [f64])>, sum: &mut [f64]) {
    // One row: a dispatch takes longer than the sum.
    if let [one] = sum {
        *one = terms.fold(0.0, |sum, (c, x)| sum + c * x[0]);
    } else {
        dispatch(Combination { terms, sum });
    }
}

struct Combination<'s, I> {
    terms: I,
    sum: &'s mut [f64],
}

impl<'a, I: Iterator<Item = (f64, &'a [f64])>> WithSimd for Combination<'_, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.sum.fill(0.0);
        for (c, x) in self.terms {
            axpy(c, x, self.sum);
        }
    }
}

/// `out += a b`, element by element.
fn add_product(a: &[f64], b: &[f64], out: &mut [f64]) {
    dispatch(|| {
        for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
            *out += a * b;
        }
    });
}

/// A covariance as a sum over directions: the variance is the sum of the squared projections on them.
#[derive(Debug, Clone)]
pub(crate) struct Directions {
    n_directions: usize,
    /// Row-major: the directions of one function after another.
    values: Vec<f64>,
}

impl Directions {
    pub(crate) fn new(values: &[f64], n_directions: usize) -> Self {
        Self {
            // A table without rows may claim any number of columns.
            n_directions: if values.is_empty() { 0 } else { n_directions },
            values: values.to_vec(),
        }
    }

    /// The variance and its gradient in phi.
    fn with_gradient(&self, phi: &[f64]) -> (f64, Vec<f64>) {
        let (mut value, mut gradient) = (0.0, vec![0.0; phi.len()]);
        for k in 0..self.n_directions {
            let own = |j: usize| self.values[j * self.n_directions + k];
            let along: f64 = phi.iter().enumerate().map(|(j, p)| own(j) * p).sum();
            value += along * along;
            for (j, g) in gradient.iter_mut().enumerate() {
                *g += 2.0 * along * own(j);
            }
        }
        (value, gradient)
    }

    fn at_rows(&self, phi: Functions<'_>, work: &mut [f64], out: &mut [f64]) {
        let (p, work) = (self.n_directions, &mut work[..phi.rows]);
        out.fill(0.0);
        for k in 0..p {
            let term = |j: usize| (self.values[j * p + k], phi.column(j));
            combine((0..self.values.len() / p).map(term), work);
            add_product(work, work, out);
        }
    }
}

/// The covariance of the weights in one of the forms of a header.
#[derive(Debug, Clone)]
pub(crate) enum WeightCovariance {
    None,
    /// One covariance for all outputs, which have the same basis functions.
    Shared(QuadraticForm),
    /// One covariance for each output.
    Each(Vec<QuadraticForm>),
    Joint(Joint),
    Directions(Directions),
}

impl WeightCovariance {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Variances per row, or covariances of pairs in the joint form.
    pub(crate) fn width(&self, n_outputs: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Shared(_) | Self::Each(_) | Self::Directions(_) => n_outputs,
            Self::Joint(_) => packed(n_outputs, 0),
        }
    }

    /// The variance of the linear predictor of output c with these functions, and its gradient in them; 0 for a joint covariance.
    pub(crate) fn with_gradient(&self, c: usize, phi: &[f64]) -> (f64, Vec<f64>) {
        match self {
            Self::None | Self::Joint(_) => (0.0, vec![0.0; phi.len()]),
            Self::Shared(form) => form.with_gradient(phi),
            Self::Each(forms) => forms[c].with_gradient(phi),
            Self::Directions(directions) => directions.with_gradient(phi),
        }
    }

    /// Variances at each row. `of(c)` returns the basis functions of output c; `work` has at least as many elements as there are
    /// rows, or functions.
    pub(crate) fn at_rows<'a>(
        &self,
        rows: usize,
        of: impl Fn(usize) -> Functions<'a>,
        work: &mut [f64],
        out: &mut [f64],
    ) {
        match self {
            Self::None => {}
            Self::Shared(form) => {
                form.at_rows(of(0), work, &mut out[..rows]);
                repeat(rows, out);
            }
            Self::Each(forms) => {
                for (c, form) in forms.iter().enumerate() {
                    form.at_rows(of(c), work, &mut out[c * rows..][..rows]);
                }
            }
            Self::Joint(joint) => joint.at_rows(of, work, out),
            Self::Directions(directions) => {
                directions.at_rows(of(0), work, &mut out[..rows]);
                repeat(rows, out);
            }
        }
    }
}

/// The Cholesky factor L of a kernel matrix: the lower triangle, column-major, with the inverse of the diagonal.
#[derive(Debug, Clone)]
pub(crate) struct Factor {
    size: usize,
    values: Vec<f64>,
}

impl Factor {
    /// From the rows of the lower triangle.
    pub(crate) fn new(rows: &[f64], size: usize) -> Self {
        let at = |i: usize, j: usize| rows[i * (i + 1) / 2 + j];
        let mut values = Vec::with_capacity(rows.len());
        for j in 0..size {
            values.push(1.0 / at(j, j));
            values.extend((j + 1..size).map(|i| at(i, j)));
        }
        Self { size, values }
    }

    pub(crate) fn len(&self) -> usize {
        self.size
    }

    /// Replaces k by `K^-1 k` with `K = L L^T`, and returns `k^T K^-1 k`.
    pub(crate) fn solve(&self, k: &mut [f64]) -> f64 {
        let mut explained = 0.0;
        let mut rest = self.values.as_slice();
        for j in 0..self.size {
            let (column, after) = rest.split_at(self.size - j);
            k[j] *= column[0];
            explained += k[j] * k[j];
            axpy(-k[j], &column[1..], &mut k[j + 1..]);
            rest = after;
        }
        let mut end = self.values.len();
        for j in (0..self.size).rev() {
            let column = &self.values[end - (self.size - j)..end];
            let below = column[1..].iter().zip(&k[j + 1..]);
            k[j] = column[0] * (k[j] - below.map(|(l, y)| l * y).sum::<f64>());
            end -= self.size - j;
        }
        explained
    }

    /// `out -= |L^-1 k|^2` at each row, by forward substitution in `k`: element i at row r is `k[i * rows + r]`.
    pub(crate) fn subtract_squares(&self, mut k: &mut [f64], out: &mut [f64]) {
        let (rows, mut rest) = (out.len(), self.values.as_slice());
        for j in 0..self.size {
            let (column, after) = rest.split_at(self.size - j);
            let (pivot, below) = k.split_at_mut(rows);
            dispatch(|| {
                for (out, y) in out.iter_mut().zip(&mut *pivot) {
                    *y *= column[0];
                    *out -= *y * *y;
                }
                if let [y] = *pivot {
                    axpy(-y, &column[1..], below);
                } else {
                    let targets = below.chunks_exact_mut(rows).zip(&column[1..]);
                    targets.for_each(|(to, l)| axpy(-l, pivot, to));
                }
            });
            (k, rest) = (below, after);
        }
    }
}

/// Copies the values of the first output to all others.
fn repeat(rows: usize, out: &mut [f64]) {
    let (first, others) = out.split_at_mut(rows);
    others
        .chunks_exact_mut(rows)
        .for_each(|other| other.copy_from_slice(first));
}
