//! What a fit may ask of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::column_cache::{column_into, columns_into_strips, unit_columns};
use crate::data::observations::{GRAM_ROWS, Observations};
use crate::data::quadratic_bound::{no_bound, tightest};
use crate::data::row_blocks::{ROW_BLOCK, over_blocks, sum_over_rows};
use crate::data::row_subsample::RowSubsample;
use crate::data::{Statistics, Sweep, completed};
use crate::linalg::LowerTriangle;
use crate::linalg::aligned_columns::stride;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::{axpy, column_dot, mirror, weighted_square};
use crate::parallel::{fill_pieces_of, map_pieces, pieces};

/// Columns that one thread multiplies at a time.
const COLUMNS: usize = 32;

impl Statistics for Observations<'_> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.design.n_basis()
    }

    fn is_linear(&self) -> bool {
        self.likelihood.is_linear()
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
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
        let deviance = self.move_to(active, mu)?;
        self.packed.products(&self.residual, gradient);
        let m = active.len();
        let n = self.target.len();
        let mut sum = sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            self.add_gram(&self.packed.at(&rows), &rows, out);
        });
        self.check_cancel()?;
        mirror(&mut sum);
        gram.view_mut((0, 0), (m, m)).copy_from(&sum);
        Ok(deviance)
    }

    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
        if !self.likelihood.has_bound() {
            return Err(no_bound());
        }
        if !self.is_linear() {
            self.pack(active);
            let n = self.target.len();
            self.xi = Some(tightest(
                &self.packed.at(&(0..n)),
                n,
                mu,
                sigma,
                self.cancel.as_deref(),
            )?);
            self.place = None;
        }
        self.check_cancel()
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        self.packed.products(&self.residual, gradient);
        Ok(deviance)
    }

    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        self.check_cancel()?;
        self.pack(active);
        let (n, m) = (self.target.len(), active.len());
        let sigma = sigma.view((0, 0), (m, m));
        Ok(sum_over_rows(n, ROW_BLOCK, m, |rows, out| {
            let columns = self.packed.at(&rows);
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
            && let Some(start) = self.start.take()
        {
            self.move_to(active, mu)?;
            return Ok(start);
        }
        let deviance = self.move_to(active, mu)?;
        if let Some(factor) = self.factor.clone() {
            let sums = self.factor_sums(&factor, wanted)?;
            return Ok(unit_columns(sums, &self.norms, false, deviance));
        }
        let columns = self.packed.columns(&*self.design, &self.norms, wanted);
        let fixed = self.is_linear() && (!self.uneven || self.squares.is_some());
        let sums = over_blocks(
            &*self.design,
            wanted.len() + 1,
            || self.check_cancel(),
            |block, diag, products| {
                let rows = &block.rows;
                let values = TallMatrix::new(block.values.data, block.values.stride, diag.len());
                // Made anew for each block: of N rows it would be as large as the active columns.
                let right = self.right(&columns, rows);
                let right = TallMatrix::new(&right, stride(rows.len()), wanted.len() + 1);
                add_transpose_product(values, right, rows.len(), products, diag.len());
                if !fixed {
                    for (c, diag) in diag.iter_mut().enumerate() {
                        *diag += weighted_square(
                            block.values.column(c, rows.len()),
                            &self.working[rows.clone()],
                        );
                    }
                }
            },
        )?;
        let mut sweep = unit_columns(sums, &self.norms, fixed, deviance);
        if self.is_linear() && self.uneven {
            let squares = self.squares.get_or_insert_with(|| sweep.diag.clone());
            sweep.diag.copy_from_slice(squares);
        }
        Ok(sweep)
    }

    fn on_fewer_rows(
        &mut self,
        share: usize,
        least: usize,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        let design = Arc::clone(&self.design);
        let Some(thinned) = RowSubsample::of(&*design, share, least) else {
            return Ok(());
        };
        let target = thinned.pick(&self.target);
        let weights = self.weights.as_ref().map(|w| thinned.pick(w));
        let (likelihood, cancel) = (self.likelihood, self.cancel.clone());
        let mut part = Observations::cancellable(&thinned, likelihood, target, weights, cancel)?;
        see(self, &mut part);
        Ok(())
    }

    fn on_few_features(
        &mut self,
        see: &mut dyn FnMut(&mut dyn Statistics, &mut dyn Statistics),
    ) -> Result<()> {
        if let Some(mut part) = self.nearly.take() {
            see(self, &mut part);
        }
        Ok(())
    }

    fn project(&mut self, js: &[usize]) -> Result<Vec<f64>> {
        if let Some(factor) = &self.factor {
            let right = factor.project(&self.residual);
            return Ok(factor.projections(&right, js, &self.norms));
        }
        let parts = map_pieces(self.target.len(), ROW_BLOCK, |rows| -> Result<Vec<f64>> {
            self.check_cancel()?;
            let mut column = vec![0.0; rows.len()];
            let residual = &self.residual[rows.clone()];
            let of = |&j: &usize| {
                column_into(&*self.design, &self.norms, j, &rows, &mut column);
                column_dot(&column, residual)
            };
            Ok(js.iter().map(of).collect())
        });
        let mut sum = vec![0.0; js.len()];
        for part in parts {
            axpy(1.0, &part?, &mut sum);
        }
        Ok(sum)
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        self.lower_among(js).map(completed)
    }

    fn lower_among(&mut self, js: &[usize]) -> Result<(LowerTriangle, Vec<f64>)> {
        self.check_cancel()?;
        if let Some(factor) = self.factor.clone() {
            let gram = self.factor_gram(&factor)?;
            let right = factor.project(&self.residual);
            return Ok(factor.lower_among(&gram, &right, js, &self.norms));
        }
        let m = js.len();
        let mut gram = LowerTriangle::zeros(m);
        // Most of a shortlist never enters the model, so its columns are not kept.
        let (mut strips, mut gradient) = (Vec::new(), vec![0.0; m]);
        for rows in pieces(self.target.len(), GRAM_ROWS) {
            let columns = columns_into_strips(&*self.design, &self.norms, js, &rows, &mut strips);
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
        self.check_cancel()?;
        Ok((gram, gradient))
    }

    fn nearly_sweep(
        &mut self,
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Option<Sweep>> {
        let Some(leading) = self.leading.clone() else {
            return Ok(None);
        };
        let deviance = self.move_to(active, mu)?;
        let gram = self.leading_gram(&leading)?;
        let right = leading.project(&self.residual);
        let sums = leading.sums(&gram, &right, (wanted, &self.norms), true);
        self.check_cancel()?;
        Ok(Some(unit_columns(sums, &self.norms, false, deviance)))
    }

    fn nearly_among(&mut self, js: &[usize]) -> Result<Option<(LowerTriangle, Vec<f64>)>> {
        let (Some(leading), None) = (self.leading.clone(), &self.factor_gram) else {
            return Ok(None);
        };
        let gram = self.leading_gram(&leading)?;
        let right = leading.project(&self.residual);
        Ok(Some(leading.lower_among(&gram, &right, js, &self.norms)))
    }
}
