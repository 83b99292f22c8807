//! Row-major to column-major.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::parallel::fill_pieces;

/// Rows and columns of a tile: one cache line.
const SIDE: usize = 8;

/// Writes a row-major matrix with `n_rows` rows in column-major order. Returns whether all values are finite.
pub(crate) fn transpose(rows: &[f64], n_rows: usize, out: &mut [f64]) -> bool {
    let all_finite = AtomicBool::new(true);
    if let Some(width) = out.len().checked_div(n_rows) {
        fill_pieces(out, SIDE * n_rows, |start, out| {
            let finite = dispatch(Columns {
                rows,
                width,
                first: start / n_rows,
                n_rows,
                out,
            });
            if !finite {
                all_finite.store(false, Ordering::Relaxed);
            }
        });
    }
    all_finite.into_inner()
}

/// The transposition of some columns, beginning with `first`. Returns whether all values are finite.
struct Columns<'a> {
    rows: &'a [f64],
    /// Columns of the whole matrix.
    width: usize,
    first: usize,
    n_rows: usize,
    out: &'a mut [f64],
}

impl WithSimd for Columns<'_> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let Self {
            rows,
            width,
            first,
            n_rows,
            out,
        } = self;
        let is_whole = out.len() == SIDE * n_rows;
        let whole = if is_whole { n_rows / SIDE * SIDE } else { 0 };
        // Zero times a value that is not finite is NaN, and so is every sum with it.
        let mut zeros = [0.0; SIDE];
        for top in (0..whole).step_by(SIDE) {
            let mut tile = [[0.0; SIDE]; SIDE];
            for (i, tile) in tile.iter_mut().enumerate() {
                tile.copy_from_slice(&rows[(top + i) * width + first..][..SIDE]);
                for (zero, v) in zeros.iter_mut().zip(tile) {
                    *zero += *v * 0.0;
                }
            }
            for (j, out) in out.chunks_exact_mut(n_rows).enumerate() {
                let column: [f64; SIDE] = std::array::from_fn(|i| tile[i][j]);
                out[top..top + SIDE].copy_from_slice(&column);
            }
        }
        for (j, out) in out.chunks_exact_mut(n_rows).enumerate() {
            for (i, out) in out.iter_mut().enumerate().skip(whole) {
                *out = rows[i * width + first + j];
                zeros[0] += *out * 0.0;
            }
        }
        !zeros.iter().any(|zero| zero.is_nan())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_and_detects_values_that_are_not_finite() {
        for (n, k) in [
            (0, 3),
            (3, 0),
            (1, 1),
            (7, 9),
            (8, 8),
            (16, 25),
            (61, 8),
            (129, 31),
        ] {
            let rows: Vec<f64> = (0..n * k).map(|v| (v as f64).sin()).collect();
            let mut out = vec![f64::NAN; n * k];
            assert!(transpose(&rows, n, &mut out));
            for i in 0..n {
                for j in 0..k {
                    assert_eq!(out[j * n + i].to_bits(), rows[i * k + j].to_bits());
                }
            }
            for position in [0, n * k / 2, (n * k).saturating_sub(1)] {
                for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let mut rows = rows.clone();
                    if let Some(v) = rows.get_mut(position) {
                        *v = value;
                        assert!(!transpose(&rows, n, &mut out));
                    }
                }
            }
        }
    }
}
