//! The model written out: the covariance of the targets, factored whole. Shares no code with the crate.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use sparsebayes::{Likelihood, Posterior};

use crate::problems::Problem;

/// Quantities of all K functions at a fitted model.
pub(crate) struct Dense {
    pub(crate) evidence: f64,
    /// Largest |change in ln alpha| that equation (20) asks for.
    pub(crate) log_alpha_change: f64,
    /// Largest gain of adding a function outside.
    pub(crate) gain_outside: f64,
}

/// Working weight, slope and log-likelihood of one row.
fn row(likelihood: Likelihood, eta: f64, t: f64, beta: f64) -> (f64, f64, f64) {
    match likelihood {
        Likelihood::Gaussian => {
            let r = t - eta;
            (
                beta,
                beta * r,
                0.5 * ((beta / std::f64::consts::TAU).ln() - beta * r * r),
            )
        }
        Likelihood::Bernoulli => {
            let p = 1.0 / (1.0 + (-eta).exp());
            (p * (1.0 - p), t - p, t * eta - (1.0 + eta.exp()).ln())
        }
        Likelihood::Poisson => {
            let counts = std::iter::successors(Some(t), |i| Some(i - 1.0)).take_while(|&i| i > 1.0);
            let factorial: f64 = counts.map(f64::ln).sum();
            (eta.exp(), t - eta.exp(), t * eta - eta.exp() - factorial)
        }
        Likelihood::NegativeBinomial(d) => {
            // P(t) = prod_{i < t} (1 + i d) / t! m^t (1 + d m)^-(t + 1/d)
            let counts = std::iter::successors(Some(0.0), |i| Some(i + 1.0)).take_while(|&i| i < t);
            let constant: f64 = counts.map(|i: f64| (i * d).ln_1p() - (i + 1.0).ln()).sum();
            let (m, one) = (eta.exp(), 1.0 + d * eta.exp());
            let log_p = constant + t * eta - (t + 1.0 / d) * one.ln();
            (m * (1.0 + d * t) / (one * one), (t - m) / one, log_p)
        }
        Likelihood::Gamma(d) => {
            assert!(
                (d - 0.5).abs() < 1e-15,
                "for shape 2, whose Gamma function is 1"
            );
            let ratio = t * (-eta).exp();
            let log_p = 2.0 * 2.0_f64.ln() + t.ln() - 2.0 * (eta + ratio);
            (2.0 * ratio, 2.0 * (ratio - 1.0), log_p)
        }
    }
}

/// Everything at the posterior's hyperparameters. The mode is taken from it, and is stationary by the caller's check.
pub(crate) fn dense(problem: &Problem, posterior: &Posterior) -> Dense {
    let (n, m) = (problem.n, posterior.active.len());
    let phi = DMatrix::from_fn(n, m, |i, k| problem.column(posterior.active[k])[i]);
    let mu = DVector::from_column_slice(&posterior.mu);
    let eta = &phi * &mu;
    let rows: Vec<_> = (0..n)
        .map(|i| row(problem.likelihood, eta[i], problem.t[i], posterior.beta))
        .collect();
    // C = B^-1 + Phi A^-1 Phi^T, and with B^1/2 on both sides of it nothing is divided by B.
    let root = |i: usize| rows[i].0.sqrt();
    let mut c = DMatrix::identity(n, n);
    for k in 0..m {
        let column = DVector::from_fn(n, |i, _| root(i) * phi[(i, k)]);
        c.ger(1.0 / posterior.alpha[k], &column, &column, 1.0);
    }
    let factor = c.cholesky().unwrap();
    let ln_det = 2.0 * factor.l().diagonal().map(f64::ln).sum();
    let penalty: f64 = posterior
        .alpha
        .iter()
        .zip(&posterior.mu)
        .map(|(a, w)| a * w * w)
        .sum();
    let evidence = rows.iter().map(|r| r.2).sum::<f64>() - 0.5 * penalty - 0.5 * ln_det;
    let mut found = Dense {
        evidence,
        log_alpha_change: 0.0,
        gain_outside: 0.0,
    };
    for j in 0..problem.k {
        let (s, q) = factors(problem, j, &rows, &factor);
        match posterior.active.iter().position(|&a| a == j) {
            Some(k) => {
                let alpha = posterior.alpha[k];
                let (s, q) = (alpha * s / (alpha - s), alpha * q / (alpha - s));
                let change = (s * s / (q * q - s) / alpha).ln().abs();
                found.log_alpha_change = found.log_alpha_change.max(change);
            }
            None if s > 1e-9 => {
                let excess = (q * q / s - 1.0).max(0.0);
                found.gain_outside = found.gain_outside.max(0.5 * (excess - excess.ln_1p()));
            }
            None => {}
        }
    }
    found
}

/// S and Q of function j: equation (22). Q = phi^T C^-1 t-hat is phi^T of the slope at the mode.
fn factors(
    problem: &Problem,
    j: usize,
    rows: &[(f64, f64, f64)],
    factor: &Cholesky<f64, Dyn>,
) -> (f64, f64) {
    let column = DVector::from_fn(problem.n, |i, _| rows[i].0.sqrt() * problem.column(j)[i]);
    let q = problem
        .column(j)
        .iter()
        .zip(rows)
        .map(|(p, r)| p * r.1)
        .sum();
    (column.dot(&factor.solve(&column)), q)
}
