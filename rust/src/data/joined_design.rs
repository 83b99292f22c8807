//! Two designs side by side, as if they were one.

use std::ops::Range;

use crate::data::design::{Block, Design, Family};
use crate::{Error, Result};

/// The basis functions of one design and after them those of another, over the same rows.
///
/// Neither is copied but for the one block in a row of blocks that has columns of both: kernels may stay unevaluated
/// beside columns that are stored.
pub struct JoinedDesign<'a> {
    left: &'a dyn Design,
    right: &'a dyn Design,
}

impl<'a> JoinedDesign<'a> {
    /// Puts `right` after `left`.
    ///
    /// # Errors
    /// [`Error::Shape`] when they do not have the same number of rows.
    pub fn new(left: &'a dyn Design, right: &'a dyn Design) -> Result<Self> {
        Error::check_len("rows of the extra columns", left.n_rows(), right.n_rows())?;
        Ok(Self { left, right })
    }
}

impl Design for JoinedDesign<'_> {
    fn n_rows(&self) -> usize {
        self.left.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.left.n_basis() + self.right.n_basis()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let border = self.left.n_basis();
        if columns.end <= border {
            return self.left.block(rows, columns, buffer);
        }
        if columns.start >= border {
            let columns = columns.start - border..columns.end - border;
            return self.right.block(rows, columns, buffer);
        }
        let mut part = Vec::new();
        buffer.clear();
        for (design, columns) in [
            (self.left, columns.start..border),
            (self.right, 0..columns.end - border),
        ] {
            let n_columns = columns.len();
            let block = design.block(rows.clone(), columns, &mut part);
            for c in 0..n_columns {
                buffer.extend_from_slice(block.column(c, rows.len()));
            }
        }
        Block {
            data: buffer,
            stride: rows.len(),
        }
    }

    fn families(&self) -> Vec<Family<'_>> {
        let border = self.left.n_basis();
        let mut families = self.left.families();
        families.extend(self.right.families().into_iter().map(|family| Family {
            first: family.first + border,
            ..family
        }));
        families
    }
}
