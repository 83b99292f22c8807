//! Passes over a design matrix, block by block, and sums over blocks of rows.

use std::cell::RefCell;
use std::ops::Range;

use nalgebra::DMatrix;

use crate::data::design::{Block, Design};
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::axpy;
use crate::parallel::{fill_pieces, map_pieces, pieces};
use crate::{Error, Result};

/// Rows of one piece of work in sums over rows.
pub(crate) const ROW_BLOCK: usize = 2048;
/// Rows of a block of the design. With [`COLUMN_BLOCK`] columns it stays in the second-level cache; columns at a distance of a power of
/// two would compete for the same cache sets.
const BLOCK_ROWS: usize = 504;
/// Columns of a block of the design, handled by one thread.
pub(crate) const COLUMN_BLOCK: usize = 64;

thread_local! {
    /// Memory into which lazy designs evaluate their blocks.
    pub(crate) static BLOCK_BUFFER: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

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

/// All N x K values of a design, column-major. An error of `check`, called regularly, ends the evaluation; once `check` fails, it must
/// keep failing.
pub(crate) fn values_of(
    design: &dyn Design,
    check: impl Fn() -> Result<()> + Sync + Send,
) -> Result<Vec<f64>> {
    let (n, k) = (design.n_rows(), design.n_basis());
    let mut values = Vec::new();
    values
        .try_reserve_exact(n * k)
        .map_err(|_| Error::no_memory_for("the dictionary", n * k))?;
    values.resize(n * k, 0.0);
    fill_pieces(&mut values, COLUMN_BLOCK * n, |start, out| {
        let first = start / n;
        evaluate(design, first..first + out.len() / n, &check, out);
    });
    check()?;
    Ok(values)
}

/// All rows of some columns, until `check` fails.
fn evaluate(
    design: &dyn Design,
    columns: Range<usize>,
    check: impl Fn() -> Result<()>,
    out: &mut [f64],
) {
    /// Rows and columns between two checks: a fraction of a second for kernels of ten thousand inputs.
    const ROWS: usize = 1 << 10;
    const COLUMNS: usize = 8;
    let n = design.n_rows();
    for part in pieces(columns.len(), COLUMNS) {
        let out = &mut out[part.start * n..];
        let part = columns.start + part.start..columns.start + part.end;
        for rows in pieces(n, ROWS) {
            if check().is_err() {
                return;
            }
            BLOCK_BUFFER.with_borrow_mut(|buffer| {
                let block = design.block(rows.clone(), part.clone(), buffer);
                for c in 0..part.len() {
                    out[c * n + rows.start..][..rows.len()]
                        .copy_from_slice(block.column(c, rows.len()));
                }
            });
        }
    }
}

/// The m x m sum over pieces of at most `size` rows; `add(rows, out)` adds the contribution of some rows.
pub(crate) fn sum_over_rows(
    n_rows: usize,
    size: usize,
    m: usize,
    add: impl Fn(Range<usize>, &mut [f64]) + Sync + Send,
) -> DMatrix<f64> {
    let mut sum = DMatrix::zeros(m, m);
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
