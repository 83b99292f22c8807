//! Curvature from part of the rows.
//!
//! Most of the cost of a working set or a pass over the dictionary is Gram matrices: a product per row and pair of functions, where
//! gradients take one per row and function. Here the quadratic model of the data,
//! `deviance - 2 d^T gradient + d^T G d` about the present mean, has the deviance and the gradient of all rows, and the Gram
//! matrix G of part of the rows, scaled up. The error is a few per cent of d^T G d, the curvature of the change, and not of what
//! the model explains; the next quadratic model, with exact gradients, removes it.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::data::design::{Block, Design};
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::parallel::pieces;

/// Adjacent rows in a subsample: a lazy design evaluates them together.
const RUN: usize = 64;

/// A subsample of the rows of a design: runs of [`RUN`] rows, evenly distributed over all rows.
pub(crate) struct RowSubsample<'a> {
    design: Arc<dyn Design + Send + 'a>,
    /// The first row of each run.
    starts: Vec<usize>,
}

impl<'a> RowSubsample<'a> {
    /// One row in `share`; `None` if this makes fewer than `least` rows.
    pub(crate) fn of(
        design: Arc<dyn Design + Send + 'a>,
        share: usize,
        least: usize,
    ) -> Option<Self> {
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

/// [`Statistics`] of a Gaussian likelihood with the Gram matrices of part of the rows.
pub(crate) struct SubsampledStatistics<'a> {
    whole: &'a mut dyn Statistics,
    part: &'a mut dyn Statistics,
    /// Length on the part, scaled up, of each column that has unit length on all rows.
    ratio: Vec<f64>,
}

impl<'a> SubsampledStatistics<'a> {
    pub(crate) fn new(whole: &'a mut dyn Statistics, part: &'a mut dyn Statistics) -> Self {
        let rows = (whole.facts().n_obs / part.facts().n_obs).sqrt();
        let norms = whole.facts().norms.iter().zip(&part.facts().norms);
        let ratio = |(&all, &some): (&f64, &f64)| if all > 0.0 { rows * some / all } else { 0.0 };
        let ratio = norms.map(ratio).collect();
        Self { whole, part, ratio }
    }
}

impl Statistics for SubsampledStatistics<'_> {
    fn facts(&self) -> &Facts {
        self.whole.facts()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.whole.deviance(active, mu)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.whole.gradient(active, mu, gradient)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let mut sweep = self.whole.sweep(active, mu, &[])?;
        if !wanted.is_empty() {
            sweep.gram = self.part.sweep(&[], &[], wanted)?.gram;
        }
        for (column, &j) in sweep.gram.iter_mut().zip(wanted) {
            for (v, ratio) in column.iter_mut().zip(&self.ratio) {
                *v *= ratio * self.ratio[j];
            }
        }
        // S is a difference, so both terms need the Gram matrices of the part.
        sweep.diag = self.ratio.iter().map(|r| r * r).collect();
        Ok(sweep)
    }

    fn project(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<Vec<f64>> {
        self.whole.project(active, mu, js)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        let mut gram = self.part.among(&[], &[], js)?.0;
        for (mut column, &j) in gram.column_iter_mut().zip(js) {
            for (value, &i) in column.iter_mut().zip(js) {
                *value *= self.ratio[i] * self.ratio[j];
            }
        }
        let gradient = self.whole.project(active, mu, js)?;
        Ok((gram, gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DenseDesign;
    use crate::Likelihood;
    use crate::data::Observations;
    use crate::data::tests::{all_sums, assert_near};

    const SAME: usize = 4;
    const RUNS: usize = 6;
    const K: usize = 5;

    /// Rows in runs, each repeated several times, so that a subsample has the same statistics.
    fn repeated(value: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..RUNS * SAME * RUN)
            .map(|row| value(row / (SAME * RUN) * RUN + row % RUN))
            .collect()
    }

    #[test]
    fn a_subsample_of_repeated_rows_has_the_statistics_of_all() {
        let columns: Vec<f64> = (0..K)
            .flat_map(|j| repeated(move |row| ((row * (j + 2)) as f64).sin() * (1.0 + j as f64)))
            .collect();
        let target = repeated(|row| (row as f64).cos());
        let weights = repeated(|row| 1.0 + (row % 3) as f64);
        let design = DenseDesign::new(&columns, target.len(), K).unwrap();
        let observe = || {
            let (target, weights) = (target.clone(), Some(weights.clone()));
            Observations::new(&design, Likelihood::Gaussian, target, weights).unwrap()
        };
        let (active, mu, others) = ([3, 1], [0.7, -0.2], [4, 1, 0]);
        let sums = |stats: &mut dyn Statistics| all_sums(stats, &active, &mu, &others);
        let exact = sums(&mut observe());
        let mut whole = observe();
        let mut part = whole.subsample(SAME, RUNS * RUN).unwrap().unwrap();
        let sampled = sums(&mut SubsampledStatistics::new(&mut whole, &mut part));
        assert_near(&sampled, &exact, 1e-12);
    }

    #[test]
    fn a_row_subsample_has_the_rows_that_it_picks() {
        let (n, k) = (1000, 3);
        let values: Vec<f64> = (0..n * k).map(|i| i as f64).collect();
        let design = DenseDesign::new(&values, n, k).unwrap();
        let sample = RowSubsample::of(Arc::new(&design), 4, 128).unwrap();
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
        assert!(RowSubsample::of(Arc::new(&design), 4, 193).is_none());
        assert!(RowSubsample::of(Arc::new(&design), 16, 0).is_none());
    }
}
