//! What a Cholesky factor of many rows spends its time on, by blocks: products of matrices, which go through the tiles of
//! [`product`](super::super::product) where single columns would be read again and again.
//!
//! All matrices are column-major and share their number of rows, n, with the factor.

use std::ops::Range;

use super::super::combination::add_product;
use super::super::parallel::pieces;
use super::super::product::{Tall, add_transpose_product};

/// Columns of a block.
const WIDTH: usize = 24;

/// Rows from which blocks take less time than single columns.
const MANY: usize = 64;

/// Columns at a time in a matrix of `n`: all where they are few.
pub(super) fn width(n: usize) -> usize {
    if n < MANY { n.max(1) } else { WIDTH }
}

/// Subtracts L D^T from the columns of a panel: L is what the earlier columns hold from the panel's first row on, and D the
/// rows of the panel in it. `rest` begins with the panel; what lies above its diagonal is of no meaning.
pub(super) fn subtract_earlier(
    earlier: &[f64],
    rest: &mut [f64],
    stride: usize,
    n: usize,
    panel: Range<usize>,
) {
    let first = panel.start;
    if first == 0 {
        return;
    }
    let mut weights = Vec::with_capacity(first * panel.len());
    for row in panel.clone() {
        weights.extend((0..first).map(|k| -earlier[k * stride + row]));
    }
    let left = Tall::new(&earlier[first..], stride, first);
    let out = (&mut rest[first..], stride);
    add_product(left, (&weights, first), n - first, out, panel.len());
}

/// Once the rows of a block are solved for, takes their share from the rows below, in each of the first `width` columns.
pub(super) fn subtract_block(
    (factor, factor_stride): (&[f64], usize),
    (columns, stride): (&mut [f64], usize),
    n: usize,
    block: Range<usize>,
    width: usize,
) {
    let below = n - block.end;
    if below == 0 {
        return;
    }
    let mut weights = Vec::with_capacity(block.len() * width);
    for column in columns.chunks(stride).take(width) {
        weights.extend(column[block.clone()].iter().map(|v| -v));
    }
    let left = &factor[block.start * factor_stride + block.end..];
    let left = Tall::new(left, factor_stride, block.len());
    let out = (&mut columns[block.end..], stride);
    add_product(left, (&weights, block.len()), below, out, width);
}

/// The lower triangle of X^T X in the place of a lower triangular X, which has zeros above the diagonal within each block.
pub(super) fn square(values: &mut [f64], stride: usize, n: usize, stop: impl Fn() -> bool) {
    let mut sums = vec![0.0; WIDTH * WIDTH];
    for right in pieces(n, WIDTH) {
        for left in pieces(n, WIDTH).skip_while(|left| left.end <= right.start) {
            if stop() {
                return;
            }
            let (rows, height) = (n - left.start, left.len());
            let of = |panel: &Range<usize>| {
                Tall::new(
                    &values[panel.start * stride + left.start..],
                    stride,
                    panel.len(),
                )
            };
            sums.fill(0.0);
            add_transpose_product(of(&left), of(&right), rows, &mut sums, height);
            for (j, sums) in right.clone().zip(sums.chunks_exact(height)) {
                // Later blocks ask for rows further down.
                let from = left.start.max(j);
                let out = &mut values[j * stride..][from..left.end];
                out.copy_from_slice(&sums[from - left.start..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::DMatrix;

    use super::super::Cholesky;
    use super::{MANY, WIDTH};

    fn matrix(n: usize) -> DMatrix<f64> {
        DMatrix::from_fn(n, n, |i, j| {
            let apart = (i as f64 - j as f64).abs();
            (-0.3 * apart).exp() * (0.1 * apart).cos() + if i == j { 0.5 + i as f64 } else { 0.0 }
        })
    }

    #[test]
    fn factors_and_inverses_by_blocks_are_those_of_the_matrix() {
        for n in [MANY - 1, MANY, MANY + 1, 4 * WIDTH, 4 * WIDTH + 1, 131] {
            let a = matrix(n);
            let mut chol = Cholesky::with_capacity(n + 3);
            // What an earlier factor has left above the diagonal is of no meaning.
            chol.refactor(n + 2, |i, j| if i == j { 1e10 } else { 1e4 })
                .unwrap();
            chol.refactor(n, |i, j| a[(i, j)]).unwrap();
            let lower = DMatrix::from_fn(n, n, |i, j| if j <= i { chol.get(i, j) } else { 0.0 });
            assert!((&lower * lower.transpose() - &a).amax() < 1e-13 * a.amax());
            let mut inverse = DMatrix::from_element(n + 5, n + 1, f64::NAN);
            chol.inverse_into(&mut inverse);
            let inverse = inverse.view((0, 0), (n, n));
            assert!((&a * inverse - DMatrix::identity(n, n)).amax() < 1e-12);
            assert_eq!(inverse, inverse.transpose());
        }
    }

    #[test]
    fn the_pivot_at_which_a_factor_fails_is_named_in_any_block() {
        let n = 2 * MANY;
        for bad in [0, WIDTH - 1, WIDTH, n / 2, n - 1] {
            let mut a = matrix(n);
            a[(bad, bad)] = -1.0;
            let mut chol = Cholesky::with_capacity(n);
            let error = chol.refactor(n, |i, j| a[(i, j)]).unwrap_err();
            assert_eq!((error.pivot, chol.len()), (bad, 0));
        }
    }
}
