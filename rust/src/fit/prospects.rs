//! What re-estimations gain at most, for all of the active set at once.

use std::ops::Range;

use super::action::Factors;
use super::state::State;
use crate::linalg::simd::{Simd, WithSimd, dispatch};

/// Active functions that are looked at together.
pub(super) const TOGETHER: usize = 64;

/// What re-estimating each of these active functions gains at most; infinite where that has to be looked at more closely.
pub(super) fn most_gains(state: &State, these: Range<usize>, out: &mut [f64]) {
    let out = &mut out[..these.len()];
    if !state.priors[these.clone()].iter().all(|p| p.is_flat()) {
        out.fill(f64::INFINITY);
        return;
    }
    // The variances lie in as many columns.
    for (k, variance) in these.clone().zip(&mut *out) {
        *variance = state.sigma[(k, k)];
    }
    dispatch(MostGains {
        alpha: &state.alpha[these.clone()],
        mean: &state.mu[these],
        out,
    });
}

/// From the variances in `out` to the gains.
struct MostGains<'a> {
    alpha: &'a [f64],
    mean: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for MostGains<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        for ((out, &alpha), &mean) in self.out.iter_mut().zip(self.alpha).zip(self.mean) {
            *out = Factors::most_gain_by_posterior(alpha, *out, mean);
        }
    }
}
