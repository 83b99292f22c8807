//! Symmetric matrices: the lower triangle in strips of columns, as it is computed, and the whole, as it is read.

use std::ops::{Index, Range};

use nalgebra::DMatrix;

use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::vector::mirror;
use crate::parallel::{fill_pieces_of, map_pieces};

/// Columns per strip; one thread computes a strip.
pub(crate) const COLUMNS: usize = 24;

/// The lower triangle of a symmetric matrix.
#[derive(Debug, Clone)]
pub struct LowerTriangle {
    size: usize,
    /// [`COLUMNS`] columns each, from the diagonal element of the first of them down.
    strips: Vec<Vec<f64>>,
}

impl LowerTriangle {
    /// Zeros. Each strip is allocated by the thread that first adds to it.
    pub(crate) fn zeros(size: usize) -> Self {
        Self {
            size,
            strips: vec![Vec::new(); size.div_ceil(COLUMNS)],
        }
    }

    /// The lower triangle of a matrix; elements above the diagonal are ignored.
    ///
    /// # Panics
    /// If the matrix is not square.
    #[must_use]
    pub fn of(matrix: &DMatrix<f64>) -> Self {
        assert!(matrix.is_square(), "a square matrix");
        let mut this = Self::zeros(matrix.nrows());
        this.add(0, |columns, out| {
            let height = matrix.nrows() - columns.start;
            for (j, out) in columns.clone().zip(out.chunks_exact_mut(height)) {
                out.copy_from_slice(
                    &matrix.as_slice()[j * matrix.nrows()..][columns.start..][..height],
                );
            }
        });
        this
    }

    /// Rows and columns of the matrix.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The whole matrix.
    #[must_use]
    pub fn whole(&self) -> DMatrix<f64> {
        let mut whole = DMatrix::zeros(self.size, self.size);
        let columns = whole.as_mut_slice().chunks_exact_mut(self.size.max(1));
        for (j, out) in columns.enumerate() {
            let column = self.column(j);
            out[self.size - column.len()..].copy_from_slice(column);
        }
        mirror(&mut whole);
        whole
    }

    /// Calls `add` with the columns and the values of each strip. Each column of the strip begins at the row of the
    /// strip's first diagonal element; values above the diagonal are ignored. `multiplications` is the work of all
    /// calls, which decides whether threads are used.
    pub(crate) fn add(
        &mut self,
        multiplications: usize,
        add: impl Fn(Range<usize>, &mut [f64]) + Sync + Send,
    ) {
        let size = self.size;
        fill_pieces_of(multiplications, &mut self.strips, 1, |strip, strips| {
            let (first, values) = (strip * COLUMNS, &mut strips[0]);
            let columns = first..(first + COLUMNS).min(size);
            values.resize(columns.len() * (size - first), 0.0);
            add(columns, values);
        });
    }

    /// Column `j` from the first row of its strip down.
    pub(crate) fn column(&self, j: usize) -> &[f64] {
        let (strip, place) = (j / COLUMNS, j % COLUMNS);
        let height = self.size - strip * COLUMNS;
        &self.strips[strip][place * height..][..height]
    }
}

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
            // The columns up to each diagonal element are rows of earlier columns, whose strips begin at row `top`.
            for i in 0..columns.end {
                let (top, first) = (i / COLUMNS * COLUMNS, i.max(columns.start));
                let row = &lower.column(i)[first - top..columns.end - top];
                for (j, v) in (first - columns.start..).zip(row) {
                    out[j * stride + i] = *v;
                }
            }
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
    fn whole_restores_the_matrix() {
        for size in [0, 1, 23, 24, 25, 100] {
            let value = |i: usize, j: usize| (i.max(j) * size + i.min(j)) as f64;
            let matrix = DMatrix::from_fn(size, size, value);
            let below = DMatrix::from_fn(
                size,
                size,
                |i, j| {
                    if i < j { f64::NAN } else { value(i, j) }
                },
            );
            let lower = LowerTriangle::of(&below);
            assert_eq!(lower.size(), size);
            assert_eq!(lower.whole(), matrix);
        }
    }

    #[test]
    fn add_accumulates() {
        let mut lower = LowerTriangle::zeros(30);
        for _ in 0..2 {
            lower.add(1 << 30, |columns, out| {
                for (j, out) in columns
                    .clone()
                    .zip(out.chunks_exact_mut(30 - columns.start))
                {
                    for (i, out) in (columns.start..).zip(out) {
                        *out += (100 * i + j) as f64;
                    }
                }
            });
        }
        let value = |i: usize, j: usize| 2.0 * (100 * i.max(j) + i.min(j)) as f64;
        assert_eq!(lower.whole(), DMatrix::from_fn(30, 30, value));
    }

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
