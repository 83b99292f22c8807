//! Loops compiled once for each instruction set and chosen at run time.
//!
//! Every element goes through the same operations wherever it lies in a slice, so the result does not depend on how the
//! work is divided. Results with and without fused multiply-add instructions differ in the last bits.

pub(crate) use pulp::{Simd, WithSimd};

/// Runs `work`, and everything that is inlined into it, with the widest vectors of this processor.
///
/// `work` may be a short closure. The compiler does not inline a long closure and silently compiles it for the baseline
/// instruction set: long work must be a struct whose `with_simd` is `#[inline(always)]`.
#[inline]
pub(crate) fn dispatch<W: WithSimd>(work: W) -> W::Output {
    pulp::Arch::new().dispatch(work)
}

/// Defines a struct that runs `$body` in [`dispatch`].
#[cfg(feature = "fit")]
macro_rules! vectorised {
    ($name:ident { $($field:ident: $type:ty),* } -> $output:ty, |$this:ident| $body:expr) => {
        struct $name<'a> { $($field: $type),* }

        impl $crate::linalg::simd::WithSimd for $name<'_> {
            type Output = $output;

            #[inline(always)]
            fn with_simd<S: $crate::linalg::simd::Simd>(self, _: S) -> $output {
                let $this = self;
                $body
            }
        }
    };
}
#[cfg(feature = "fit")]
pub(crate) use vectorised;

/// [`exp`] is 0 below this argument, where results become subnormal.
const MIN_EXPONENT: f64 = -708.0;
/// [`exp`] is infinite above this argument (a little early: the true limit is 709.78).
const MAX_EXPONENT: f64 = 709.0;

/// Whether this instruction set has fused multiply-add.
#[inline(always)]
pub(crate) fn is_fused<S: Simd>(_: S) -> bool {
    S::F64_LANES > 1
}

/// a b + c; fused only where the processor has an instruction for it, because `mul_add` is otherwise a function call.
#[inline(always)]
pub(crate) fn multiply_add<const FUSED: bool>(a: f64, b: f64, c: f64) -> f64 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// `y += c x`.
#[inline(always)]
pub(crate) fn axpy(c: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += c * x;
    }
}

/// e^x to 2 units in the last place, without branches so that a loop over it becomes vector code.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 p(r). The standard library's `exp` is a call per element.
/// Results under 2^-1021 are flushed to zero.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f64) -> f64 {
    // Adding 1.5 * 2^52 leaves the nearest integer in the low bits; 1023 more makes it a biased exponent.
    const SHIFT: f64 = 6_755_399_441_055_744.0 + 1023.0;
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    /// p, highest power first: interpolates (e^r - 1 - r) / r^2 at ten Chebyshev nodes; relative error of e^r below 2e-17.
    const P: [f64; 10] = [
        2.510_038_549_551_032e-8,
        2.762_008_844_540_974_6e-7,
        2.755_726_845_999_706_4e-6,
        2.480_152_129_595_437_6e-5,
        1.984_126_986_305_361_8e-4,
        1.388_888_891_721_371_7e-3,
        8.333_333_333_330_062e-3,
        4.166_666_666_662_413e-2,
        1.666_666_666_666_666_9e-1,
        5.000_000_000_000_001e-1,
    ];
    let inside = x.clamp(MIN_EXPONENT, MAX_EXPONENT);
    let shifted = multiply_add::<FUSED>(inside, std::f64::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = multiply_add::<FUSED>(n, -LN2_HIGH, inside);
    let r = multiply_add::<FUSED>(n, -LN2_LOW, r);
    let mut p = P[0];
    for c in &P[1..] {
        p = multiply_add::<FUSED>(p, r, *c);
    }
    let power = f64::from_bits(shifted.to_bits() << 52);
    let value = (1.0 + multiply_add::<FUSED>(r * r, p, r)) * power;
    let value = if x > MAX_EXPONENT {
        f64::INFINITY
    } else {
        value
    };
    if x < MIN_EXPONENT { 0.0 } else { value }
}

/// ln(1 + x) for x in [0, 1] to 2 units in the last place, as [`exp`] without branches.
///
/// It is 2 artanh(s) = 2 s (1 + s^2 p(s^2)) with s = x / (2 + x), which is at most 1/3.
#[cfg(feature = "fit")]
#[inline(always)]
pub(crate) fn ln_1p<const FUSED: bool>(x: f64) -> f64 {
    /// p, lowest power first: interpolates (artanh(s) / s - 1) / s^2 at ten Chebyshev nodes of s^2; error of 1 + s^2 p
    /// below 6e-18.
    const P: [f64; 10] = [
        0.333_333_333_333_333_3,
        0.200_000_000_000_072_92,
        0.142_857_142_835_543_63,
        0.111_111_113_587_154_27,
        0.090_908_947_179_912_24,
        0.076_927_850_345_906_4,
        0.066_570_720_701_986_19,
        0.060_005_367_342_453_13,
        0.044_003_675_598_681_56,
        0.080_820_263_760_882_47,
    ];
    let s = x / (2.0 + x);
    let square = s * s;
    let (pairs, fourth) = (P.as_chunks::<2>().0, square * square);
    // Pairs of terms, because that halves the chain of dependent operations.
    let pair = |[low, high]: [f64; 2]| multiply_add::<FUSED>(high, square, low);
    let mut p = pair(pairs[4]);
    for &terms in pairs[..4].iter().rev() {
        p = multiply_add::<FUSED>(p, fourth, pair(terms));
    }
    let twice = s + s;
    multiply_add::<FUSED>(twice * square, p, twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "fit")]
    #[test]
    fn ln_1p_is_within_two_units_in_the_last_place() {
        let mut worst = 0;
        for i in 0..=1_000_000_i32 {
            let x = f64::from(i) * 1e-6;
            for x in [x, x * 1e-9] {
                for ours in [ln_1p::<true>(x), ln_1p::<false>(x)] {
                    worst = worst.max(ours.to_bits().abs_diff(x.ln_1p().to_bits()));
                }
            }
        }
        assert!(worst <= 2, "{worst}");
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0;
        for i in -708_000..=709_000_i32 {
            let x = f64::from(i) * 1e-3;
            for ours in [exp::<true>(x), exp::<false>(x)] {
                worst = worst.max(ours.to_bits().abs_diff(x.exp().to_bits()));
            }
        }
        assert!(worst <= 2, "{worst}");
    }

    #[test]
    fn exp_has_the_right_limits() {
        assert!(exp::<true>(f64::NAN).is_nan());
        assert!(exp::<true>(-1e9) == 0.0 && exp::<true>(f64::NEG_INFINITY) == 0.0);
        assert!(exp::<true>(1e9).is_infinite() && exp::<true>(f64::INFINITY).is_infinite());
        assert_eq!(
            [exp::<true>(0.0), exp::<false>(-0.0)].map(f64::to_bits),
            [1.0_f64.to_bits(); 2]
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_vector_paths_are_compiled_in() {
        // Without its features `x86-v3` and `x86-v4` pulp only knows scalar code.
        let wide = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
        assert!(!wide || format!("{:?}", pulp::Arch::new()) != "Scalar");
    }
}
