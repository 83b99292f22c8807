//! The Newton basis of a positive definite kernel: what a few landmarks say of its functions everywhere.
//!
//! With landmarks z_1, ..., z_L and K = R^T R the matrix of k among them, u(x) = R^-T k_L(x) gives
//! `k(x, z) = u(x)^T u(z) + E(x, z)`. The rest E is positive semidefinite too (a Schur complement), so that
//! |E(x, z)| <= P(x) P(z) with the power function P(x)^2 = k(x, x) - |u(x)|^2. Landmarks are chosen one by one where P is
//! largest: the P-greedy algorithm, or pivoted Cholesky (De Marchi, Schaback & Wendland 2005; Santin & Haasdonk 2017).
//! Where k is smooth at the scale of the data P falls exponentially with L.
//!
//! Rounding: a factor computed is that of a matrix wrong by at most (L + 1) u |R^T| |R|, elements of the product being at
//! most k(x, x) (Higham 2002, theorem 10.3). Every P^2 here is raised by four times as much.

use std::ops::Range;

use crate::data::design::Family;
use crate::linalg::aligned_columns::AlignedColumns;
use crate::linalg::batched_triangular::{LANES, solve_lanes, square_lanes};
use crate::linalg::column_combination::add_combination;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::parallel::{fill_pieces, pieces};
use crate::{Kernel, Points};

/// Landmarks at most.
pub(crate) const MOST: usize = 1024;
/// Points that one thread looks at.
const STRIP: usize = 512;

/// Landmarks and their factor.
#[derive(Debug)]
pub(crate) struct PivotedCholesky {
    kernel: Kernel,
    n_features: usize,
    /// Row by row.
    landmarks: Vec<f64>,
    /// R^T, rows one after another, each up to and with its diagonal.
    lower: Vec<f64>,
    /// What rounding may make of P^2.
    rounding: f64,
    /// The largest k(x, x) among the points they were chosen from.
    largest: f64,
}

/// What landmarks say of some points.
pub(crate) struct Seen {
    strips: Vec<Strip>,
}

/// Of points side by side.
struct Strip {
    points: Range<usize>,
    /// u, function after function.
    functions: Vec<AlignedColumns>,
    /// k(x, x) less the squares of these.
    left: Vec<f64>,
    sums: Left,
}

impl Seen {
    /// `functions(points)`: u at some points, and `left` what is left of k(x, x) at all.
    pub(crate) fn new(
        left: &[f64],
        functions: impl Fn(Range<usize>) -> Vec<AlignedColumns>,
    ) -> Self {
        let strips = pieces(left.len(), STRIP).map(|points| {
            let mut left = left[points.clone()].to_vec();
            // Nothing is taken off: that is only looked at.
            let sums = dispatch(TakeOff {
                u: &mut vec![0.0; points.len()],
                left: &mut left,
                root: 1.0,
            });
            Strip {
                functions: functions(points.clone()),
                points,
                left,
                sums,
            }
        });
        Self {
            strips: strips.collect(),
        }
    }

    /// How many points there are.
    pub(crate) fn n_points(&self) -> usize {
        self.strips.last().map_or(0, |strip| strip.points.end)
    }

    /// A function at all of them, in pieces.
    pub(crate) fn function(&self, k: usize) -> impl Iterator<Item = &[f64]> {
        self.strips.iter().map(move |strip| &strip.functions[k][..])
    }

    /// k(x, x) less the squares of the functions.
    pub(crate) fn left(&self) -> Vec<f64> {
        let parts: Vec<&[f64]> = self.strips.iter().map(|strip| &strip.left[..]).collect();
        parts.concat()
    }

    fn total_left(&self) -> f64 {
        self.strips.iter().map(|strip| strip.sums.total).sum()
    }

    /// The strip, and the place in it, of the first point where most is left.
    fn farthest(&self) -> (&Strip, usize) {
        let more = |most: usize, k: usize| {
            let [a, b] = [most, k].map(|k| self.strips[k].sums.largest);
            if b > a { k } else { most }
        };
        let strip = &self.strips[(1..self.strips.len()).fold(0, more)];
        let is_largest = |left: &f64| *left >= strip.sums.largest;
        (strip, strip.left.iter().position(is_largest).unwrap_or(0))
    }
}

/// A point that becomes a landmark.
struct Landmark<'a> {
    kernel: &'a Kernel,
    point: &'a [f64],
    /// Minus the functions there.
    minus: Vec<f64>,
    /// P there.
    root: f64,
}

impl Strip {
    /// One more function.
    fn add(&mut self, landmark: &Landmark<'_>, points: &Points) {
        let mut u = AlignedColumns::zeros(self.points.len());
        landmark
            .kernel
            .column_into(points, landmark.point, self.points.clone(), &mut u);
        let columns: Vec<&[f64]> = self.functions.iter().map(|u| &u[..]).collect();
        add_combination(&columns, &landmark.minus, &mut u);
        self.sums = dispatch(TakeOff {
            u: &mut u,
            left: &mut self.left,
            root: landmark.root,
        });
        self.functions.push(u);
    }
}

impl PivotedCholesky {
    /// Landmarks for a family until P^2 is nowhere more than `tol` k(x, x) in a sample of points, row by row, and what they say of
    /// these; `None` where that takes more than `most`, or seems to.
    pub(crate) fn choose(
        family: &Family<'_>,
        sample: &[f64],
        tol: f64,
        most: usize,
    ) -> Option<(Self, Seen)> {
        let d = family.points.n_features();
        let own = |point: &[f64]| family.kernel.eval(point, point);
        let left: Vec<f64> = sample.chunks_exact(d.max(1)).map(own).collect();
        let largest = left.iter().copied().fold(0.0, f64::max);
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
        let seen = this.grow(sample, Seen::new(&left, |_| Vec::new()), tol, most)?;
        Some((this, seen))
    }

    /// More landmarks out of these points, until P^2 is no more than `tol` k(x, x) there, and what all then say of them; `None` if
    /// that takes more than `most`.
    pub(crate) fn grow(
        &mut self,
        sample: &[f64],
        mut seen: Seen,
        tol: f64,
        most: usize,
    ) -> Option<Seen> {
        let (before, d) = (self.len(), self.n_features);
        let points = Points::from_rows(sample, seen.n_points(), d);
        let sum = seen.total_left();
        loop {
            let (strip, at) = seen.farthest();
            if strip.left[at] <= tol * self.largest {
                break;
            }
            let so_far = self.len() - before;
            if self.len() == most || is_hopeless(so_far, seen.total_left() / sum, tol, most) {
                return None;
            }
            let row: Vec<f64> = strip.functions.iter().map(|u| u[at]).collect();
            let landmark = Landmark {
                kernel: &self.kernel,
                point: &sample[(strip.points.start + at) * d..][..d],
                minus: row.iter().map(|u| -u).collect(),
                root: strip.left[at].sqrt(),
            };
            self.landmarks.extend_from_slice(landmark.point);
            self.lower.extend(row);
            self.lower.push(landmark.root);
            fill_pieces(&mut seen.strips, 1, |_, strips| {
                strips[0].add(&landmark, &points);
            });
        }
        // No number of landmarks is beyond a float.
        #[allow(clippy::cast_precision_loss)]
        let terms = self.len() as f64 + 8.0;
        self.rounding = 4.0 * terms * 0.5 * f64::EPSILON;
        Some(seen)
    }

    /// P at all points, of which that much is left.
    pub(crate) fn powers(&self, points: &Points, left: &[f64]) -> Vec<f64> {
        let own = self.own(points, 0..left.len());
        let pairs = left.iter().zip(own);
        pairs.map(|(left, own)| self.power(*left, own)).collect()
    }

    /// k(x, x) at some points.
    fn own(&self, points: &Points, rows: Range<usize>) -> Vec<f64> {
        let mut x = vec![0.0; self.n_features];
        let own = |row| {
            for (f, x) in x.iter_mut().enumerate() {
                *x = points.feature(f)[row];
            }
            self.kernel.eval(&x, &x)
        };
        rows.map(own).collect()
    }

    /// P where so much of k(x, x) is left.
    fn power(&self, left: f64, own: f64) -> f64 {
        (left.max(0.0) + self.rounding * own).sqrt()
    }

    /// The largest k(x, x) among the points they were chosen from.
    pub(crate) fn largest(&self) -> f64 {
        self.largest
    }

    /// What rounding may make of P^2, relative to k(x, x).
    pub(crate) fn rounding(&self) -> f64 {
        self.rounding
    }

    /// P^2 at each landmark before it was one, relative to the largest k(x, x).
    pub(crate) fn pivots(&self) -> Vec<f64> {
        let ends = (1..=self.len()).map(|rows| rows * (rows + 1) / 2 - 1);
        ends.map(|end| self.lower[end] * self.lower[end] / self.largest)
            .collect()
    }

    /// L.
    pub(crate) fn len(&self) -> usize {
        self.landmarks.len() / self.n_features.max(1)
    }

    /// u at some points: function after function, `stride` apart; and P at each.
    pub(crate) fn at(
        &self,
        points: &Points,
        rows: Range<usize>,
        stride: usize,
        out: &mut Vec<f64>,
    ) -> Vec<f64> {
        let (height, d) = (rows.len(), self.n_features);
        out.resize(self.len() * stride, 0.0);
        for (landmark, out) in self
            .landmarks
            .chunks_exact(d)
            .zip(out.chunks_exact_mut(stride))
        {
            self.kernel
                .column_into(points, landmark, rows.clone(), &mut out[..height]);
        }
        let mut power = Vec::with_capacity(height);
        let mut v = vec![[0.0; LANES]; self.len()];
        let own = self.own(points, rows);
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

/// Divides u by a root, and takes its squares off what is left.
struct TakeOff<'a> {
    u: &'a mut [f64],
    left: &'a mut [f64],
    root: f64,
}

/// Of what is left.
struct Left {
    largest: f64,
    total: f64,
}

impl WithSimd for TakeOff<'_> {
    type Output = Left;

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, _: S) -> Left {
        let (mut largest, mut total) = ([f64::NEG_INFINITY; LANES], [0.0; LANES]);
        let mut take_off = |lane: usize, u: &mut f64, left: &mut f64| {
            *u /= self.root;
            *left -= *u * *u;
            largest[lane] = if *left > largest[lane] {
                *left
            } else {
                largest[lane]
            };
            total[lane] += *left;
        };
        let (heads, tail) = self.u.as_chunks_mut::<LANES>();
        let (left_heads, left_tail) = self.left.as_chunks_mut::<LANES>();
        for (u, left) in heads.iter_mut().zip(left_heads) {
            for lane in 0..LANES {
                take_off(lane, &mut u[lane], &mut left[lane]);
            }
        }
        for (lane, (u, left)) in tail.iter_mut().zip(left_tail).enumerate() {
            take_off(lane, u, left);
        }
        Left {
            largest: largest.into_iter().fold(f64::NEG_INFINITY, f64::max),
            total: total.iter().sum(),
        }
    }
}

/// Whether P^2, of which this share is left in the mean, will hardly come down to `tol` with `most` landmarks.
///
/// The first landmarks cover the points one by one, and what is left falls faster once they have: up to four times.
fn is_hopeless(so_far: usize, share: f64, tol: f64, most: usize) -> bool {
    const EARLY: usize = 24;
    const FASTER: f64 = 4.0;
    // No number of landmarks is beyond a float.
    #[allow(clippy::cast_precision_loss)]
    let [landmarks, most] = [so_far as f64, most as f64];
    so_far >= EARLY && landmarks * tol.ln() / share.ln() > FASTER * most
}

/// Rows and centres from all over the data, row by row, at most so many of each.
pub(crate) fn sample(family: &Family<'_>, most: usize) -> Vec<f64> {
    let (points, d) = (family.points, family.points.n_features());
    let spread = |n: usize| {
        let size = n.min(most);
        (0..size).map(move |k| k * n / size)
    };
    let mut sample = Vec::new();
    for row in spread(points.n_points()) {
        sample.extend((0..d).map(|f| points.feature(f)[row]));
    }
    if !family.is_about_its_rows() {
        for centre in spread(family.len()) {
            sample.extend_from_slice(&family.centres[centre * d..(centre + 1) * d]);
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_at_most_the_product_of_powers() {
        let rows: Vec<f64> = (0..240).map(|i| 7.0 * (f64::from(i) * 1.7).sin()).collect();
        let points = Points::from_rows(&rows, 120, 2);
        for kernel in [
            Kernel::Gaussian {
                inverse_square_widths: vec![0.16],
            },
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
                let (newton, seen) = PivotedCholesky::choose(&family, &rows, tol, MOST).unwrap();
                let mut u = Vec::new();
                let power = newton.at(&points, 0..120, 123, &mut u);
                // What was seen on the way is what is asked for afterwards.
                let alike = |a: &[f64], b: &[f64], by: f64| {
                    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= by));
                };
                for (k, u) in u.chunks_exact(123).enumerate() {
                    alike(u, &seen.function(k).collect::<Vec<_>>().concat(), 1e-8);
                }
                alike(&power, &newton.powers(&points, &seen.left()), 1e-5);
                let point = |i: usize| &rows[2 * i..2 * i + 2];
                let own = |i: usize| kernel.eval(point(i), point(i));
                let largest = (0..120).map(own).fold(0.0, f64::max);
                for i in 0..120 {
                    for j in 0..120 {
                        let sum: f64 = u.chunks_exact(123).map(|u| u[i] * u[j]).sum();
                        let rest = kernel.eval(point(i), point(j)) - sum;
                        assert!(rest.abs() <= power[i] * power[j], "{kernel:?} {tol} {rest}");
                    }
                    assert!(power[i].powi(2) <= 1.1 * tol * largest);
                }
            }
        }
    }
}
