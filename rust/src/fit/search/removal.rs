//! The evidence when functions leave together, and what that leaves to gain for those outside.
//!
//! Let the functions J leave, all other precisions and the noise held. Seen as a function of their precisions alone the
//! log evidence is, but for a constant, `1/2 [ln|A_J| - ln|A_J + s| + q^T (A_J + s)^-1 q]`: equation (18) of Tipping & Faul
//! (2003) with the matrix s and the vector q of J left out. It is 0 at A_J = infinity, and in the model
//! `Sigma_JJ = (A_J + s)^-1` and `mu_J = Sigma_JJ q` (equation 23 for several functions). So leaving gains
//!
//! `-1/2 [ln|A_J Sigma_JJ| + mu_J^T Sigma_JJ^-1 mu_J]`,
//!
//! and taking J out of the posterior, `Sigma - Sigma_J Sigma_JJ^-1 Sigma_J^T` (appendix A.4 for several), turns the factors of
//! a candidate i with `u = beta Sigma_J^T Phi^T phi_i` into
//!
//! `S + u^T Sigma_JJ^-1 u` and `Q + u^T Sigma_JJ^-1 mu_J`.
//!
//! What i then gains at its best precision is equation (27) at these. Both parts are exact.

use crate::fit::evidence::Factors;
use crate::fit::model::State;
use crate::linalg::vector::dot;
use crate::linalg::{Cholesky, NotPositiveDefinite};

/// Active functions about to leave together.
pub(crate) struct Removal {
    /// Of Sigma among them.
    chol: Cholesky,
    /// L^-1 of their means.
    means: Vec<f64>,
    /// What their leaving gains: mostly a loss.
    pub(crate) gain: f64,
}

impl Removal {
    /// The functions at these places of the active set.
    pub(crate) fn new(state: &State, places: &[usize]) -> Result<Self, NotPositiveDefinite> {
        let mut chol = Cholesky::with_capacity(places.len());
        chol.refactor(places.len(), |a, b| state.sigma[(places[a], places[b])])?;
        let mut means: Vec<f64> = places.iter().map(|&k| state.mu[k]).collect();
        chol.solve_lower_in_place(&mut means);
        let prior = |&k: &usize| {
            let (prior, alpha) = (state.priors[k], state.alpha[k]);
            let density = if prior.is_flat() {
                0.0
            } else {
                prior.log_density(alpha)
            };
            0.5 * alpha.ln() + density
        };
        let within: f64 = places.iter().map(prior).sum();
        Ok(Self {
            gain: -within - 0.5 * (chol.ln_det() + dot(&means, &means)),
            chol,
            means,
        })
    }

    /// The factors of a function outside once they have left; `covariances`: u, which is used up.
    pub(crate) fn factors_after(&self, outside: Factors, covariances: &mut [f64]) -> Factors {
        self.chol.solve_lower_in_place(covariances);
        Factors {
            s: outside.s + dot(covariances, covariances),
            q: outside.q + dot(covariances, &self.means),
            prior: outside.prior,
        }
    }
}
