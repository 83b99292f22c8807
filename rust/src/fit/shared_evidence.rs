//! The marginal likelihood as a function of one alpha that outputs with several noise levels share. This file knows numbers only, no
//! matrices.
//!
//! Each level l contributes a term, so `F(alpha) = sum_l 1/2 [n_l (ln alpha - ln(alpha + s_l)) + q_l^2 / (alpha + s_l)]`, where `n_l`
//! outputs share the sparsity factor `s_l` and `q_l^2` is the sum of their squared quality factors. F vanishes at infinite alpha and may
//! have several maxima: `dF / d ln alpha = 1/2 sum_l [n_l s_l^2 - alpha (q_l^2 - n_l s_l)] / (alpha + s_l)^2`. Each term has at most
//! one maximum, and the maxima of F lie between the smallest and the largest of these.

use crate::fit::evidence::{Factors, Term};
use crate::fit::tuning::Tuning;

/// First and second derivative of a term in ln alpha.
fn term_derivatives(Term { n, s, q }: Term, alpha: f64) -> (f64, f64) {
    let excess = q * q - n * s;
    // One division: this is most of the time of a scan.
    let inverse = 1.0 / (alpha + s);
    let half = 0.5 * inverse * inverse;
    let slope = (n * s * s - alpha * excess) * half;
    let curvature = alpha * (excess * (alpha - s) - 2.0 * n * s * s) * half * inverse;
    (slope, curvature)
}

impl Factors {
    /// The alpha that maximizes F, and F there, if that exceeds `min_gain`; a larger one shortens the scan.
    pub(super) fn best_of_levels(&self, min_gain: f64) -> Option<(f64, f64)> {
        let mut best: Option<(f64, f64)> = None;
        // As -ln(1 + x) <= -x / (1 + x), no term is above (q^2 - n s) / (2 alpha).
        let excess = |t: Term| (t.q * t.q - t.n * t.s).max(0.0);
        let end = self.terms().map(excess).sum::<f64>() / (2.0 * min_gain);
        self.for_each_maximum(end, |alpha| {
            let gain = -self.gain_of_deleting(alpha);
            if gain > best.map_or(min_gain, |b| b.1) {
                best = Some((alpha, gain));
            }
        });
        best
    }

    /// The alpha to which re-estimation moves; `None` for infinity.
    ///
    /// This is the global maximum, or the nearest one in the direction of ascent if that is as good: a step without gain would be
    /// repeated for ever.
    pub(super) fn reestimated_for_levels(&self, alpha: f64) -> Option<f64> {
        let is_rising = self.derivatives(alpha).0 > 0.0;
        let mut best: Option<(f64, f64)> = None;
        let mut nearest: Option<(f64, f64)> = None;
        self.for_each_maximum(f64::INFINITY, |maximum| {
            let gain = -self.gain_of_deleting(maximum);
            if gain > best.map_or(0.0, |b| b.1) {
                best = Some((maximum, gain));
            }
            let is_nearest = if is_rising {
                maximum >= alpha && nearest.is_none()
            } else {
                maximum <= alpha
            };
            if is_nearest {
                nearest = Some((maximum, gain));
            }
        });
        let (best, gain) = best?;
        let near = nearest.filter(|near| gain - near.1 <= Tuning::MIN_GAIN);
        Some(near.map_or(best, |near| near.0))
    }

    /// dF / d ln alpha and its derivative.
    fn derivatives(&self, alpha: f64) -> (f64, f64) {
        let mut sum = term_derivatives(self.first, alpha);
        for &term in &self.others {
            let (slope, curvature) = term_derivatives(term, alpha);
            sum = (sum.0 + slope, sum.1 + curvature);
        }
        sum
    }

    /// Bounds on ln alpha of the maxima up to `end`, and whether there may be maxima above them.
    fn range(&self, end: f64) -> Option<(f64, f64, bool)> {
        let least = self
            .terms()
            .map(Term::optimal_alpha)
            .fold(f64::INFINITY, f64::min);
        if least == f64::INFINITY {
            return None;
        }
        let most = self.terms().map(Term::optimal_alpha).fold(0.0, f64::max);
        let finite = Tuning::INFINITE_RATIO * self.terms().map(|term| term.s).fold(0.0, f64::max);
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
    fn for_each_maximum(&self, end: f64, mut visit: impl FnMut(f64)) {
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
    fn bracket(&self, left: (f64, (f64, f64)), right: (f64, (f64, f64))) -> Option<(f64, f64)> {
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
    fn turn(&self, mut a: f64, mut b: f64, sign: f64) -> f64 {
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
    fn root(&self, mut a: f64, mut b: f64) -> f64 {
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
    use crate::fit::evidence::Gamma;
    use proptest::prelude::*;

    #[test]
    fn an_infinite_sparsity_has_no_best_alpha() {
        let finite = Term {
            n: 1.0,
            s: 2.0,
            q: 3.0,
        };
        let infinite = Term {
            s: f64::INFINITY,
            ..finite
        };
        for terms in [[finite, infinite], [infinite, finite], [infinite, infinite]] {
            assert_eq!(factors(&terms).best_above(0.0), None);
            assert_eq!(factors(&terms).reestimated(1.0), None);
        }
    }

    fn factors(terms: &[Term]) -> Factors {
        Factors::of_levels(terms[0], terms[1..].iter().copied(), Gamma::FLAT)
    }

    fn value(terms: &[Term], alpha: f64) -> f64 {
        let l =
            |t: &Term| 0.5 * (t.n * (alpha.ln() - (alpha + t.s).ln()) + t.q * t.q / (alpha + t.s));
        terms.iter().map(l).sum()
    }

    fn terms() -> impl Strategy<Value = Vec<Term>> {
        let term = (-4.0..4.0_f64, -3.0..3.0_f64, 1_u8..4).prop_map(|(ln_s, ln_ratio, n)| {
            let (s, n) = (ln_s.exp(), f64::from(n));
            Term {
                n,
                s,
                q: (n * s * ln_ratio.exp()).sqrt(),
            }
        });
        proptest::collection::vec(term, 2..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn best_alpha_is_the_maximum_of_a_dense_scan(terms in terms()) {
            let shared = factors(&terms);
            let scan = (0..4000).map(|k| value(&terms, (f64::from(k) * 0.01 - 20.0).exp()));
            let scanned = scan.fold(0.0, f64::max);
            let (alpha, gain) = shared.best_above(0.0).unwrap_or((f64::INFINITY, 0.0));
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
            let shared = factors(&terms);
            let (slope, curvature) = shared.derivatives(u.exp());
            let at = |u: f64| value(&terms, u.exp());
            let slope_at = |u: f64| shared.derivatives(u.exp()).0;
            let scale = 1e-6 * (1.0 + shared.bound());
            prop_assert!(((at(u + h) - at(u - h)) / (2.0 * h) - slope).abs() < scale);
            prop_assert!(((slope_at(u + h) - slope_at(u - h)) / (2.0 * h) - curvature).abs() < scale);
        }

        #[test]
        fn gains_are_differences_of_the_sum(terms in terms(), old in 1e-3..1e3_f64, new in 1e-3..1e3_f64) {
            let shared = factors(&terms);
            let scale = 1e-10 * (1.0 + shared.bound());
            let difference = value(&terms, new) - value(&terms, old);
            prop_assert!((shared.gain_of_moving(old, new) - difference).abs() < scale);
            prop_assert!((shared.gain_of_deleting(old) + value(&terms, old)).abs() < scale);
        }

        #[test]
        fn outputs_with_equal_noise_may_share_a_term_or_not(s in 0.01..100.0_f64, q in proptest::collection::vec(-30.0..30.0_f64, 2..5)) {
            let separate: Vec<Term> = q.iter().map(|q| Term { n: 1.0, s, q: *q }).collect();
            let together = [Term { n: q.len() as f64, s, q: q.iter().map(|q| q * q).sum::<f64>().sqrt() }];
            match (factors(&separate).best_above(0.0), factors(&together).best_above(0.0)) {
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
                q: 30.0_f64.sqrt(),
            },
            Term {
                n: 1.0,
                s: 1e4,
                q: 1.3e4_f64.sqrt(),
            },
        ];
        let shared = factors(&terms);
        let mut maxima = Vec::new();
        shared.for_each_maximum(f64::INFINITY, |alpha| maxima.push(alpha));
        assert_eq!(maxima.len(), 2);
        let best = shared.best_above(0.0).unwrap().0;
        let values: Vec<f64> = maxima.iter().map(|&a| value(&terms, a)).collect();
        let higher = usize::from(values[1] > values[0]);
        assert!((best / maxima[higher] - 1.0).abs() < 1e-15);
        // Re-estimation moves to the higher maximum from either side.
        assert_eq!(shared.reestimated(maxima[1 - higher]), Some(best));
    }

    #[test]
    fn irrelevant_functions_have_infinite_alpha() {
        let term = |s: f64, square: f64| Term {
            n: 1.0,
            s,
            q: square.sqrt(),
        };
        for terms in [
            vec![term(0.0, 0.0); 2],
            vec![term(1.0, 1.0), term(2.0, 1.0)],
            // One output gains less than the other loses.
            vec![term(1.0, 1.5), term(50.0, 0.0)],
        ] {
            assert_eq!(factors(&terms).best_above(0.0), None);
            assert_eq!(factors(&terms).reestimated(1.0), None);
        }
    }
}
