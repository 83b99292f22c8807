//! Passes over a design, block by block; columns divided by their norms, and sums over rows in the same units.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::data::Sweep;
use crate::data::design::{BLOCK_BUFFER, Block, COLUMN_BLOCK, Design};
use crate::error::check_flag;
use crate::linalg::Matrix;
use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot, multiply_into, weighted_square};
use crate::parallel::{fill_pieces, fill_pieces_of, map_pieces, pieces};
use crate::{Error, Result};

/// Rows of one piece of work in sums over rows.
pub(crate) const ROW_BLOCK: usize = 2048;
/// Rows of a block of the design. With `COLUMN_BLOCK` columns it stays in the second-level cache; columns at a distance of a power of
/// two would compete for the same cache sets.
const BLOCK_ROWS: usize = 504;
/// Columns of a Gram matrix that one thread computes at a time.
pub(crate) const GRAM_COLUMNS: usize = 24;
/// Rows of a block of a Gram matrix: some hundred columns of this height stay in the caches. A power of two would make columns compete
/// for the same cache sets.
pub(crate) const GRAM_ROWS: usize = 504;

/// One block in a pass of [`over_blocks`].
pub(crate) struct Visit<'a> {
    pub(crate) values: Block<'a>,
    pub(crate) rows: Range<usize>,
}

impl Visit<'_> {
    /// Adds the products of the first `width` columns with the columns of `right`, which holds these rows only.
    pub(crate) fn add_products(&self, right: TallMatrix<'_>, products: &mut [f64], width: usize) {
        let values = TallMatrix::new(self.values.data, self.values.stride, width);
        add_transpose_product(values, right, self.rows.len(), products, width);
    }
}

/// Sums over rows for each column of a design.
pub(crate) struct Sums {
    pub(crate) diag: Vec<f64>,
    pub(crate) products: Vec<Vec<f64>>,
}

impl Sums {
    /// The sums of all columns from those of consecutive pieces: each piece has `diag` and, column-major, `n_products` products.
    pub(crate) fn concat(parts: Vec<(Vec<f64>, Vec<f64>)>, n_products: usize) -> Self {
        let mut sums = Self {
            diag: Vec::new(),
            products: vec![Vec::new(); n_products],
        };
        for (diag, products) in parts {
            let columns = products.chunks_exact(diag.len());
            for (sum, column) in sums.products.iter_mut().zip(columns) {
                sum.extend_from_slice(column);
            }
            sums.diag.extend(diag);
        }
        sums
    }
}

/// Visits every block of the design: `visit(block, diag, products)` adds to the sums of its columns.
/// `products` is (columns of the block) x `n_products`. An error of `check`, called before each block, ends the pass.
pub(crate) fn over_blocks(
    design: &dyn Design,
    n_products: usize,
    check: impl Fn() -> Result<()> + Sync,
    visit: impl Fn(&Visit<'_>, &mut [f64], &mut [f64]) + Sync,
) -> Result<Sums> {
    let (n, k) = (design.n_rows(), design.n_basis());
    let parts = map_pieces(k, COLUMN_BLOCK, |columns| -> Result<(Vec<f64>, Vec<f64>)> {
        let mut diag = vec![0.0; columns.len()];
        let mut products = vec![0.0; columns.len() * n_products];
        for rows in pieces(n, BLOCK_ROWS) {
            check()?;
            BLOCK_BUFFER.with_borrow_mut(|buffer| {
                let values = design.block(rows.clone(), columns.clone(), buffer);
                visit(&Visit { values, rows }, &mut diag, &mut products);
            });
        }
        Ok((diag, products))
    });
    let parts: Result<Vec<_>> = parts.into_iter().collect();
    Ok(Sums::concat(parts?, n_products))
}

/// The m x m sum over pieces of at most `size` rows; `add(rows, out)` adds the contribution of some rows.
pub(crate) fn sum_over_rows(
    n_rows: usize,
    size: usize,
    m: usize,
    add: impl Fn(Range<usize>, &mut [f64]) + Sync + Send,
) -> Matrix {
    let mut sum = Matrix::zeros(m, m);
    if m == 0 {
        return sum;
    }
    let parts = map_pieces(n_rows, size, |rows| {
        let mut out = vec![0.0; m * m];
        add(rows, &mut out);
        out
    });
    for part in &parts {
        axpy(1.0, part, sum.as_mut_slice());
    }
    sum
}

/// Adds A^T W A, on and below the diagonal, for columns A and weights of the same rows; without weights they are 1. Once `cancel` is
/// raised it ends early, and the sum has no meaning.
pub(crate) fn add_weighted_gram(
    columns: &[&[f64]],
    weights: Option<&[f64]>,
    cancel: Option<&AtomicBool>,
    out: &mut [f64],
) {
    let (m, n) = (columns.len(), columns.first().map_or(0, |c| c.len()));
    fill_pieces_of(m * m * n, out, GRAM_COLUMNS * m, |start, out| {
        if check_flag(cancel).is_err() {
            return;
        }
        let (first, width) = (start / m, out.len() / m);
        let below = &columns[first..];
        // A few columns at a time, so that they are read from the cache.
        let mut weighted;
        let right = if let Some(weights) = weights {
            weighted = AlignedColumns::with_room(width * stride(n));
            for column in &below[..width] {
                multiply_into(column, weights, weighted.grow(stride(n)));
            }
            TallMatrix::new(&weighted, stride(n), width)
        } else {
            TallMatrix::listed(&below[..width])
        };
        let below = TallMatrix::listed(below);
        add_lower_transpose_product(below, right, n, &mut out[first..], m);
    });
}

/// Adds the squared lengths of the columns of a block to `squares`; `weights` are those of all rows.
pub(crate) fn add_squares(block: &Visit<'_>, weights: Option<&[f64]>, squares: &mut [f64]) {
    let weights = weights.map(|w| &w[block.rows.clone()]);
    for (c, square) in squares.iter_mut().enumerate() {
        let column = block.values.column(c, block.rows.len());
        *square += weights.map_or_else(
            || column_dot(column, column),
            |w| weighted_square(column, w),
        );
    }
}

/// The lengths of columns from their squares; 0 for columns too small to divide by, which can never be added.
pub(crate) fn lengths(squares: &[f64]) -> Result<Vec<f64>> {
    if squares.iter().any(|s| !s.is_finite()) {
        let what = "a column of the design matrix is not finite or too large to square; rescale X or the kernel";
        return Err(Error::Invalid { what: what.into() });
    }
    let length = |&square: &f64| if square > 1e-290 { square.sqrt() } else { 0.0 };
    Ok(squares.iter().map(length).collect())
}

/// A sum over a column divided by the norm of the column; 0 for a column that can never be added.
pub(crate) fn over_norm(sum: f64, norm: f64) -> f64 {
    if norm > 0.0 { sum / norm } else { 0.0 }
}

/// The squared length of a column divided by its norm: 1, or 0 for a column that can never be added.
pub(crate) fn unit_square(norm: f64) -> f64 {
    if norm > 0.0 { 1.0 } else { 0.0 }
}

/// Divides sums over columns by the norms of the columns.
pub(crate) fn divide_by_norms(sums: &mut [f64], norms: &[f64]) {
    for (sum, &norm) in sums.iter_mut().zip(norms) {
        *sum = over_norm(*sum, norm);
    }
}

/// Converts sums over original columns to sums over unit-norm columns. `fixed`: the working weights are the sample weights, so that the
/// squared lengths are 1.
pub(crate) fn unit_columns(sums: Sums, norms: &[f64], fixed: bool, deviances: Vec<f64>) -> Sweep {
    let (mut diag, mut gram) = (sums.diag, sums.products);
    if fixed {
        diag = norms.iter().map(|&norm| unit_square(norm)).collect();
    } else {
        divide_by_norms(&mut diag, norms);
        divide_by_norms(&mut diag, norms);
    }
    for column in &mut gram {
        divide_by_norms(column, norms);
    }
    let gradients = gram.split_off(gram.len() - deviances.len());
    Sweep {
        diag,
        gradient: gradients.concat(),
        gram,
        deviances,
    }
}

/// The columns of the active functions. Each is stored separately, so that adding or deleting a function moves no other.
///
/// Invariant: `values[k]` holds the column of `functions[k]` at all rows, divided by its norm.
#[derive(Debug, Default)]
pub(crate) struct ActiveColumns {
    functions: Vec<usize>,
    values: Vec<AlignedColumns>,
}

impl ActiveColumns {
    /// Changes the active functions, evaluating the columns of new ones.
    pub(crate) fn set_active(&mut self, design: &dyn Design, norms: &[f64], active: &[usize]) {
        if self.functions == active {
            return;
        }
        let n = design.n_rows();
        let old = self.functions.drain(..).zip(self.values.drain(..));
        let mut old: HashMap<usize, AlignedColumns> = old.collect();
        let kept = active.iter().map(|j| old.remove(j).unwrap_or_default());
        let mut values: Vec<AlignedColumns> = kept.collect();
        // New functions use the memory of deleted ones.
        let mut spare = old.into_values();
        let mut new: Vec<(usize, &mut AlignedColumns)> = Vec::new();
        for (&j, column) in active.iter().zip(&mut values) {
            if column.is_empty() {
                *column = spare.next().unwrap_or_default();
                new.push((j, column));
            }
        }
        fill_pieces(&mut new, columns_per_thread(n), |_, new| {
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
        let columns = self.values.iter();
        columns.map(|column| &column[rows.clone()]).collect()
    }

    /// The inner product of each column with `right`.
    pub(crate) fn products(&self, right: &[f64], out: &mut [f64]) {
        fill_pieces(out, columns_per_thread(right.len()), |start, out| {
            for (out, column) in out.iter_mut().zip(&self.values[start..]) {
                *out = column_dot(column, right);
            }
        });
    }

    /// The columns `js`; those of inactive functions are evaluated and not kept.
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

/// Columns of `n` rows that make enough work for one thread.
fn columns_per_thread(n: usize) -> usize {
    const VALUES: usize = 1 << 16;
    (VALUES / n.max(1)).max(1)
}

/// Some rows of the columns `js`, divided by their norms, evaluated in parallel. Each thread allocates and zeroes the memory that it
/// writes: `strips` keeps it from one call to the next.
pub(crate) fn columns_into_strips<'s>(
    design: &dyn Design,
    norms: &[f64],
    js: &[usize],
    rows: &Range<usize>,
    strips: &'s mut Vec<AlignedColumns>,
) -> Vec<&'s [f64]> {
    /// Columns that one thread writes.
    const COLUMNS: usize = 16;
    let (height, stride) = (rows.len(), stride(rows.len()));
    strips.resize_with(js.len().div_ceil(COLUMNS), AlignedColumns::default);
    fill_pieces(strips, 1, |strip, out| {
        let js = js[strip * COLUMNS..].iter().take(COLUMNS);
        out[0].resize(js.len() * stride);
        for (&j, column) in js.zip(out[0].chunks_exact_mut(stride)) {
            column_into(design, norms, j, rows, &mut column[..height]);
        }
    });
    let columns = strips.iter().flat_map(|strip| strip.chunks_exact(stride));
    columns.map(|column| &column[..height]).collect()
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
