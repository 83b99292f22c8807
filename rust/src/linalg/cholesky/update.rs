//! Removal of rows and rank-one changes.

use crate::linalg::cholesky::{Cholesky, NotPositiveDefinite};
use crate::linalg::simd::{dispatch, vectorised};
use crate::linalg::vector::{axpy, dot};

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
