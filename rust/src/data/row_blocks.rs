//! Passes over a design matrix, block by block, and sums over blocks of rows.

use std::ops::Range;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::design::{BLOCK_BUFFER, Block, COLUMN_BLOCK, Design};
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::axpy;
use crate::parallel::{map_pieces, pieces};

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
