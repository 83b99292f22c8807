//! Designs made of other designs: two side by side, some of the columns.

use std::ops::Range;

use crate::data::design::{Block, Design, Family};
use crate::{Error, Result};

/// Appends a block of `design` to `out`, column after column.
fn append_block(
    design: &dyn Design,
    rows: &Range<usize>,
    columns: Range<usize>,
    buffer: &mut Vec<f64>,
    out: &mut Vec<f64>,
) {
    let n_columns = columns.len();
    let block = design.block(rows.clone(), columns, buffer);
    for c in 0..n_columns {
        out.extend_from_slice(block.column(c, rows.len()));
    }
}

/// The basis functions of one design followed by those of another, over the same rows.
///
/// Only blocks with columns of both designs are copied, so kernels remain lazy beside stored columns.
pub struct JoinedDesign<'a> {
    left: &'a dyn Design,
    right: &'a dyn Design,
}

impl<'a> JoinedDesign<'a> {
    /// Appends the columns of `right` to those of `left`.
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
        let mut own = Vec::new();
        buffer.clear();
        append_block(self.left, &rows, columns.start..border, &mut own, buffer);
        append_block(self.right, &rows, 0..columns.end - border, &mut own, buffer);
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

/// Some columns of a design, in the order given.
pub(crate) struct SubsetDesign<'a> {
    pub(crate) design: &'a dyn Design,
    pub(crate) columns: &'a [usize],
}

impl Design for SubsetDesign<'_> {
    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.columns.len()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let mut own = Vec::new();
        buffer.clear();
        for run in self.columns[columns].chunk_by(|a, b| a + 1 == *b) {
            let adjacent = run[0]..run[0] + run.len();
            append_block(self.design, &rows, adjacent, &mut own, buffer);
        }
        Block {
            data: buffer,
            stride: rows.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DenseDesign;

    #[test]
    fn a_subset_has_its_columns_in_the_order_given() {
        let values: Vec<f64> = (0..90).map(|i| (f64::from(i) * 1.3).sin()).collect();
        let design = DenseDesign::new(&values, 9, 10).unwrap();
        let columns = [7, 2, 3, 4, 9];
        let subset = SubsetDesign {
            design: &design,
            columns: &columns,
        };
        let mut buffer = Vec::new();
        let block = subset.block(2..7, 1..5, &mut buffer);
        for (c, j) in columns[1..].iter().enumerate() {
            assert_eq!(block.column(c, 5), &values[9 * j + 2..9 * j + 7]);
        }
    }
}
