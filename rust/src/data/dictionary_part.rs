//! Questions about some functions of a dictionary too large to be asked about whole.

use crate::data::column_cache::{lengths, squared_length, unit_columns};
use crate::data::low_rank::bounds::{BoundSample, ScreeningBounds};
use crate::data::observations::Observations;
use crate::data::row_blocks::over_blocks;
use crate::data::subset::SubsetDesign;
use crate::data::{Statistics, Sweep};
use crate::linalg::aligned_columns::stride;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::weighted_square;
use crate::{Error, Result};

/// A provider that can answer for some of its functions at a time, each measured when it is first asked about.
///
/// Of the methods of [`Statistics`] those that go over all K functions are not called.
pub trait DictionaryPart: Statistics {
    /// [`Statistics::sweep`] of these functions alone; `active` and `wanted` need not be among them.
    ///
    /// # Errors
    /// As [`Statistics::sweep`].
    fn sweep_of(
        &mut self,
        functions: &[usize],
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Sweep>;

    /// The length of each of these columns.
    ///
    /// # Errors
    /// As [`Statistics::sweep`].
    fn lengths_of(&mut self, functions: &[usize]) -> Result<Vec<f64>>;

    /// What shows bounds on the sums of some of the functions for less work than the sums take, where `n_candidates` are to
    /// be looked at; none where there is no such thing.
    ///
    /// # Errors
    /// As [`Statistics::sweep`].
    fn screens(
        &mut self,
        active: &[usize],
        mu: &[f64],
        n_candidates: usize,
    ) -> Result<Vec<ScreeningBounds>> {
        let _ = (active, mu, n_candidates);
        Ok(Vec::new())
    }

    /// What a screen shows of these functions, all of them among its own.
    ///
    /// # Errors
    /// As [`Statistics::sweep`].
    fn glances(&self, screen: &ScreeningBounds, functions: &[usize]) -> Result<Vec<BoundSample>> {
        let _ = (screen, functions);
        Ok(Vec::new())
    }
}

impl DictionaryPart for Observations<'_> {
    fn sweep_of(
        &mut self,
        functions: &[usize],
        active: &[usize],
        mu: &[f64],
        wanted: &[usize],
    ) -> Result<Sweep> {
        let deviance = self.move_to(active, mu)?;
        let columns = self.packed.columns(&*self.design, &self.norms, wanted);
        let design = SubsetDesign {
            design: &*self.design,
            columns: functions,
        };
        let moves = !self.is_linear();
        // The products with W and the columns wanted, then those with the residuals; before them, where W moves, the squares
        // under it.
        let n_right = wanted.len() + 1;
        let n_products = n_right + usize::from(moves);
        let mut sums = over_blocks(
            &design,
            n_products,
            || self.check_cancel(),
            |block, squares, products| {
                let (rows, n_columns) = (&block.rows, squares.len());
                let weights = self.weights.as_ref().map(|w| &w[rows.clone()]);
                let working = &self.working[rows.clone()];
                let (moving, products) = products.split_at_mut((n_products - n_right) * n_columns);
                for (c, square) in squares.iter_mut().enumerate() {
                    let column = block.values.column(c, rows.len());
                    *square += squared_length(column, weights);
                    if let Some(moving) = moving.get_mut(c) {
                        *moving += weighted_square(column, working);
                    }
                }
                let values = TallMatrix::new(block.values.data, block.values.stride, n_columns);
                let right = self.right(&columns, rows);
                let right = TallMatrix::new(&right, stride(rows.len()), n_right);
                add_transpose_product(values, right, rows.len(), products, n_columns);
            },
        )?;
        let mut norms = lengths(&sums.diag)?;
        if moves {
            sums.diag = sums.products.remove(0);
        }
        for (&j, norm) in functions.iter().zip(&mut norms) {
            let unit = &mut self.norms[j];
            if unit.is_nan() {
                *unit = *norm;
            }
            *norm = *unit;
        }
        Ok(unit_columns(sums, &norms, !moves && !self.uneven, deviance))
    }

    fn lengths_of(&mut self, functions: &[usize]) -> Result<Vec<f64>> {
        let known = |&j: &usize| !self.norms[j].is_nan();
        if !functions.iter().all(known) {
            self.sweep_of(functions, &[], &[], &[])?;
        }
        Ok(functions.iter().map(|&j| self.norms[j]).collect())
    }

    fn screens(
        &mut self,
        active: &[usize],
        mu: &[f64],
        n_candidates: usize,
    ) -> Result<Vec<ScreeningBounds>> {
        self.screens_at(active, mu, n_candidates)
    }

    fn glances(&self, screen: &ScreeningBounds, functions: &[usize]) -> Result<Vec<BoundSample>> {
        Observations::glances(self, screen, functions)
    }
}

impl<'a> Observations<'a> {
    /// As [`Observations::new`], with the columns left unmeasured: for [`DictionaryPart`] alone.
    ///
    /// # Errors
    /// As [`Observations::new`], but for what the columns hold.
    pub fn in_part(
        design: &'a dyn crate::data::Design,
        likelihood: crate::Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let mut this = Self::unmeasured(design, likelihood, target, weights)?;
        this.norms
            .try_reserve_exact(design.n_basis())
            .map_err(|_| Error::no_memory_for("a number for each function", design.n_basis()))?;
        this.norms.resize(design.n_basis(), f64::NAN);
        Ok(this)
    }
}
