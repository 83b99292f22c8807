//! Triangular solves for many right-hand sides at once, side by side so that the processor's vectors are full.

use std::ops::{Deref, DerefMut};

use super::Cholesky;
use super::parallel::pieces;
use super::simd::{Simd, WithSimd, dispatch};

/// Right-hand sides solved together.
pub(crate) const LANES: usize = 32;

/// One element of each right-hand side; it begins with a line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Lanes([f64; LANES]);

impl Lanes {
    pub(crate) const ZERO: Self = Self([0.0; LANES]);
}

impl Deref for Lanes {
    type Target = [f64; LANES];

    fn deref(&self) -> &[f64; LANES] {
        &self.0
    }
}

impl DerefMut for Lanes {
    fn deref_mut(&mut self) -> &mut [f64; LANES] {
        &mut self.0
    }
}

/// Rows of the factor one after another, each up to and with its diagonal.
pub(crate) fn pack_lower(chol: &Cholesky) -> Vec<f64> {
    let rows = (0..chol.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    rows.map(|(i, j)| chol.get(i, j)).collect()
}

/// Solves L v = b; row k of `v` holds element k of each right-hand side.
pub(crate) fn solve_lanes(lower: &[f64], v: &mut [Lanes]) {
    dispatch(Forward { lower, v });
}

/// Solves L^T v = b.
pub(crate) fn solve_lanes_transposed(lower: &[f64], v: &mut [Lanes]) {
    dispatch(Backward { lower, v });
}

/// Squared length of each lane.
pub(crate) fn square_lanes(v: &[Lanes]) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for row in v {
        for (sum, x) in sums.iter_mut().zip(row.iter()) {
            *sum += x * x;
        }
    }
    sums
}

/// Elements solved for together, once all that comes before is taken off, and vectors of them at a time: the sums fill the
/// registers of a processor that has 16, see the tiles of [`product`](super::product).
const ROWS: usize = 3;
const VECTORS: usize = 4;

/// Element (i, j) of a factor packed by rows.
#[inline(always)]
#[allow(clippy::inline_always)] // into vector code: see `dispatch`
fn at(lower: &[f64], i: usize, j: usize) -> f64 {
    lower[i * (i + 1) / 2 + j]
}

struct Forward<'a> {
    lower: &'a [f64],
    v: &'a mut [Lanes],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, simd: S) {
        let lower = self.lower;
        for rows in pieces(self.v.len(), ROWS) {
            let (solved, rest) = self.v.split_at_mut(rows.start);
            let block = &mut rest[..rows.len()];
            take_off(simd, |i, j| at(lower, rows.start + i, j), solved, block);
            for i in 0..block.len() {
                let (above, own) = block.split_at_mut(i);
                let row = |j: usize| at(lower, rows.start + i, rows.start + j);
                finish(row, above, &mut own[0], row(i));
            }
        }
    }
}

struct Backward<'a> {
    lower: &'a [f64],
    v: &'a mut [Lanes],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // as Forward
    fn with_simd<S: Simd>(self, simd: S) {
        let (lower, mut end) = (self.lower, self.v.len());
        while end > 0 {
            let start = end.saturating_sub(ROWS);
            let (rest, solved) = self.v.split_at_mut(end);
            let block = &mut rest[start..];
            take_off(simd, |i, j| at(lower, end + j, start + i), solved, block);
            for i in (0..block.len()).rev() {
                let (own, below) = block[i..].split_at_mut(1);
                let column = |j: usize| at(lower, start + i + 1 + j, start + i);
                finish(column, below, &mut own[0], at(lower, start + i, start + i));
            }
            end = start;
        }
    }
}

/// Takes what others, solved for already, have in a few elements off these: `coefficient` times each.
#[inline(always)]
#[allow(clippy::inline_always)] // as Forward
fn take_off<S: Simd>(
    simd: S,
    coefficient: impl Fn(usize, usize) -> f64,
    solved: &[Lanes],
    block: &mut [Lanes],
) {
    match block.len() {
        1 => take_off_rows::<S, 1>(simd, coefficient, solved, block),
        2 => take_off_rows::<S, 2>(simd, coefficient, solved, block),
        _ => take_off_rows::<S, ROWS>(simd, coefficient, solved, block),
    }
}

#[inline(always)]
#[allow(clippy::inline_always)] // as Forward
fn take_off_rows<S: Simd, const R: usize>(
    simd: S,
    coefficient: impl Fn(usize, usize) -> f64,
    solved: &[Lanes],
    block: &mut [Lanes],
) {
    for group in 0..LANES / (VECTORS * S::F64_LANES) {
        let mut sums = [[simd.splat_f64s(0.0); VECTORS]; R];
        for (j, source) in solved.iter().enumerate() {
            let c: [S::f64s; R] = std::array::from_fn(|i| simd.splat_f64s(-coefficient(i, j)));
            let vectors = S::as_simd_f64s(&source.0).0.as_chunks::<VECTORS>().0;
            for (v, x) in vectors[group].into_iter().enumerate() {
                for (sums, c) in sums.iter_mut().zip(c) {
                    sums[v] = simd.mul_add_e_f64s(c, x, sums[v]);
                }
            }
        }
        for (row, sums) in block.iter_mut().zip(sums) {
            let (own, _) = S::as_mut_simd_f64s(&mut row.0);
            for (own, sum) in own[group * VECTORS..].iter_mut().zip(sums) {
                *own = simd.add_f64s(*own, sum);
            }
        }
    }
}

/// Takes the last few off one element, which then is divided by its pivot.
#[inline(always)]
#[allow(clippy::inline_always)] // as Forward
fn finish(coefficient: impl Fn(usize) -> f64, solved: &[Lanes], own: &mut Lanes, pivot: f64) {
    for (j, source) in solved.iter().enumerate() {
        let c = coefficient(j);
        own.iter_mut()
            .zip(source.iter())
            .for_each(|(t, s)| *t -= c * s);
    }
    // One division, and not one for each lane: vectors of them take longer than all the rest.
    let inverse = 1.0 / pivot;
    own.iter_mut().for_each(|t| *t *= inverse);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_is_solved_as_if_alone() {
        for n in [0, 1, 2, 3, 4, 7, 12, 20] {
            let mut chol = Cholesky::with_capacity(n);
            let far = |i: usize, j: usize| (i as f64 - j as f64).abs();
            chol.refactor(n, |i, j| {
                (-0.5 * far(i, j)).exp() + if i == j { 1.0 } else { 0.0 }
            })
            .unwrap();
            let lower = pack_lower(&chol);
            let element = |k: usize, lane: usize| ((7 * k + 3 * lane) as f64).sin();
            let row = |k| Lanes(std::array::from_fn(|lane| element(k, lane)));
            let mut v: Vec<Lanes> = (0..n).map(row).collect();
            solve_lanes(&lower, &mut v);
            let squares = square_lanes(&v);
            let forward = v.clone();
            solve_lanes_transposed(&lower, &mut v);
            for lane in 0..LANES {
                let near = |b: &[f64], v: &[Lanes]| {
                    assert!(
                        b.iter()
                            .zip(v)
                            .all(|(x, row)| (x - row[lane]).abs() < 1e-13)
                    );
                };
                let mut b: Vec<f64> = (0..n).map(|k| element(k, lane)).collect();
                chol.solve_lower_in_place(&mut b);
                near(&b, &forward);
                let square: f64 = b.iter().map(|x| x * x).sum();
                assert!((squares[lane] - square).abs() < 1e-12 * (1.0 + square));
                chol.solve_lower_transpose_in_place(&mut b);
                near(&b, &v);
            }
        }
    }
}
