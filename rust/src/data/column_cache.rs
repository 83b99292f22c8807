//! Unit-norm columns of a design, kept while they are in use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::data::Sweep;
use crate::data::design::Design;
use crate::data::row_blocks::{BLOCK_BUFFER, Sums};
use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::vector::{column_dot, weighted_square};
use crate::parallel::fill_pieces;
use crate::{Error, Result};

/// The squared length of a column under the sample weights of its rows.
pub(crate) fn squared_length(column: &[f64], weights: Option<&[f64]>) -> f64 {
    match weights {
        None => column_dot(column, column),
        Some(w) => weighted_square(column, w),
    }
}

/// The lengths of columns, given their squares; 0 for columns too small to divide by, which can never enter.
pub(crate) fn lengths(squares: &[f64]) -> Result<Vec<f64>> {
    if squares.iter().any(|s| !s.is_finite()) {
        let what = "a column of the design matrix is not finite or too large to square; rescale X or the kernel";
        return Err(Error::Invalid { what: what.into() });
    }
    let length = |&square: &f64| if square > 1e-290 { square.sqrt() } else { 0.0 };
    Ok(squares.iter().map(length).collect())
}

/// Columns that the active functions need again and again, evaluated once.
///
/// Between calls: each column held has a value for each row, divided by its norm.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    held: HashMap<usize, Vec<f64>>,
}

impl Columns {
    /// The columns `js` side by side (N x |js|), evaluating those not yet held.
    pub(crate) fn gather(
        &mut self,
        design: &dyn Design,
        norms: &[f64],
        js: &[usize],
        out: &mut Vec<f64>,
    ) {
        let n = design.n_rows();
        self.make_room(js);
        out.clear();
        // Columns may be long: no room for more of them than there are.
        out.reserve_exact(js.len() * n);
        for &j in js {
            let column = self.held.entry(j).or_insert_with(|| {
                let mut column = vec![0.0; n];
                column_into(design, norms, j, &(0..n), &mut column);
                column
            });
            out.extend_from_slice(column);
        }
    }

    /// Forgets everything once columns out of use outnumber those in use.
    fn make_room(&mut self, js: &[usize]) {
        const SPARE: usize = 64;
        if self.held.len() > 2 * js.len() + SPARE {
            self.held.clear();
        }
    }
}

/// The columns of the active functions and no others, each in memory of its own: a change of functions moves none.
///
/// Between calls: `values[k]` holds the column of `functions[k]` at all rows, divided by its norm.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    functions: Vec<usize>,
    values: Vec<AlignedColumns>,
}

impl Packed {
    /// Changes over to the functions `active`, evaluating those that are new.
    pub(crate) fn bring_to(&mut self, design: &dyn Design, norms: &[f64], active: &[usize]) {
        if self.functions == active {
            return;
        }
        let n = design.n_rows();
        let mut old: HashMap<usize, AlignedColumns> = self
            .functions
            .drain(..)
            .zip(self.values.drain(..))
            .collect();
        let mut values: Vec<AlignedColumns> = active
            .iter()
            .map(|j| old.remove(j).unwrap_or_default())
            .collect();
        // The memory of those that left serves those that come.
        let mut spare = old.into_values();
        let mut new: Vec<(usize, &mut AlignedColumns)> = Vec::new();
        for (&j, column) in active.iter().zip(&mut values) {
            if column.is_empty() {
                *column = spare.next().unwrap_or_default();
                new.push((j, column));
            }
        }
        fill_pieces(&mut new, at_a_time(n), |_, new| {
            for (j, column) in new {
                column.resize(n);
                column_into(design, norms, *j, &(0..n), column);
            }
        });
        self.values = values;
        self.functions.extend_from_slice(active);
    }

    /// Some rows of the columns.
    pub(crate) fn at(&self, rows: &Range<usize>) -> Vec<&[f64]> {
        self.values
            .iter()
            .map(|column| &column[rows.clone()])
            .collect()
    }

    /// The inner product of each column with `right`.
    pub(crate) fn products(&self, right: &[f64], out: &mut [f64]) {
        let size = at_a_time(right.len());
        fill_pieces(out, size, |start, out| {
            for (out, column) in out.iter_mut().zip(&self.values[start..]) {
                *out = column_dot(column, right);
            }
        });
    }

    /// The columns `js`, evaluating those that are not there.
    pub(crate) fn columns<'s>(
        &'s self,
        design: &dyn Design,
        norms: &[f64],
        js: &[usize],
    ) -> Vec<Cow<'s, [f64]>> {
        let n = design.n_rows();
        let find = |j: &usize| {
            if let Some(k) = self.functions.iter().position(|own| own == j) {
                return Cow::Borrowed(&self.values[k][..]);
            }
            let mut column = vec![0.0; n];
            column_into(design, norms, *j, &(0..n), &mut column);
            Cow::Owned(column)
        };
        js.iter().map(find).collect()
    }
}

/// How many columns of `n` rows are worth a thread.
fn at_a_time(n: usize) -> usize {
    const VALUES: usize = 1 << 16;
    (VALUES / n.max(1)).max(1)
}

/// Columns that one thread writes at a time.
const AT_A_TIME: usize = 16;

/// Brings `out` to some rows of the columns `js`, divided by their norms, on as many threads as there are; how far apart they begin.
pub(crate) fn columns_into(
    design: &dyn Design,
    norms: &[f64],
    js: &[usize],
    rows: &Range<usize>,
    out: &mut AlignedColumns,
) -> usize {
    let stride = stride(rows.len());
    // Not cleared first: old values need not be zeroed to be overwritten.
    out.resize(js.len() * stride);
    fill_pieces(out, AT_A_TIME * stride, |start, out| {
        write_columns(design, norms, &js[start / stride..], rows, out);
    });
    stride
}

/// The same a few columns at a time, each few in memory that is found, and zeroed once, by the thread that writes them.
pub(crate) fn columns_into_strips<'s>(
    design: &dyn Design,
    norms: &[f64],
    js: &[usize],
    rows: &Range<usize>,
    strips: &'s mut Vec<AlignedColumns>,
) -> Vec<&'s [f64]> {
    let stride = stride(rows.len());
    strips.resize_with(js.len().div_ceil(AT_A_TIME), AlignedColumns::default);
    fill_pieces(strips, 1, |strip, out| {
        let js = &js[strip * AT_A_TIME..];
        let out = &mut out[0];
        out.resize(js.len().min(AT_A_TIME) * stride);
        write_columns(design, norms, js, rows, out);
    });
    let columns = strips.iter().flat_map(|strip| strip.chunks_exact(stride));
    columns.map(|column| &column[..rows.len()]).collect()
}

/// As many of these columns as there is room for.
fn write_columns(
    design: &dyn Design,
    norms: &[f64],
    js: &[usize],
    rows: &Range<usize>,
    out: &mut [f64],
) {
    let height = rows.len();
    for (&j, out) in js.iter().zip(out.chunks_exact_mut(stride(height))) {
        column_into(design, norms, j, rows, &mut out[..height]);
    }
}

/// Some rows of column `j`, divided by its norm.
pub(crate) fn column_into(
    design: &dyn Design,
    norms: &[f64],
    j: usize,
    rows: &Range<usize>,
    out: &mut [f64],
) {
    let scale = 1.0 / norms[j];
    BLOCK_BUFFER.with_borrow_mut(|buffer| {
        let block = design.block(rows.clone(), j..j + 1, buffer);
        for (out, v) in out.iter_mut().zip(block.column(0, rows.len())) {
            *out = v * scale;
        }
    });
}

/// Sums over original columns, turned into those over unit-norm columns; `fixed`: each has squared length 1 then.
pub(crate) fn unit_columns(sums: Sums, norms: &[f64], fixed: bool, deviance: f64) -> Sweep {
    let scale = |values: &mut [f64]| {
        for (v, &norm) in values.iter_mut().zip(norms) {
            *v = if norm > 0.0 { *v / norm } else { 0.0 };
        }
    };
    let Sums {
        mut diag,
        products: mut gram,
    } = sums;
    if fixed {
        for (d, &norm) in diag.iter_mut().zip(norms) {
            *d = if norm > 0.0 { 1.0 } else { 0.0 };
        }
    } else {
        scale(&mut diag);
        scale(&mut diag);
    }
    for column in &mut gram {
        scale(column);
    }
    let gradient = gram.pop().unwrap_or_default();
    Sweep {
        diag,
        gradient,
        gram,
        deviance,
    }
}
