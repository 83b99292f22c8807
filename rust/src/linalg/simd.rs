//! Loops compiled once for each instruction set and chosen at run time.
//!
//! No fused multiply-add is asked for and every element goes through the same operations wherever it lies in a slice,
//! so the result is the same to the bit on every path: only the speed differs.

pub(crate) use pulp::{Simd, WithSimd};

/// Runs `work`, and all that is inlined into it, with the widest vectors this processor has.
///
/// A closure serves while it is short. One that the compiler finds too long to inline is compiled once, for the
/// plainest processor, and nothing tells: long work is a struct whose `with_simd` is `#[inline(always)]`.
#[inline]
pub(crate) fn dispatch<W: WithSimd>(work: W) -> W::Output {
    pulp::Arch::new().dispatch(work)
}

/// Below this exp is 0: the last of the normal numbers.
const LEAST: f64 = -708.0;
/// Above this exp is infinite (a little early: the true limit is 709.78).
const MOST: f64 = 709.0;

/// e^x to 1 unit in the last place, without branches so that a loop over it becomes vector code.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor series of e^r to degree 13 ends below 5e-18. Results under 2^-1021
/// are flushed to zero. The standard library's `exp` is a call per element.
#[inline(always)]
#[allow(clippy::inline_always)] // a call would stop the vectoriser
pub(crate) fn exp(x: f64) -> f64 {
    // Adding 1.5 * 2^52 leaves the nearest integer in the low bits; 1023 more makes it a biased exponent.
    const SHIFT: f64 = 6_755_399_441_055_744.0 + 1023.0;
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const TAYLOR: [f64; 12] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
    ];
    let inside = x.clamp(LEAST, MOST);
    let shifted = inside * std::f64::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = (inside - n * LN2_HIGH) - n * LN2_LOW;
    let mut tail = TAYLOR[0];
    for c in &TAYLOR[1..] {
        tail = tail * r + c;
    }
    let value = (1.0 + (r + r * r * tail)) * f64::from_bits(shifted.to_bits() << 52);
    let value = if x > MOST { f64::INFINITY } else { value };
    if x < LEAST { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut worst = 0;
        for i in -708_000..=709_000_i32 {
            let x = f64::from(i) * 1e-3;
            let (ours, theirs) = (exp(x), x.exp());
            worst = worst.max(ours.to_bits().abs_diff(theirs.to_bits()));
        }
        assert!(worst <= 2, "{worst}");
    }

    #[test]
    fn exp_has_the_right_limits() {
        assert!(exp(f64::NAN).is_nan());
        assert!(exp(-1e9) == 0.0 && exp(f64::NEG_INFINITY) == 0.0);
        assert!(exp(1e9).is_infinite() && exp(f64::INFINITY).is_infinite());
        assert_eq!(
            [exp(0.0), exp(-0.0)].map(f64::to_bits),
            [1.0_f64.to_bits(); 2]
        );
    }

    #[test]
    fn an_element_does_not_depend_on_its_place() {
        let values: Vec<f64> = (0..37).map(|i| -f64::from(i) * 0.37).collect();
        for start in 0..9 {
            let mut part = values[start..].to_vec();
            dispatch(|| part.iter_mut().for_each(|v| *v = exp(*v)));
            for (p, v) in part.iter().zip(&values[start..]) {
                assert_eq!(p.to_bits(), exp(*v).to_bits());
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_vector_paths_are_compiled_in() {
        // Without its features `x86-v3` and `x86-v4` pulp knows no processor, and `dispatch` does nothing.
        let wide = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
        assert!(!wide || format!("{:?}", pulp::Arch::new()) != "Scalar");
    }
}
