//! Products of slices, in column-major storage and fixed order.

use crate::linalg::Matrix;
pub(crate) use crate::linalg::simd::axpy;
use crate::linalg::simd::{dispatch, vectorised};
use crate::parallel::pieces;

/// Inner product.
#[must_use]
#[inline(always)]
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight partial sums let the additions overlap; their order is fixed, so the result is too.
    let mut sums = [0.0_f64; 8];
    let (a_head, a_tail) = a.as_chunks::<8>();
    let (b_head, b_tail) = b.as_chunks::<8>();
    for (x, y) in a_head.iter().zip(b_head) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let tail: f64 = a_tail.iter().zip(b_tail).map(|(x, y)| x * y).sum();
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)) + tail
}

/// [`dot`] for callers that are not themselves compiled as vector code.
#[must_use]
pub(crate) fn column_dot(a: &[f64], b: &[f64]) -> f64 {
    dispatch(|| dot(a, b))
}

/// The sum of `w x^2`.
#[must_use]
pub(crate) fn weighted_square(x: &[f64], w: &[f64]) -> f64 {
    dispatch(WeightedSquare { x, w })
}

vectorised!(WeightedSquare { x: &'a [f64], w: &'a [f64] } -> f64, |this| {
    let mut sums = [0.0_f64; 16];
    let (x_head, x_tail) = this.x.as_chunks::<16>();
    let (w_head, w_tail) = this.w.as_chunks::<16>();
    for (x, w) in x_head.iter().zip(w_head) {
        for lane in 0..16 {
            sums[lane] += x[lane] * x[lane] * w[lane];
        }
    }
    let tail: f64 = x_tail.iter().zip(w_tail).map(|(x, w)| x * x * w).sum();
    sums.iter().sum::<f64>() + tail
});

/// `out = x y`, element by element.
pub(crate) fn multiply_into(x: &[f64], y: &[f64], out: &mut [f64]) {
    dispatch(|| {
        for (out, (x, y)) in out.iter_mut().zip(x.iter().zip(y)) {
            *out = x * y;
        }
    });
}

/// The first `m` elements of column `j`.
#[must_use]
#[inline]
pub(crate) fn head(matrix: &Matrix, j: usize, m: usize) -> &[f64] {
    let start = j * matrix.nrows();
    &matrix.as_slice()[start..start + m]
}

/// Mutable [`head`].
#[inline]
pub(crate) fn head_mut(matrix: &mut Matrix, j: usize, m: usize) -> &mut [f64] {
    let start = j * matrix.nrows();
    &mut matrix.as_mut_slice()[start..start + m]
}

/// The leading `m` x `m` block, padded with zeros to `capacity` x `capacity`.
pub(crate) fn leading(matrix: &Matrix, m: usize, capacity: usize) -> Matrix {
    // Each element is written once, not first zeroed and then copied.
    let mut values = Vec::with_capacity(capacity * capacity);
    for j in 0..m {
        values.extend_from_slice(head(matrix, j, m));
        values.resize((j + 1) * capacity, 0.0);
    }
    values.resize(capacity * capacity, 0.0);
    Matrix::from_vec(capacity, capacity, values)
}

/// The sum of the logarithms of positive numbers. One logarithm of a product replaces eight logarithms.
#[must_use]
pub(crate) fn sum_of_ln(values: &[f64]) -> f64 {
    /// The product of eight numbers in this range neither overflows nor underflows.
    const MODERATE: std::ops::RangeInclusive<f64> = 1e-38..=1e38;
    let (eights, rest) = values.as_chunks::<8>();
    let ln_product = |values: &[f64]| {
        if values.iter().all(|v| MODERATE.contains(v)) {
            values.iter().product::<f64>().ln()
        } else {
            values.iter().map(|v| v.ln()).sum()
        }
    };
    eights.iter().map(|e| ln_product(e)).sum::<f64>() + ln_product(rest)
}

/// Adds `c x x^T` to the leading block of `matrix`.
pub(crate) fn rank_one(matrix: &mut Matrix, c: f64, x: &[f64]) {
    dispatch(RankOne { matrix, c, x });
}

vectorised!(RankOne { matrix: &'a mut Matrix, c: f64, x: &'a [f64] } -> (), |this| {
    for (j, &xj) in this.x.iter().enumerate() {
        axpy(this.c * xj, this.x, head_mut(this.matrix, j, this.x.len()));
    }
});

/// Copies the lower triangle of a matrix into its upper triangle.
pub(crate) fn mirror(matrix: &mut Matrix) {
    let size = matrix.nrows();
    let values = matrix.as_mut_slice();
    each_below_diagonal(size, |i, j| values[i * size + j] = values[j * size + i]);
}

/// [`mirror`] of a matrix that is not needed otherwise.
pub(crate) fn mirrored(mut matrix: Matrix) -> Matrix {
    mirror(&mut matrix);
    matrix
}

/// Calls `f` with the indices (row, column) of each element below the diagonal, tile by tile to stay in the cache.
pub(crate) fn each_below_diagonal(size: usize, mut f: impl FnMut(usize, usize)) {
    const TILE: usize = 16;
    for columns in pieces(size, TILE) {
        for rows in pieces(size, TILE).skip(columns.start / TILE) {
            for j in columns.clone() {
                for i in rows.start.max(j + 1)..rows.end {
                    f(i, j);
                }
            }
        }
    }
}

/// x^T A y over the leading block of A.
#[must_use]
pub(crate) fn bilinear(matrix: &Matrix, x: &[f64], y: &[f64]) -> f64 {
    dispatch(Bilinear { matrix, x, y })
}

vectorised!(Bilinear { matrix: &'a Matrix, x: &'a [f64], y: &'a [f64] } -> f64, |this| {
    let columns = this.y.iter().enumerate();
    columns.map(|(j, y)| y * dot(head(this.matrix, j, this.x.len()), this.x)).sum()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_ln_equals_the_sum_of_logarithms() {
        for n in 0..40_i32 {
            for decades in [0.1, 3.0, 15.0, 30.0] {
                let value = |i: i32| 10_f64.powf(decades * (f64::from(i) * 1.7).sin());
                let values: Vec<f64> = (0..n).map(value).collect();
                let expected: f64 = values.iter().map(|v| v.ln()).sum();
                assert!((sum_of_ln(&values) - expected).abs() < 1e-12 * (1.0 + decades));
            }
        }
        assert!(sum_of_ln(&[1.0, 0.0]) == f64::NEG_INFINITY);
        let far = [1e-300, 1e-20, 1e300, 1e20];
        assert!(sum_of_ln(&far).abs() < 1e-12);
    }

    #[test]
    fn products_are_those_of_their_definitions() {
        for n in [0, 1, 7, 8, 16, 17, 37] {
            let [x, y, w] = [1.0, 2.0, 3.0].map(|k| {
                let values = (0..n).map(|i| (f64::from(i) * k + k).sin());
                values.collect::<Vec<f64>>()
            });
            let n = x.len();
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-13, "{n}: {a} {b}");
            close(column_dot(&x, &y), (0..n).map(|i| x[i] * y[i]).sum());
            let square = (0..n).map(|i| w[i] * x[i] * x[i]).sum();
            close(weighted_square(&x, &w), square);
            let mut out = vec![9.0; n];
            multiply_into(&x, &y, &mut out);
            (0..n).for_each(|i| close(out[i], x[i] * y[i]));
            // The leading block of a larger matrix.
            let a = Matrix::from_fn(n + 2, n + 3, |i, j| ((i * 7 + j * 3) as f64).cos());
            let pairs = || (0..n).flat_map(|j| (0..n).map(move |i| (i, j)));
            close(
                bilinear(&a, &x, &y),
                pairs().map(|(i, j)| x[i] * a[(i, j)] * y[j]).sum(),
            );
            let mut sum = a.clone();
            rank_one(&mut sum, -2.0, &x);
            for j in 0..n + 3 {
                for i in 0..n + 2 {
                    let outside = i >= n || j >= n;
                    let more = if outside { 0.0 } else { -2.0 * x[i] * x[j] };
                    close(sum[(i, j)], a[(i, j)] + more);
                }
            }
            let block = leading(&a, n, n + 4);
            assert_eq!(block.shape(), (n + 4, n + 4));
            assert_eq!(block.view((0, 0), (n, n)), a.view((0, 0), (n, n)));
            assert!((block.sum() - a.view((0, 0), (n, n)).sum()).abs() < 1e-12);
            let whole = mirrored(Matrix::from_fn(n, n, |i, j| a[(i, j)]));
            assert!(
                pairs().all(|(i, j)| whole[(i, j)].to_bits() == a[(i.max(j), i.min(j))].to_bits())
            );
            let mut visits = vec![0; n * n];
            each_below_diagonal(n, |i, j| visits[i * n + j] += 1);
            assert!((0..n * n).all(|at| visits[at] == u32::from(at / n > at % n)));
        }
    }
}
