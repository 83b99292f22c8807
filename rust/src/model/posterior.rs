//! The fitted model in the caller's units.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Facts;
use crate::fit::{Model, Status};
use crate::model::finite_checks::{check_evidence, check_precisions, check_weights};

/// Active basis functions, hyperparameters and the posterior of the weights, in the units of the given columns and targets.
///
/// Entries are in the order of `active`, which is ascending.
#[derive(Debug, Clone)]
pub struct Posterior {
    /// Indices of the active basis functions.
    pub active: Vec<usize>,
    /// Prior precision of each weight.
    pub alpha: Vec<f64>,
    /// Posterior mean: equation (6).
    pub mu: Vec<f64>,
    /// Posterior covariance: equation (6).
    pub sigma: DMatrix<f64>,
    /// 1 - `alpha_j` `sigma_jj`: how well the data determine each weight.
    pub gamma: Vec<f64>,
    /// Noise precision; 1 for likelihoods without one.
    pub beta: f64,
    /// Final log evidence.
    pub log_evidence: f64,
    /// The objective at the start and after each step: the log evidence, with the log densities of the
    /// hyperparameters where they have priors.
    pub trace: Vec<f64>,
    /// How the fit ended.
    pub status: Status,
}

impl Posterior {
    /// Sorts by index and undoes the scaling: the weight of a column with norm c is 1/c times that of the unit column.
    pub(crate) fn publish(model: &Model, trace: Vec<f64>, status: Status, facts: &Facts) -> Self {
        let target_scale = facts.target_scale;
        let mut order: Vec<usize> = (0..model.active.len()).collect();
        order.sort_unstable_by_key(|&k| model.active[k]);
        let unit = |k: usize| target_scale / facts.norms[model.active[k]];
        Self {
            active: order.iter().map(|&k| model.active[k]).collect(),
            alpha: order
                .iter()
                .map(|&k| model.alpha[k] / (unit(k) * unit(k)))
                .collect(),
            mu: order.iter().map(|&k| model.mu()[k] * unit(k)).collect(),
            sigma: DMatrix::from_fn(order.len(), order.len(), |i, j| {
                let (i, j) = (order[i], order[j]);
                // After rank-one updates the two triangles differ in the last bits.
                0.5 * (model.sigma()[(i, j)] + model.sigma()[(j, i)]) * (unit(i) * unit(j))
            }),
            gamma: order.iter().map(|&k| model.gamma(k, 0)).collect(),
            beta: model.beta() / (target_scale * target_scale),
            // The density of t / c is c^N times that of t.
            log_evidence: model.log_evidence() - model.n_noise() * target_scale.ln(),
            trace,
            status,
        }
    }

    /// Checks that all numbers are finite in the caller's units.
    pub(crate) fn checked(self) -> Result<Self> {
        check_evidence(&self.trace, &[self.log_evidence])?;
        check_precisions(&self.alpha, &[self.beta])?;
        check_weights(&self.mu, self.sigma.as_slice())?;
        Ok(self)
    }

    /// Number of steps.
    #[must_use]
    pub fn n_iter(&self) -> usize {
        self.trace.len().saturating_sub(1)
    }
}
