//! Statistics of a part of a dictionary that is too large for passes over all of it.

use std::sync::Arc;

use crate::Result;
use crate::data::Sweep;
use crate::data::column_cache::{add_squares, lengths, unit_columns};
use crate::data::design_views::SubsetDesign;
use crate::data::low_rank::bounds::{BoundSample, STRIP, ScreeningBounds, is_worth_it};
use crate::data::observations::Observations;
use crate::data::row_blocks::over_blocks;
use crate::linalg::aligned_columns::stride;
use crate::linalg::gemm::TallMatrix;
use crate::linalg::vector::weighted_square;
use crate::parallel::map_pieces;

/// The methods of [`Statistics`](crate::Statistics) that go over all K functions are not called beside these. The norm of a function is
/// computed when it is first asked for.
impl Observations<'_> {
    /// [`Statistics::sweep`](crate::Statistics::sweep) of these functions only; `active` and `wanted` need not be among them.
    pub(crate) fn sweep_of(
        &mut self,
        functions: &[usize],
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Sweep> {
        let deviance = self.move_to(active, mu)?;
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, wanted);
        let design = SubsetDesign {
            design: &*self.design,
            columns: functions,
        };
        // Squares under W where W varies, then products with W times the wanted columns, then with the residuals.
        let varies = !self.facts.is_linear;
        let n_right = wanted.len() + 1;
        let n_products = n_right + usize::from(varies);
        let check = || self.facts.check_cancelled();
        let mut sums = over_blocks(&design, n_products, check, |block, squares, products| {
            let (rows, width) = (&block.rows, squares.len());
            add_squares(block, self.weights.as_deref(), squares);
            let (under_w, products) = products.split_at_mut((n_products - n_right) * width);
            for (c, square) in under_w.iter_mut().enumerate() {
                let column = block.values.column(c, rows.len());
                *square += weighted_square(column, &self.working[rows.clone()]);
            }
            let right = self.right(&columns, rows);
            let right = TallMatrix::new(&right, stride(rows.len()), n_right);
            block.add_products(right, products, width);
        })?;
        let mut norms = lengths(&sums.diag)?;
        if varies {
            sums.diag = sums.products.remove(0);
        }
        for (&j, norm) in functions.iter().zip(&mut norms) {
            let known = &mut self.facts.norms[j];
            if known.is_nan() {
                *known = *norm;
            }
            *norm = *known;
        }
        let fixed = !varies && !self.inexact_norms;
        Ok(unit_columns(sums, &norms, fixed, vec![deviance]))
    }

    /// The length of each of these columns.
    pub(crate) fn lengths_of(&mut self, functions: &[usize]) -> Result<Vec<f64>> {
        if functions.iter().any(|&j| self.facts.norms[j].is_nan()) {
            self.sweep_of(functions, &[], &[], &[])?;
        }
        Ok(functions.iter().map(|&j| self.facts.norms[j]).collect())
    }

    /// Bounds on the sums of some of the functions, where bounds for `n_candidates` candidates cost less than the sums; none where there
    /// are no such bounds.
    pub(crate) fn screening_bounds(
        &mut self,
        active: &[usize],
        mu: &[f64],
        n_candidates: usize,
    ) -> Result<Vec<ScreeningBounds>> {
        let design = Arc::clone(&self.design);
        let families = design.families();
        if families.is_empty() {
            return Ok(Vec::new());
        }
        self.move_to(active, mu)?;
        let mut bounds = Vec::new();
        for (index, family) in families.iter().enumerate() {
            let n = family.points.n_points();
            if let Some(newton) = self.newton_basis(index, family)
                && is_worth_it(newton.len(), n, active.len(), n_candidates)
            {
                bounds.push(self.family_bounds(index, family, newton, active)?);
            }
        }
        Ok(bounds)
    }

    /// The bounds for these functions, all of which must belong to `bounds`.
    pub(crate) fn bound_samples(
        &self,
        bounds: &ScreeningBounds,
        functions: &[usize],
    ) -> Result<Vec<BoundSample>> {
        let families = self.design.families();
        let family = &families[bounds.family];
        let parts = map_pieces(functions.len(), STRIP, |range| {
            self.facts.check_cancelled()?;
            Ok(bounds.samples(family, &functions[range]))
        });
        let parts: Result<Vec<_>> = parts.into_iter().collect();
        Ok(parts?.concat())
    }
}
