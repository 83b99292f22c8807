//! Rows in parts that answer for themselves, added up: what providers on several machines do.

use sparsebayes::internal::{CandidateProducts, RowPart, RowProvider};
use sparsebayes::{Likelihood, Result, Sweep};

pub(crate) struct SharedGroups<'a> {
    pub(crate) parts: Vec<RowPart<'a>>,
    pub(crate) n_basis: usize,
    pub(crate) likelihood: Likelihood,
}

fn add(sum: &mut [f64], values: &[f64]) {
    for (s, v) in sum.iter_mut().zip(values) {
        *s += v;
    }
}

impl RowProvider for SharedGroups<'_> {
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    fn likelihood(&self) -> Likelihood {
        self.likelihood
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]> {
        let mut sum = [0.0; 3];
        for part in &mut self.parts {
            add(&mut sum, &part.target_moments(centre)?);
        }
        Ok(sum)
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        let mut sum = 0.0;
        for part in &mut self.parts {
            sum += part.deviance(active, mu)?;
        }
        Ok(sum)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)> {
        let mut sum = (0.0, vec![0.0; active.len()]);
        for part in &mut self.parts {
            let (deviance, gradient) = part.gradient(active, mu)?;
            sum.0 += deviance;
            add(&mut sum.1, &gradient);
        }
        Ok(sum)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts> {
        let mut sum = CandidateProducts {
            deviance: 0.0,
            gradient: vec![0.0; js.len()],
            gram: vec![0.0; js.len() * js.len()],
        };
        for part in &mut self.parts {
            let own = part.among(active, mu, js)?;
            sum.deviance += own.deviance;
            add(&mut sum.gradient, &own.gradient);
            add(&mut sum.gram, &own.gram);
        }
        Ok(sum)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let zeros = vec![0.0; self.n_basis];
        let mut sum = Sweep {
            diag: zeros.clone(),
            gradient: zeros.clone(),
            gram: vec![zeros; wanted.len()],
            deviance: 0.0,
        };
        for part in &mut self.parts {
            let own = part.sweep(active, mu, wanted)?;
            sum.deviance += own.deviance;
            add(&mut sum.diag, &own.diag);
            add(&mut sum.gradient, &own.gradient);
            for (column, own) in sum.gram.iter_mut().zip(&own.gram) {
                add(column, own);
            }
        }
        Ok(sum)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        let mut sum = vec![0.0; sigma.len()];
        for part in &mut self.parts {
            add(&mut sum, &part.variance_drift(active, mu, sigma)?);
        }
        Ok(sum)
    }
}
