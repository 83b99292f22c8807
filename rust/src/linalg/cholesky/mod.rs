//! A Cholesky factor with in-place updates: append, remove, rank one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Result;
use crate::error::{NotPositiveDefinite, check_flag};
use crate::linalg::Matrix;
use crate::linalg::batched_triangular::{
    LANES, Lanes, add_lane_products, factor_lanes, pack_lower, solve_lanes,
};
use crate::linalg::columns::stride;
use crate::linalg::simd::{dispatch, vectorised};
use crate::linalg::vector::{axpy, dot, each_below_diagonal, leading, sum_of_ln};
use crate::parallel::pieces;

#[cfg(test)]
mod tests;

/// Lower factor L of a symmetric positive definite matrix A = L L^T that gains and loses rows.
///
/// Invariant: the leading `len` x `len` block of `factor` holds L in its lower triangle, with a positive diagonal; all
/// other elements have no meaning. Storage is column-major and grows by half when a push needs more; nothing else
/// allocates.
#[derive(Debug)]
pub struct Cholesky {
    factor: Matrix,
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
        Self::empty_in(Matrix::zeros(capacity, capacity))
    }

    /// The factor of a 0 x 0 matrix with this storage.
    fn empty_in(factor: Matrix) -> Self {
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
    /// [`Error::Interrupted`](crate::Error::Interrupted) once the flag is raised.
    pub fn cancelled_by(&mut self, flag: Option<Arc<AtomicBool>>) {
        self.cancel = flag;
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

    /// Appends a row and column to A, given the new row of L, which is L^-1 times the column, and the squared pivot, the Schur complement.
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
    /// [`Error::NotPositiveDefinite`](crate::Error::NotPositiveDefinite) with the offending row, or [`Error::Interrupted`]; the factor is then empty.
    pub fn refactor(&mut self, n: usize, a: impl Fn(usize, usize) -> f64) -> Result<()> {
        self.reserve(n);
        self.len = 0;
        let stride = self.factor.nrows();
        // Rows of L one after another: those of one block are solved for together, one per lane.
        let mut lower = Vec::with_capacity(n * (n + 1) / 2);
        let mut lanes = vec![[0.0; LANES]; n];
        for rows in pieces(n, LANES) {
            check_flag(self.cancel.as_deref())?;
            let Range { start: first, end } = rows;
            let x = &mut lanes[..end];
            for (j, x) in x.iter_mut().enumerate() {
                x.fill(0.0);
                for i in first.max(j)..end {
                    x[i - first] = a(i, j);
                }
            }
            solve_lanes(&lower, 0, &mut x[..first]);
            factor_lanes(first, x)?;
            for (j, x) in x.iter().enumerate() {
                let top = first.max(j);
                let column = &mut self.factor.as_mut_slice()[j * stride..];
                column[top..end].copy_from_slice(&x[top - first..end - first]);
            }
            if end < n {
                for lane in 0..end - first {
                    lower.extend(x[..=first + lane].iter().map(|x| x[lane]));
                }
            }
        }
        self.len = n;
        Ok(())
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

    /// Solves L^T y = b.
    ///
    /// # Panics
    /// If `b` is not `len` long.
    pub fn solve_lower_transpose_in_place(&self, b: &mut [f64]) {
        assert_eq!(b.len(), self.len, "length of b");
        dispatch(SolveTransposed { chol: self, b });
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
    /// [`Error::Interrupted`](crate::Error::Interrupted); `out` then has no meaning.
    ///
    /// # Panics
    /// If `out` is smaller than that.
    pub fn inverse_into(&self, out: &mut Matrix) -> Result<()> {
        let n = self.len;
        assert!(
            out.nrows().min(out.ncols()) >= n,
            "{} x {} for {n} rows",
            out.nrows(),
            out.ncols()
        );
        let stride = out.nrows();
        let (lower, values) = (pack_lower(self), out.as_mut_slice());
        // X = L^-1 in blocks of columns, each from its first diagonal element down; then X^T X.
        let mut blocks: Vec<Vec<Lanes>> = Vec::new();
        for right in pieces(n, LANES) {
            check_flag(self.cancel.as_deref())?;
            let mut x = vec![[0.0; LANES]; n - right.start];
            for (k, x) in x.iter_mut().enumerate().take(right.len()) {
                x[k] = 1.0;
            }
            solve_lanes(&lower, right.start, &mut x);
            blocks.push(x);
        }
        for (right, below) in pieces(n, LANES).zip(&blocks) {
            check_flag(self.cancel.as_deref())?;
            for (left, x) in pieces(right.end, LANES).zip(&blocks) {
                let mut sums = [[0.0; LANES]; LANES];
                let sums = &mut sums[..right.len()];
                add_lane_products(&x[right.start - left.start..], below, sums);
                for (j, sums) in right.clone().zip(sums) {
                    let rows = left.start..left.end.min(j + 1);
                    values[j * stride..][rows.clone()].copy_from_slice(&sums[..rows.len()]);
                }
            }
        }
        each_below_diagonal(n, |i, j| values[j * stride + i] = values[i * stride + j]);
        Ok(())
    }
}

vectorised!(SolveLower { chol: &'a Cholesky, b: &'a mut [f64] } -> (), |this| {
    let b = this.b;
    for k in 0..b.len() {
        let column = this.chol.column(k);
        b[k] /= column[0];
        axpy(-b[k], &column[1..], &mut b[k + 1..]);
    }
});

vectorised!(SolveTransposed { chol: &'a Cholesky, b: &'a mut [f64] } -> (), |this| {
    let b = this.b;
    for k in (0..b.len()).rev() {
        let column = this.chol.column(k);
        b[k] = (b[k] - dot(&column[1..], &b[k + 1..])) / column[0];
    }
});

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

vectorised!(Update { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> (), |this| {
    let (chol, start, x) = (this.chol, this.start, this.x);
    for k in 0..x.len() {
        let (head, tail) = x[k..].split_at_mut(1);
        let column = chol.column_mut(start + k);
        let r = (column[0] * column[0] + head[0] * head[0]).sqrt();
        let (c, s) = (column[0] / r, head[0] / r);
        column[0] = r;
        for (l, x) in column[1..].iter_mut().zip(tail) {
            let old = *l;
            *l = c * old + s * *x;
            *x = c * *x - s * old;
        }
    }
});

vectorised!(Downdate { chol: &'a mut Cholesky, start: usize, x: &'a mut [f64] } -> Result<(), NotPositiveDefinite>, |this| {
    let (chol, start, x) = (this.chol, this.start, this.x);
    for k in 0..x.len() {
        let column = chol.column(start + k);
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
    let mut fill = std::mem::take(&mut chol.work);
    fill.clear();
    fill.resize(x.len(), 0.0);
    for k in (0..x.len()).rev() {
        let r = (alpha * alpha + x[k] * x[k]).sqrt();
        let (c, s) = (alpha / r, x[k] / r);
        alpha = r;
        let column = chol.column_mut(start + k);
        for (l, f) in column.iter_mut().zip(&mut fill[k..]) {
            let filled = *f;
            *f = c * filled + s * *l;
            *l = c * *l - s * filled;
        }
    }
    chol.work = fill;
    Ok(())
});
