//! A Cholesky factor that grows, shrinks and changes in place.

use nalgebra::DMatrix;

use super::blas::{axpy, dot};

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
#[derive(Debug, Clone)]
pub struct Cholesky {
    factor: DMatrix<f64>,
    len: usize,
    /// Room for vectors of length `len`.
    work: Vec<f64>,
    spare: Vec<f64>,
}

impl Cholesky {
    /// The factor of a 0 x 0 matrix, with room for `capacity` rows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { factor: DMatrix::zeros(capacity, capacity), len: 0, work: Vec::new(), spare: Vec::new() }
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
    fn column(&self, j: usize) -> &[f64] {
        let stride = self.factor.nrows();
        &self.factor.as_slice()[j * stride + j..j * stride + self.len]
    }

    fn column_mut(&mut self, j: usize) -> &mut [f64] {
        let stride = self.factor.nrows();
        &mut self.factor.as_mut_slice()[j * stride + j..j * stride + self.len]
    }

    fn reserve(&mut self, len: usize) {
        if len > self.factor.nrows() {
            let capacity = (2 * self.factor.nrows()).max(len);
            self.factor.resize_mut(capacity, capacity, 0.0);
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
        let n = self.len;
        let mut row = std::mem::take(&mut self.work);
        row.clear();
        row.extend_from_slice(&column[..n]);
        self.solve_lower_in_place(&mut row);
        let pivot = diagonal - dot(&row, &row);
        if pivot > 0.0 && pivot.is_finite() {
            self.reserve(n + 1);
            for (j, l) in row.iter().enumerate() {
                self.factor[(n, j)] = *l;
            }
            self.factor[(n, n)] = pivot.sqrt();
            self.len = n + 1;
        }
        self.work = row;
        if self.len == n { Err(NotPositiveDefinite { pivot: n }) } else { Ok(pivot) }
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
                values.copy_within(j * stride + start.max(i + 1)..j * stride + n, j * stride + start.max(i + 1) - 1);
                if j > i {
                    values.copy_within(j * stride + j - 1..j * stride + n - 1, (j - 1) * stride + j - 1);
                }
            }
        }
        self.len = n - 1;
        self.update_from(i, &mut below);
        self.work = below;
    }

    /// A += x x^T. `x` is destroyed.
    ///
    /// # Panics
    /// If `x` is not `len` long.
    pub fn rank_one_update(&mut self, x: &mut [f64]) {
        assert_eq!(x.len(), self.len, "length of x");
        self.update_from(0, x);
    }

    /// Adds x x^T to the trailing block that begins at row `start`; `x` is as long as that block.
    fn update_from(&mut self, start: usize, x: &mut [f64]) {
        for k in 0..x.len() {
            let (head, tail) = x[k..].split_at_mut(1);
            let column = self.column_mut(start + k);
            let r = column[0].hypot(head[0]);
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
        for k in 0..x.len() {
            let column = self.column(start + k);
            let p = x[k] / column[0];
            x[k] = p;
            axpy(-p, &column[1..], &mut x[k + 1..]);
        }
        let rest = 1.0 - dot(x, x);
        if rest.is_nan() || rest <= f64::EPSILON {
            return Err(NotPositiveDefinite { pivot: start + x.len().saturating_sub(1) });
        }
        // `x[k..]` turns from p into the row that the rotations fill in.
        let mut alpha = rest.sqrt();
        let mut fill = std::mem::take(&mut self.work);
        fill.clear();
        fill.resize(x.len(), 0.0);
        for k in (0..x.len()).rev() {
            let r = alpha.hypot(x[k]);
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
    /// [`NotPositiveDefinite`] if the result is not; the factor is then as before.
    ///
    /// # Panics
    /// If `i >= len`.
    pub fn update_diagonal(&mut self, i: usize, delta: f64) -> Result<(), NotPositiveDefinite> {
        assert!(i < self.len, "row {i} of {}", self.len);
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
    pub fn refactor(&mut self, n: usize, a: impl Fn(usize, usize) -> f64) -> Result<(), NotPositiveDefinite> {
        self.reserve(n);
        self.len = n;
        let stride = self.factor.nrows();
        for j in 0..n {
            let (done, rest) = self.factor.as_mut_slice().split_at_mut(j * stride);
            let column = &mut rest[j..n];
            for (i, l) in column.iter_mut().enumerate() {
                *l = a(j + i, j);
            }
            for k in 0..j {
                let earlier = &done[k * stride + j..k * stride + n];
                axpy(-earlier[0], earlier, column);
            }
            let pivot = column[0];
            if !(pivot > 0.0 && pivot.is_finite()) {
                self.len = 0;
                return Err(NotPositiveDefinite { pivot: j });
            }
            let root = pivot.sqrt();
            column[0] = root;
            column[1..].iter_mut().for_each(|l| *l /= root);
        }
        Ok(())
    }

    /// Solves L y = b.
    pub fn solve_lower_in_place(&self, b: &mut [f64]) {
        self.solve_lower_from(0, b);
    }

    /// Solves with the trailing block of L that begins at row `start`.
    fn solve_lower_from(&self, start: usize, b: &mut [f64]) {
        for k in 0..b.len() {
            let column = self.column(start + k);
            let y = b[k] / column[0];
            b[k] = y;
            axpy(-y, &column[1..], &mut b[k + 1..]);
        }
    }

    /// Solves L^T y = b.
    pub fn solve_lower_transpose_in_place(&self, b: &mut [f64]) {
        for k in (0..b.len()).rev() {
            let column = self.column(k);
            b[k] = (b[k] - dot(&column[1..], &b[k + 1..])) / column[0];
        }
    }

    /// Solves A x = b.
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
        let stride = out.nrows();
        let values = out.as_mut_slice();
        // Column j of L^-1 below and with its diagonal, then (L^-T L^-1)_ij = <column i, column j> from row i on.
        for j in 0..n {
            let column = &mut values[j * stride + j..j * stride + n];
            column.fill(0.0);
            column[0] = 1.0;
            self.solve_lower_from(j, column);
        }
        for j in 0..n {
            for i in j..n {
                let product = dot(&values[j * stride + i..j * stride + n], &values[i * stride + i..i * stride + n]);
                values[j * stride + i] = product;
            }
        }
        for j in 0..n {
            for i in j + 1..n {
                values[i * stride + j] = values[j * stride + i];
            }
        }
    }

    /// The diagonal of the inverse of A.
    ///
    /// # Panics
    /// If `out` is shorter than `len`.
    pub fn inverse_diagonal_into(&mut self, out: &mut [f64]) {
        let mut column = std::mem::take(&mut self.work);
        for (j, out) in out.iter_mut().enumerate().take(self.len) {
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
