//! Statistics of a few functions, held whole: what a search may consult without touching the data.

use nalgebra::DMatrix;

use super::dictionary::Dictionary;
use super::state::State;
use crate::linalg::blas::dot;
use crate::stats::{Statistics, Sweep};
use crate::{Likelihood, Result};

/// Gram matrix, projections and target square of a subset of the dictionary; functions go by their place in it.
pub(super) struct Pool {
    pub(super) gram: DMatrix<f64>,
    /// phi_i^T W t.
    pub(super) projections: Vec<f64>,
    /// t^T W t.
    pub(super) target_sq: f64,
    pub(super) n_obs: f64,
    /// Ones: every member is a unit-norm column.
    pub(super) norms: Vec<f64>,
}

impl Pool {
    /// The statistics of `members`, from a dictionary refreshed at the state's mean.
    pub(super) fn about(
        state: &State,
        dictionary: &Dictionary,
        members: &[usize],
        gram: DMatrix<f64>,
    ) -> Self {
        let place = |j: usize| members.partition_point(|&m| m < j);
        let mut pool = Self {
            gram,
            projections: members.iter().map(|&i| dictionary.gradient(i)).collect(),
            target_sq: state.deviance_at_mean(),
            n_obs: state.n_noise(),
            norms: vec![1.0; members.len()],
        };
        // The residual holds what the model leaves; adding the model back gives the targets.
        for (&j, &mu) in state.active.iter().zip(&state.mu) {
            let column = pool.gram.column(place(j));
            let residual_product = dictionary.gradient(j);
            pool.projections
                .iter_mut()
                .zip(column.iter())
                .for_each(|(b, g)| *b += mu * g);
            pool.target_sq += mu * residual_product;
        }
        for (&j, &mu) in state.active.iter().zip(&state.mu) {
            pool.target_sq += mu * pool.projections[place(j)];
        }
        pool
    }

    fn product(&self, i: usize, active: &[usize], mu: &[f64]) -> f64 {
        active
            .iter()
            .zip(mu)
            .map(|(&j, m)| m * self.gram[(i, j)])
            .sum()
    }
}

impl Statistics for Pool {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.projections.len()
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::Gaussian
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        1.0
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        let mut gradient = vec![0.0; active.len()];
        self.gradient(active, mu, &mut gradient)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        for (a, &i) in active.iter().enumerate() {
            for (b, &j) in active.iter().enumerate() {
                gram[(a, b)] = self.gram[(i, j)];
            }
        }
        self.gradient(active, mu, gradient)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        for (g, &i) in gradient.iter_mut().zip(active) {
            *g = self.projections[i] - self.product(i, active, mu);
        }
        // ||t - Phi mu||^2 = t^T t - b^T mu - gradient^T mu
        let b: Vec<f64> = active.iter().map(|&i| self.projections[i]).collect();
        Ok(self.target_sq - dot(&b, mu) - dot(gradient, mu))
    }

    fn variance_drift(&mut self, active: &[usize], _sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        // Gaussian weights do not move.
        Ok(DMatrix::zeros(active.len(), active.len()))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let gradient = (0..self.n_basis())
            .map(|i| self.projections[i] - self.product(i, active, mu))
            .collect();
        Ok(Sweep {
            diag: self.norms.clone(),
            gradient,
            gram: wanted
                .iter()
                .map(|&j| self.gram.column(j).iter().copied().collect())
                .collect(),
            deviance: self.deviance(active, mu)?,
        })
    }

    fn gram_among(&mut self, js: &[usize]) -> Result<DMatrix<f64>> {
        Ok(DMatrix::from_fn(js.len(), js.len(), |a, b| {
            self.gram[(js[a], js[b])]
        }))
    }
}
