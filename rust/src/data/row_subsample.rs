//! Thinned of the rows of a design, spread evenly over all of them.

use std::ops::Range;

use crate::data::design::{Block, Design};
use crate::parallel::pieces;

/// Rows next to one another that are taken together: a lazy design evaluates them in one go.
const RUN: usize = 64;

/// Some runs of the rows of a design, as if they were all there are.
pub(crate) struct RowSubsample<'a> {
    design: &'a dyn Design,
    /// Where each run begins.
    starts: Vec<usize>,
}

impl<'a> RowSubsample<'a> {
    /// One row in `share`, if that makes at least `least`.
    pub(crate) fn of(design: &'a dyn Design, share: usize, least: usize) -> Option<Self> {
        let n_runs = design.n_rows() / RUN;
        let wanted = n_runs / share.max(1);
        if wanted == 0 || wanted * RUN < least {
            return None;
        }
        let starts = (0..wanted).map(|k| k * n_runs / wanted * RUN).collect();
        Some(Self { design, starts })
    }

    /// What belongs to these rows.
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
        let height = rows.len();
        // Not cleared first: every value is written.
        buffer.resize(height * columns.len(), 0.0);
        let mut own = Vec::new();
        // From one border between runs to the next.
        let lead = rows.start % RUN;
        for piece in pieces(lead + height, RUN) {
            let from = piece.start.max(lead);
            let row = rows.start - lead + from;
            let inside = self.starts[row / RUN] + row % RUN;
            let length = piece.end - from;
            let block = self
                .design
                .block(inside..inside + length, columns.clone(), &mut own);
            for c in 0..columns.len() {
                let to = c * height + from - lead;
                buffer[to..to + length].copy_from_slice(block.column(c, length));
            }
        }
        Block {
            data: buffer,
            stride: height,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DenseDesign;

    #[test]
    fn a_block_holds_the_rows_that_were_picked() {
        let (n, k) = (1000, 3);
        let values: Vec<f64> = (0..n * k).map(|i| i as f64).collect();
        let design = DenseDesign::new(&values, n, k).unwrap();
        let thinned = RowSubsample::of(&design, 4, 128).unwrap();
        let picked: Vec<Vec<f64>> = values.chunks_exact(n).map(|c| thinned.pick(c)).collect();
        assert_eq!(thinned.n_rows(), 192);
        assert_eq!((picked[0][0], picked[0][64]), (0.0, 320.0));
        for rows in [0..192, 3..60, 60..70, 64..128, 100..192] {
            let mut buffer = vec![f64::NAN; 7];
            let block = thinned.block(rows.clone(), 1..3, &mut buffer);
            for c in 0..2 {
                assert_eq!(block.column(c, rows.len()), &picked[c + 1][rows.clone()]);
            }
        }
    }

    #[test]
    fn too_few_rows_are_none() {
        let values = vec![1.0; 1000];
        let design = DenseDesign::new(&values, 1000, 1).unwrap();
        assert!(RowSubsample::of(&design, 4, 193).is_none());
        assert!(RowSubsample::of(&design, 16, 0).is_none());
    }
}
