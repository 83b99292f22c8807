//! A Cholesky factor with in-place updates: append, remove, rank one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nalgebra::DMatrix;

use crate::linalg::aligned_columns::stride;
use crate::linalg::simd::dispatch;
use crate::linalg::vector::{dot, leading};
use crate::parallel::pieces;

mod factorize;
mod inverse;
mod solve;
#[cfg(test)]
mod tests;
mod tiles;
mod update;

/// Columns per step of a triangular solve, which then reads and writes the right-hand side less often.
const SOLVE_BLOCK: usize = 4;

/// The matrix is not positive definite to working precision: a squared pivot is not positive, infinite or NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the matrix is not positive definite: pivot {pivot} is not a positive number")]
pub struct NotPositiveDefinite {
    /// Row of that pivot.
    pub pivot: usize,
}

/// Why a factorisation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorizationError {
    /// By the values of the matrix.
    Indefinite(NotPositiveDefinite),
    /// The caller raised the flag of [`Cholesky::cancelled_by`].
    Cancelled,
}

impl From<NotPositiveDefinite> for FactorizationError {
    fn from(error: NotPositiveDefinite) -> Self {
        Self::Indefinite(error)
    }
}

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
        for columns in pieces(n, tiles::PANEL) {
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
        dispatch(factorize::Panel {
            stride: self.factor.nrows(),
            values: self.factor.as_mut_slice(),
            n: self.len,
            columns,
            cancel: self.cancel.as_deref(),
        })
    }
}
