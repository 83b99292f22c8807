//! Solves, log determinant and inverse from the factor.

use nalgebra::DMatrix;

use crate::linalg::cholesky::inverse::Inverse;
use crate::linalg::cholesky::{Cholesky, FactorizationError, SOLVE_BLOCK};
use crate::linalg::simd::{dispatch, vectorised};
use crate::linalg::vector::{axpy, axpys, dot, each_below_diagonal, sum_of_ln};

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
        let whole = b.len() - b.len() % SOLVE_BLOCK;
        for first in (0..whole).step_by(SOLVE_BLOCK) {
            let columns: [&[f64]; SOLVE_BLOCK] = std::array::from_fn(|t| self.column(first + t));
            let (solved, rest) = b[first..].split_at_mut(SOLVE_BLOCK);
            for (t, column) in columns.iter().enumerate() {
                solved[t] /= column[0];
                axpy(
                    -solved[t],
                    &column[1..SOLVE_BLOCK - t],
                    &mut solved[t + 1..],
                );
            }
            let below = |t: usize| (-solved[t], &columns[t][SOLVE_BLOCK - t..]);
            axpys(std::array::from_fn(below), rest);
        }
        for k in whole..b.len() {
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
            chol: self,
            out: out.as_mut_slice(),
            out_stride,
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
