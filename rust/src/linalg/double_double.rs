//! Double-double arithmetic: unevaluated sums of two floats with about 106 bits, for sums whose terms cancel.
//!
//! The error-free transformations are Knuth's (`two_sum`) and the fused product's; see Ogita, Rump & Oishi (2005),
//! Accurate sum and dot product.

/// `high + low`, where `low` is the rounding error of `high`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DoubleDouble {
    pub(crate) high: f64,
    pub(crate) low: f64,
}

/// `a + b` rounded, and its rounding error.
#[inline]
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_rounded = sum - a;
    (sum, (a - (sum - b_rounded)) + (b - b_rounded))
}

impl DoubleDouble {
    #[inline]
    fn normal(high: f64, low: f64) -> Self {
        let (high, low) = two_sum(high, low);
        Self { high, low }
    }

    /// `a b`, exactly.
    #[inline]
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self {
            high,
            low: a.mul_add(b, -high),
        }
    }

    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        let (high, low) = two_sum(self.high, other.high);
        Self::normal(high, low + (self.low + other.low))
    }

    #[inline]
    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self {
            high: -other.high,
            low: -other.low,
        })
    }

    #[inline]
    pub(crate) fn times(self, other: Self) -> Self {
        let Self { high, low } = Self::product(self.high, other.high);
        Self::normal(high, low + (self.high * other.low + self.low * other.high))
    }

    #[inline]
    pub(crate) fn over(self, divisor: Self) -> Self {
        let high = self.high / divisor.high;
        let remainder = self.minus(divisor.times(high.into()));
        Self::normal(high, remainder.high / divisor.high)
    }

    /// Rounds to a single float.
    #[inline]
    pub(crate) fn value(self) -> f64 {
        self.high + self.low
    }
}

impl From<f64> for DoubleDouble {
    fn from(high: f64) -> Self {
        Self { high, low: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellation_keeps_the_low_bits() {
        let tiny = 1e-25;
        let sum = DoubleDouble::from(3.0).plus(tiny.into()).minus(3.0.into());
        assert!((sum.value() / tiny - 1.0).abs() < 1e-5);
        let third = DoubleDouble::from(1.0).over(3.0.into());
        let left = third.times(3.0.into()).minus(1.0.into());
        assert!(left.value().abs() < 1e-31);
        // (1 + e)^2 - 1 - 2 e = e^2
        let e = 1e-10;
        let square = DoubleDouble::product(1.0 + e, 1.0 + e);
        let rest = square
            .minus(DoubleDouble::product(2.0, 1.0 + e))
            .plus(1.0.into());
        let exact = ((1.0 + e) - 1.0) * ((1.0 + e) - 1.0);
        assert!((rest.value() / exact - 1.0).abs() < 1e-10);
    }
}
