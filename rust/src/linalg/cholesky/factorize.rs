//! The factor from scratch, a panel of columns at a time.
//!
//! Column-major throughout: a tile is a few rows of a few columns, its vectors lie along columns, and its coefficients are the rows
//! of the columns themselves. What tiles write above the diagonal or below the last row is of no meaning.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::linalg::cholesky::NotPositiveDefinite;
use crate::linalg::cholesky::tiles::{
    COEFFICIENTS, RUN, Tiles, Triangle, cover, load, outer_sum, store, width,
};
use crate::linalg::simd::{Simd, WithSimd};
use crate::parallel::pieces;

/// Turns a panel of the matrix, the columns before it being those of the factor, into columns of the factor.
pub(crate) struct Panel<'a> {
    /// `stride` x `stride`, this being a multiple of the lanes of any vector and of [`COEFFICIENTS`].
    pub(crate) values: &'a mut [f64],
    pub(crate) stride: usize,
    /// Rows of the matrix.
    pub(crate) n: usize,
    pub(crate) columns: Range<usize>,
    pub(crate) cancel: Option<&'a AtomicBool>,
}

impl WithSimd for Panel<'_> {
    type Output = Result<(), NotPositiveDefinite>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
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
                    return Err(NotPositiveDefinite { pivot: rows.start });
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
            // After the tiles, for a wide vector begins above.
            block.set_triangle(&lower);
        }
        for rows in tiles(columns.end..n) {
            if cancelled() {
                return Err(NotPositiveDefinite { pivot: rows.start });
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

/// A few columns, and those before them.
struct Block<'a> {
    earlier: &'a [f64],
    columns: &'a mut [f64],
    stride: usize,
    /// The first of the columns, and the row where its diagonal is.
    first: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn of(values: &'a mut [f64], stride: usize, first: usize) -> Self {
        let (earlier, rest) = values.split_at_mut(first * stride);
        Self {
            earlier,
            columns: &mut rest[..COEFFICIENTS * stride],
            stride,
            first,
        }
    }

    /// Takes from these rows what some of the earlier columns stand for.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn subtract<S: Simd>(&mut self, simd: S, terms: &Range<usize>, rows: &Range<usize>) {
        if !terms.is_empty() {
            cover(simd, rows.clone(), &mut Subtract(self, terms));
        }
    }

    /// Then turns them into rows of the factor, the block on the diagonal being done.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn solve<S: Simd>(&mut self, simd: S, lower: &Triangle, rows: &Range<usize>) {
        cover(simd, rows.clone(), &mut Solve(self, lower));
    }

    /// The block on the diagonal, of which so many rows are there.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn triangle(&self, n: usize) -> Triangle {
        Triangle::of(n, |r, s| self.columns[s * self.stride + self.first + r])
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn set_triangle(&mut self, lower: &Triangle) {
        for (s, column) in self.columns.chunks_mut(self.stride).enumerate() {
            for (value, row) in column[self.first..].iter_mut().zip(&lower.elements) {
                *value = row[s];
            }
        }
    }

    /// These rows of each column.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
    fn rows<S: Simd, const C: usize>(&self, simd: S, first: usize) -> [[S::f64s; C]; COEFFICIENTS] {
        let mut rows = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
        for (rows, column) in rows.iter_mut().zip(self.columns.chunks(self.stride)) {
            load::<S, C>(rows, &column[first..]);
        }
        rows
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `Panel`
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
    #[allow(clippy::inline_always)] // as `Panel`
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
    #[allow(clippy::inline_always)] // as `Panel`
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let mut rows = self.0.rows::<S, C>(simd, first);
        self.1.solve::<S, C>(simd, &mut rows);
        self.0.set_rows::<S, C>(first, &rows);
    }
}
