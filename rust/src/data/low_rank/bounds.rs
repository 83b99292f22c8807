//! Bounds on the sums over rows of any function of a family, from sums of Newton functions.
//!
//! By `pivoted_cholesky.rs` phi_z = U u(z) + e with |e_n| <= P(x_n) P(z), where U has the Newton functions at the rows. So
//! * phi_z^T g differs from u(z)^T U^T g by at most P(z) sum_n P(x_n) |g_n|;
//! * |phi_z - U u(z)| in the norm of W is at most P(z) sqrt(sum_n w_n P(x_n)^2).
//!
//! The sums take N L^2 operations, once for constant weights; each candidate then takes L^2 instead of N m.

use std::ops::Range;
use std::sync::Arc;

use crate::Points;
use crate::data::design::Family;
use crate::data::low_rank::pivoted_cholesky::PivotedCholesky;
use crate::linalg::Matrix;
use crate::linalg::gemm::{TallMatrix, add_transpose_product};
use crate::linalg::vector::dot;

/// Rows, or candidates, whose Newton functions one thread holds.
pub(crate) const STRIP: usize = 256;
/// Values between columns: at a distance of a power of two, columns would compete for the same cache sets.
pub(crate) const GAP: usize = 8;

/// The Newton basis of a family, and its Gram matrix if the weights are constant.
#[derive(Debug, Default)]
pub(crate) struct FamilyBasis {
    /// `None` if it needs too many landmarks.
    pub(crate) newton: Option<Arc<PivotedCholesky>>,
    pub(crate) gram: Option<Arc<Matrix>>,
}

/// Sums over rows of the Newton functions of one family, for the model at which they were computed.
#[derive(Debug)]
pub(crate) struct ScreeningBounds {
    /// The functions for which there are bounds.
    pub(crate) functions: Range<usize>,
    pub(crate) family: usize,
    pub(crate) newton: Arc<PivotedCholesky>,
    /// U^T W U, both triangles.
    pub(crate) gram: Arc<Matrix>,
    /// U^T W Phi_A, followed by U^T g.
    pub(crate) cross: Vec<f64>,
    /// sqrt(sum w P^2), and sum |g| P.
    pub(crate) errors: [f64; 2],
    /// sum |g|.
    pub(crate) size: f64,
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
