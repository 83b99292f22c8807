//! Some rows out of more, in memory, that answer in their own units.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::design::Design;
use crate::data::observations::Observations;
use crate::data::provider::{CandidateProducts, RowProvider};
use crate::data::{Statistics, Sweep};
use crate::{Error, Likelihood, Result};

/// [`RowProvider`] of rows that this process can see: some out of more, or all of them.
///
/// Columns of the active functions are kept from one question to the next.
pub struct RowPart<'a> {
    /// `None`: no rows.
    rows: Option<Observations<'a>>,
    n_basis: usize,
    likelihood: Likelihood,
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
        let n_basis = design.n_basis();
        Error::check_len("y", design.n_rows(), target.len())?;
        let rows = if target.is_empty() {
            None
        } else {
            Some(Observations::as_given(design, likelihood, target, weights)?)
        };
        Ok(Self {
            rows,
            n_basis,
            likelihood,
        })
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    pub fn cancelled_by(&mut self, flag: Arc<AtomicBool>) {
        self.rows = self.rows.take().map(|rows| rows.cancelled_by(flag));
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> usize {
        self.rows.as_ref().map_or(0, |rows| rows.targets().0.len())
    }

    fn check(&self, functions: &[&[usize]], active: &[usize], mu: &[f64]) -> Result<()> {
        let all = functions.iter().copied().flatten().chain(active);
        if let Some(j) = all.copied().find(|&j| j >= self.n_basis) {
            let n = self.n_basis;
            let what = format!(
                "functions are counted from 0 to {}, got {j}",
                n.saturating_sub(1)
            );
            return Err(Error::Invalid { what });
        }
        Error::check_len("mu", active.len(), mu.len())
    }
}

impl RowProvider for RowPart<'_> {
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    fn likelihood(&self) -> Likelihood {
        self.likelihood
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]> {
        let mut sums = [0.0; 3];
        let Some(rows) = &self.rows else {
            return Ok(sums);
        };
        let (targets, weights) = rows.targets();
        for (row, t) in targets.iter().enumerate() {
            let (w, t) = (weights.map_or(1.0, |w| w[row]), t - centre);
            sums[0] += w;
            sums[1] += w * t;
            sums[2] += w * t * t;
        }
        Ok(sums)
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.check(&[], active, mu)?;
        match &mut self.rows {
            Some(rows) => rows.deviance(active, mu),
            None => Ok(0.0),
        }
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)> {
        self.check(&[], active, mu)?;
        let mut gradient = vec![0.0; active.len()];
        let deviance = match &mut self.rows {
            Some(rows) => rows.gradient(active, mu, &mut gradient)?,
            None => 0.0,
        };
        Ok((deviance, gradient))
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts> {
        self.check(&[js], active, mu)?;
        let m = js.len();
        let mut answer = CandidateProducts {
            deviance: 0.0,
            gradient: vec![0.0; m],
            gram: vec![0.0; m * m],
        };
        let Some(rows) = &mut self.rows else {
            return Ok(answer);
        };
        if js == active {
            // Columns of these are at hand.
            let mut gram = DMatrix::zeros(m, m);
            answer.deviance = rows.local(active, mu, &mut gram, &mut answer.gradient)?;
            answer.gram = gram.as_slice().to_vec();
        } else {
            answer.deviance = rows.deviance(active, mu)?;
            let (gram, gradient) = rows.among(js)?;
            answer.gram = gram.as_slice().to_vec();
            answer.gradient = gradient;
        }
        Ok(answer)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.check(&[wanted], active, mu)?;
        match &mut self.rows {
            Some(rows) => rows.sweep(active, mu, wanted),
            None => Ok(Sweep {
                diag: vec![0.0; self.n_basis],
                gradient: vec![0.0; self.n_basis],
                gram: vec![vec![0.0; self.n_basis]; wanted.len()],
                deviance: 0.0,
            }),
        }
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        self.check(&[], active, mu)?;
        let m = active.len();
        Error::check_len("sigma", m * m, sigma.len())?;
        match &mut self.rows {
            Some(rows) => {
                rows.deviance(active, mu)?;
                let sigma = DMatrix::from_column_slice(m, m, sigma);
                Ok(rows.variance_drift(active, &sigma)?.as_slice().to_vec())
            }
            None => Ok(vec![0.0; m * m]),
        }
    }
}
