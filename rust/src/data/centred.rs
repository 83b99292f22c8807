//! Centred columns of a [`RowProvider`].

use std::ops::Range;

use crate::data::Sweep;
use crate::data::provider::{CandidateProducts, RowProvider};
use crate::data::provider_statistics::{check_among, check_sums, check_sweep};
use crate::{Error, Likelihood, Result};

/// [`RowProvider`] of columns minus their weighted means, computed from the sums over the columns themselves.
///
/// With the constant function in column 0 and m the means, the centred columns are `phi_j - m_j phi_0`. A model with weights mu on
/// the centred columns equals one with weights mu on the columns and `mu_0 - sum_j m_j mu_j` on the constant. With W the working weights
///
/// ```text
/// (phi_i - m_i phi_0)^T e                          = g_i - m_i g_0
/// (phi_i - m_i phi_0)^T W (phi_j - m_j phi_0)      = G_ij - m_i G_0j - m_j G_i0 + m_i m_j G_00
/// ```
///
/// Rounding errors grow with the squared ratio of mean to standard deviation: rows far from 0 should be shifted first.
pub struct CentredProvider<R> {
    rows: R,
    /// The number subtracted from each function: 0 for functions that are not centred.
    means: Vec<f64>,
    /// The pass at mu = 0, made for the means. It is the first pass of a fit.
    start: Option<Sweep>,
}

impl<R: RowProvider> CentredProvider<R> {
    /// Makes a pass over the dictionary. Column 0 is the constant function, and is not among `centred`.
    ///
    /// # Errors
    /// An error of the provider; [`Error::Invalid`] where column 0 is not constant.
    pub fn new(mut rows: R, centred: Range<usize>) -> Result<Self> {
        let mut sweep = rows.sweep(&[], &[], &[0])?;
        check_sweep(&sweep, rows.n_basis(), 1)?;
        let sums = sweep.gram.remove(0);
        let weight = rows.likelihood().working(0.0, 0.0).weight * rows.target_moments(0.0)?[0];
        // If column 0 is the constant 1, its squared length is the sum of the working weights. This assumes that the weight at
        // eta = 0 is the same for every target.
        if (sums[0] - weight).abs() > 1e-6 * weight {
            let what = "the first function of a provider must be the constant 1 with fit_intercept=True; give it one, \
                        or set fit_intercept=False";
            return Err(Error::Invalid { what: what.into() });
        }
        let mut means = vec![0.0; rows.n_basis()];
        if sums[0] > 0.0 {
            for j in centred {
                means[j] = sums[j] / sums[0];
            }
        }
        let mut this = Self {
            rows,
            means,
            start: None,
        };
        this.centre(&mut sweep, &sums);
        this.start = Some(sweep);
        Ok(this)
    }

    /// The number subtracted from each function.
    #[must_use]
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// The active functions and their weights in terms of the original columns, the constant first.
    fn uncentred(&self, active: &[usize], mu: &[f64]) -> (Vec<usize>, Vec<f64>) {
        let (mut functions, mut weights, mut constant) = (vec![0], vec![0.0], 0.0);
        for (&j, &weight) in active.iter().zip(mu) {
            if j == 0 {
                constant += weight;
            } else {
                constant -= self.means[j] * weight;
                functions.push(j);
                weights.push(weight);
            }
        }
        weights[0] = constant;
        (functions, weights)
    }

    /// Converts the sums of a pass to sums over centred columns; `constant` holds `phi_i^T W phi_0`.
    fn centre(&self, sweep: &mut Sweep, constant: &[f64]) {
        /// A squared length below this fraction of the squared length before centring is rounding error.
        const ROUNDING: f64 = 1e-13;
        let g0 = sweep.gradient.first().copied().unwrap_or(0.0);
        let w0 = constant.first().copied().unwrap_or(0.0);
        for (j, &m) in self.means.iter().enumerate() {
            if m != 0.0 {
                let whole = sweep.diag[j];
                sweep.gradient[j] -= m * g0;
                sweep.diag[j] = (whole - m * constant[j]) - m * (constant[j] - m * w0);
                if sweep.diag[j] <= ROUNDING * whole {
                    sweep.diag[j] = 0.0;
                }
            }
        }
    }
}

impl<R: RowProvider> RowProvider for CentredProvider<R> {
    fn n_basis(&self) -> usize {
        self.rows.n_basis()
    }

    fn likelihood(&self) -> Likelihood {
        self.rows.likelihood()
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]> {
        self.rows.target_moments(centre)
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        let (active, mu) = self.uncentred(active, mu);
        self.rows.deviance(&active, &mu)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)> {
        let (columns, weights) = self.uncentred(active, mu);
        let (deviance, slopes) = self.rows.gradient(&columns, &weights)?;
        check_sums("gradient of the provider", columns.len(), &slopes)?;
        let mut others = slopes.iter().skip(1);
        let slope = |&j: &usize| {
            if j == 0 {
                slopes[0]
            } else {
                others.next().map_or(0.0, |g| g - self.means[j] * slopes[0])
            }
        };
        Ok((deviance, active.iter().map(slope).collect()))
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts> {
        let (active, mu) = self.uncentred(active, mu);
        let with_constant = [&[0], js].concat();
        let size = with_constant.len();
        let sums = self.rows.among(&active, &mu, &with_constant)?;
        check_among(&sums, size)?;
        let (gradient, gram) = (&sums.gradient, &sums.gram);
        let product = |a: usize, b: usize| gram[b * size + a];
        let mean = |a: usize| self.means[with_constant[a]];
        let centred = |a: usize, b: usize| {
            let with_constant = product(a, 0) - mean(a) * product(0, 0);
            (product(a, b) - mean(a) * product(0, b)) - mean(b) * with_constant
        };
        Ok(CandidateProducts {
            deviance: sums.deviance,
            gradient: (1..size)
                .map(|a| gradient[a] - mean(a) * gradient[0])
                .collect(),
            gram: (1..size)
                .flat_map(|b| (1..size).map(move |a| (a, b)))
                // Only one triangle is used, because rounding in the other may differ.
                .map(|(a, b)| centred(a.max(b), a.min(b)))
                .collect(),
        })
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        if active.is_empty()
            && wanted.is_empty()
            && let Some(start) = &self.start
        {
            return Ok(start.clone());
        }
        let (active, mu) = self.uncentred(active, mu);
        let with_constant = [&[0], wanted].concat();
        let mut sweep = self.rows.sweep(&active, &mu, &with_constant)?;
        check_sweep(&sweep, self.means.len(), with_constant.len())?;
        let constant = sweep.gram.remove(0);
        for (column, &j) in sweep.gram.iter_mut().zip(wanted) {
            let (m, with_constant) = (self.means[j], column[0] - self.means[j] * constant[0]);
            for (i, value) in column.iter_mut().enumerate() {
                *value = (*value - m * constant[i]) - self.means[i] * with_constant;
            }
        }
        self.centre(&mut sweep, &constant);
        Ok(sweep)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        let (columns, weights) = self.uncentred(active, mu);
        // Phi_A = Phi_C B, where Phi_C has the uncentred columns and the constant, and the row of B for the constant is -m. So
        // T = Phi_C (B Sigma). If the constant is not active, B Sigma gets a column of zeros for it.
        let (m, size) = (active.len(), columns.len());
        let mut next = 0;
        let place_of = |&j: &usize| {
            next += usize::from(j != 0);
            if j == 0 { 0 } else { next }
        };
        let place: Vec<usize> = active.iter().map(place_of).collect();
        let mut wide = vec![0.0; size * size];
        for b in 0..m {
            let column = &mut wide[place[b] * size..][..size];
            for a in 0..m {
                let value = sigma[b * m + a];
                column[0] -= self.means[active[a]] * value;
                column[place[a]] += value;
            }
        }
        let drift = self.rows.variance_drift(&columns, &weights, &wide)?;
        check_sums("variance_drift of the provider", size * size, &drift)?;
        let pairs = (0..m).flat_map(|b| (0..m).map(move |a| (a, b)));
        Ok(pairs
            .map(|(a, b)| drift[place[b] * size + place[a]])
            .collect())
    }
}
