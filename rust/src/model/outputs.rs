//! The fitted model of several outputs, in the caller's units.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Facts;
use crate::fit::{Model, Status};
use crate::model::finite_checks::{check_evidence, check_precisions, check_weights};

/// Shared basis functions and alphas, noise levels, and the posterior of each output's weights.
///
/// Entries are in the order of `active`, which is ascending.
#[derive(Debug, Clone)]
pub struct OutputPosterior {
    /// Indices of the active basis functions.
    pub active: Vec<usize>,
    /// Prior precision of the weights of each function.
    pub alpha: Vec<f64>,
    /// Posterior means, m x C.
    pub mu: DMatrix<f64>,
    /// Posterior covariance for each noise level.
    pub sigma: Vec<DMatrix<f64>>,
    /// Noise precision of each output, or one for all.
    pub beta: Vec<f64>,
    /// For each noise level, whether it was estimated and ended at the noise floor.
    pub at_floor: Vec<bool>,
    /// Joint log evidence of all outputs at the start and after each step.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

impl OutputPosterior {
    /// Sorts by index and undoes the scaling, given the norms of the columns and the unit of the targets.
    pub(crate) fn publish(model: &Model, trace: Vec<f64>, status: Status, facts: &Facts) -> Self {
        let target_scale = facts.target_scale;
        let mut order: Vec<usize> = (0..model.active.len()).collect();
        order.sort_unstable_by_key(|&k| model.active[k]);
        let m = order.len();
        let unit = |k: usize| target_scale / facts.norms[model.active[k]];
        let sigma = |sigma: &DMatrix<f64>| {
            DMatrix::from_fn(m, m, |i, j| {
                let (i, j) = (order[i], order[j]);
                // After rank-one updates the two triangles differ in the last bits.
                0.5 * (sigma[(i, j)] + sigma[(j, i)]) * (unit(i) * unit(j))
            })
        };
        let mu = |k: usize, c: usize| model.outputs[c].mu[order[k]] * unit(order[k]);
        let alpha = |&k: &usize| model.alpha[k] / (unit(k) * unit(k));
        let betas = model.levels.iter().map(|level| level.noise.beta);
        Self {
            active: order.iter().map(|&k| model.active[k]).collect(),
            alpha: order.iter().map(alpha).collect(),
            mu: DMatrix::from_fn(m, model.outputs.len(), mu),
            sigma: model
                .levels
                .iter()
                .map(|level| sigma(&level.sigma))
                .collect(),
            beta: betas.map(|b| b / (target_scale * target_scale)).collect(),
            at_floor: model.levels.iter().map(|l| l.noise.at_floor()).collect(),
            trace,
            status,
        }
    }

    /// Checks that all numbers are finite in the caller's units.
    pub(crate) fn checked(self) -> Result<Self> {
        check_evidence(&self.trace, &[])?;
        check_precisions(&self.alpha, &self.beta)?;
        for sigma in &self.sigma {
            check_weights(self.mu.as_slice(), sigma.as_slice())?;
        }
        Ok(self)
    }

    /// Final joint log evidence of all outputs.
    #[must_use]
    pub fn log_evidence(&self) -> f64 {
        self.trace.last().copied().unwrap_or(f64::NAN)
    }

    /// Number of steps.
    #[must_use]
    pub fn n_iter(&self) -> usize {
        self.trace.len().saturating_sub(1)
    }
}
