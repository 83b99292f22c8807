//! A Cholesky factor with in-place updates: append, remove, rank one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nalgebra::DMatrix;

use crate::error::{FactorizationError, NotPositiveDefinite};
use crate::linalg::cholesky::blocked::{Inverse, PANEL, Panel};
use crate::linalg::columns::stride;
use crate::linalg::simd::{dispatch, vectorised};
use crate::linalg::vector::{axpy, dot, each_below_diagonal, leading, sum_of_ln};
use crate::parallel::pieces;

mod blocked;
#[cfg(test)]
mod tests;

/// Lower factor L of a symmetric positive definite matrix A = L L^T that gains and loses rows.
///
/// Invariant: the leading `len` x `len` block of `factor` holds L in its lower triangle, with a positive diagonal; all
/// other elements have no meaning. Storage is column-major and grows by half when a push needs more; nothing else
/// allocates.
#[derive(Debug)]
pub struct Cholesky {
    factor: DMatrix<f64>,
    len: usize,
    /// Work vectors with the capacity of the factor.
    work: Vec<f64>,
    spare: Vec<f64>,
    cancel: Option<Arc<AtomicBool>>,
}

/// A clone has less spare capacity.
impl Clone for Cholesky {
    fn clone(&self) -> Self {
        const ROOM: usize = 8;
        self.with_room(stride(self.len + ROOM))
    }
}

impl Cholesky {
    /// The factor of a 0 x 0 matrix, with room for `capacity` rows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        // Columns aligned to cache lines.
        let capacity = stride(capacity);
        Self::empty_in(DMatrix::zeros(capacity, capacity))
    }

    /// The factor of a 0 x 0 matrix with this storage.
    fn empty_in(factor: DMatrix<f64>) -> Self {
        let capacity = factor.nrows();
        Self {
            factor,
            len: 0,
            work: Vec::with_capacity(capacity),
            spare: Vec::with_capacity(capacity),
            cancel: None,
        }
    }

    /// A copy with room for `capacity` rows.
    fn with_room(&self, capacity: usize) -> Self {
        Self {
            len: self.len,
            cancel: self.cancel.clone(),
            ..Self::empty_in(leading(&self.factor, self.len, capacity))
        }
    }

    /// Ends the O(n^3) operations [`Cholesky::refactor`] and [`Cholesky::inverse_into`] with
    /// [`FactorizationError::Cancelled`] once the flag is raised.
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
    fn column(&self, j: usize) -> &[f64] {
        let stride = self.factor.nrows();
        &self.factor.as_slice()[j * stride + j..j * stride + self.len]
    }

    #[inline(always)]
    fn column_mut(&mut self, j: usize) -> &mut [f64] {
        let stride = self.factor.nrows();
        &mut self.factor.as_mut_slice()[j * stride + j..j * stride + self.len]
    }

    /// Ensures capacity for `len` rows in total.
    pub(crate) fn reserve(&mut self, len: usize) {
        if len > self.factor.nrows() {
            let capacity = stride((self.factor.nrows() + self.factor.nrows() / 2).max(len));
            *self = self.with_room(capacity);
        }
    }

    /// Appends a row and column to A: `column` above `diagonal`. Returns the new squared pivot, the Schur complement.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the pivot is not positive; the factor is then unchanged.
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

    /// [`Cholesky::push`] given the new row of L, which is L^-1 times the column, and the squared pivot.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the pivot is not positive; the factor is then unchanged.
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

    /// Factors an n x n matrix; `a(i, j)` is called for j <= i only.
    ///
    /// # Errors
    /// [`FactorizationError`], with the offending row if the matrix is indefinite; the factor is then empty.
    pub fn refactor(
        &mut self,
        n: usize,
        a: impl Fn(usize, usize) -> f64,
    ) -> Result<(), FactorizationError> {
        self.reserve(n);
        self.len = n;
        for columns in pieces(n, PANEL) {
            let outcome = self.refactor_panel(columns, &a);
            if outcome.is_err() {
                self.len = 0;
                return outcome;
            }
        }
        Ok(())
    }

    /// Factors some columns after all columns before them.
    fn refactor_panel(
        &mut self,
        columns: Range<usize>,
        a: &impl Fn(usize, usize) -> f64,
    ) -> Result<(), FactorizationError> {
        if self.is_cancelled() {
            return Err(FactorizationError::Cancelled);
        }
        for j in columns.clone() {
            for (i, l) in self.column_mut(j).iter_mut().enumerate() {
                *l = a(j + i, j);
            }
        }
        dispatch(Panel {
            stride: self.factor.nrows(),
            values: self.factor.as_mut_slice(),
            n: self.len,
            columns,
            cancel: self.cancel.as_deref(),
        })
    }
}

impl Cholesky {
    /// Solves L y = b.
    ///
    /// # Panics
    /// If `b` is not `len` long.
    pub fn solve_lower_in_place(&self, b: &mut [f64]) {
        assert_eq!(b.len(), self.len, "length of b");
        dispatch(SolveLower { chol: self, b });
    }

    #[inline(always)]
    fn solve_lower_here(&self, b: &mut [f64]) {
        for k in 0..b.len() {
            let column = self.column(k);
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
        let diagonal: Vec<f64> = (0..self.len).map(|i| self.factor[(i, i)]).collect();
        2.0 * sum_of_ln(&diagonal)
    }

    /// Writes the inverse of A, exactly symmetric, into the leading `len` x `len` block of `out`.
    ///
    /// # Errors
    /// [`FactorizationError::Cancelled`]; `out` then has no meaning.
    ///
    /// # Panics
    /// If `out` is smaller than that.
    pub fn inverse_into(&self, out: &mut DMatrix<f64>) -> Result<(), FactorizationError> {
        let n = self.len;
        assert!(
            out.nrows().min(out.ncols()) >= n,
            "{} x {} for {n} rows",
            out.nrows(),
            out.ncols()
        );
        let out_stride = out.nrows();
        dispatch(Inverse {
            factor: self.factor.as_slice(),
            factor_stride: self.factor.nrows(),
            n,
            out: out.as_mut_slice(),
            out_stride,
            cancel: self.cancel.as_deref(),
        });
        if self.is_cancelled() {
            return Err(FactorizationError::Cancelled);
        }
        let values = out.as_mut_slice();
        each_below_diagonal(n, |i, j| {
            values[j * out_stride + i] = values[i * out_stride + j];
        });
        Ok(())
    }
}

vectorised!(SolveLower { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_lower_here(this.b));
vectorised!(SolveTransposed { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_transposed_here(this.b));

impl Cholesky {
    /// Removes row and column `i` of A; the order of the others is kept.
    ///
    /// # Panics
    /// If `i >= len`.
    pub fn remove(&mut self, i: usize) {
        assert!(i < self.len, "row {i} of {}", self.len);
        // Deleting column i of L removes its outer product from the trailing block, so the trailing factor adds it again.
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

    /// Adds x x^T to the trailing block that begins at row `start`. `x` has the length of that block, must be finite and is
    /// overwritten.
    pub(super) fn update_from(&mut self, start: usize, x: &mut [f64]) {
        dispatch(Update {
            chol: self,
            start,
            x,
        });
    }

    #[inline(always)]
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

    /// Subtracts x x^T from the trailing block that begins at row `start`. `x` is overwritten.
    ///
    /// LINPACK's method: the rotations that turn (p; rho) into (0; 1), applied to (L, 0), give the factor of A - x x^T.
    /// The factor is unchanged if the result is not positive definite.
    pub(super) fn downdate_from(
        &mut self,
        start: usize,
        x: &mut [f64],
    ) -> Result<(), NotPositiveDefinite> {
        dispatch(Downdate {
            chol: self,
            start,
            x,
        })
    }

    #[inline(always)]
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
        // The rotations turn `fill` from zero into x.
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

    /// `A_ii` += `delta`. Only rows and columns from `i` on change.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] if the result is not, or `delta` is not finite; the factor is then unchanged.
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
}

vectorised!(Update { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> (),
    |this| this.chol.update_here(this.start, this.x));
vectorised!(Downdate { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> Result<(), NotPositiveDefinite>,
    |this| this.chol.downdate_here(this.start, this.x));
