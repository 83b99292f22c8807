//! Bounds on the sums over rows of any function of a family, from sums of Newton functions.
//!
//! By `pivoted_cholesky.rs` phi_z = U u(z) + e with |e_n| <= P(x_n) P(z), where U has the Newton functions at the rows. So
//! * phi_z^T g differs from u(z)^T U^T g by at most P(z) sum_n P(x_n) |g_n|;
//! * |phi_z - U u(z)| in the norm of W is at most P(z) sqrt(sum_n w_n P(x_n)^2).
//!
//! The sums take N L^2 operations, once for constant weights; each candidate then takes L^2 instead of N m.

use std::ops::Range;
use std::sync::Arc;

use nalgebra::DMatrix;

use crate::data::design::Family;
use crate::data::low_rank::pivoted_cholesky::{MAX_LANDMARKS, PivotedCholesky, sample};
use crate::data::observations::Observations;
use crate::data::row_blocks::ROW_BLOCK;
use crate::linalg::aligned_columns;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::vector::{axpy, dot, mirror};
use crate::parallel::{map_pieces, pieces};
use crate::{Points, Result};

/// Rows, or candidates, whose Newton functions one thread holds.
pub(crate) const STRIP: usize = 256;
/// Values between columns: at a distance of a power of two, columns would compete for the same cache sets.
const GAP: usize = 8;

/// The Newton basis of a family, and its Gram matrix if the weights are constant.
#[derive(Debug, Default)]
pub(crate) struct FamilyBasis {
    /// `None` if it needs too many landmarks.
    newton: Option<Arc<PivotedCholesky>>,
    gram: Option<Arc<DMatrix<f64>>>,
}

/// Sums over rows of the Newton functions of one family, for the model at which they were computed.
#[derive(Debug)]
pub(crate) struct ScreeningBounds {
    /// The functions for which there are bounds.
    pub(crate) functions: Range<usize>,
    pub(crate) family: usize,
    newton: Arc<PivotedCholesky>,
    /// U^T W U, both triangles.
    gram: Arc<DMatrix<f64>>,
    /// U^T W Phi_A, followed by U^T g.
    cross: Vec<f64>,
    /// sqrt(sum w P^2), and sum |g| P.
    errors: [f64; 2],
    /// sum |g|.
    size: f64,
}

/// The sums of one candidate from its Newton functions, and bounds on their errors, in the units of the original column.
#[derive(Debug, Clone)]
pub(crate) struct BoundSample {
    /// phi^T W phi without the error e.
    pub(crate) diag: f64,
    /// phi^T g, to an error of at most `gradient_rest`.
    pub(crate) gradient: f64,
    /// phi^T W phi_j for each active function, without the error e.
    pub(crate) products: Vec<f64>,
    /// Bound on the length of the error e in the norm of W.
    pub(crate) rest: f64,
    /// Bound on the error of `gradient`.
    pub(crate) gradient_rest: f64,
}

/// The sums of one piece of rows.
struct PieceSums {
    gram: Vec<f64>,
    cross: Vec<f64>,
    /// sum w P^2, sum |g| P, sum |g|.
    errors: [f64; 3],
}

impl PieceSums {
    fn zeros(l: usize, m: usize, with_gram: bool) -> Self {
        Self {
            gram: vec![0.0; if with_gram { l * l } else { 0 }],
            cross: vec![0.0; l * (m + 1)],
            errors: [0.0; 3],
        }
    }
}

impl Observations<'_> {
    /// The Newton basis of a family, chosen at the first call; `None` if it needs too many landmarks.
    pub(crate) fn newton_basis(
        &mut self,
        index: usize,
        family: &Family<'_>,
    ) -> Option<Arc<PivotedCholesky>> {
        /// Error of Q, which is about N P^2 sqrt(beta); candidates that nearly gain have a Q of about 1.
        const Q_ERROR: f64 = 1e-4;
        /// Rows, and centres, among which landmarks are chosen.
        const SAMPLE: usize = 4096;
        if self.bases.len() <= index {
            let tol = (Q_ERROR / family.points.n_points() as f64).clamp(1e-12, 1e-7);
            let sample = sample(family, SAMPLE);
            let chosen = PivotedCholesky::choose(family, &sample, tol, MAX_LANDMARKS);
            self.bases.push(FamilyBasis {
                newton: chosen.map(|(newton, _)| Arc::new(newton)),
                gram: None,
            });
        }
        self.bases[index].newton.clone()
    }

    /// The bounds for one family at the latest `mu`.
    pub(crate) fn family_bounds(
        &mut self,
        index: usize,
        family: &Family<'_>,
        newton: Arc<PivotedCholesky>,
        active: &[usize],
    ) -> Result<ScreeningBounds> {
        /// Pieces of rows whose sums are held at a time.
        const PIECES: usize = 8;
        let l = newton.len();
        let known = self.bases[index].gram.clone();
        let mut sum = PieceSums::zeros(l, active.len(), known.is_none());
        for batch in pieces(family.points.n_points(), PIECES * ROW_BLOCK) {
            self.facts.check_cancelled()?;
            let parts = map_pieces(batch.len(), ROW_BLOCK, |rows| {
                let rows = batch.start + rows.start..batch.start + rows.end;
                self.piece_sums(family, &newton, active, rows, known.is_none())
            });
            for part in parts {
                let part = part?;
                axpy(1.0, &part.gram, &mut sum.gram);
                axpy(1.0, &part.cross, &mut sum.cross);
                axpy(1.0, &part.errors, &mut sum.errors);
            }
        }
        let gram = known.unwrap_or_else(|| {
            let mut gram = DMatrix::from_vec(l, l, sum.gram);
            mirror(&mut gram);
            Arc::new(gram)
        });
        if self.facts.is_linear {
            self.bases[index].gram = Some(gram.clone());
        }
        let [square, gradient, size] = sum.errors;
        Ok(ScreeningBounds {
            functions: family.columns(),
            family: index,
            newton,
            gram,
            cross: sum.cross,
            errors: [square.sqrt(), gradient],
            size,
        })
    }

    fn piece_sums(
        &self,
        family: &Family<'_>,
        newton: &PivotedCholesky,
        active: &[usize],
        rows: Range<usize>,
        with_gram: bool,
    ) -> Result<PieceSums> {
        let l = newton.len();
        let columns = self
            .columns
            .columns(&*self.design, &self.facts.norms, active);
        let mut sums = PieceSums::zeros(l, active.len(), with_gram);
        let mut u = Vec::new();
        for strip in pieces(rows.len(), STRIP) {
            self.facts.check_cancelled()?;
            let strip = rows.start + strip.start..rows.start + strip.end;
            let (height, stride) = (strip.len(), strip.len() + GAP);
            let power = newton.at(family.points, strip.clone(), stride, &mut u);
            let right = self.right(&columns, &strip);
            let (working, gradient) = (&self.working[strip.clone()], &self.residual[strip.clone()]);
            for ((p, w), g) in power.iter().zip(working).zip(gradient) {
                sums.errors[0] += w * p * p;
                sums.errors[1] += g.abs() * p;
                sums.errors[2] += g.abs();
            }
            let tall = TallMatrix::new(&u, stride, l);
            let right = TallMatrix::new(&right, aligned_columns::stride(height), columns.len() + 1);
            add_transpose_product(tall, right, height, &mut sums.cross, l);
            if with_gram {
                self.add_newton_gram(&u, stride, &strip, &mut sums.gram, l);
            }
        }
        Ok(sums)
    }

    /// Adds the contribution of some rows to the lower triangle of U^T W U.
    fn add_newton_gram(
        &self,
        u: &[f64],
        stride: usize,
        rows: &Range<usize>,
        out: &mut [f64],
        l: usize,
    ) {
        /// Columns of the Gram matrix at a time.
        const COLUMNS: usize = 64;
        let height = rows.len();
        for columns in pieces(l, COLUMNS) {
            let (first, width) = (columns.start, columns.len());
            let below = &u[first * stride..];
            let right = below.chunks(stride).take(width);
            let right: Vec<&[f64]> = right.map(|column| &column[..height]).collect();
            let right = self.weighted(&right, rows);
            let right = TallMatrix::new(&right, aligned_columns::stride(height), width);
            let below = TallMatrix::new(below, stride, l - first);
            add_lower_transpose_product(below, right, height, &mut out[first * l + first..], l);
        }
    }
}

impl ScreeningBounds {
    /// The bounds for some functions of the family.
    pub(crate) fn samples(&self, family: &Family<'_>, functions: &[usize]) -> Vec<BoundSample> {
        /// Rounding error of a sum of many products, relative to the sum of their absolute values.
        const ROUNDING: f64 = 1e-13;
        let (d, l, n) = (
            family.points.n_features(),
            self.newton.len(),
            functions.len(),
        );
        let mut centres = Vec::with_capacity(n * d);
        for j in functions {
            centres.extend_from_slice(&family.centres[(j - family.first) * d..][..d]);
        }
        let points = Points::from_rows(&centres, n, d);
        let mut u = Vec::new();
        let power = self.newton.at(&points, 0..n, n + GAP, &mut u);
        // Transposed, candidate after candidate, so that products read contiguous memory.
        let mut own = vec![0.0; n * l];
        for (k, u) in u.chunks_exact(n + GAP).enumerate() {
            for (c, u) in u[..n].iter().enumerate() {
                own[c * l + k] = *u;
            }
        }
        let products = |left: &[f64], width: usize| {
            let (left, right) = (TallMatrix::new(left, l, width), TallMatrix::new(&own, l, n));
            let mut out = vec![0.0; n * width];
            add_transpose_product(left, right, l, &mut out, width);
            out
        };
        let width = self.cross.len() / l.max(1);
        let (squares, products) = (
            products(self.gram.as_slice(), l),
            products(&self.cross, width),
        );
        let sample = |c: usize| {
            let own = &own[c * l..(c + 1) * l];
            let products = &products[c * width..(c + 1) * width];
            let value = dot(own, own).sqrt() + power[c];
            BoundSample {
                diag: dot(own, &squares[c * l..(c + 1) * l]),
                gradient: products[width - 1],
                products: products[..width - 1].to_vec(),
                rest: power[c] * self.errors[0],
                gradient_rest: power[c] * self.errors[1] + ROUNDING * value * self.size,
            }
        };
        (0..n).map(sample).collect()
    }
}

/// Whether computing the bounds and using them for each candidate takes less than half the work of passes over the rows.
pub(crate) fn is_worth_it(l: usize, n: usize, m: usize, n_candidates: usize) -> bool {
    /// Cost of a kernel value in multiplications.
    const KERNEL_VALUE: f64 = 8.0;
    let [l, n, m, k] = [l, n, m, n_candidates].map(|v| v as f64);
    let screened = n * l * (l + m + KERNEL_VALUE) + k * l * (1.5 * l + m + KERNEL_VALUE);
    screened < 0.5 * n * k * (m + KERNEL_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::low_rank::gaussian;
    use crate::{Kernel, KernelDesign, Likelihood};

    const N: usize = 700;

    fn design(kernel: Kernel) -> KernelDesign {
        let rows: Vec<f64> = (0..2 * N).map(|i| 6.0 * (i as f64 * 1.37).sin()).collect();
        let centres: Vec<f64> = (0..2 * N).map(|i| 7.0 * (i as f64 * 0.73).cos()).collect();
        KernelDesign::new(&rows, &centres, 2, vec![kernel], true).unwrap()
    }

    fn observations(design: &KernelDesign, likelihood: Likelihood) -> Observations<'_> {
        let wave = |i: usize| (i as f64 * 0.9).sin();
        let target = (0..N).map(|i| match likelihood {
            Likelihood::Gaussian => wave(i),
            _ => f64::from(u8::from(wave(i) > 0.2)),
        });
        let weights = (0..N).map(|i| 1.0 + 0.5 * wave(3 * i)).collect();
        Observations::in_part(design, likelihood, target.collect(), Some(weights)).unwrap()
    }

    #[test]
    fn sums_lie_within_their_bounds() {
        let kernels = [
            gaussian(0.02),
            Kernel::Polynomial {
                degree: 3,
                gamma: 0.02,
                coef0: 1.0,
            },
        ];
        for kernel in kernels {
            for likelihood in [Likelihood::Gaussian, Likelihood::Bernoulli] {
                let design = design(kernel.clone());
                let mut stats = observations(&design, likelihood);
                let (active, mu) = ([5, 60, 300], [0.3, -2.0, 1.0]);
                stats.lengths_of(&active).unwrap();
                for _ in 0..2 {
                    check(&mut stats, &active, &mu);
                }
            }
        }
    }

    fn check(stats: &mut Observations<'_>, active: &[usize], mu: &[f64]) {
        let bounds = stats.screening_bounds(active, mu, 1 << 20).unwrap();
        assert_eq!(bounds[0].functions, 1..N + 1);
        let functions: Vec<usize> = (1..=N).collect();
        let samples = stats.bound_samples(&bounds[0], &functions).unwrap();
        let exact = stats.sweep_of(&functions, active, mu, active).unwrap();
        for (c, sample) in samples.iter().enumerate() {
            let norm = stats.facts.norms[functions[c]];
            let length = exact.diag[c].sqrt() * norm;
            let slack = sample.rest + 1e-12 * length;
            assert!((length - sample.diag.sqrt()).abs() <= slack);
            assert!(sample.rest < 1e-3 * length);
            let gradient = exact.gradient[c] * norm;
            assert!((gradient - sample.gradient).abs() <= sample.gradient_rest);
            for (j, product) in sample.products.iter().enumerate() {
                // Active columns have unit length under the sample weights, which are at least W.
                assert!((exact.gram[j][c] * norm - product).abs() <= slack);
            }
        }
    }

    #[test]
    fn rough_and_indefinite_kernels_have_no_bounds() {
        for kernel in [
            gaussian(1e4),
            Kernel::Sigmoid {
                gamma: 0.1,
                coef0: 0.0,
            },
        ] {
            let design = design(kernel);
            let mut stats = observations(&design, Likelihood::Gaussian);
            assert!(
                stats
                    .screening_bounds(&[], &[], 1 << 20)
                    .unwrap()
                    .is_empty()
            );
        }
    }

    #[test]
    fn bounds_pay_for_many_candidates() {
        assert!(is_worth_it(600, 50_000, 50, 50_000));
        assert!(!is_worth_it(600, 50_000, 50, 100));
        assert!(!is_worth_it(1000, 1000, 50, 1000));
    }
}
