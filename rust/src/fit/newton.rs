//! Newton steps on all ln alpha (and ln beta) together.
//!
//! Moving one alpha at a time to its maximum converges slowly where functions overlap. The evidence is smooth in the
//! log hyperparameters of the active set, and its Hessian needs nothing but Sigma and mu:
//!
//! * g_j = dL/d ln alpha_j = 1/2 [1 - alpha_j (Sigma_jj + mu_j^2)]
//! * d Sigma / d alpha_k = -Sigma_k Sigma_k^T and d mu / d alpha_k = -mu_k Sigma_k give
//!   d g_j / d ln alpha_k = 1/2 alpha_j alpha_k (Sigma_jk^2 + 2 mu_j mu_k Sigma_jk) - 1/2 \[j = k\] alpha_j (Sigma_jj + mu_j^2)
//! * with beta G = H - A: d mu / d ln beta = Sigma A mu and d Sigma / d ln beta = Sigma A Sigma - Sigma, which give the
//!   row of ln beta, g_beta = 1/2 [N - beta ||t - Phi mu||^2 - sum gamma].
//!
//! Gamma priors add `a - b alpha_j` to g_j and `-b alpha_j` to its own derivative, and likewise for beta.
//!
//! The step is not taken in ln alpha. Let u = 1 / alpha. A function that overlaps with no other has
//! dL/du = 1/2 (q^2 - s - s^2 u) / (1 + s u)^2, equation (18) of Tipping & Faul (2003). So Newton's method on
//! (1 + s_j u_j)^2 dL/du_j, which is linear there, comes to the maximum of equation (20) at once, from wherever it
//! starts; in ln alpha it is slow where q^2 is little more than s, and beyond the maximum the curvature soon has the wrong sign.
//! In relative changes d_j of u_j it is the system of ln alpha, with `g_j (1 - 2 gamma_j)` added to the diagonal: the first
//! term because of u, the second because of the factor, which depends on u_j alone.
//!
//! Where the likelihood is not Gaussian, s and q themselves go with the alphas, through the mode, and a step that holds for the
//! quadratic model at the old one may be too long. There steps remain in ln alpha, where they are shorter: see `Coordinates`.
//!
//! A step is kept only if the evidence rises (Levenberg-Marquardt), so the guarantee of the sequential scheme holds.

use nalgebra::{DMatrix, DVector};

use crate::Result;
use crate::data::Statistics;
use crate::fit::damping::Damping;
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::model::State;
use crate::fit::tuning::Tuning;
use crate::linalg::Cholesky;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::linalg::vector::{column_dot, head, head_mut, weighted_square};

/// Longest move of any log hyperparameter in one step.
const LONGEST: f64 = 3.0;

/// Where ln beta may move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoiseRange {
    /// Largest precision: the noise floor.
    pub(crate) beta_max: f64,
}

impl NoiseRange {
    /// Down to the floor.
    pub(crate) fn standard() -> Self {
        Self {
            beta_max: 1.0 / Tuning::NOISE_FLOOR,
        }
    }

    /// A precision brought within the range. One that is short of its end by rounding is at it: left there, it would pass
    /// for one that has settled inside.
    pub(crate) fn snapped(self, beta: f64) -> f64 {
        const SHORT: f64 = 1.0 - 1e-12;
        if beta > SHORT * self.beta_max {
            self.beta_max
        } else {
            beta
        }
    }
}

/// What the precisions are stepped in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coordinates {
    /// 1 / alpha.
    Inverses,
    /// ln alpha.
    Logarithms,
}

impl Coordinates {
    /// Those for what does not change with the mode, a pool among it, and those for rows of another likelihood.
    pub(crate) fn of(stats: &dyn Statistics) -> Self {
        if stats.is_linear() {
            Self::Inverses
        } else {
            Self::Logarithms
        }
    }

    /// Damping before a first step.
    pub(crate) fn damping(self) -> Damping {
        Damping::starting_at(match self {
            Self::Inverses => 1e-3,
            Self::Logarithms => Damping::FELT,
        })
    }

    /// The precision that `d` leads to from `alpha`: the part by which 1 / alpha falls, as far as one step goes, or ln alpha rises.
    pub(crate) fn moved(self, alpha: f64, d: f64) -> f64 {
        let moved = match self {
            Self::Inverses => alpha / (1.0 - d).clamp((-LONGEST).exp(), LONGEST.exp()),
            Self::Logarithms => alpha * d.exp(),
        };
        moved.max(ALPHA_FLOOR)
    }
}

/// Gradient and Hessian of the evidence in (ln alpha, ln beta); the last entry only where beta is free.
pub(crate) struct Local {
    pub(crate) gradient: DVector<f64>,
    pub(crate) hessian: DMatrix<f64>,
}

/// Takes one step that raises the evidence; `false` if none was found, the state being as before.
pub(crate) fn step(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    damping: &mut Damping,
) -> Result<bool> {
    let free_beta = is_free(state, noise);
    let coordinates = Coordinates::of(stats);
    let mut local = Local::at(state, free_beta);
    if coordinates == Coordinates::Inverses {
        local = local.in_inverses((0..state.len()).map(|k| state.gamma(k)));
    }
    let before = (
        state.alpha.clone(),
        state.beta,
        state.log_posterior(),
        local.gradient.norm(),
    );
    while let Some(value) = damping.value() {
        if let Some(direction) = local.direction(value) {
            let alpha: Vec<f64> = before
                .0
                .iter()
                .zip(direction.iter())
                .map(|(&a, &d)| coordinates.moved(a, d))
                .collect();
            let mut beta = before.1;
            if let (true, Some(range)) = (free_beta, noise) {
                beta = range.snapped(beta * direction[alpha.len()].exp());
            }
            if state.set_hyperparameters(&alpha, beta).is_ok() {
                state.recentre(stats)?;
                if improved(state, free_beta, before.2, before.3) {
                    damping.relax();
                    return Ok(true);
                }
            }
        }
        damping.raise();
    }
    state.set_hyperparameters(&before.0, before.1)?;
    state.recentre(stats)?;
    Ok(false)
}

/// Whether beta may move from where it is.
fn is_free(state: &State, noise: Option<NoiseRange>) -> bool {
    noise.is_some_and(|range| state.n_noise() > 0.0 && !held_at_floor(state, range))
}

/// Whether the noise sits at its floor and the evidence would push it further down.
pub(crate) fn held_at_floor(state: &State, range: NoiseRange) -> bool {
    state.beta >= range.beta_max && noise_gradient(state) >= 0.0
}

/// dL / d ln beta.
pub(crate) fn noise_gradient(state: &State) -> f64 {
    let gamma: f64 = (0..state.len()).map(|k| state.gamma(k)).sum();
    0.5 * (state.n_noise() - state.beta * state.deviance_at_mean() - gamma)
        + state.noise_prior.slope(state.beta)
}

/// Leaves the alphas out of the gradient that sit at their floor where the evidence would push them further down. In the
/// step they would have no way to go, and yet damp the others until these hardly move.
pub(crate) fn hold_at_floor(alpha: &[f64], gradient: &mut DVector<f64>) {
    for (g, &a) in gradient.iter_mut().zip(alpha) {
        if a <= ALPHA_FLOOR {
            *g = g.max(0.0);
        }
    }
}

/// Near the optimum gains sink below the rounding of the evidence; there the gradient has to shrink instead.
fn improved(state: &State, free_beta: bool, evidence: f64, gradient_norm: f64) -> bool {
    let now = state.log_posterior();
    let rounding = 1e-12 * (evidence.abs() + state.n_noise());
    now > evidence + rounding
        || (now >= evidence - rounding
            && Local::gradient_at(state, free_beta).norm() < 0.9 * gradient_norm)
}

impl Local {
    fn gradient_at(state: &State, free_beta: bool) -> DVector<f64> {
        let m = state.len();
        let mut gradient = DVector::zeros(m + usize::from(free_beta));
        for j in 0..m {
            gradient[j] = 0.5
                * (1.0 - state.alpha[j] * (state.sigma[(j, j)] + state.mu[j] * state.mu[j]))
                + state.priors[j].slope(state.alpha[j]);
        }
        if free_beta {
            gradient[m] = noise_gradient(state);
        }
        hold_at_floor(&state.alpha, &mut gradient);
        gradient
    }

    fn at(state: &State, free_beta: bool) -> Self {
        let (m, alpha) = (state.len(), &state.alpha);
        let mut hessian = DMatrix::zeros(m + usize::from(free_beta), m + usize::from(free_beta));
        dispatch(Curvatures {
            state,
            hessian: &mut hessian,
        });
        if free_beta {
            Self::add_noise_row(state, &mut hessian);
        }
        Self::new(alpha, Self::gradient_at(state, free_beta), hessian)
    }

    /// From a gradient out of [`hold`].
    pub(crate) fn new(alpha: &[f64], gradient: DVector<f64>, mut hessian: DMatrix<f64>) -> Self {
        for k in 0..alpha.len() {
            if alpha[k] <= ALPHA_FLOOR && gradient[k] == 0.0 {
                hessian.row_mut(k).fill(0.0);
                hessian.column_mut(k).fill(0.0);
                hessian[(k, k)] = -1.0;
            }
        }
        Self { gradient, hessian }
    }

    fn add_noise_row(state: &State, hessian: &mut DMatrix<f64>) {
        let m = state.len();
        let (alpha, mu, sigma) = (&state.alpha, &state.mu, &state.sigma);
        let shrunk: Vec<f64> = alpha.iter().zip(mu).map(|(a, m)| a * m).collect();
        let mut d_quadratic = state.beta * state.deviance_at_mean();
        let mut d_gamma = 0.0;
        for j in 0..m {
            let column = head(sigma, j, m);
            let d_mu = column_dot(column, &shrunk);
            let spread = weighted_square(column, alpha);
            let entry = -0.5 * alpha[j] * (spread - column[j] + 2.0 * mu[j] * d_mu);
            hessian[(j, m)] = entry;
            hessian[(m, j)] = entry;
            d_quadratic -= 2.0 * shrunk[j] * d_mu;
            d_gamma += alpha[j] * (column[j] - spread);
        }
        hessian[(m, m)] = -0.5 * (d_quadratic + d_gamma) - state.noise_prior.rate * state.beta;
    }

    /// The same for steps in the inverse alphas, from the part gamma of each weight that the data determine.
    pub(crate) fn in_inverses(mut self, gammas: impl Iterator<Item = f64>) -> Self {
        for (k, gamma) in gammas.enumerate() {
            self.hessian[(k, k)] += self.gradient[k] * (1.0 - 2.0 * gamma);
        }
        self
    }

    /// The damped Newton direction; `None` where the damped Hessian is not negative definite.
    pub(crate) fn direction(&self, damping: f64) -> Option<DVector<f64>> {
        let n = self.gradient.len();
        let mut chol = Cholesky::with_capacity(n);
        let factored = chol.refactor(n, |i, j| {
            let h = self.hessian[(i, j)];
            if i != j {
                return -h;
            }
            // The scale of each coordinate: its curvature, or its gradient where the curvature has the wrong sign.
            let scale = h.abs() + self.gradient[j].abs();
            damping * (scale + f64::MIN_POSITIVE) - h
        });
        factored.ok()?;
        let mut direction = self.gradient.clone();
        chol.solve_in_place(direction.as_mut_slice());
        let longest = direction.amax();
        if !longest.is_finite() {
            return None;
        }
        if longest > LONGEST {
            direction *= LONGEST / longest;
        }
        Some(direction)
    }
}

/// d g_j / d ln alpha_k.
struct Curvatures<'a> {
    state: &'a State,
    hessian: &'a mut DMatrix<f64>,
}

impl WithSimd for Curvatures<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        let Self { state, hessian } = self;
        let (alpha, mu) = (&state.alpha, &state.mu);
        for k in 0..state.len() {
            let sigma = head(&state.sigma, k, alpha.len());
            let terms = sigma.iter().zip(alpha).zip(mu);
            for (h, ((s, a), mu_j)) in head_mut(hessian, k, alpha.len()).iter_mut().zip(terms) {
                *h = (0.5 * alpha[k]) * a * s * (s + 2.0 * mu_j * mu[k]);
            }
            let own = 0.5 * (sigma[k] + mu[k] * mu[k]) + state.priors[k].rate;
            hessian[(k, k)] -= alpha[k] * own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::search::lns::tests::model_of_three;

    /// Minus the matrix whose inverse couples all of three alphas.
    fn curvature() -> DMatrix<f64> {
        -DMatrix::from_row_slice(3, 3, &[2.0, 1.0, 0.5, 1.0, 3.0, 1.0, 0.5, 1.0, 1.5])
    }

    fn direction(alpha: &[f64], slopes: [f64; 3]) -> DVector<f64> {
        let mut gradient = DVector::from_row_slice(&slopes);
        hold_at_floor(alpha, &mut gradient);
        let local = Local::new(alpha, gradient, curvature());
        local.direction(0.0).unwrap()
    }

    #[test]
    fn functions_at_right_angles_are_at_their_maxima_after_one_step() {
        let (_, model) = model_of_three();
        for from in [[0.1, 0.3, 2.0], [0.5, 9.0, 0.05], [0.02, 0.2, 0.4]] {
            let mut state = model.state.clone();
            state.set_hyperparameters(&from, state.beta).unwrap();
            let best: Vec<f64> = (0..3)
                .map(|k| state.factors(k).optimal_alpha().unwrap())
                .collect();
            let gammas: Vec<f64> = (0..3).map(|k| state.gamma(k)).collect();
            let local = Local::at(&state, false).in_inverses(gammas.into_iter());
            let direction = local.direction(0.0).unwrap();
            for ((&a, &d), best) in from.iter().zip(&direction).zip(best) {
                assert!((Coordinates::Inverses.moved(a, d) / best - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn an_alpha_held_at_its_floor_leaves_the_step_to_the_others() {
        let found = direction(&[1.0, ALPHA_FLOOR, 1.0], [0.1, -0.4, 0.2]);
        // [2 1/2; 1/2 3/2] d = [1/10; 1/5].
        let expected = [0.05 / 2.75, 0.35 / 2.75];
        assert_eq!(found[1].to_bits(), 0.0_f64.to_bits());
        assert!((found[0] - expected[0]).abs() < 1e-15 && (found[2] - expected[1]).abs() < 1e-15);
    }

    #[test]
    fn an_alpha_at_its_floor_that_gains_by_rising_is_not_held() {
        let found = direction(&[1.0, ALPHA_FLOOR, 1.0], [0.1, 0.4, 0.2]);
        let right = DVector::from_row_slice(&[0.1, 0.4, 0.2]);
        assert!((-curvature() * found - right).amax() < 1e-15);
    }
}
