//! The active set and its posterior.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::Statistics;
use crate::fit::evidence::Factors;
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::Recorded;
use crate::fit::tuning::Tuning;
use crate::linalg::Cholesky;
use crate::linalg::aligned_columns::stride;
use crate::linalg::vector::{axpy, bilinear, dot, head, leading, rank_one, sum_of_ln};

/// Active functions, hyperparameters and the Gaussian posterior over weights.
///
/// The data terms are a quadratic model of the log-likelihood about a *reference* r:
/// `ln p(t | w) = -beta/2 [deviance - 2 d^T gradient + d^T G d] + constant`, with `d = w - r`. For a Gaussian that is
/// exact for any r, and an r close to the mean keeps the residual free of cancellation. For other likelihoods it is
/// the Laplace approximation about r, with beta = 1: Tipping & Faul (2003), section 2.2.
///
/// Between calls, with m active functions: `chol` factors H = diag(alpha) + beta G, `sigma` is its inverse, and
/// `mu = r + sigma (beta gradient - alpha r)`. `gradient` belongs to r, not to mu. Matrices have spare capacity; their
/// leading m x m blocks are in use. Actions update everything in place by rank-one formulae; [`State::recompute`] computes
/// it from scratch.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) active: Vec<usize>,
    pub(crate) alpha: Vec<f64>,
    /// The prior of each alpha.
    pub(crate) priors: Vec<Gamma>,
    pub(crate) beta: f64,
    /// The prior of beta.
    pub(crate) noise_prior: Gamma,
    pub(crate) mu: Vec<f64>,
    pub(crate) sigma: DMatrix<f64>,
    chol: Cholesky,
    /// The beta at which the factor and `sigma` were computed from scratch; `None` after an update in place.
    from_scratch_at: Option<f64>,
    gram: DMatrix<f64>,
    gradient: Vec<f64>,
    reference: Vec<f64>,
    /// mu - reference, stored so that neither it nor mu is computed as a difference.
    offset: Vec<f64>,
    deviance: f64,
    /// Number of rows whose noise precision is beta: sum of sample weights for a Gaussian; 0 for other likelihoods.
    n_noise: f64,
    work: Vec<f64>,
}

/// An inactive function with its data terms: inner products with the active functions (`gram`), with itself, and with
/// the residual at the reference (`gradient`).
pub(crate) struct Candidate<'a> {
    pub(crate) index: usize,
    pub(crate) gram: &'a [f64],
    pub(crate) gram_self: f64,
    pub(crate) gradient: f64,
    pub(crate) prior: Gamma,
}

/// With little spare capacity: searches clone hundreds of states.
impl Clone for State {
    fn clone(&self) -> Self {
        let capacity = stride(self.len() + 1);
        Self {
            active: self.active.clone(),
            alpha: self.alpha.clone(),
            priors: self.priors.clone(),
            beta: self.beta,
            noise_prior: self.noise_prior,
            mu: self.mu.clone(),
            sigma: leading(&self.sigma, self.len(), capacity),
            chol: self.chol.clone(),
            from_scratch_at: self.from_scratch_at,
            gram: leading(&self.gram, self.len(), capacity),
            gradient: self.gradient.clone(),
            reference: self.reference.clone(),
            offset: self.offset.clone(),
            deviance: self.deviance,
            n_noise: self.n_noise,
            work: Vec::new(),
        }
    }
}

impl State {
    /// An empty model with the deviance of w = 0.
    pub(crate) fn empty(beta: f64, noise_prior: Gamma, deviance: f64, n_noise: f64) -> Self {
        Self {
            active: Vec::new(),
            alpha: Vec::new(),
            priors: Vec::new(),
            beta,
            noise_prior,
            mu: Vec::new(),
            sigma: DMatrix::zeros(0, 0),
            chol: Cholesky::with_capacity(0),
            from_scratch_at: None,
            gram: DMatrix::zeros(0, 0),
            gradient: Vec::new(),
            reference: Vec::new(),
            offset: Vec::new(),
            deviance,
            n_noise,
            work: Vec::new(),
        }
    }

    /// Adds functions with equal alphas to an empty model; the caller has to call [`State::set_data`] next.
    /// Once `cancel` is set, work on the matrices fails early.
    pub(crate) fn fill(
        &mut self,
        functions: &[usize],
        alpha: f64,
        priors: &Priors,
        cancel: Option<Arc<AtomicBool>>,
    ) {
        let m = functions.len();
        self.chol.cancelled_by(cancel);
        // Without spare capacity: clearing memory cannot be cancelled.
        self.gram = DMatrix::zeros(m, m);
        self.sigma = DMatrix::zeros(m, m);
        self.active.extend_from_slice(functions);
        self.priors.extend(functions.iter().map(|&j| priors.of(j)));
        self.alpha.resize(m, alpha);
        for values in [
            &mut self.mu,
            &mut self.gradient,
            &mut self.reference,
            &mut self.offset,
        ] {
            values.resize(m, 0.0);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    pub(crate) fn chol(&self) -> &Cholesky {
        &self.chol
    }

    /// The largest H_kk Sigma_kk, the factor by which the inversion of H amplifies round-off.
    pub(crate) fn cancellation(&self) -> f64 {
        let product =
            |k: usize| (self.beta * self.gram[(k, k)] + self.alpha[k]) * self.sigma[(k, k)];
        (0..self.len()).map(product).fold(0.0, f64::max)
    }

    pub(crate) fn n_noise(&self) -> f64 {
        self.n_noise
    }

    /// s and q of active function `k`: equation (23).
    pub(crate) fn factors(&self, k: usize) -> Factors {
        let (alpha, variance, prior) = (self.alpha[k], self.sigma[(k, k)], self.priors[k]);
        if self.gamma(k) >= Tuning::MIN_RELIABLE_GAMMA {
            return Factors::from_posterior(alpha, variance, self.mu[k], prior);
        }
        self.project(&self.as_candidate(k)).1.left_out(alpha)
    }

    /// s of active function `k`, positive.
    pub(crate) fn sparsity(&self, k: usize) -> f64 {
        self.factors(k).s.max(f64::MIN_POSITIVE)
    }

    /// The data terms of active function `k`. Its projection has S and Q with the function in the model.
    fn as_candidate(&self, k: usize) -> Candidate<'_> {
        Candidate {
            index: self.active[k],
            gram: head(&self.gram, k, self.len()),
            gram_self: self.gram[(k, k)],
            gradient: self.gradient[k],
            prior: self.priors[k],
        }
    }

    /// Position of the function whose deletion gains most or loses least; `None` in an empty model.
    pub(crate) fn cheapest_deletion(&self) -> Option<usize> {
        let gain = |&k: &usize| self.factors(k).gain_of_deleting(self.alpha[k]);
        (0..self.len()).max_by(|a, b| gain(a).total_cmp(&gain(b)))
    }

    /// gamma_k = 1 - alpha_k Sigma_kk: how well the data determine the weight.
    pub(crate) fn gamma(&self, k: usize) -> f64 {
        1.0 - self.alpha[k] * self.sigma[(k, k)]
    }

    /// The smallest squared pivot of the factor relative to its diagonal element of H.
    pub(crate) fn least_pivot(&self) -> f64 {
        let pivot = |k: usize| {
            self.chol.get(k, k).powi(2) / (self.alpha[k] + self.beta * self.gram[(k, k)])
        };
        (0..self.len()).map(pivot).fold(1.0, f64::min)
    }

    /// Whether some alpha is at its floor.
    pub(crate) fn at_alpha_floor(&self) -> bool {
        self.alpha.iter().any(|&alpha| alpha <= Tuning::ALPHA_FLOOR)
    }

    /// Deviance at the posterior mean: for a Gaussian the squared residual.
    pub(crate) fn deviance_at_mean(&self) -> f64 {
        let d = &self.offset;
        let curvature = bilinear(&self.gram, d, d);
        self.deviance - 2.0 * dot(d, &self.gradient) + curvature
    }

    /// Bound on the round-off of the evidence in nats: far from the reference the residual is a difference of large terms.
    fn round_off(&self) -> f64 {
        let distance: f64 = self.offset.iter().map(|d| d.abs()).sum();
        f64::EPSILON * self.beta * distance * distance
    }

    /// Calls [`State::centre`] if round-off matters, and returns whether it did.
    ///
    /// For other likelihoods than the Gaussian the quadratic model holds at its reference only and stays.
    pub(crate) fn recentre(&mut self, stats: &mut dyn Statistics) -> Result<bool> {
        if self.round_off() <= Tuning::MAX_ROUND_OFF || !stats.is_linear() {
            return Ok(false);
        }
        self.centre(stats)?;
        Ok(true)
    }

    /// Moves the reference of the quadratic model to the posterior mean, with the residual computed from the data.
    pub(crate) fn centre(&mut self, stats: &mut dyn Statistics) -> Result<()> {
        let mu = self.mu.clone();
        let mut gradient = vec![0.0; mu.len()];
        let deviance = stats.gradient(&self.active, &mu, &mut gradient)?;
        self.set_data(&mu, &gradient, deviance, None)
    }

    /// ln p(t | alpha, beta): equation (7) through the m x m factor.
    ///
    /// `t^T C^-1 t = beta ||t - Phi mu||^2 + mu^T A mu` is stationary in mu, so round-off of mu enters squared.
    pub(crate) fn log_evidence(&self) -> f64 {
        let ln_alpha = sum_of_ln(&self.alpha);
        let penalty: f64 = self
            .alpha
            .iter()
            .zip(&self.mu)
            .map(|(a, m)| a * m * m)
            .sum();
        let noise = if self.n_noise > 0.0 {
            self.n_noise * (self.beta / std::f64::consts::TAU).ln()
        } else {
            0.0
        };
        0.5 * (noise + ln_alpha
            - self.chol.ln_det()
            - self.beta * self.deviance_at_mean()
            - penalty)
    }

    /// The objective: the log evidence plus the log densities of the hyperparameters under their priors.
    ///
    /// The log density of ln beta is `c ln beta - d beta` without its constant: Tipping (2001), appendix A.
    pub(crate) fn log_posterior(&self) -> f64 {
        let mut value = self.log_evidence();
        for (prior, &alpha) in self.priors.iter().zip(&self.alpha) {
            if !prior.is_flat() {
                value += prior.log_density(alpha);
            }
        }
        let Gamma { shape, rate } = self.noise_prior;
        if self.n_noise > 0.0 && !self.noise_prior.is_flat() {
            value += shape * self.beta.ln() - rate * self.beta;
        }
        value
    }

    /// The reference of the quadratic model of the data.
    pub(crate) fn reference(&self) -> &[f64] {
        &self.reference
    }

    /// Deviance at the reference.
    pub(crate) fn deviance_at_reference(&self) -> f64 {
        self.deviance
    }

    /// `v = L^-1 beta g`, and S and Q of an inactive function: equations (24) and (25).
    pub(crate) fn project(&self, candidate: &Candidate<'_>) -> (Vec<f64>, Factors) {
        let mut v: Vec<f64> = candidate.gram.iter().map(|g| self.beta * g).collect();
        let q = self.beta * (candidate.gradient - dot(candidate.gram, &self.offset));
        self.chol.solve_lower_in_place(&mut v);
        // S = beta phi^T phi - ||L^-1 beta g||^2: subtracting a squared norm avoids differences of large cross terms.
        let s = self.beta * candidate.gram_self - dot(&v, &v);
        let prior = candidate.prior;
        (v, Factors { s, q, prior })
    }

    /// Adds a function with precision `alpha`: appendix A.2. The subscript of the paper's Sigma_ii is the new scalar.
    /// `(v, factors)` is the [`State::project`] of the candidate.
    pub(crate) fn add(
        &mut self,
        candidate: &Candidate<'_>,
        (v, Factors { s, q, .. }): (Vec<f64>, Factors),
        alpha: f64,
    ) -> Result<()> {
        let m = self.len();
        self.from_scratch_at = None;
        let mut u = v.clone();
        self.chol.solve_lower_transpose_in_place(&mut u);
        self.reserve(m + 1);
        // With alpha + S as the pivot the evidence gains exactly what S and Q predict, whatever their round-off.
        self.chol.push_solved(&v, alpha + s)?;
        let variance = 1.0 / (alpha + s);
        let mean = variance * q;
        rank_one(&mut self.sigma, variance, &u);
        for (k, &uk) in u.iter().enumerate() {
            self.sigma[(k, m)] = -variance * uk;
            self.sigma[(m, k)] = -variance * uk;
            self.gram[(k, m)] = candidate.gram[k];
            self.gram[(m, k)] = candidate.gram[k];
        }
        self.sigma[(m, m)] = variance;
        self.gram[(m, m)] = candidate.gram_self;
        axpy(-mean, &u, &mut self.mu);
        axpy(-mean, &u, &mut self.offset);
        self.mu.push(mean);
        self.offset.push(mean);
        self.alpha.push(alpha);
        self.priors.push(candidate.prior);
        self.active.push(candidate.index);
        self.gradient.push(candidate.gradient);
        self.reference.push(0.0);
        Ok(())
    }

    /// Moves the alpha of active function `k`: appendix A.3.
    pub(crate) fn reestimate(&mut self, k: usize, alpha: f64) -> Result<()> {
        self.from_scratch_at = None;
        let delta = alpha - self.alpha[k];
        self.alpha[k] = alpha;
        let ratio = 1.0 + delta * self.sigma[(k, k)];
        if ratio < 1e-6 || self.chol.update_diagonal(k, delta).is_err() {
            // The rank-one formulae would lose six digits or more.
            return self.recompute();
        }
        self.subtract_column(k, delta / ratio);
        Ok(())
    }

    /// Removes active function `k`: appendix A.4.
    pub(crate) fn delete(&mut self, k: usize) {
        self.from_scratch_at = None;
        let m = self.len();
        self.subtract_column(k, 1.0 / self.sigma[(k, k)]);
        // Without the function in the reference its part of the fit returns to the residual.
        let r = self.reference[k];
        self.deviance += r * (2.0 * self.gradient[k] + r * self.gram[(k, k)]);
        axpy(r, head(&self.gram, k, m), &mut self.gradient);
        self.chol.remove(k);
        close_gap(&mut self.sigma, k, m);
        close_gap(&mut self.gram, k, m);
        for values in [
            &mut self.alpha,
            &mut self.mu,
            &mut self.gradient,
            &mut self.reference,
            &mut self.offset,
        ] {
            values.remove(k);
        }
        self.priors.remove(k);
        self.active.remove(k);
    }

    /// `sigma -= c sigma_k sigma_k^T`, `mu -= c mu_k sigma_k`.
    fn subtract_column(&mut self, k: usize, c: f64) {
        let m = self.len();
        self.work.clear();
        self.work.extend_from_slice(head(&self.sigma, k, m));
        rank_one(&mut self.sigma, -c, &self.work);
        let mean = self.mu[k];
        axpy(-c * mean, &self.work, &mut self.mu);
        axpy(-c * mean, &self.work, &mut self.offset);
    }

    /// Sets all alphas at once and recomputes.
    pub(crate) fn set_alphas(&mut self, alpha: &[f64]) -> Result<()> {
        self.set_hyperparameters(alpha, self.beta)
    }

    /// Sets all hyperparameters at once and recomputes.
    pub(crate) fn set_hyperparameters(&mut self, alpha: &[f64], beta: f64) -> Result<()> {
        self.alpha.copy_from_slice(alpha);
        self.beta = beta;
        self.recompute()
    }

    /// Replaces the quadratic model of the data by one about `reference` (the current mu, for accuracy) and
    /// recomputes. `None` keeps the Gram matrix, and the factor if it was computed from scratch at this beta.
    pub(crate) fn set_data(
        &mut self,
        reference: &[f64],
        gradient: &[f64],
        deviance: f64,
        gram: Option<&DMatrix<f64>>,
    ) -> Result<()> {
        let m = self.len();
        self.reference.copy_from_slice(reference);
        self.gradient.copy_from_slice(gradient);
        self.deviance = deviance;
        if let Some(gram) = gram {
            self.gram
                .view_mut((0, 0), (m, m))
                .copy_from(&gram.view((0, 0), (m, m)));
        } else if self.from_scratch_at == Some(self.beta) {
            self.solve_for_mean();
            return Ok(());
        }
        self.recompute()
    }

    /// Factor, covariance and mean from scratch.
    pub(crate) fn recompute(&mut self) -> Result<()> {
        let m = self.len();
        let (alpha, beta, gram) = (&self.alpha, self.beta, &self.gram);
        self.from_scratch_at = None;
        self.chol.refactor(m, |i, j| {
            beta * gram[(i, j)] + if i == j { alpha[i] } else { 0.0 }
        })?;
        self.chol.inverse_into(&mut self.sigma);
        self.from_scratch_at = Some(beta);
        self.solve_for_mean();
        Ok(())
    }

    fn solve_for_mean(&mut self) {
        let beta = self.beta;
        let terms = self.alpha.iter().zip(&self.gradient).zip(&self.reference);
        for (offset, ((a, g), r)) in self.offset.iter_mut().zip(terms) {
            *offset = beta * g - a * r;
        }
        self.chol.solve_in_place(&mut self.offset);
        let about = self.reference.iter().zip(&self.offset);
        for (mu, (r, offset)) in self.mu.iter_mut().zip(about) {
            *mu = r + offset;
        }
    }

    /// Reserves capacity for `m` functions in total.
    fn reserve(&mut self, m: usize) {
        if m > self.gram.nrows() {
            let capacity = stride(m + m / 2);
            self.gram = leading(&self.gram, self.len(), capacity);
            self.sigma = leading(&self.sigma, self.len(), capacity);
        }
        self.chol.reserve(m);
    }
}

impl Recorded for State {
    fn objective(&self) -> f64 {
        self.log_posterior()
    }

    fn powers_of_target(&self) -> f64 {
        self.n_noise + 2.0 * self.noise_prior.shape
    }

    fn n_active(&self) -> usize {
        self.len()
    }

    fn noise_precision(&self) -> f64 {
        self.beta
    }

    fn least_pivot(&self) -> f64 {
        self.least_pivot()
    }
}

/// Removes row and column `k` of the leading m x m block.
pub(crate) fn close_gap(matrix: &mut DMatrix<f64>, k: usize, m: usize) {
    let stride = matrix.nrows();
    let values = matrix.as_mut_slice();
    values.copy_within((k + 1) * stride..m * stride, k * stride);
    for column in values.chunks_exact_mut(stride).take(m - 1) {
        column.copy_within(k + 1..m, k);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROWS: usize = 12;
    const COLUMNS: usize = 8;

    /// Unit-norm columns and targets.
    struct Data {
        phi: Vec<Vec<f64>>,
        t: Vec<f64>,
    }

    impl Data {
        fn new(values: &[f64]) -> Self {
            let (columns, t) = values.split_at(ROWS * COLUMNS);
            let unit = |column: &[f64]| {
                let norm = dot(column, column).sqrt().max(1e-3);
                column.iter().map(|v| v / norm).collect()
            };
            Self {
                phi: columns.chunks_exact(ROWS).map(unit).collect(),
                t: t.to_vec(),
            }
        }

        fn empty(&self) -> State {
            State::empty(10.0, Gamma::FLAT, dot(&self.t, &self.t), ROWS as f64)
        }

        /// Adds a function; returns the gain that equation (18) predicts.
        fn add(&self, state: &mut State, index: usize, alpha: f64) -> f64 {
            let mut residual = self.t.clone();
            for (&j, &r) in state.active.iter().zip(&state.reference) {
                axpy(-r, &self.phi[j], &mut residual);
            }
            let column = &self.phi[index];
            let gram: Vec<f64> = state
                .active
                .iter()
                .map(|&j| dot(column, &self.phi[j]))
                .collect();
            let candidate = Candidate {
                index,
                gram: &gram,
                gram_self: dot(column, column),
                gradient: dot(column, &residual),
                prior: Gamma::FLAT,
            };
            let projection = state.project(&candidate);
            let factors = projection.1;
            state.add(&candidate, projection, alpha).unwrap();
            0.5 * ((alpha / (alpha + factors.s)).ln() + factors.q.powi(2) / (alpha + factors.s))
        }

        /// Moves the reference to the mean, as a pass over the data does.
        fn recentre(&self, state: &mut State) {
            let mu = state.mu.clone();
            let mut residual = self.t.clone();
            for (&j, &m) in state.active.iter().zip(&mu) {
                axpy(-m, &self.phi[j], &mut residual);
            }
            let gradient: Vec<f64> = state
                .active
                .iter()
                .map(|&j| dot(&self.phi[j], &residual))
                .collect();
            let deviance = dot(&residual, &residual);
            state.set_data(&mu, &gradient, deviance, None).unwrap();
        }
    }

    fn assert_same(a: &State, b: &State) {
        let m = a.len();
        let scale = (0..m).map(|k| b.sigma[(k, k)]).fold(0.0, f64::max);
        for i in 0..m {
            for j in 0..m {
                assert!((a.sigma[(i, j)] - b.sigma[(i, j)]).abs() <= 1e-8 * scale);
            }
        }
        let size = 1.0 + b.mu.iter().fold(0.0_f64, |most, m| most.max(m.abs()));
        assert!(
            a.mu.iter()
                .zip(&b.mu)
                .all(|(x, y)| (x - y).abs() <= 1e-7 * size)
        );
        let evidence = b.log_evidence();
        assert!((a.log_evidence() - evidence).abs() <= 1e-8 * (1.0 + evidence.abs()));
    }

    #[test]
    fn factors_do_not_depend_on_the_alpha_of_their_function() {
        let values: Vec<f64> = (0..ROWS * (COLUMNS + 1))
            .map(|i| (2.3 * i as f64).sin())
            .collect();
        let data = Data::new(&values);
        let mut state = data.empty();
        for j in 0..5 {
            data.add(&mut state, j, 1.0 + j as f64);
        }
        let expected = state.factors(2);
        // The posterior variance determines s only by the digits in which it differs from 1 / alpha.
        for exponent in -3..=20 {
            state.reestimate(2, 10_f64.powi(exponent)).unwrap();
            if exponent % 2 == 0 {
                data.recentre(&mut state);
            }
            let found = state.factors(2);
            assert!((found.s / expected.s - 1.0).abs() < 1e-8, "1e{exponent}");
            assert!((found.q / expected.q - 1.0).abs() < 1e-8, "1e{exponent}");
        }
    }

    proptest! {
        #[test]
        fn updates_in_place_agree_with_recomputation(
            values in prop::collection::vec(-1.0..1.0_f64, ROWS * (COLUMNS + 1)),
            actions in prop::collection::vec((0..4_u8, 0..COLUMNS, -3.0..4.0_f64), 1..40),
        ) {
            let data = Data::new(&values);
            let mut state = data.empty();
            for (action, j, ln_alpha) in actions {
                let alpha = ln_alpha.exp();
                let before = state.log_evidence();
                match state.active.iter().position(|&a| a == j) {
                    None => {
                        let gain = data.add(&mut state, j, alpha);
                        prop_assert!((state.log_evidence() - before - gain).abs() < 1e-8);
                    }
                    Some(k) if action == 0 => {
                        let gain = state.factors(k).gain_of_deleting(state.alpha[k]);
                        state.delete(k);
                        prop_assert!((state.log_evidence() - before - gain).abs() < 1e-8);
                    }
                    Some(_) if action == 1 => data.recentre(&mut state),
                    Some(k) => {
                        let gain = state.factors(k).gain_of_moving(state.alpha[k], alpha);
                        state.reestimate(k, alpha).unwrap();
                        prop_assert!((state.log_evidence() - before - gain).abs() < 1e-8);
                    }
                }
                let mut recomputed = state.clone();
                recomputed.recompute().unwrap();
                assert_same(&state, &recomputed);
            }
        }
    }
}
