//! A design matrix held in memory row after row.

use std::borrow::Cow;
use std::ops::Range;

use crate::data::design::{Block, Design};
use crate::{Error, Result};

/// Phi as N x K values, row-major, as data arrive: for one pass over them. A fit asks for columns, and is better served by
/// [`DenseDesign`](crate::data::DenseDesign).
#[derive(Debug, Clone)]
pub struct RowMajorDesign<'a> {
    values: Cow<'a, [f64]>,
    n_rows: usize,
    n_basis: usize,
}

impl<'a> RowMajorDesign<'a> {
    /// Wraps `values`, N x K row-major.
    ///
    /// # Errors
    /// [`Error::Shape`] when the length is not `n_rows * n_basis`; [`Error::NonFinite`] for NaN or infinity.
    pub fn new(values: impl Into<Cow<'a, [f64]>>, n_rows: usize, n_basis: usize) -> Result<Self> {
        let values = values.into();
        Error::check_len("Phi", n_rows * n_basis, values.len())?;
        Error::check_finite("Phi", &values)?;
        Ok(Self {
            values,
            n_rows,
            n_basis,
        })
    }
}

impl Design for RowMajorDesign<'_> {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn n_basis(&self) -> usize {
        self.n_basis
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let height = rows.len();
        buffer.clear();
        buffer.resize(height * columns.len(), 0.0);
        for (i, row) in rows.enumerate() {
            let row = &self.values[row * self.n_basis..][columns.clone()];
            for (j, &v) in row.iter().enumerate() {
                buffer[j * height + i] = v;
            }
        }
        Block {
            data: buffer,
            stride: height,
        }
    }
}
