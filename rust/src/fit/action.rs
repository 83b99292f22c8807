//! The marginal likelihood as a function of one alpha: Tipping & Faul (2003), section 3. Scalars only.
//!
//! With everything else held, ln p(t) depends on alpha through
//! `l(alpha) = 1/2 [ln alpha - ln(alpha + s) + q^2 / (alpha + s)]` (equation 18), where s and q are the sparsity and
//! quality factors with the function left out. All gains are in nats.

/// Beyond this multiple of s an alpha is infinite: the function is worth less than (s / alpha)^2 / 4 = 3e-17 nats.
pub(super) const INFINITE: f64 = 1e8;

/// Least alpha, in units of unit-norm columns and unit-spread targets: a prior standard deviation of 3e7.
pub(super) const ALPHA_FLOOR: f64 = 1e-15;

/// Sparsity and quality factors of one function, left out of the model: equation (19).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    pub(super) s: f64,
    pub(super) q: f64,
}

impl Factors {
    /// The factors of a function in the model, from its posterior variance and mean.
    ///
    /// Equation (23) in another dress: Sigma_jj = 1 / (alpha + s) and mu_j = q / (alpha + s).
    pub(super) fn from_posterior(alpha: f64, variance: f64, mean: f64) -> Self {
        Self {
            s: (1.0 / variance - alpha).max(0.0),
            q: mean / variance,
        }
    }

    /// q^2 / s - 1: positive exactly when the function belongs in the model.
    fn excess(self) -> f64 {
        self.q * (self.q / self.s) - 1.0
    }

    /// Equation (20): the alpha that maximises l; `None` for infinity (21).
    pub(super) fn optimal_alpha(self) -> Option<f64> {
        let excess = self.excess();
        // Also false for NaN, which s = q = 0 gives.
        if excess * INFINITE > 1.0 {
            Some((self.s / excess).max(ALPHA_FLOOR))
        } else {
            None
        }
    }

    /// |change in ln alpha| that re-estimation would make; infinite where the function should leave.
    pub(super) fn change_from(self, alpha: f64) -> f64 {
        self.optimal_alpha()
            .map_or(f64::INFINITY, |best| (best / alpha).ln().abs())
    }

    /// l(optimal alpha) for a function outside: equation (27). 0 when it does not belong.
    pub(super) fn gain_of_adding(self) -> f64 {
        let excess = self.excess();
        if excess > 0.0 {
            0.5 * (excess - excess.ln_1p())
        } else {
            0.0
        }
    }

    /// l(new) - l(old), without the cancellation of taking the difference.
    pub(super) fn gain_of_moving(self, old: f64, new: f64) -> f64 {
        let Self { s, q } = self;
        let quadratic = q * q * (old - new) / ((new + s) * (old + s));
        // ln(new/(new+s)) - ln(old/(old+s)) = ln(1 + s (new - old) / (old (new + s)))
        0.5 * ((s * (new - old) / (old * (new + s))).ln_1p() + quadratic)
    }

    /// -l(alpha): the gain of deleting. Positive exactly where the function does not belong.
    pub(super) fn gain_of_deleting(self, alpha: f64) -> f64 {
        0.5 * ((self.s / alpha).ln_1p() - self.q * self.q / (alpha + self.s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn l(f: Factors, alpha: f64) -> f64 {
        0.5 * (alpha.ln() - (alpha + f.s).ln() + f.q * f.q / (alpha + f.s))
    }

    proptest! {
        #[test]
        fn gains_are_differences_of_l(s in 0.01..100.0_f64, q in -30.0..30.0_f64, old in 1e-3..1e3_f64, new in 1e-3..1e3_f64) {
            let f = Factors { s, q };
            prop_assert!((f.gain_of_moving(old, new) - (l(f, new) - l(f, old))).abs() < 1e-9 * (1.0 + q * q));
            prop_assert!((f.gain_of_deleting(old) + l(f, old)).abs() < 1e-9 * (1.0 + q * q));
        }

        #[test]
        fn optimal_alpha_is_the_maximum(s in 0.01..100.0_f64, q in -30.0..30.0_f64, factor in 0.1..10.0_f64) {
            let f = Factors { s, q };
            match f.optimal_alpha() {
                Some(best) => {
                    prop_assert!(l(f, best) >= l(f, best * factor) - 1e-12);
                    prop_assert!((f.gain_of_adding() - l(f, best)).abs() < 1e-9 * (1.0 + q * q));
                }
                None => prop_assert!(l(f, factor) <= 1e-12),
            }
        }
    }

    #[test]
    fn functions_of_no_use_have_infinite_alpha() {
        for f in [
            Factors { s: 0.0, q: 0.0 },
            Factors { s: 1.0, q: 1.0 },
            Factors { s: 2.0, q: 0.0 },
        ] {
            assert_eq!(f.optimal_alpha(), None);
            assert!(f.gain_of_adding() == 0.0);
        }
    }
}
