//! Double-double arithmetic: unevaluated sums of two floats with about 106 bits, for sums whose terms cancel.
//!
//! The error-free transformations are Knuth's (`two_sum`) and the fused product's; see Ogita, Rump & Oishi (2005),
//! Accurate sum and dot product.
//!
//! [`Gram`] is A^T A summed over rows in more than double precision. From sums, the residual sum of squares is a difference:
//! t^T t - 2 b^T w + w^T G w. With large weights of opposite signs it consists only of the rounding errors of G. So each column of
//! a strip of rows is split into A = H + L with 22 bits in H: the products in H^T H have 44 bits, 512 of them 53, so that their
//! sum is exact. The rest, H^T L + L^T A, is 22 bits smaller, and so is its rounding error. The error of an element is about
//! 2^-75 of the lengths of its two columns instead of 2^-53, for three products instead of one (Ozaki, Ogita, Oishi & Rump
//! 2012, Error-free transformations of matrix multiplication).

use crate::linalg::columns::{AlignedColumns, stride};
use crate::linalg::gemm::{RUN, TallMatrix, add_lower_transpose_product};
use crate::parallel::fill_pieces;

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

/// Most rows per strip; with more the sums of H^T H would not be exact.
pub(crate) const STRIP: usize = RUN;
/// Columns per task of a thread.
const COLUMNS: usize = 24;

/// At most [`STRIP`] rows of A, column-major, with both parts of each column.
pub(crate) struct Strip {
    n_rows: usize,
    /// Distance between columns.
    stride: usize,
    whole: AlignedColumns,
    coarse: AlignedColumns,
    rest: AlignedColumns,
}

impl Strip {
    /// An empty strip for up to `n_rows` rows, at most [`STRIP`].
    pub(crate) fn new(n_columns: usize, n_rows: usize) -> Self {
        let stride = stride(n_rows.min(STRIP));
        let zeros = AlignedColumns::zeros(n_columns * stride);
        Self {
            n_rows: 0,
            stride,
            coarse: zeros.clone(),
            rest: zeros.clone(),
            whole: zeros,
        }
    }

    /// Replaces the rows: `fill(first, columns)` writes some columns, beginning with `first`, `n_rows` values each.
    pub(crate) fn fill(
        &mut self,
        n_rows: usize,
        fill: impl Fn(usize, &mut [&mut [f64]]) + Sync + Send,
    ) {
        let stride = self.stride;
        self.n_rows = n_rows;
        fill_pieces(&mut self.whole, COLUMNS * stride, |start, values| {
            let columns = values.chunks_exact_mut(stride);
            let mut columns: Vec<&mut [f64]> = columns.map(|c| &mut c[..n_rows]).collect();
            fill(start / stride, &mut columns);
        });
    }

    /// The values of one column.
    pub(crate) fn column(&self, j: usize) -> &[f64] {
        &self.whole[j * self.stride..][..self.n_rows]
    }

    /// Splits each column into a coarse part and the rest.
    fn split(&mut self) {
        let (whole, n, stride) = (&self.whole, self.n_rows, self.stride);
        fill_pieces(&mut self.coarse, COLUMNS * stride, |start, coarse| {
            let whole = whole[start..].chunks_exact(stride);
            for (coarse, whole) in coarse.chunks_exact_mut(stride).zip(whole) {
                round(&whole[..n], &mut coarse[..n]);
            }
        });
        let coarse = &self.coarse;
        fill_pieces(&mut self.rest, COLUMNS * stride, |start, rest| {
            let parts = whole[start..].iter().zip(&coarse[start..]);
            for (rest, (whole, coarse)) in rest.iter_mut().zip(parts) {
                *rest = whole - coarse;
            }
        });
    }
}

/// Rounds a column to 22 bits, counted from its largest value.
fn round(whole: &[f64], coarse: &mut [f64]) {
    /// Products of smaller values underflow; the rest holds such columns.
    const TINY: f64 = 1e-150;
    const BITS: u64 = 22;
    let largest = whole
        .iter()
        .fold(0.0_f64, |largest, v| largest.max(v.abs()));
    if largest < TINY {
        coarse.fill(0.0);
        return;
    }
    // largest < 2^power; adding 1.5 * 2^52 units, a unit being 2^(power - 22), rounds to units.
    let biased = largest.to_bits() >> 52;
    let shift = 1.5 * f64::from_bits((biased + 1 + 52 - BITS) << 52);
    for (coarse, whole) in coarse.iter_mut().zip(whole) {
        *coarse = (whole + shift) - shift;
    }
}

/// The sum of A^T A over the strips added.
///
/// Column j of `values` holds the high parts of all rows and then their low parts; only the lower triangle is used.
#[derive(Debug, Clone)]
pub(crate) struct Gram {
    size: usize,
    values: Vec<f64>,
}

impl Gram {
    /// `None` if there is not enough memory.
    pub(crate) fn zeros(size: usize) -> Option<Self> {
        let length = size.checked_mul(size)?.checked_mul(2)?;
        let mut values = Vec::new();
        values.try_reserve_exact(length).ok()?;
        values.resize(length, 0.0);
        Some(Self { size, values })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// One element.
    #[inline]
    pub(crate) fn at(&self, i: usize, j: usize) -> DoubleDouble {
        let start = 2 * self.size * i.min(j) + i.max(j);
        DoubleDouble {
            high: self.values[start],
            low: self.values[start + self.size],
        }
    }

    fn set(&mut self, i: usize, j: usize, value: DoubleDouble) {
        let start = 2 * self.size * i.min(j) + i.max(j);
        self.values[start] = value.high;
        self.values[start + self.size] = value.low;
    }

    /// Adds A^T A of a strip. Once `may_continue` returns false it ends early, and the sums have no meaning.
    pub(crate) fn add_strip(
        &mut self,
        strip: &mut Strip,
        may_continue: impl Fn() -> bool + Sync + Send,
    ) {
        strip.split();
        let (size, strip) = (self.size, &*strip);
        fill_pieces(&mut self.values, COLUMNS * 2 * size, |start, out| {
            if may_continue() {
                add_columns(strip, start / (2 * size), size, out);
            }
        });
    }

    /// Adds another sum.
    pub(crate) fn add(&mut self, other: &Self) {
        let size = self.size;
        fill_pieces(&mut self.values, COLUMNS * 2 * size, |start, out| {
            let others = other.values[start..].chunks_exact(2 * size);
            for (out, other) in out.chunks_exact_mut(2 * size).zip(others) {
                let (high, low) = out.split_at_mut(size);
                let (other_high, other_low) = other.split_at(size);
                add_parts(high, low, other_high, other_low);
            }
        });
    }

    /// Appends the lower triangle, column-major: first all high parts, then all low parts.
    pub(crate) fn pack(&self, out: &mut Vec<f64>) {
        let part = |of: fn(DoubleDouble) -> f64| {
            (0..self.size).flat_map(move |j| (j..self.size).map(move |i| of(self.at(i, j))))
        };
        out.extend(part(|v| v.high).chain(part(|v| v.low)));
    }

    /// The inverse of [`Gram::pack`], from `size (size + 1)` values.
    pub(crate) fn unpacked(size: usize, packed: &[f64]) -> Option<Self> {
        let mut gram = Self::zeros(size)?;
        let (high, low) = packed.split_at(packed.len() / 2);
        let mut parts = high.iter().zip(low);
        for j in 0..size {
            for (i, (&high, &low)) in (j..size).zip(&mut parts) {
                gram.set(i, j, DoubleDouble { high, low });
            }
        }
        Some(gram)
    }
}

/// Adds the contribution of a strip to some columns of the sum, beginning with `first`.
fn add_columns(strip: &Strip, first: usize, size: usize, out: &mut [f64]) {
    let (width, below, n) = (out.len() / (2 * size), size - first, strip.n_rows);
    let (start, stride) = (first * strip.stride, strip.stride);
    let (mut exact, mut rest) = (vec![0.0; below * width], vec![0.0; below * width]);
    let add = |left: &[f64], right: &[f64], sum: &mut [f64]| {
        let left = TallMatrix::new(&left[start..], stride, below);
        let right = TallMatrix::new(&right[start..], stride, width);
        add_lower_transpose_product(left, right, n, sum, below);
    };
    add(&strip.coarse, &strip.coarse, &mut exact);
    add(&strip.coarse, &strip.rest, &mut rest);
    add(&strip.rest, &strip.whole, &mut rest);
    for (j, out) in out.chunks_exact_mut(2 * size).enumerate() {
        let (high, low) = out.split_at_mut(size);
        let share = j * below + j..(j + 1) * below;
        add_parts(
            &mut high[first + j..],
            &mut low[first + j..],
            &exact[share.clone()],
            &rest[share],
        );
    }
}

/// Adds two-part numbers element by element.
fn add_parts(high: &mut [f64], low: &mut [f64], other_high: &[f64], other_low: &[f64]) {
    let ours = high.iter_mut().zip(low);
    for ((high, low), (other_high, other_low)) in ours.zip(other_high.iter().zip(other_low)) {
        let (sum, error) = two_sum(*high, *other_high);
        (*high, *low) = two_sum(sum, error + (*low + other_low));
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

    /// Columns with values of all magnitudes whose products nearly cancel.
    fn value(i: usize, j: usize) -> f64 {
        let (i, j) = (i as f64, j as f64);
        (i * (j + 1.3)).sin() * (3.0 * (i * 0.7 + j).cos()).exp() * 10_f64.powf(3.0 * j - 4.0)
    }

    fn gram_of(starts: &[usize], size: usize) -> Gram {
        let (mut gram, mut strip) = (Gram::zeros(size).unwrap(), Strip::new(size, STRIP));
        for rows in starts.windows(2) {
            strip.fill(rows[1] - rows[0], |first, columns| {
                for (j, column) in columns.iter_mut().enumerate() {
                    for (i, v) in column.iter_mut().enumerate() {
                        *v = value(rows[0] + i, first + j);
                    }
                }
            });
            gram.add_strip(&mut strip, || true);
        }
        gram
    }

    #[test]
    fn sums_are_exact_to_more_than_double_precision() {
        let (n, size) = (1300, 5);
        let gram = gram_of(&[0, 512, 1024, n], size);
        for j in 0..size {
            for i in j..size {
                let (mut exact, mut lengths) = (DoubleDouble::default(), [0.0; 2]);
                for row in 0..n {
                    let (a, b) = (value(row, i), value(row, j));
                    exact = exact.plus(DoubleDouble::product(a, b));
                    lengths = [lengths[0] + a * a, lengths[1] + b * b];
                }
                let error = gram.at(i, j).minus(exact).value().abs();
                let length = (lengths[0] * lengths[1]).sqrt();
                assert!(error < 1e-21 * length, "{i} {j}: {}", error / length);
            }
        }
    }

    #[test]
    fn a_cancelled_sum_is_left_as_it_is() {
        let (mut gram, mut strip) = (Gram::zeros(2).unwrap(), Strip::new(2, 3));
        strip.fill(3, |_, columns| columns.iter_mut().for_each(|c| c.fill(1.0)));
        assert_eq!(strip.column(1), [1.0; 3]);
        gram.add_strip(&mut strip, || false);
        assert_eq!(gram.at(1, 0), DoubleDouble::default());
        gram.add_strip(&mut strip, || true);
        assert_eq!(gram.at(1, 0), 3.0.into());
        assert!(Gram::zeros(usize::MAX).is_none());
    }

    #[test]
    fn columns_of_tiny_numbers_are_not_split() {
        let mut coarse = [1.0; 2];
        round(&[1e-151, -1e-160], &mut coarse);
        assert_eq!(coarse.map(f64::to_bits), [0; 2]);
        let whole = [1.0 / 3.0, -1.0];
        round(&whole, &mut coarse);
        assert_eq!(coarse[1].to_bits(), whole[1].to_bits());
        // Units of 2^-21, for a largest value of 1 = 2^0 < 2^1.
        assert!(((coarse[0] - whole[0]) * f64::from(1 << 21)).abs() <= 0.5);
        assert!((coarse[0] * f64::from(1 << 21)).fract() == 0.0);
    }
}
