//! Fitted models from the model of a fit: sorted by index, in the units of the given columns and targets.

use nalgebra::DMatrix;

use crate::data::Facts;
use crate::fit::model::Model;
use crate::model::{OutputPosterior, Posterior, Status};

impl Posterior {
    /// Sorts by index and undoes the scaling: the weight of a column with norm c is 1/c times that of the unit column.
    pub(crate) fn publish(model: &Model, trace: Vec<f64>, status: Status, facts: &Facts) -> Self {
        let target_scale = facts.target_scale;
        let order = order(model);
        let unit = |k: usize| target_scale / facts.norms[model.active[k]];
        Self {
            active: order.iter().map(|&k| model.active[k]).collect(),
            alpha: order
                .iter()
                .map(|&k| model.alpha[k] / (unit(k) * unit(k)))
                .collect(),
            mu: order.iter().map(|&k| model.mu()[k] * unit(k)).collect(),
            sigma: covariance(model.sigma(), &order, unit),
            gamma: order.iter().map(|&k| model.gamma(k, 0)).collect(),
            beta: model.beta() / (target_scale * target_scale),
            // The density of t / c is c^N times that of t.
            log_evidence: model.log_evidence() - model.n_noise() * target_scale.ln(),
            trace,
            status,
        }
    }
}

impl OutputPosterior {
    /// Sorts by index and undoes the scaling, given the norms of the columns and the unit of the targets.
    pub(crate) fn publish(model: &Model, trace: Vec<f64>, status: Status, facts: &Facts) -> Self {
        let target_scale = facts.target_scale;
        let order = order(model);
        let unit = |k: usize| target_scale / facts.norms[model.active[k]];
        let mu = |k: usize, c: usize| model.outputs[c].mu[order[k]] * unit(order[k]);
        let alpha = |&k: &usize| model.alpha[k] / (unit(k) * unit(k));
        let betas = model.levels.iter().map(|level| level.noise.beta);
        Self {
            active: order.iter().map(|&k| model.active[k]).collect(),
            alpha: order.iter().map(alpha).collect(),
            mu: DMatrix::from_fn(order.len(), model.outputs.len(), mu),
            sigma: model
                .levels
                .iter()
                .map(|level| covariance(&level.sigma, &order, unit))
                .collect(),
            beta: betas.map(|b| b / (target_scale * target_scale)).collect(),
            at_floor: model.levels.iter().map(|l| l.noise.at_floor()).collect(),
            trace,
            status,
        }
    }
}

/// The positions of the active functions in the order of their indices.
fn order(model: &Model) -> Vec<usize> {
    let mut order: Vec<usize> = (0..model.active.len()).collect();
    order.sort_unstable_by_key(|&k| model.active[k]);
    order
}

/// A covariance in this order and these units.
fn covariance(sigma: &DMatrix<f64>, order: &[usize], unit: impl Fn(usize) -> f64) -> DMatrix<f64> {
    DMatrix::from_fn(order.len(), order.len(), |i, j| {
        let (i, j) = (order[i], order[j]);
        // After rank-one updates the two triangles differ in the last bits.
        0.5 * (sigma[(i, j)] + sigma[(j, i)]) * (unit(i) * unit(j))
    })
}
