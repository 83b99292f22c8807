//! The first look at rows: the lengths of columns, and what the empty model leaves to each.

use std::sync::Arc;

use crate::Result;
use crate::data::Statistics;
use crate::data::column_cache::{lengths, squared_length, unit_columns};
use crate::data::dense_design::DenseDesign;
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::low_rank::policy::LowRankPolicy;
use crate::data::low_rank::statistics::LowRankStatistics;
use crate::data::observations::Observations;
use crate::data::row_blocks::over_blocks;
use crate::linalg::vector::column_dot;

/// Lazy designs of at most so many values are stored: a fit makes about four passes over them.
const STORED: usize = 3 << 19;

impl Observations<'_> {
    /// One pass, where no features spare it.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let deviance = self.move_to(&[], &[])?;
        if self.measure_by_factor(deviance)? || self.measure_nearly()? {
            return Ok(());
        }
        let n_values = self.design.n_rows().saturating_mul(self.design.n_basis());
        // Designs with families are lazy.
        if n_values <= STORED && !self.design.families().is_empty() {
            let stored = DenseDesign::evaluated(&*self.design, || self.check_cancel())?;
            self.design = Arc::new(stored);
        }
        let sums = over_blocks(
            &*self.design,
            1,
            || self.check_cancel(),
            |block, squares, products| {
                let rows = block.rows.clone();
                for (c, square) in squares.iter_mut().enumerate() {
                    let column = block.values.column(c, rows.len());
                    let weights = self.weights.as_ref().map(|w| &w[rows.clone()]);
                    *square += squared_length(column, weights);
                    products[c] += column_dot(column, &self.residual[rows.clone()]);
                }
            },
        )?;
        self.norms = lengths(&sums.diag)?;
        let mut start = unit_columns(sums, &self.norms, true, deviance);
        let weight = self.first_weight();
        start.diag.iter_mut().for_each(|d| *d *= weight);
        self.start = Some(start);
        Ok(())
    }

    /// At mu = 0 the working weights are the sample weights times this.
    fn first_weight(&self) -> f64 {
        self.likelihood.working(0.0, self.target[0]).weight
    }

    /// [`Observations::measure`] through the factor of the design; whether it has one.
    ///
    /// For a Gaussian likelihood its rest could matter: the noise may be a millionth of the targets.
    fn measure_by_factor(&mut self, deviance: f64) -> Result<bool> {
        if self.is_linear() {
            return Ok(false);
        }
        let factor = LowRankPolicy::exact(&*self.design)
            .and_then(|grade| LowRankFeatures::of(&*self.design, self.weights.as_deref(), grade));
        let Some(factor) = factor else {
            return Ok(false);
        };
        let sums = self.factor_sums(&factor, &[])?;
        let weight = self.first_weight();
        let squares: Vec<f64> = sums.diag.iter().map(|d| d / weight).collect();
        self.norms = lengths(&squares)?;
        let close = factor.is_close(&self.norms);
        if close {
            self.start = Some(unit_columns(sums, &self.norms, false, deviance));
            self.leading = factor.leading().map(Arc::new);
            self.factor = Some(Arc::new(factor));
        }
        Ok(close)
    }

    /// [`Observations::measure`] through features that say almost what the rows do; whether they say enough.
    ///
    /// Any number near the length of a column will do for its unit: passes to come take the squares of columns along.
    fn measure_nearly(&mut self) -> Result<bool> {
        let factor = (LowRankPolicy::coarse(&*self.design).filter(|_| self.is_linear()))
            .and_then(|grade| LowRankFeatures::of(&*self.design, self.weights.as_deref(), grade));
        self.check_cancel()?;
        let Some(factor) = factor else {
            return Ok(false);
        };
        let (weights, cancel) = (self.weights.as_deref(), self.cancel.clone());
        let part =
            LowRankStatistics::new(factor, &self.target, weights, self.target_scale, cancel)?;
        self.uneven = part.has_lengths_of_rows();
        if self.uneven {
            self.norms = part.norms().to_vec();
        }
        self.nearly = Some(part);
        Ok(self.uneven)
    }
}
