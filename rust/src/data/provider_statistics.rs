//! Sums over rows in their own units, turned into those of unit-norm columns.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::data::column_cache::lengths;
use crate::data::provider::{CandidateProducts, RowProvider};
use crate::data::{Statistics, Sweep, check_flag};
use crate::{Error, Result};

/// [`Statistics`] of rows that answer in their own units.
///
/// With n the lengths of the columns and c the unit of the targets, a weight mu' of the loop is `mu = c mu' / n` there, a
/// gradient is divided by n c, a Gram matrix by n on both sides, and a deviance by c^2.
///
/// Between calls `active` and `mu` are those last asked about, in the units of the rows.
pub struct ProviderStatistics<R> {
    rows: R,
    n_obs: f64,
    norms: Vec<f64>,
    target_scale: f64,
    active: Vec<usize>,
    mu: Vec<f64>,
    /// Where deviances were answered lately, and these, in the units of the loop: searches come back to where they began.
    known: VecDeque<(Vec<usize>, Vec<f64>, f64)>,
    /// The pass at mu = 0, made for the lengths of the columns.
    start: Option<Sweep>,
    cancel: Option<Arc<AtomicBool>>,
}

impl<R: RowProvider> ProviderStatistics<R> {
    /// Asks for the moments of the targets, and for a pass over the dictionary.
    ///
    /// # Errors
    /// Whatever the rows meet; [`Error::Invalid`] where no row counts; all that is wrong with an answer.
    pub fn new(mut rows: R) -> Result<Self> {
        let moments = finite_moments(&mut rows, 0.0)?;
        let n_obs = moments[0];
        if n_obs <= 0.0 {
            let what = "the provider holds no row of positive weight; give it some";
            return Err(Error::Invalid { what: what.into() });
        }
        let target_scale = if rows.likelihood().is_linear() {
            spread(&mut rows, moments)?
        } else {
            1.0
        };
        let mut this = Self {
            n_obs,
            norms: vec![1.0; rows.n_basis()],
            target_scale,
            active: Vec::new(),
            mu: Vec::new(),
            known: VecDeque::new(),
            start: None,
            cancel: None,
            rows,
        };
        this.measure()?;
        Ok(this)
    }

    /// Ends every later question with [`Error::Interrupted`] once `flag` is raised.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// The lengths of the columns, from what they are under the working weights at mu = 0: those of the samples times a
    /// constant.
    fn measure(&mut self) -> Result<()> {
        let mut start = self.rows.sweep(&[], &[], &[])?;
        check_sweep(&start, self.norms.len(), 0)?;
        let weight = self.rows.likelihood().working(0.0, 0.0).weight;
        let squares: Vec<f64> = start.diag.iter().map(|d| d / weight).collect();
        self.norms = lengths(&squares)?;
        self.to_units(&mut start);
        self.remember(start.deviance);
        self.start = Some(start);
        Ok(())
    }

    /// Brings `active` and `mu` to the question, in the units of the rows.
    fn ask(&mut self, active: &[usize], mu: &[f64]) -> Result<()> {
        check_flag(self.cancel.as_deref())?;
        let weight = |(&j, &mu): (&usize, &f64)| mu * self.target_scale / self.norms[j];
        self.mu = active.iter().zip(mu).map(weight).collect();
        self.active = active.to_vec();
        Ok(())
    }

    /// A deviance that was answered, in the units of the loop.
    fn note(&mut self, deviance: f64) -> f64 {
        let deviance = deviance / (self.target_scale * self.target_scale);
        self.remember(deviance);
        deviance
    }

    fn remember(&mut self, deviance: f64) {
        const MOST: usize = 4;
        self.known
            .push_front((self.active.clone(), self.mu.clone(), deviance));
        self.known.truncate(MOST);
    }

    /// What was answered for column `j`, divided by its length; zero where it has none.
    fn over_norm(&self, j: usize, value: f64) -> f64 {
        let norm = self.norms[j];
        if norm > 0.0 { value / norm } else { 0.0 }
    }

    /// The same for a gradient.
    fn unit_gradient(&self, js: &[usize], gradient: &[f64]) -> Vec<f64> {
        let pairs = js.iter().zip(gradient);
        pairs
            .map(|(&j, g)| self.over_norm(j, g / self.target_scale))
            .collect()
    }

    fn to_units(&self, sweep: &mut Sweep) {
        let linear = self.is_linear();
        for j in 0..self.norms.len() {
            let present = if self.norms[j] > 0.0 { 1.0 } else { 0.0 };
            sweep.diag[j] = if linear {
                present
            } else {
                self.over_norm(j, self.over_norm(j, sweep.diag[j]))
            };
            sweep.gradient[j] = self.over_norm(j, sweep.gradient[j] / self.target_scale);
            for column in &mut sweep.gram {
                column[j] = self.over_norm(j, column[j]);
            }
        }
        sweep.deviance /= self.target_scale * self.target_scale;
    }

    /// Products among `js` where they were last asked about, in the units of the loop.
    fn products(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        let answer = self.rows.among(&self.active, &self.mu, js)?;
        check_among(&answer, js.len())?;
        self.note(answer.deviance);
        let gradient = self.unit_gradient(js, &answer.gradient);
        let gram = DMatrix::from_fn(js.len(), js.len(), |a, b| {
            // One triangle stands for both: sums may differ in their last bits.
            let value = answer.gram[a.min(b) * js.len() + a.max(b)];
            self.over_norm(js[a], self.over_norm(js[b], value))
        });
        Ok((gram, gradient))
    }
}

impl<R: RowProvider> Statistics for ProviderStatistics<R> {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.norms.len()
    }

    fn is_linear(&self) -> bool {
        self.rows.likelihood().is_linear()
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.ask(active, mu)?;
        let here =
            |known: &&(Vec<usize>, Vec<f64>, f64)| known.0 == self.active && known.1 == self.mu;
        if let Some((_, _, deviance)) = self.known.iter().find(here) {
            return Ok(*deviance);
        }
        let deviance = self.rows.deviance(&self.active, &self.mu)?;
        // Infinity is for predictors that overflow, on a line search that goes too far.
        if deviance.is_nan() {
            return Err(not_finite("the deviance of the provider"));
        }
        Ok(self.note(deviance))
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        self.ask(active, mu)?;
        let (products, slopes) = self.products(active)?;
        let m = active.len();
        gram.view_mut((0, 0), (m, m)).copy_from(&products);
        gradient.copy_from_slice(&slopes);
        self.deviance(active, mu)
    }

    fn bound(&mut self, _active: &[usize], _mu: &[f64], _sigma: &DMatrix<f64>) -> Result<()> {
        if self.is_linear() {
            // A Gaussian is its own bound.
            return check_flag(self.cancel.as_deref());
        }
        let what = "scheme must not be 'variational' for a provider whose likelihood is not Gaussian: no question \
                    asks for its quadratic bounds";
        Err(Error::Invalid { what: what.into() })
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.ask(active, mu)?;
        let (deviance, slopes) = self.rows.gradient(&self.active, &self.mu)?;
        check("gradient of the provider", active.len(), &slopes)?;
        check_deviance(deviance)?;
        gradient.copy_from_slice(&self.unit_gradient(active, &slopes));
        Ok(self.note(deviance))
    }

    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        check_flag(self.cancel.as_deref())?;
        let m = active.len();
        if self.is_linear() {
            return Ok(DMatrix::zeros(m, m));
        }
        let norms: Vec<f64> = active.iter().map(|&j| self.norms[j]).collect();
        let covariance = DMatrix::from_fn(m, m, |a, b| sigma[(a, b)] / norms[a] / norms[b]);
        let drift = self
            .rows
            .variance_drift(&self.active, &self.mu, covariance.as_slice())?;
        check("variance_drift of the provider", m * m, &drift)?;
        // T_nj there is T_nj here divided by the length of column j.
        Ok(DMatrix::from_fn(m, m, |j, k| {
            drift[k * m + j] * norms[j] * norms[j] * norms[k]
        }))
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.ask(active, mu)?;
        if active.is_empty()
            && wanted.is_empty()
            && let Some(start) = self.start.take()
        {
            return Ok(start);
        }
        let mut sweep = self.rows.sweep(&self.active, &self.mu, wanted)?;
        check_sweep(&sweep, self.norms.len(), wanted.len())?;
        self.to_units(&mut sweep);
        for (column, &j) in sweep.gram.iter_mut().zip(wanted) {
            for value in column {
                *value = self.over_norm(j, *value);
            }
        }
        self.remember(sweep.deviance);
        Ok(sweep)
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        check_flag(self.cancel.as_deref())?;
        self.products(js)
    }
}

/// The unit of the targets, as `rows::spread` finds it in rows: their standard deviation; for constant targets their size;
/// for zeros 1. Squares are taken about the mean, for about zero their sum would lose the digits of a small spread.
fn spread(rows: &mut impl RowProvider, about_zero: [f64; 3]) -> Result<f64> {
    /// Spreads below this fraction of the size are rounding errors of a constant.
    const CONSTANT: f64 = 1e-13;
    let [weight, sum, square] = about_zero;
    let size = (square / weight).sqrt();
    if size <= 0.0 {
        return Ok(1.0);
    }
    let [_, rest, square] = finite_moments(rows, sum / weight)?;
    let variance = square / weight - (rest / weight) * (rest / weight);
    let deviation = variance.max(0.0).sqrt();
    Ok(if deviation > CONSTANT * size {
        deviation
    } else {
        size
    })
}

fn finite_moments(rows: &mut impl RowProvider, centre: f64) -> Result<[f64; 3]> {
    let moments = rows.target_moments(centre)?;
    check("target_moments of the provider", 3, &moments)?;
    Ok(moments)
}

pub(crate) fn check(what: &'static str, expected: usize, values: &[f64]) -> Result<()> {
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
    check("the deviance of the provider", 1, &[deviance])
}

pub(crate) fn check_sweep(sweep: &Sweep, n_basis: usize, n_wanted: usize) -> Result<()> {
    check_deviance(sweep.deviance)?;
    check("diag of the provider's sweep", n_basis, &sweep.diag)?;
    if sweep.diag.iter().any(|&d| d < 0.0) {
        let what = "diag of the provider's sweep must not be negative: it holds sums of squares";
        return Err(Error::Invalid { what: what.into() });
    }
    check("gradient of the provider's sweep", n_basis, &sweep.gradient)?;
    let gram = "gram of the provider's sweep";
    Error::check_len(gram, n_wanted, sweep.gram.len())?;
    sweep
        .gram
        .iter()
        .try_for_each(|column| check(gram, n_basis, column))
}

pub(crate) fn check_among(answer: &CandidateProducts, m: usize) -> Result<()> {
    /// A product that differs this much from its mirror image, relative to the lengths, is no rounding error.
    const ALIKE: f64 = 1e-6;
    check_deviance(answer.deviance)?;
    check("gradient of the provider's among", m, &answer.gradient)?;
    check("gram of the provider's among", m * m, &answer.gram)?;
    let gram = |a: usize, b: usize| answer.gram[b * m + a];
    for a in 0..m {
        for b in 0..a {
            let lengths = (gram(a, a).abs() * gram(b, b).abs()).sqrt();
            if (gram(a, b) - gram(b, a)).abs() > ALIKE * lengths {
                let what = "gram of the provider's among must be symmetric: phi_i^T W phi_j";
                return Err(Error::Invalid { what: what.into() });
            }
        }
    }
    Ok(())
}
