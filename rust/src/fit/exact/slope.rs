//! The slope of the Laplace evidence in ln alpha, through the mode and all.
//!
//! With H = A + Phi^T B Phi, Sigma its inverse and h_n = phi_n^T Sigma phi_n, moving the mode by dw changes ln|H| by
//! `sum_n b'_n h_n phi_n^T dw = r^T Phi dw`, and the mode moves with x_k = ln `alpha_k` by `-alpha_k mu_k Sigma e_k`. So, with
//! `c = Sigma Phi^T r`,
//!
//! `dL/dx_k = 1/2 [1 - alpha_k Sigma_kk - alpha_k mu_k (mu_k - c_k)]`.
//!
//! Without c it is what the classic fixed point makes zero. Seen so, the whole slope is the classic one with `mu (mu - c)`
//! in place of mu^2, and for a function outside with `Q (Q - U)` in place of Q^2, `U_i = phi_i^T (r - B Phi c)`: all that is
//! known of sparsity and quality factors serves on.

use nalgebra::DMatrix;

use super::super::action::{ALPHA_FLOOR, Factors};
use super::super::state::State;
use crate::Result;
use crate::linalg::blas::head_mut;
use crate::stats::Statistics;

/// The slope at a state at its mode.
pub(super) struct Slope {
    /// dL/dx of each alpha, the log density under its prior included; 0 where an alpha at its floor would go further down.
    pub(super) values: Vec<f64>,
    /// c.
    pub(super) pull: Vec<f64>,
    /// F with F F^T = Sigma.
    pub(super) factor: DMatrix<f64>,
}

impl Slope {
    /// Right after the mode was found: the provider's weights have to be those there.
    pub(super) fn at(stats: &mut dyn Statistics, state: &State) -> Result<Self> {
        let m = state.len();
        let factor = factor(state);
        let drift = stats.variance_drift(&state.active, &factor)?;
        // Over the columns of F the squares add up to h, and F turns Phi F into Phi Sigma.
        let projected = drift.row_sum().transpose();
        let pull: Vec<f64> = (&factor * projected).iter().copied().collect();
        let mut this = Self {
            values: Vec::new(),
            pull,
            factor,
        };
        this.values = (0..m).map(|k| this.value(state, k)).collect();
        Ok(this)
    }

    fn value(&self, state: &State, k: usize) -> f64 {
        let alpha = state.alpha[k];
        let square = self.square(state, k);
        let value = 0.5 * (state.gamma(k) - alpha * square) + state.priors[k].slope(alpha);
        if value < 0.0 && alpha <= ALPHA_FLOOR {
            0.0
        } else {
            value
        }
    }

    /// `mu (mu - c)`, which takes the place of the square of the mean.
    pub(super) fn square(&self, state: &State, k: usize) -> f64 {
        state.mu[k] * (state.mu[k] - self.pull[k])
    }

    /// Sparsity and quality of function `k` left out, with `q` such that the classic conditions on them are those on the
    /// whole slope.
    pub(super) fn factors(&self, state: &State, k: usize) -> Factors {
        let classic = state.factors(k);
        let variance = state.sigma[(k, k)];
        Factors {
            q: self.square(state, k).max(0.0).sqrt() / variance,
            ..classic
        }
    }

    /// How far alpha `k` is from its maximum: the larger of its slope and of the change in ln alpha that re-estimation would
    /// make of it. Infinite where the function should leave, unless there is a prior and it was `tried` and would not.
    pub(super) fn distance(&self, state: &State, k: usize, tried: bool) -> f64 {
        let factors = self.factors(state, k);
        let change = factors.change_from(state.alpha[k]);
        let slope = self.values[k].abs();
        if tried && change.is_infinite() && !factors.prior.is_flat() {
            slope
        } else {
            change.max(slope)
        }
    }
}

/// F = C^-T for the factor C of H: upper triangular.
fn factor(state: &State) -> DMatrix<f64> {
    let m = state.len();
    let mut factor = DMatrix::identity(m, m);
    for k in 0..m {
        state
            .chol()
            .solve_lower_transpose_in_place(head_mut(&mut factor, k, m));
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::super::super::mode::find_mode;
    use super::super::super::prior::{Gamma, Priors};
    use super::super::to_mode;
    use super::*;
    use crate::{DenseDesign, Likelihood, Multinomial, Observations};

    const N: usize = 60;
    const K: usize = 6;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    fn at(stats: &mut dyn Statistics, active: &[usize], x: &[f64], prior: [f64; 2]) -> State {
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(1.0, Gamma::FLAT, deviance, 0.0);
        let priors = Priors::new(prior, stats.norms(), 1.0);
        state.fill(active, 1.0, &priors, None);
        find_mode(stats, &mut state).unwrap();
        let alpha: Vec<f64> = x.iter().map(|x| x.exp()).collect();
        state.set_alphas(&alpha).unwrap();
        to_mode(stats, &mut state).unwrap();
        state
    }

    fn check(stats: &mut dyn Statistics, active: &[usize], prior: [f64; 2]) {
        let h = 1e-4;
        let x: Vec<f64> = (0..active.len()).map(|k| 1.5 * wave(k, 2.1)).collect();
        let state = at(stats, active, &x, prior);
        let slope = Slope::at(stats, &state).unwrap();
        for k in 0..active.len() {
            let mut value = |step: f64| {
                let mut there = x.clone();
                there[k] += step;
                at(stats, active, &there, prior).log_posterior()
            };
            let expected = (value(h) - value(-h)) / (2.0 * h);
            let found = slope.values[k];
            assert!((found - expected).abs() < 1e-7, "{k}: {found} {expected}");
            // The part through the mode is no small matter.
            let part = 0.5 * state.alpha[k] * state.mu[k] * slope.pull[k];
            assert!(part.abs() > 1e-5, "{k}: {part}");
        }
    }

    #[test]
    fn it_is_the_derivative_of_the_evidence() {
        let values: Vec<f64> = (0..N * K).map(|i| 2.0 * wave(i, 0.37)).collect();
        let design = DenseDesign::new(values, N, K).unwrap();
        let weights: Vec<f64> = (0..N).map(|i| 1.0 + 0.5 * wave(i, 0.7)).collect();
        for prior in [[0.0, 0.0], [0.3, 0.1]] {
            for likelihood in [Likelihood::Bernoulli, Likelihood::Poisson] {
                let target = (0..N).map(|i| ((i * i / 5) % 2) as f64).collect();
                let stats = Observations::new(&design, likelihood, target, Some(weights.clone()));
                check(&mut stats.unwrap(), &[4, 1, 2], prior);
            }
            let target: Vec<f64> = (0..N).map(|i| ((i * i + i / 7) % 3) as f64).collect();
            let mut stats = Multinomial::new(&design, &target, Some(weights.clone())).unwrap();
            check(&mut stats, &[13, 1, 7, 8], prior);
        }
    }
}
