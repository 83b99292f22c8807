//! The marginal likelihood as a function of one alpha that several outputs share. Scalars only.
//!
//! With all other hyperparameters fixed, each output contributes its own l(alpha) (Tipping & Faul 2003, equation 18):
//! `F(alpha) = sum_l 1/2 [n_l (ln alpha - ln(alpha + s_l)) + Q_l / (alpha + s_l)]`, where `n_l` outputs share the sparsity
//! factor `s_l` and `Q_l` is the sum of their squared quality factors. F vanishes at infinite alpha. With one term the
//! maximum is given by equations (20) and (21), `n s^2 / (Q - n s)`. With several terms F may have several maxima:
//! `dF / d ln alpha = 1/2 sum_l [n_l s_l^2 - alpha (Q_l - n_l s_l)] / (alpha + s_l)^2`. Each term has at most one maximum,
//! and the maxima of F lie between the smallest and the largest of these.

use crate::fit::tuning::Tuning;

/// Sparsity and quality of one function, with the function left out, for outputs with the same noise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Term {
    /// Number of outputs.
    pub(crate) n: f64,
    pub(crate) s: f64,
    /// Sum of q^2 over the outputs.
    pub(crate) power: f64,
}

impl Term {
    /// The alpha that maximizes this term; may be infinite.
    fn optimal_alpha(self) -> f64 {
        let excess = self.excess();
        if excess * Tuning::INFINITE_RATIO > 1.0 {
            self.s / excess
        } else {
            f64::INFINITY
        }
    }

    /// The average of q^2 / s - 1 over the outputs.
    fn excess(self) -> f64 {
        self.power / (self.n * self.s) - 1.0
    }

    fn optimal_gain(self) -> f64 {
        let excess = self.excess();
        if excess > 0.0 {
            0.5 * self.n * (excess - excess.ln_1p())
        } else {
            0.0
        }
    }

    /// First and second derivative in ln alpha.
    fn derivatives(self, alpha: f64) -> (f64, f64) {
        let Self { n, s, power } = self;
        let excess = power - n * s;
        let sum = alpha + s;
        let slope = (n * s * s - alpha * excess) / (sum * sum);
        let curvature = alpha * (excess * (alpha - s) - 2.0 * n * s * s) / (sum * sum * sum);
        (0.5 * slope, 0.5 * curvature)
    }
}

/// The factors of one function for all outputs: a term per noise level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedFactors<'a>(pub(crate) &'a [Term]);

impl SharedFactors<'_> {
    /// The alpha that maximizes F, and F there; `None` if F is nowhere positive.
    pub(crate) fn best(self) -> Option<(f64, f64)> {
        self.best_above(0.0)
    }

    /// [`SharedFactors::best`] if F exceeds `min_gain` there; a larger one shortens the scan.
    pub(crate) fn best_above(self, min_gain: f64) -> Option<(f64, f64)> {
        let mut best: Option<(f64, f64)> = None;
        // As -ln(1 + x) <= -x / (1 + x), no term is above (Q - n s) / (2 alpha).
        let excess = |t: &Term| (t.power - t.n * t.s).max(0.0);
        let end = self.0.iter().map(excess).sum::<f64>() / (2.0 * min_gain);
        self.for_each_maximum(end, |alpha| {
            let gain = -self.gain_of_deleting(alpha);
            if gain > best.map_or(min_gain, |b| b.1) {
                best = Some((alpha, gain));
            }
        });
        best
    }

    /// Upper bound on F: the sum of the maxima of the terms.
    pub(crate) fn bound(self) -> f64 {
        self.0.iter().map(|term| term.optimal_gain()).sum()
    }

    /// The re-estimated alpha; `None` for infinity.
    ///
    /// This is the global maximum, or the nearest one in the direction of ascent if that is as good: a step without gain would be
    /// repeated for ever.
    pub(crate) fn reestimated(self, alpha: f64) -> Option<f64> {
        let (best, gain) = self.best()?;
        if self.0.len() == 1 {
            return Some(best);
        }
        let rising = self.derivatives(alpha).0 > 0.0;
        let mut nearest = None;
        self.for_each_maximum(f64::INFINITY, |maximum| {
            if (rising && maximum >= alpha && nearest.is_none()) || (!rising && maximum <= alpha) {
                nearest = Some(maximum);
            }
        });
        match nearest {
            Some(near) if gain + self.gain_of_deleting(near) <= Tuning::MIN_GAIN => Some(near),
            _ => Some(best),
        }
    }

    /// |change in ln alpha| by re-estimation; infinite for a deletion.
    pub(crate) fn change_from(self, alpha: f64) -> f64 {
        self.reestimated(alpha)
            .map_or(f64::INFINITY, |best| (best / alpha).ln().abs())
    }

    /// F(new) - F(old), computed without cancellation.
    pub(crate) fn gain_of_moving(self, old: f64, new: f64) -> f64 {
        let gain = |&Term { n, s, power }: &Term| {
            let quadratic = power * (old - new) / ((new + s) * (old + s));
            0.5 * (n * (s * (new - old) / (old * (new + s))).ln_1p() + quadratic)
        };
        self.0.iter().map(gain).sum()
    }

    /// -F(alpha), the gain of deleting the function.
    pub(crate) fn gain_of_deleting(self, alpha: f64) -> f64 {
        let gain =
            |&Term { n, s, power }: &Term| 0.5 * (n * (s / alpha).ln_1p() - power / (alpha + s));
        self.0.iter().map(gain).sum()
    }

    /// dF / d ln alpha and its derivative.
    fn derivatives(self, alpha: f64) -> (f64, f64) {
        let add = |sum: (f64, f64), term: &Term| {
            let (slope, curvature) = term.derivatives(alpha);
            (sum.0 + slope, sum.1 + curvature)
        };
        self.0.iter().fold((0.0, 0.0), add)
    }

    /// Bounds on ln alpha of the maxima up to `end`, and whether there may be maxima above them.
    fn range(self, end: f64) -> Option<(f64, f64, bool)> {
        let best = |term: &Term| term.optimal_alpha();
        let least = self.0.iter().map(best).fold(f64::INFINITY, f64::min);
        if least == f64::INFINITY {
            return None;
        }
        let most = self.0.iter().map(best).fold(0.0, f64::max);
        let finite = Tuning::INFINITE_RATIO * self.0.iter().map(|term| term.s).fold(0.0, f64::max);
        let end = end.min(finite);
        let low = least.max(Tuning::ALPHA_FLOOR);
        let high = most.min(end).max(low);
        // Overflow can make a sparsity factor infinite.
        if end < least || high == f64::INFINITY {
            return None;
        }
        Some((low.ln(), high.ln(), most > end))
    }

    /// Visits the finite local maxima up to `end`, ascending.
    fn for_each_maximum(self, end: f64, mut visit: impl FnMut(f64)) {
        if let [term] = self.0 {
            let alpha = term.optimal_alpha();
            if alpha.is_finite() {
                visit(alpha.max(Tuning::ALPHA_FLOOR));
            }
            return;
        }
        let Some((low, high, open)) = self.range(end) else {
            return;
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let n_steps = ((high - low) / Tuning::GRID_STEP).ceil() as usize;
        let mut left = (low, self.derivatives(low.exp()));
        let (mut alpha, factor) = (low.exp(), Tuning::GRID_STEP.exp());
        if left.1.0 <= 0.0 {
            visit(low.exp());
        }
        for k in 1..=n_steps {
            let u = (low + Tuning::GRID_STEP * k as f64).min(high);
            alpha = if k < n_steps { alpha * factor } else { u.exp() };
            let right = (u, self.derivatives(alpha));
            if let Some((from, to)) = self.bracket(left, right) {
                visit(self.root(from, to).exp());
            }
            left = right;
        }
        // The slope at the largest maximum of a term is negative, except by round-off.
        if left.1.0 > 0.0 && !open {
            visit(high.exp());
        }
    }

    /// An interval within `left..right`, each `(ln alpha, derivatives)`, in which the slope falls through zero.
    fn bracket(self, left: (f64, (f64, f64)), right: (f64, (f64, f64))) -> Option<(f64, f64)> {
        let ((a, (slope_a, curvature_a)), (b, (slope_b, curvature_b))) = (left, right);
        match (slope_a > 0.0, slope_b > 0.0) {
            (true, false) => Some((a, b)),
            // The slope may cross zero twice between two points.
            (true, true) if curvature_a < 0.0 && curvature_b > 0.0 => {
                let turn = self.turn(a, b, -1.0);
                (self.derivatives(turn.exp()).0 <= 0.0).then_some((a, turn))
            }
            (false, false) if curvature_a > 0.0 && curvature_b < 0.0 => {
                let turn = self.turn(a, b, 1.0);
                (self.derivatives(turn.exp()).0 > 0.0).then_some((turn, b))
            }
            _ => None,
        }
    }

    /// Where the curvature changes sign, from `sign` to `-sign`.
    fn turn(self, mut a: f64, mut b: f64, sign: f64) -> f64 {
        for _ in 0..40 {
            let middle = 0.5 * (a + b);
            if sign * self.derivatives(middle.exp()).1 > 0.0 {
                a = middle;
            } else {
                b = middle;
            }
        }
        0.5 * (a + b)
    }

    /// The zero of a slope that is positive at `a` and not at `b`, by Newton's method with bisection as safeguard.
    fn root(self, mut a: f64, mut b: f64) -> f64 {
        let mut u = 0.5 * (a + b);
        for _ in 0..100 {
            let (slope, curvature) = self.derivatives(u.exp());
            if slope > 0.0 {
                a = u;
            } else {
                b = u;
            }
            let newton = u - slope / curvature;
            let next = if newton > a && newton < b {
                newton
            } else {
                0.5 * (a + b)
            };
            if (next - u).abs() <= 4.0 * f64::EPSILON * (1.0 + u.abs()) {
                return next;
            }
            u = next;
        }
        u
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::evidence::Factors;
    use crate::fit::prior::Gamma;
    use proptest::prelude::*;

    #[test]
    fn an_infinite_sparsity_has_no_best_alpha() {
        let finite = Term {
            n: 1.0,
            s: 2.0,
            power: 9.0,
        };
        let infinite = Term {
            s: f64::INFINITY,
            ..finite
        };
        for terms in [[finite, infinite], [infinite, finite], [infinite, infinite]] {
            assert_eq!(SharedFactors(&terms).best(), None);
            assert_eq!(SharedFactors(&terms).reestimated(1.0), None);
        }
    }

    fn value(terms: &[Term], alpha: f64) -> f64 {
        let l =
            |t: &Term| 0.5 * (t.n * (alpha.ln() - (alpha + t.s).ln()) + t.power / (alpha + t.s));
        terms.iter().map(l).sum()
    }

    fn terms() -> impl Strategy<Value = Vec<Term>> {
        let term = (-4.0..4.0_f64, -3.0..3.0_f64, 1_u8..4).prop_map(|(ln_s, ln_ratio, n)| {
            let (s, n) = (ln_s.exp(), f64::from(n));
            Term {
                n,
                s,
                power: n * s * ln_ratio.exp(),
            }
        });
        proptest::collection::vec(term, 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn best_alpha_is_the_maximum_of_a_dense_scan(terms in terms()) {
            let shared = SharedFactors(&terms);
            let scan = (0..4000).map(|k| value(&terms, (f64::from(k) * 0.01 - 20.0).exp()));
            let scanned = scan.fold(0.0, f64::max);
            let (alpha, gain) = shared.best().unwrap_or((f64::INFINITY, 0.0));
            prop_assert!(gain >= scanned - 1e-10 * (1.0 + scanned));
            prop_assert!(gain <= shared.bound() + 1e-12 * (1.0 + gain));
            if alpha.is_finite() {
                prop_assert!((value(&terms, alpha) - gain).abs() < 1e-10 * (1.0 + gain));
                // Stationary, and unchanged by re-estimation.
                prop_assert!(shared.derivatives(alpha).0.abs() < 1e-9 * (1.0 + shared.bound()));
                prop_assert!((shared.reestimated(alpha).unwrap() / alpha).ln().abs() < 1e-6);
            }
        }

        #[test]
        fn derivatives_agree_with_finite_differences(terms in terms(), u in -6.0..6.0_f64) {
            let h = 1e-4;
            let shared = SharedFactors(&terms);
            let (slope, curvature) = shared.derivatives(u.exp());
            let at = |u: f64| value(&terms, u.exp());
            let slope_at = |u: f64| shared.derivatives(u.exp()).0;
            let scale = 1e-6 * (1.0 + shared.bound());
            prop_assert!(((at(u + h) - at(u - h)) / (2.0 * h) - slope).abs() < scale);
            prop_assert!(((slope_at(u + h) - slope_at(u - h)) / (2.0 * h) - curvature).abs() < scale);
        }

        #[test]
        fn gains_are_differences_of_the_sum(terms in terms(), old in 1e-3..1e3_f64, new in 1e-3..1e3_f64) {
            let shared = SharedFactors(&terms);
            let scale = 1e-10 * (1.0 + shared.bound());
            let difference = value(&terms, new) - value(&terms, old);
            prop_assert!((shared.gain_of_moving(old, new) - difference).abs() < scale);
            prop_assert!((shared.gain_of_deleting(old) + value(&terms, old)).abs() < scale);
        }

        #[test]
        fn one_output_agrees_with_factors(s in 0.01..100.0_f64, q in -30.0..30.0_f64) {
            let prior = Gamma::FLAT;
            let alone = Factors { s, q, prior };
            let terms = [Term { n: 1.0, s, power: q * q }];
            let best = SharedFactors(&terms).best();
            prop_assert_eq!(best.is_some(), alone.optimal_alpha().is_some());
            if let (Some((alpha, gain)), Some(expected)) = (best, alone.optimal_alpha()) {
                // Both divide s by q^2 / s - 1, a difference with few digits where q^2 is close to s.
                prop_assert!((s / alpha - s / expected).abs() < 1e-15 * (1.0 + 4.0 * q * q / s));
                prop_assert!((gain - alone.gain_of_adding()).abs() < 1e-12 * (1.0 + q * q));
            }
        }

        #[test]
        fn outputs_with_equal_noise_may_share_a_term_or_not(s in 0.01..100.0_f64, q in proptest::collection::vec(-30.0..30.0_f64, 2..5)) {
            let separate: Vec<Term> = q.iter().map(|q| Term { n: 1.0, s, power: q * q }).collect();
            let together = [Term { n: q.len() as f64, s, power: q.iter().map(|q| q * q).sum() }];
            match (SharedFactors(&separate).best(), SharedFactors(&together).best()) {
                (Some(a), Some(b)) => {
                    prop_assert!((a.0 / b.0 - 1.0).abs() < 1e-6);
                    prop_assert!((a.1 - b.1).abs() < 1e-9 * (1.0 + b.1));
                }
                (a, b) => prop_assert!(a.or(b).is_none_or(|best| best.1 < 1e-9)),
            }
        }
    }

    #[test]
    fn the_higher_of_two_maxima_is_found() {
        // A strong signal in a noisy output and a weak one in a precise output.
        let terms = [
            Term {
                n: 1.0,
                s: 1.0,
                power: 30.0,
            },
            Term {
                n: 1.0,
                s: 1e4,
                power: 1.3e4,
            },
        ];
        let shared = SharedFactors(&terms);
        let mut maxima = Vec::new();
        shared.for_each_maximum(f64::INFINITY, |alpha| maxima.push(alpha));
        assert_eq!(maxima.len(), 2);
        let best = shared.best().unwrap().0;
        let values: Vec<f64> = maxima.iter().map(|&a| value(&terms, a)).collect();
        let higher = usize::from(values[1] > values[0]);
        assert!((best / maxima[higher] - 1.0).abs() < 1e-15);
        // Re-estimation moves to the higher maximum from either side.
        assert_eq!(shared.reestimated(maxima[1 - higher]), Some(best));
    }

    #[test]
    fn irrelevant_functions_have_infinite_alpha() {
        let term = |s: f64, power: f64| Term { n: 1.0, s, power };
        for terms in [
            vec![term(0.0, 0.0)],
            vec![term(1.0, 1.0), term(2.0, 1.0)],
            // One output gains less than the other loses.
            vec![term(1.0, 1.5), term(50.0, 0.0)],
        ] {
            assert_eq!(SharedFactors(&terms).best(), None);
            assert_eq!(SharedFactors(&terms).reestimated(1.0), None);
        }
    }
}
