//! The evidence as a function of the precision of one group.
//!
//! In the basis of the eigenvectors `u_k` of S it is, for n outputs,
//!
//! l(alpha) = 1/2 sum_k \[n ln(alpha / (alpha + s_k)) + p_k / (alpha + s_k)\],    p_k = q_k^2 - 2 n rho_k,
//!
//! equation (18) of Tipping & Faul (2003) for each k; rho is the part of the prior on complexity, see `docs/theory/groups.md`.

use crate::fit::tuning::Tuning;
use crate::linalg::Matrix;
use crate::linalg::batched_triangular::LANES;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::parallel::pieces;

/// The terms of one group, one for each eigenvector.
pub(super) struct Terms {
    /// `s_k` and `p_k`, 0 for terms that are round-off: the columns depend on one another or on the model.
    each: Vec<(f64, f64)>,
    /// Outputs.
    n: f64,
}

impl Terms {
    /// `s` is a difference of numbers of the size `size`.
    pub(super) fn new(mut each: Vec<(f64, f64)>, size: f64, n: f64) -> Self {
        let largest = each.iter().fold(f64::MIN_POSITIVE, |a, b| a.max(b.0));
        let least = Tuning::GROUP_RANK * largest.max(size);
        for (s, p) in &mut each {
            // Also where round-off or overflow leaves NaN or infinity.
            if !(*s > least && s.is_finite() && p.is_finite()) {
                (*s, *p) = (0.0, 0.0);
            }
        }
        Self { each, n }
    }

    /// `p_k - n s_k` and `s_k` of the terms that gain alone.
    fn gaining(&self) -> impl Iterator<Item = (f64, f64)> {
        let excesses = self.each.iter().map(|(s, p)| (p - self.n * s, *s));
        excesses.filter(|(excess, s)| *excess > 0.0 && *s > 0.0)
    }

    /// l(alpha).
    pub(super) fn value(&self, alpha: f64) -> f64 {
        let (mut sum, mut product) = (0.0, 1.0);
        for (s, p) in &self.each {
            sum += p / (alpha + s);
            product *= 1.0 + s / alpha;
            if product > 1e100 {
                sum -= self.n * product.ln();
                product = 1.0;
            }
        }
        0.5 * (sum - self.n * product.ln())
    }

    /// A gain that no precision exceeds: each term has its own best precision.
    pub(super) fn bound(&self) -> f64 {
        let gains = self.gaining().map(|(excess, s)| {
            let ratio = excess / (self.n * s);
            ratio - ratio.ln_1p()
        });
        0.5 * self.n * gains.sum::<f64>()
    }

    /// The largest gain, from the precisions of a grid.
    pub(super) fn gain(&self) -> f64 {
        self.search().map_or(0.0, |found| found.gain.max(0.0))
    }

    /// The precision of the largest gain, infinite without one, and the gain.
    pub(super) fn best(&self) -> (f64, f64) {
        let Some(found) = self.search() else {
            return (f64::INFINITY, 0.0);
        };
        let alpha = self.refined(&found);
        let gain = self.value(alpha);
        if gain > 0.0 {
            (alpha, gain)
        } else {
            (f64::INFINITY, 0.0)
        }
    }

    /// The best precision of a grid; a maximum is between the smallest that is best for one term alone, equation (20), and infinity.
    fn search(&self) -> Option<Found> {
        let bests = self.gaining().map(|(excess, s)| self.n * s * s / excess);
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for alpha in bests {
            (low, high) = (low.min(alpha), high.max(alpha));
        }
        if !(low > 0.0 && low.is_finite()) {
            return None;
        }
        if self.each.len() == 1 {
            let at = low.ln();
            return Some(Found {
                range: [at, at],
                at,
                gain: self.value(low),
            });
        }
        let largest = self.each.iter().fold(0.0_f64, |a, b| a.max(b.0));
        let (low, high) = (low.ln(), high.max(1e4 * largest).ln());
        let step = (high - low) / (Tuning::GROUP_GRID - 1) as f64;
        let x = |i: usize| low + step * i as f64;
        let (mut best, mut gain) = (0, f64::NEG_INFINITY);
        for i in 0..Tuning::GROUP_GRID {
            let value = self.value(x(i).exp());
            if value > gain {
                (best, gain) = (i, value);
            }
        }
        let range = [
            x(best.saturating_sub(1)),
            x((best + 1).min(Tuning::GROUP_GRID - 1)),
        ];
        Some(Found {
            range,
            at: x(best),
            gain,
        })
    }

    /// The maximum in the range, by Newton steps in ln alpha and bisections where they leave it.
    fn refined(&self, found: &Found) -> f64 {
        let ([mut left, mut right], mut x) = (found.range, found.at);
        if left >= right {
            return x.exp();
        }
        for _ in 0..Tuning::GROUP_REFINEMENTS {
            let a = x.exp();
            let (mut slope, mut curvature) = (0.0, 0.0);
            for (s, p) in &self.each {
                let (of_log, of_square) = (self.n * s / (a + s), a * p / (a + s).powi(2));
                slope += 0.5 * (of_log - of_square);
                curvature -= 0.5 * (of_log * a / (a + s) + of_square * (1.0 - 2.0 * a / (a + s)));
            }
            if slope > 0.0 {
                left = x;
            } else {
                right = x;
            }
            let newton = x - slope / curvature;
            let next = if curvature < 0.0 && newton >= left && newton <= right {
                newton
            } else {
                0.5 * (left + right)
            };
            let has_converged = (next - x).abs() < 1e-13 * (1.0 + x.abs());
            x = next;
            if has_converged {
                break;
            }
        }
        x.exp()
    }
}

/// The best point of a grid in ln alpha, between its neighbours.
struct Found {
    range: [f64; 2],
    at: f64,
    gain: f64,
}

/// Writes the eigenvalues of a symmetric matrix on its diagonal, and its eigenvectors into the columns of another of the same size.
pub(super) fn eigen(a: &mut Matrix, u: &mut Matrix) {
    eigen_each(&[a.nrows()], a.as_mut_slice(), u.as_mut_slice());
}

/// Does the same for several matrices, stored one after another. Small ones of one size that follow each other share vectors of the
/// processor: each has a lane of its own.
pub(super) fn eigen_each(sizes: &[usize], a: &mut [f64], u: &mut [f64]) {
    let mut first = 0;
    let of_one_size = sizes.chunk_by(|n, m| n == m);
    for same in of_one_size.filter(|same| same[0] > 0) {
        let (n, square) = (same[0], same[0] * same[0]);
        for batch in pieces(same.len(), if n > Tuning::MAX_ROTATED { 1 } else { LANES }) {
            let range = first + batch.start * square..first + batch.end * square;
            let (a, u) = (&mut a[range.clone()], &mut u[range]);
            match batch.len() {
                _ if n > Tuning::MAX_ROTATED => decompose(n, a, u),
                1 => rotate::<1>(n, a, u),
                _ => rotate::<LANES>(n, a, u),
            }
        }
        first += same.len() * square;
    }
}

/// The eigenvalues and eigenvectors of a matrix that is too large for rotations.
fn decompose(n: usize, a: &mut [f64], u: &mut [f64]) {
    if a.iter().all(|x| x.is_finite()) {
        let eigen = Matrix::from_column_slice(n, n, a).symmetric_eigen();
        u.copy_from_slice(eigen.eigenvectors.as_slice());
        for (a, value) in a.iter_mut().step_by(n + 1).zip(&eigen.eigenvalues) {
            *a = *value;
        }
    } else {
        a.fill(f64::NAN);
    }
}

/// The eigenvalues and eigenvectors of up to L matrices of one size, by [`Rotations`].
fn rotate<const L: usize>(n: usize, a: &mut [f64], u: &mut [f64]) {
    let mut lanes = vec![[0.0; L]; n * n];
    for (lane, matrix) in a.chunks(n * n).enumerate() {
        for (to, x) in lanes.iter_mut().zip(matrix) {
            to[lane] = *x;
        }
    }
    let mut vectors = lanes.clone();
    dispatch(Rotations {
        n,
        a: &mut lanes,
        u: &mut vectors,
    });
    for (from, to) in [(lanes, a), (vectors, u)] {
        for (lane, matrix) in to.chunks_mut(n * n).enumerate() {
            for (x, from) in matrix.iter_mut().zip(&from) {
                *x = from[lane];
            }
        }
    }
}

/// Jacobi's rotations, which are the fastest for small matrices, until what is off the diagonal changes no digit of the eigenvalues.
/// Lane l of the elements is matrix l.
struct Rotations<'a, const L: usize> {
    n: usize,
    a: &'a mut [[f64; L]],
    u: &'a mut [[f64; L]],
}

impl<const L: usize> WithSimd for Rotations<'_, L> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { n, a, u } = self;
        for (k, u) in u.iter_mut().enumerate() {
            u.fill(if k.is_multiple_of(n + 1) { 1.0 } else { 0.0 });
        }
        let size = add_squares(a.iter());
        for _ in 0..Tuning::GROUP_REFINEMENTS {
            let is_off = |k: &usize| !k.is_multiple_of(n + 1);
            let off = add_squares((0..n * n).filter(is_off).map(|k| &a[k]));
            // The errors of the eigenvalues are of second order. A lane that has converged rests, whatever the others do.
            let is_open: [bool; L] = std::array::from_fn(|l| off[l] > 2e-24 * size[l]);
            if !is_open.contains(&true) {
                break;
            }
            for (i, j) in (1..n).flat_map(|j| (0..j).map(move |i| (i, j))) {
                let (mut c, mut s) = ([1.0; L], [0.0; L]);
                for l in 0..L {
                    let b = a[i * n + j][l];
                    let theta = (a[j * n + j][l] - a[i * n + i][l]) / (2.0 * b);
                    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                    let t = if is_open[l] && b != 0.0 { t } else { 0.0 };
                    c[l] = (t * t + 1.0).sqrt().recip();
                    s[l] = t * c[l];
                }
                for k in 0..n {
                    turn(a, [i * n + k, j * n + k], &c, &s);
                    turn(u, [i * n + k, j * n + k], &c, &s);
                }
                for k in 0..n {
                    turn(a, [k * n + i, k * n + j], &c, &s);
                }
            }
        }
        for l in (0..L).filter(|l| !size[*l].is_finite()) {
            for a in a.iter_mut() {
                a[l] = f64::NAN;
            }
        }
    }
}

/// Sums of squares in each lane.
#[inline(always)]
fn add_squares<'a, const L: usize>(elements: impl Iterator<Item = &'a [f64; L]>) -> [f64; L] {
    let mut sums = [0.0; L];
    for element in elements {
        for (sum, x) in sums.iter_mut().zip(element) {
            *sum += x * x;
        }
    }
    sums
}

/// Rotates two elements of each lane.
#[inline(always)]
fn turn<const L: usize>(x: &mut [[f64; L]], [i, j]: [usize; 2], c: &[f64; L], s: &[f64; L]) {
    let (p, q) = (x[i], x[j]);
    x[i] = std::array::from_fn(|l| c[l] * p[l] - s[l] * q[l]);
    x[j] = std::array::from_fn(|l| s[l] * p[l] + c[l] * q[l]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_diagonalise() {
        let sizes = [vec![1, 2, 7, 20], vec![3; 70], vec![20, 20, 0, 5, 5]].concat();
        let matrices = sizes.iter().enumerate().map(|(k, &n)| {
            let root = Matrix::from_fn(n, n, |i, j| ((3 * i + 5 * j * j + k) as f64).sin());
            // Some are diagonal, some 0, and one has a number that is none.
            match k {
                10 => Matrix::from_diagonal(&root.diagonal()),
                11 => Matrix::zeros(n, n),
                12 => Matrix::from_element(n, n, f64::NAN),
                _ => &root * root.transpose(),
            }
        });
        let matrices: Vec<Matrix> = matrices.collect();
        let mut values: Vec<f64> = matrices.iter().flat_map(|a| a.iter().copied()).collect();
        let mut vectors = vec![0.0; values.len()];
        eigen_each(&sizes, &mut values, &mut vectors);
        let mut at = 0;
        for (k, a) in matrices.iter().enumerate() {
            let (n, range) = (a.nrows(), at..at + a.len());
            at = range.end;
            let found = Matrix::from_column_slice(n, n, &values[range.clone()]);
            let u = Matrix::from_column_slice(n, n, &vectors[range]);
            if k == 12 {
                assert!(found.diagonal().iter().all(|x| x.is_nan()));
                continue;
            }
            let diagonal = Matrix::from_diagonal(&found.diagonal());
            let error = &u * diagonal * u.transpose() - a;
            assert!(n == 0 || error.amax() < 1e-12 * (1.0 + a.amax()));
            let error = u.transpose() * &u - Matrix::identity(n, n);
            assert!(n == 0 || error.amax() < 1e-13);
            // As alone: neighbours do not change it.
            let (mut alone, mut own) = (a.clone(), Matrix::zeros(n, n));
            eigen(&mut alone, &mut own);
            assert!(alone.diagonal() == found.diagonal() && own == u);
        }
    }

    #[test]
    fn no_precision_is_better_than_the_best() {
        let values: Vec<f64> = (0..600).map(|i| f64::from(i * i).sin().abs()).collect();
        for six in values.chunks(6) {
            let p = six[3..].iter().map(|x| 20.0 * x * x);
            let each: Vec<(f64, f64)> = six[..3].iter().copied().zip(p).collect();
            for n in [1.0, 5.0] {
                let terms = Terms::new(each.clone(), 0.0, n);
                let (alpha, gain) = terms.best();
                let scan = (-900..900).map(|i| terms.value((f64::from(i) / 50.0).exp()));
                let largest = scan.fold(0.0, f64::max);
                assert!(gain >= largest - 1e-12 && gain <= largest + 1e-2);
                assert!(gain <= terms.bound() + 1e-12 && gain >= terms.gain());
                assert!(alpha.is_finite() == (gain > 0.0));
            }
        }
    }
}
