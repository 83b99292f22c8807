//! The standard normal cdf Phi and the hazard phi / Phi, accurate in the tails and without branches.
//!
//! Both use the Mills ratio R(t) = (1 - Phi(t)) / phi(t) for t >= 0, which neither under- nor overflows:
//! Phi(x) = phi(x) R(-x) for x < 0 and 1 - phi(x) R(x) for x >= 0.

use crate::linalg::simd::{exp, multiply_add};

/// 1 / sqrt(2 pi).
pub(crate) const DENSITY_AT_ZERO: f64 = 0.398_942_280_401_432_7;

/// R(t) = (1 - Phi(t)) / phi(t) for t >= 0, with a relative error of 1.3e-15.
///
/// (t + 5) R(t) is a smooth function of q = (t - 5) / (t + 5), which maps [0, infinity) to [-1, 1): its Chebyshev
/// series of degree 20, as in Shepherd & Laframboise (1981), Math. Comp. 36, computed with 40 digits.
#[inline(always)]
pub(crate) fn mills<const FUSED: bool>(t: f64) -> f64 {
    const SHIFT: f64 = 5.0;
    /// Coefficients of q^20, q^18, ... and of q^19, q^17, ...: two short chains of products instead of a long one.
    const EVEN: [f64; 11] = [
        1.242_066_901_448_768_1e-8,
        -1.432_713_623_042_285e-7,
        1.052_048_919_771_784_4e-6,
        -6.911_786_606_852_027e-6,
        4.179_730_027_883_398e-5,
        -1.488_272_358_923_992e-4,
        -1.999_963_201_194_449_6e-3,
        5.212_550_256_359_428_6e-2,
        4.136_447_157_230_846e-1,
        1.241_547_061_574_104_4,
        1.928_081_047_153_156_6,
    ];
    const ODD: [f64; 10] = [
        -5.943_468_181_408_511e-9,
        7.486_860_348_107_56e-8,
        -8.110_876_317_602_475e-7,
        9.956_648_293_551_802e-6,
        -1.247_271_940_573_104_6e-4,
        1.365_856_656_551_665_8e-3,
        -7.503_282_371_966_785_5e-3,
        -1.732_547_341_315_674_4e-1,
        -7.859_110_755_445_217e-1,
        -1.667_866_595_188_987_3,
    ];
    let inverse = 1.0 / (t + SHIFT);
    let q = multiply_add::<FUSED>(-2.0 * SHIFT, inverse, 1.0);
    let square = q * q;
    let (mut even, mut odd) = (EVEN[0], ODD[0]);
    for c in &EVEN[1..] {
        even = multiply_add::<FUSED>(even, square, *c);
    }
    for c in &ODD[1..] {
        odd = multiply_add::<FUSED>(odd, square, *c);
    }
    inverse * multiply_add::<FUSED>(odd, q, even)
}

/// Phi at a point, scaled so that it does not underflow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cdf {
    /// Phi(x) exp(min(x, 0)^2 / 2).
    pub(crate) scaled: f64,
    /// phi(x) / Phi(x), the derivative of ln Phi.
    pub(crate) hazard: f64,
}

/// Phi and its hazard for any x.
#[inline(always)]
pub(crate) fn cdf<const FUSED: bool>(x: f64) -> Cdf {
    let right = x.max(0.0);
    let density = DENSITY_AT_ZERO * exp::<FUSED>(-0.5 * right * right);
    let tail = density * mills::<FUSED>(x.abs());
    let scaled = if x < 0.0 { tail } else { 1.0 - tail };
    Cdf {
        scaled,
        hazard: density / scaled,
    }
}

/// [`cdf`] for x <= 0, which needs no exponential.
#[inline(always)]
pub(crate) fn left_cdf<const FUSED: bool>(x: f64) -> Cdf {
    let scaled = DENSITY_AT_ZERO * mills::<FUSED>(-x);
    Cdf {
        scaled,
        hazard: DENSITY_AT_ZERO / scaled,
    }
}

/// ln Phi(x).
pub(crate) fn log_cdf(x: f64) -> f64 {
    let left = x.min(0.0);
    if x < 0.0 {
        cdf::<false>(x).scaled.ln() - 0.5 * left * left
    } else {
        (-DENSITY_AT_ZERO * exp::<false>(-0.5 * x * x) * mills::<false>(x)).ln_1p()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// R(t) from its continued fraction 1/(t + 1/(t + 2/(t + 3/...))), for t >= 2.
    fn fraction(t: f64) -> f64 {
        let below = (1..4000).rev().fold(t, |below, k| t + f64::from(k) / below);
        1.0 / below
    }

    proptest! {
        #[test]
        fn hazards_have_small_relative_errors(x in -1e4..37.0_f64) {
            let expected = if x < -3.0 {
                1.0 / fraction(-x)
            } else {
                let phi = DENSITY_AT_ZERO * (-0.5 * x * x).exp();
                phi / (0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2))
            };
            let here = cdf::<true>(x).hazard;
            // Rounding of x^2 / 2 in the exponent is shared with the formula.
            prop_assert!((here / expected - 1.0).abs() < 1e-13, "{x}: {here} {expected}");
            if x < 0.0 {
                prop_assert!((left_cdf::<true>(x).hazard / expected - 1.0).abs() < 1e-13);
            }
        }

        #[test]
        fn tails_stay_accurate(x in 1e2..1e12_f64) {
            prop_assert!((cdf::<true>(-x).hazard / x - 1.0).abs() < 1.0 / (x * x) + 1e-14);
            prop_assert!(cdf::<true>(x).hazard < 1e-300);
            prop_assert!((cdf::<true>(x).scaled - 1.0).abs() < 1e-300);
            prop_assert!(log_cdf(-x) <= -0.5 * x * x && log_cdf(-x).is_finite());
            prop_assert!(log_cdf(x).abs() < 1e-300);
        }
    }
}
