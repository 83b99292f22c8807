//! [`Statistics`] from a [`RowProvider`], whose sums have the units of the rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::column_cache::{lengths, over_norm, unit_columns};
use crate::data::provider::{CandidateProducts, RowProvider};
use crate::data::row_blocks::Sums;
use crate::data::targets::deviation_or_size;
use crate::data::{Facts, Statistics, Sweep};
use crate::linalg::LowerTriangle;
use crate::{Error, Result};

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
        let start = self.to_units(start);
        self.remember(start.deviances[0]);
        self.start = Some(start);
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
    fn unit_products(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        let sums = self.rows.among(&self.active, &self.mu, js)?;
        check_among(&sums, js.len())?;
        self.convert_deviance(sums.deviance);
        let gradient = self.unit_gradient(js, &sums.gradient);
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| {
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

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        self.move_to(active, mu)?;
        let (products, slopes) = self.unit_products(active)?;
        let m = active.len();
        gram.view_mut((0, 0), (m, m)).copy_from(&products);
        gradient.copy_from_slice(&slopes);
        self.deviance(active, mu)
    }

    fn bound(&mut self, _active: &[usize], _mu: &[f64], _sigma: &DMatrix<f64>) -> Result<()> {
        if self.facts.is_linear {
            return self.facts.check_cancelled();
        }
        let what = "scheme must not be 'variational' for a provider whose likelihood is not Gaussian: providers \
                    have no quadratic bounds";
        Err(Error::Invalid { what: what.into() })
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.move_to(active, mu)?;
        let (deviance, slopes) = self.rows.gradient(&self.active, &self.mu)?;
        check_sums("gradient of the provider", active.len(), &slopes)?;
        check_deviance(deviance)?;
        gradient.copy_from_slice(&self.unit_gradient(active, &slopes));
        Ok(vec![self.convert_deviance(deviance)])
    }

    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        self.move_to(active, mu)?;
        let m = active.len();
        if self.facts.is_linear {
            return Ok(DMatrix::zeros(m, m));
        }
        let norms: Vec<f64> = active.iter().map(|&j| self.facts.norms[j]).collect();
        let covariance = DMatrix::from_fn(m, m, |a, b| sigma[(a, b)] / norms[a] / norms[b]);
        let drift = self
            .rows
            .variance_drift(&self.active, &self.mu, covariance.as_slice())?;
        check_sums("variance_drift of the provider", m * m, &drift)?;
        // T_nj in the units of the rows is T_nj of the fit divided by the length of column j.
        Ok(DMatrix::from_fn(m, m, |j, k| {
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

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        self.move_to(active, mu)?;
        let (gram, gradient) = self.unit_products(js)?;
        Ok((LowerTriangle::of(&gram), gradient))
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
    if values.iter().all(|v| v.is_finite()) {
        Ok(())
    } else {
        Err(not_finite(what))
    }
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
