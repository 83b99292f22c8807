//! The evidence when functions of several outputs leave together, and what that leaves to gain for those outside.
//!
//! The evidence is the sum of those of the outputs, so what [`leaving`](super::super::super::exchange) has for one is summed:
//! where the functions J leave, all other precisions and the noise held, it gains
//!
//! `-1/2 sum_c [ln|A_J Sigma_JJ| + mu_cJ^T Sigma_JJ^-1 mu_cJ]`
//!
//! with the Sigma of each output's noise level, and a candidate i with `u = beta Sigma_J^T Phi^T phi_i` then has
//!
//! `S_i + u^T Sigma_JJ^-1 u` at each level and `Q_ic + u^T Sigma_JJ^-1 mu_cJ` for each output
//!
//! for its factors: equations (9) to (12) of Psorakis et al. (2010) at these say what it gains. All of it is exact.

use super::super::super::shared::Term;
use super::super::candidates::Candidates;
use super::super::state::OutputState;
use super::super::terms::collect_terms;
use crate::linalg::blas::dot;
use crate::linalg::{Cholesky, NotPositiveDefinite};

/// Active functions about to leave together.
pub(super) struct Leaving {
    /// Of Sigma among them, for each level.
    factors: Vec<Cholesky>,
    /// L^-1 of their means, for each output.
    means: Vec<Vec<f64>>,
    /// What their leaving gains: mostly a loss.
    pub(super) gain: f64,
}

impl Leaving {
    /// The functions at these places of the active set.
    pub(super) fn new(state: &OutputState, places: &[usize]) -> Result<Self, NotPositiveDefinite> {
        let ln_alpha: f64 = places.iter().map(|&k| state.alpha[k].ln()).sum();
        let (mut factors, mut means) = (Vec::new(), Vec::new());
        let mut gain = 0.0;
        for (l, level) in state.levels.iter().enumerate() {
            let mut chol = Cholesky::with_capacity(places.len());
            chol.refactor(places.len(), |a, b| level.sigma[(places[a], places[b])])?;
            for output in &state.outputs[state.outputs_of(l)] {
                let mut mean: Vec<f64> = places.iter().map(|&k| output.mu[k]).collect();
                chol.solve_lower_in_place(&mut mean);
                gain -= 0.5 * (ln_alpha + chol.ln_det() + dot(&mean, &mean));
                means.push(mean);
            }
            factors.push(chol);
        }
        Ok(Self {
            factors,
            means,
            gain,
        })
    }

    /// The factors of candidate `i` once they have left; `false` if what is left of it is but rounding. `covariances`: u, level
    /// after level, which is used up.
    pub(super) fn terms_after(
        &self,
        (state, candidates): (&OutputState, &Candidates),
        i: usize,
        covariances: &mut [f64],
        terms: &mut Vec<Term>,
    ) -> bool {
        let size = covariances.len() / self.factors.len();
        for (chol, u) in self.factors.iter().zip(covariances.chunks_exact_mut(size)) {
            chol.solve_lower_in_place(u);
        }
        let u = |l: usize| &covariances[l * size..(l + 1) * size];
        let sparsity = |l: usize| candidates.sparsity(l, i) + dot(u(l), u(l));
        let quality =
            |c: usize| candidates.quality(c, i) + dot(u(state.level_of(c)), &self.means[c]);
        collect_terms(state, sparsity, quality, terms)
    }
}
