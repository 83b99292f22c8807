//! Design matrices in memory.

use std::borrow::Cow;
use std::ops::Range;

use crate::data::design::{Block, Design};
use crate::data::row_blocks::values_of;
use crate::linalg::transpose::transpose;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// Phi as N x K values: borrowed from the caller, or owned.
#[derive(Debug, Clone)]
pub struct DenseDesign<'a> {
    values: Cow<'a, [f64]>,
    /// Whether the values are row-major.
    by_rows: bool,
    n_rows: usize,
    n_basis: usize,
}

impl<'a> DenseDesign<'a> {
    /// Wraps `values`, N x K column-major.
    ///
    /// # Errors
    /// [`Error::Shape`] when the length is not `n_rows * n_basis`; [`Error::NonFinite`] for NaN or infinity.
    pub fn new(values: impl Into<Cow<'a, [f64]>>, n_rows: usize, n_basis: usize) -> Result<Self> {
        /// Values that one thread checks: the check takes longer than it takes to start the thread.
        const PIECE: usize = 1 << 17;
        let values = values.into();
        Error::check_len("Phi", n_rows * n_basis, values.len())?;
        let check = |piece| Error::check_finite("Phi", &values[piece]);
        let checks = map_pieces(values.len(), PIECE, check);
        checks.into_iter().collect::<Result<()>>()?;
        Ok(Self {
            values,
            by_rows: false,
            n_rows,
            n_basis,
        })
    }

    /// Wraps `values`, N x K row-major, for a single pass over the data. Fits read columns, for which [`DenseDesign::from_rows`] is faster.
    ///
    /// # Errors
    /// As [`DenseDesign::new`].
    pub fn row_major(
        values: impl Into<Cow<'a, [f64]>>,
        n_rows: usize,
        n_basis: usize,
    ) -> Result<Self> {
        let by_rows = true;
        Self::new(values, n_rows, n_basis).map(|design| Self { by_rows, ..design })
    }
}

impl DenseDesign<'static> {
    /// The values of another design, finite or not. An error of `check` ends the evaluation: see [`values_of`].
    pub(crate) fn evaluated(
        design: &dyn Design,
        check: impl Fn() -> Result<()> + Sync + Send,
    ) -> Result<Self> {
        Ok(Self {
            values: values_of(design, check)?.into(),
            by_rows: false,
            n_rows: design.n_rows(),
            n_basis: design.n_basis(),
        })
    }

    /// Copies `rows`, N x K row-major, in parallel.
    ///
    /// # Errors
    /// As [`DenseDesign::new`]; [`Error::Memory`].
    pub fn from_rows(rows: &[f64], n_rows: usize, n_basis: usize) -> Result<Self> {
        Error::check_len("Phi", n_rows * n_basis, rows.len())?;
        let mut values = Vec::new();
        values
            .try_reserve_exact(rows.len())
            .map_err(|_| Error::no_memory_for("the dictionary", rows.len()))?;
        values.resize(rows.len(), 0.0);
        if !transpose(rows, n_rows, &mut values) {
            Error::check_finite("Phi", rows)?;
        }
        Ok(Self {
            values: values.into(),
            by_rows: false,
            n_rows,
            n_basis,
        })
    }
}

impl Design for DenseDesign<'_> {
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
        if self.by_rows {
            let stride = rows.len();
            buffer.clear();
            buffer.resize(stride * columns.len(), 0.0);
            for (i, row) in rows.enumerate() {
                let row = &self.values[row * self.n_basis..][columns.clone()];
                for (j, &v) in row.iter().enumerate() {
                    buffer[j * stride + i] = v;
                }
            }
            let data = buffer;
            return Block { data, stride };
        }
        let start = columns.start * self.n_rows + rows.start;
        let end = (columns.end.max(1) - 1) * self.n_rows + rows.end;
        let none = columns.is_empty();
        Block {
            data: if none { &[] } else { &self.values[start..end] },
            stride: self.n_rows,
        }
    }
}
