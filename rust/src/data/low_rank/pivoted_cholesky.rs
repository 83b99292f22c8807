//! The Newton basis of a positive definite kernel: a pivoted Cholesky factorisation with a few landmarks.
//!
//! With landmarks z_1, ..., z_L and K = R^T R the matrix of k among them, u(x) = R^-T k_L(x) gives
//! `k(x, z) = u(x)^T u(z) + E(x, z)`. The rest E is positive semidefinite too (a Schur complement), so that
//! |E(x, z)| <= P(x) P(z) with the power function P(x)^2 = k(x, x) - |u(x)|^2. Landmarks are chosen one by one where P is
//! largest: the P-greedy algorithm, or pivoted Cholesky (De Marchi, Schaback & Wendland 2005; Santin & Haasdonk 2017).
//! Where k is smooth at the scale of the data P falls exponentially with L.
//!
//! Rounding: a computed factor is the exact factor of a matrix that differs by at most (L + 1) u |R^T| |R|, where the elements of the
//! product are at most k(x, x) (Higham 2002, theorem 10.3). Every P^2 here is raised by four times as much.

use std::ops::Range;

use crate::data::design::Family;
use crate::linalg::batched_triangular::{LANES, solve_lanes, square_lanes};
use crate::linalg::gemm::add_combination;
use crate::parallel::{fill_pieces, pieces};
use crate::{Kernel, Points};

/// Largest number of landmarks for screening bounds.
pub(crate) const MAX_LANDMARKS: usize = 1024;

/// Landmarks and their factor.
#[derive(Debug)]
pub(crate) struct PivotedCholesky {
    kernel: Kernel,
    n_features: usize,
    /// Row by row.
    landmarks: Vec<f64>,
    /// R^T row by row, each row up to its diagonal element.
    lower: Vec<f64>,
    /// Bound on the rounding error of P^2, relative to k(x, x).
    pub(crate) rounding: f64,
    /// The largest k(x, x) among the points from which the landmarks were chosen.
    pub(crate) largest: f64,
}

impl PivotedCholesky {
    /// Chooses landmarks from a sample of points (row by row) until P^2 is at most `tol` k(x, x) at all of them. `None` if more than
    /// `max_landmarks` are needed, or seem to be.
    pub(crate) fn choose(
        family: &Family<'_>,
        sample: &[f64],
        tol: f64,
        max_landmarks: usize,
    ) -> Option<Self> {
        let d = family.points.n_features();
        let own = |point: &[f64]| family.kernel.eval(point, point);
        let diagonal = sample.chunks_exact(d.max(1)).map(own);
        let largest = diagonal.fold(0.0, f64::max);
        if !(largest > 0.0 && largest.is_finite()) {
            return None;
        }
        let mut this = Self {
            kernel: family.kernel.clone(),
            n_features: d,
            landmarks: Vec::new(),
            lower: Vec::new(),
            rounding: 0.0,
            largest,
        };
        this.grow(sample, tol, max_landmarks)?;
        Some(this)
    }

    /// Chooses further landmarks from these points until P^2 is at most `tol` k(x, x) at all of them; `None` if more than `max_landmarks`
    /// are needed.
    pub(crate) fn grow(&mut self, sample: &[f64], tol: f64, max_landmarks: usize) -> Option<()> {
        /// Points that one thread handles.
        const PIECE: usize = 512;
        let (before, d) = (self.len(), self.n_features);
        let n = sample.len() / d;
        let points = Points::from_rows(sample, n, d);
        // u at the points, function after function, and k(x, x) - |u(x)|^2.
        let mut values = Vec::new();
        self.rounding = 0.0;
        let powers = self.at(&points, 0..n, n, &mut values);
        let mut residuals: Vec<f64> = powers.iter().map(|p| p * p).collect();
        let total: f64 = residuals.iter().sum();
        loop {
            let farthest = |best: usize, i: usize| {
                if residuals[i] > residuals[best] {
                    i
                } else {
                    best
                }
            };
            let at = (1..n).fold(0, farthest);
            if residuals[at] <= tol * self.largest {
                break;
            }
            let (added, left) = (self.len() - before, residuals.iter().sum::<f64>());
            if self.len() == max_landmarks || is_hopeless(added, left / total, tol, max_landmarks) {
                return None;
            }
            let row: Vec<f64> = values.chunks_exact(n).map(|u| u[at]).collect();
            let minus: Vec<f64> = row.iter().map(|u| -u).collect();
            let (point, root) = (&sample[at * d..][..d], residuals[at].sqrt());
            let mut new = vec![0.0; n];
            fill_pieces(&mut new, PIECE, |first, u| {
                let rows = first..first + u.len();
                self.kernel.column_into(&points, point, rows, u);
                let functions: Vec<&[f64]> = values.chunks_exact(n).map(|u| &u[first..]).collect();
                add_combination(&functions, &minus, u);
                for u in u {
                    *u /= root;
                }
            });
            for (residual, u) in residuals.iter_mut().zip(&new) {
                *residual -= u * u;
            }
            values.extend(new);
            self.landmarks.extend_from_slice(point);
            self.lower.extend(row);
            self.lower.push(root);
        }
        let terms = self.len() as f64 + 8.0;
        self.rounding = 4.0 * terms * 0.5 * f64::EPSILON;
        Some(())
    }

    /// k(x, x) at some points.
    fn diagonal(&self, points: &Points, rows: Range<usize>) -> Vec<f64> {
        let mut x = vec![0.0; self.n_features];
        let own = |row| {
            for (f, x) in x.iter_mut().enumerate() {
                *x = points.feature(f)[row];
            }
            self.kernel.eval(&x, &x)
        };
        rows.map(own).collect()
    }

    /// P, raised by the bound on rounding, from a residual and k(x, x).
    fn power(&self, residual: f64, own: f64) -> f64 {
        (residual.max(0.0) + self.rounding * own).sqrt()
    }

    /// L.
    pub(crate) fn len(&self) -> usize {
        self.landmarks.len() / self.n_features.max(1)
    }

    /// Writes u at some points, function after function, `stride` apart; returns P at each.
    pub(crate) fn at(
        &self,
        points: &Points,
        rows: Range<usize>,
        stride: usize,
        out: &mut Vec<f64>,
    ) -> Vec<f64> {
        let (height, d) = (rows.len(), self.n_features);
        out.resize(self.len() * stride, 0.0);
        let landmarks = self.landmarks.chunks_exact(d);
        for (landmark, out) in landmarks.zip(out.chunks_exact_mut(stride)) {
            let out = &mut out[..height];
            self.kernel.column_into(points, landmark, rows.clone(), out);
        }
        let mut power = Vec::with_capacity(height);
        let mut v = vec![[0.0; LANES]; self.len()];
        let own = self.diagonal(points, rows);
        for lanes in pieces(height, LANES) {
            for (v, values) in v.iter_mut().zip(out.chunks_exact(stride)) {
                v[..lanes.len()].copy_from_slice(&values[lanes.clone()]);
            }
            solve_lanes(&self.lower, 0, &mut v);
            for (v, values) in v.iter().zip(out.chunks_exact_mut(stride)) {
                values[lanes.clone()].copy_from_slice(&v[..lanes.len()]);
            }
            let squares = square_lanes(&v);
            let pairs = own[lanes].iter().zip(squares);
            power.extend(pairs.map(|(own, square)| self.power(own - square, *own)));
        }
        power
    }
}

/// Whether P^2 is unlikely to fall to `tol` with `max_landmarks` landmarks, if `added` landmarks reduced it on average to `ratio`.
///
/// The first landmarks cover the points one by one. Later ones reduce P^2 up to four times faster.
fn is_hopeless(added: usize, ratio: f64, tol: f64, max_landmarks: usize) -> bool {
    const MIN_ADDED: usize = 24;
    const MAX_SPEEDUP: f64 = 4.0;
    let needed = added as f64 * tol.ln() / ratio.ln();
    added >= MIN_ADDED && needed > MAX_SPEEDUP * max_landmarks as f64
}

/// At most `size` rows and `size` centres, evenly distributed over the data, row by row.
pub(crate) fn sample(family: &Family<'_>, size: usize) -> Vec<f64> {
    let (points, d) = (family.points, family.points.n_features());
    let evenly = |n: usize| {
        let size = n.min(size);
        (0..size).map(move |k| k * n / size)
    };
    let mut sample = Vec::new();
    for row in evenly(points.n_points()) {
        sample.extend((0..d).map(|f| points.feature(f)[row]));
    }
    if !family.is_about_its_rows() {
        for centre in evenly(family.len()) {
            sample.extend_from_slice(&family.centres[centre * d..(centre + 1) * d]);
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::low_rank::gaussian;

    #[test]
    fn the_error_is_at_most_the_product_of_powers() {
        let rows: Vec<f64> = (0..240).map(|i| 7.0 * (f64::from(i) * 1.7).sin()).collect();
        let points = Points::from_rows(&rows, 120, 2);
        for kernel in [
            gaussian(0.16),
            Kernel::Polynomial {
                degree: 3,
                gamma: 0.1,
                coef0: 1.0,
            },
            Kernel::Laplacian { gamma: 0.3 },
        ] {
            let family = Family {
                first: 0,
                kernel: &kernel,
                centres: &rows,
                points: &points,
            };
            for tol in [1e-2, 1e-6, 1e-11] {
                let newton = PivotedCholesky::choose(&family, &rows, tol, MAX_LANDMARKS).unwrap();
                let mut u = Vec::new();
                let power = newton.at(&points, 0..120, 123, &mut u);
                let point = |i: usize| &rows[2 * i..2 * i + 2];
                let own = |i: usize| kernel.eval(point(i), point(i));
                let largest = (0..120).map(own).fold(0.0, f64::max);
                for i in 0..120 {
                    for j in 0..120 {
                        let sum: f64 = u.chunks_exact(123).map(|u| u[i] * u[j]).sum();
                        let error = kernel.eval(point(i), point(j)) - sum;
                        assert!(
                            error.abs() <= power[i] * power[j],
                            "{kernel:?} {tol} {error}"
                        );
                    }
                    assert!(power[i].powi(2) <= 1.1 * tol * largest);
                }
            }
        }
    }
}
