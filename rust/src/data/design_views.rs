//! Designs made of other designs: two side by side, some of the columns, some of the rows.

use std::ops::Range;

use crate::data::design::{Block, Design, Family};
use crate::parallel::pieces;
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

/// Adjacent rows in a subsample: a lazy design evaluates them together.
const RUN: usize = 64;

/// A subsample of the rows of a design: runs of [`RUN`] rows, evenly distributed over all rows.
pub(crate) struct RowSubsample<'a> {
    design: &'a dyn Design,
    /// The first row of each run.
    starts: Vec<usize>,
}

impl<'a> RowSubsample<'a> {
    /// One row in `share`; `None` if this makes fewer than `least` rows.
    pub(crate) fn of(design: &'a dyn Design, share: usize, least: usize) -> Option<Self> {
        let n_runs = design.n_rows() / RUN;
        let wanted = n_runs / share.max(1);
        if wanted == 0 || wanted * RUN < least {
            return None;
        }
        let starts = (0..wanted).map(|k| k * n_runs / wanted * RUN).collect();
        Some(Self { design, starts })
    }

    /// Selects from `values`, one for each row of the design, the values of the subsample.
    pub(crate) fn pick(&self, values: &[f64]) -> Vec<f64> {
        let runs = self.starts.iter().map(|&start| &values[start..start + RUN]);
        runs.flatten().copied().collect()
    }
}

impl Design for RowSubsample<'_> {
    fn n_rows(&self) -> usize {
        self.starts.len() * RUN
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let stride = rows.len();
        // Not cleared: every value is overwritten.
        buffer.resize(stride * columns.len(), 0.0);
        let mut own = Vec::new();
        // The rows are cut at the borders between runs.
        let lead = rows.start % RUN;
        for piece in pieces(lead + stride, RUN) {
            let from = piece.start.max(lead);
            let (row, length) = (rows.start - lead + from, piece.end - from);
            let first = self.starts[row / RUN] + row % RUN;
            let block = self
                .design
                .block(first..first + length, columns.clone(), &mut own);
            for c in 0..columns.len() {
                let to = c * stride + from - lead;
                buffer[to..to + length].copy_from_slice(block.column(c, length));
            }
        }
        let data = buffer;
        Block { data, stride }
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

    #[test]
    fn a_row_subsample_has_the_rows_that_it_picks() {
        let (n, k) = (1000, 3);
        let values: Vec<f64> = (0..n * k).map(|i| i as f64).collect();
        let design = DenseDesign::new(&values, n, k).unwrap();
        let sample = RowSubsample::of(&design, 4, 128).unwrap();
        let picked: Vec<Vec<f64>> = values.chunks_exact(n).map(|c| sample.pick(c)).collect();
        assert_eq!(sample.n_rows(), 192);
        assert_eq!((picked[0][0], picked[0][64]), (0.0, 320.0));
        for rows in [0..192, 3..60, 60..70, 64..128, 100..192] {
            let mut buffer = vec![f64::NAN; 7];
            let block = sample.block(rows.clone(), 1..3, &mut buffer);
            for c in 0..2 {
                assert_eq!(block.column(c, rows.len()), &picked[c + 1][rows.clone()]);
            }
        }
    }

    #[test]
    fn a_row_subsample_has_a_least_size() {
        let values = vec![1.0; 1000];
        let design = DenseDesign::new(&values, 1000, 1).unwrap();
        assert!(RowSubsample::of(&design, 4, 193).is_none());
        assert!(RowSubsample::of(&design, 16, 0).is_none());
    }
}
