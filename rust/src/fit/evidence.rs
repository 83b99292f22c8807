//! The marginal likelihood as a function of one alpha: Tipping & Faul (2003), section 3. This file knows numbers only, no
//! matrices.
//!
//! With all other hyperparameters fixed, ln p(t) of one output depends on alpha through
//! `l(alpha) = 1/2 [ln alpha - ln(alpha + s) + q^2 / (alpha + s)]` (equation 18), where s and q are the sparsity and
//! quality factors with the function left out. Outputs share alpha, so their terms add up: n outputs with the same noise share s,
//! and `l(alpha) = 1/2 [n (ln alpha - ln(alpha + s)) + q^2 / (alpha + s)]` with q^2 the sum over them. Several noise levels
//! contribute a term each. All gains are in nats.
//!
//! The prior exp(-c tr S) on the matrix S that maps targets to fitted values (Schmolck & Everson 2007) is another summand of the same
//! form: tr S = N - tr (beta W)^-1 C^-1, so alpha changes it by rho / (alpha + s) with
//! `rho = phi^T C_-i^-1 (beta W)^-1 C_-i^-1 phi`. Hence q^2 becomes q^2 - 2 c n rho, and (20), (27), (32) and (37) stay as they are.
//!
//! The objective includes the density over ln alpha, to which a Gamma prior of shape a and rate b contributes
//! `a ln alpha - b alpha` (Tipping 2001, section 2 and appendix A). It is taken relative to its peak at alpha = a / b, so that an active
//! function never gains by its prior, whatever the units; a = b = 0 is the flat limit.

use std::sync::Arc;

use crate::fit::tuning::Tuning;

/// The prior of one precision, in units of unit-norm columns and targets of unit variance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Gamma {
    pub(crate) shape: f64,
    pub(crate) rate: f64,
}

impl Gamma {
    /// Uniform in the logarithm.
    pub(crate) const FLAT: Self = Self {
        shape: 0.0,
        rate: 0.0,
    };

    pub(crate) fn is_flat(self) -> bool {
        self == Self::FLAT
    }

    /// ln density of ln alpha relative to its peak; never positive.
    pub(crate) fn log_density(self, alpha: f64) -> f64 {
        let Self { shape, rate } = self;
        if shape > 0.0 {
            shape * ((alpha * rate / shape).ln() + 1.0) - rate * alpha
        } else {
            -rate * alpha
        }
    }

    /// Derivative of the log density in ln alpha; the second derivative is `-rate alpha`.
    pub(crate) fn slope(self, alpha: f64) -> f64 {
        self.shape - self.rate * alpha
    }
}

/// The priors of all functions of a dictionary or working set: a common shape, and rates in the units of each column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Priors {
    shape: f64,
    /// Empty if all priors are flat.
    rates: Arc<[f64]>,
}

impl Priors {
    /// `[shape, rate]` is in the units of the caller; `target_scale / norm` is the unit of a weight.
    pub(crate) fn new([shape, rate]: [f64; 2], norms: &[f64], target_scale: f64) -> Self {
        if shape == 0.0 && rate == 0.0 {
            return Self::default();
        }
        let in_units = |norm: &f64| rate * (norm / target_scale).powi(2);
        Self {
            shape,
            rates: norms.iter().map(in_units).collect(),
        }
    }

    pub(crate) fn are_flat(&self) -> bool {
        self.rates.is_empty()
    }

    /// The prior of function `i`.
    pub(crate) fn of(&self, i: usize) -> Gamma {
        self.rates.get(i).map_or(Gamma::FLAT, |&rate| Gamma {
            shape: self.shape,
            rate,
        })
    }

    /// The priors of `members`, indexed by position.
    pub(crate) fn among(&self, members: &[usize]) -> Self {
        let rates = members.iter().filter_map(|&i| self.rates.get(i).copied());
        Self {
            shape: self.shape,
            rates: rates.collect(),
        }
    }
}

/// Sparsity and quality of one function, with the function left out, for the outputs of one noise level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Term {
    /// Number of outputs.
    pub(crate) n: f64,
    pub(crate) s: f64,
    /// The square of the quality factor, summed over the outputs, less 2 c n rho with the weight c of the complexity prior.
    pub(crate) square: f64,
}

impl Term {
    /// The factors of an active function from its posterior variance and the square of its mean, summed over the outputs, less
    /// 2 c n (Sigma - Sigma A Sigma)_jj: Sigma_jj = 1 / (alpha + s) and mu_j = q / (alpha + s) are equivalent to equation (23).
    pub(crate) fn from_posterior(n: f64, alpha: f64, variance: f64, mean_square: f64) -> Self {
        Self {
            n,
            s: (1.0 / variance - alpha).max(0.0),
            square: mean_square / variance / variance,
        }
    }

    /// s and q of an active function if these are its S and Q: equation (23), as accurate as S and Q where alpha is far above S.
    pub(crate) fn left_out(self, alpha: f64) -> Self {
        let ratio = alpha / (alpha - self.s);
        Self {
            s: (ratio * self.s).max(0.0),
            square: ratio * ratio * self.square,
            ..self
        }
    }

    /// q^2 / (n s).
    pub(crate) fn ratio(self) -> f64 {
        self.square / (self.n * self.s)
    }

    /// q^2 / (n s) - 1: positive exactly when these outputs alone would keep the function.
    pub(crate) fn excess(self) -> f64 {
        self.ratio() - 1.0
    }

    /// Equation (20): the alpha that maximises the term; infinite (21) without an excess. False for NaN, the result of s = q = 0.
    pub(crate) fn optimal_alpha(self) -> f64 {
        let excess = self.excess();
        if excess * Tuning::INFINITE_RATIO > 1.0 {
            (self.s / excess).max(Tuning::ALPHA_FLOOR)
        } else {
            f64::INFINITY
        }
    }

    /// The largest value of the term: equation (27). 0 if the optimal alpha is infinite.
    pub(crate) fn largest_gain(self) -> f64 {
        gain_of_excess(self.n, self.excess())
    }

    /// l(new) - l(old): equation (32), appendix A.3, in s and q instead of S and Q. Computed without cancellation:
    /// ln(new/(new+s)) - ln(old/(old+s)) = ln(1 + s (new - old) / (old (new + s))).
    fn gain_of_moving(self, old: f64, new: f64) -> f64 {
        let Self { n, s, square } = self;
        let quadratic = square * (old - new) / ((new + s) * (old + s));
        0.5 * (n * (s * (new - old) / (old * (new + s))).ln_1p() + quadratic)
    }

    /// -l(alpha): equation (37), appendix A.4, in s and q instead of S and Q.
    fn gain_of_deleting(self, alpha: f64) -> f64 {
        let Self { n, s, square } = self;
        0.5 * (n * (s / alpha).ln_1p() - square / (alpha + s))
    }

    /// First and second derivative of a term in ln alpha.
    fn derivatives(self, alpha: f64) -> (f64, f64) {
        let Self { n, s, square } = self;
        let excess = square - n * s;
        // One division: this is most of the time of a scan.
        let inverse = 1.0 / (alpha + s);
        let half = 0.5 * inverse * inverse;
        let slope = (n * s * s - alpha * excess) * half;
        let curvature = alpha * (excess * (alpha - s) - 2.0 * n * s * s) * half * inverse;
        (slope, curvature)
    }
}

/// Equation (27) for n outputs with [`Term::excess`]; 0 without an excess.
#[inline]
pub(crate) fn gain_of_excess(n: f64, excess: f64) -> f64 {
    if excess > 0.0 {
        0.5 * n * (excess - excess.ln_1p())
    } else {
        0.0
    }
}

/// Sparsity and quality factors of one function with the function left out (equation 19), a term for each noise level, and the prior of
/// its alpha.
///
/// With an informative prior `l` is the sum of equation (18) and [`Gamma::log_density`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Factors {
    pub(crate) first: Term,
    /// The terms of further noise levels; empty if there is one.
    pub(crate) others: Vec<Term>,
    pub(crate) prior: Gamma,
}

impl Factors {
    /// The factors with a term for each noise level.
    #[inline]
    pub(crate) fn of_levels(first: Term, others: impl Iterator<Item = Term>, prior: Gamma) -> Self {
        Self {
            first,
            others: others.collect(),
            prior,
        }
    }

    pub(crate) fn terms(&self) -> impl Iterator<Item = Term> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// The alpha that maximises l (equation 20); `None` if no finite alpha has a positive l (21).
    #[inline]
    pub(crate) fn optimal_alpha(&self) -> Option<f64> {
        self.best_above(0.0).map(|(alpha, _)| alpha)
    }

    /// The optimal alpha and its l, if that exceeds `min_gain`.
    pub(crate) fn best_above(&self, min_gain: f64) -> Option<(f64, f64)> {
        if self.has_closed_form() {
            let (alpha, gain) = (self.first.optimal_alpha(), self.first.largest_gain());
            // At zero a finite alpha decides: its gain may underflow.
            let is_above = gain > min_gain || min_gain <= 0.0;
            return (alpha.is_finite() && is_above).then_some((alpha, gain));
        }
        // As -ln(1 + x) <= -x / (1 + x), no term is above (q^2 - n s) / (2 alpha): a larger `min_gain` shortens the scan.
        let excess = |t: Term| (t.square - t.n * t.s).max(0.0);
        let end = self.terms().map(excess).sum::<f64>() / (2.0 * min_gain);
        highest(self.maxima(end)).filter(|best| best.1 > min_gain)
    }

    /// Whether equations (20) and (27) hold: one noise level and a flat prior.
    fn has_closed_form(&self) -> bool {
        self.others.is_empty() && self.prior.is_flat()
    }

    /// |change in ln alpha| by re-estimation; infinite for a deletion.
    pub(crate) fn change_from(&self, alpha: f64) -> f64 {
        self.reestimated(alpha)
            .map_or(f64::INFINITY, |best| (best / alpha).ln().abs())
    }

    /// The alpha to which re-estimation moves, infinite for a deletion, and the gain.
    pub(crate) fn best_move(&self, old: f64) -> (f64, f64) {
        match self.reestimated(old) {
            Some(alpha) => (alpha, self.gain_of_moving(old, alpha)),
            None => (f64::INFINITY, self.gain_of_deleting(old)),
        }
    }

    /// The alpha to which re-estimation moves, infinite for a deletion, and the gain; the present alpha if it can gain no more than about
    /// `least`. Of several maxima the nearest one counts, if the function gains there.
    pub(crate) fn near_move(&self, old: f64, least: f64) -> (f64, f64) {
        if !self.has_closed_form()
            && let Some(alpha) = self.ascend(old, least)
            && self
                .terms()
                .any(|term| alpha < Tuning::INFINITE_RATIO * term.s)
            && self.gain_of_deleting(alpha) < 0.0
        {
            let gain = self.gain_of_moving(old, alpha);
            if gain >= 0.0 {
                return (alpha, gain);
            }
        }
        self.best_move(old)
    }

    /// l(optimal alpha), the gain of adding the function: equation (27). 0 if the optimal alpha is infinite.
    pub(crate) fn gain_of_adding(&self) -> f64 {
        self.best_above(0.0).map_or(0.0, |(_, gain)| gain)
    }

    /// Upper bound on [`Factors::gain_of_adding`]: the sum of the largest values of the terms.
    pub(crate) fn bound(&self) -> f64 {
        self.terms().map(Term::largest_gain).sum()
    }

    /// l(new) - l(old).
    #[inline]
    pub(crate) fn gain_of_moving(&self, old: f64, new: f64) -> f64 {
        let others = self.others.iter().map(|term| term.gain_of_moving(old, new));
        let gain = self.first.gain_of_moving(old, new) + others.sum::<f64>();
        gain + (self.prior.log_density(new) - self.prior.log_density(old))
    }

    /// -l(alpha), the gain of deleting the function.
    #[inline]
    pub(crate) fn gain_of_deleting(&self, alpha: f64) -> f64 {
        let others = self.others.iter().map(|term| term.gain_of_deleting(alpha));
        self.first.gain_of_deleting(alpha) + others.sum::<f64>() - self.prior.log_density(alpha)
    }
}

/// Several noise levels, or an informative prior. `F(alpha) = sum_l 1/2 [n_l (ln alpha - ln(alpha + s_l)) + q_l^2 / (alpha + s_l)]`, plus
/// the log density of the prior, may have several maxima: `dF / d ln alpha` is
/// `1/2 sum_l [n_l s_l^2 - alpha (q_l^2 - n_l s_l)] / (alpha + s_l)^2 + a - b alpha`. Each term has at most one maximum, and the maxima of F
/// lie between the smallest and the largest of these.
impl Factors {
    /// The alpha to which re-estimation moves; `None` for infinity.
    ///
    /// This is the global maximum, or the nearest one in the direction of ascent if that is as good: a step without gain would be
    /// repeated for ever.
    #[inline]
    pub(crate) fn reestimated(&self, alpha: f64) -> Option<f64> {
        if self.has_closed_form() {
            return self.optimal_alpha();
        }
        let maxima = self.maxima(f64::INFINITY);
        let near = if self.derivatives(alpha).0 > 0.0 {
            maxima.iter().find(|maximum| maximum.0 >= alpha)
        } else {
            maxima.iter().rfind(|maximum| maximum.0 <= alpha)
        };
        let near = near.copied();
        let (best, gain) = highest(maxima).filter(|best| best.1 > 0.0)?;
        let near = near.filter(|near| gain - near.1 <= Tuning::MIN_GAIN);
        Some(near.map_or(best, |near| near.0))
    }

    /// The maximum that Newton's method in ln alpha finds from `alpha`; `alpha` itself if the first step would gain less than half of
    /// `least`, and `None` where steps do not converge.
    fn ascend(&self, alpha: f64, least: f64) -> Option<f64> {
        let (mut u, limit) = (alpha.ln(), Tuning::MAX_LN_CHANGE);
        for k in 0..20 {
            let (slope, curvature) = self.derivatives(u.exp());
            if curvature < 0.0 && k == 0 && slope * slope < -curvature * least {
                return Some(alpha);
            }
            let step = if curvature < 0.0 {
                (-slope / curvature).clamp(-limit, limit)
            } else {
                slope.signum()
            };
            u += step;
            if step.abs() < 1e-3 {
                return Some(u.exp().max(Tuning::ALPHA_FLOOR));
            }
        }
        None
    }

    /// dF / d ln alpha and its derivative.
    fn derivatives(&self, alpha: f64) -> (f64, f64) {
        let mut sum = self.first.derivatives(alpha);
        for &term in &self.others {
            let (slope, curvature) = term.derivatives(alpha);
            sum = (sum.0 + slope, sum.1 + curvature);
        }
        (
            sum.0 + self.prior.slope(alpha),
            sum.1 - self.prior.rate * alpha,
        )
    }

    /// Bounds on ln alpha of the maxima up to `end`, and whether there may be maxima above them.
    fn range(&self, end: f64) -> Option<(f64, f64, bool)> {
        let optima = || self.terms().map(Term::optimal_alpha);
        let least = optima().fold(f64::INFINITY, f64::min);
        let most = optima().fold(0.0, f64::max);
        let finite = Tuning::INFINITE_RATIO * self.terms().map(|term| term.s).fold(0.0, f64::max);
        let end = end.min(finite);
        // Log densities are never positive, so F is not either if no term has a maximum.
        if least == f64::INFINITY || end < least {
            return None;
        }
        let (mut low, mut high) = (least, most);
        if !self.prior.is_flat() {
            let peak = self.prior.shape / self.prior.rate;
            (low, high) = (low.min(peak), high.max(peak));
        }
        let low = low.max(Tuning::ALPHA_FLOOR);
        let (is_open, high) = (high > end, high.min(end).max(low));
        // Overflow can make a sparsity factor infinite.
        (high < f64::INFINITY).then(|| (low.ln(), high.ln(), is_open))
    }

    /// The finite local maxima up to `end`, ascending, and F there. Between two points of the grid at which F rises it may have one more
    /// maximum, which is hardly above the second point, and so below the maximum that follows.
    fn maxima(&self, end: f64) -> Vec<(f64, f64)> {
        let mut found = Vec::new();
        let Some((low, high, open)) = self.range(end) else {
            return found;
        };
        let mut visit = |alpha: f64| found.push((alpha, -self.gain_of_deleting(alpha)));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let n_steps = ((high - low) / Tuning::GRID_STEP).ceil() as usize;
        let mut left = (low, self.derivatives(low.exp()).0);
        let (mut alpha, factor) = (low.exp(), Tuning::GRID_STEP.exp());
        if left.1 <= 0.0 {
            visit(low.exp());
        }
        for k in 1..=n_steps {
            let u = (low + Tuning::GRID_STEP * k as f64).min(high);
            alpha = if k < n_steps { alpha * factor } else { u.exp() };
            let right = (u, self.derivatives(alpha).0);
            if left.1 > 0.0 && right.1 <= 0.0 {
                visit(self.root(left.0, right.0).exp());
            }
            left = right;
        }
        // The slope at the largest maximum of a term is negative, except by round-off.
        if left.1 > 0.0 && !open {
            visit(high.exp());
        }
        found
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

/// The first of the highest values.
fn highest(maxima: Vec<(f64, f64)>) -> Option<(f64, f64)> {
    maxima
        .into_iter()
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn factors(terms: &[Term], prior: Gamma) -> Factors {
        Factors::of_levels(terms[0], terms[1..].iter().copied(), prior)
    }

    fn flat(terms: &[Term]) -> Factors {
        factors(terms, Gamma::FLAT)
    }

    fn term(s: f64, square: f64) -> Term {
        let n = 1.0;
        Term { n, s, square }
    }

    fn l(f: &Factors, alpha: f64) -> f64 {
        let level = |Term { n, s, square }: Term| {
            n * (alpha.ln() - (alpha + s).ln()) + square / (alpha + s)
        };
        0.5 * f.terms().map(level).sum::<f64>() + f.prior.log_density(alpha)
    }

    /// One to five noise levels, under flat and informative priors.
    fn any_factors() -> impl Strategy<Value = Factors> {
        let term = (-4.0..4.0_f64, -3.0..3.0_f64, 1_u8..4, 0.0..2.0_f64);
        let term = term.prop_map(|(ln_s, ln_ratio, n, complexity)| {
            let (s, n) = (ln_s.exp(), f64::from(n));
            let square = n * s * (ln_ratio.exp() - complexity);
            Term { n, s, square }
        });
        let prior = prop_oneof![
            Just(Gamma::FLAT),
            (0.0..2.0_f64, 0.01..2.0_f64).prop_map(|(shape, rate)| Gamma { shape, rate }),
        ];
        let terms = proptest::collection::vec(term, 1..6);
        (terms, prior).prop_map(|(terms, prior)| factors(&terms, prior))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn the_best_alpha_is_the_maximum_of_a_dense_scan(f in any_factors()) {
            let scan = (0..4000).map(|k| l(&f, (f64::from(k) * 0.01 - 20.0).exp()));
            let scanned = scan.fold(0.0, f64::max);
            let (alpha, gain) = f.best_above(0.0).unwrap_or((f64::INFINITY, 0.0));
            // Where alpha counts as infinite l is no larger than the last term.
            prop_assert!(gain >= scanned - 1e-10 * (1.0 + scanned) - 100.0 / Tuning::INFINITE_RATIO);
            prop_assert!(gain <= f.bound() + 1e-12 * (1.0 + gain));
            if alpha.is_finite() {
                prop_assert!((l(&f, alpha) - gain).abs() < 1e-10 * (1.0 + gain));
                // Stationary, and unchanged by re-estimation.
                let size = 1.0 + f.bound() + f.prior.rate * alpha;
                prop_assert!(f.derivatives(alpha).0.abs() < 1e-9 * size);
                prop_assert!((f.reestimated(alpha).unwrap() / alpha).ln().abs() < 1e-6);
            }
        }

        #[test]
        fn derivatives_agree_with_finite_differences(f in any_factors(), u in -6.0..6.0_f64) {
            let h = 1e-4;
            let (slope, curvature) = f.derivatives(u.exp());
            let at = |u: f64| l(&f, u.exp());
            let slope_at = |u: f64| f.derivatives(u.exp()).0;
            let scale = 1e-6 * (1.0 + f.bound() + f.prior.rate * u.exp());
            prop_assert!(((at(u + h) - at(u - h)) / (2.0 * h) - slope).abs() < scale);
            prop_assert!(((slope_at(u + h) - slope_at(u - h)) / (2.0 * h) - curvature).abs() < scale);
        }

        #[test]
        fn gains_are_differences_of_l(f in any_factors(), old in 1e-3..1e3_f64, new in 1e-3..1e3_f64) {
            let scale = 1e-10 * (1.0 + f.bound() + f.prior.rate * old.max(new));
            prop_assert!((f.gain_of_moving(old, new) - (l(&f, new) - l(&f, old))).abs() < scale);
            prop_assert!((f.gain_of_deleting(old) + l(&f, old)).abs() < scale);
            let (alpha, gain) = f.near_move(old, 1e-3);
            prop_assert!(gain >= -1e-12);
            if alpha.is_finite() {
                prop_assert!((gain - (l(&f, alpha) - l(&f, old))).abs() < scale);
            }
        }
    }

    #[test]
    fn irrelevant_functions_have_infinite_alpha() {
        let infinite = term(f64::INFINITY, 9.0);
        for terms in [
            vec![term(0.0, 0.0)],
            vec![term(1.0, 1.0)],
            vec![term(2.0, 0.0)],
            vec![term(0.0, 0.0); 2],
            vec![term(1.0, 1.0), term(2.0, 1.0)],
            // One output gains less than the other loses.
            vec![term(1.0, 1.5), term(50.0, 0.0)],
            vec![term(2.0, 9.0), infinite],
            vec![infinite, term(2.0, 9.0)],
        ] {
            let (shape, rate) = (1.0, 1.0);
            for prior in [Gamma::FLAT, Gamma { shape, rate }] {
                let f = factors(&terms, prior);
                assert_eq!(f.best_above(0.0), None);
                assert_eq!(f.reestimated(1.0), None);
            }
        }
    }

    #[test]
    fn the_higher_of_two_maxima_is_found() {
        // A strong signal in a noisy output and a weak one in a precise output.
        let shared = flat(&[term(1.0, 30.0), term(1e4, 1.3e4)]);
        let maxima = shared.maxima(f64::INFINITY);
        let [first, second] = maxima[..] else {
            panic!("{maxima:?}");
        };
        let (higher, lower) = if second.1 > first.1 {
            (second.0, first.0)
        } else {
            (first.0, second.0)
        };
        let best = shared.best_above(0.0).unwrap().0;
        assert!((best / higher - 1.0).abs() < 1e-15);
        // Re-estimation moves to the higher maximum from either side.
        assert_eq!(shared.reestimated(lower), Some(best));
    }
}
