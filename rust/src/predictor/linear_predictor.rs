//! Functions and linear predictors at rows: one by one without taking memory, or many side by side.
//!
//! Alone or in company, a row goes through the same operations in the same order.

use std::ops::Range;

use crate::Result;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::predictor::outputs::{Aside, Found};
use crate::predictor::predict::Answers;
use crate::predictor::scratch::{Scratch, with_scratch};
use crate::predictor::variance::{Functions, axpy};
use crate::predictor::{Block, Output, Predictor};

impl Predictor {
    /// One row: along the functions.
    pub(crate) fn one(
        &self,
        x: &[f64],
        with_spread: bool,
        row: usize,
        to: &mut Answers<'_>,
    ) -> Result<()> {
        let (m, n) = (self.n_functions, self.n_outputs());
        let n_weights = self.starts[n];
        let width = self.width(with_spread);
        let (n_psi, n_work) = if width > 0 {
            (n_weights, self.spread.work(n_weights))
        } else {
            (0, 0)
        };
        let n_aside = self.n_aside(1, width);
        with_scratch(
            m + n + width + n_aside + n_psi + n_work,
            |Scratch { values, room, .. }| {
                let (phi, rest) = values.split_at_mut(m);
                let (eta, rest) = rest.split_at_mut(n);
                let (spread, rest) = rest.split_at_mut(width);
                let (numbers, rest) = rest.split_at_mut(n_aside);
                let (psi, work) = rest.split_at_mut(n_psi);
                self.functions_at_row(x, phi);
                for (eta, output) in eta.iter_mut().zip(&self.outputs) {
                    *eta = output.at_row(phi);
                }
                if width > 0 {
                    for (output, &start) in self.outputs.iter().zip(&self.starts) {
                        output.gather(phi, &mut psi[start..][..output.weights.len()]);
                    }
                    self.spread.at_row(psi, &self.starts, work, spread);
                }
                let found = Found {
                    rows: 1,
                    eta,
                    spread,
                };
                self.finish(found, Aside { numbers, room }, row..row + 1, to)
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
                // Kernels are symmetric, to the bit.
                Block::Centres { kernel, points, .. } => {
                    kernel.column_into(points, x, 0..points.n_points(), to);
                }
            }
            rest = after;
        }
    }

    /// Some rows: along the rows.
    pub(crate) fn some(
        &self,
        x: &[f64],
        range: Range<usize>,
        with_spread: bool,
        to: &mut Answers<'_>,
    ) -> Result<()> {
        let (m, n, rows) = (self.n_functions, self.n_outputs(), range.len());
        let width = self.width(with_spread);
        let n_aside = self.n_aside(rows, width);
        with_scratch(
            rows * (m + n + width + 1) + n_aside,
            |Scratch {
                 values,
                 points,
                 room,
             }| {
                let (phi, rest) = values.split_at_mut(rows * m);
                let (eta, rest) = rest.split_at_mut(rows * n);
                let (spread, rest) = rest.split_at_mut(rows * width);
                let (numbers, work) = rest.split_at_mut(n_aside);
                let d = self.n_features();
                points.refill(&x[range.start * d..range.end * d], rows, d);
                let mut rest = &mut *phi;
                for block in &self.blocks {
                    let (to, after) = rest.split_at_mut(rows * block.len());
                    self.functions_at_rows(block, points, to);
                    rest = after;
                }
                for (eta, output) in eta.chunks_exact_mut(rows).zip(&self.outputs) {
                    dispatch(Weigh {
                        output,
                        phi: output.of(phi, rows),
                        eta,
                    });
                }
                if width > 0 {
                    let of = |c: usize| self.outputs[c].of(phi, rows);
                    self.spread.at_rows(rows, &self.starts, of, work, spread);
                }
                let found = Found { rows, eta, spread };
                self.finish(found, Aside { numbers, room }, range, to)
            },
        )
    }

    fn functions_at_rows(&self, block: &Block, x: &crate::Points, out: &mut [f64]) {
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

    /// Its functions side by side.
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

/// A linear predictor at rows side by side.
struct Weigh<'a> {
    output: &'a Output,
    phi: Functions<'a>,
    eta: &'a mut [f64],
}

impl WithSimd for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        self.eta.fill(0.0);
        for (k, &w) in self.output.weights.iter().enumerate() {
            axpy(w, self.phi.column(k), self.eta);
        }
    }
}
