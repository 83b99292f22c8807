//! Blocked Cholesky factorisation, one panel of columns after another.
//!
//! Column-major: the vectors of a tile lie along columns, and its coefficients are rows of earlier columns. Elements that
//! tiles write above the diagonal or below the last row have no meaning.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::linalg::cholesky::tiles::{
    COEFFICIENTS, RUN, Tiles, Triangle, cover, load, outer_sum, store, width,
};
use crate::linalg::cholesky::{FactorizationError, NotPositiveDefinite};
use crate::linalg::simd::{Simd, WithSimd};
use crate::parallel::pieces;

/// Factors a panel of columns after all columns before it.
pub(crate) struct Panel<'a> {
    /// `stride` x `stride`; `stride` is a multiple of every vector length and of [`COEFFICIENTS`].
    pub(crate) values: &'a mut [f64],
    pub(crate) stride: usize,
    /// Rows of the matrix.
    pub(crate) n: usize,
    pub(crate) columns: Range<usize>,
    pub(crate) cancel: Option<&'a AtomicBool>,
}

impl WithSimd for Panel<'_> {
    type Output = Result<(), FactorizationError>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let Self {
            values,
            stride,
            n,
            columns,
            cancel,
        } = self;
        let tiles = |rows: Range<usize>| {
            let tile = move |first: usize| first..rows.end.min(first + width::<S>());
            rows.clone().step_by(width::<S>()).map(tile)
        };
        let cancelled = || cancel.is_some_and(|flag| flag.load(Ordering::Relaxed));
        for terms in pieces(columns.start, RUN) {
            for rows in tiles(columns.start..n) {
                if cancelled() {
                    return Err(FactorizationError::Cancelled);
                }
                for j in columns.clone().step_by(COEFFICIENTS) {
                    if j < rows.end {
                        let mut block = Block::of(values, stride, j);
                        block.subtract(simd, &terms, &rows);
                    }
                }
            }
        }
        for j in columns.clone().step_by(COEFFICIENTS) {
            let mut block = Block::of(values, stride, j);
            let vector_of = |row: usize| row - row % S::F64_LANES;
            block.subtract(simd, &(columns.start..j), &(vector_of(j)..columns.end));
            let mut lower = block.triangle(COEFFICIENTS.min(n - j));
            lower
                .factor()
                .map_err(|s| NotPositiveDefinite { pivot: j + s })?;
            let below = j + COEFFICIENTS;
            if below < columns.end {
                block.solve(simd, &lower, &(vector_of(below)..columns.end));
            }
            // Stored after the tiles, because a wide vector begins above it.
            block.set_triangle(&lower);
        }
        for rows in tiles(columns.end..n) {
            if cancelled() {
                return Err(FactorizationError::Cancelled);
            }
            for j in columns.clone().step_by(COEFFICIENTS) {
                let mut block = Block::of(values, stride, j);
                block.subtract(simd, &(columns.start..j), &rows);
                let lower = block.triangle(COEFFICIENTS);
                block.solve(simd, &lower, &rows);
            }
        }
        Ok(())
    }
}

/// [`COEFFICIENTS`] columns and all columns before them.
struct Block<'a> {
    earlier: &'a [f64],
    columns: &'a mut [f64],
    stride: usize,
    /// The first of these columns, and the row of its diagonal element.
    first: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn of(values: &'a mut [f64], stride: usize, first: usize) -> Self {
        let (earlier, rest) = values.split_at_mut(first * stride);
        Self {
            earlier,
            columns: &mut rest[..COEFFICIENTS * stride],
            stride,
            first,
        }
    }

    /// Subtracts the outer products of some earlier columns from these rows.
    #[inline(always)]
    fn subtract<S: Simd>(&mut self, simd: S, terms: &Range<usize>, rows: &Range<usize>) {
        if !terms.is_empty() {
            cover(simd, rows.clone(), &mut Subtract(self, terms));
        }
    }

    /// Turns these rows into rows of the factor, given the factored block on the diagonal.
    #[inline(always)]
    fn solve<S: Simd>(&mut self, simd: S, lower: &Triangle, rows: &Range<usize>) {
        cover(simd, rows.clone(), &mut Solve(self, lower));
    }

    /// The first `n` rows of the block on the diagonal.
    #[inline(always)]
    fn triangle(&self, n: usize) -> Triangle {
        Triangle::of(n, |r, s| self.columns[s * self.stride + self.first + r])
    }

    #[inline(always)]
    fn set_triangle(&mut self, lower: &Triangle) {
        for (s, column) in self.columns.chunks_mut(self.stride).enumerate() {
            for (value, row) in column[self.first..].iter_mut().zip(&lower.elements) {
                *value = row[s];
            }
        }
    }

    /// These rows of each column.
    #[inline(always)]
    fn rows<S: Simd, const C: usize>(&self, simd: S, first: usize) -> [[S::f64s; C]; COEFFICIENTS] {
        let mut rows = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
        for (rows, column) in rows.iter_mut().zip(self.columns.chunks(self.stride)) {
            load::<S, C>(rows, &column[first..]);
        }
        rows
    }

    #[inline(always)]
    fn set_rows<S: Simd, const C: usize>(
        &mut self,
        first: usize,
        rows: &[[S::f64s; C]; COEFFICIENTS],
    ) {
        for (rows, column) in rows.iter().zip(self.columns.chunks_mut(self.stride)) {
            store::<S, C>(rows, &mut column[first..]);
        }
    }
}

struct Subtract<'a, 'b>(&'a mut Block<'b>, &'a Range<usize>);

impl<S: Simd> Tiles<S> for Subtract<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let Self(block, terms) = self;
        let earlier = &block.earlier[terms.start * block.stride..];
        let sums = outer_sum::<S, C>(
            simd,
            (&earlier[block.first..], block.stride),
            (&earlier[first..], block.stride),
            terms.len(),
        );
        let mut rows = block.rows::<S, C>(simd, first);
        for (rows, sums) in rows.iter_mut().zip(&sums) {
            for (row, sum) in rows.iter_mut().zip(sums) {
                *row = simd.sub_f64s(*row, *sum);
            }
        }
        block.set_rows::<S, C>(first, &rows);
    }
}

struct Solve<'a, 'b>(&'a mut Block<'b>, &'a Triangle);

impl<S: Simd> Tiles<S> for Solve<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let mut rows = self.0.rows::<S, C>(simd, first);
        self.1.solve::<S, C>(simd, &mut rows);
        self.0.set_rows::<S, C>(first, &rows);
    }
}
