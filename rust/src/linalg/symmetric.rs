//! A symmetric matrix stored in full for fast access to its columns.

use crate::linalg::Matrix;
use crate::linalg::columns::Table;
use crate::linalg::vector::mirrored;

/// A symmetric matrix with columns aligned to cache lines.
pub(crate) struct SymmetricMatrix {
    columns: Table,
    /// A contiguous copy.
    diagonal: Vec<f64>,
}

impl SymmetricMatrix {
    /// From the lower triangle of a square matrix.
    pub(crate) fn from_lower(lower: Matrix) -> Self {
        let diagonal = lower.diagonal().as_slice().to_vec();
        Self {
            columns: Table::of(&mirrored(lower)),
            diagonal,
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

    #[test]
    fn columns_and_diagonal_come_from_the_lower_triangle() {
        let value = |i: usize, j: usize| (10 * i.max(j) + i.min(j)) as f64;
        for n in [1, 3, 20] {
            let lower = Matrix::from_fn(n, n, |i, j| if i < j { f64::NAN } else { value(i, j) });
            let matrix = SymmetricMatrix::from_lower(lower);
            assert_eq!(matrix.diagonal().len(), n);
            for j in 0..n {
                let column: Vec<f64> = (0..n).map(|i| value(i, j)).collect();
                assert_eq!(matrix.column(j)[..n], column);
                assert!(value(j, j).total_cmp(&matrix.diagonal()[j]).is_eq());
            }
        }
    }
}
