//! The inverse of A from its factor: X = L^-1, and X^T X.
//!
//! X is row-major with zeros above its diagonal: the vectors of a tile lie along rows of X in both steps.

use std::ops::Range;

use crate::linalg::aligned_columns::{AlignedColumns, stride};
use crate::linalg::cholesky::Cholesky;
use crate::linalg::cholesky::tiles::{
    COEFFICIENTS, PANEL, RUN, Tiles, Triangle, cover, load, outer_sum, store, width,
};
use crate::linalg::simd::{Simd, WithSimd};
use crate::parallel::pieces;

/// Writes the upper triangle of the inverse, column-major; it has no meaning after a cancellation.
pub(crate) struct Inverse<'a> {
    pub(crate) chol: &'a Cholesky,
    pub(crate) out: &'a mut [f64],
    pub(crate) out_stride: usize,
}

impl WithSimd for Inverse<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let n = self.chol.len();
        let stride = stride(n);
        let mut x = AlignedColumns::zeros(n.next_multiple_of(COEFFICIENTS) * stride);
        for i in 0..n {
            x[i * stride + i] = 1.0;
        }
        for panel in pieces(n, PANEL) {
            for terms in pieces(panel.start, RUN) {
                each_tile::<S>(self.chol, &panel, |rows, columns| {
                    Rows::of(self.chol, &mut x, rows).subtract(simd, &terms, columns);
                });
            }
            each_tile::<S>(self.chol, &panel, |rows, columns| {
                let terms = panel.start..rows.start;
                let mut rows = Rows::of(self.chol, &mut x, rows);
                rows.subtract(simd, &terms, columns.clone());
                rows.solve(simd, columns);
            });
        }
        for panel in pieces(n, PANEL) {
            for terms in pieces(n - panel.start, RUN) {
                each_tile::<S>(self.chol, &panel, |columns, rows| {
                    let from = terms.start + panel.start;
                    let mut square = Square {
                        x: &x,
                        stride,
                        terms: from.max(columns.start)..terms.end + panel.start,
                        is_first: terms.start == 0,
                        out: &mut *self.out,
                        out_stride: self.out_stride,
                        columns,
                    };
                    cover(simd, rows, &mut square);
                });
            }
        }
    }
}

/// Calls `f` with the rows and columns of each tile of a panel up to the diagonal; for each range of columns from the top
/// down.
#[inline(always)]
fn each_tile<S: Simd>(
    chol: &Cholesky,
    panel: &Range<usize>,
    mut f: impl FnMut(Range<usize>, Range<usize>),
) {
    for first in (0..panel.end).step_by(width::<S>()) {
        if chol.is_cancelled() {
            return;
        }
        for row in panel.clone().step_by(COEFFICIENTS) {
            let end = panel.end.min(row + COEFFICIENTS);
            if first < end {
                f(row..end, first..end.min(first + width::<S>()));
            }
        }
    }
}

/// Some rows of X, initialised with the identity, after all rows before them.
struct Rows<'a> {
    factor: &'a [f64],
    factor_stride: usize,
    earlier: &'a [f64],
    here: &'a mut [f64],
    stride: usize,
    places: Range<usize>,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn of(chol: &'a Cholesky, x: &'a mut [f64], places: Range<usize>) -> Self {
        let stride = stride(chol.len());
        let (earlier, here) = x.split_at_mut(places.start * stride);
        Self {
            factor: chol.factor.as_slice(),
            factor_stride: chol.factor.nrows(),
            earlier,
            here: &mut here[..places.len() * stride],
            stride,
            places,
        }
    }

    /// Subtracts the contribution of some earlier rows from these columns.
    #[inline(always)]
    fn subtract<S: Simd>(&mut self, simd: S, terms: &Range<usize>, columns: Range<usize>) {
        // Earlier rows are zero to the right of their diagonal.
        let terms = terms.start.max(columns.start)..terms.end;
        if !terms.is_empty() {
            cover(simd, columns, &mut Subtract(self, terms));
        }
    }

    /// Solves with the block on the diagonal.
    #[inline(always)]
    fn solve<S: Simd>(&mut self, simd: S, columns: Range<usize>) {
        let first = self.places.start;
        let element =
            |r: usize, s: usize| self.factor[(first + s) * self.factor_stride + first + r];
        let lower = Triangle::of(self.places.len(), element);
        cover(simd, columns, &mut Solve(self, &lower));
    }
}

struct Subtract<'a, 'b>(&'a mut Rows<'b>, Range<usize>);

impl<S: Simd> Tiles<S> for Subtract<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let Self(rows, terms) = self;
        let sums = outer_sum::<S, C>(
            simd,
            (
                &rows.factor[terms.start * rows.factor_stride + rows.places.start..],
                rows.factor_stride,
            ),
            (
                &rows.earlier[terms.start * rows.stride + first..],
                rows.stride,
            ),
            terms.len(),
        );
        for (row, sums) in rows.here.chunks_mut(rows.stride).zip(&sums) {
            let mut own = [simd.splat_f64s(0.0); C];
            load::<S, C>(&mut own, &row[first..]);
            for (own, sum) in own.iter_mut().zip(sums) {
                *own = simd.sub_f64s(*own, *sum);
            }
            store::<S, C>(&own, &mut row[first..]);
        }
    }
}

struct Solve<'a, 'b>(&'a mut Rows<'b>, &'a Triangle);

impl<S: Simd> Tiles<S> for Solve<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let Self(rows, lower) = self;
        let mut x = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
        for (x, row) in x.iter_mut().zip(rows.here.chunks(rows.stride)) {
            load::<S, C>(x, &row[first..]);
        }
        lower.solve::<S, C>(simd, &mut x);
        for (x, row) in x.iter().zip(rows.here.chunks_mut(rows.stride)) {
            store::<S, C>(x, &mut row[first..]);
        }
    }
}

/// Adds some terms to columns of X^T X up to their diagonal, or initialises the columns with these terms.
struct Square<'a> {
    x: &'a [f64],
    stride: usize,
    terms: Range<usize>,
    is_first: bool,
    out: &'a mut [f64],
    out_stride: usize,
    columns: Range<usize>,
}

impl<S: Simd> Tiles<S> for Square<'_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let x = &self.x[self.terms.start * self.stride..];
        let sums = outer_sum::<S, C>(
            simd,
            (&x[self.columns.start..], self.stride),
            (&x[first..], self.stride),
            self.terms.len(),
        );
        for (j, sums) in self.columns.clone().zip(&sums) {
            let column = &mut self.out[j * self.out_stride..][..=j];
            let out = column[first.min(j + 1)..].chunks_mut(S::F64_LANES);
            for (out, sum) in out.zip(sums) {
                let mut sum = *sum;
                if !self.is_first {
                    sum = simd.add_f64s(simd.partial_load_f64s(out), sum);
                }
                simd.partial_store_f64s(out, sum);
            }
        }
    }
}
