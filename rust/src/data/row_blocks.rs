//! Passes over a design matrix, block by block, and sums over blocks of rows. Knows neither targets nor weights.

use std::cell::RefCell;
use std::ops::Range;

use nalgebra::DMatrix;

use crate::data::design::{Block, Design};
use crate::linalg::vector::axpy;
use crate::parallel::{fill_pieces, map_pieces, pieces};
use crate::{Error, Result};

/// Rows handled at a time where every row is handled once.
pub(crate) const ROW_BLOCK: usize = 2048;
/// Rows of a block of the design: with the columns below it stays in the second-level cache, where columns at a distance of a
/// power of two would share their places.
const BLOCK_ROWS: usize = 504;
/// Columns handled at a time by one thread.
pub(crate) const COLUMN_BLOCK: usize = 64;

thread_local! {
    /// Where lazy designs evaluate their blocks; kept from one block to the next.
    pub(crate) static BLOCK_BUFFER: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// One block as [`over_blocks`] shows it.
pub(crate) struct Visit<'a> {
    pub(crate) values: Block<'a>,
    pub(crate) rows: Range<usize>,
}

/// What [`over_blocks`] adds up.
pub(crate) struct Sums {
    pub(crate) diag: Vec<f64>,
    pub(crate) products: Vec<Vec<f64>>,
}

/// Visits every block of the design: `visit(block, diag, products)` adds to the sums of its columns.
/// `products` is (columns of the block) x `n_products`. An error of `check`, asked before each block, ends the pass.
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

/// All N x K values of a design, column-major. An error of `check`, which is asked now and then, ends it; it has to last.
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

/// All rows of some columns, one after another, until `check` fails.
fn evaluate(
    design: &dyn Design,
    columns: Range<usize>,
    check: impl Fn() -> Result<()>,
    out: &mut [f64],
) {
    /// Rows and columns between two questions: kernels of ten thousand inputs take a fraction of a second for so many.
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

/// The m x m sum of what `add(rows, out)` adds to the share of each so many rows.
pub(crate) fn sum_over_rows(
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
