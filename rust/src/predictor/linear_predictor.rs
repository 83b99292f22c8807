//! Basis functions and linear predictors, for single rows or batches.
//!
//! Both evaluate a row by the same operations in the same order.

use std::cell::Cell;
use std::ops::Range;

use crate::Result;
use crate::kernel::Points;
use crate::likelihood::probit::Workspace;
use crate::linalg::simd::dispatch;
use crate::predictor::outputs::{LinearPredictors, Scratchpad};
use crate::predictor::predict::Request;
use crate::predictor::variance::{Functions, axpy};
use crate::predictor::{Block, Output, Predictor};

impl Predictor {
    /// Predicts one row with loops over the basis functions.
    pub(crate) fn predict_row(
        &self,
        x: &[f64],
        with_variance: bool,
        row: usize,
        to: &mut Request<'_>,
    ) -> Result<()> {
        let (m, n) = (self.n_functions, self.n_outputs());
        let n_weights = self.starts[n];
        let width = self.n_variances(with_variance);
        let (n_psi, n_work) = if width > 0 {
            (n_weights, self.covariance.work(n_weights))
        } else {
            (0, 0)
        };
        let n_scratch = self.n_scratch(1, width);
        with_scratch(
            m + n + width + n_scratch + n_psi + n_work,
            |Scratch {
                 values, workspace, ..
             }| {
                let (phi, rest) = values.split_at_mut(m);
                let (eta, rest) = rest.split_at_mut(n);
                let (variances, rest) = rest.split_at_mut(width);
                let (numbers, rest) = rest.split_at_mut(n_scratch);
                let (psi, work) = rest.split_at_mut(n_psi);
                self.functions_at_row(x, phi);
                for (eta, output) in eta.iter_mut().zip(&self.outputs) {
                    *eta = output.at_row(phi);
                }
                if width > 0 {
                    for (output, &start) in self.outputs.iter().zip(&self.starts) {
                        output.gather(phi, &mut psi[start..][..output.weights.len()]);
                    }
                    self.covariance.at_row(psi, &self.starts, work, variances);
                }
                let at = LinearPredictors {
                    rows: 1,
                    eta,
                    variances,
                };
                self.finish(at, Scratchpad { numbers, workspace }, row..row + 1, to)
            },
        )
    }

    fn functions_at_row(&self, x: &[f64], phi: &mut [f64]) {
        let mut rest = phi;
        for block in &self.blocks {
            let (to, after) = rest.split_at_mut(block.len());
            match block {
                Block::Constant => to[0] = 1.0,
                Block::Columns { columns, offsets } => {
                    let of = columns.iter().zip(offsets);
                    to.iter_mut()
                        .zip(of)
                        .for_each(|(v, (&j, offset))| *v = x[j] - offset);
                }
                // Kernels are exactly symmetric.
                Block::Centres { kernel, points, .. } => {
                    kernel.column_into(points, x, 0..points.n_points(), to);
                }
            }
            rest = after;
        }
    }

    /// Predicts a batch with loops over the rows.
    pub(crate) fn predict_batch(
        &self,
        x: &[f64],
        range: Range<usize>,
        with_variance: bool,
        to: &mut Request<'_>,
    ) -> Result<()> {
        let (m, n, rows) = (self.n_functions, self.n_outputs(), range.len());
        let width = self.n_variances(with_variance);
        let n_scratch = self.n_scratch(rows, width);
        with_scratch(
            rows * (m + n + width + 1) + n_scratch,
            |Scratch {
                 values,
                 points,
                 workspace,
             }| {
                let (phi, rest) = values.split_at_mut(rows * m);
                let (eta, rest) = rest.split_at_mut(rows * n);
                let (variances, rest) = rest.split_at_mut(rows * width);
                let (numbers, work) = rest.split_at_mut(n_scratch);
                let d = self.n_features();
                points.refill(&x[range.start * d..range.end * d], rows, d);
                let mut rest = &mut *phi;
                for block in &self.blocks {
                    let (to, after) = rest.split_at_mut(rows * block.len());
                    self.functions_at_rows(block, points, to);
                    rest = after;
                }
                for (eta, output) in eta.chunks_exact_mut(rows).zip(&self.outputs) {
                    let phi = output.of(phi, rows);
                    eta.fill(0.0);
                    for (k, &w) in output.weights.iter().enumerate() {
                        dispatch(|| axpy(w, phi.column(k), eta));
                    }
                }
                if width > 0 {
                    let of = |c: usize| self.outputs[c].of(phi, rows);
                    self.covariance
                        .at_rows(rows, &self.starts, of, work, variances);
                }
                let at = LinearPredictors {
                    rows,
                    eta,
                    variances,
                };
                self.finish(at, Scratchpad { numbers, workspace }, range, to)
            },
        )
    }

    fn functions_at_rows(&self, block: &Block, x: &Points, out: &mut [f64]) {
        let rows = x.n_points();
        match block {
            Block::Constant => out.fill(1.0),
            Block::Columns { columns, offsets } => {
                let of = columns.iter().zip(offsets);
                for (out, (&j, offset)) in out.chunks_exact_mut(rows).zip(of) {
                    let values = out.iter_mut().zip(x.feature(j));
                    values.for_each(|(v, x)| *v = x - offset);
                }
            }
            Block::Centres { kernel, table, .. } => {
                let centres = self.parts.tables.get(table);
                let centres = centres.map_or(&[][..], |table| &table.values);
                let centres = centres.chunks_exact(self.n_features());
                for (out, centre) in out.chunks_exact_mut(rows).zip(centres) {
                    kernel.column_into(x, centre, 0..rows, out);
                }
            }
        }
    }
}

impl Block {
    fn len(&self) -> usize {
        match self {
            Self::Constant => 1,
            Self::Columns { columns, .. } => columns.len(),
            Self::Centres { points, .. } => points.n_points(),
        }
    }
}

impl Output {
    fn at_row(&self, phi: &[f64]) -> f64 {
        let add = |sum: f64, (w, v): (&f64, &f64)| sum + w * v;
        match &self.functions {
            None => self.weights.iter().zip(phi).fold(0.0, add),
            Some(functions) => {
                let phi = functions.iter().map(|&j| &phi[j]);
                self.weights.iter().zip(phi).fold(0.0, add)
            }
        }
    }

    /// Copies the basis functions of the output into contiguous memory.
    fn gather(&self, phi: &[f64], psi: &mut [f64]) {
        match &self.functions {
            None => psi.copy_from_slice(phi),
            Some(functions) => {
                psi.iter_mut()
                    .zip(functions)
                    .for_each(|(v, &j)| *v = phi[j]);
            }
        }
    }

    fn of<'a>(&'a self, phi: &'a [f64], rows: usize) -> Functions<'a> {
        Functions {
            values: phi,
            rows,
            chosen: self.functions.as_deref(),
        }
    }
}

/// Memory that a thread keeps between predictions.
#[derive(Debug, Default)]
struct Scratch {
    /// Unspecified values.
    values: Vec<f64>,
    points: Points,
    workspace: Workspace,
}

/// Largest length of `values` that a thread keeps; larger ones are freed after the prediction.
const MAX_KEPT_VALUES: usize = 1 << 18;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Calls `f` with at least `len` values.
fn with_scratch<T>(len: usize, f: impl FnOnce(&mut Scratch) -> T) -> T {
    // Taken out, so that a nested call allocates its own.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    if scratch.values.len() < len {
        scratch.values.resize(len, 0.0);
    }
    let result = f(&mut scratch);
    if scratch.values.len() <= MAX_KEPT_VALUES {
        SCRATCH.set(Some(scratch));
    }
    result
}
