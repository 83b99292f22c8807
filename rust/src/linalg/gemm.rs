//! Products of tall column-major matrices: A^T B, in every pass over a design, and A W, weighted sums of columns.
//!
//! Each element of A^T B is an inner product of two columns. The sums of a few columns of A and B stay in registers, so
//! no packing is needed, and a run of rows stays in the cache. Every element goes through the same operations wherever it
//! lies in the product.

use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::linalg::vector::axpy;
use crate::parallel::fill_pieces;

/// Rows per run: a few dozen columns of this height fit into the second-level cache.
pub(crate) const RUN: usize = 512;

/// A matrix of `n` rows, column after column.
#[derive(Clone, Copy)]
pub(crate) struct TallMatrix<'a> {
    columns: Columns<'a>,
    n_columns: usize,
}

/// Where the columns are stored.
#[derive(Clone, Copy)]
enum Columns<'a> {
    /// In one slice, with this distance between their starts.
    Strided(&'a [f64], usize),
    /// As separate slices.
    Listed(&'a [&'a [f64]]),
}

impl<'a> TallMatrix<'a> {
    /// The first `n_columns` columns in `values`.
    pub(crate) fn new(values: &'a [f64], stride: usize, n_columns: usize) -> Self {
        Self {
            columns: Columns::Strided(values, stride),
            n_columns,
        }
    }

    /// A matrix of separately stored columns.
    pub(crate) fn listed(columns: &'a [&'a [f64]]) -> Self {
        Self {
            columns: Columns::Listed(columns),
            n_columns: columns.len(),
        }
    }

    /// All columns, at these rows.
    pub(crate) fn columns(&self, rows: &std::ops::Range<usize>) -> Vec<&'a [f64]> {
        (0..self.n_columns).map(|j| self.column(j, rows)).collect()
    }

    fn column(&self, j: usize, rows: &std::ops::Range<usize>) -> &'a [f64] {
        match self.columns {
            Columns::Strided(values, stride) => {
                &values[j * stride + rows.start..j * stride + rows.end]
            }
            Columns::Listed(columns) => &columns[j][rows.clone()],
        }
    }
}

/// `out += A^T B` over the first `n` rows; `out` is column-major, its columns `out_stride` apart.
///
/// # Panics
/// If a slice is too short for its shape.
pub(crate) fn add_transpose_product(
    a: TallMatrix<'_>,
    b: TallMatrix<'_>,
    n: usize,
    out: &mut [f64],
    out_stride: usize,
) {
    add_product(false, (a, b), n, out, out_stride);
}

/// [`add_transpose_product`] for the elements on and below the diagonal. Elements above it have no meaning.
///
/// # Panics
/// As [`add_transpose_product`].
pub(crate) fn add_lower_transpose_product(
    a: TallMatrix<'_>,
    b: TallMatrix<'_>,
    n: usize,
    out: &mut [f64],
    out_stride: usize,
) {
    add_product(true, (a, b), n, out, out_stride);
}

/// The product, or its lower triangle, one run of rows after another.
fn add_product(
    is_lower: bool,
    (a, b): (TallMatrix<'_>, TallMatrix<'_>),
    n: usize,
    out: &mut [f64],
    out_stride: usize,
) {
    for start in (0..n).step_by(RUN) {
        dispatch(Run {
            is_lower,
            a,
            b,
            rows: start..(start + RUN).min(n),
            out,
            out_stride,
        });
    }
}

/// Columns of A and of B in a tile, whose sums fill 16 registers.
const P: usize = 4;
const R: usize = 3;

struct Run<'a> {
    is_lower: bool,
    a: TallMatrix<'a>,
    b: TallMatrix<'a>,
    rows: std::ops::Range<usize>,
    out: &'a mut [f64],
    out_stride: usize,
}

impl WithSimd for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self {
            is_lower,
            a,
            b,
            rows,
            out,
            out_stride,
        } = self;
        for i in (0..a.n_columns).step_by(P) {
            // A tile that crosses the border repeats the last column and discards its sums.
            let left: [&[f64]; P] =
                std::array::from_fn(|k| a.column((i + k).min(a.n_columns - 1), &rows));
            let n_right = if is_lower { i + P } else { usize::MAX }.min(b.n_columns);
            for j in (0..n_right).step_by(R) {
                let right: [&[f64]; R] =
                    std::array::from_fn(|k| b.column((j + k).min(n_right - 1), &rows));
                let mut sums = [[0.0; P]; R];
                match n_right - j {
                    1 => sums[..1].copy_from_slice(&tile(simd, left, [right[0]])),
                    2 => sums[..2].copy_from_slice(&tile(simd, left, [right[0], right[1]])),
                    _ => sums = tile(simd, left, right),
                }
                for (jj, sums) in sums.iter().enumerate().take(n_right - j) {
                    for (ii, sum) in sums.iter().enumerate().take(a.n_columns - i) {
                        out[(j + jj) * out_stride + i + ii] += sum;
                    }
                }
            }
        }
    }
}

/// Inner products of every left column with every right column.
#[inline(always)]
fn tile<S: Simd, const C: usize>(simd: S, left: [&[f64]; P], right: [&[f64]; C]) -> [[f64; P]; C] {
    let (left_heads, left_tails) = split::<S, P>(left);
    let (right_heads, right_tails) = split::<S, C>(right);
    let mut sums = [[simd.splat_f64s(0.0); P]; C];
    for k in 0..left_heads[0].len() {
        // The right vectors stay in registers while the left ones change: the other order needs one register too many.
        let r: [S::f64s; C] = std::array::from_fn(|j| right_heads[j][k]);
        for (i, head) in left_heads.iter().enumerate() {
            let l = head[k];
            for (sums, r) in sums.iter_mut().zip(r) {
                sums[i] = simd.mul_add_e_f64s(l, r, sums[i]);
            }
        }
    }
    if !left_tails[0].is_empty() {
        // The last rows are padded with zeros to a whole vector.
        let l: [S::f64s; P] = std::array::from_fn(|i| simd.partial_load_f64s(left_tails[i]));
        for (sums, tail) in sums.iter_mut().zip(&right_tails) {
            let r = simd.partial_load_f64s(tail);
            for (sum, l) in sums.iter_mut().zip(l) {
                *sum = simd.mul_add_e_f64s(l, r, *sum);
            }
        }
    }
    sums.map(|sums| sums.map(|sum| simd.reduce_sum_f64s(sum)))
}

/// Columns of equal length as whole vectors and a remainder.
#[inline(always)]
fn split<S: Simd, const C: usize>(columns: [&[f64]; C]) -> ([&[S::f64s]; C], [&[f64]; C]) {
    let split: [(&[S::f64s], &[f64]); C] = columns.map(S::as_simd_f64s);
    let length = split[0].0.len();
    (split.map(|s| &s.0[..length]), split.map(|s| s.1))
}

/// A W in parallel, `n` x `n_right` and column-major, for A with `n` rows and a column-major W with `n_right` columns.
///
/// # Panics
/// If a slice is too short for its shape.
pub(crate) fn product(a: TallMatrix<'_>, weights: &[f64], n: usize, n_right: usize) -> Vec<f64> {
    let columns = a.columns(&(0..n));
    let m = columns.len();
    let mut out = vec![0.0; n * n_right];
    fill_pieces(&mut out, n.max(1), |start, column| {
        let right = start / n;
        add_combination(&columns, &weights[right * m..(right + 1) * m], column);
    });
    out
}

/// `out += sum_j w_j a_j` for columns at least as long as `out`, as many as there are weights or columns. The terms of each element are
/// added in order.
pub(crate) fn add_combination(columns: &[&[f64]], weights: &[f64], out: &mut [f64]) {
    add_combinations(columns, [weights], [out]);
}

/// [`add_combination`] with several weights, which reads the columns once. All weights, and all of `out`, have the same length.
pub(crate) fn add_combinations<const C: usize>(
    columns: &[&[f64]],
    weights: [&[f64]; C],
    out: [&mut [f64]; C],
) {
    let n_terms = columns.len().min(weights[0].len());
    dispatch(Combinations {
        columns: &columns[..n_terms],
        weights: weights.map(|w| &w[..n_terms]),
        out,
    });
}

struct Combinations<'a, const C: usize> {
    columns: &'a [&'a [f64]],
    weights: [&'a [f64]; C],
    out: [&'a mut [f64]; C],
}

impl<const C: usize> WithSimd for Combinations<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Rows whose sums stay in registers while all columns are added.
        const STRIP: usize = 64;
        let n_strips = self.out[0].len() / STRIP;
        let mut strips = self.out.map(|out| out.as_chunks_mut::<STRIP>());
        for k in 0..n_strips {
            let mut sums: [[f64; STRIP]; C] = std::array::from_fn(|c| strips[c].0[k]);
            for (j, column) in self.columns.iter().enumerate() {
                let x = &column[k * STRIP..(k + 1) * STRIP];
                for (sums, weights) in sums.iter_mut().zip(self.weights) {
                    for (sum, x) in sums.iter_mut().zip(x) {
                        *sum += weights[j] * x;
                    }
                }
            }
            for (strip, sums) in strips.iter_mut().zip(sums) {
                strip.0[k] = sums;
            }
        }
        for ((_, rest), weights) in strips.into_iter().zip(self.weights) {
            for (column, &w) in self.columns.iter().zip(weights) {
                axpy(w, &column[n_strips * STRIP..][..rest.len()], rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vector::dot;

    const SHAPES: [(usize, usize, usize); 7] = [
        (37, 7, 9),
        (1100, 7, 1),
        (3, 7, 9),
        (37, 2, 10),
        (513, 13, 11),
        (0, 2, 2),
        (4, 0, 0),
    ];

    /// A, (n + 1) x p, and B, n x r; the product uses the first n rows.
    fn factors((n, p, r): (usize, usize, usize)) -> (Vec<f64>, Vec<f64>) {
        let a = (0..(n + 1) * p).map(|i| (i as f64).sin()).collect();
        (a, (0..n * r).map(|i| (i as f64).cos()).collect())
    }

    fn bits(values: &[f64]) -> Vec<u64> {
        values.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn the_product_holds_all_inner_products() {
        for shape in SHAPES {
            let ((n, p, r), (a, b)) = (shape, factors(shape));
            let (left, right) = (TallMatrix::new(&a, n + 1, p), TallMatrix::new(&b, n, r));
            let mut out = vec![1.0; p * r];
            add_transpose_product(left, right, n, &mut out, p);
            for i in 0..p {
                for j in 0..r {
                    let column = &a[i * (n + 1)..i * (n + 1) + n];
                    let expected = 1.0 + dot(column, &b[j * n..(j + 1) * n]);
                    assert!((out[j * p + i] - expected).abs() < 1e-11);
                }
            }
            let mut lower = vec![1.0; p * r];
            add_lower_transpose_product(left, right, n, &mut lower, p);
            for j in 0..p.min(r) {
                let below = j * p + j..(j + 1) * p;
                assert_eq!(bits(&lower[below.clone()]), bits(&out[below]));
            }
        }
    }

    #[test]
    fn columns_are_added_in_their_order() {
        for (n, m, r) in [(200, 7, 3), (64, 1, 2), (5, 4, 1), (0, 2, 2), (70, 0, 2)] {
            let a: Vec<f64> = (0..(n + 1) * m).map(|i| (i as f64).sin()).collect();
            let w: Vec<f64> = (0..m * r).map(|i| (i as f64).cos()).collect();
            let out = product(TallMatrix::new(&a, n + 1, m), &w, n, r);
            for c in 0..r {
                for row in 0..n {
                    let terms = (0..m).map(|j| w[c * m + j] * a[j * (n + 1) + row]);
                    let expected = terms.fold(0.0, |sum, term| sum + term);
                    assert_eq!(out[c * n + row].to_bits(), f64::to_bits(expected));
                }
            }
        }
    }
}
