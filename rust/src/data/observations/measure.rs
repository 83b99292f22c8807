//! The first pass over rows in memory: norms of the columns, and the sweep at mu = 0.

use std::sync::Arc;

use crate::Result;
use crate::data::Statistics;
use crate::data::column_cache::{add_squares, lengths, unit_columns};
use crate::data::dense_design::DenseDesign;
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::low_rank::policy::LowRankPolicy;
use crate::data::low_rank::statistics::LowRankStatistics;
use crate::data::observations::{Observations, WeightedFeatures};
use crate::data::row_blocks::over_blocks;
use crate::linalg::vector::column_dot;

/// Lazy designs of at most so many values are stored: a fit makes about four passes over them.
const MAX_STORED: usize = 3 << 19;

impl Observations<'_> {
    /// Computes the norms by a pass over the rows, or from low-rank features where these suffice.
    pub(super) fn measure(&mut self) -> Result<()> {
        let deviance = self.move_to(&[], &[])?;
        if self.measure_by_factor(deviance)? || self.measure_approximately()? {
            return Ok(());
        }
        let n_values = self.design.n_rows().saturating_mul(self.design.n_basis());
        // A design with families is lazy.
        if n_values <= MAX_STORED && !self.design.families().is_empty() {
            let stored = DenseDesign::evaluated(&*self.design, || self.facts.check_cancelled())?;
            self.design = Arc::new(stored);
        }
        let check = || self.facts.check_cancelled();
        let sums = over_blocks(&*self.design, 1, check, |block, squares, products| {
            add_squares(block, self.weights.as_deref(), squares);
            let residual = &self.residual[block.rows.clone()];
            for (c, product) in products.iter_mut().enumerate() {
                *product += column_dot(block.values.column(c, residual.len()), residual);
            }
        })?;
        self.facts.norms = lengths(&sums.diag)?;
        let mut start = unit_columns(sums, &self.facts.norms, true, vec![deviance]);
        let weight = self.first_weight();
        start.diag.iter_mut().for_each(|d| *d *= weight);
        self.start = Some(start);
        Ok(())
    }

    /// The ratio of working weights to sample weights at mu = 0.
    fn first_weight(&self) -> f64 {
        self.likelihood.working(0.0, self.target[0]).weight
    }

    /// Computes the norms from features that represent the design to rounding; returns whether there are such features.
    ///
    /// Not for a Gaussian likelihood, where the noise may be a millionth of the targets and what the features leave out matters.
    fn measure_by_factor(&mut self, deviance: f64) -> Result<bool> {
        if self.facts.is_linear {
            return Ok(false);
        }
        let features = LowRankPolicy::exact(&*self.design)
            .and_then(|policy| LowRankFeatures::of(&*self.design, self.weights.as_deref(), policy));
        let Some(features) = features else {
            return Ok(false);
        };
        self.facts.check_cancelled()?;
        let mut factor = WeightedFeatures::new(features);
        let sums = factor.sums(&self.working, &self.residual, (&[], &[]));
        self.facts.check_cancelled()?;
        let weight = self.first_weight();
        let squares: Vec<f64> = sums.diag.iter().map(|d| d / weight).collect();
        self.facts.norms = lengths(&squares)?;
        let exact = factor.features.is_exact(&self.facts.norms);
        if exact {
            self.start = Some(unit_columns(sums, &self.facts.norms, false, vec![deviance]));
            self.factor = Some(factor);
        }
        Ok(exact)
    }

    /// Computes approximate norms from a few features; returns whether these are close enough.
    ///
    /// Any number near the length of a column serves as its unit, because later passes compute the squared lengths as well.
    fn measure_approximately(&mut self) -> Result<bool> {
        let weights = self.weights.as_deref();
        let features = (LowRankPolicy::coarse(&*self.design).filter(|_| self.facts.is_linear))
            .and_then(|policy| LowRankFeatures::of(&*self.design, weights, policy));
        self.facts.check_cancelled()?;
        let Some(features) = features else {
            return Ok(false);
        };
        let (scale, cancel) = (self.facts.target_scale, self.facts.cancel.clone());
        let low_rank = LowRankStatistics::new(features, &self.target, weights, scale, cancel)?;
        self.inexact_norms = low_rank.norms_are_close();
        if self.inexact_norms {
            self.facts.norms.clone_from(&low_rank.facts().norms);
        }
        self.low_rank = Some(low_rank);
        Ok(self.inexact_norms)
    }
}
