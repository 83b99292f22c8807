//! A symmetric matrix stored in full for fast access to its columns.

use std::ops::{Index, Range};

use crate::linalg::LowerTriangle;
use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::lower_triangle::COLUMNS;
use crate::parallel::{map_pieces, pieces};

/// Rows and columns of a tile: one cache line. [`COLUMNS`] is a multiple of it.
const SIDE: usize = 8;

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
    pub(crate) fn from_lower(lower: &LowerTriangle) -> Self {
        let (size, stride) = (lower.size(), stride(lower.size()));
        let strips = map_pieces(size, COLUMNS, |columns| {
            let mut out = AlignedColumns::zeros(columns.len() * stride);
            mirror(lower, &columns, &mut out, stride);
            for (out, j) in out.chunks_exact_mut(stride).zip(columns.clone()) {
                out[j..size].copy_from_slice(&lower.column(j)[j - columns.start..]);
            }
            out
        });
        let diagonal = (0..size).map(|j| lower.column(j)[j % COLUMNS]);
        Self {
            size,
            stride,
            strips,
            diagonal: diagonal.collect(),
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

/// Fills the elements above the diagonal of these columns: first whole tiles, then the block on the diagonal.
fn mirror(lower: &LowerTriangle, columns: &Range<usize>, out: &mut [f64], stride: usize) {
    let (first, width) = (columns.start, columns.len());
    for start in (0..first).step_by(SIDE) {
        // The columns of the strip that holds this tile begin at this row.
        let top = start / COLUMNS * COLUMNS;
        for columns in pieces(width, SIDE) {
            let mut tile = [[0.0; SIDE]; SIDE];
            for (i, row) in tile.iter_mut().enumerate() {
                let column = &lower.column(start + i)[first - top..];
                row[..columns.len()].copy_from_slice(&column[columns.clone()]);
            }
            for (k, j) in columns.enumerate() {
                let column: [f64; SIDE] = std::array::from_fn(|i| tile[i][k]);
                out[j * stride + start..][..SIDE].copy_from_slice(&column);
            }
        }
    }
    for j in 0..width {
        for i in 0..j {
            out[j * stride + first + i] = lower.column(first + i)[j];
        }
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
    use nalgebra::DMatrix;

    use super::*;

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
            let whole = SymmetricMatrix::from_lower(&LowerTriangle::of(&lower));
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
