//! Sums of outer products in register tiles: the inner loops of the factorisation and the inverse.
//!
//! The sums of a tile stay in registers while the terms are added. Adjacent elements of the matrix are adjacent in a
//! vector, so no vector is summed horizontally, and every element goes through the same operations wherever it lies in a
//! tile.

use std::ops::Range;

use crate::linalg::simd::Simd;

/// Coefficients and vectors of a tile: enough independent sums to hide the latency, few enough for the registers.
pub(crate) const COEFFICIENTS: usize = 4;
const VECTORS: usize = 2;

/// Rows or columns of a panel.
pub(crate) const PANEL: usize = 48;

/// Most terms per pass; in a large matrix each term lies on a memory page of its own.
pub(crate) const RUN: usize = 256;

/// Width of a tile in elements.
#[inline(always)]
pub(crate) fn width<S: Simd>() -> usize {
    VECTORS * S::F64_LANES
}

/// An operation on tiles.
pub(crate) trait Tiles<S: Simd> {
    /// Applies it to the tile of `C` vectors that begins at element `first`.
    fn tile<const C: usize>(&mut self, simd: S, first: usize);
}

/// Applies the operation to tiles that cover the range; the last one exceeds it by less than a vector.
#[inline(always)]
pub(crate) fn cover<S: Simd>(simd: S, range: Range<usize>, tiles: &mut impl Tiles<S>) {
    for first in range.clone().step_by(width::<S>()) {
        match (range.end - first).div_ceil(S::F64_LANES) {
            1 => tiles.tile::<1>(simd, first),
            _ => tiles.tile::<VECTORS>(simd, first),
        }
    }
}

/// `sum_k c_k v_k^T` over `n_terms` terms, given the coefficients c_k and the vectors v_k with their strides.
#[inline(always)]
pub(crate) fn outer_sum<S: Simd, const C: usize>(
    simd: S,
    (coefficients, coefficient_stride): (&[f64], usize),
    (vectors, vector_stride): (&[f64], usize),
    n_terms: usize,
) -> [[S::f64s; C]; COEFFICIENTS] {
    let mut sums = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
    for k in 0..n_terms {
        let c = &coefficients[k * coefficient_stride..][..COEFFICIENTS];
        let mut v = [simd.splat_f64s(0.0); C];
        load::<S, C>(&mut v, &vectors[k * vector_stride..]);
        for (sums, c) in sums.iter_mut().zip(c) {
            let c = simd.splat_f64s(*c);
            for (sum, v) in sums.iter_mut().zip(&v) {
                *sum = simd.mul_add_e_f64s(c, *v, *sum);
            }
        }
    }
    sums
}

/// Loads adjacent vectors.
#[inline(always)]
pub(crate) fn load<S: Simd, const C: usize>(vectors: &mut [S::f64s; C], from: &[f64]) {
    let (from, _) = S::as_simd_f64s(&from[..C * S::F64_LANES]);
    // `copy_from_slice` or a returned array would compile to a function call.
    for (vector, from) in vectors.iter_mut().zip(from) {
        *vector = *from;
    }
}

/// Stores adjacent vectors.
#[inline(always)]
pub(crate) fn store<S: Simd, const C: usize>(vectors: &[S::f64s; C], to: &mut [f64]) {
    let (to, _) = S::as_mut_simd_f64s(&mut to[..C * S::F64_LANES]);
    for (vector, to) in vectors.iter().zip(to) {
        *to = *vector;
    }
}

/// A small lower triangle, padded with the identity, and the reciprocals of its diagonal, which replace slow divisions.
pub(crate) struct Triangle {
    /// Element (r, s) at `[r][s]`.
    pub(crate) elements: [[f64; COEFFICIENTS]; COEFFICIENTS],
    reciprocals: [f64; COEFFICIENTS],
}

impl Triangle {
    /// A triangle of `n` rows; `element` is called for s <= r only.
    #[inline(always)]
    pub(crate) fn of(n: usize, element: impl Fn(usize, usize) -> f64) -> Self {
        let mut elements = [[0.0; COEFFICIENTS]; COEFFICIENTS];
        for (r, row) in elements.iter_mut().enumerate() {
            row[r] = 1.0;
            if r < n {
                for (s, value) in row.iter_mut().enumerate().take(r + 1) {
                    *value = element(r, s);
                }
            }
        }
        let mut reciprocals = [1.0; COEFFICIENTS];
        for (r, reciprocal) in reciprocals.iter_mut().enumerate() {
            *reciprocal /= elements[r][r];
        }
        Self {
            elements,
            reciprocals,
        }
    }

    /// Replaces the matrix by its factor. The error is the row whose squared pivot is not positive and finite.
    #[inline(always)]
    pub(crate) fn factor(&mut self) -> Result<(), usize> {
        let lower = &mut self.elements;
        for s in 0..COEFFICIENTS {
            let pivot = lower[s][s];
            if !(pivot > 0.0 && pivot.is_finite()) {
                return Err(s);
            }
            lower[s][s] = pivot.sqrt();
            self.reciprocals[s] = 1.0 / lower[s][s];
            for r in s + 1..COEFFICIENTS {
                lower[r][s] *= self.reciprocals[s];
                for t in s + 1..=r {
                    lower[r][t] -= lower[r][s] * lower[t][s];
                }
            }
        }
        Ok(())
    }

    /// Solves L x = b in place; each row of b is an array of vectors.
    #[inline(always)]
    pub(crate) fn solve<S: Simd, const C: usize>(
        &self,
        simd: S,
        x: &mut [[S::f64s; C]; COEFFICIENTS],
    ) {
        for r in 0..COEFFICIENTS {
            let mut row = x[r];
            for (solved, l) in x[..r].iter().zip(&self.elements[r]) {
                let minus = simd.splat_f64s(-l);
                for (row, solved) in row.iter_mut().zip(solved) {
                    *row = simd.mul_add_e_f64s(minus, *solved, *row);
                }
            }
            let reciprocal = simd.splat_f64s(self.reciprocals[r]);
            for (x, row) in x[r].iter_mut().zip(&row) {
                *x = simd.mul_f64s(*row, reciprocal);
            }
        }
    }
}
