//! A symmetric matrix stored in full for fast access to its columns.

use nalgebra::DMatrix;

use crate::linalg::columns::{COLUMNS, Table, stride};
use crate::linalg::vector::head;

/// A symmetric matrix with columns aligned to cache lines.
pub(crate) struct SymmetricMatrix {
    columns: Table,
    /// A contiguous copy.
    diagonal: Vec<f64>,
}

impl SymmetricMatrix {
    /// From the lower triangle of a square matrix.
    pub(crate) fn from_lower(lower: &DMatrix<f64>) -> Self {
        let size = lower.nrows();
        let column = |j: usize| head(lower, j, size);
        let columns = Table::filled(size, size, COLUMNS, |start, out| {
            let apart = stride(size);
            let end = start + out.len() / apart;
            // The columns up to their diagonal elements are rows of earlier columns.
            for i in 0..end {
                let first = i.max(start);
                for (j, v) in (first - start..).zip(&column(i)[first..end]) {
                    out[j * apart + i] = *v;
                }
            }
            for (out, j) in out.chunks_exact_mut(apart).zip(start..) {
                out[j..size].copy_from_slice(&column(j)[j..]);
            }
        });
        Self {
            columns,
            diagonal: lower.diagonal().as_slice().to_vec(),
        }
    }

    pub(crate) fn column(&self, j: usize) -> &[f64] {
        self.columns.column(j)
    }

    pub(crate) fn diagonal(&self) -> &[f64] {
        &self.diagonal
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
                        whole.column(j)[i].to_bits(),
                        lower[(i.max(j), i.min(j))].to_bits()
                    );
                }
            }
            assert_eq!(whole.diagonal(), lower.diagonal().as_slice());
        }
    }
}
