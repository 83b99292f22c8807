//! The marginal likelihood as a function of one alpha: Tipping & Faul (2003), section 3. Scalars only.
//!
//! With all other hyperparameters fixed, ln p(t) depends on alpha through
//! `l(alpha) = 1/2 [ln alpha - ln(alpha + s) + q^2 / (alpha + s)]` (equation 18), where s and q are the sparsity and
//! quality factors with the function left out. All gains are in nats.

use crate::fit::prior::Gamma;
use crate::fit::tuning::Tuning;

/// Sparsity and quality factors of one function with the function left out (equation 19), and the prior of its alpha.
///
/// With an informative prior `l` is the sum of equation (18) and [`Gamma::log_density`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Factors {
    pub(crate) s: f64,
    pub(crate) q: f64,
    pub(crate) prior: Gamma,
}

impl Factors {
    /// The factors of an active function from its posterior variance and mean: Sigma_jj = 1 / (alpha + s) and
    /// mu_j = q / (alpha + s) are equivalent to equation (23).
    pub(crate) fn from_posterior(alpha: f64, variance: f64, mean: f64, prior: Gamma) -> Self {
        Self {
            s: (1.0 / variance - alpha).max(0.0),
            q: mean / variance,
            prior,
        }
    }

    /// s and q of an active function if these are its S and Q: equation (23), as accurate as S and Q where alpha is far above S.
    pub(crate) fn left_out(self, alpha: f64) -> Self {
        let ratio = alpha / (alpha - self.s);
        Self {
            s: (ratio * self.s).max(0.0),
            q: ratio * self.q,
            ..self
        }
    }

    /// q^2 / s - 1: positive exactly when the function belongs in the model.
    fn excess(self) -> f64 {
        self.q * (self.q / self.s) - 1.0
    }

    /// Equation (20): the alpha that maximises l; `None` for infinity (21).
    ///
    /// With an informative prior: `None` if no finite alpha has a positive l.
    pub(crate) fn optimal_alpha(self) -> Option<f64> {
        if !self.prior.is_flat() {
            return self.peak().map(|(alpha, _)| alpha);
        }
        let excess = self.excess();
        // False for NaN, the result of s = q = 0.
        if excess * Tuning::INFINITE_RATIO > 1.0 {
            Some((self.s / excess).max(Tuning::ALPHA_FLOOR))
        } else {
            None
        }
    }

    /// |change in ln alpha| by re-estimation; infinite for a deletion.
    pub(crate) fn change_from(self, alpha: f64) -> f64 {
        self.optimal_alpha()
            .map_or(f64::INFINITY, |best| (best / alpha).ln().abs())
    }

    /// l(optimal alpha), the gain of adding the function: equation (27). 0 if the optimal alpha is infinite.
    pub(crate) fn gain_of_adding(self) -> f64 {
        if !self.prior.is_flat() {
            return self.peak().map_or(0.0, |(_, gain)| gain);
        }
        let excess = self.excess();
        if excess > 0.0 {
            0.5 * (excess - excess.ln_1p())
        } else {
            0.0
        }
    }

    /// l(new) - l(old), computed without cancellation.
    pub(crate) fn gain_of_moving(self, old: f64, new: f64) -> f64 {
        let Self { s, q, prior } = self;
        let quadratic = q * q * (old - new) / ((new + s) * (old + s));
        // ln(new/(new+s)) - ln(old/(old+s)) = ln(1 + s (new - old) / (old (new + s)))
        let gain = 0.5 * ((s * (new - old) / (old * (new + s))).ln_1p() + quadratic);
        if prior.is_flat() {
            gain
        } else {
            gain + (prior.log_density(new) - prior.log_density(old))
        }
    }

    /// -l(alpha), the gain of deleting the function.
    pub(crate) fn gain_of_deleting(self, alpha: f64) -> f64 {
        let gain = 0.5 * ((self.s / alpha).ln_1p() - self.q * self.q / (alpha + self.s));
        if self.prior.is_flat() {
            gain
        } else {
            gain - self.prior.log_density(alpha)
        }
    }

    /// The alpha that maximizes l under an informative prior, and the maximum; `None` if that is not positive.
    ///
    /// With u = alpha / s the slope of l in ln alpha is `g(u) / (2 (1 + u)^2)`, where
    /// `g(u) = -2 b s u^3 + (2 a - 4 b s) u^2 + (4 a - 2 b s - excess) u + 1 + 2 a`
    /// starts positive and ends negative: one maximum, or two.
    fn peak(self) -> Option<(f64, f64)> {
        let excess = self.excess();
        // The log density is never positive, so without an excess l is negative. NaN also returns.
        if self.s <= 0.0 || !(excess > 0.0 && excess.is_finite()) {
            return None;
        }
        let (a, bs) = (self.prior.shape, self.prior.rate * self.s);
        let cubic = [
            1.0 + 2.0 * a,
            4.0 * a - 2.0 * bs - excess,
            2.0 * a - 4.0 * bs,
            -2.0 * bs,
        ];
        let value = |u: f64| {
            0.5 * ((1.0 + excess) / (1.0 + u) - (1.0 / u).ln_1p())
                + self.prior.log_density(self.s * u)
        };
        falling_roots(cubic)
            .filter(|&u| u < Tuning::INFINITE_RATIO)
            .map(|u| ((self.s * u).max(Tuning::ALPHA_FLOOR), value(u)))
            .filter(|&(_, value)| value > 0.0)
            .max_by(|x, y| x.1.total_cmp(&y.1))
    }
}

/// The one or two roots at which a cubic, positive at zero and negative at infinity, falls through zero.
fn falling_roots(c: [f64; 4]) -> impl Iterator<Item = f64> {
    let at = move |u: f64| ((c[3] * u + c[2]) * u + c[1]) * u + c[0];
    // The cubic is monotone between the roots of its derivative.
    let (x, y, z) = (3.0 * c[3], 2.0 * c[2], c[1]);
    let root = (y * y - 4.0 * x * z).max(0.0).sqrt();
    // Without cancellation: the larger root first, the other one from the product of both.
    let w = -0.5 * (y + root.copysign(y));
    let mut turns = [w / x, z / w].map(|u| {
        if u > 0.0 && u < Tuning::INFINITE_RATIO {
            u
        } else {
            0.0
        }
    });
    turns.sort_by(f64::total_cmp);
    let far = std::iter::successors(Some(1.0_f64.max(2.0 * turns[1])), |u| Some(2.0 * u))
        .find(|&u| at(u) < 0.0 || u > 2.0 * Tuning::INFINITE_RATIO)
        .unwrap_or(Tuning::INFINITE_RATIO);
    let intervals = [(0.0, turns[0]), (turns[0], turns[1]), (turns[1], far)];
    intervals
        .into_iter()
        .filter(move |&(low, high)| at(low) > 0.0 && at(high) <= 0.0)
        .map(move |(low, high)| bisect(at, low, high))
}

/// The root of a falling function between `low` and `high`, with full relative accuracy.
fn bisect(f: impl Fn(f64) -> f64, mut low: f64, mut high: f64) -> f64 {
    loop {
        // Geometric means while the interval spans orders of magnitude, for the accuracy of small roots.
        let middle = if low < 0.01 * high {
            (low.max(1e-300) * high).sqrt().min(0.5 * high)
        } else {
            0.5 * (low + high)
        };
        if middle <= low || middle >= high {
            return 0.5 * (low + high);
        }
        if f(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flat(s: f64, q: f64) -> Factors {
        Factors {
            s,
            q,
            prior: Gamma::FLAT,
        }
    }

    fn l(f: Factors, alpha: f64) -> f64 {
        0.5 * (alpha.ln() - (alpha + f.s).ln() + f.q * f.q / (alpha + f.s))
            + f.prior.log_density(alpha)
    }

    proptest! {
        #[test]
        fn gains_are_differences_of_l(
            s in 0.01..100.0_f64, q in -30.0..30.0_f64, old in 1e-3..1e3_f64, new in 1e-3..1e3_f64,
            shape in 0.0..2.0_f64, rate in 0.0..2.0_f64,
        ) {
            for prior in [Gamma::FLAT, Gamma { shape, rate }, Gamma { shape: 0.0, rate }] {
                let f = Factors { s, q, prior };
                let slack = 1e-9 * (1.0 + q * q + 1e3 * rate);
                prop_assert!((f.gain_of_moving(old, new) - (l(f, new) - l(f, old))).abs() < slack);
                prop_assert!((f.gain_of_deleting(old) + l(f, old)).abs() < slack);
            }
        }

        #[test]
        fn optimal_alpha_is_the_maximum(s in 0.01..100.0_f64, q in -30.0..30.0_f64, factor in 0.1..10.0_f64) {
            let f = flat(s, q);
            match f.optimal_alpha() {
                Some(best) => {
                    prop_assert!(l(f, best) >= l(f, best * factor) - 1e-12);
                    prop_assert!((f.gain_of_adding() - l(f, best)).abs() < 1e-9 * (1.0 + q * q));
                }
                None => prop_assert!(l(f, factor) <= 1e-12),
            }
        }

        #[test]
        fn under_a_prior_optimal_alpha_is_the_global_maximum(
            ln_s in -8.0..8.0_f64, ratio in 0.0..40.0_f64, ln_shape in -15.0..3.0_f64, ln_rate in -15.0..3.0_f64,
        ) {
            let s = ln_s.exp();
            let prior = Gamma { shape: ln_shape.exp(), rate: ln_rate.exp() };
            let f = Factors { s, q: (ratio * s).sqrt(), prior };
            let scan = (-4000..4000).map(|k| l(f, s * (0.005 * f64::from(k)).exp())).fold(0.0, f64::max);
            // Bound on l where alpha counts as infinite.
            let least = 0.5 * ratio / Tuning::INFINITE_RATIO;
            prop_assert!(f.gain_of_adding() >= scan - least - 1e-9 * (1.0 + scan));
            if let Some(best) = f.optimal_alpha() {
                prop_assert!((f.gain_of_adding() - l(f, best)).abs() < 1e-9 * (1.0 + ratio));
                let slope = 0.5 * (s / (best + s) - best * f.q * f.q / (best + s).powi(2)) + prior.slope(best);
                prop_assert!(slope.abs() < 1e-9 * (1.0 + ratio + prior.shape + prior.rate * best));
            }
        }

        #[test]
        fn a_nearly_flat_prior_has_the_gains_of_a_flat_one(s in 0.01..100.0_f64, q in -30.0..30.0_f64) {
            let f = Factors { prior: Gamma { shape: 1e-22, rate: 1e-22 }, ..flat(s, q) };
            prop_assert!((f.gain_of_adding() - flat(s, q).gain_of_adding()).abs() < 1e-10 * (1.0 + q * q / s));
        }
    }

    #[test]
    fn irrelevant_functions_have_infinite_alpha() {
        for f in [flat(0.0, 0.0), flat(1.0, 1.0), flat(2.0, 0.0)] {
            let prior = Gamma {
                shape: 1.0,
                rate: 1.0,
            };
            for f in [f, Factors { prior, ..f }] {
                assert_eq!(f.optimal_alpha(), None);
                assert!(f.gain_of_adding() == 0.0);
            }
        }
    }
}
