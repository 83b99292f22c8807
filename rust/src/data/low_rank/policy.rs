//! How well features stand for the functions of a dictionary, and how many of them are worth it.

use crate::data::design::{Design, Family};
use crate::data::low_rank::pivoted_cholesky::{PivotedCholesky, Seen, sample};

/// What is left of a kernel value, relative to the largest: where it counts as rounding, and where it is little enough to choose
/// functions by.
pub(crate) const EXACT: f64 = 1e-12;
const COARSE: f64 = 1e-2;
/// Numbers in F at most: 32 MiB.
const MOST_NUMBERS: usize = 1 << 22;
/// Rows and centres among which landmarks are chosen at first.
const SAMPLE: usize = 1024;

/// How well a factor stands for its design, and what it may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LowRankPolicy {
    /// What is left of a kernel value, relative to the largest.
    pub(crate) tol: f64,
    /// Features at most.
    pub(crate) most: usize,
}

impl LowRankPolicy {
    /// But for rounding, where that makes passes over the dictionary cheaper than looks at every value.
    pub(crate) fn exact(design: &dyn Design) -> Option<Self> {
        let most = most_features(design.n_rows(), design.n_basis())?;
        Some(Self { tol: EXACT, most })
    }

    /// Well enough to choose functions by.
    pub(crate) fn coarse(design: &dyn Design) -> Option<Self> {
        /// A fit of fewer rows is done before the factor is.
        const LEAST: usize = 3 << 19;
        const SHARE: usize = 5;
        let (n, k) = (design.n_rows(), design.n_basis());
        let most = most_in_memory(n, k).min(n.min(k) / SHARE);
        (n.saturating_mul(k) >= LEAST && most > 8).then_some(Self { tol: COARSE, most })
    }

    pub(crate) fn is_coarse(self) -> bool {
        self.tol >= COARSE
    }

    /// Landmarks of this grade, what they say of the points they were chosen from, and the grade they are of: where a few would
    /// do for a coarse one the kernel is so wide that functions are differences of large numbers, and all is wanted.
    pub(crate) fn landmarks(self, family: &Family<'_>) -> Option<(PivotedCholesky, Seen, Self)> {
        /// What a kernel that says enough by a coarse grade has at least, and a wide one at most.
        const FEW: usize = 64;
        const MOST: usize = 200;
        let sample = sample(family, SAMPLE);
        let (newton, seen) = PivotedCholesky::choose(family, &sample, self.tol, self.most)?;
        if !self.is_coarse() || newton.len() >= FEW {
            return Some((newton, seen, self));
        }
        let wide = Self {
            tol: EXACT,
            most: self.most.min(MOST),
        };
        let (newton, seen) = PivotedCholesky::choose(family, &sample, wide.tol, wide.most)?;
        Some((newton, seen, wide))
    }
}

/// Features that make a pass cheaper than a look at every kernel value; `None` where that is none.
fn most_features(n: usize, k: usize) -> Option<usize> {
    /// What a pass takes for each kernel value: so many multiplications, and a few functions in the model.
    const VALUE: f64 = 10.0;
    /// Smaller dictionaries are not worth the choice of landmarks.
    const LEAST: usize = 1 << 19;
    if n.saturating_mul(k) < LEAST {
        return None;
    }
    // No number of rows or functions is beyond a float, and the root is far below.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let most = (2.0 * VALUE * (n as f64) * (k as f64) / (n as f64 + k as f64)).sqrt() as usize;
    let most = most.min(most_in_memory(n, k));
    (most > 8).then_some(most)
}

fn most_in_memory(n: usize, k: usize) -> usize {
    MOST_NUMBERS / n.max(k).max(1)
}
