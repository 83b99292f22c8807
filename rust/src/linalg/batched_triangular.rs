//! Triangular solves for [`LANES`] right-hand sides at once, one per vector lane.

use crate::linalg::Cholesky;
use crate::linalg::simd::{dispatch, vectorised};

/// Right-hand sides solved together.
pub(crate) const LANES: usize = 32;

/// The rows of the factor one after another, each up to and including its diagonal.
pub(crate) fn pack_lower(chol: &Cholesky) -> Vec<f64> {
    let rows = (0..chol.len()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    rows.map(|(i, j)| chol.get(i, j)).collect()
}

/// Solves L v = b; row k of `v` holds element k of each right-hand side.
pub(crate) fn solve_lanes(lower: &[f64], v: &mut [[f64; LANES]]) {
    dispatch(Forward { lower, v });
}

/// Solves L^T v = b.
pub(crate) fn solve_lanes_transposed(lower: &[f64], v: &mut [[f64; LANES]]) {
    dispatch(Backward { lower, v });
}

/// Squared length of each lane.
pub(crate) fn square_lanes(v: &[[f64; LANES]]) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for row in v {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x * x;
        }
    }
    sums
}

vectorised!(Forward { lower: &'a [f64], v: &'a mut [[f64; LANES]] } -> (), |this| forward_here(this.lower, this.v));
vectorised!(Backward { lower: &'a [f64], v: &'a mut [[f64; LANES]] } -> (), |this| backward_here(this.lower, this.v));

#[inline(always)]
fn forward_here(lower: &[f64], v: &mut [[f64; LANES]]) {
    let mut start = 0;
    for k in 0..v.len() {
        let row = &lower[start..=start + k];
        let (solved, rest) = v.split_at_mut(k);
        let mut target = rest[0];
        for (coefficient, source) in row.iter().zip(solved.iter()) {
            for (t, s) in target.iter_mut().zip(source) {
                *t -= coefficient * s;
            }
        }
        for t in &mut target {
            *t /= row[k];
        }
        rest[0] = target;
        start += k + 1;
    }
}

#[inline(always)]
fn backward_here(lower: &[f64], v: &mut [[f64; LANES]]) {
    for k in (0..v.len()).rev() {
        let row = &lower[k * (k + 1) / 2..=k * (k + 3) / 2];
        let (above, rest) = v.split_at_mut(k);
        let solved = &mut rest[0];
        for s in solved.iter_mut() {
            *s /= row[k];
        }
        for (coefficient, target) in row.iter().zip(above) {
            for (t, s) in target.iter_mut().zip(solved.iter()) {
                *t -= coefficient * s;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_equal_single_solves() {
        let mut chol = Cholesky::with_capacity(4);
        let matrix = [[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]];
        chol.refactor(3, |i, j| matrix[i][j]).unwrap();
        let lower = pack_lower(&chol);
        let mut v: Vec<[f64; LANES]> = (0..3_u8)
            .map(|k| std::array::from_fn(|lane| f64::from(k + 1) - lane as f64))
            .collect();
        let given = v.clone();
        solve_lanes(&lower, &mut v);
        let squares = square_lanes(&v);
        solve_lanes_transposed(&lower, &mut v);
        for lane in 0..LANES {
            let mut b: Vec<f64> = given.iter().map(|row| row[lane]).collect();
            chol.solve_lower_in_place(&mut b);
            let square: f64 = b.iter().map(|x| x * x).sum();
            assert!((squares[lane] - square).abs() < 1e-12 * (1.0 + square));
            chol.solve_lower_transpose_in_place(&mut b);
            assert!(
                b.iter()
                    .zip(&v)
                    .all(|(x, row)| (x - row[lane]).abs() < 1e-12)
            );
        }
    }
}
