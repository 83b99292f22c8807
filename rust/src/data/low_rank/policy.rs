//! How accurate low-rank features must be, and how many of them pay.

use crate::data::design::{Design, Family};
use crate::data::low_rank::pivoted_cholesky::{PivotedCholesky, PointBasis, sample};

/// Error of a kernel value, relative to the largest, that counts as rounding.
pub(crate) const EXACT: f64 = 1e-12;
/// Error of a kernel value, relative to the largest, of features with which a fit chooses functions.
const COARSE: f64 = 1e-2;
/// Numbers in F: 32 MiB.
const MAX_NUMBERS: usize = 1 << 22;
/// Rows and centres among which the first landmarks are chosen.
const SAMPLE: usize = 1024;

/// Accuracy and number of the features of a design.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LowRankPolicy {
    /// Error of a kernel value, relative to the largest.
    pub(crate) tol: f64,
    /// Largest number of features.
    pub(crate) max_features: usize,
}

impl LowRankPolicy {
    fn new(tol: f64, max_features: usize) -> Option<Self> {
        /// Fewer features are not worth a policy.
        const MIN_FEATURES: usize = 9;
        (max_features >= MIN_FEATURES).then_some(Self { tol, max_features })
    }

    /// Features exact to rounding, where they make a pass over the dictionary cheaper than its kernel values.
    pub(crate) fn exact(design: &dyn Design) -> Option<Self> {
        /// Cost of a kernel value in multiplications, including its products with a few active functions.
        const KERNEL_VALUE: f64 = 10.0;
        /// Kernel values of a dictionary that is worth the choice of landmarks.
        const MIN_VALUES: usize = 1 << 19;
        let (n, k) = (design.n_rows(), design.n_basis());
        let (rows, functions) = (n as f64, k as f64);
        // Far below the largest integer.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pays = (2.0 * KERNEL_VALUE * rows * functions / (rows + functions)).sqrt() as usize;
        let max_features = pays.min(max_in_memory(n, k));
        let enough = n.saturating_mul(k) >= MIN_VALUES;
        Self::new(EXACT, max_features).filter(|_| enough)
    }

    /// Features accurate enough to choose functions.
    pub(crate) fn coarse(design: &dyn Design) -> Option<Self> {
        /// A fit of fewer kernel values is faster than the choice of landmarks.
        const MIN_VALUES: usize = 3 << 19;
        /// Smallest ratio of rows, and of functions, to features.
        const MIN_RATIO: usize = 5;
        let (n, k) = (design.n_rows(), design.n_basis());
        let max_features = max_in_memory(n, k).min(n.min(k) / MIN_RATIO);
        let enough = n.saturating_mul(k) >= MIN_VALUES;
        Self::new(COARSE, max_features).filter(|_| enough)
    }

    pub(crate) fn is_coarse(self) -> bool {
        self.tol >= COARSE
    }

    /// Landmarks for a family, the Newton basis at the points among which they were chosen, and the policy that they meet.
    ///
    /// If few landmarks suffice for a coarse policy, the kernel is very wide. Models are then differences of large terms, and need exact
    /// features.
    pub(crate) fn landmarks(
        self,
        family: &Family<'_>,
    ) -> Option<(PivotedCholesky, PointBasis, Self)> {
        /// Smallest number of landmarks with which coarse features suffice.
        const MIN_COARSE: usize = 64;
        /// Largest number of landmarks of exact features for a wide kernel.
        const MAX_WIDE: usize = 200;
        let sample = sample(family, SAMPLE);
        let choose = |policy: Self| {
            PivotedCholesky::choose(family, &sample, policy.tol, policy.max_features)
        };
        let (newton, at_sample) = choose(self)?;
        if !self.is_coarse() || newton.len() >= MIN_COARSE {
            return Some((newton, at_sample, self));
        }
        let wide = Self {
            tol: EXACT,
            max_features: self.max_features.min(MAX_WIDE),
        };
        let (newton, at_sample) = choose(wide)?;
        Some((newton, at_sample, wide))
    }
}

fn max_in_memory(n: usize, k: usize) -> usize {
    MAX_NUMBERS / n.max(k).max(1)
}
