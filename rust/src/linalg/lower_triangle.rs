//! The lower triangle of a symmetric matrix, made a few columns at a time.

use std::ops::Range;

use nalgebra::DMatrix;

use crate::linalg::vector::mirror;
use crate::parallel::fill_pieces_of;

/// Columns that one thread makes at a time.
pub(crate) const COLUMNS: usize = 24;

/// The lower triangle of a symmetric matrix.
#[derive(Debug, Clone)]
pub struct LowerTriangle {
    size: usize,
    /// So many columns each, from the row of the first of them down.
    strips: Vec<Vec<f64>>,
}

impl LowerTriangle {
    /// Zeros. They are written by whoever adds to them first, and not by one thread for all.
    pub(crate) fn zeros(size: usize) -> Self {
        Self {
            size,
            strips: vec![Vec::new(); size.div_ceil(COLUMNS)],
        }
    }

    /// Of a matrix; what is above its diagonal does not count.
    ///
    /// # Panics
    /// If it is not square.
    #[must_use]
    pub fn of(matrix: &DMatrix<f64>) -> Self {
        assert!(matrix.is_square(), "a triangle is one of a square matrix");
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

    /// Calls `add` with columns and what is known of them, one column after the other, each from the row of the first of them down. What
    /// is above the diagonal does not count. All of it takes so many multiplications.
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

    /// A column, from the row of the first one of its strip down.
    pub(crate) fn column(&self, j: usize) -> &[f64] {
        let (strip, place) = (j / COLUMNS, j % COLUMNS);
        let height = self.size - strip * COLUMNS;
        &self.strips[strip][place * height..][..height]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triangle_stands_for_its_matrix() {
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
    fn sums_are_added_to_what_is_there() {
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
}
