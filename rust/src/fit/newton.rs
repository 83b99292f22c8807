//! Joint Newton steps on all ln alpha and ln beta.
//!
//! Moving one alpha at a time to its maximum converges slowly where functions overlap. The evidence is smooth in the
//! log hyperparameters of the active set, and its Hessian needs only Sigma and mu:
//!
//! * g_j = dL/d ln alpha_j = 1/2 [1 - alpha_j (Sigma_jj + mu_j^2)]
//! * d Sigma / d alpha_k = -Sigma_k Sigma_k^T and d mu / d alpha_k = -mu_k Sigma_k give
//!   d g_j / d ln alpha_k = 1/2 alpha_j alpha_k (Sigma_jk^2 + 2 mu_j mu_k Sigma_jk) - 1/2 \[j = k\] alpha_j (Sigma_jj + mu_j^2)
//! * with beta G = H - A: d mu / d ln beta = Sigma A mu and d Sigma / d ln beta = Sigma A Sigma - Sigma, which give the
//!   row of ln beta, g_beta = 1/2 [N - beta ||t - Phi mu||^2 - sum gamma].
//!
//! Outputs share the alphas, so their gradients and Hessians add up: the n outputs of a noise level count n times in the terms of
//! Sigma, and `mu_j mu_k` becomes their sum. Noise levels are coupled through the alphas only.
//!
//! Gamma priors add `a - b alpha_j` to g_j and `-b alpha_j` to d g_j / d ln alpha_j; the prior of beta adds the same terms.
//!
//! The prior exp(-c tr S) adds -c n tr S, tr S = m - tr A Sigma. With B = Sigma A Sigma and C = Sigma A B:
//!
//! * d tr S / d ln alpha_j = -alpha_j (Sigma - B)_jj, and d tr S / d ln beta = tr A (Sigma - B);
//! * d^2 tr S / d ln alpha_j d ln alpha_k = 2 alpha_j alpha_k Sigma_jk (Sigma - B)_jk - \[j = k\] alpha_j (Sigma - B)_jj;
//! * d^2 tr S / d ln alpha_j d ln beta = alpha_j (Sigma - 3 B + 2 C)_jj, and d^2 tr S / d (ln beta)^2 is minus the sum of these.
//!
//! For a Gaussian likelihood steps are taken in u = 1 / alpha. Without overlap
//! dL/du = 1/2 (q^2 - s - s^2 u) / (1 + s u)^2, equation (18) of Tipping & Faul (2003). Newton's method on
//! (1 + s_j u_j)^2 dL/du_j, which is linear in u_j, therefore finds the maximum of equation (20) in one step from any
//! start; in ln alpha it is slow where q^2 is little more than s, and the curvature changes sign beyond the maximum.
//! In relative changes of u_j the system is that of ln alpha with `g_j (1 - 2 gamma_j)` added to the diagonal: the first
//! term comes from u, the second from the factor.
//!
//! For other likelihoods s and q depend on the alphas through the mode, and long steps leave the region where the quadratic
//! model holds. Steps in ln alpha are shorter.
//!
//! A step is kept only if the evidence rises (Levenberg-Marquardt), so every step of the scheme still raises it.

use nalgebra::DVector;

use crate::Result;
use crate::data::Statistics;
use crate::fit::model::{Level, Model};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::vector::{axpy, column_dot, head, head_mut, weighted_square};
use crate::linalg::{Cholesky, Matrix};

/// The alpha after a step `d`: the relative decrease of 1 / alpha if `in_inverses`, the change in ln alpha otherwise.
fn moved(alpha: f64, d: f64, in_inverses: bool) -> f64 {
    let limit = Tuning::MAX_LN_CHANGE;
    let moved = if in_inverses {
        alpha / (1.0 - d).clamp((-limit).exp(), limit.exp())
    } else {
        alpha * d.exp()
    };
    // A flat prior stays flat.
    moved.max(Tuning::ALPHA_FLOOR.min(alpha))
}

/// Levenberg-Marquardt damping, kept from one step to the next.
///
/// It rises by small factors, since steps shrink in proportion, and falls only after a step that succeeded at once: otherwise every
/// step along a narrow ridge would begin with a failed attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Damping {
    start: f64,
    value: f64,
    /// Whether an attempt at the present step has failed.
    raised: bool,
}

impl Damping {
    /// The initial damping.
    pub(crate) fn of(stats: &dyn Statistics) -> Self {
        let start = if stats.facts().is_linear {
            1e-3
        } else {
            Tuning::MIN_DAMPING
        };
        Self {
            start,
            value: start,
            raised: false,
        }
    }

    /// The damping of the next attempt; `None`, with the initial damping restored, if there are no more attempts.
    pub(crate) fn value(&mut self) -> Option<f64> {
        if self.value > Tuning::INFINITE_RATIO {
            (self.value, self.raised) = (self.start, false);
            return None;
        }
        Some(self.value)
    }

    /// Call after a failed attempt.
    pub(crate) fn raise(&mut self) {
        self.value = (self.value * 3.0).max(Tuning::MIN_DAMPING);
        self.raised = true;
    }

    /// Call after a successful step.
    pub(crate) fn relax(&mut self) {
        if !self.raised {
            self.value *= 0.1;
        }
        self.raised = false;
    }
}

/// Gradient and Hessian of the evidence in ln alpha and in ln beta of the levels that move.
pub(crate) struct Local {
    pub(crate) gradient: DVector<f64>,
    pub(crate) hessian: Matrix,
}

/// Takes one step that raises the evidence. Returns `false`, with the model unchanged, if none was found.
pub(crate) fn step(
    stats: &mut dyn Statistics,
    model: &mut Model,
    effort: Effort,
    damping: &mut Damping,
) -> Result<bool> {
    let free = model.free_levels(effort);
    // The data terms are fixed for a Gaussian likelihood, and for others on a working set.
    let in_inverses = stats.facts().is_linear;
    let mut local = Local::at(model, &free);
    if in_inverses {
        local = local.in_inverses((0..model.len()).map(|k| model.mean_gamma(k)));
    }
    let (old_alpha, old_betas) = (model.alpha.clone(), model.betas());
    let (objective, gradient_norm) = (model.log_posterior(), local.gradient.norm());
    while let Some(value) = damping.value() {
        if let Some(direction) = local.direction(value) {
            let steps = old_alpha.iter().zip(direction.iter());
            let alpha: Vec<f64> = steps.map(|(&a, &d)| moved(a, d, in_inverses)).collect();
            let mut betas = old_betas.clone();
            for (&l, d) in free.iter().zip(direction.iter().skip(alpha.len())) {
                betas[l] = model.levels[l].noise.limited(betas[l] * d.exp());
            }
            if model.set_hyperparameters(&alpha, &betas).is_ok() {
                model.recentre(stats)?;
                if improved(model, &free, objective, gradient_norm) {
                    damping.relax();
                    return Ok(true);
                }
            }
        }
        damping.raise();
    }
    model.set_hyperparameters(&old_alpha, &old_betas)?;
    model.recentre(stats)?;
    Ok(false)
}

/// Zeroes the gradient of each alpha that cannot move: of functions with a flat prior, and at the floor if the evidence would push it
/// lower. It would raise the damping of the others.
pub(crate) fn hold_at_floor(alpha: &[f64], gradient: &mut DVector<f64>) {
    for (g, &a) in gradient.iter_mut().zip(alpha) {
        if a == 0.0 {
            *g = 0.0;
        } else if a <= Tuning::ALPHA_FLOOR {
            *g = g.max(0.0);
        }
    }
}

/// Whether the evidence rose. Near the optimum gains are below its round-off, and the gradient has to shrink instead.
fn improved(model: &Model, free: &[usize], evidence: f64, gradient_norm: f64) -> bool {
    let now = model.log_posterior();
    let rounding = 1e-12 * (evidence.abs() + model.n_noise());
    now > evidence + rounding
        || (now >= evidence - rounding
            && Local::gradient_at(model, free).norm() < 0.9 * gradient_norm)
}

impl Local {
    fn gradient_at(model: &Model, free: &[usize]) -> DVector<f64> {
        let m = model.len();
        let mut gradient = DVector::zeros(m + free.len());
        for j in 0..m {
            let alpha = model.alpha[j];
            let of_level = |(l, level): (usize, &Level)| {
                let outputs = &model.outputs[model.outputs_of(l)];
                let n = outputs.len() as f64;
                let square: f64 = outputs.iter().map(|o| o.mu[j] * o.mu[j]).sum();
                let slope = 0.5 * (n - alpha * (n * level.sigma[(j, j)] + square));
                if model.complexity == 0.0 {
                    return slope;
                }
                slope + model.complexity * n * alpha * model.sampling_variance(j, l)
            };
            let levels = model.levels.iter().enumerate();
            gradient[j] = levels.map(of_level).sum::<f64>() + model.priors[j].slope(alpha);
        }
        for (b, &l) in free.iter().enumerate() {
            gradient[m + b] = model.noise_gradient(l);
        }
        hold_at_floor(&model.alpha, &mut gradient);
        gradient
    }

    pub(crate) fn at(model: &Model, free: &[usize]) -> Self {
        let m = model.len();
        let mut hessian = Matrix::zeros(m + free.len(), m + free.len());
        for l in 0..model.levels.len() {
            add_curvatures(model, l, &mut hessian);
        }
        for (k, prior) in model.priors.iter().enumerate() {
            hessian[(k, k)] -= model.alpha[k] * prior.rate;
        }
        for (b, &l) in free.iter().enumerate() {
            Self::add_noise_row(model, l, m + b, &mut hessian);
        }
        if model.complexity > 0.0 {
            for l in 0..model.levels.len() {
                let row = free.iter().position(|&f| f == l).map(|b| m + b);
                add_complexity(model, l, row, &mut hessian);
            }
        }
        Self::new(&model.alpha, Self::gradient_at(model, free), hessian)
    }

    /// `gradient` is the result of [`hold_at_floor`]; held alphas are decoupled from the others.
    pub(crate) fn new(alpha: &[f64], gradient: DVector<f64>, mut hessian: Matrix) -> Self {
        for k in 0..alpha.len() {
            if alpha[k] <= Tuning::ALPHA_FLOOR && gradient[k] == 0.0 {
                hessian.row_mut(k).fill(0.0);
                hessian.column_mut(k).fill(0.0);
                hessian[(k, k)] = -1.0;
            }
        }
        Self { gradient, hessian }
    }

    /// Adds the row of ln beta of level `l`.
    fn add_noise_row(model: &Model, l: usize, row: usize, hessian: &mut Matrix) {
        let (alpha, level) = (&model.alpha, &model.levels[l]);
        let outputs = &model.outputs[model.outputs_of(l)];
        let (n, beta) = (outputs.len() as f64, level.noise.beta);
        let shrunk =
            |mu: &[f64]| -> Vec<f64> { alpha.iter().zip(mu).map(|(a, m)| a * m).collect() };
        let shrunk: Vec<Vec<f64>> = outputs.iter().map(|o| shrunk(&o.mu)).collect();
        let mut d_quadratic = beta * model.deviance_at_mean(l);
        let mut d_gamma = 0.0;
        for j in 0..model.len() {
            let column = head(&level.sigma, j, model.len());
            let sum = weighted_square(column, alpha);
            let mut entry = n * (sum - column[j]);
            for (output, shrunk) in outputs.iter().zip(&shrunk) {
                let d_mu = column_dot(column, shrunk);
                entry += 2.0 * output.mu[j] * d_mu;
                d_quadratic -= 2.0 * shrunk[j] * d_mu;
            }
            let entry = -0.5 * alpha[j] * entry;
            hessian[(j, row)] = entry;
            hessian[(row, j)] = entry;
            d_gamma += n * alpha[j] * (column[j] - sum);
        }
        hessian[(row, row)] = -0.5 * (d_quadratic + d_gamma) - model.noise_prior.rate * beta;
    }

    /// The system of steps in 1 / alpha, given gamma_j of each alpha.
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
            // The scale of each coordinate is its curvature, plus its gradient where the curvature has the wrong sign.
            let scale = h.abs() + self.gradient[j].abs();
            damping * (scale + f64::MIN_POSITIVE) - h
        });
        factored.ok()?;
        let mut direction = self.gradient.clone();
        chol.solve_in_place(direction.as_mut_slice());
        let largest = direction.amax();
        if !largest.is_finite() {
            return None;
        }
        if largest > Tuning::MAX_LN_CHANGE {
            direction *= Tuning::MAX_LN_CHANGE / largest;
        }
        Some(direction)
    }
}

/// Adds d g_j / d ln alpha_k of noise level `l`.
fn add_curvatures(model: &Model, l: usize, hessian: &mut Matrix) {
    let (alpha, m) = (&model.alpha, model.len());
    let outputs = &model.outputs[model.outputs_of(l)];
    let n = outputs.len() as f64;
    // Column k of the sum of mu mu^T over the outputs.
    let mut products = vec![0.0; m];
    for k in 0..m {
        products.fill(0.0);
        for output in outputs {
            axpy(output.mu[k], &output.mu, &mut products);
        }
        let sigma = head(&model.levels[l].sigma, k, m);
        let terms = sigma.iter().zip(alpha).zip(&products);
        for (h, ((s, a), product)) in head_mut(hessian, k, m).iter_mut().zip(terms) {
            *h += (0.5 * alpha[k]) * a * s * (n * s + 2.0 * product);
        }
        hessian[(k, k)] -= alpha[k] * (0.5 * (n * sigma[k] + products[k]));
    }
}

/// Subtracts c n times the second derivatives of tr S of level `l`; `row` is that of its ln beta, if it moves.
fn add_complexity(model: &Model, l: usize, row: Option<usize>, hessian: &mut Matrix) {
    let (alpha, m) = (&model.alpha, model.len());
    let by = model.complexity * model.outputs_of(l).len() as f64;
    for k in 0..m {
        let (sigma, b) = (
            head(&model.levels[l].sigma, k, m),
            model.shrunk_covariances(k, l),
        );
        for (j, h) in head_mut(hessian, k, m).iter_mut().enumerate() {
            *h -= 2.0 * by * alpha[j] * alpha[k] * sigma[j] * (sigma[j] - b[j]);
        }
        hessian[(k, k)] += by * alpha[k] * (sigma[k] - b[k]);
        if let Some(row) = row {
            let c: f64 = (0..m).map(|j| alpha[j] * sigma[j] * b[j]).sum();
            let entry = by * alpha[k] * (sigma[k] - 3.0 * b[k] + 2.0 * c);
            hessian[(k, row)] -= entry;
            hessian[(row, k)] -= entry;
            hessian[(row, row)] += entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::search::lns::tests::{fit_of_three, orthogonal_columns};

    /// A Hessian that couples all three alphas.
    fn curvature() -> Matrix {
        -Matrix::from_row_slice(3, 3, &[2.0, 1.0, 0.5, 1.0, 3.0, 1.0, 0.5, 1.0, 1.5])
    }

    fn direction(alpha: &[f64], slopes: [f64; 3]) -> DVector<f64> {
        let mut gradient = DVector::from_row_slice(&slopes);
        hold_at_floor(alpha, &mut gradient);
        let local = Local::new(alpha, gradient, curvature());
        local.direction(0.0).unwrap()
    }

    #[test]
    fn one_step_in_inverses_maximizes_the_alphas_of_orthogonal_functions() {
        let data = orthogonal_columns();
        let local = fit_of_three(&data);
        for from in [[0.1, 0.3, 2.0], [0.5, 9.0, 0.05], [0.02, 0.2, 0.4]] {
            let mut model = local.model.clone();
            model.set_alphas(&from).unwrap();
            let best: Vec<f64> = (0..3)
                .map(|k| model.factors(k).optimal_alpha().unwrap())
                .collect();
            let gammas: Vec<f64> = (0..3).map(|k| model.gamma(k, 0)).collect();
            let here = Local::at(&model, &[]).in_inverses(gammas.into_iter());
            let direction = here.direction(0.0).unwrap();
            for ((&a, &d), best) in from.iter().zip(&direction).zip(best) {
                assert!((moved(a, d, true) / best - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn an_alpha_held_at_its_floor_does_not_change_the_step_of_the_others() {
        let found = direction(&[1.0, Tuning::ALPHA_FLOOR, 1.0], [0.1, -0.4, 0.2]);
        // [2 1/2; 1/2 3/2] d = [1/10; 1/5].
        let expected = [0.05 / 2.75, 0.35 / 2.75];
        assert_eq!(found[1].to_bits(), 0.0_f64.to_bits());
        assert!((found[0] - expected[0]).abs() < 1e-15 && (found[2] - expected[1]).abs() < 1e-15);
    }

    #[test]
    fn an_alpha_at_its_floor_with_a_positive_gradient_is_not_held() {
        let found = direction(&[1.0, Tuning::ALPHA_FLOOR, 1.0], [0.1, 0.4, 0.2]);
        let right = DVector::from_row_slice(&[0.1, 0.4, 0.2]);
        assert!((-curvature() * found - right).amax() < 1e-15);
    }
}
