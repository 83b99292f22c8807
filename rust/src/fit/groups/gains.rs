//! The evidence as a function of the precision of one group.
//!
//! In the basis of the eigenvectors `u_k` of S it is, for n outputs,
//!
//! l(alpha) = 1/2 sum_k \[n ln(alpha / (alpha + s_k)) + p_k / (alpha + s_k)\],    p_k = q_k^2 - 2 n rho_k,
//!
//! equation (18) of Tipping & Faul (2003) for each k; rho is the part of the prior on complexity, see `docs/theory/groups.md`.

use crate::fit::tuning::Tuning;
use crate::linalg::Matrix;

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

/// Writes the eigenvalues of a symmetric matrix on its diagonal, and its eigenvectors into the columns of another, by Jacobi's
/// rotations, which are the fastest for small ones.
pub(super) fn eigen(a: &mut Matrix, u: &mut Matrix) {
    let n = a.nrows();
    if !a.iter().all(|x| x.is_finite()) {
        a.fill_diagonal(f64::NAN);
        return;
    }
    if n > Tuning::MAX_ROTATED {
        let eigen = a.clone().symmetric_eigen();
        a.set_diagonal(&eigen.eigenvalues);
        *u = eigen.eigenvectors;
        return;
    }
    u.fill_with_identity();
    let size = a.norm_squared();
    for _ in 0..Tuning::GROUP_REFINEMENTS {
        let off: f64 = (1..n)
            .map(|j| (0..j).map(|i| a[(i, j)].powi(2)).sum::<f64>())
            .sum();
        // The errors of the eigenvalues are of second order.
        if off <= 1e-24 * size {
            break;
        }
        for j in 1..n {
            for i in 0..j {
                let b = a[(i, j)];
                if b == 0.0 {
                    continue;
                }
                let theta = (a[(j, j)] - a[(i, i)]) / (2.0 * b);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = (t * t + 1.0).sqrt().recip();
                let s = t * c;
                for k in 0..n {
                    let (x, y) = (a[(k, i)], a[(k, j)]);
                    (a[(k, i)], a[(k, j)]) = (c * x - s * y, s * x + c * y);
                    let (x, y) = (u[(k, i)], u[(k, j)]);
                    (u[(k, i)], u[(k, j)]) = (c * x - s * y, s * x + c * y);
                }
                for k in 0..n {
                    let (x, y) = (a[(i, k)], a[(j, k)]);
                    (a[(i, k)], a[(j, k)]) = (c * x - s * y, s * x + c * y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eigenvectors_diagonalise() {
        for n in [1, 2, 3, 7, 20] {
            let root = Matrix::from_fn(n, n, |i, j| ((3 * i + 5 * j * j) as f64).sin());
            let a = &root * root.transpose();
            let (mut values, mut u) = (a.clone(), Matrix::zeros(n, n));
            eigen(&mut values, &mut u);
            let diagonal = Matrix::from_diagonal(&values.diagonal());
            assert!((&u * diagonal * u.transpose() - &a).amax() < 1e-12 * (1.0 + a.amax()));
            assert!((u.transpose() * &u - Matrix::identity(n, n)).amax() < 1e-13);
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
