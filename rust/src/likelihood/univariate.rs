//! Likelihoods of a target with one linear predictor eta.
//!
//! Each turns a row into a *working weight* and a *working residual*, the terms of generalised linear models: minus the
//! second derivative and the first derivative of its log-likelihood in eta. The evidence loop sees only sums weighted by
//! these.

use crate::likelihood::link::Link;
use crate::linalg::simd::{Simd, WithSimd, dispatch, exp, is_fused, ln_1p};
use crate::{Error, Result};

/// The distribution of a target given its linear predictor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Likelihood {
    /// t ~ Normal(eta, 1/beta). Weights do not depend on eta; the fit holds beta.
    Gaussian,
    /// t in [0, 1] with P(t = 1) = 1 / (1 + exp(-eta)): Tipping & Faul (2003), equation 9.
    Bernoulli,
    /// t ~ Poisson(exp(eta)): counts with a log link.
    Poisson,
    /// Counts with mean m = exp(eta) and variance `m + d m^2`, d > 0 the dispersion: Poisson counts whose rate has a Gamma distribution.
    NegativeBinomial(f64),
    /// Positive numbers with mean m = exp(eta) and variance `d m^2`, d > 0 the dispersion: a Gamma distribution of shape 1/d.
    Gamma(f64),
}

/// What one row contributes at its linear predictor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Working {
    /// Minus the second derivative of the log-likelihood: the diagonal of B in equation (11).
    pub weight: f64,
    /// Derivative of the weight in eta.
    pub skew: f64,
    /// The first derivative of the log-likelihood; B(t_hat - eta) in the terms of equation (14).
    pub residual: f64,
    /// Minus twice the log-likelihood; for the Gaussian the squared residual, without beta or constants.
    pub deviance: f64,
}

impl Likelihood {
    /// The names of all likelihoods.
    pub const NAMES: [&'static str; 5] = [
        "gaussian",
        "bernoulli",
        "poisson",
        "negative_binomial",
        "gamma",
    ];

    /// The likelihood of this name; `dispersion` is for those that have one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown name, and for a dispersion that is not positive and finite.
    pub fn named(name: &str, dispersion: f64) -> Result<Self> {
        let found = match name {
            "gaussian" => Self::Gaussian,
            "bernoulli" => Self::Bernoulli,
            "poisson" => Self::Poisson,
            "negative_binomial" => Self::NegativeBinomial(dispersion),
            "gamma" => Self::Gamma(dispersion),
            _ => {
                let known = Self::NAMES.map(|known| format!("'{known}'")).join(", ");
                let what = format!("likelihood must be one of {known}, got {name:?}");
                return Err(Error::Invalid { what });
            }
        };
        let has_dispersion = matches!(found, Self::NegativeBinomial(_) | Self::Gamma(_));
        if has_dispersion && !(dispersion > 0.0 && dispersion.is_finite()) {
            let what = format!("dispersion must be positive and finite, got {dispersion}");
            return Err(Error::Invalid { what });
        }
        Ok(found)
    }

    /// The link from eta to the mean of the target.
    #[must_use]
    pub fn link(self) -> Link {
        match self {
            Self::Gaussian => Link::Identity,
            Self::Bernoulli => Link::Logistic,
            Self::Poisson | Self::NegativeBinomial(_) => Link::Log,
            Self::Gamma(_) => Link::LogContinuous,
        }
    }

    /// Whether the working weight at a given eta is the same for every target.
    #[must_use]
    pub(crate) fn has_expected_weights(self) -> bool {
        !matches!(self, Self::NegativeBinomial(_) | Self::Gamma(_))
    }

    /// Whether the working weights do not depend on eta, so that Gram columns can be reused.
    #[must_use]
    pub fn is_linear(self) -> bool {
        matches!(self, Self::Gaussian)
    }

    /// Checks that every target lies in the support.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming `y` and the remedy.
    pub fn check_targets(self, targets: &[f64]) -> Result<()> {
        let what = match self {
            Self::Bernoulli if targets.iter().any(|t| !(0.0..=1.0).contains(t)) => {
                "y must lie in [0, 1] for a Bernoulli likelihood"
            }
            Self::Poisson | Self::NegativeBinomial(_) if targets.iter().any(|&t| t < 0.0) => {
                "y must not be negative for a Poisson or negative binomial likelihood"
            }
            Self::Gamma(_) if targets.iter().any(|&t| t <= 0.0) => {
                "y must be positive for a Gamma likelihood"
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid { what: what.into() })
    }

    /// Working weight, residual and deviance of one row.
    #[must_use]
    pub fn working(self, eta: f64, target: f64) -> Working {
        match self {
            Self::Gaussian => gaussian(eta, target),
            Self::Bernoulli => bernoulli::<false>(eta, target),
            Self::Poisson => poisson::<false>(eta, target),
            Self::NegativeBinomial(d) => negative_binomial::<false>(eta, target, d),
            Self::Gamma(d) => gamma::<false>(eta, target, d),
        }
    }

    /// [`Likelihood::working`] for many rows, vectorised. Values may differ from those of single rows in the last bits but
    /// do not depend on the position of a row.
    pub(crate) fn working_rows(self, eta: &[f64], targets: &[f64]) -> WorkingRows {
        let mut rows = WorkingRows::zeros(eta.len());
        dispatch(Rows {
            likelihood: self,
            eta,
            targets,
            out: &mut rows,
        });
        rows
    }

    /// Whether the log-likelihood has a quadratic lower bound: see [`Likelihood::bounded`].
    #[must_use]
    pub fn has_bound(self) -> bool {
        matches!(self, Self::Gaussian | Self::Bernoulli)
    }

    /// Working weight, residual and deviance of the quadratic lower bound that equals the log-likelihood at eta = +-xi:
    /// Jaakkola & Jordan (2000).
    ///
    /// `-ln(2 cosh(eta / 2)) >= -ln(2 cosh(xi / 2)) - lambda (eta^2 - xi^2)`, lambda = tanh(xi / 2) / (4 xi), which is the
    /// tangent of a function convex in eta^2. A Gaussian is its own bound. `None` for a likelihood without such a bound.
    #[must_use]
    pub fn bounded(self, xi: f64, eta: f64, target: f64) -> Option<Working> {
        match self {
            Self::Gaussian => Some(self.working(eta, target)),
            Self::Bernoulli => {
                let weight = jaakkola_weight(xi);
                let at_xi = -0.5 * xi.abs() - (-xi.abs()).exp().ln_1p();
                let centred = target - 0.5;
                let log_bound = centred * eta + at_xi - 0.5 * weight * (eta - xi) * (eta + xi);
                Some(Working {
                    weight,
                    skew: 0.0,
                    residual: centred - weight * eta,
                    deviance: -2.0 * log_bound,
                })
            }
            Self::Poisson | Self::NegativeBinomial(_) | Self::Gamma(_) => None,
        }
    }

    /// The part of -2 ln p(t) that does not depend on eta, such as 2 ln t! for Poisson counts.
    #[must_use]
    pub fn constant_deviance(self, target: f64) -> f64 {
        match self {
            Self::Gaussian | Self::Bernoulli => 0.0,
            Self::Poisson => 2.0 * libm::lgamma(target + 1.0),
            Self::NegativeBinomial(d) => {
                let of_counts = libm::lgamma(target + 1.0 / d) - libm::lgamma(1.0 / d);
                -2.0 * (of_counts - libm::lgamma(target + 1.0) + target * d.ln())
            }
            Self::Gamma(d) => {
                let shape = 1.0 / d;
                let of_shape = shape * shape.ln() - libm::lgamma(shape);
                -2.0 * (of_shape + (shape - 1.0) * target.ln())
            }
        }
    }
}

#[inline(always)]
fn gaussian(eta: f64, target: f64) -> Working {
    let residual = target - eta;
    Working {
        weight: 1.0,
        skew: 0.0,
        residual,
        deviance: residual * residual,
    }
}

#[inline(always)]
fn bernoulli<const FUSED: bool>(eta: f64, target: f64) -> Working {
    // exp(-|eta|) never overflows; both tails keep full relative precision.
    let e = exp::<FUSED>(-eta.abs());
    let minor = e / (1.0 + e);
    // t - mean, with mean = 1 - minor or minor: no cancellation for probabilities near 0 or 1.
    let residual = if eta >= 0.0 {
        minor - (1.0 - target)
    } else {
        target - minor
    };
    let log_likelihood = target * eta - eta.max(0.0) - ln_1p::<FUSED>(e);
    let weight = minor * (1.0 - minor);
    let skew = if eta >= 0.0 { -weight } else { weight } * (1.0 - 2.0 * minor);
    Working {
        weight,
        skew,
        residual,
        deviance: -2.0 * log_likelihood,
    }
}

#[inline(always)]
fn poisson<const FUSED: bool>(eta: f64, target: f64) -> Working {
    let mean = exp::<FUSED>(eta);
    Working {
        weight: mean,
        skew: mean,
        residual: target - mean,
        deviance: -2.0 * (target * eta - mean),
    }
}

/// With p = d m / (1 + d m), ln p(t) = t eta + (t + 1/d) ln(1 - p) and a constant; p and 1 - p keep their relative precision.
#[inline(always)]
fn negative_binomial<const FUSED: bool>(eta: f64, target: f64, dispersion: f64) -> Working {
    let (shape, logit) = (1.0 / dispersion, eta + dispersion.ln());
    let e = exp::<FUSED>(-logit.abs());
    let (minor, major) = (e / (1.0 + e), 1.0 / (1.0 + e));
    let (p, rest) = if logit >= 0.0 {
        (major, minor)
    } else {
        (minor, major)
    };
    let weight = (target + shape) * p * rest;
    let log_likelihood = target * eta - (target + shape) * (logit.max(0.0) + ln_1p::<FUSED>(e));
    Working {
        weight,
        skew: weight * (rest - p),
        residual: target * rest - shape * p,
        deviance: -2.0 * log_likelihood,
    }
}

/// ln p(t) = -(eta + t exp(-eta)) / d and a constant.
#[inline(always)]
fn gamma<const FUSED: bool>(eta: f64, target: f64, dispersion: f64) -> Working {
    let (shape, ratio) = (1.0 / dispersion, target * exp::<FUSED>(-eta));
    Working {
        weight: shape * ratio,
        skew: -shape * ratio,
        residual: shape * (ratio - 1.0),
        deviance: 2.0 * shape * (eta + ratio),
    }
}

/// [`Working`] for many rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkingRows {
    pub(crate) weight: Vec<f64>,
    pub(crate) skew: Vec<f64>,
    pub(crate) residual: Vec<f64>,
    pub(crate) deviance: Vec<f64>,
}

impl WorkingRows {
    fn zeros(n: usize) -> Self {
        let zeros = || vec![0.0; n];
        Self {
            weight: zeros(),
            skew: zeros(),
            residual: zeros(),
            deviance: zeros(),
        }
    }

    pub(crate) fn set(&mut self, row: usize, at: Working) {
        self.weight[row] = at.weight;
        self.skew[row] = at.skew;
        self.residual[row] = at.residual;
        self.deviance[row] = at.deviance;
    }

    /// Multiplies each row by its weight.
    pub(crate) fn weigh(&mut self, weights: &[f64]) {
        for values in [
            &mut self.weight,
            &mut self.skew,
            &mut self.residual,
            &mut self.deviance,
        ] {
            values.iter_mut().zip(weights).for_each(|(v, w)| *v *= w);
        }
    }

    #[inline(always)]
    fn fill(&mut self, eta: &[f64], targets: &[f64], of: impl Fn(f64, f64) -> Working) {
        let rows = eta.iter().zip(targets);
        let linear = self.weight.iter_mut().zip(&mut self.skew);
        let others = self.residual.iter_mut().zip(&mut self.deviance);
        for ((row, (weight, skew)), (residual, deviance)) in rows.zip(linear).zip(others) {
            let at = of(*row.0, *row.1);
            *weight = at.weight;
            *skew = at.skew;
            *residual = at.residual;
            *deviance = at.deviance;
        }
    }
}

struct Rows<'a> {
    likelihood: Likelihood,
    eta: &'a [f64],
    targets: &'a [f64],
    out: &'a mut WorkingRows,
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (eta, targets, out) = (self.eta, self.targets, self.out);
        match (self.likelihood, is_fused(simd)) {
            (Likelihood::Gaussian, _) => out.fill(eta, targets, gaussian),
            (Likelihood::Bernoulli, true) => out.fill(eta, targets, bernoulli::<true>),
            (Likelihood::Bernoulli, false) => out.fill(eta, targets, bernoulli::<false>),
            (Likelihood::Poisson, true) => out.fill(eta, targets, poisson::<true>),
            (Likelihood::Poisson, false) => out.fill(eta, targets, poisson::<false>),
            (Likelihood::NegativeBinomial(d), true) => {
                out.fill(eta, targets, |eta, t| negative_binomial::<true>(eta, t, d));
            }
            (Likelihood::NegativeBinomial(d), false) => {
                out.fill(eta, targets, |eta, t| negative_binomial::<false>(eta, t, d));
            }
            (Likelihood::Gamma(d), true) => {
                out.fill(eta, targets, |eta, t| gamma::<true>(eta, t, d));
            }
            (Likelihood::Gamma(d), false) => {
                out.fill(eta, targets, |eta, t| gamma::<false>(eta, t, d));
            }
        }
    }
}

/// 2 lambda(xi) = tanh(xi / 2) / (2 xi) = 1/4 - xi^2 / 48 + ...
fn jaakkola_weight(xi: f64) -> f64 {
    /// Below this the next term of the series, xi^4 / 480, is below rounding.
    const SMALL: f64 = 1e-3;
    let xi = xi.abs();
    if xi < SMALL {
        0.25 - xi * xi / 48.0
    } else {
        (0.5 * xi).tanh() / (2.0 * xi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_terms_are_derivatives_of_the_log_likelihood() {
        let h = 1e-5;
        for (likelihood, target) in [
            (Likelihood::Gaussian, 0.3),
            (Likelihood::Bernoulli, 1.0),
            (Likelihood::Bernoulli, 0.0),
            (Likelihood::Poisson, 4.0),
            (Likelihood::NegativeBinomial(0.3), 4.0),
            (Likelihood::NegativeBinomial(1e-6), 4.0),
            (Likelihood::NegativeBinomial(7.0), 0.0),
            (Likelihood::Gamma(0.5), 2.5),
        ] {
            for eta in [-3.0, -0.5, 0.0, 0.7, 2.5] {
                let at = |e: f64| likelihood.working(e, target);
                let (up, here, down) = (at(eta + h), at(eta), at(eta - h));
                for (difference, slope) in [
                    (up.deviance - down.deviance, -2.0 * here.residual),
                    (up.residual - down.residual, -here.weight),
                    (up.weight - down.weight, here.skew),
                ] {
                    let error = (difference / (2.0 * h) - slope).abs();
                    assert!(error < 1e-8 * (1.0 + slope.abs()), "{likelihood:?} {eta}");
                }
            }
        }
    }

    #[test]
    fn many_rows_agree_with_single_rows() {
        let eta: Vec<f64> = (-60..60).map(|i| 0.37 * f64::from(i)).collect();
        for likelihood in [
            Likelihood::Gaussian,
            Likelihood::Bernoulli,
            Likelihood::Poisson,
            Likelihood::NegativeBinomial(0.4),
            Likelihood::Gamma(0.4),
        ] {
            let targets: Vec<f64> = (0..eta.len()).map(|i| (i % 2) as f64).collect();
            let rows = likelihood.working_rows(&eta, &targets);
            let part = likelihood.working_rows(&eta[5..], &targets[5..]);
            for (i, (&eta, &target)) in eta.iter().zip(&targets).enumerate() {
                let one = likelihood.working(eta, target);
                let found = [
                    (rows.weight[i], one.weight),
                    (rows.skew[i], one.skew),
                    (rows.residual[i], one.residual),
                    (rows.deviance[i], one.deviance),
                ];
                for (many, one) in found {
                    assert!(
                        (many - one).abs() <= 1e-14 * one.abs().max(1e-3),
                        "{many} {one}"
                    );
                }
                if i >= 5 {
                    assert_eq!(part.deviance[i - 5].to_bits(), rows.deviance[i].to_bits());
                }
            }
        }
    }

    #[test]
    fn extreme_predictors_stay_finite() {
        for eta in [-800.0, -40.0, 40.0, 800.0] {
            for target in [0.0, 1.0] {
                let w = Likelihood::Bernoulli.working(eta, target);
                assert!(w.weight >= 0.0 && w.residual.is_finite() && w.deviance.is_finite());
            }
        }
    }

    #[test]
    fn the_bound_is_tight_at_xi_and_lower_elsewhere() {
        let likelihood = Likelihood::Bernoulli;
        for xi in [0.0, 1e-9, 0.9e-3, 1.1e-3, 0.5, 3.0, 40.0, 800.0] {
            for target in [0.0, 0.3, 1.0] {
                for eta in [-900.0, -5.0, -0.4, 0.0, 0.7, 6.0, 900.0, xi, -xi] {
                    let below = likelihood.bounded(xi, eta, target).unwrap();
                    let exact = likelihood.working(eta, target);
                    let slack = 1e-11 * (1.0 + exact.deviance.abs());
                    assert!(below.deviance >= exact.deviance - slack, "{xi} {eta}");
                    if (eta.abs() - xi).abs() < f64::MIN_POSITIVE {
                        assert!((below.deviance - exact.deviance).abs() <= slack, "{xi}");
                        assert!((below.residual - exact.residual).abs() <= 1e-12);
                    }
                }
            }
        }
    }
}
