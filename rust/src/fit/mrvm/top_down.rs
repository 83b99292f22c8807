//! The M-step of mRVM2 (Psorakis et al. 2010, equations 2 and 14): penalised least squares with a precision for each weight.
//! The model starts with all functions and only deletes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::check_flag;
use crate::linalg::Cholesky;
use crate::linalg::batched_triangular::LANES;
use crate::linalg::gemm::product;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// The functions still in the model, with their columns and Gram matrix.
pub struct TopDownFit {
    n_rows: usize,
    /// N x m, column after column.
    columns: Vec<f64>,
    /// Sample weights.
    weights: Option<Vec<f64>>,
    /// m x m.
    gram: Vec<f64>,
    cancel: Option<Arc<AtomicBool>>,
}

impl TopDownFit {
    /// Starts with all functions. `columns` is N x K, column after column.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`]; [`Error::Interrupted`] if `cancel` is set.
    pub fn new(
        columns: Vec<f64>,
        n_rows: usize,
        n_basis: usize,
        weights: Option<Vec<f64>>,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self> {
        Error::check_len("Phi", n_rows * n_basis, columns.len())?;
        Error::check_finite("Phi", &columns)?;
        if let Some(w) = &weights {
            Error::check_len("weights", n_rows, w.len())?;
            Error::check_finite("weights", w)?;
        }
        let mut this = Self {
            n_rows,
            columns,
            weights,
            gram: Vec::new(),
            cancel: Some(cancel),
        };
        this.gram = this.products_with(&this.weighted(&this.columns), n_basis)?;
        if this.gram.iter().any(|g| !g.is_finite()) {
            let what =
                "a column of the design matrix is too large to square; rescale X or the kernel";
            return Err(Error::Invalid { what: what.into() });
        }
        Ok(this)
    }

    /// Number of functions in the model.
    #[must_use]
    pub fn n_basis(&self) -> usize {
        self.columns.len() / self.n_rows.max(1)
    }

    /// Replaces the cancellation flag.
    pub fn set_cancel(&mut self, flag: Arc<AtomicBool>) {
        self.cancel = Some(flag);
    }

    /// The rows of `values` times their sample weights.
    fn weighted(&self, values: &[f64]) -> Vec<f64> {
        let mut values = values.to_vec();
        if let Some(w) = &self.weights {
            for column in values.chunks_exact_mut(self.n_rows.max(1)) {
                column.iter_mut().zip(w).for_each(|(v, w)| *v *= w);
            }
        }
        values
    }

    /// Phi^T times each of `count` vectors of length N; m x `count`.
    fn products_with(&self, right: &[f64], count: usize) -> Result<Vec<f64>> {
        let (n, m) = (self.n_rows, self.n_basis());
        let values = TallMatrix::new(&self.columns, n, m);
        let parts = map_pieces(count, LANES, |range| -> Result<Vec<f64>> {
            check_flag(self.cancel.as_deref())?;
            let right = TallMatrix::new(&right[range.start * n..], n, range.len());
            let mut out = vec![0.0; m * range.len()];
            add_transpose_product(values, right, n, &mut out, m);
            Ok(out)
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// The weights that minimise `sum_n (y_nc - phi_n^T w_c)^2 + sum_i alpha_ic w_ic^2` for each output c: equation (2).
    ///
    /// `targets` is N x C; `alpha` and the result are m x C; all column after column.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::NonFinite`]; [`Error::NotPositiveDefinite`] if round-off makes the precision indefinite;
    /// [`Error::Interrupted`].
    pub fn solve(&self, targets: &[f64], alpha: &[f64]) -> Result<Vec<f64>> {
        let m = self.n_basis();
        let n_outputs = targets.len() / self.n_rows.max(1);
        Error::check_len("targets", n_outputs * self.n_rows, targets.len())?;
        Error::check_len("alpha", n_outputs * m, alpha.len())?;
        Error::check_finite("targets", targets)?;
        Error::check_finite("alpha", alpha)?;
        if m == 0 {
            return Ok(Vec::new());
        }
        let products = self.products_with(&self.weighted(targets), n_outputs)?;
        let solved = map_pieces(n_outputs, 1, |c| -> Result<Vec<f64>> {
            check_flag(self.cancel.as_deref())?;
            let alpha = &alpha[c.start * m..c.end * m];
            let mut chol = Cholesky::with_capacity(m);
            chol.cancelled_by(self.cancel.clone());
            chol.refactor(m, |i, j| {
                self.gram[i + j * m] + if i == j { alpha[i] } else { 0.0 }
            })?;
            let mut weights = products[c.start * m..c.end * m].to_vec();
            chol.solve_in_place(&mut weights);
            Ok(weights)
        });
        Ok(solved.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// Phi w for each output: N x C, given m x C.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub fn predictions(&self, weights: &[f64], n_outputs: usize) -> Result<Vec<f64>> {
        let (n, m) = (self.n_rows, self.n_basis());
        Error::check_len("weights", m * n_outputs, weights.len())?;
        let columns = TallMatrix::new(&self.columns, n, m);
        Ok(product(columns, weights, n, n_outputs))
    }

    /// Deletes all functions except those at these positions, in ascending order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the positions do not ascend, or are out of range.
    pub fn keep(&mut self, positions: &[usize]) -> Result<()> {
        let (n, m) = (self.n_rows, self.n_basis());
        let ascending = positions.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || positions.last().is_some_and(|&last| last >= m) {
            let what = format!("positions to keep must ascend and be less than {m}");
            return Err(Error::Invalid { what });
        }
        let column = |&j: &usize| self.columns[j * n..(j + 1) * n].iter().copied();
        let columns = positions.iter().flat_map(column).collect();
        let entries = |&j: &usize| positions.iter().map(move |&i| (i, j));
        let gram = positions.iter().flat_map(entries);
        self.gram = gram.map(|(i, j)| self.gram[i + j * m]).collect();
        self.columns = columns;
        Ok(())
    }
}
