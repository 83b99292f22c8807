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
