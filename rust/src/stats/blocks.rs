//! Passes over a design matrix, block by block, and sums over blocks of rows. Knows neither targets nor weights.

use std::cell::RefCell;
use std::ops::Range;

use nalgebra::DMatrix;

use super::design::{Block, Design};
use crate::Result;
use crate::linalg::blas::axpy;
use crate::linalg::parallel::{map_pieces, pieces};

/// Rows handled at a time where every row is handled once.
pub(super) const ROW_BLOCK: usize = 2048;
/// Rows of a block of the design: with the columns below it stays in the second-level cache, where columns at a distance of a
/// power of two would share their places.
const BLOCK_ROWS: usize = 504;
/// Columns handled at a time by one thread.
pub(super) const COLUMN_BLOCK: usize = 64;

thread_local! {
    /// Where lazy designs evaluate their blocks; kept from one block to the next.
    pub(super) static BLOCK_BUFFER: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// One block as [`over_blocks`] shows it.
pub(super) struct Visit<'a> {
    pub(super) values: Block<'a>,
    pub(super) rows: Range<usize>,
}

/// What [`over_blocks`] adds up.
pub(super) struct Sums {
    pub(super) diag: Vec<f64>,
    pub(super) products: Vec<Vec<f64>>,
}

/// Visits every block of the design: `visit(block, diag, products)` adds to the sums of its columns.
/// `products` is (columns of the block) x `n_products`. An error of `check`, asked before each block, ends the pass.
pub(super) fn over_blocks(
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
    let mut sums = Sums {
        diag: Vec::with_capacity(k),
        products: vec![Vec::with_capacity(k); n_products],
    };
    for part in parts {
        let (diag, products) = part?;
        for (column, part) in sums
            .products
            .iter_mut()
            .zip(products.chunks_exact(diag.len()))
        {
            column.extend_from_slice(part);
        }
        sums.diag.extend(diag);
    }
    Ok(sums)
}

/// All rows of some columns into `out`, `stride` apart. An error of `check`, asked now and then, ends it.
pub(super) fn strip_into(
    design: &dyn Design,
    columns: Range<usize>,
    check: impl Fn() -> Result<()>,
    out: &mut [f64],
    stride: usize,
) -> Result<()> {
    /// Rows and columns between two questions: kernels of ten thousand inputs take a fraction of a second for so many.
    const ROWS: usize = 1 << 13;
    const COLUMNS: usize = 8;
    let n = design.n_rows();
    for part in pieces(columns.len(), COLUMNS) {
        let out = &mut out[part.start * stride..];
        let part = columns.start + part.start..columns.start + part.end;
        for rows in pieces(n, ROWS / COLUMNS) {
            check()?;
            BLOCK_BUFFER.with_borrow_mut(|buffer| {
                let block = design.block(rows.clone(), part.clone(), buffer);
                for c in 0..part.len() {
                    out[c * stride + rows.start..][..rows.len()]
                        .copy_from_slice(block.column(c, rows.len()));
                }
            });
        }
    }
    Ok(())
}

/// The m x m sum of what `add(rows, out)` adds to the share of each so many rows.
pub(super) fn sum_over_rows(
    n_rows: usize,
    at_a_time: usize,
    m: usize,
    add: impl Fn(Range<usize>, &mut [f64]) + Sync + Send,
) -> DMatrix<f64> {
    let mut sum = DMatrix::zeros(m, m);
    if m == 0 {
        return sum;
    }
    let parts = map_pieces(n_rows, at_a_time, |rows| {
        let mut out = vec![0.0; m * m];
        add(rows, &mut out);
        out
    });
    for part in &parts {
        axpy(1.0, part, sum.as_mut_slice());
    }
    sum
}
