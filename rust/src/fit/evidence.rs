//! The marginal likelihood as a function of one alpha: Tipping & Faul (2003), section 3. This file knows numbers only, no
//! matrices.
//!
//! With all other hyperparameters fixed, ln p(t) of one output depends on alpha through
//! `l(alpha) = 1/2 [ln alpha - ln(alpha + s) + q^2 / (alpha + s)]` (equation 18), where s and q are the sparsity and
//! quality factors with the function left out. Outputs share alpha, so their terms add up: n outputs with the same noise share s,
//! and `l(alpha) = 1/2 [n (ln alpha - ln(alpha + s)) + q^2 / (alpha + s)]` with q^2 the sum over them. Several noise levels are
//! treated in [`shared_evidence`](crate::fit::shared_evidence). All gains are in nats.
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
    /// The quality factor; of several outputs the root of the sum of squares.
    pub(crate) q: f64,
}

impl Term {
    /// The factors of an active function from its posterior variance and its mean (of several outputs the root of the sum of squares):
    /// Sigma_jj = 1 / (alpha + s) and mu_j = q / (alpha + s) are equivalent to equation (23).
    pub(crate) fn from_posterior(n: f64, alpha: f64, variance: f64, mean: f64) -> Self {
        Self {
            n,
            s: (1.0 / variance - alpha).max(0.0),
            q: mean / variance,
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

    /// q^2 / (n s).
    pub(crate) fn ratio(self) -> f64 {
        self.q * (self.q / (self.n * self.s))
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

    /// The optimal alpha and the gain of moving there.
    #[inline]
    pub(crate) fn best_move(self, old: f64) -> (f64, f64) {
        let alpha = self.optimal_alpha();
        if alpha == f64::INFINITY {
            (alpha, self.gain_of_deleting(old))
        } else {
            (alpha, self.gain_of_moving(old, alpha))
        }
    }

    /// l(new) - l(old): equation (32), appendix A.3, in s and q instead of S and Q. Computed without cancellation:
    /// ln(new/(new+s)) - ln(old/(old+s)) = ln(1 + s (new - old) / (old (new + s))).
    fn gain_of_moving(self, old: f64, new: f64) -> f64 {
        let Self { n, s, q } = self;
        let quadratic = q * q * (old - new) / ((new + s) * (old + s));
        0.5 * (n * (s * (new - old) / (old * (new + s))).ln_1p() + quadratic)
    }

    /// -l(alpha): equation (37), appendix A.4, in s and q instead of S and Q.
    fn gain_of_deleting(self, alpha: f64) -> f64 {
        let Self { n, s, q } = self;
        0.5 * (n * (s / alpha).ln_1p() - q * q / (alpha + s))
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
    /// The factors of one output.
    pub(crate) fn new(s: f64, q: f64, prior: Gamma) -> Self {
        Self::of_level(Term { n: 1.0, s, q }, prior)
    }

    /// The factors of outputs with one noise level.
    #[inline]
    pub(crate) fn of_level(first: Term, prior: Gamma) -> Self {
        Self {
            first,
            others: Vec::new(),
            prior,
        }
    }

    /// The factors of outputs with several noise levels.
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
        if self.others.is_empty() && self.prior.is_flat() {
            let alpha = self.first.optimal_alpha();
            return alpha.is_finite().then_some(alpha);
        }
        self.best_above(0.0).map(|(alpha, _)| alpha)
    }

    /// The optimal alpha and its l, if that exceeds `min_gain`.
    pub(crate) fn best_above(&self, min_gain: f64) -> Option<(f64, f64)> {
        let best = if !self.others.is_empty() {
            return self.best_of_levels(min_gain);
        } else if self.prior.is_flat() {
            let alpha = self.first.optimal_alpha();
            alpha
                .is_finite()
                .then(|| (alpha, self.first.largest_gain()))
        } else {
            self.peak()
        };
        // At zero a finite alpha decides: its gain may underflow.
        best.filter(|&(_, gain)| gain > min_gain || min_gain <= 0.0)
    }

    /// |change in ln alpha| by re-estimation; infinite for a deletion.
    pub(crate) fn change_from(&self, alpha: f64) -> f64 {
        self.reestimated(alpha)
            .map_or(f64::INFINITY, |best| (best / alpha).ln().abs())
    }

    /// The alpha to which re-estimation moves; `None` for infinity.
    #[inline]
    pub(crate) fn reestimated(&self, alpha: f64) -> Option<f64> {
        if self.others.is_empty() {
            self.optimal_alpha()
        } else {
            self.reestimated_for_levels(alpha)
        }
    }

    /// The alpha to which re-estimation moves, infinite for a deletion, and the gain.
    pub(crate) fn best_move(&self, old: f64) -> (f64, f64) {
        match self.reestimated(old) {
            Some(alpha) => (alpha, self.gain_of_moving(old, alpha)),
            None => (f64::INFINITY, self.gain_of_deleting(old)),
        }
    }

    /// l(optimal alpha), the gain of adding the function: equation (27). 0 if the optimal alpha is infinite.
    pub(crate) fn gain_of_adding(&self) -> f64 {
        if self.others.is_empty() && self.prior.is_flat() {
            return self.first.largest_gain();
        }
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
        if self.prior.is_flat() {
            gain
        } else {
            gain + (self.prior.log_density(new) - self.prior.log_density(old))
        }
    }

    /// -l(alpha), the gain of deleting the function.
    #[inline]
    pub(crate) fn gain_of_deleting(&self, alpha: f64) -> f64 {
        let others = self.others.iter().map(|term| term.gain_of_deleting(alpha));
        let gain = self.first.gain_of_deleting(alpha) + others.sum::<f64>();
        if self.prior.is_flat() {
            gain
        } else {
            gain - self.prior.log_density(alpha)
        }
    }

    /// The alpha that maximizes l of one noise level under an informative prior, and the maximum; `None` if that is not positive.
    ///
    /// With u = alpha / s, and a and b the parameters of the prior divided by n, the slope of l / n in ln alpha is
    /// `g(u) / (2 (1 + u)^2)`, where `g(u) = -2 b s u^3 + (2 a - 4 b s) u^2 + (4 a - 2 b s - excess) u + 1 + 2 a`
    /// starts positive and ends negative: one maximum, or two.
    fn peak(&self) -> Option<(f64, f64)> {
        let Term { n, s, .. } = self.first;
        let excess = self.first.excess();
        // The log density is never positive, so without an excess l is negative. NaN also returns.
        if s <= 0.0 || !(excess > 0.0 && excess.is_finite()) {
            return None;
        }
        let (a, bs) = (self.prior.shape / n, self.prior.rate / n * s);
        let cubic = [
            1.0 + 2.0 * a,
            4.0 * a - 2.0 * bs - excess,
            2.0 * a - 4.0 * bs,
            -2.0 * bs,
        ];
        let value = |u: f64| {
            0.5 * n * ((1.0 + excess) / (1.0 + u) - (1.0 / u).ln_1p())
                + self.prior.log_density(s * u)
        };
        falling_roots(cubic)
            .filter(|&u| u < Tuning::INFINITE_RATIO)
            .map(|u| ((s * u).max(Tuning::ALPHA_FLOOR), value(u)))
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
        Factors::new(s, q, Gamma::FLAT)
    }

    fn l(f: &Factors, alpha: f64) -> f64 {
        let level =
            |Term { n, s, q }: Term| n * (alpha.ln() - (alpha + s).ln()) + q * q / (alpha + s);
        0.5 * f.terms().map(level).sum::<f64>() + f.prior.log_density(alpha)
    }

    proptest! {
        #[test]
        fn gains_are_differences_of_l(
            s in 0.01..100.0_f64, q in -30.0..30.0_f64, old in 1e-3..1e3_f64, new in 1e-3..1e3_f64,
            shape in 0.0..2.0_f64, rate in 0.0..2.0_f64,
        ) {
            for prior in [Gamma::FLAT, Gamma { shape, rate }, Gamma { shape: 0.0, rate }] {
                let f = Factors::new(s, q, prior);
                let slack = 1e-9 * (1.0 + q * q + 1e3 * rate);
                prop_assert!((f.gain_of_moving(old, new) - (l(&f, new) - l(&f, old))).abs() < slack);
                prop_assert!((f.gain_of_deleting(old) + l(&f, old)).abs() < slack);
            }
        }

        #[test]
        fn optimal_alpha_is_the_maximum(s in 0.01..100.0_f64, q in -30.0..30.0_f64, factor in 0.1..10.0_f64) {
            let f = flat(s, q);
            match f.optimal_alpha() {
                Some(best) => {
                    prop_assert!(l(&f, best) >= l(&f, best * factor) - 1e-12);
                    prop_assert!((f.gain_of_adding() - l(&f, best)).abs() < 1e-9 * (1.0 + q * q));
                }
                None => prop_assert!(l(&f, factor) <= 1e-12),
            }
        }

        #[test]
        fn under_a_prior_optimal_alpha_is_the_global_maximum(
            ln_s in -8.0..8.0_f64, ratio in 0.0..40.0_f64, ln_shape in -15.0..3.0_f64, ln_rate in -15.0..3.0_f64,
        ) {
            let s = ln_s.exp();
            let prior = Gamma { shape: ln_shape.exp(), rate: ln_rate.exp() };
            let f = Factors::new(s, (ratio * s).sqrt(), prior);
            let scan = (-4000..4000).map(|k| l(&f, s * (0.005 * f64::from(k)).exp())).fold(0.0, f64::max);
            // Bound on l where alpha counts as infinite.
            let least = 0.5 * ratio / Tuning::INFINITE_RATIO;
            prop_assert!(f.gain_of_adding() >= scan - least - 1e-9 * (1.0 + scan));
            if let Some(best) = f.optimal_alpha() {
                prop_assert!((f.gain_of_adding() - l(&f, best)).abs() < 1e-9 * (1.0 + ratio));
                let slope = 0.5 * (s / (best + s) - best * ratio * s / (best + s).powi(2)) + prior.slope(best);
                prop_assert!(slope.abs() < 1e-9 * (1.0 + ratio + prior.shape + prior.rate * best));
            }
        }

        #[test]
        fn a_nearly_flat_prior_has_the_gains_of_a_flat_one(s in 0.01..100.0_f64, q in -30.0..30.0_f64) {
            let f = Factors::new(s, q, Gamma { shape: 1e-22, rate: 1e-22 });
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
            for f in [Factors { prior, ..f.clone() }, f] {
                assert_eq!(f.optimal_alpha(), None);
                assert!(f.gain_of_adding() == 0.0);
            }
        }
    }
}
