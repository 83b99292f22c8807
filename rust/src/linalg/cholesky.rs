//! A Cholesky factor that grows, shrinks and changes in place.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nalgebra::DMatrix;

use super::blas::{axpy, axpys, dot};
use super::blocked;
use super::parallel::pieces;
use super::simd::{Simd, WithSimd, dispatch};

/// Columns that a loop takes at a time, so that what they have to do with is read and written less often.
const TOGETHER: usize = 4;

/// The matrix is not positive definite (to working precision): this squared pivot is not a positive number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the matrix is not positive definite: pivot {pivot} is not a positive number")]
pub struct NotPositiveDefinite {
    /// Index of the row at which it shows.
    pub pivot: usize,
}

/// Lower factor L of a symmetric positive definite matrix A = L L^T that gains and loses rows.
///
/// Between calls: the leading `len` x `len` block of `factor` holds L in its lower triangle, with a positive
/// diagonal; what lies above the diagonal or beyond is of no meaning. Storage is column-major with room to spare, and
/// doubles when a push needs more; nothing else allocates.
#[derive(Debug)]
pub struct Cholesky {
    factor: DMatrix<f64>,
    len: usize,
    /// Two vectors with as much room as the factor has rows.
    work: Vec<f64>,
    spare: Vec<f64>,
    cancel: Option<Arc<AtomicBool>>,
}

/// Without most of the room to spare.
impl Clone for Cholesky {
    fn clone(&self) -> Self {
        const ROOM: usize = 8;
        let mut copy = Self::with_capacity(self.len + ROOM);
        copy.len = self.len;
        copy.cancel.clone_from(&self.cancel);
        for j in 0..self.len {
            copy.column_mut(j).copy_from_slice(self.column(j));
        }
        copy
    }
}

impl Cholesky {
    /// The factor of a 0 x 0 matrix, with room for `capacity` rows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            factor: DMatrix::zeros(capacity, capacity),
            len: 0,
            work: Vec::with_capacity(capacity),
            spare: Vec::with_capacity(capacity),
            cancel: None,
        }
    }

    /// Has what takes n^3 operations end early once the flag is raised: [`Cholesky::refactor`] with an error, and
    /// [`Cholesky::inverse_into`] with values of no meaning.
    pub fn cancelled_by(&mut self, flag: Option<Arc<AtomicBool>>) {
        self.cancel = flag;
    }

    fn is_cancelled(&self) -> bool {
        let raised = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        self.cancel.as_ref().is_some_and(raised)
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Element (i, j) of L, for j <= i < len.
    #[must_use]
    pub fn get(&self, i: usize, j: usize) -> f64 {
        self.factor[(i, j)]
    }

    /// Column j of L from its diagonal down.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn column(&self, j: usize) -> &[f64] {
        let stride = self.factor.nrows();
        &self.factor.as_slice()[j * stride + j..j * stride + self.len]
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn column_mut(&mut self, j: usize) -> &mut [f64] {
        let stride = self.factor.nrows();
        &mut self.factor.as_mut_slice()[j * stride + j..j * stride + self.len]
    }

    fn reserve(&mut self, len: usize) {
        if len > self.factor.nrows() {
            let capacity = (self.factor.nrows() + self.factor.nrows() / 2).max(len);
            self.factor.resize_mut(capacity, capacity, 0.0);
            self.work = Vec::with_capacity(capacity);
            self.spare = Vec::with_capacity(capacity);
        }
    }

    /// Appends a row and column to A: `column` above `diagonal`. Returns the new squared pivot, the Schur complement.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if that is not positive; the factor is then as before.
    ///
    /// # Panics
    /// If `column` is shorter than `len`.
    pub fn push(&mut self, column: &[f64], diagonal: f64) -> Result<f64, NotPositiveDefinite> {
        self.reserve(self.len + 1);
        let mut row = std::mem::take(&mut self.work);
        row.clear();
        row.extend_from_slice(&column[..self.len]);
        self.solve_lower_in_place(&mut row);
        let pivot = diagonal - dot(&row, &row);
        let pushed = self.push_solved(&row, pivot);
        self.work = row;
        pushed.map(|()| pivot)
    }

    /// [`Cholesky::push`] for a caller who has the new row of L already, L^-1 times the column, and the squared pivot.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the pivot is not positive; the factor is then as before.
    ///
    /// # Panics
    /// If `row` is shorter than `len`.
    pub fn push_solved(&mut self, row: &[f64], pivot: f64) -> Result<(), NotPositiveDefinite> {
        let n = self.len;
        let row = &row[..n];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(NotPositiveDefinite { pivot: n });
        }
        self.reserve(n + 1);
        for (j, l) in row.iter().enumerate() {
            self.factor[(n, j)] = *l;
        }
        self.factor[(n, n)] = pivot.sqrt();
        self.len = n + 1;
        Ok(())
    }

    /// Removes row and column `i` of A; the order of the others is kept.
    ///
    /// # Panics
    /// If `i >= len`.
    pub fn remove(&mut self, i: usize) {
        assert!(i < self.len, "row {i} of {}", self.len);
        // A without i loses the outer product of L's column i below the diagonal, which the block below takes up.
        let mut below = std::mem::take(&mut self.work);
        below.clear();
        below.extend_from_slice(&self.column(i)[1..]);
        let (n, stride) = (self.len, self.factor.nrows());
        let values = self.factor.as_mut_slice();
        for j in 0..n {
            if j != i {
                let start = if j < i { i } else { j };
                values.copy_within(
                    j * stride + start.max(i + 1)..j * stride + n,
                    j * stride + start.max(i + 1) - 1,
                );
                if j > i {
                    values.copy_within(
                        j * stride + j - 1..j * stride + n - 1,
                        (j - 1) * stride + j - 1,
                    );
                }
            }
        }
        self.len = n - 1;
        self.update_from(i, &mut below);
        self.work = below;
    }

    /// A += x x^T. `x` must be finite, and is destroyed.
    ///
    /// # Panics
    /// If `x` is not `len` long.
    pub fn rank_one_update(&mut self, x: &mut [f64]) {
        assert_eq!(x.len(), self.len, "length of x");
        self.update_from(0, x);
    }

    /// Adds x x^T to the trailing block that begins at row `start`; `x` is as long as that block.
    fn update_from(&mut self, start: usize, x: &mut [f64]) {
        dispatch(Update {
            chol: self,
            start,
            x,
        });
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn update_here(&mut self, start: usize, x: &mut [f64]) {
        for k in 0..x.len() {
            let (head, tail) = x[k..].split_at_mut(1);
            let column = self.column_mut(start + k);
            let r = (column[0] * column[0] + head[0] * head[0]).sqrt();
            let (c, s) = (column[0] / r, head[0] / r);
            column[0] = r;
            for (l, x) in column[1..].iter_mut().zip(tail) {
                let old = *l;
                *l = c * old + s * *x;
                *x = c * *x - s * old;
            }
        }
    }

    /// A -= x x^T. `x` is destroyed.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the result is not; the factor is then as before.
    ///
    /// # Panics
    /// If `x` is not `len` long.
    pub fn rank_one_downdate(&mut self, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
        assert_eq!(x.len(), self.len, "length of x");
        self.downdate_from(0, x)
    }

    /// The rotations that turn (p; rho) into (0; 1), applied to (L, 0), leave the factor of A - x x^T: LINPACK's
    /// method. Whether it can succeed is known before the factor is touched.
    fn downdate_from(&mut self, start: usize, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
        dispatch(Downdate {
            chol: self,
            start,
            x,
        })
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn downdate_here(&mut self, start: usize, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
        for k in 0..x.len() {
            let column = self.column(start + k);
            let p = x[k] / column[0];
            x[k] = p;
            axpy(-p, &column[1..], &mut x[k + 1..]);
        }
        let rest = 1.0 - dot(x, x);
        if rest.is_nan() || rest <= f64::EPSILON {
            return Err(NotPositiveDefinite {
                pivot: start + x.len().saturating_sub(1),
            });
        }
        // `x[k..]` turns from p into the row that the rotations fill in.
        let mut alpha = rest.sqrt();
        let mut fill = std::mem::take(&mut self.work);
        fill.clear();
        fill.resize(x.len(), 0.0);
        for k in (0..x.len()).rev() {
            let r = (alpha * alpha + x[k] * x[k]).sqrt();
            let (c, s) = (alpha / r, x[k] / r);
            alpha = r;
            let column = self.column_mut(start + k);
            for (l, f) in column.iter_mut().zip(&mut fill[k..]) {
                let filled = *f;
                *f = c * filled + s * *l;
                *l = c * *l - s * filled;
            }
        }
        self.work = fill;
        Ok(())
    }

    /// `A_ii` += `delta`, touching only what lies from row `i` on.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the result is not, or `delta` not finite; the factor is then as before.
    ///
    /// # Panics
    /// If `i >= len`.
    pub fn update_diagonal(&mut self, i: usize, delta: f64) -> Result<(), NotPositiveDefinite> {
        assert!(i < self.len, "row {i} of {}", self.len);
        if !delta.is_finite() {
            return Err(NotPositiveDefinite { pivot: i });
        }
        let mut x = std::mem::take(&mut self.spare);
        x.clear();
        x.resize(self.len - i, 0.0);
        x[0] = delta.abs().sqrt();
        let outcome = if delta < 0.0 {
            self.downdate_from(i, &mut x)
        } else {
            self.update_from(i, &mut x);
            Ok(())
        };
        self.spare = x;
        outcome
    }

    /// Factors an n x n matrix from scratch; `a(i, j)` is asked for j <= i.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] with the offending row; the factor is then empty.
    pub fn refactor(
        &mut self,
        n: usize,
        a: impl Fn(usize, usize) -> f64,
    ) -> Result<(), NotPositiveDefinite> {
        self.reserve(n);
        self.len = n;
        for panel in pieces(n, blocked::width(n)) {
            let chol = &mut *self;
            let outcome = dispatch(Refactor { chol, panel, a: &a });
            if outcome.is_err() {
                self.len = 0;
                return outcome;
            }
        }
        Ok(())
    }

    /// Some columns, those before them being done.
    #[inline(always)]
    #[allow(clippy::inline_always)] // into vector code: see `simd::dispatch`
    fn refactor_here(
        &mut self,
        panel: Range<usize>,
        a: &impl Fn(usize, usize) -> f64,
    ) -> Result<(), NotPositiveDefinite> {
        let (n, first, stride) = (self.len, panel.start, self.factor.nrows());
        let (done, rest) = self.factor.as_mut_slice().split_at_mut(first * stride);
        for j in panel.clone() {
            let column = &mut rest[(j - first) * stride..][j..n];
            for (i, l) in column.iter_mut().enumerate() {
                *l = a(j + i, j);
            }
        }
        blocked::subtract_earlier(done, rest, stride, n, panel.clone());
        for j in panel {
            let cancelled = self
                .cancel
                .as_ref()
                .is_some_and(|f| f.load(Ordering::Relaxed));
            let (within, rest) = rest.split_at_mut((j - first) * stride);
            let column = &mut rest[j..n];
            let term = |k: usize| {
                let earlier = &within[k * stride + j..k * stride + n];
                (-earlier[0], earlier)
            };
            let whole = (j - first) - (j - first) % TOGETHER;
            for k in (0..whole).step_by(TOGETHER) {
                axpys(std::array::from_fn(|t| term(k + t)), column);
            }
            for k in whole..j - first {
                let (c, earlier) = term(k);
                axpy(c, earlier, column);
            }
            let pivot = column[0];
            if !(pivot > 0.0 && pivot.is_finite()) || cancelled {
                return Err(NotPositiveDefinite { pivot: j });
            }
            let root = pivot.sqrt();
            column[0] = root;
            column[1..].iter_mut().for_each(|l| *l /= root);
        }
        Ok(())
    }

    /// Solves L y = b.
    ///
    /// # Panics
    /// If `b` is not `len` long.
    pub fn solve_lower_in_place(&self, b: &mut [f64]) {
        assert_eq!(b.len(), self.len, "length of b");
        dispatch(SolveLower { chol: self, b });
    }

    /// Solves with a diagonal block of L that begins at row `start` and has as many as `b`.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn solve_lower_from(&self, start: usize, b: &mut [f64]) {
        let b_len = b.len();
        let whole = b_len - b_len % TOGETHER;
        let column = |k: usize| &self.column(start + k)[..b_len - k];
        for first in (0..whole).step_by(TOGETHER) {
            let columns: [&[f64]; TOGETHER] = std::array::from_fn(|t| column(first + t));
            let (done, rest) = b[first..].split_at_mut(TOGETHER);
            for (t, column) in columns.iter().enumerate() {
                done[t] /= column[0];
                axpy(-done[t], &column[1..TOGETHER - t], &mut done[t + 1..]);
            }
            let below = |t: usize| (-done[t], &columns[t][TOGETHER - t..]);
            axpys(std::array::from_fn(below), rest);
        }
        for k in whole..b.len() {
            let column = column(k);
            b[k] /= column[0];
            axpy(-b[k], &column[1..], &mut b[k + 1..]);
        }
    }

    /// Solves L^T y = b.
    ///
    /// # Panics
    /// If `b` is not `len` long.
    pub fn solve_lower_transpose_in_place(&self, b: &mut [f64]) {
        assert_eq!(b.len(), self.len, "length of b");
        dispatch(SolveTransposed { chol: self, b });
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn solve_transposed_here(&self, b: &mut [f64]) {
        for k in (0..b.len()).rev() {
            let column = self.column(k);
            b[k] = (b[k] - dot(&column[1..], &b[k + 1..])) / column[0];
        }
    }

    /// Solves A x = b.
    ///
    /// # Panics
    /// If `b` is not `len` long.
    pub fn solve_in_place(&self, b: &mut [f64]) {
        self.solve_lower_in_place(b);
        self.solve_lower_transpose_in_place(b);
    }

    /// ln |A|.
    #[must_use]
    pub fn ln_det(&self) -> f64 {
        (0..self.len).map(|i| 2.0 * self.factor[(i, i)].ln()).sum()
    }

    /// The leading `len` x `len` block of `out` becomes the inverse of A, symmetric to the bit.
    ///
    /// # Panics
    /// If `out` is smaller than that.
    pub fn inverse_into(&self, out: &mut DMatrix<f64>) {
        let n = self.len;
        assert!(
            out.nrows().min(out.ncols()) >= n,
            "{} x {} for {n} rows",
            out.nrows(),
            out.ncols()
        );
        let (stride, values) = (out.nrows(), out.as_mut_slice());
        if blocked::width(n) < n {
            self.inverse_in_blocks(values, stride);
        } else {
            let chol = self;
            dispatch(Inverse {
                chol,
                values,
                stride,
            });
        }
        for j in 0..n {
            for i in j + 1..n {
                values[i * stride + j] = values[j * stride + i];
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as `refactor_here`
    fn inverse_here(&self, values: &mut [f64], stride: usize) {
        let n = self.len;
        // Column j of L^-1 below and with its diagonal, then (L^-T L^-1)_ij = <column i, column j> from row i on.
        for j in 0..n {
            let column = &mut values[j * stride + j..j * stride + n];
            column.fill(0.0);
            column[0] = 1.0;
            self.solve_lower_from(j, column);
            if self.is_cancelled() {
                return;
            }
        }
        for j in 0..n {
            if self.is_cancelled() {
                return;
            }
            for i in j..n {
                let product = dot(
                    &values[j * stride + i..j * stride + n],
                    &values[i * stride + i..i * stride + n],
                );
                values[j * stride + i] = product;
            }
        }
    }

    /// The lower triangle of the inverse.
    fn inverse_in_blocks(&self, values: &mut [f64], stride: usize) {
        let n = self.len;
        for panel in pieces(n, blocked::width(n)) {
            let columns = &mut values[panel.start * stride..];
            for (j, column) in panel.clone().zip(columns.chunks_mut(stride)) {
                column[panel.start..n].fill(0.0);
                column[j] = 1.0;
            }
            for block in pieces(n, blocked::width(n)).skip_while(|block| block.end <= panel.start) {
                if self.is_cancelled() {
                    return;
                }
                for (j, column) in panel.clone().zip(columns.chunks_mut(stride)) {
                    let start = block.start.max(j);
                    dispatch(SolveBlock {
                        chol: self,
                        start,
                        b: &mut column[start..block.end],
                    });
                }
                let factor = (self.factor.as_slice(), self.factor.nrows());
                blocked::subtract_block(factor, (columns, stride), n, block, panel.len());
            }
        }
        blocked::square(values, stride, n, || self.is_cancelled());
    }

    /// The diagonal of the inverse of A.
    ///
    /// # Panics
    /// If `out` is shorter than `len`.
    pub fn inverse_diagonal_into(&mut self, out: &mut [f64]) {
        let mut column = std::mem::take(&mut self.work);
        for (j, out) in out[..self.len].iter_mut().enumerate() {
            column.clear();
            column.resize(self.len - j, 0.0);
            column[0] = 1.0;
            self.solve_lower_from(j, &mut column);
            *out = dot(&column, &column);
        }
        self.work = column;
    }

    /// Column `j` of the inverse of A.
    ///
    /// # Panics
    /// If `out` is not `len` long or `j` not below it.
    pub fn inverse_column_into(&self, j: usize, out: &mut [f64]) {
        assert_eq!(out.len(), self.len, "length of out");
        out.fill(0.0);
        out[j] = 1.0;
        self.solve_lower_from(j, &mut out[j..]);
        self.solve_lower_transpose_in_place(out);
    }
}

/// Makes each of the loops above work for [`dispatch`].
macro_rules! vectorised {
    ($name:ident { $($field:ident: $type:ty),* } -> $output:ty, |$this:ident| $body:expr) => {
        struct $name<'a> { $($field: $type),* }

        impl WithSimd for $name<'_> {
            type Output = $output;

            #[inline(always)]
            #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
            fn with_simd<S: Simd>(self, _: S) -> $output {
                let $this = self;
                $body
            }
        }
    };
}

vectorised!(Update { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> (),
    |this| this.chol.update_here(this.start, this.x));
vectorised!(Downdate { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> Result<(), NotPositiveDefinite>,
    |this| this.chol.downdate_here(this.start, this.x));
vectorised!(SolveLower { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_lower_from(0, this.b));
vectorised!(SolveBlock { chol: &'a Cholesky, start: usize, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_lower_from(this.start, this.b));
vectorised!(SolveTransposed { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_transposed_here(this.b));
vectorised!(Inverse { chol: &'a Cholesky, values: &'a mut [f64], stride: usize } -> (),
    |this| this.chol.inverse_here(this.values, this.stride));

struct Refactor<'a, A> {
    chol: &'a mut Cholesky,
    panel: Range<usize>,
    a: &'a A,
}

impl<A: Fn(usize, usize) -> f64> WithSimd for Refactor<'_, A> {
    type Output = Result<(), NotPositiveDefinite>;

    #[inline(always)]
    #[allow(clippy::inline_always)] // as the others
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        self.chol.refactor_here(self.panel, self.a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One change to the matrix; the fractions say where, the vectors are cut to length.
    #[derive(Debug, Clone)]
    enum Change {
        Push(Vec<f64>, f64),
        Remove(f64),
        Update(Vec<f64>),
        Downdate(Vec<f64>),
        Diagonal(f64, f64),
    }

    const MOST: usize = 24;

    fn vector() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1.0..1.0_f64, MOST)
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (vector(), 0.1..20.0_f64).prop_map(|(v, d)| Change::Push(v, d)),
            1 => (0.0..1.0_f64).prop_map(Change::Remove),
            1 => vector().prop_map(Change::Update),
            2 => vector().prop_map(Change::Downdate),
            2 => (0.0..1.0_f64, -6.0..6.0_f64).prop_map(|(at, delta)| Change::Diagonal(at, delta)),
        ]
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a fraction of a small count
    fn place(fraction: f64, n: usize) -> usize {
        (fraction * n as f64) as usize
    }

    /// The matrix after `change`, by the definition.
    fn changed(a: &DMatrix<f64>, change: &Change) -> DMatrix<f64> {
        let n = a.nrows();
        let outer = |v: &[f64]| DMatrix::from_fn(n, n, |i, j| v[i] * v[j]);
        match change {
            Change::Push(v, d) => {
                let mut grown = a.clone().resize(n + 1, n + 1, *d);
                for (i, v) in v.iter().enumerate().take(n) {
                    grown[(i, n)] = *v;
                    grown[(n, i)] = *v;
                }
                grown
            }
            Change::Remove(at) => a
                .clone()
                .remove_row(place(*at, n))
                .remove_column(place(*at, n)),
            Change::Update(v) => a + outer(v),
            Change::Downdate(v) => a - outer(v),
            Change::Diagonal(at, delta) => {
                let mut moved = a.clone();
                moved[(place(*at, n), place(*at, n))] += delta;
                moved
            }
        }
    }

    fn apply(factor: &mut Cholesky, change: &Change) -> Result<(), NotPositiveDefinite> {
        let n = factor.len();
        match change {
            Change::Push(v, d) => factor.push(&v[..n], *d).map(|pivot| assert!(pivot > 0.0)),
            Change::Remove(at) => {
                factor.remove(place(*at, n));
                Ok(())
            }
            Change::Update(v) => {
                factor.rank_one_update(&mut v[..n].to_vec());
                Ok(())
            }
            Change::Downdate(v) => factor.rank_one_downdate(&mut v[..n].to_vec()),
            Change::Diagonal(at, delta) => factor.update_diagonal(place(*at, n), *delta),
        }
    }

    fn lower(factor: &Cholesky) -> DMatrix<f64> {
        DMatrix::from_fn(factor.len(), factor.len(), |i, j| {
            if j <= i { factor.get(i, j) } else { 0.0 }
        })
    }

    fn smallest_eigenvalue(a: &DMatrix<f64>) -> f64 {
        if a.is_empty() {
            1.0
        } else {
            a.symmetric_eigenvalues().min()
        }
    }

    fn assert_close(got: &DMatrix<f64>, expected: &DMatrix<f64>, tolerance: f64) {
        let (off, size) = ((got - expected).abs().max(), expected.abs().max());
        assert!(
            got.is_empty() || off <= tolerance * size,
            "off by {off:e} of {size:e}"
        );
    }

    /// Applies the changes that keep the matrix well inside the cone, and insists that the others fail or, within
    /// rounding of its edge, are not tried.
    fn run(changes: &[Change]) -> (Cholesky, DMatrix<f64>) {
        let mut factor = Cholesky::with_capacity(2);
        let mut a = DMatrix::zeros(0, 0);
        for change in changes {
            let growing = matches!(change, Change::Push(..));
            if (a.is_empty() && !growing) || (a.nrows() == MOST && growing) {
                continue;
            }
            let next = changed(&a, change);
            let edge = smallest_eigenvalue(&next);
            if edge > 1e-3 {
                apply(&mut factor, change).unwrap();
                a = next;
                assert_close(&(lower(&factor) * lower(&factor).transpose()), &a, 1e-10);
            } else if edge < -1e-3 {
                let before = lower(&factor);
                assert!(apply(&mut factor, change).is_err(), "{change:?}");
                assert_eq!(lower(&factor), before, "{change:?}");
            }
        }
        (factor, a)
    }

    proptest! {
        #[test]
        fn any_sequence_of_changes_leaves_the_factor_of_the_changed_matrix(
            changes in prop::collection::vec(change(), 1..60)
        ) {
            run(&changes);
        }

        #[test]
        fn answers_agree_with_dense_ones(changes in prop::collection::vec(change(), 1..60), b in vector()) {
            let (mut factor, a) = run(&changes);
            let n = factor.len();
            let Some(dense) = nalgebra::linalg::Cholesky::new(a.clone()).filter(|_| n > 0) else { return Ok(()) };
            let inverse = dense.inverse();
            // Entries of the inverse are known to the condition number, which `run` holds below about 1e6.
            let tolerance = 1e-9;

            let right = DMatrix::from_column_slice(n, 1, &b[..n]);
            let mut x = b[..n].to_vec();
            factor.solve_in_place(&mut x);
            assert_close(&DMatrix::from_column_slice(n, 1, &x), &dense.solve(&right), tolerance);

            let mut y = b[..n].to_vec();
            factor.solve_lower_in_place(&mut y);
            assert_close(&(lower(&factor) * DMatrix::from_column_slice(n, 1, &y)), &right, 1e-9);
            let mut y = b[..n].to_vec();
            factor.solve_lower_transpose_in_place(&mut y);
            assert_close(&(lower(&factor).transpose() * DMatrix::from_column_slice(n, 1, &y)), &right, 1e-9);

            let ln_det = 2.0 * dense.l().diagonal().map(f64::ln).sum();
            prop_assert!((factor.ln_det() - ln_det).abs() <= 1e-9 * (1.0 + ln_det.abs()));

            // A larger matrix, of which only the leading block may be written.
            let mut out = DMatrix::repeat(n + 2, n + 1, f64::MAX);
            factor.inverse_into(&mut out);
            let written = out.view((0, 0), (n, n)).into_owned();
            assert_close(&written, &inverse, tolerance);
            prop_assert_eq!(&written, &written.transpose());
            prop_assert!((0..n + 2).all(|i| (0..=n).all(|j| (i < n && j < n) || out[(i, j)] >= f64::MAX)));

            let mut values = vec![0.0; n];
            factor.inverse_diagonal_into(&mut values);
            assert_close(&DMatrix::from_column_slice(n, 1, &values), &DMatrix::from_column_slice(n, 1, inverse.diagonal().as_slice()), tolerance);
            for j in 0..n {
                factor.inverse_column_into(j, &mut values);
                for (i, value) in values.iter().enumerate() {
                    prop_assert!((value - inverse[(i, j)]).abs() <= tolerance * inverse.abs().max());
                }
            }
        }

        #[test]
        fn refactoring_agrees_with_changing(changes in prop::collection::vec(change(), 1..60)) {
            let (changed, a) = run(&changes);
            let mut fresh = Cholesky::with_capacity(1);
            fresh.refactor(a.nrows(), |i, j| if j <= i { a[(i, j)] } else { f64::NAN }).unwrap();
            assert_close(&lower(&changed), &lower(&fresh), 1e-8);
        }
    }

    fn factor_of(a: &DMatrix<f64>) -> Result<Cholesky, NotPositiveDefinite> {
        let mut factor = Cholesky::with_capacity(0);
        factor
            .refactor(a.nrows(), |i, j| a[(i, j)])
            .map(|()| factor)
    }

    #[test]
    fn the_schur_complement_is_returned() {
        let mut factor = Cholesky::with_capacity(0);
        assert_eq!(factor.push(&[], 4.0), Ok(4.0));
        assert_eq!(factor.push(&[2.0], 5.0), Ok(4.0));
        assert_eq!(
            (factor.get(0, 0), factor.get(1, 0), factor.get(1, 1)),
            (2.0, 1.0, 2.0)
        );
    }

    #[test]
    fn a_failed_refactoring_names_the_pivot_and_leaves_nothing() {
        let mut a = DMatrix::identity(4, 4);
        a[(2, 2)] = -1.0;
        let mut factor = Cholesky::with_capacity(4);
        assert_eq!(
            factor.refactor(4, |i, j| a[(i, j)]),
            Err(NotPositiveDefinite { pivot: 2 })
        );
        assert!(factor.is_empty());
        a[(2, 2)] = 1.0;
        a[(3, 1)] = f64::NAN;
        assert_eq!(
            factor_of(&a).map(|f| f.len()),
            Err(NotPositiveDefinite { pivot: 3 })
        );
    }

    #[test]
    fn what_is_not_finite_is_refused_and_changes_nothing() {
        let mut factor = factor_of(&DMatrix::from_diagonal_element(3, 3, 2.0)).unwrap();
        let before = lower(&factor);
        for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(factor.push(&[0.0, odd, 0.0], 1.0).is_err());
            assert!(factor.push(&[0.0; 3], odd).is_err());
            assert!(factor.update_diagonal(1, odd).is_err());
            assert!(factor.rank_one_downdate(&mut [0.0, odd, 0.0]).is_err());
            assert_eq!(lower(&factor), before);
        }
    }

    #[test]
    fn a_singular_result_is_refused() {
        let mut factor = factor_of(&DMatrix::from_diagonal_element(3, 3, 4.0)).unwrap();
        let before = lower(&factor);
        assert!(factor.push(&[4.0, 0.0, 0.0], 4.0).is_err());
        assert!(factor.update_diagonal(2, -4.0).is_err());
        assert!(factor.rank_one_downdate(&mut [2.0, 0.0, 0.0]).is_err());
        assert_eq!(lower(&factor), before);
    }

    #[test]
    fn nothing_moves_in_memory_within_the_capacity() {
        let mut factor = Cholesky::with_capacity(8);
        let places = |f: &Cholesky| {
            (
                f.factor.as_ptr(),
                f.work.as_ptr(),
                f.work.capacity(),
                f.spare.as_ptr(),
            )
        };
        let before = places(&factor);
        for n in 0..8 {
            factor.push(&vec![0.1; n], 2.0).unwrap();
        }
        factor.update_diagonal(3, -0.5).unwrap();
        factor.rank_one_update(&mut [0.2; 8]);
        factor.rank_one_downdate(&mut [0.1; 8]).unwrap();
        factor.inverse_diagonal_into(&mut [0.0; 8]);
        factor.remove(0);
        factor
            .refactor(8, |i, j| f64::from(u8::from(i == j)))
            .unwrap();
        assert_eq!(places(&factor), before);
    }
}
