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
use crate::linalg::columns::AlignedColumns;
use crate::linalg::gemm::add_combination;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::parallel::{fill_pieces, pieces};
use crate::{Kernel, Points};

/// Largest number of landmarks for screening bounds.
pub(crate) const MAX_LANDMARKS: usize = 1024;
/// Points that one thread handles.
const STRIP: usize = 512;

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
    rounding: f64,
    /// The largest k(x, x) among the points from which the landmarks were chosen.
    largest: f64,
}

/// The Newton functions u at some points.
pub(crate) struct PointBasis {
    strips: Vec<Strip>,
}

/// The Newton functions at adjacent points.
struct Strip {
    points: Range<usize>,
    /// u, function after function.
    functions: Vec<AlignedColumns>,
    /// k(x, x) - |u(x)|^2.
    residuals: Vec<f64>,
    totals: Totals,
}

impl PointBasis {
    /// From the residuals k(x, x) - |u(x)|^2 of all points; `functions(points)` returns u at some of them.
    pub(crate) fn new(
        residuals: &[f64],
        functions: impl Fn(Range<usize>) -> Vec<AlignedColumns>,
    ) -> Self {
        let strips = pieces(residuals.len(), STRIP).map(|points| {
            let mut residuals = residuals[points.clone()].to_vec();
            // A function of zeros subtracts nothing.
            let totals = dispatch(Subtract {
                u: &mut vec![0.0; points.len()],
                residuals: &mut residuals,
                root: 1.0,
            });
            Strip {
                functions: functions(points.clone()),
                points,
                residuals,
                totals,
            }
        });
        Self {
            strips: strips.collect(),
        }
    }

    /// Number of points.
    pub(crate) fn n_points(&self) -> usize {
        self.strips.last().map_or(0, |strip| strip.points.end)
    }

    /// Function `k` at all points, in pieces.
    pub(crate) fn function(&self, k: usize) -> impl Iterator<Item = &[f64]> {
        self.strips.iter().map(move |strip| &strip.functions[k][..])
    }

    /// k(x, x) - |u(x)|^2.
    pub(crate) fn residuals(&self) -> Vec<f64> {
        let strips = self.strips.iter();
        strips
            .flat_map(|strip| strip.residuals.iter().copied())
            .collect()
    }

    fn total_residual(&self) -> f64 {
        self.strips.iter().map(|strip| strip.totals.sum).sum()
    }

    /// The strip, and the place in it, of the first point with the largest residual.
    fn farthest(&self) -> (&Strip, usize) {
        let larger = |best: usize, k: usize| {
            let [a, b] = [best, k].map(|k| self.strips[k].totals.largest);
            if b > a { k } else { best }
        };
        let strip = &self.strips[(1..self.strips.len()).fold(0, larger)];
        let is_largest = |residual: &f64| *residual >= strip.totals.largest;
        (
            strip,
            strip.residuals.iter().position(is_largest).unwrap_or(0),
        )
    }
}

/// A point that becomes a landmark.
struct Landmark<'a> {
    kernel: &'a Kernel,
    point: &'a [f64],
    /// -u at the point.
    minus: Vec<f64>,
    /// P at the point.
    root: f64,
}

impl Strip {
    /// Adds the Newton function of a landmark.
    fn add(&mut self, landmark: &Landmark<'_>, points: &Points) {
        let mut u = AlignedColumns::zeros(self.points.len());
        landmark
            .kernel
            .column_into(points, landmark.point, self.points.clone(), &mut u);
        let columns: Vec<&[f64]> = self.functions.iter().map(|u| &u[..]).collect();
        add_combination(&columns, &landmark.minus, &mut u);
        self.totals = dispatch(Subtract {
            u: &mut u,
            residuals: &mut self.residuals,
            root: landmark.root,
        });
        self.functions.push(u);
    }
}

impl PivotedCholesky {
    /// Chooses landmarks from a sample of points (row by row) until P^2 is at most `tol` k(x, x) at all of them. Returns the landmarks and
    /// the Newton functions at the sample; `None` if more than `max_landmarks` are needed, or seem to be.
    pub(crate) fn choose(
        family: &Family<'_>,
        sample: &[f64],
        tol: f64,
        max_landmarks: usize,
    ) -> Option<(Self, PointBasis)> {
        let d = family.points.n_features();
        let own = |point: &[f64]| family.kernel.eval(point, point);
        let diagonal: Vec<f64> = sample.chunks_exact(d.max(1)).map(own).collect();
        let largest = diagonal.iter().copied().fold(0.0, f64::max);
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
        let basis = PointBasis::new(&diagonal, |_| Vec::new());
        let basis = this.grow(sample, basis, tol, max_landmarks)?;
        Some((this, basis))
    }

    /// Chooses further landmarks from these points until P^2 is at most `tol` k(x, x) at all of them. `basis` has the Newton functions at
    /// the points so far; returns it with the new ones, or `None` if more than `max_landmarks` are needed.
    pub(crate) fn grow(
        &mut self,
        sample: &[f64],
        mut basis: PointBasis,
        tol: f64,
        max_landmarks: usize,
    ) -> Option<PointBasis> {
        let (before, d) = (self.len(), self.n_features);
        let points = Points::from_rows(sample, basis.n_points(), d);
        let total = basis.total_residual();
        loop {
            let (strip, at) = basis.farthest();
            if strip.residuals[at] <= tol * self.largest {
                break;
            }
            let (added, ratio) = (self.len() - before, basis.total_residual() / total);
            if self.len() == max_landmarks || is_hopeless(added, ratio, tol, max_landmarks) {
                return None;
            }
            let row: Vec<f64> = strip.functions.iter().map(|u| u[at]).collect();
            let landmark = Landmark {
                kernel: &self.kernel,
                point: &sample[(strip.points.start + at) * d..][..d],
                minus: row.iter().map(|u| -u).collect(),
                root: strip.residuals[at].sqrt(),
            };
            self.landmarks.extend_from_slice(landmark.point);
            self.lower.extend(row);
            self.lower.push(landmark.root);
            fill_pieces(&mut basis.strips, 1, |_, strips| {
                strips[0].add(&landmark, &points);
            });
        }
        let terms = self.len() as f64 + 8.0;
        self.rounding = 4.0 * terms * 0.5 * f64::EPSILON;
        Some(basis)
    }

    /// P at all points, given their residuals k(x, x) - |u(x)|^2.
    pub(crate) fn powers(&self, points: &Points, residuals: &[f64]) -> Vec<f64> {
        let own = self.diagonal(points, 0..residuals.len());
        let pairs = residuals.iter().zip(own);
        pairs
            .map(|(residual, own)| self.power(*residual, own))
            .collect()
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

    /// The largest k(x, x) among the points from which the landmarks were chosen.
    pub(crate) fn largest(&self) -> f64 {
        self.largest
    }

    /// Bound on the rounding error of P^2, relative to k(x, x).
    pub(crate) fn rounding(&self) -> f64 {
        self.rounding
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
            solve_lanes(&self.lower, &mut v);
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

/// Divides u by a root and subtracts its squares from the residuals.
struct Subtract<'a> {
    u: &'a mut [f64],
    residuals: &'a mut [f64],
    root: f64,
}

/// The largest residual, and the sum of the residuals.
struct Totals {
    largest: f64,
    sum: f64,
}

impl WithSimd for Subtract<'_> {
    type Output = Totals;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Totals {
        let (mut largest, mut sum) = ([f64::NEG_INFINITY; LANES], [0.0; LANES]);
        let mut subtract = |lane: usize, u: &mut f64, residual: &mut f64| {
            *u /= self.root;
            *residual -= *u * *u;
            let old = largest[lane];
            largest[lane] = if *residual > old { *residual } else { old };
            sum[lane] += *residual;
        };
        let (heads, tail) = self.u.as_chunks_mut::<LANES>();
        let (residual_heads, residual_tail) = self.residuals.as_chunks_mut::<LANES>();
        for (u, residual) in heads.iter_mut().zip(residual_heads) {
            for lane in 0..LANES {
                subtract(lane, &mut u[lane], &mut residual[lane]);
            }
        }
        for (lane, (u, residual)) in tail.iter_mut().zip(residual_tail).enumerate() {
            subtract(lane, u, residual);
        }
        Totals {
            largest: largest.into_iter().fold(f64::NEG_INFINITY, f64::max),
            sum: sum.iter().sum(),
        }
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
                let (newton, basis) =
                    PivotedCholesky::choose(&family, &rows, tol, MAX_LANDMARKS).unwrap();
                let mut u = Vec::new();
                let power = newton.at(&points, 0..120, 123, &mut u);
                // The functions computed with the landmarks equal those evaluated afterwards.
                let alike = |a: &[f64], b: &[f64], by: f64| {
                    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= by));
                };
                for (k, u) in u.chunks_exact(123).enumerate() {
                    alike(u, &basis.function(k).collect::<Vec<_>>().concat(), 1e-8);
                }
                alike(&power, &newton.powers(&points, &basis.residuals()), 1e-5);
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
