//! Triangular solves for [`LANES`] right-hand sides at once, one per vector lane, and the Cholesky factor and inverse made of
//! them.
//!
//! The sums of a row of lanes stay in registers while its terms are added.

use crate::error::NotPositiveDefinite;
use crate::linalg::Cholesky;
use crate::linalg::simd::{dispatch, vectorised};

/// Right-hand sides solved together.
pub(crate) const LANES: usize = 32;

/// One element of each right-hand side.
pub(crate) type Lanes = [f64; LANES];

/// The rows of the factor one after another, each up to and including its diagonal.
pub(crate) fn pack_lower(chol: &Cholesky) -> Vec<f64> {
    let rows = (0..chol.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    rows.map(|(i, j)| chol.get(i, j)).collect()
}

/// Solves L v = b, with the block of L that begins at row and column `first`; row k of `v` holds element k of each
/// right-hand side.
pub(crate) fn solve_lanes(lower: &[f64], first: usize, v: &mut [Lanes]) {
    dispatch(Forward { lower, first, v });
}

/// Solves L^T v = b.
pub(crate) fn solve_lanes_transposed(lower: &[f64], v: &mut [Lanes]) {
    dispatch(Backward { lower, v });
}

/// Continues [`solve_lanes`] from row `first` on with a factor whose next rows are the lanes themselves: each lane is a row of A
/// up to its diagonal, and becomes that row of L.
///
/// # Errors
/// The row whose squared pivot is not positive and finite.
pub(crate) fn factor_lanes(first: usize, v: &mut [Lanes]) -> Result<(), NotPositiveDefinite> {
    dispatch(Factor { first, v })
}

/// Adds the inner product of each lane of `left` with each of `right`: row r of `sums` has those of lane r of `right`.
pub(crate) fn add_lane_products(left: &[Lanes], right: &[Lanes], sums: &mut [Lanes]) {
    dispatch(Products { left, right, sums });
}

/// Squared length of each lane.
pub(crate) fn square_lanes(v: &[Lanes]) -> Lanes {
    let mut sums = [0.0; LANES];
    for row in v {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x * x;
        }
    }
    sums
}

vectorised!(Forward { lower: &'a [f64], first: usize, v: &'a mut [Lanes] } -> (), |this| {
    for k in 0..this.v.len() {
        let i = this.first + k;
        let row = &this.lower[i * (i + 1) / 2 + this.first..=i * (i + 3) / 2];
        let (solved, rest) = this.v.split_at_mut(k);
        subtract(row.iter().copied(), solved, &mut rest[0]);
        scale(1.0 / row[k], &mut rest[0]);
    }
});

vectorised!(Backward { lower: &'a [f64], v: &'a mut [Lanes] } -> (), |this| {
    for k in (0..this.v.len()).rev() {
        let row = &this.lower[k * (k + 1) / 2..=k * (k + 3) / 2];
        let (above, rest) = this.v.split_at_mut(k);
        scale(1.0 / row[k], &mut rest[0]);
        for (coefficient, target) in row.iter().zip(above) {
            for (t, s) in target.iter_mut().zip(&rest[0]) {
                *t -= coefficient * s;
            }
        }
    }
});

vectorised!(Factor { first: usize, v: &'a mut [Lanes] } -> Result<(), NotPositiveDefinite>, |this| {
    for k in this.first..this.v.len() {
        let lane = k - this.first;
        let (solved, rest) = this.v.split_at_mut(k);
        subtract(solved.iter().map(|v| v[lane]), solved, &mut rest[0]);
        let pivot = rest[0][lane];
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(NotPositiveDefinite { pivot: k });
        }
        scale(1.0 / pivot.sqrt(), &mut rest[0]);
    }
    Ok(())
});

vectorised!(Products { left: &'a [Lanes], right: &'a [Lanes], sums: &'a mut [Lanes] } -> (), |this| {
    /// Rows that stay in the first-level cache.
    const RUN: usize = 64;
    for (left, right) in this.left.chunks(RUN).zip(this.right.chunks(RUN)) {
        for (lane, sum) in this.sums.iter_mut().enumerate() {
            subtract(right.iter().map(|v| -v[lane]), left, sum);
        }
    }
});

/// `target -= sum_k c_k source_k`.
#[inline(always)]
fn subtract(coefficients: impl Iterator<Item = f64>, sources: &[Lanes], target: &mut Lanes) {
    let mut sums = *target;
    for (c, source) in coefficients.zip(sources) {
        for (t, s) in sums.iter_mut().zip(source) {
            *t -= c * s;
        }
    }
    *target = sums;
}

#[inline(always)]
fn scale(factor: f64, target: &mut Lanes) {
    for t in target {
        *t *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Matrix;

    /// A lower triangle with rows one after another, as a matrix.
    fn factor(n: usize) -> (Vec<f64>, Matrix) {
        let value = |i: usize, j: usize| match i.cmp(&j) {
            std::cmp::Ordering::Less => 0.0,
            std::cmp::Ordering::Equal => 2.0 + (i as f64).sin(),
            std::cmp::Ordering::Greater => ((3 * i + j) as f64).cos(),
        };
        let packed = (0..n).flat_map(|i| (0..=i).map(move |j| value(i, j)));
        (packed.collect(), Matrix::from_fn(n, n, value))
    }

    #[test]
    fn solves_give_back_the_right_hand_sides() {
        for (n, first) in [(1, 0), (7, 0), (40, 0), (40, 33)] {
            let (lower, matrix) = factor(n);
            let block = matrix.view((first, first), (n - first, n - first));
            let right = Matrix::from_fn(n - first, LANES, |i, lane| (i as f64 - lane as f64).sin());
            let solved = |solve: &dyn Fn(&mut [Lanes])| {
                let row = |i: usize| std::array::from_fn(|lane| right[(i, lane)]);
                let mut v: Vec<Lanes> = (0..n - first).map(row).collect();
                solve(&mut v);
                Matrix::from_fn(n - first, LANES, |i, lane| v[i][lane])
            };
            let x = solved(&|v| solve_lanes(&lower, first, v));
            assert!((block * &x - &right).amax() < 1e-12 * (1.0 + x.amax()));
            if first == 0 {
                let x = solved(&|v| solve_lanes_transposed(&lower, v));
                assert!((block.transpose() * &x - &right).amax() < 1e-12 * (1.0 + x.amax()));
            }
        }
    }
}
