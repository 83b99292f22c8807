//! Data that return sums over rows in the units of the rows, wherever the rows are.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::column_cache::Sums;
use crate::data::column_cache::{lengths, over_norm, unit_columns};
use crate::data::design::Design;
use crate::data::rows::Observations;
use crate::data::targets::deviation_or_size;
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::linalg::Matrix;
use crate::linalg::vector::mirrored;
use crate::{Error, Likelihood, Result};

/// Sums for a few functions: `gradient` and `gram` as in [`Sweep`], for these functions only.
#[derive(Debug, Clone)]
pub struct CandidateProducts {
    /// Minus twice the log-likelihood at `mu`; for a Gaussian the weighted residual sum of squares.
    pub deviance: f64,
    /// phi_i^T e for each i of `js`, with e the working residual.
    pub gradient: Vec<f64>,
    /// phi_i^T W phi_j for each pair of `js`, column-major.
    pub gram: Vec<f64>,
}

/// A provider of sums over rows, which may be anywhere. [`ProviderStatistics`](crate::data::ProviderStatistics) makes
/// [`Statistics`](crate::data::Statistics) of it.
///
/// Each result is a plain sum over rows: columns and targets have the units given, and no call refers to
/// an earlier one. So the results for parts of the rows add up to the result for all rows. `mu` holds the weights of
/// the functions `active`; all other weights are zero.
///
/// # Errors
/// Every method may return an error of the provider, and [`Error::Interrupted`](crate::Error::Interrupted) when interrupted.
#[allow(clippy::missing_errors_doc)] // stated above for all methods
pub trait RowProvider {
    /// K.
    fn n_basis(&self) -> usize;

    /// The likelihood of all rows.
    fn likelihood(&self) -> Likelihood;

    /// Sums of w, w (t - centre) and w (t - centre)^2 over targets t and sample weights w.
    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]>;

    /// Minus twice the log-likelihood.
    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64>;

    /// The deviance, and phi_i^T e for each active i.
    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)>;

    /// The sums for the functions `js`, which usually are the active ones.
    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts>;

    /// Products of all K functions with the residual, with themselves, and with those of `wanted`.
    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep>;

    /// The matrix `sum_n skew_n T_nj^2 T_nk` with T = `Phi_A` Sigma and skew the derivative of the working weight in eta:
    /// see [`Statistics::variance_drift`](crate::data::Statistics::variance_drift). Both matrices are column-major. Not called for a
    /// Gaussian likelihood, whose working weights are constant.
    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>>;
}

/// [`Statistics`] of the rows of a provider.
///
/// With n the lengths of the columns and c the unit of the targets, a weight mu' of the fit is `mu = c mu' / n` in the units of the rows.
/// The fit gets gradients divided by n c, Gram matrices divided by n on both sides, and deviances divided by c^2.
///
/// Invariant: `active` and `mu` belong to the latest call, in the units of the rows.
pub struct ProviderStatistics<R> {
    rows: R,
    facts: Facts,
    active: Vec<usize>,
    mu: Vec<f64>,
    /// Recent deviances in the units of the fit, and their weights: line searches return to where they began.
    recent: VecDeque<(Vec<usize>, Vec<f64>, f64)>,
    /// The pass at mu = 0, made for the lengths of the columns.
    start: Option<Sweep>,
}

impl<R: RowProvider> ProviderStatistics<R> {
    /// Computes the moments of the targets and makes a pass over the dictionary.
    ///
    /// # Errors
    /// An error of the provider; [`Error::Invalid`] if no row has positive weight; [`Error::Shape`] or [`Error::Invalid`] for sums of the
    /// wrong length or not finite.
    pub fn new(mut rows: R) -> Result<Self> {
        let moments = finite_moments(&mut rows, 0.0)?;
        let n_obs = moments[0];
        if n_obs <= 0.0 {
            let what = "the provider holds no row of positive weight; give it some";
            return Err(Error::Invalid { what: what.into() });
        }
        let target_scale = if rows.likelihood().is_linear() {
            target_scale(&mut rows, moments)?
        } else {
            1.0
        };
        let mut this = Self {
            facts: Facts {
                n_obs,
                n_predictors: 1,
                is_linear: rows.likelihood().is_linear(),
                norms: vec![1.0; rows.n_basis()],
                target_scale,
                cancel: None,
            },
            active: Vec::new(),
            mu: Vec::new(),
            recent: VecDeque::new(),
            start: None,
            rows,
        };
        this.measure()?;
        Ok(this)
    }

    /// Makes every later call return [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.facts.cancel = Some(flag);
        self
    }

    /// Computes the lengths of the columns from the pass at mu = 0, where working weights are sample weights times a constant.
    fn measure(&mut self) -> Result<()> {
        let start = self.rows.sweep(&[], &[], &[])?;
        check_sweep(&start, self.facts.norms.len(), 0)?;
        let weight = self.rows.likelihood().working(0.0, 0.0).weight;
        let squares: Vec<f64> = start.diag.iter().map(|d| d / weight).collect();
        self.facts.norms = lengths(&squares)?;
        self.start = Some(self.to_units(start));
        Ok(())
    }

    /// Converts `active` and `mu` to the units of the rows.
    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<()> {
        self.facts.check_cancelled()?;
        let weight = |(&j, &mu): (&usize, &f64)| mu * self.facts.target_scale / self.facts.norms[j];
        self.mu = active.iter().zip(mu).map(weight).collect();
        self.active = active.to_vec();
        Ok(())
    }

    /// Converts a deviance of the provider to the units of the fit, and remembers it.
    fn convert_deviance(&mut self, deviance: f64) -> f64 {
        let deviance = deviance / (self.facts.target_scale * self.facts.target_scale);
        self.remember(deviance);
        deviance
    }

    fn remember(&mut self, deviance: f64) {
        const MAX_RECENT: usize = 4;
        let here = (self.active.clone(), self.mu.clone(), deviance);
        self.recent.push_front(here);
        self.recent.truncate(MAX_RECENT);
    }

    fn unit_gradient(&self, js: &[usize], gradient: &[f64]) -> Vec<f64> {
        let unit =
            |(&j, g): (&usize, &f64)| over_norm(g / self.facts.target_scale, self.facts.norms[j]);
        js.iter().zip(gradient).map(unit).collect()
    }

    /// The Gram matrix of `js` at the present weights, and the gradient of each, in the units of the fit.
    fn unit_products(&mut self, js: &[usize]) -> Result<GramAndGradient> {
        let sums = self.rows.among(&self.active, &self.mu, js)?;
        check_among(&sums, js.len())?;
        self.convert_deviance(sums.deviance);
        let gradient = self.unit_gradient(js, &sums.gradient);
        let gram = Matrix::from_fn(js.len(), js.len(), |a, b| {
            // Only one triangle is used, because the two may differ in their last bits.
            let value = sums.gram[a.min(b) * js.len() + a.max(b)];
            over_norm(
                over_norm(value, self.facts.norms[js[b]]),
                self.facts.norms[js[a]],
            )
        });
        Ok((gram, gradient))
    }

    /// Converts the sums of a pass to the units of the fit.
    fn to_units(&self, mut sweep: Sweep) -> Sweep {
        let scale = self.facts.target_scale;
        sweep.gradient.iter_mut().for_each(|g| *g /= scale);
        sweep.gram.push(sweep.gradient);
        let sums = Sums {
            diag: sweep.diag,
            products: sweep.gram,
        };
        let deviances = sweep.deviances.iter().map(|d| d / (scale * scale));
        let (norms, fixed) = (&self.facts.norms, self.facts.is_linear);
        unit_columns(sums, norms, fixed, deviances.collect())
    }
}

impl<R: RowProvider> Statistics for ProviderStatistics<R> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)?;
        if active.is_empty()
            && let Some(start) = &self.start
        {
            return Ok(start.deviances[0]);
        }
        let mut recent = self.recent.iter();
        if let Some(known) = recent.find(|known| known.0 == self.active && known.1 == self.mu) {
            return Ok(known.2);
        }
        let deviance = self.rows.deviance(&self.active, &self.mu)?;
        // Infinity is allowed: predictors overflow where the step of a line search is too long.
        if deviance.is_nan() {
            return Err(not_finite("the deviance of the provider"));
        }
        Ok(self.convert_deviance(deviance))
    }

    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        self.move_to(active, mu)?;
        let products = self.unit_products(active)?;
        Ok((self.deviance(active, mu)?, products))
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        let (deviance, slopes) = self.rows.gradient(&self.active, &self.mu)?;
        check_sums("gradient of the provider", active.len(), &slopes)?;
        check_deviance(deviance)?;
        gradient.copy_from_slice(&self.unit_gradient(active, &slopes));
        Ok(vec![self.convert_deviance(deviance)])
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        self.move_to(active, mu)?;
        let m = active.len();
        if self.facts.is_linear {
            return Ok(Matrix::zeros(m, m));
        }
        let norms: Vec<f64> = active.iter().map(|&j| self.facts.norms[j]).collect();
        let covariance = Matrix::from_fn(m, m, |a, b| sigma[(a, b)] / norms[a] / norms[b]);
        let drift = self
            .rows
            .variance_drift(&self.active, &self.mu, covariance.as_slice())?;
        check_sums("variance_drift of the provider", m * m, &drift)?;
        // T_nj in the units of the rows is T_nj of the fit divided by the length of column j.
        Ok(Matrix::from_fn(m, m, |j, k| {
            drift[k * m + j] * norms[j] * norms[j] * norms[k]
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.move_to(active, mu)?;
        if active.is_empty()
            && wanted.is_empty()
            && let Some(start) = &self.start
        {
            return Ok(start.clone());
        }
        let sweep = self.rows.sweep(&self.active, &self.mu, wanted)?;
        check_sweep(&sweep, self.facts.norms.len(), wanted.len())?;
        let mut sweep = self.to_units(sweep);
        for (column, &j) in sweep.gram.iter_mut().zip(wanted) {
            for value in column {
                *value = over_norm(*value, self.facts.norms[j]);
            }
        }
        self.remember(sweep.deviances[0]);
        Ok(sweep)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.move_to(active, mu)?;
        self.unit_products(js)
    }
}

/// The unit of the targets: their standard deviation; for constant targets their size; for zeros 1.
///
/// Squares are taken about the mean: about zero, their sum would lose the digits of a small standard deviation.
fn target_scale(rows: &mut impl RowProvider, about_zero: [f64; 3]) -> Result<f64> {
    let [weight, sum, square] = about_zero;
    let size = (square / weight).sqrt();
    if size <= 0.0 {
        return Ok(1.0);
    }
    let [_, rest, square] = finite_moments(rows, sum / weight)?;
    let variance = square / weight - (rest / weight) * (rest / weight);
    Ok(deviation_or_size(variance, size))
}

fn finite_moments(rows: &mut impl RowProvider, centre: f64) -> Result<[f64; 3]> {
    let moments = rows.target_moments(centre)?;
    check_sums("target_moments of the provider", 3, &moments)?;
    Ok(moments)
}

pub(crate) fn check_sums(what: &'static str, expected: usize, values: &[f64]) -> Result<()> {
    Error::check_len(what, expected, values.len())?;
    let is_finite = values.iter().all(|v| v.is_finite());
    is_finite.then_some(()).ok_or_else(|| not_finite(what))
}

fn not_finite(what: &str) -> Error {
    let what = format!(
        "{what} is not finite: rows hold NaN or infinity, or a basis function is too large to square; rescale X or \
         the kernel"
    );
    Error::Invalid { what }
}

fn check_deviance(deviance: f64) -> Result<()> {
    check_sums("the deviance of the provider", 1, &[deviance])
}

pub(crate) fn check_sweep(sweep: &Sweep, n_basis: usize, n_wanted: usize) -> Result<()> {
    check_sums("the deviance of the provider", 1, &sweep.deviances)?;
    check_sums("diag of the provider's sweep", n_basis, &sweep.diag)?;
    if sweep.diag.iter().any(|&d| d < 0.0) {
        let what = "diag of the provider's sweep must not be negative: it holds sums of squares";
        return Err(Error::Invalid { what: what.into() });
    }
    check_sums("gradient of the provider's sweep", n_basis, &sweep.gradient)?;
    let gram = "gram of the provider's sweep";
    Error::check_len(gram, n_wanted, sweep.gram.len())?;
    sweep
        .gram
        .iter()
        .try_for_each(|column| check_sums(gram, n_basis, column))
}

pub(crate) fn check_among(sums: &CandidateProducts, m: usize) -> Result<()> {
    /// A larger difference between the two triangles, relative to the lengths, is no rounding error.
    const MAX_ASYMMETRY: f64 = 1e-6;
    check_deviance(sums.deviance)?;
    check_sums("gradient of the provider's among", m, &sums.gradient)?;
    check_sums("gram of the provider's among", m * m, &sums.gram)?;
    let gram = |a: usize, b: usize| sums.gram[b * m + a];
    for a in 0..m {
        for b in 0..a {
            let lengths = (gram(a, a).abs() * gram(b, b).abs()).sqrt();
            if (gram(a, b) - gram(b, a)).abs() > MAX_ASYMMETRY * lengths {
                let what = "gram of the provider's among must be symmetric: phi_i^T W phi_j";
                return Err(Error::Invalid { what: what.into() });
            }
        }
    }
    Ok(())
}

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

    fn check(&self, functions: &[usize], active: &[usize], mu: &[f64]) -> Result<()> {
        let n_basis = self.n_basis();
        let mut all = functions.iter().chain(active);
        if let Some(j) = all.find(|&&j| j >= n_basis) {
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
        self.check(js, active, mu)?;
        // The columns of active functions are kept.
        let (deviance, (gram, gradient)) = if js == active {
            self.rows.local(active, mu)?
        } else {
            let (gram, gradient) = self.rows.among(active, mu, js)?;
            (self.rows.deviance(active, mu)?, (mirrored(gram), gradient))
        };
        Ok(CandidateProducts {
            deviance,
            gradient,
            gram: gram.as_slice().to_vec(),
        })
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.check(wanted, active, mu)?;
        self.rows.sweep(active, mu, wanted)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        self.check(&[], active, mu)?;
        let m = active.len();
        Error::check_len("sigma", m * m, sigma.len())?;
        let sigma = Matrix::from_column_slice(m, m, sigma);
        let drift = self.rows.variance_drift(active, mu, &sigma)?;
        Ok(drift.as_slice().to_vec())
    }
}

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
