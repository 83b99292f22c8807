//! The posterior variance of linear predictors, phi^T Sigma phi: equation (22) of Tipping (2001).
//!
//! Each form is there twice, for one row and for rows side by side. Both add the same terms in the same order, so that a
//! row's bits do not depend on the rows about it.

use crate::likelihood::probit::packed;
use crate::linalg::simd::{Simd, WithSimd, dispatch};

/// `y += c x`.
#[inline(always)]
#[allow(clippy::inline_always)] // compiled for the instruction set of its caller
pub(crate) fn axpy(c: f64, x: &[f64], y: &mut [f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += c * x);
}

/// Functions at some rows: function j at row r is `values[j * rows + r]`.
#[derive(Clone, Copy)]
pub(crate) struct Functions<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) rows: usize,
    /// Which of them there are, where it is not all.
    pub(crate) chosen: Option<&'a [usize]>,
}

impl<'a> Functions<'a> {
    pub(crate) fn column(&self, k: usize) -> &'a [f64] {
        let j = self.chosen.map_or(k, |chosen| chosen[k]);
        &self.values[j * self.rows..][..self.rows]
    }
}

/// A quadratic form: the lower triangle of Sigma column after column, what lies above added to it.
#[derive(Debug, Clone)]
pub(crate) struct Folded {
    size: usize,
    values: Vec<f64>,
}

impl Folded {
    /// Of a matrix given row by row.
    pub(crate) fn new(matrix: &[f64], size: usize) -> Self {
        let mut values = Vec::with_capacity(size * (size + 1) / 2);
        for j in 0..size {
            values.push(matrix[j * size + j]);
            values.extend((j + 1..size).map(|i| matrix[i * size + j] + matrix[j * size + i]));
        }
        Self { size, values }
    }

    /// Of the functions at one row; `work` has room for as many.
    fn at_row(&self, phi: &[f64], work: &mut [f64]) -> f64 {
        dispatch(RowForm {
            form: self,
            phi,
            work: &mut work[..self.size],
        })
    }

    /// Adds the form at each row to `out`; `work` has room for as many rows.
    fn at_rows(&self, phi: Functions<'_>, work: &mut [f64], out: &mut [f64]) {
        dispatch(RowsForm {
            form: self,
            phi,
            work: &mut work[..phi.rows],
            out,
        });
    }
}

struct RowForm<'a> {
    form: &'a Folded,
    phi: &'a [f64],
    work: &'a mut [f64],
}

impl WithSimd for RowForm<'_> {
    type Output = f64;

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        self.work.fill(0.0);
        let mut rest = self.form.values.as_slice();
        for (j, &phi) in self.phi.iter().enumerate() {
            let (column, after) = rest.split_at(self.form.size - j);
            axpy(phi, column, &mut self.work[j..]);
            rest = after;
        }
        let terms = self.work.iter().zip(self.phi);
        terms.fold(0.0, |sum, (t, phi)| sum + t * phi).max(0.0)
    }
}

struct RowsForm<'a> {
    form: &'a Folded,
    phi: Functions<'a>,
    work: &'a mut [f64],
    out: &'a mut [f64],
}

impl WithSimd for RowsForm<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        self.out.fill(0.0);
        for i in 0..self.form.size {
            self.work.fill(0.0);
            let mut at = i;
            for j in 0..=i {
                axpy(self.form.values[at], self.phi.column(j), self.work);
                at += self.form.size - j - 1;
            }
            let column = self.phi.column(i);
            for ((out, t), phi) in self.out.iter_mut().zip(self.work.iter()).zip(column) {
                *out += t * phi;
            }
        }
        // Rounding can leave a tiny negative where there is next to no variance.
        self.out.iter_mut().for_each(|v| *v = v.max(0.0));
    }
}

/// The covariance of all weights of several linear predictors, one predictor after another.
#[derive(Debug, Clone)]
pub(crate) struct Joint {
    /// Where the weights of each predictor begin, and the end of the last.
    starts: Vec<usize>,
    /// Column after column.
    values: Vec<f64>,
}

impl Joint {
    /// Of a matrix given row by row, and the number of weights of each predictor.
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

    fn size(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn n_outputs(&self) -> usize {
        self.starts.len() - 1
    }

    /// The covariances of the predictors at one row, as [`packed`] counts them; `psi` are the functions of all weights.
    fn at_row(&self, psi: &[f64], work: &mut [f64], out: &mut [f64]) {
        dispatch(RowPairs {
            joint: self,
            psi,
            work: &mut work[..self.size()],
            out,
        });
    }

    /// The same for rows side by side: `psi(i)` is the function of weight i at all rows; pair p at row r is
    /// `out[p * rows + r]`.
    fn at_rows<'a>(
        &self,
        rows: usize,
        psi: impl Fn(usize) -> &'a [f64],
        work: &mut [f64],
        out: &mut [f64],
    ) {
        out.fill(0.0);
        let size = self.size();
        for d in 0..self.n_outputs() {
            for c in 0..=d {
                let to = &mut out[packed(d, c) * rows..][..rows];
                for i in self.starts[c]..self.starts[c + 1] {
                    let columns = self.starts[d]..self.starts[d + 1];
                    let terms = columns.map(|j| (self.values[j * size + i], psi(j)));
                    dispatch(Weighted {
                        terms,
                        by: psi(i),
                        work: &mut work[..rows],
                        out: to,
                    });
                }
            }
        }
    }
}

struct RowPairs<'a> {
    joint: &'a Joint,
    psi: &'a [f64],
    work: &'a mut [f64],
    out: &'a mut [f64],
}

impl WithSimd for RowPairs<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        let (joint, size) = (self.joint, self.joint.size());
        for d in 0..joint.n_outputs() {
            let end = joint.starts[d + 1];
            let work = &mut self.work[..end];
            work.fill(0.0);
            for j in joint.starts[d]..end {
                axpy(self.psi[j], &joint.values[j * size..][..end], work);
            }
            for c in 0..=d {
                let range = joint.starts[c]..joint.starts[c + 1];
                let terms = work[range.clone()].iter().zip(&self.psi[range]);
                self.out[packed(d, c)] = terms.fold(0.0, |sum, (t, psi)| sum + t * psi);
            }
        }
    }
}

/// `out += by * sum_j c_j x_j`, row by row.
struct Weighted<'a, I> {
    terms: I,
    by: &'a [f64],
    work: &'a mut [f64],
    out: &'a mut [f64],
}

impl<'a, I: Iterator<Item = (f64, &'a [f64])>> WithSimd for Weighted<'_, I> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        self.work.fill(0.0);
        for (c, x) in self.terms {
            axpy(c, x, self.work);
        }
        for ((out, t), by) in self.out.iter_mut().zip(self.work.iter()).zip(self.by) {
            *out += t * by;
        }
    }
}

/// Directions of independent uncertainty: the variance is the sum of the squared projections on them.
#[derive(Debug, Clone)]
pub(crate) struct Directions {
    n_directions: usize,
    /// Function after function.
    values: Vec<f64>,
}

impl Directions {
    pub(crate) fn new(values: &[f64], n_directions: usize) -> Self {
        Self {
            n_directions,
            values: values.to_vec(),
        }
    }

    fn at_row(&self, phi: &[f64], work: &mut [f64]) -> f64 {
        let work = &mut work[..self.n_directions];
        work.fill(0.0);
        let rows = self.values.chunks_exact(self.n_directions.max(1));
        for (phi, row) in phi.iter().zip(rows) {
            dispatch(|| axpy(*phi, row, work));
        }
        work.iter().fold(0.0, |sum, t| sum + t * t)
    }

    fn at_rows(&self, phi: Functions<'_>, work: &mut [f64], out: &mut [f64]) {
        let (p, work) = (self.n_directions, &mut work[..phi.rows]);
        out.fill(0.0);
        for k in 0..p {
            work.fill(0.0);
            for j in 0..self.values.len() / p {
                dispatch(|| axpy(self.values[j * p + k], phi.column(j), work));
            }
            out.iter_mut()
                .zip(work.iter())
                .for_each(|(v, t)| *v += t * t);
        }
    }
}

/// The uncertainty of the weights, in the form that serves it best.
#[derive(Debug, Clone)]
pub(crate) enum Spread {
    None,
    /// One covariance for every output; all use the same functions.
    Shared(Folded),
    /// One for each output.
    Each(Vec<Folded>),
    Joint(Joint),
    Directions(Directions),
}

impl Spread {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Numbers that say the spread of `n_outputs` predictors at a row: variances, or covariances of pairs.
    pub(crate) fn width(&self, n_outputs: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Shared(_) | Self::Each(_) | Self::Directions(_) => n_outputs,
            Self::Joint(_) => packed(n_outputs, 0),
        }
    }

    /// Room that [`Spread::at_row`] needs, for outputs of so many weights in all.
    pub(crate) fn work(&self, n_weights: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Directions(directions) => directions.n_directions,
            Self::Shared(_) | Self::Each(_) | Self::Joint(_) => n_weights,
        }
    }

    /// At one row. `psi`: the functions of all weights, one output after another, each beginning at its `starts`.
    pub(crate) fn at_row(&self, psi: &[f64], starts: &[usize], work: &mut [f64], out: &mut [f64]) {
        let of = |c: usize| &psi[starts[c]..starts[c + 1]];
        match self {
            Self::None => {}
            Self::Shared(form) => out.fill(form.at_row(of(0), work)),
            Self::Each(forms) => {
                for (c, (form, out)) in forms.iter().zip(out).enumerate() {
                    *out = form.at_row(of(c), work);
                }
            }
            Self::Joint(joint) => joint.at_row(psi, work, out),
            Self::Directions(directions) => out.fill(directions.at_row(of(0), work)),
        }
    }

    /// At rows side by side; `of(c)` are the functions of output c. `work`: a number for each row.
    pub(crate) fn at_rows<'a>(
        &self,
        rows: usize,
        starts: &[usize],
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
            Self::Joint(joint) => {
                let psi = |weight: usize| {
                    let c = starts.partition_point(|&start| start <= weight) - 1;
                    of(c).column(weight - starts[c])
                };
                joint.at_rows(rows, psi, work, out);
            }
            Self::Directions(directions) => {
                directions.at_rows(of(0), work, &mut out[..rows]);
                repeat(rows, out);
            }
        }
    }
}

/// Gives every output the numbers of the first.
fn repeat(rows: usize, out: &mut [f64]) {
    let (first, others) = out.split_at_mut(rows);
    others
        .chunks_exact_mut(rows)
        .for_each(|other| other.copy_from_slice(first));
}
