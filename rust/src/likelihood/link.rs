//! From linear predictors and their variances to means, standard deviations and probabilities.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::likelihood::probit::packed;

/// The link from linear predictors to targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The linear predictor is the mean: a Gaussian likelihood.
    Identity,
    /// The linear predictor is the log of the mean of a count: its variance given its mean m is `m + d m^2`.
    Log,
    /// The linear predictor is the log of the mean of a continuous target: its variance given its mean m is `d m^2`.
    LogContinuous,
    /// Log odds of the second of two classes, or of each class against the rest.
    Logistic,
    /// The logits of a softmax.
    Softmax,
    /// The scores of a multinomial probit.
    Probit,
}

impl Link {
    /// Whether the targets are classes.
    #[must_use]
    pub fn is_classification(self) -> bool {
        matches!(self, Self::Logistic | Self::Softmax | Self::Probit)
    }

    /// Mean of the target.
    pub(crate) fn mean(self, eta: f64) -> f64 {
        if self.is_log() { eta.exp() } else { eta }
    }

    /// Whether the linear predictor is the log of the mean.
    #[must_use]
    pub fn is_log(self) -> bool {
        matches!(self, Self::Log | Self::LogContinuous)
    }

    /// Standard deviation of the target, given mean m and variance v of the linear predictor and the noise: its variance, or with a log
    /// link its dispersion d.
    ///
    /// If the log mean is Gaussian the variance is `e^(m + v/2) + (e^v - 1 + d e^v) e^(2m + v)`, without the first term for continuous
    /// targets.
    pub(crate) fn std(self, eta: f64, variance: f64, noise: f64) -> f64 {
        if !self.is_log() {
            return (noise + variance).sqrt();
        }
        let log_mean = eta + 0.5 * variance;
        let factor = variance.exp_m1()
            + if noise > 0.0 {
                noise * variance.exp()
            } else {
                0.0
            };
        let counted = if self == Self::Log {
            log_mean.exp()
        } else {
            0.0
        };
        let square = counted + factor * (2.0 * eta + variance).exp();
        if square.is_finite() {
            return square.sqrt();
        }
        // The square overflows, or is 0 times infinity. The roots of its terms may be finite.
        let root = if self == Self::Log {
            (0.5 * log_mean).exp()
        } else {
            0.0
        };
        root.hypot((log_mean + 0.5 * factor.ln()).exp())
    }
}

/// MacKay's approximation: the expected sigmoid of a Gaussian variable is about the sigmoid of kappa times its mean.
fn kappa(variance: f64) -> f64 {
    1.0 / (1.0 + PI / 8.0 * variance).sqrt()
}

/// Probabilities of two classes from the log odds of the second, or of several from the log odds of each against the rest.
///
/// Given that exactly one class holds, `P(c) ~ sigmoid(z_c) prod_{d != c} (1 - sigmoid(z_d)) ~ e^(z_c)`.
pub(crate) fn logistic(eta: &[f64], variance: &[f64], out: &mut [f64]) {
    let moderated = |c: usize| eta[c] * variance.get(c).map_or(1.0, |&v| kappa(v));
    if eta.len() == 1 {
        out[0] = 0.0;
        out[1] = moderated(0);
    } else {
        for (c, out) in out.iter_mut().enumerate() {
            *out = moderated(c);
        }
    }
    normalise(out);
}

/// The softmax, moderated if there are covariances of the logits (the packed lower triangle `pairs`).
///
/// `1 / p_c = sum_d e^-(eta_c - eta_d)` is a sum over sigmoids of differences, and MacKay's approximation for each gives
/// `p_c` proportional to `1 / sum_d e^(-kappa_cd (m_c - m_d))` (Daunizeau 2017).
pub(crate) fn softmax(eta: &[f64], pairs: &[f64], out: &mut [f64]) {
    if pairs.is_empty() {
        out.copy_from_slice(eta);
        return normalise(out);
    }
    let covariance = |c: usize, d: usize| pairs[packed(c.max(d), c.min(d))];
    for c in 0..eta.len() {
        let exponent = |d: usize| {
            let variance = covariance(c, c) + covariance(d, d) - 2.0 * covariance(c, d);
            kappa(variance.max(0.0)) * (eta[d] - eta[c])
        };
        let highest = (0..eta.len()).fold(f64::NEG_INFINITY, |highest, d| highest.max(exponent(d)));
        let sum = (0..eta.len()).fold(0.0, |sum, d| sum + (exponent(d) - highest).exp());
        out[c] = -(highest + sum.ln());
    }
    normalise(out);
}

/// Turns unnormalised log probabilities into probabilities.
fn normalise(log_p: &mut [f64]) {
    let highest = log_p.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    let mut sum = 0.0;
    for p in log_p.iter_mut() {
        *p = (*p - highest).exp();
        sum += *p;
    }
    for p in log_p.iter_mut() {
        *p /= sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_std_of_counts_is_finite_where_its_square_overflows() {
        // (log mean, variance, logarithm of the std)
        for (eta, variance, expected) in [
            (3.0, 0.0, 1.5),
            (400.0, 0.0, 200.0),
            (800.0, 0.0, 400.0),
            (400.0, 0.5, 400.25 + 0.5 * 0.5_f64.exp_m1().ln()),
            (720.0, 1e-300, 720.0 - 150.0 * std::f64::consts::LN_10),
        ] {
            let std = Link::Log.std(eta, variance, 0.0);
            assert!(
                (std.ln() - expected).abs() < 1e-11 * expected,
                "{eta} {variance}: {std}"
            );
        }
        for (eta, variance) in [(1500.0, 0.0), (800.0, 0.1), (10.0, 2000.0)] {
            assert!(Link::Log.std(eta, variance, 0.0) == f64::INFINITY);
        }
    }
}
