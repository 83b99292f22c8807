//! [`Statistics`] of rows in memory.

use nalgebra::{DMatrix, DVector};

use crate::Result;
use crate::data::column_cache::{add_squares, column_into, columns_into_strips, unit_columns};
use crate::data::observations::{GRAM_ROWS, Observations};
use crate::data::row_blocks::{ROW_BLOCK, over_blocks, sum_over_rows};
use crate::data::{Facts, Statistics, Sweep, no_bound};
use crate::linalg::LowerTriangle;
use crate::linalg::aligned_columns::stride;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot, mirror};
use crate::parallel::{fill_pieces_of, map_pieces, pieces};

impl Statistics for Observations<'_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let deviance = self.gradient(active, mu, gradient)?[0];
        let m = active.len();
        let mut sum = sum_over_rows(self.target.len(), ROW_BLOCK, m, |rows, out| {
            self.add_gram(&self.columns.at(&rows), &rows, out);
        });
        self.facts.check_cancelled()?;
        mirror(&mut sum);
        gram.view_mut((0, 0), (m, m)).copy_from(&sum);
        Ok(deviance)
    }

    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
        if !self.likelihood.has_bound() {
            return Err(no_bound());
        }
        if !self.facts.is_linear {
            self.activate(active);
            self.xi = Some(self.tightest_bounds(mu, sigma)?);
            self.evaluation = None;
        }
        self.facts.check_cancelled()
    }

    fn remove_bound(&mut self) {
        if self.xi.take().is_some() {
            self.evaluation = None;
        }
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let deviance = self.move_to(active, mu)?;
        self.columns.products(&self.residual, gradient);
        Ok(vec![deviance])
    }

    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        self.move_to(active, mu)?;
        let (n, m) = (self.target.len(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let columns = self.columns.at(&rows);
            let height = rows.len();
            let t = DMatrix::from_fn(height, m, |i, k| columns[k][i]) * sigma;
            let squares = t.map(|v| v * v);
            let skewed = DMatrix::from_fn(height, m, |i, k| self.skew[rows.start + i] * t[(i, k)]);
            let (a, b) = (squares.as_slice(), skewed.as_slice());
            let (a, b) = (TallMatrix::new(a, height, m), TallMatrix::new(b, height, m));
            add_transpose_product(a, b, height, out, m);
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        if active.is_empty()
            && wanted.is_empty()
            && self.xi.is_none()
            && let Some(start) = &self.start
        {
            self.facts.check_cancelled()?;
            return Ok(start.clone());
        }
        let deviance = self.move_to(active, mu)?;
        if let Some(factor) = &mut self.factor {
            let sums = factor.sums(&self.working, &self.residual, (wanted, &self.facts.norms));
            self.facts.check_cancelled()?;
            return Ok(unit_columns(sums, &self.facts.norms, false, vec![deviance]));
        }
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, wanted);
        let n_products = wanted.len() + 1;
        let fixed = self.facts.is_linear && (!self.inexact_norms || self.squares.is_some());
        let check = || self.facts.check_cancelled();
        let sums = over_blocks(&*self.design, n_products, check, |block, diag, products| {
            let rows = &block.rows;
            // Computed for each block: for all rows it would be as large as the active columns.
            let right = self.right(&columns, rows);
            let right = TallMatrix::new(&right, stride(rows.len()), n_products);
            block.add_products(right, products, diag.len());
            if !fixed {
                add_squares(block, Some(&self.working), diag);
            }
        })?;
        let mut sweep = unit_columns(sums, &self.facts.norms, fixed, vec![deviance]);
        if self.facts.is_linear && self.inexact_norms {
            let squares = self.squares.get_or_insert_with(|| sweep.diag.clone());
            sweep.diag.copy_from_slice(squares);
        }
        Ok(sweep)
    }

    fn project(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        if let Some(factor) = &self.factor {
            let right = factor.features.project(&self.residual);
            return Ok(factor.features.projections(&right, js, &self.facts.norms));
        }
        let parts = map_pieces(self.target.len(), ROW_BLOCK, |rows| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            let mut column = vec![0.0; rows.len()];
            let residual = &self.residual[rows.clone()];
            let project = |&j: &usize| {
                column_into(&*self.design, &self.facts.norms, j, &rows, &mut column);
                column_dot(&column, residual)
            };
            Ok(js.iter().map(project).collect())
        });
        let mut sum = vec![0.0; js.len()];
        for part in parts {
            axpy(1.0, &part?, &mut sum);
        }
        Ok(sum)
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        /// Columns that one thread multiplies with the residual.
        const COLUMNS: usize = 32;
        self.move_to(active, mu)?;
        if let Some(factor) = &mut self.factor {
            return Ok(factor.lower_among(&self.working, &self.residual, js, &self.facts.norms));
        }
        let m = js.len();
        if self.target.is_empty() {
            let zeros = DMatrix::zeros(m, m);
            return Ok((LowerTriangle::of(&zeros), vec![0.0; m]));
        }
        let mut gram = LowerTriangle::zeros(m);
        // Most functions of a working set are never added to the model, so their columns are not kept.
        let (mut strips, mut gradient) = (Vec::new(), vec![0.0; m]);
        for rows in pieces(self.target.len(), GRAM_ROWS) {
            let columns =
                columns_into_strips(&*self.design, &self.facts.norms, js, &rows, &mut strips);
            gram.add(m * m * rows.len(), |strip, out| {
                let height = m - strip.start;
                self.add_gram_columns(&columns, &rows, strip, out, height);
            });
            let residual = &self.residual[rows.clone()];
            fill_pieces_of(m * rows.len(), &mut gradient, COLUMNS, |first, out| {
                for (g, column) in out.iter_mut().zip(&columns[first..]) {
                    *g += column_dot(column, residual);
                }
            });
        }
        self.facts.check_cancelled()?;
        Ok((gram, gradient))
    }
}

impl Observations<'_> {
    /// The root of `E[eta_n^2]` for each row, at which its quadratic bound is tightest (Jaakkola & Jordan 2000).
    fn tightest_bounds(&self, mu: &[f64], sigma: &DMatrix<f64>) -> Result<Vec<f64>> {
        /// Rows between two checks of the flag.
        const ROWS: usize = 64;
        let m = mu.len();
        let (mu, sigma) = (DVector::from_column_slice(mu), sigma.view((0, 0), (m, m)));
        let parts = map_pieces(self.target.len(), ROWS, |rows| -> Result<Vec<f64>> {
            self.facts.check_cancelled()?;
            let columns = self.columns.at(&rows);
            let phi = DMatrix::from_fn(rows.len(), m, |i, k| columns[k][i]);
            let variances = (&phi * sigma).component_mul(&phi).column_sum();
            let eta = &phi * &mu;
            let moments = variances.iter().zip(eta.iter());
            Ok(moments
                .map(|(v, eta)| (v.max(0.0) + eta * eta).sqrt())
                .collect())
        });
        Ok(parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }
}
