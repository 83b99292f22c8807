//! A symmetric matrix stored in full for fast access to its columns.

use std::ops::Index;

use nalgebra::DMatrix;

use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::vector::head;
use crate::parallel::map_pieces;

/// Columns per strip.
const COLUMNS: usize = 24;

/// A symmetric matrix with columns aligned to cache lines.
pub(crate) struct SymmetricMatrix {
    size: usize,
    stride: usize,
    /// [`COLUMNS`] columns each, allocated by the thread that computed them.
    strips: Vec<AlignedColumns>,
    /// A contiguous copy.
    diagonal: Vec<f64>,
}

impl SymmetricMatrix {
    /// From the lower triangle of a square matrix.
    pub(crate) fn from_lower(lower: &DMatrix<f64>) -> Self {
        let (size, stride) = (lower.nrows(), stride(lower.nrows()));
        let column = |j: usize| head(lower, j, size);
        let strips = map_pieces(size, COLUMNS, |columns| {
            let mut out = AlignedColumns::zeros(columns.len() * stride);
            // The columns up to their diagonal elements are rows of earlier columns.
            for i in 0..columns.end {
                let first = i.max(columns.start);
                let row = &column(i)[first..columns.end];
                for (j, v) in (first - columns.start..).zip(row) {
                    out[j * stride + i] = *v;
                }
            }
            for (out, j) in out.chunks_exact_mut(stride).zip(columns.clone()) {
                out[j..size].copy_from_slice(&column(j)[j..]);
            }
            out
        });
        Self {
            size,
            stride,
            strips,
            diagonal: lower.diagonal().as_slice().to_vec(),
        }
    }

    pub(crate) fn column(&self, j: usize) -> &[f64] {
        let (strip, place) = (j / COLUMNS, j % COLUMNS);
        &self.strips[strip][place * self.stride..][..self.size]
    }

    pub(crate) fn diagonal(&self) -> &[f64] {
        &self.diagonal
    }
}

impl Index<(usize, usize)> for SymmetricMatrix {
    type Output = f64;

    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.column(j)[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;

    #[test]
    fn elements_equal_those_of_the_lower_triangle() {
        for size in [0, 1, 7, 8, 23, 24, 25, 33, 101] {
            let lower = DMatrix::from_fn(size, size, |i, j| {
                if i < j {
                    f64::NAN
                } else {
                    (i * size + j) as f64
                }
            });
            let whole = SymmetricMatrix::from_lower(&lower);
            for i in 0..size {
                for j in 0..size {
                    assert_eq!(
                        whole[(i, j)].to_bits(),
                        lower[(i.max(j), i.min(j))].to_bits()
                    );
                }
            }
            assert_eq!(whole.diagonal(), lower.diagonal().as_slice());
        }
    }
}
