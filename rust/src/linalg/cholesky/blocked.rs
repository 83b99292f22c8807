//! Blocked factorisation and inverse: sums of outer products in register tiles.
//!
//! The sums of a tile stay in registers while the terms are added. Adjacent elements of the matrix are adjacent in a
//! vector, so no vector is summed horizontally, and every element goes through the same operations wherever it lies in a
//! tile.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{FactorizationError, NotPositiveDefinite};
use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::simd::{Simd, WithSimd};
use crate::parallel::pieces;

/// Coefficients and vectors of a tile: enough independent sums to hide the latency, few enough for the registers.
const COEFFICIENTS: usize = 4;
const VECTORS: usize = 2;

/// Rows or columns of a panel.
pub(super) const PANEL: usize = 48;

/// Most terms per pass; in a large matrix each term lies on a memory page of its own.
pub(super) const RUN: usize = 256;

/// Width of a tile in elements.
#[inline(always)]
fn width<S: Simd>() -> usize {
    VECTORS * S::F64_LANES
}

/// An operation on tiles.
trait Tiles<S: Simd> {
    /// Applies it to the tile of `C` vectors that begins at element `first`.
    fn tile<const C: usize>(&mut self, simd: S, first: usize);
}

/// Applies the operation to tiles that cover the range; the last one exceeds it by less than a vector.
#[inline(always)]
fn cover<S: Simd>(simd: S, range: Range<usize>, tiles: &mut impl Tiles<S>) {
    for first in range.clone().step_by(width::<S>()) {
        match (range.end - first).div_ceil(S::F64_LANES) {
            1 => tiles.tile::<1>(simd, first),
            _ => tiles.tile::<VECTORS>(simd, first),
        }
    }
}

/// `sum_k c_k v_k^T` over `n_terms` terms, given the coefficients c_k and the vectors v_k with their strides.
#[inline(always)]
fn outer_sum<S: Simd, const C: usize>(
    simd: S,
    (coefficients, coefficient_stride): (&[f64], usize),
    (vectors, vector_stride): (&[f64], usize),
    n_terms: usize,
) -> [[S::f64s; C]; COEFFICIENTS] {
    let mut sums = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
    for k in 0..n_terms {
        let c = &coefficients[k * coefficient_stride..][..COEFFICIENTS];
        let mut v = [simd.splat_f64s(0.0); C];
        load::<S, C>(&mut v, &vectors[k * vector_stride..]);
        for (sums, c) in sums.iter_mut().zip(c) {
            let c = simd.splat_f64s(*c);
            for (sum, v) in sums.iter_mut().zip(&v) {
                *sum = simd.mul_add_e_f64s(c, *v, *sum);
            }
        }
    }
    sums
}

/// Loads adjacent vectors.
#[inline(always)]
fn load<S: Simd, const C: usize>(vectors: &mut [S::f64s; C], from: &[f64]) {
    let (from, _) = S::as_simd_f64s(&from[..C * S::F64_LANES]);
    // `copy_from_slice` or a returned array would compile to a function call.
    for (vector, from) in vectors.iter_mut().zip(from) {
        *vector = *from;
    }
}

/// Stores adjacent vectors.
#[inline(always)]
fn store<S: Simd, const C: usize>(vectors: &[S::f64s; C], to: &mut [f64]) {
    let (to, _) = S::as_mut_simd_f64s(&mut to[..C * S::F64_LANES]);
    for (vector, to) in vectors.iter().zip(to) {
        *to = *vector;
    }
}

/// A small lower triangle, padded with the identity, and the reciprocals of its diagonal, which replace slow divisions.
struct Triangle {
    /// Element (r, s) at `[r][s]`.
    elements: [[f64; COEFFICIENTS]; COEFFICIENTS],
    reciprocals: [f64; COEFFICIENTS],
}

impl Triangle {
    /// A triangle of `n` rows; `element` is called for s <= r only.
    #[inline(always)]
    fn of(n: usize, element: impl Fn(usize, usize) -> f64) -> Self {
        let mut elements = [[0.0; COEFFICIENTS]; COEFFICIENTS];
        for (r, row) in elements.iter_mut().enumerate() {
            row[r] = 1.0;
            if r < n {
                for (s, value) in row.iter_mut().enumerate().take(r + 1) {
                    *value = element(r, s);
                }
            }
        }
        let mut reciprocals = [1.0; COEFFICIENTS];
        for (r, reciprocal) in reciprocals.iter_mut().enumerate() {
            *reciprocal /= elements[r][r];
        }
        Self {
            elements,
            reciprocals,
        }
    }

    /// Replaces the matrix by its factor. The error is the row whose squared pivot is not positive and finite.
    #[inline(always)]
    fn factor(&mut self) -> Result<(), usize> {
        let lower = &mut self.elements;
        for s in 0..COEFFICIENTS {
            let pivot = lower[s][s];
            if !(pivot > 0.0 && pivot.is_finite()) {
                return Err(s);
            }
            lower[s][s] = pivot.sqrt();
            self.reciprocals[s] = 1.0 / lower[s][s];
            for r in s + 1..COEFFICIENTS {
                lower[r][s] *= self.reciprocals[s];
                for t in s + 1..=r {
                    lower[r][t] -= lower[r][s] * lower[t][s];
                }
            }
        }
        Ok(())
    }

    /// Solves L x = b in place; each row of b is an array of vectors.
    #[inline(always)]
    fn solve<S: Simd, const C: usize>(&self, simd: S, x: &mut [[S::f64s; C]; COEFFICIENTS]) {
        for r in 0..COEFFICIENTS {
            let mut row = x[r];
            for (solved, l) in x[..r].iter().zip(&self.elements[r]) {
                let minus = simd.splat_f64s(-l);
                for (row, solved) in row.iter_mut().zip(solved) {
                    *row = simd.mul_add_e_f64s(minus, *solved, *row);
                }
            }
            let reciprocal = simd.splat_f64s(self.reciprocals[r]);
            for (x, row) in x[r].iter_mut().zip(&row) {
                *x = simd.mul_f64s(*row, reciprocal);
            }
        }
    }
}

/// Up to [`COEFFICIENTS`] lines of a matrix, `stride` apart, after the lines before them. The lines are columns of L in the
/// factorisation and rows of X in the inverse.
struct Lines<'a> {
    earlier: &'a [f64],
    here: &'a mut [f64],
    stride: usize,
}

impl<'a> Lines<'a> {
    #[inline(always)]
    fn of(values: &'a mut [f64], stride: usize, lines: &Range<usize>) -> Self {
        let (earlier, rest) = values.split_at_mut(lines.start * stride);
        Self {
            earlier,
            here: &mut rest[..lines.len() * stride],
            stride,
        }
    }

    /// Subtracts from these elements the outer products of some earlier lines with their coefficients.
    #[inline(always)]
    fn subtract<S: Simd>(
        &mut self,
        simd: S,
        coefficients: (&[f64], usize),
        terms: &Range<usize>,
        elements: Range<usize>,
    ) {
        if !terms.is_empty() {
            cover(simd, elements, &mut Subtract(self, coefficients, terms));
        }
    }

    /// Solves with a triangle for these elements.
    #[inline(always)]
    fn solve<S: Simd>(&mut self, simd: S, lower: &Triangle, elements: Range<usize>) {
        cover(simd, elements, &mut Solve(self, lower));
    }

    /// A tile of the lines, with zeros for missing ones.
    #[inline(always)]
    fn tile<S: Simd, const C: usize>(&self, simd: S, first: usize) -> [[S::f64s; C]; COEFFICIENTS] {
        let mut tile = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
        for (vectors, line) in tile.iter_mut().zip(self.here.chunks(self.stride)) {
            load::<S, C>(vectors, &line[first..]);
        }
        tile
    }

    #[inline(always)]
    fn set_tile<S: Simd, const C: usize>(
        &mut self,
        first: usize,
        tile: &[[S::f64s; C]; COEFFICIENTS],
    ) {
        for (vectors, line) in tile.iter().zip(self.here.chunks_mut(self.stride)) {
            store::<S, C>(vectors, &mut line[first..]);
        }
    }
}

struct Subtract<'a, 'b>(&'a mut Lines<'b>, (&'a [f64], usize), &'a Range<usize>);

impl<S: Simd> Tiles<S> for Subtract<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let Self(lines, (coefficients, apart), terms) = self;
        let sums = outer_sum::<S, C>(
            simd,
            (&coefficients[terms.start * *apart..], *apart),
            (
                &lines.earlier[terms.start * lines.stride + first..],
                lines.stride,
            ),
            terms.len(),
        );
        let mut tile = lines.tile::<S, C>(simd, first);
        for (own, sums) in tile.iter_mut().zip(&sums) {
            for (own, sum) in own.iter_mut().zip(sums) {
                *own = simd.sub_f64s(*own, *sum);
            }
        }
        lines.set_tile::<S, C>(first, &tile);
    }
}

struct Solve<'a, 'b>(&'a mut Lines<'b>, &'a Triangle);

impl<S: Simd> Tiles<S> for Solve<'_, '_> {
    #[inline(always)]
    fn tile<const C: usize>(&mut self, simd: S, first: usize) {
        let mut tile = self.0.tile::<S, C>(simd, first);
        self.1.solve::<S, C>(simd, &mut tile);
        self.0.set_tile::<S, C>(first, &tile);
    }
}

/// Factors a panel of columns after all columns before it. Elements that tiles write above the diagonal or below the last row have no
/// meaning.
pub(super) struct Panel<'a> {
    /// `stride` x `stride`, column-major; `stride` is a multiple of every vector length and of [`COEFFICIENTS`].
    pub(super) values: &'a mut [f64],
    pub(super) stride: usize,
    /// Rows of the matrix.
    pub(super) n: usize,
    pub(super) columns: Range<usize>,
    pub(super) cancel: Option<&'a AtomicBool>,
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
        for terms in pieces(columns.start, RUN) {
            for rows in tiles(columns.start..n) {
                if is_raised(cancel) {
                    return Err(FactorizationError::Cancelled);
                }
                for j in columns.clone().step_by(COEFFICIENTS) {
                    if j < rows.end {
                        Block::of(values, stride, j).subtract(simd, &terms, &rows);
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
                let rows = vector_of(below)..columns.end;
                block.lines.solve(simd, &lower, rows);
            }
            // Stored after the tiles, because a wide vector begins above it.
            block.set_triangle(&lower);
        }
        for rows in tiles(columns.end..n) {
            if is_raised(cancel) {
                return Err(FactorizationError::Cancelled);
            }
            for j in columns.clone().step_by(COEFFICIENTS) {
                let mut block = Block::of(values, stride, j);
                block.subtract(simd, &(columns.start..j), &rows);
                let lower = block.triangle(COEFFICIENTS);
                block.lines.solve(simd, &lower, rows.clone());
            }
        }
        Ok(())
    }
}

fn is_raised(flag: Option<&AtomicBool>) -> bool {
    flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// [`COEFFICIENTS`] columns; `first` is the row of the first diagonal element.
struct Block<'a> {
    lines: Lines<'a>,
    first: usize,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn of(values: &'a mut [f64], stride: usize, first: usize) -> Self {
        let lines = Lines::of(values, stride, &(first..first + COEFFICIENTS));
        Self { lines, first }
    }

    /// Subtracts the outer products of some earlier columns from these rows.
    #[inline(always)]
    fn subtract<S: Simd>(&mut self, simd: S, terms: &Range<usize>, rows: &Range<usize>) {
        if !terms.is_empty() {
            let coefficients = (&self.lines.earlier[self.first..], self.lines.stride);
            self.lines.subtract(simd, coefficients, terms, rows.clone());
        }
    }

    /// The first `n` rows of the block on the diagonal.
    #[inline(always)]
    fn triangle(&self, n: usize) -> Triangle {
        let (values, stride) = (&self.lines.here, self.lines.stride);
        Triangle::of(n, |r, s| values[s * stride + self.first + r])
    }

    #[inline(always)]
    fn set_triangle(&mut self, lower: &Triangle) {
        let stride = self.lines.stride;
        for (s, column) in self.lines.here.chunks_mut(stride).enumerate() {
            for (value, row) in column[self.first..].iter_mut().zip(&lower.elements) {
                *value = row[s];
            }
        }
    }
}

/// Writes the upper triangle of the inverse of A, column-major: X = L^-1, then X^T X. It has no meaning after a cancellation.
///
/// X is row-major with zeros above its diagonal: the vectors of a tile lie along rows of X in both steps.
pub(super) struct Inverse<'a> {
    /// L, `factor_stride` x `factor_stride`.
    pub(super) factor: &'a [f64],
    pub(super) factor_stride: usize,
    /// Rows of the matrix.
    pub(super) n: usize,
    pub(super) out: &'a mut [f64],
    pub(super) out_stride: usize,
    pub(super) cancel: Option<&'a AtomicBool>,
}

impl WithSimd for Inverse<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (n, stride, apart, cancel) = (self.n, stride(self.n), self.factor_stride, self.cancel);
        let mut x = AlignedColumns::zeros(n.next_multiple_of(COEFFICIENTS) * stride);
        for i in 0..n {
            x[i * stride + i] = 1.0;
        }
        for panel in pieces(n, PANEL) {
            for terms in pieces(panel.start, RUN) {
                each_tile::<S>(cancel, &panel, |rows, columns| {
                    self.subtract(simd, &mut x, &rows, &terms, &columns);
                });
            }
            each_tile::<S>(cancel, &panel, |rows, columns| {
                let terms = panel.start..rows.start;
                self.subtract(simd, &mut x, &rows, &terms, &columns);
                let element =
                    |r: usize, s: usize| self.factor[(rows.start + s) * apart + rows.start + r];
                let lower = Triangle::of(rows.len(), element);
                Lines::of(&mut x, stride, &rows).solve(simd, &lower, columns);
            });
        }
        for panel in pieces(n, PANEL) {
            for terms in pieces(n - panel.start, RUN) {
                each_tile::<S>(cancel, &panel, |columns, rows| {
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

impl Inverse<'_> {
    /// Subtracts the contribution of some earlier rows of X from some rows, which begin with the identity.
    #[inline(always)]
    fn subtract<S: Simd>(
        &self,
        simd: S,
        x: &mut [f64],
        rows: &Range<usize>,
        terms: &Range<usize>,
        columns: &Range<usize>,
    ) {
        // Earlier rows are zero to the right of their diagonal.
        let terms = terms.start.max(columns.start)..terms.end;
        let coefficients = (&self.factor[rows.start..], self.factor_stride);
        Lines::of(x, stride(self.n), rows).subtract(simd, coefficients, &terms, columns.clone());
    }
}

/// Calls `f` with the rows and columns of each tile of a panel up to the diagonal; for each range of columns from the top
/// down.
#[inline(always)]
fn each_tile<S: Simd>(
    cancel: Option<&AtomicBool>,
    panel: &Range<usize>,
    mut f: impl FnMut(Range<usize>, Range<usize>),
) {
    for first in (0..panel.end).step_by(width::<S>()) {
        if is_raised(cancel) {
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
