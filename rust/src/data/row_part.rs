//! [`RowProvider`] of rows in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::design::Design;
use crate::data::observations::Observations;
use crate::data::provider::{CandidateProducts, RowProvider};
use crate::data::{Statistics, Sweep};
use crate::{Error, Likelihood, Result};

/// [`RowProvider`] of rows in memory: all rows, or one part of them.
///
/// The columns of the active functions are kept from one call to the next.
pub struct RowPart<'a> {
    rows: Observations<'a>,
}

impl<'a> RowPart<'a> {
    /// Joins a design with its targets and optional sample weights, all positive; there may be no rows.
    ///
    /// # Errors
    /// As [`Observations::new`].
    pub fn new(
        design: Box<dyn Design + Send + 'a>,
        likelihood: Likelihood,
        target: Vec<f64>,
        weights: Option<Vec<f64>>,
    ) -> Result<Self> {
        let rows = Observations::unscaled(design, likelihood, target, weights)?;
        Ok(Self { rows })
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    pub fn cancelled_by(&mut self, flag: Arc<AtomicBool>) {
        self.rows.facts.cancel = Some(flag);
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.rows.target.len()
    }

    fn check(&self, functions: &[&[usize]], active: &[usize], mu: &[f64]) -> Result<()> {
        let all = functions.iter().copied().flatten().chain(active);
        let n_basis = self.n_basis();
        if let Some(j) = all.copied().find(|&j| j >= n_basis) {
            let last = n_basis.saturating_sub(1);
            let what = format!("functions are numbered from 0 to {last}, got {j}");
            return Err(Error::Invalid { what });
        }
        Error::check_len("mu", active.len(), mu.len())
    }
}

impl RowProvider for RowPart<'_> {
    fn n_basis(&self) -> usize {
        self.rows.facts.n_basis()
    }

    fn likelihood(&self) -> Likelihood {
        self.rows.likelihood
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]> {
        let (targets, weights) = (&self.rows.target, &self.rows.weights);
        let mut moments = [0.0; 3];
        for (row, t) in targets.iter().enumerate() {
            let (w, t) = (weights.as_ref().map_or(1.0, |w| w[row]), t - centre);
            moments[0] += w;
            moments[1] += w * t;
            moments[2] += w * t * t;
        }
        Ok(moments)
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.check(&[], active, mu)?;
        self.rows.deviance(active, mu)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)> {
        self.check(&[], active, mu)?;
        let mut gradient = vec![0.0; active.len()];
        let deviance = self.rows.gradient(active, mu, &mut gradient)?;
        Ok((deviance[0], gradient))
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts> {
        self.check(&[js], active, mu)?;
        let m = js.len();
        let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
        // The columns of active functions are kept.
        let deviance = if js == active {
            self.rows.local(active, mu, &mut gram, &mut gradient)?
        } else {
            let among = self.rows.among(active, mu, js)?;
            (gram, gradient) = (among.0.whole(), among.1);
            self.rows.deviance(active, mu)?
        };
        Ok(CandidateProducts {
            deviance,
            gradient,
            gram: gram.as_slice().to_vec(),
        })
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.check(&[wanted], active, mu)?;
        self.rows.sweep(active, mu, wanted)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        self.check(&[], active, mu)?;
        let m = active.len();
        Error::check_len("sigma", m * m, sigma.len())?;
        let sigma = DMatrix::from_column_slice(m, m, sigma);
        let drift = self.rows.variance_drift(active, mu, &sigma)?;
        Ok(drift.as_slice().to_vec())
    }
}
