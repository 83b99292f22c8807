//! What the factor is asked: solutions, determinant, inverse.

use nalgebra::DMatrix;

use super::super::blas::{axpy, axpys, dot, sum_of_ln};
use super::super::parallel::pieces;
use super::super::simd::{Simd, WithSimd, dispatch};
use super::{Cholesky, TOGETHER, blocked};

impl Cholesky {
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
        let diagonal: Vec<f64> = (0..self.len).map(|i| self.factor[(i, i)]).collect();
        2.0 * sum_of_ln(&diagonal)
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

vectorised!(SolveLower { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_lower_from(0, this.b));
vectorised!(SolveBlock { chol: &'a Cholesky, start: usize, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_lower_from(this.start, this.b));
vectorised!(SolveTransposed { chol: &'a Cholesky, b: &'a mut [f64] } -> (),
    |this| this.chol.solve_transposed_here(this.b));
vectorised!(Inverse { chol: &'a Cholesky, values: &'a mut [f64], stride: usize } -> (),
    |this| this.chol.inverse_here(this.values, this.stride));
