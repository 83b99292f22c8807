//! Newton steps on all ln alpha and ln beta of several outputs together.
//!
//! The evidence is a sum over the outputs, so gradient and Hessian are sums of those in [`newton`](crate::fit::newton): for a
//! level of n outputs with covariance Sigma and means mu_c (columns of M)
//!
//! * g_j += 1/2 [n - alpha_j (n Sigma_jj + (M M^T)_jj)]
//! * h_jk += 1/2 alpha_j alpha_k Sigma_jk (n Sigma_jk + 2 (M M^T)_jk) - 1/2 \[j = k\] alpha_j (n Sigma_jj + (M M^T)_jj)
//! * one row for its ln beta; the noise levels are coupled through the alphas only.
//!
//! As there, steps are taken in the inverse alphas. The reasons given there hold for each level, with q^2 and s summed over
//! its outputs.

use nalgebra::{DMatrix, DVector};

use crate::Result;
use crate::data::OutputObservations;
use crate::fit::newton::Damping;
use crate::fit::newton::{Coordinates, Local, hold_at_floor};
use crate::fit::outputs::model::{Level, OutputState};
use crate::fit::outputs::noise::NoiseLevels;
use crate::linalg::vector::{axpy, dot, head};

/// Takes one step that raises the evidence. Returns `false`, with the state restored, if there is none.
pub(crate) fn step(
    stats: &mut OutputObservations<'_>,
    state: &mut OutputState,
    noise: &NoiseLevels,
    damping: &mut Damping,
) -> Result<bool> {
    let free: Vec<usize> = (0..state.levels.len())
        .filter(|&l| noise.is_free(state, l))
        .collect();
    let local = at(state, &free).in_inverses(gammas(state));
    let (alpha, betas, evidence) = (state.alpha.clone(), state.betas(), state.log_evidence());
    let norm = local.gradient.norm();
    while let Some(value) = damping.value() {
        if let Some(direction) = local.direction(value) {
            let moves = alpha.iter().zip(direction.iter());
            let new_alpha: Vec<f64> = moves
                .map(|(&a, &d)| Coordinates::Inverses.moved(a, d))
                .collect();
            let mut new_betas = betas.clone();
            for (&l, d) in free.iter().zip(direction.iter().skip(alpha.len())) {
                new_betas[l] = noise.snapped(l, betas[l] * d.exp());
            }
            if state.set_hyperparameters(&new_alpha, &new_betas).is_ok() {
                state.recentre(stats)?;
                if improved(state, &free, evidence, norm) {
                    damping.relax();
                    return Ok(true);
                }
            }
        }
        damping.raise();
    }
    state.set_hyperparameters(&alpha, &betas)?;
    state.recentre(stats)?;
    Ok(false)
}

/// gamma of each function, averaged over the outputs.
fn gammas(state: &OutputState) -> impl Iterator<Item = f64> + '_ {
    let n = state.outputs.len() as f64;
    (0..state.len()).map(move |k| {
        let variance =
            |(l, level): (usize, &Level)| state.outputs_of(l).len() as f64 * level.sigma[(k, k)];
        let variance: f64 = state.levels.iter().enumerate().map(variance).sum();
        1.0 - state.alpha[k] * variance / n
    })
}

/// Whether the evidence rose. Near the optimum gains are below its round-off; then the gradient must shrink instead.
fn improved(state: &OutputState, free: &[usize], evidence: f64, gradient_norm: f64) -> bool {
    let now = state.log_evidence();
    let rounding = 1e-12 * (evidence.abs() + state.n_noise());
    now > evidence + rounding
        || (now >= evidence - rounding && gradient(state, free).norm() < 0.9 * gradient_norm)
}

/// (M M^T)_jj for each active function.
fn squares(state: &OutputState, l: usize) -> Vec<f64> {
    let outputs = &state.outputs[state.outputs_of(l)];
    let square = |j: usize| outputs.iter().map(|o| o.mu[j] * o.mu[j]).sum();
    (0..state.len()).map(square).collect()
}

fn gradient(state: &OutputState, free: &[usize]) -> DVector<f64> {
    let m = state.len();
    let mut gradient = DVector::zeros(m + free.len());
    for (l, level) in state.levels.iter().enumerate() {
        let n = state.outputs_of(l).len() as f64;
        for (j, square) in squares(state, l).into_iter().enumerate() {
            gradient[j] += 0.5 * (n - state.alpha[j] * (n * level.sigma[(j, j)] + square));
        }
    }
    for (b, &l) in free.iter().enumerate() {
        gradient[m + b] = state.noise_gradient(l);
    }
    hold_at_floor(&state.alpha, &mut gradient);
    gradient
}

/// Gradient and Hessian in (ln alpha, ln beta of the levels that are free).
fn at(state: &OutputState, free: &[usize]) -> Local {
    let m = state.len();
    let mut hessian = DMatrix::zeros(m + free.len(), m + free.len());
    for (l, level) in state.levels.iter().enumerate() {
        add_alphas(state, l, level, &mut hessian);
    }
    for (b, &l) in free.iter().enumerate() {
        add_noise_row(state, l, m + b, &mut hessian);
    }
    Local::new(&state.alpha, gradient(state, free), hessian)
}

fn add_alphas(state: &OutputState, l: usize, level: &Level, hessian: &mut DMatrix<f64>) {
    let (m, alpha) = (state.len(), &state.alpha);
    let outputs = &state.outputs[state.outputs_of(l)];
    let n = outputs.len() as f64;
    let mut products = vec![0.0; m];
    for k in 0..m {
        // Column k of M M^T.
        products.fill(0.0);
        for output in outputs {
            axpy(output.mu[k], &output.mu, &mut products);
        }
        let sigma = head(&level.sigma, k, m);
        for j in 0..m {
            let s = sigma[j];
            hessian[(j, k)] += (0.5 * alpha[k]) * alpha[j] * s * (n * s + 2.0 * products[j]);
        }
        hessian[(k, k)] -= 0.5 * alpha[k] * (n * sigma[k] + products[k]);
    }
}

/// With beta G = H - A: d mu / d ln beta = Sigma A mu and d Sigma / d ln beta = Sigma A Sigma - Sigma.
fn add_noise_row(state: &OutputState, l: usize, row: usize, hessian: &mut DMatrix<f64>) {
    let (m, alpha, level) = (state.len(), &state.alpha, &state.levels[l]);
    let outputs = &state.outputs[state.outputs_of(l)];
    let n = outputs.len() as f64;
    let shrink = |mu: &[f64]| -> Vec<f64> { alpha.iter().zip(mu).map(|(a, m)| a * m).collect() };
    let shrunk: Vec<Vec<f64>> = outputs.iter().map(|o| shrink(&o.mu)).collect();
    let mut d_quadratic = level.beta * state.level_deviance(l);
    let mut d_gamma = 0.0;
    for j in 0..m {
        let column = head(&level.sigma, j, m);
        let prior_part: f64 = column.iter().zip(alpha).map(|(s, a)| a * s * s).sum();
        let mut entry = n * (prior_part - column[j]);
        for (output, shrunk) in outputs.iter().zip(&shrunk) {
            let d_mu = dot(column, shrunk);
            entry += 2.0 * output.mu[j] * d_mu;
            d_quadratic -= 2.0 * shrunk[j] * d_mu;
        }
        hessian[(j, row)] = -0.5 * alpha[j] * entry;
        hessian[(row, j)] = -0.5 * alpha[j] * entry;
        d_gamma += n * alpha[j] * (column[j] - prior_part);
    }
    hessian[(row, row)] = -0.5 * (d_quadratic + d_gamma);
}

/// Gradient and Hessian, for comparison with finite differences.
#[cfg(test)]
pub(crate) fn derivatives(state: &OutputState, free: &[usize]) -> (DVector<f64>, DMatrix<f64>) {
    let local = at(state, free);
    (local.gradient, local.hessian)
}
