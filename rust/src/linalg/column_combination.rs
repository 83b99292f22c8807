//! A W for tall column-major matrices A: weighted sums of columns.

use crate::linalg::gemm::TallMatrix;
use crate::linalg::simd::{Simd, WithSimd, dispatch, vectorised};
use crate::linalg::vector::axpy;
use crate::parallel::fill_pieces;

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

/// `out += A W` over the first `n` rows. The columns of W are `weight_stride` apart, those of `out` `out_stride`.
///
/// # Panics
/// If a slice is too short for its shape.
pub(crate) fn add_product(
    a: TallMatrix<'_>,
    (weights, weight_stride): (&[f64], usize),
    n: usize,
    (out, out_stride): (&mut [f64], usize),
    n_right: usize,
) {
    dispatch(Product {
        a,
        weights,
        weight_stride,
        n,
        out,
        out_stride,
        n_right,
    });
}

struct Product<'a> {
    a: TallMatrix<'a>,
    weights: &'a [f64],
    weight_stride: usize,
    n: usize,
    out: &'a mut [f64],
    out_stride: usize,
    n_right: usize,
}

/// Vectors and columns of a tile of A W: its sums fill 16 registers.
const V: usize = 4;
const W: usize = 3;

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let columns = self.a.columns(&(0..self.n));
        let split: Vec<(&[S::f64s], &[f64])> = columns.iter().map(|c| S::as_simd_f64s(c)).collect();
        let n_vectors = split.first().map_or(0, |s| s.0.len());
        let tail = split.first().map_or(0, |s| s.1.len());
        let whole = self.n - tail;
        for j in (0..self.n_right).step_by(W) {
            let width = W.min(self.n_right - j);
            // A tile that crosses the border repeats the last column and discards its sums.
            let weights: [&[f64]; W] = std::array::from_fn(|k| {
                let column = (j + k).min(self.n_right - 1);
                &self.weights[column * self.weight_stride..][..columns.len()]
            });
            for first in (0..n_vectors).step_by(V) {
                // So does a vector that crosses the border.
                let places: [usize; V] = std::array::from_fn(|v| (first + v).min(n_vectors - 1));
                let mut sums = [[simd.splat_f64s(0.0); V]; W];
                for (k, (heads, _)) in split.iter().enumerate() {
                    // The right vectors stay in registers, as in `gemm`.
                    let weights = weights.map(|w| simd.splat_f64s(w[k]));
                    for (v, place) in places.into_iter().enumerate() {
                        let value = heads[place];
                        for (sums, weight) in sums.iter_mut().zip(weights) {
                            sums[v] = simd.mul_add_e_f64s(weight, value, sums[v]);
                        }
                    }
                }
                for (k, sums) in sums.iter().enumerate().take(width) {
                    let out = &mut self.out[(j + k) * self.out_stride..][..whole];
                    let (out, _) = S::as_mut_simd_f64s(out);
                    for (out, sum) in out[first..].iter_mut().zip(sums) {
                        *out = simd.add_f64s(*out, *sum);
                    }
                }
            }
            if tail > 0 {
                // The last rows are padded with zeros to a whole vector.
                let mut sums = [simd.splat_f64s(0.0); W];
                for (k, (_, tails)) in split.iter().enumerate() {
                    let values = simd.partial_load_f64s(tails);
                    for (sum, weights) in sums.iter_mut().zip(&weights) {
                        let weight = simd.splat_f64s(weights[k]);
                        *sum = simd.mul_add_e_f64s(weight, values, *sum);
                    }
                }
                for (k, sum) in sums.into_iter().enumerate().take(width) {
                    let out = &mut self.out[(j + k) * self.out_stride + whole..][..tail];
                    let sum = simd.add_f64s(simd.partial_load_f64s(out), sum);
                    simd.partial_store_f64s(out, sum);
                }
            }
        }
    }
}

/// `out += sum_j w_j a_j` for columns at least as long as `out`. The terms of each element are added in order.
pub(crate) fn add_combination(columns: &[&[f64]], weights: &[f64], out: &mut [f64]) {
    dispatch(Combination {
        columns,
        weights,
        out,
    });
}

vectorised!(Combination { columns: &'a [&'a [f64]], weights: &'a [f64], out: &'a mut [f64] } -> (),
    |this| add_combination_here(this.columns, this.weights, this.out));

/// `N` vectors of rows, whose sums stay in registers while all columns are added.
const STRIP: usize = 64;

#[inline(always)]
fn add_combination_here(columns: &[&[f64]], weights: &[f64], out: &mut [f64]) {
    let terms = || columns.iter().zip(weights);
    let (strips, rest) = out.as_chunks_mut::<STRIP>();
    let whole = strips.len() * STRIP;
    for (k, strip) in strips.iter_mut().enumerate() {
        let mut sums = *strip;
        for (column, &w) in terms() {
            for (sum, x) in sums.iter_mut().zip(&column[k * STRIP..(k + 1) * STRIP]) {
                *sum += w * x;
            }
        }
        *strip = sums;
    }
    for (column, &w) in terms() {
        axpy(w, &column[whole..whole + rest.len()], rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn several_combinations_equal_single_combinations() {
        for (n, m, r) in [
            (37, 7, 9),
            (1100, 7, 1),
            (3, 7, 9),
            (37, 2, 9),
            (0, 2, 2),
            (16, 0, 2),
        ] {
            let a: Vec<f64> = (0..(n + 1) * m).map(|i| (i as f64).sin()).collect();
            let w: Vec<f64> = (0..(m + 2) * r).map(|i| (i as f64).cos()).collect();
            let mut out = vec![1.0; (n + 3) * r];
            add_product(
                TallMatrix::new(&a, n + 1, m),
                (&w, m + 2),
                n,
                (&mut out, n + 3),
                r,
            );
            for c in 0..r {
                for row in 0..n {
                    let terms = (0..m).map(|j| w[c * (m + 2) + j] * a[j * (n + 1) + row]);
                    assert!((out[c * (n + 3) + row] - 1.0 - terms.sum::<f64>()).abs() < 1e-13);
                }
                assert!(
                    out[c * (n + 3) + n..(c + 1) * (n + 3)]
                        .iter()
                        .all(|v| v.to_bits() == 1.0_f64.to_bits())
                );
            }
        }
    }
}
