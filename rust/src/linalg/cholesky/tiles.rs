//! Sums of outer products, a tile at a time: what a Cholesky factor of many rows spends its time on.
//!
//! The sums of a tile stay in registers while their terms go by. Elements of a matrix that lie side by side in memory are
//! side by side in a vector, so that none is added up across vectors, and each goes through the same operations wherever it
//! lies in its tile.

use std::ops::Range;

use crate::linalg::simd::Simd;

/// Coefficients and vectors of a tile: so many sums that none waits for itself, and no more than stay in registers.
pub(crate) const COEFFICIENTS: usize = 4;
const VECTORS: usize = 2;

/// Rows or columns of a panel: so often what is read of a large matrix is used.
pub(crate) const PANEL: usize = 48;

/// Terms added at a time: a large matrix has a page of memory for each.
pub(crate) const RUN: usize = 256;

/// Places that a tile is wide.
#[inline(always)]
#[allow(clippy::inline_always)] // a constant, once compiled
pub(crate) fn width<S: Simd>() -> usize {
    VECTORS * S::F64_LANES
}

/// Something done to tiles.
pub(crate) trait Tiles<S: Simd> {
    /// With a tile that is `C` vectors wide and begins at the `first` place.
    fn tile<const C: usize>(&mut self, simd: S, first: usize);
}

/// Does it to tiles that cover these places and reach over their end by less than a vector.
#[inline(always)]
#[allow(clippy::inline_always)] // into vector code: see `simd::dispatch`
pub(crate) fn cover<S: Simd>(simd: S, places: Range<usize>, tiles: &mut impl Tiles<S>) {
    for first in places.clone().step_by(width::<S>()) {
        match (places.end - first).div_ceil(S::F64_LANES) {
            1 => tiles.tile::<1>(simd, first),
            _ => tiles.tile::<VECTORS>(simd, first),
        }
    }
}

/// `sum_k c_k v_k^T` over so many terms: the coefficients c_k are so far apart in memory, and so are the vectors v_k.
#[inline(always)]
#[allow(clippy::inline_always)] // as `cover`
pub(crate) fn outer_sum<S: Simd, const C: usize>(
    simd: S,
    (coefficients, coefficients_apart): (&[f64], usize),
    (vectors, vectors_apart): (&[f64], usize),
    n_terms: usize,
) -> [[S::f64s; C]; COEFFICIENTS] {
    let mut sums = [[simd.splat_f64s(0.0); C]; COEFFICIENTS];
    for k in 0..n_terms {
        let c = &coefficients[k * coefficients_apart..][..COEFFICIENTS];
        let mut v = [simd.splat_f64s(0.0); C];
        load::<S, C>(&mut v, &vectors[k * vectors_apart..]);
        for (sums, c) in sums.iter_mut().zip(c) {
            let c = simd.splat_f64s(*c);
            for (sum, v) in sums.iter_mut().zip(&v) {
                *sum = simd.mul_add_e_f64s(c, *v, *sum);
            }
        }
    }
    sums
}

/// Takes vectors from memory, one after another.
#[inline(always)]
#[allow(clippy::inline_always)] // as `cover`
pub(crate) fn load<S: Simd, const C: usize>(vectors: &mut [S::f64s; C], from: &[f64]) {
    let (from, _) = S::as_simd_f64s(&from[..C * S::F64_LANES]);
    // By `copy_from_slice`, or from a function, it would be a call.
    for (vector, from) in vectors.iter_mut().zip(from) {
        *vector = *from;
    }
}

/// And puts them there.
#[inline(always)]
#[allow(clippy::inline_always)] // as `cover`
pub(crate) fn store<S: Simd, const C: usize>(vectors: &[S::f64s; C], to: &mut [f64]) {
    let (to, _) = S::as_mut_simd_f64s(&mut to[..C * S::F64_LANES]);
    for (vector, to) in vectors.iter().zip(to) {
        *to = *vector;
    }
}

/// A lower triangle with ones for rows and columns that are not there, and the reciprocals of its diagonal: a division takes as long
/// as a dozen of the other operations.
pub(crate) struct Triangle {
    /// Element (r, s) at `[r][s]`.
    pub(crate) elements: [[f64; COEFFICIENTS]; COEFFICIENTS],
    reciprocals: [f64; COEFFICIENTS],
}

impl Triangle {
    /// From so many rows, and from what is above their diagonal no more than that it be there.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `cover`
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

    /// The factor in place of the matrix; an error names the row whose squared pivot is no positive number.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `cover`
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

    /// Solves L x = b, each row being a few vectors, in place.
    #[inline(always)]
    #[allow(clippy::inline_always)] // as `cover`
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
