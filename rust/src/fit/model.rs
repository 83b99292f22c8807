//! The active set and its posterior.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::data::{Observations, Statistics};
use crate::fit::evidence::{Factors, Gamma, Priors, Term};
use crate::fit::settings::{NoisePrecision, OutputNoise};
use crate::fit::settings::{Rules, check_noise, check_noise_scale, check_scale, check_units};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::columns::stride;
use crate::linalg::gemm::add_combination;
use crate::linalg::vector::weighted_square;
use crate::linalg::vector::{axpy, bilinear, dot, head, leading, mirrored, rank_one, sum_of_ln};
use crate::linalg::{Cholesky, Matrix};
use crate::{Error, NotPositiveDefinite, Result};

/// Active functions, hyperparameters and the Gaussian posterior over the weights of C outputs.
///
/// All outputs share functions and alphas; each has its own weights, and its own noise precision beta or a common one. The data
/// terms of an output are a quadratic model of its log-likelihood about a *reference* r:
/// `ln p(t | w) = -beta/2 [deviance - 2 d^T gradient + d^T G d] + constant`, with `d = w - r`. For a Gaussian that is
/// exact for any r, and an r close to the mean keeps the residual free of cancellation. For other likelihoods C = 1, and it is
/// the Laplace approximation about r, with beta = 1: Tipping & Faul (2003), section 2.2.
///
/// A function with alpha = 0, such as the intercept, has a flat prior. It is always in the model: no scheme moves its alpha or deletes it.
/// The evidence is then the density of the contrasts of the targets that do not depend on such weights (restricted maximum likelihood,
/// Harville 1974).
///
/// Between calls, with m active functions: `chol` of a noise level factors H = diag(alpha) + beta G, `sigma` is its inverse, and for
/// each of its outputs `mu = r + sigma (beta gradient - alpha r)`. `gradient` belongs to r, not to mu. Matrices have spare capacity;
/// their leading m x m blocks are in use. Actions update everything in place by rank-one formulae; [`Model::recompute`] computes
/// it from scratch.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) active: Vec<usize>,
    pub(crate) alpha: Vec<f64>,
    /// The prior of each alpha.
    pub(crate) priors: Vec<Gamma>,
    /// A noise level for each output, or one for all.
    pub(crate) levels: Vec<Level>,
    pub(crate) outputs: Vec<Output>,
    /// The prior of each beta.
    pub(crate) noise_prior: Gamma,
    /// The weight c of the prior exp(-c tr S), with S the matrix that maps targets to fitted values: Schmolck & Everson (2007).
    pub(crate) complexity: f64,
    /// ln |F^T F| of the functions F that have a flat prior, as columns of unit length under the sample weights.
    pub(crate) ln_volume: f64,
    gram: Matrix,
    /// Targets of one output with noise precision beta: sum of sample weights for a Gaussian; 0 for other likelihoods.
    n_noise: f64,
    /// Round-off of the evidence in nats up to which the quadratic models keep their reference.
    max_round_off: f64,
    /// Updates in place since the factors were computed from scratch.
    n_updates: usize,
}

/// A noise precision, and the posterior covariance at it.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) noise: NoisePrecision,
    pub(crate) sigma: Matrix,
    pub(crate) chol: Cholesky,
    /// The beta at which the factor and `sigma` were computed from scratch; `None` if they never were.
    from_scratch_at: Option<f64>,
}

/// The weights of one output, and the quadratic model of its data.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) mu: Vec<f64>,
    /// mu - reference, stored so that neither it nor mu is computed as a difference.
    pub(crate) offset: Vec<f64>,
    reference: Vec<f64>,
    gradient: Vec<f64>,
    /// Deviance at the reference.
    pub(crate) deviance: f64,
}

impl Output {
    fn empty(deviance: f64) -> Self {
        Self {
            mu: Vec::new(),
            offset: Vec::new(),
            reference: Vec::new(),
            gradient: Vec::new(),
            deviance,
        }
    }

    /// The values that each function has.
    fn values(&mut self) -> [&mut Vec<f64>; 4] {
        [
            &mut self.mu,
            &mut self.offset,
            &mut self.reference,
            &mut self.gradient,
        ]
    }
}

/// An inactive function with its data terms: inner products with the active functions (`gram`), with itself, and with
/// the residual of each output at its reference (`gradient`).
pub(crate) struct Candidate {
    pub(crate) index: usize,
    pub(crate) gram: Vec<f64>,
    pub(crate) gram_self: f64,
    pub(crate) gradient: Vec<f64>,
    pub(crate) prior: Gamma,
}

/// S and Q of a function beside the model: equations (24) and (25).
pub(crate) struct Projection {
    /// `v = L^-1 beta g` of each level.
    v: Vec<Vec<f64>>,
    /// S of each level.
    pub(crate) s: Vec<f64>,
    /// Q of each output.
    pub(crate) q: Vec<f64>,
    /// rho of each level, beside the active functions; 0 without a complexity prior.
    pub(crate) rho: Vec<f64>,
    pub(crate) factors: Factors,
}

/// With little spare capacity: searches clone hundreds of states.
impl Clone for Model {
    fn clone(&self) -> Self {
        let capacity = stride(self.len() + 1);
        let level = |level: &Level| Level {
            noise: level.noise,
            sigma: leading(&level.sigma, self.len(), capacity),
            chol: level.chol.clone(),
            from_scratch_at: level.from_scratch_at,
        };
        Self {
            active: self.active.clone(),
            alpha: self.alpha.clone(),
            priors: self.priors.clone(),
            levels: self.levels.iter().map(level).collect(),
            outputs: self.outputs.clone(),
            noise_prior: self.noise_prior,
            complexity: self.complexity,
            ln_volume: self.ln_volume,
            gram: leading(&self.gram, self.len(), capacity),
            n_noise: self.n_noise,
            max_round_off: self.max_round_off,
            n_updates: self.n_updates,
        }
    }
}

impl Model {
    /// An empty model. `noise` has one entry for each output or one for all; `deviances` are those of w = 0.
    pub(crate) fn empty(
        noise: &[NoisePrecision],
        noise_prior: Gamma,
        deviances: &[f64],
        n_noise: f64,
    ) -> Self {
        let level = |&noise: &NoisePrecision| Level {
            noise,
            sigma: Matrix::zeros(0, 0),
            chol: Cholesky::with_capacity(0),
            from_scratch_at: None,
        };
        Self {
            active: Vec::new(),
            alpha: Vec::new(),
            priors: Vec::new(),
            levels: noise.iter().map(level).collect(),
            outputs: deviances.iter().copied().map(Output::empty).collect(),
            noise_prior,
            complexity: 0.0,
            ln_volume: 0.0,
            gram: Matrix::zeros(0, 0),
            n_noise,
            max_round_off: 1e-3 * Tuning::MIN_GAIN,
            n_updates: 0,
        }
    }

    /// Allows round-off up to a small fraction of the smallest gain of any step.
    pub(crate) fn set_smallest_gain(&mut self, gain: f64) {
        self.max_round_off = self.max_round_off.max(1e-7 * gain);
    }

    /// Adds functions with these alphas to an empty model, and the quadratic model of the data about zero.
    pub(crate) fn start(
        &mut self,
        stats: &mut dyn Statistics,
        functions: &[usize],
        alpha: &[f64],
        priors: &Priors,
    ) -> Result<()> {
        self.fill(functions, alpha, priors, stats.facts().cancel.as_ref());
        let start = vec![0.0; functions.len() * self.outputs.len()];
        if self.outputs.len() == 1 {
            return self.expand_about(stats, &start);
        }
        let mut gradient = start.clone();
        let deviances = stats.gradient(functions, &start, &mut gradient)?;
        let gram = mirrored(stats.among(functions, &start, functions)?.0);
        self.set_data(&start, &gradient, &deviances, Some(&gram))
    }

    /// Adds functions with these alphas to an empty model; the caller has to call [`Model::set_data`] next.
    /// Once `cancel` is set, work on the matrices fails early.
    pub(crate) fn fill(
        &mut self,
        functions: &[usize],
        alpha: &[f64],
        priors: &Priors,
        cancel: Option<&Arc<AtomicBool>>,
    ) {
        let m = functions.len();
        // Without spare capacity: clearing memory cannot be cancelled.
        self.gram = Matrix::zeros(m, m);
        for level in &mut self.levels {
            level.chol.cancelled_by(cancel.cloned());
            level.sigma = Matrix::zeros(m, m);
        }
        self.active.extend_from_slice(functions);
        // A function with alpha = 0 has no other prior.
        let prior = |(&j, &alpha): (&usize, &f64)| match alpha {
            0.0 => Gamma::FLAT,
            _ => priors.of(j),
        };
        self.priors.extend(functions.iter().zip(alpha).map(prior));
        self.alpha.extend_from_slice(alpha);
        for output in &mut self.outputs {
            for values in output.values() {
                values.resize(m, 0.0);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    /// Positions of the functions that are not [unpenalised](Self::is_unpenalized).
    pub(crate) fn penalized(&self) -> impl DoubleEndedIterator<Item = usize> + Clone + '_ {
        (0..self.len()).filter(|&k| !self.is_unpenalized(k))
    }

    /// Whether active function `k` has a flat prior and stays in the model.
    pub(crate) fn is_unpenalized(&self, k: usize) -> bool {
        self.alpha[k] == 0.0
    }

    /// Number of targets of all outputs, less the number of weights with a flat prior: the dimension of the density that the evidence is.
    pub(crate) fn n_contrasts(&self) -> f64 {
        let flat = (self.unpenalized().count() * self.outputs.len()) as f64;
        (self.n_noise() - flat).max(0.0)
    }

    /// The active functions with a flat prior.
    pub(crate) fn unpenalized(&self) -> impl Iterator<Item = usize> + '_ {
        let positions = (0..self.len()).filter(|&k| self.is_unpenalized(k));
        positions.map(|k| self.active[k])
    }

    /// sum_k ln alpha_k of the functions that have a proper prior.
    fn sum_of_ln_alpha(&self) -> f64 {
        if self.unpenalized().next().is_none() {
            return sum_of_ln(&self.alpha);
        }
        let positive = self.alpha.iter().copied().filter(|&alpha| alpha > 0.0);
        sum_of_ln(&positive.collect::<Vec<f64>>())
    }

    /// The level of output `c`.
    pub(crate) fn level_of(&self, c: usize) -> usize {
        c.min(self.levels.len() - 1)
    }

    /// The outputs of level `l`.
    pub(crate) fn outputs_of(&self, l: usize) -> Range<usize> {
        if self.levels.len() == 1 {
            0..self.outputs.len()
        } else {
            l..l + 1
        }
    }

    /// Noise precision of the first level.
    pub(crate) fn beta(&self) -> f64 {
        self.levels[0].noise.beta
    }

    /// Noise precision of each level.
    pub(crate) fn betas(&self) -> Vec<f64> {
        self.levels.iter().map(|level| level.noise.beta).collect()
    }

    /// Posterior covariance of the first level.
    pub(crate) fn sigma(&self) -> &Matrix {
        &self.levels[0].sigma
    }

    /// The factor of H of the first level.
    pub(crate) fn chol(&self) -> &Cholesky {
        &self.levels[0].chol
    }

    /// Posterior means of the first output.
    pub(crate) fn mu(&self) -> &[f64] {
        &self.outputs[0].mu
    }

    /// Posterior means of all outputs, one output after the other.
    pub(crate) fn means(&self) -> Vec<f64> {
        self.outputs.iter().flat_map(|o| &o.mu).copied().collect()
    }

    /// Inner product of two active functions.
    pub(crate) fn gram(&self, i: usize, j: usize) -> f64 {
        self.gram[(i, j)]
    }

    /// The largest H_kk Sigma_kk, the factor by which the inversion of H amplifies round-off.
    pub(crate) fn cancellation(&self) -> f64 {
        let product =
            |k: usize| (self.beta() * self.gram[(k, k)] + self.alpha[k]) * self.sigma()[(k, k)];
        (0..self.len()).map(product).fold(0.0, f64::max)
    }

    /// Number of targets of level `l` whose noise precision is its beta.
    pub(crate) fn n_targets(&self, l: usize) -> f64 {
        self.n_noise * self.outputs_of(l).len() as f64
    }

    /// Number of targets of one output whose noise precision is estimated or given; 0 without noise.
    pub(crate) fn n_targets_of_output(&self) -> f64 {
        self.n_noise
    }

    /// Number of targets of all outputs.
    pub(crate) fn n_noise(&self) -> f64 {
        self.n_noise * self.outputs.len() as f64
    }

    /// s and q of active function `k`: equation (23).
    pub(crate) fn factors(&self, k: usize) -> Factors {
        let others = (1..self.levels.len()).map(|l| self.term(k, l));
        Factors::of_levels(self.term(k, 0), others, self.priors[k])
    }

    /// The term of level `l` in [`Model::factors`].
    #[inline]
    pub(crate) fn term(&self, k: usize, l: usize) -> Term {
        // s = 1 / Sigma_kk - alpha has the relative accuracy of gamma = 1 - alpha Sigma_kk, and the best alpha that of gamma^2.
        let gamma = self.gamma(k, l);
        if gamma * gamma.abs() * Tuning::INFINITE_RATIO < 1.0 {
            return self.term_from_data(k, l);
        }
        let (alpha, variance) = (self.alpha[k], self.levels[l].sigma[(k, k)]);
        let outputs = self.outputs_of(l);
        let n = outputs.len() as f64;
        let mut square = sum_of_squares(outputs, |c| self.outputs[c].mu[k]);
        if self.complexity > 0.0 {
            square -= 2.0 * self.complexity * n * self.sampling_variance(k, l);
        }
        Term::from_posterior(n, alpha, variance, square)
    }

    /// (Sigma - Sigma A Sigma)_kk at level `l`: the variance of mu_k over draws of the noise.
    pub(crate) fn sampling_variance(&self, k: usize, l: usize) -> f64 {
        let sigma = head(&self.levels[l].sigma, k, self.len());
        sigma[k] - weighted_square(sigma, &self.alpha)
    }

    /// Column k of Sigma A Sigma at level `l`.
    pub(crate) fn shrunk_covariances(&self, k: usize, l: usize) -> Vec<f64> {
        let (m, sigma) = (self.len(), &self.levels[l].sigma);
        let columns: Vec<&[f64]> = (0..m).map(|j| head(sigma, j, m)).collect();
        let own = head(sigma, k, m).iter().zip(&self.alpha);
        let weights: Vec<f64> = own.map(|(own, alpha)| own * alpha).collect();
        let mut column = vec![0.0; m];
        add_combination(&columns, &weights, &mut column);
        column
    }

    /// The term of level `l` from S and Q with the function in the model, for a posterior variance close to the prior's.
    #[cold]
    fn term_from_data(&self, k: usize, l: usize) -> Term {
        let candidate = Candidate {
            index: self.active[k],
            gram: head(&self.gram, k, self.len()).to_vec(),
            gram_self: self.gram[(k, k)],
            gradient: self.outputs.iter().map(|o| o.gradient[k]).collect(),
            prior: self.priors[k],
        };
        let Projection { s, q, rho, .. } = self.project(&candidate);
        self.term_of(l, s[l], |c| q[c], |l| rho[l])
            .left_out(self.alpha[k])
    }

    /// The term of level `l` with sparsity s, quality q for each output, and rho of the level.
    #[inline]
    fn term_of(
        &self,
        l: usize,
        s: f64,
        q: impl Fn(usize) -> f64,
        rho: impl Fn(usize) -> f64,
    ) -> Term {
        let outputs = self.outputs_of(l);
        let n = outputs.len() as f64;
        let mut square = sum_of_squares(outputs, q);
        if self.complexity > 0.0 {
            square -= 2.0 * self.complexity * n * rho(l).max(0.0);
        }
        Term { n, s, square }
    }

    /// The factors with sparsity s and rho at each level and quality q for each output.
    pub(crate) fn combine(
        &self,
        s: impl Fn(usize) -> f64,
        q: impl Fn(usize) -> f64,
        rho: impl Fn(usize) -> f64,
        prior: Gamma,
    ) -> Factors {
        let term = |l: usize| self.term_of(l, s(l), &q, &rho);
        Factors::of_levels(term(0), (1..self.levels.len()).map(term), prior)
    }

    /// s of active function `k` at the first level, positive.
    pub(crate) fn sparsity(&self, k: usize) -> f64 {
        self.factors(k).first.s.max(f64::MIN_POSITIVE)
    }

    /// Whether S of a function of squared norm `diag` exceeds its round-off.
    ///
    /// With little noise less of a function remains than with much. It is enough if one level resolves it and the others do not lose
    /// it completely.
    pub(crate) fn resolves(&self, factors: &Factors, diag: f64) -> bool {
        let error = |level: &Level| Tuning::MIN_ORTHOGONAL_PART * level.noise.beta * diag;
        let terms = || factors.terms().zip(&self.levels);
        let is_lost =
            |(term, level): (Term, &Level)| term.s.is_nan() || term.s <= 1e-3 * error(level);
        !terms().any(is_lost) && terms().any(|(term, level)| term.s > error(level))
    }

    /// Position of the function whose deletion gains most or loses least; `None` if none may be deleted.
    pub(crate) fn cheapest_deletion(&self) -> Option<usize> {
        let gain = |&k: &usize| self.factors(k).gain_of_deleting(self.alpha[k]);
        self.penalized().max_by(|a, b| gain(a).total_cmp(&gain(b)))
    }

    /// gamma_k = 1 - alpha_k Sigma_kk at level `l`: how well the data determine the weight.
    pub(crate) fn gamma(&self, k: usize, l: usize) -> f64 {
        1.0 - self.alpha[k] * self.levels[l].sigma[(k, k)]
    }

    /// gamma_k on average over the outputs.
    pub(crate) fn mean_gamma(&self, k: usize) -> f64 {
        let gammas = (0..self.outputs.len()).map(|c| self.gamma(k, self.level_of(c)));
        gammas.sum::<f64>() / self.outputs.len() as f64
    }

    /// sum_k gamma_k over the outputs of level `l`: the number of weights that the data determine.
    pub(crate) fn determined(&self, l: usize) -> f64 {
        let gamma: f64 = (0..self.len()).map(|k| self.gamma(k, l)).sum();
        self.outputs_of(l).len() as f64 * gamma
    }

    /// The smallest squared pivot of a factor relative to its diagonal element of H.
    pub(crate) fn least_pivot(&self) -> f64 {
        let pivot = |level: &Level, k: usize| {
            level.chol.get(k, k).powi(2) / (self.alpha[k] + level.noise.beta * self.gram[(k, k)])
        };
        let of_level =
            |level: &Level| (0..self.len()).fold(1.0, |least, k| f64::min(least, pivot(level, k)));
        self.levels.iter().map(of_level).fold(1.0, f64::min)
    }

    /// The inverse of the mean noise variance.
    pub(crate) fn noise_precision(&self) -> f64 {
        if let [level] = &self.levels[..] {
            return level.noise.beta;
        }
        let variances: f64 = self.levels.iter().map(|level| 1.0 / level.noise.beta).sum();
        self.levels.len() as f64 / variances
    }

    /// The exponent of the unit of the targets in the exponential of the objective.
    pub(crate) fn powers_of_target(&self) -> f64 {
        self.n_contrasts() + 2.0 * self.noise_prior.shape * self.levels.len() as f64
    }

    /// Deviance of output `c` at its posterior mean: for a Gaussian the squared residual.
    fn output_deviance(&self, c: usize) -> f64 {
        let output = &self.outputs[c];
        let d = &output.offset;
        let curvature = bilinear(&self.gram, d, d);
        output.deviance - 2.0 * dot(d, &output.gradient) + curvature
    }

    /// Deviance of the outputs of level `l` at the posterior mean.
    pub(crate) fn deviance_at_mean(&self, l: usize) -> f64 {
        self.outputs_of(l).map(|c| self.output_deviance(c)).sum()
    }

    /// Bound on the round-off of the evidence in nats: far from the reference the residual is a difference of large terms.
    fn round_off(&self) -> f64 {
        let of_output = |(c, output): (usize, &Output)| {
            let distance: f64 = output.offset.iter().map(|d| d.abs()).sum();
            f64::EPSILON * self.levels[self.level_of(c)].noise.beta * distance * distance
        };
        self.outputs.iter().enumerate().map(of_output).sum()
    }

    /// Moves the reference of the quadratic model to the posterior mean if round-off matters.
    ///
    /// The factors stay as they are if the correction of the means raises the evidence by no more than round-off; otherwise they have
    /// lost digits and are recomputed, after a small correction only if there have been several updates in place: where functions are
    /// nearly dependent, recomputed factors have no more digits. For other likelihoods than the Gaussian the quadratic model holds at
    /// its reference only and stays.
    ///
    /// # Errors
    /// `NotPositiveDefinite` where corrections grow, even with recomputed factors.
    pub(crate) fn recentre(&mut self, stats: &mut dyn Statistics) -> Result<()> {
        if self.round_off() <= self.max_round_off || !stats.facts().is_linear {
            return Ok(());
        }
        self.move_reference(stats)?;
        let raised = self.solve_for_means();
        if raised <= self.max_round_off {
            return Ok(());
        }
        let is_far = raised.is_nan() || raised > Tuning::MAX_DRIFT;
        if is_far || self.n_updates * Tuning::RECOMPUTATION_RATIO >= self.len() {
            self.recompute()?;
        }
        if is_far {
            self.move_reference(stats)?;
            let again = self.solve_for_means();
            if again.is_nan() || again > f64::max(raised, Tuning::MAX_GROWN_DRIFT) {
                return Err(NotPositiveDefinite { pivot: 0 }.into());
            }
        }
        Ok(())
    }

    /// Moves the reference of the quadratic model to the posterior mean, and recomputes factors that were updated in place.
    pub(crate) fn centre(&mut self, stats: &mut dyn Statistics) -> Result<()> {
        self.move_reference(stats)?;
        self.renew_factors()
    }

    /// Makes the posterior mean the reference, with the residual there computed from the data.
    fn move_reference(&mut self, stats: &mut dyn Statistics) -> Result<()> {
        let mu = self.means();
        let mut gradient = vec![0.0; mu.len()];
        let deviances = stats.gradient(&self.active, &mu, &mut gradient)?;
        self.set_reference(&mu, &gradient, &deviances);
        Ok(())
    }

    /// Replaces the quadratic model of the data, of one output, by the one about `mu`.
    pub(crate) fn expand_about(&mut self, stats: &mut dyn Statistics, mu: &[f64]) -> Result<()> {
        let (deviance, (gram, gradient)) = stats.local(&self.active, mu)?;
        self.set_data(mu, &gradient, &[deviance], Some(&gram))
    }

    /// ln p(t | alpha, beta) of all outputs: equation (7) through the m x m factors.
    ///
    /// `t^T C^-1 t = beta ||t - Phi mu||^2 + mu^T A mu` is stationary in mu, so round-off of mu enters squared.
    pub(crate) fn log_evidence(&self) -> f64 {
        // A flat prior lacks the factor (alpha / 2 pi)^1/2 of a proper one. |F^T F|^1/2 is the volume that a change of the weights by one
        // spans: without it the evidence would depend on the coordinates in the span of these functions.
        let flat = self.unpenalized().count() as f64 * std::f64::consts::TAU.ln() + self.ln_volume;
        let ln_alpha = self.sum_of_ln_alpha() + flat;
        let of_output = |c: usize| {
            let level = &self.levels[self.level_of(c)];
            let noise = if self.n_noise > 0.0 {
                self.n_noise * (level.noise.beta / std::f64::consts::TAU).ln()
            } else {
                0.0
            };
            0.5 * (noise + ln_alpha
                - level.chol.ln_det()
                - level.noise.beta * self.output_deviance(c)
                - self.penalty(c))
        };
        (0..self.outputs.len()).map(of_output).sum()
    }

    /// mu^T A mu of output `c`.
    fn penalty(&self, c: usize) -> f64 {
        let weights = self.alpha.iter().zip(&self.outputs[c].mu);
        weights.map(|(a, m)| a * m * m).sum()
    }

    /// The log Occam factor of all outputs, `1/2 (ln|A| - ln|Sigma^-1| - mu^T A mu)`: the log evidence minus the log-likelihood at
    /// the posterior mean.
    pub(crate) fn log_occam_factor(&self) -> f64 {
        let ln_alpha = self.sum_of_ln_alpha();
        let of_output = |c: usize| {
            let ln_det = self.levels[self.level_of(c)].chol.ln_det();
            0.5 * (ln_alpha - ln_det - self.penalty(c))
        };
        (0..self.outputs.len()).map(of_output).sum()
    }

    /// The objective: the log evidence plus the log densities of the hyperparameters under their priors.
    ///
    /// The log density of ln beta is `c ln beta - d beta` without its constant: Tipping (2001), appendix A.
    pub(crate) fn log_posterior(&self) -> f64 {
        let mut value = self.log_evidence();
        for (prior, &alpha) in self.priors.iter().zip(&self.alpha) {
            value += prior.log_density(alpha);
        }
        if self.complexity > 0.0 {
            // Functions with a flat prior contribute a constant, which is left out.
            let flat = (self.unpenalized().count() * self.outputs.len()) as f64;
            let determined = (0..self.levels.len()).map(|l| self.determined(l));
            value -= self.complexity * (determined.sum::<f64>() - flat);
        }
        let Gamma { shape, rate } = self.noise_prior;
        if self.n_noise > 0.0 {
            let levels = self.levels.iter();
            value += levels
                .map(|l| shape * l.noise.beta.ln() - rate * l.noise.beta)
                .sum::<f64>();
        }
        value
    }

    /// The reference of the quadratic model of the first output.
    pub(crate) fn reference(&self) -> &[f64] {
        &self.outputs[0].reference
    }

    /// The reference of each output.
    pub(crate) fn references(&self) -> impl Iterator<Item = &[f64]> {
        self.outputs.iter().map(|output| &output.reference[..])
    }

    /// S and Q of an inactive function: equations (24) and (25).
    pub(crate) fn project(&self, candidate: &Candidate) -> Projection {
        let q = |(c, output): (usize, &Output)| {
            let along = dot(&candidate.gram, &output.offset);
            self.levels[self.level_of(c)].noise.beta * (candidate.gradient[c] - along)
        };
        let q: Vec<f64> = self.outputs.iter().enumerate().map(q).collect();
        let solve = |level: &Level| {
            let mut v: Vec<f64> = candidate
                .gram
                .iter()
                .map(|g| level.noise.beta * g)
                .collect();
            level.chol.solve_lower_in_place(&mut v);
            // S = beta phi^T phi - ||L^-1 beta g||^2: subtracting a squared norm avoids differences of large cross terms.
            let s = level.noise.beta * candidate.gram_self - dot(&v, &v);
            (v, s)
        };
        let (v, s): (Vec<Vec<f64>>, Vec<f64>) = self.levels.iter().map(solve).unzip();
        let mut rho = vec![0.0; s.len()];
        if self.complexity > 0.0 {
            for (l, level) in self.levels.iter().enumerate() {
                let mut u = v[l].clone();
                level.chol.solve_lower_transpose_in_place(&mut u);
                rho[l] = s[l] - weighted_square(&u, &self.alpha);
            }
        }
        let factors = self.combine(|l| s[l], |c| q[c], |l| rho[l], candidate.prior);
        Projection {
            v,
            s,
            q,
            rho,
            factors,
        }
    }

    /// Adds a function with precision `alpha`: appendix A.2. The subscript of the paper's Sigma_ii is the new scalar.
    pub(crate) fn add(
        &mut self,
        candidate: &Candidate,
        projection: &Projection,
        alpha: f64,
    ) -> Result<()> {
        let m = self.len();
        self.reserve(m + 1);
        self.n_updates += 1;
        for l in 0..self.levels.len() {
            let range = self.outputs_of(l);
            let (level, v, s) = (&mut self.levels[l], &projection.v[l], projection.s[l]);
            let mut u = v.clone();
            level.chol.solve_lower_transpose_in_place(&mut u);
            // With alpha + S as the pivot the evidence gains exactly what S and Q predict, whatever their round-off.
            level.chol.push_solved(v, alpha + s)?;
            let variance = 1.0 / (alpha + s);
            rank_one(&mut level.sigma, variance, &u);
            for (k, &uk) in u.iter().enumerate() {
                level.sigma[(k, m)] = -variance * uk;
                level.sigma[(m, k)] = -variance * uk;
            }
            level.sigma[(m, m)] = variance;
            for c in range {
                let (output, mean) = (&mut self.outputs[c], variance * projection.q[c]);
                axpy(-mean, &u, &mut output.mu);
                axpy(-mean, &u, &mut output.offset);
                output.mu.push(mean);
                output.offset.push(mean);
                output.gradient.push(candidate.gradient[c]);
                output.reference.push(0.0);
            }
        }
        for (k, &g) in candidate.gram.iter().enumerate() {
            self.gram[(k, m)] = g;
            self.gram[(m, k)] = g;
        }
        self.gram[(m, m)] = candidate.gram_self;
        self.alpha.push(alpha);
        self.priors.push(candidate.prior);
        self.active.push(candidate.index);
        Ok(())
    }

    /// Moves the alpha of active function `k`: appendix A.3.
    pub(crate) fn reestimate(&mut self, k: usize, alpha: f64) -> Result<()> {
        let delta = alpha - self.alpha[k];
        self.alpha[k] = alpha;
        self.n_updates += 1;
        for level in &mut self.levels {
            let ratio = 1.0 + delta * level.sigma[(k, k)];
            if ratio < 1e-6 || level.chol.update_diagonal(k, delta).is_err() {
                // The rank-one formulae would lose six digits or more.
                return self.recompute();
            }
        }
        self.subtract_column(k, |variance| {
            let kept = 1.0 / (1.0 + delta * variance);
            (delta * kept, kept)
        });
        Ok(())
    }

    /// Removes active function `k`: appendix A.4.
    pub(crate) fn delete(&mut self, k: usize) {
        let m = self.len();
        self.n_updates += 1;
        self.subtract_column(k, |variance| (1.0 / variance, 0.0));
        for output in &mut self.outputs {
            // Without the function in the reference its part of the fit returns to the residual.
            let r = output.reference[k];
            output.deviance += r * (2.0 * output.gradient[k] + r * self.gram[(k, k)]);
            axpy(r, head(&self.gram, k, m), &mut output.gradient);
            for values in output.values() {
                values.remove(k);
            }
        }
        for level in &mut self.levels {
            level.chol.remove(k);
            close_gap(&mut level.sigma, k, m);
        }
        close_gap(&mut self.gram, k, m);
        self.alpha.remove(k);
        self.priors.remove(k);
        self.active.remove(k);
    }

    /// `sigma -= c sigma_k sigma_k^T`, `mu -= c mu_k sigma_k`. `step` returns c and 1 - c sigma_kk, what remains of column k and of
    /// mu_k, from sigma_kk: where little remains, the subtraction would lose its digits.
    fn subtract_column(&mut self, k: usize, step: impl Fn(f64) -> (f64, f64)) {
        let m = self.len();
        for l in 0..self.levels.len() {
            let range = self.outputs_of(l);
            let sigma = &mut self.levels[l].sigma;
            let column = head(sigma, k, m).to_vec();
            let (c, kept) = step(column[k]);
            rank_one(sigma, -c, &column);
            for (j, value) in column.iter().enumerate() {
                sigma[(j, k)] = kept * value;
                sigma[(k, j)] = kept * value;
            }
            for output in &mut self.outputs[range] {
                let mean = output.mu[k];
                axpy(-c * mean, &column, &mut output.mu);
                axpy(-c * mean, &column, &mut output.offset);
                output.mu[k] = kept * mean;
            }
        }
    }

    /// Sets all alphas at once and recomputes.
    pub(crate) fn set_alphas(&mut self, alpha: &[f64]) -> Result<()> {
        self.alpha.copy_from_slice(alpha);
        self.recompute()
    }

    /// Sets all hyperparameters at once and recomputes.
    pub(crate) fn set_hyperparameters(&mut self, alpha: &[f64], betas: &[f64]) -> Result<()> {
        self.alpha.copy_from_slice(alpha);
        for (level, &beta) in self.levels.iter_mut().zip(betas) {
            level.noise.beta = beta;
        }
        self.recompute()
    }

    /// Replaces the quadratic models of the data by those about `reference` (the current means, for accuracy) and
    /// recomputes. `reference` and `gradient` hold the values of one output after the other. Without `gram` the Gram matrix stays, and
    /// each factor that was computed from scratch at its beta.
    pub(crate) fn set_data(
        &mut self,
        reference: &[f64],
        gradient: &[f64],
        deviances: &[f64],
        gram: Option<&Matrix>,
    ) -> Result<()> {
        self.set_reference(reference, gradient, deviances);
        let Some(gram) = gram else {
            return self.renew_factors();
        };
        let m = self.len();
        self.gram
            .view_mut((0, 0), (m, m))
            .copy_from(&gram.view((0, 0), (m, m)));
        self.recompute()
    }

    fn set_reference(&mut self, reference: &[f64], gradient: &[f64], deviances: &[f64]) {
        let m = self.len();
        for (c, output) in self.outputs.iter_mut().enumerate() {
            let own = c * m..(c + 1) * m;
            output.reference.copy_from_slice(&reference[own.clone()]);
            output.gradient.copy_from_slice(&gradient[own]);
            output.deviance = deviances[c];
        }
    }

    /// Computes the means, and factors from scratch unless they are.
    fn renew_factors(&mut self) -> Result<()> {
        let is_new = |level: &Level| level.from_scratch_at == Some(level.noise.beta);
        if self.n_updates > 0 || !self.levels.iter().all(is_new) {
            return self.recompute();
        }
        self.solve_for_means();
        Ok(())
    }

    /// Factors, covariances and means from scratch.
    pub(crate) fn recompute(&mut self) -> Result<()> {
        let m = self.len();
        for l in 0..self.levels.len() {
            let (alpha, gram, level) = (&self.alpha, &self.gram, &mut self.levels[l]);
            let beta = level.noise.beta;
            level.from_scratch_at = None;
            level.chol.refactor(m, |i, j| {
                beta * gram[(i, j)] + if i == j { alpha[i] } else { 0.0 }
            })?;
            level.chol.inverse_into(&mut level.sigma)?;
            level.from_scratch_at = Some(beta);
        }
        self.n_updates = 0;
        self.solve_for_means();
        Ok(())
    }

    /// Moves the means from the references to the maximum of the quadratic models; returns by how much that raises twice the evidence.
    fn solve_for_means(&mut self) -> f64 {
        let mut raised = 0.0;
        for c in 0..self.outputs.len() {
            let l = self.level_of(c);
            let (level, output) = (&self.levels[l], &mut self.outputs[c]);
            let terms = self
                .alpha
                .iter()
                .zip(&output.gradient)
                .zip(&output.reference);
            for (offset, ((a, g), r)) in output.offset.iter_mut().zip(terms) {
                *offset = level.noise.beta * g - a * r;
            }
            let slope = output.offset.clone();
            level.chol.solve_in_place(&mut output.offset);
            raised += dot(&slope, &output.offset);
            let about = output.reference.iter().zip(&output.offset);
            for (mu, (r, offset)) in output.mu.iter_mut().zip(about) {
                *mu = r + offset;
            }
        }
        raised
    }

    /// Reserves capacity for `m` functions in total.
    fn reserve(&mut self, m: usize) {
        let (len, grows) = (self.len(), m > self.gram.nrows());
        let capacity = stride(m + m / 2);
        if grows {
            self.gram = leading(&self.gram, len, capacity);
        }
        for level in &mut self.levels {
            if grows {
                level.sigma = leading(&level.sigma, len, capacity);
            }
            level.chol.reserve(m);
        }
    }
}

/// Noise levels.
impl Model {
    /// The empty model of one output, with the checks of the rules against the units of the data.
    pub(crate) fn initial(stats: &mut dyn Statistics, rules: &Rules) -> Result<Self> {
        let facts = stats.facts();
        let (scale, is_linear) = (facts.target_scale, facts.is_linear);
        check_units(scale, &facts.norms, rules, is_linear)?;
        let (noise, n_noise) = if is_linear {
            (NoisePrecision::new(rules.noise, 1.0, scale), facts.n_obs)
        } else {
            (NoisePrecision::fixed(1.0), 0.0)
        };
        let [shape, rate] = rules.noise_prior;
        let prior = Gamma {
            shape,
            rate: rate / (scale * scale),
        };
        let deviance = stats.deviance(&[], &[])?;
        let empty = Self::empty(&[noise], prior, &[deviance], n_noise);
        empty.with_rules(stats, rules)
    }

    /// The empty model of several outputs.
    pub(crate) fn of_outputs(
        stats: &mut Observations<'_>,
        noise: &OutputNoise,
        rules: &Rules,
    ) -> Result<Self> {
        let scale = stats.facts().target_scale;
        check_scale(scale)?;
        let (given, variances) = match noise {
            // The unit of the targets is the root of their mean variance.
            OutputNoise::Shared(noise) => (std::slice::from_ref(noise), &[1.0][..]),
            OutputNoise::Own(levels) => {
                Error::check_len("noise_variance", stats.variances.len(), levels.len())?;
                (&levels[..], &stats.variances[..])
            }
        };
        let mut levels = Vec::with_capacity(given.len());
        for (&noise, &variance) in given.iter().zip(variances) {
            check_noise(noise)?;
            check_noise_scale(scale, noise)?;
            levels.push(NoisePrecision::new(noise, variance, scale));
        }
        let (deviances, n) = (stats.gradient(&[], &[], &mut [])?, stats.facts().n_obs);
        Self::empty(&levels, Gamma::FLAT, &deviances, n).with_rules(stats, rules)
    }

    /// This empty model with the numbers that rules and data determine.
    ///
    /// The variance of the targets, which the range of the noise depends on, is that of what the functions with a flat prior leave:
    /// otherwise the model would depend on the size of a trend.
    fn with_rules(mut self, stats: &mut dyn Statistics, rules: &Rules) -> Result<Self> {
        self.complexity = rules.complexity.weight(stats.facts(), self.outputs.len());
        let functions = rules.unpenalized.clone();
        let Some(flat) = Flat::of(stats, &functions)? else {
            return Ok(self);
        };
        self.ln_volume = flat.chol.ln_det();
        for l in 0..self.levels.len() {
            let rest = |c: usize| self.outputs[c].deviance - flat.explained(c);
            let rest = self.outputs_of(l).map(rest).sum::<f64>();
            let variance = rest / self.n_targets(l).max(f64::MIN_POSITIVE);
            self.levels[l].noise = self.levels[l].noise.of_rest(variance);
        }
        Ok(self)
    }

    /// The levels whose precision is to be moved: estimated, and not held at the noise floor by a rising evidence.
    pub(crate) fn free_levels(&self, effort: Effort) -> Vec<usize> {
        let is_held = |l: usize| self.levels[l].noise.at_floor() && self.noise_gradient(l) >= 0.0;
        let levels = 0..self.levels.len();
        levels
            .filter(|&l| effort.moves_noise && self.levels[l].noise.is_estimated() && !is_held(l))
            .collect()
    }

    /// dL / d ln beta of level `l`.
    pub(crate) fn noise_gradient(&self, l: usize) -> f64 {
        let beta = self.levels[l].noise.beta;
        let degrees = self.n_targets(l) - self.determined(l) - self.complexity_degrees(l);
        0.5 * (degrees - beta * self.deviance_at_mean(l)) + self.noise_prior.slope(beta)
    }

    /// 2 c d tr S / d ln beta of level `l`: 2 c n [tr A Sigma - tr A Sigma A Sigma].
    fn complexity_degrees(&self, l: usize) -> f64 {
        if self.complexity == 0.0 {
            return 0.0;
        }
        let n = self.outputs_of(l).len() as f64;
        let of = |k: usize| self.alpha[k] * self.sampling_variance(k, l);
        2.0 * self.complexity * n * (0..self.len()).map(of).sum::<f64>()
    }

    /// ln of the factor by which re-estimation multiplies the precision of level `l`, within its range:
    /// beta = (N - sum gamma + 2 c) / (||t - Phi mu||^2 + 2 d), Tipping (2001), appendix A.
    pub(crate) fn noise_change(&self, l: usize) -> f64 {
        let (noise, prior) = (self.levels[l].noise, self.noise_prior);
        let fitted = self.determined(l) + self.complexity_degrees(l);
        let degrees = self.n_targets(l) - fitted + 2.0 * prior.shape;
        let residual = self.deviance_at_mean(l).max(0.0) + 2.0 * prior.rate;
        (noise.ratio(degrees.max(f64::MIN_POSITIVE), residual) / noise.beta).ln()
    }
}

/// Several functions F that have a flat prior, as columns of unit length: the factor of F^T F, and F^T t of each output.
struct Flat {
    chol: Cholesky,
    products: Vec<f64>,
}

impl Flat {
    /// `None` for fewer than two functions, where all is known: the unit of the targets is their deviation from a constant.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of them is zero or a combination of the others: the data would not determine its weight.
    fn of(stats: &mut dyn Statistics, functions: &[usize]) -> Result<Option<Self>> {
        let dependent = || {
            Error::Invalid {
            what: "unpenalized must name columns whose weights the rows determine without a prior: leave out columns of zeros, constant \
                   ones if there is an intercept, and sums of multiples of the others"
                .into(),
        }
        };
        let norms = &stats.facts().norms;
        let is_zero = |&j: &usize| norms.get(j).is_none_or(|&norm| norm <= 0.0);
        if functions.iter().any(is_zero) {
            return Err(dependent());
        }
        let n = functions.len();
        if n < 2 {
            return Ok(None);
        }
        // At weights of 0 all working weights are the same multiple of the sample weights, which cancels.
        let (gram, mut products) = stats.among(&[], &[], functions)?;
        let (gram, mut chol) = (mirrored(gram), Cholesky::with_capacity(n));
        let length = |k: usize| gram[(k, k)].sqrt();
        let factored = chol.refactor(n, |i, j| gram[(i, j)] / (length(i) * length(j)));
        let is_lost = |k: usize| chol.get(k, k).powi(2) <= Tuning::MIN_ORTHOGONAL_PART;
        if factored.is_err() || (0..n).any(is_lost) {
            return Err(dependent());
        }
        let each = products.iter_mut().enumerate();
        each.for_each(|(k, product)| *product /= length(k % n));
        Ok(Some(Self { chol, products }))
    }

    /// The square of the projection of output `c` on these functions.
    fn explained(&self, c: usize) -> f64 {
        let n = self.chol.len();
        let mut part = self.products[c * n..][..n].to_vec();
        self.chol.solve_lower_in_place(&mut part);
        dot(&part, &part)
    }
}

#[inline]
fn sum_of_squares(outputs: Range<usize>, value: impl Fn(usize) -> f64) -> f64 {
    outputs.map(|c| value(c).powi(2)).sum()
}

/// Removes row and column `k` of the leading m x m block.
pub(crate) fn close_gap(matrix: &mut Matrix, k: usize, m: usize) {
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
    use crate::DenseDesign;
    use crate::fit::newton::Local;
    use crate::fit::working_set::WorkingSet;
    use proptest::prelude::*;

    const ROWS: usize = 12;
    const COLUMNS: usize = 8;
    const OUTPUTS: usize = 3;
    /// One output; several with the same noise; several with their own.
    const NOISE: [&[f64]; 3] = [&[10.0], &[5.0], &[2.0, 10.0, 50.0]];

    /// A working set of all columns and outputs, and an empty model.
    fn data_for(values: &[f64], noise: usize, complexity: f64) -> (WorkingSet, Model) {
        let n_outputs = if noise == 0 { 1 } else { OUTPUTS };
        let (columns, targets) = values.split_at(ROWS * COLUMNS);
        let targets = targets[..ROWS * n_outputs].to_vec();
        let design = DenseDesign::new(columns, ROWS, COLUMNS).unwrap();
        let mut rows = Observations::unscaled_outputs(design, targets, n_outputs, None).unwrap();
        let squares = rows.gradient(&[], &[], &mut []).unwrap();
        let betas = NOISE[noise].iter().map(|&b| NoisePrecision::fixed(b));
        let betas: Vec<_> = betas.collect();
        let mut model = Model::empty(&betas, Gamma::FLAT, &squares, ROWS as f64);
        model.complexity = complexity;
        let all: Vec<usize> = (0..COLUMNS).collect();
        let set = WorkingSet::about(&mut rows, &mut model, &Priors::default(), &all).unwrap();
        (set, model)
    }

    /// Adds a function; returns the gain that equation (18) predicts.
    fn add(set: &WorkingSet, model: &mut Model, index: usize, alpha: f64) -> f64 {
        let candidate = set.candidate(index, model);
        let projection = model.project(&candidate);
        model.add(&candidate, &projection, alpha).unwrap();
        -projection.factors.gain_of_deleting(alpha)
    }

    fn assert_same(a: &Model, b: &Model) {
        let m = a.len();
        for (a, b) in a.levels.iter().zip(&b.levels) {
            let scale = (0..m).map(|k| b.sigma[(k, k)]).fold(0.0, f64::max);
            for i in 0..m {
                for j in 0..m {
                    assert!((a.sigma[(i, j)] - b.sigma[(i, j)]).abs() <= 1e-8 * scale);
                }
            }
        }
        let (mu, expected) = (a.means(), b.means());
        let size = 1.0 + expected.iter().fold(0.0_f64, |most, m| most.max(m.abs()));
        assert!(
            mu.iter()
                .zip(&expected)
                .all(|(x, y)| (x - y).abs() <= 1e-7 * size)
        );
        let evidence = b.log_posterior();
        assert!((a.log_posterior() - evidence).abs() <= 1e-8 * (1.0 + evidence.abs()));
    }

    proptest! {
        #[test]
        fn updates_in_place_agree_with_recomputation(
            values in prop::collection::vec(-1.0..1.0_f64, ROWS * (COLUMNS + OUTPUTS)),
            noise in 0..NOISE.len(),
            complexity in prop_oneof![Just(0.0), 0.1..3.0_f64],
            actions in prop::collection::vec((0..4_u8, 0..COLUMNS, -3.0..4.0_f64), 1..40),
        ) {
            let (set, mut model) = data_for(&values, noise, complexity);
            for (action, j, ln_alpha) in actions {
                let alpha = ln_alpha.exp();
                let before = model.log_posterior();
                let place = model.active.iter().position(|&a| a == j);
                let gain = match place {
                    None => add(&set, &mut model, j, alpha),
                    Some(k) if action == 0 => {
                        let gain = model.factors(k).gain_of_deleting(model.alpha[k]);
                        model.delete(k);
                        gain
                    }
                    Some(_) if action == 1 => {
                        model.move_reference(&mut &set).unwrap();
                        model.solve_for_means();
                        0.0
                    }
                    Some(k) => {
                        let gain = model.factors(k).gain_of_moving(model.alpha[k], alpha);
                        model.reestimate(k, alpha).unwrap();
                        gain
                    }
                };
                let slack = 1e-8 * (1.0 + before.abs());
                prop_assert!((model.log_posterior() - before - gain).abs() < slack);
                let mut recomputed = model.clone();
                recomputed.recompute().unwrap();
                assert_same(&model, &recomputed);
            }
        }

        #[test]
        fn newton_steps_have_the_derivatives_of_the_evidence(
            values in prop::collection::vec(-1.0..1.0_f64, ROWS * (COLUMNS + OUTPUTS)),
            noise in 0..NOISE.len(),
            complexity in prop_oneof![Just(0.0), 0.1..3.0_f64],
        ) {
            const H: f64 = 1e-4;
            let (set, mut model) = data_for(&values, noise, complexity);
            for j in 0..4 {
                add(&set, &mut model, j, 1.0 + j as f64);
            }
            let free: Vec<usize> = (0..model.levels.len()).collect();
            let Local { gradient, hessian } = Local::at(&model, &free);
            let at = |moves: &[(usize, f64)]| {
                let mut moved = model.clone();
                let (mut alpha, mut betas) = (model.alpha.clone(), model.betas());
                for &(i, by) in moves {
                    if i < 4 {
                        alpha[i] *= by.exp();
                    } else {
                        betas[i - 4] *= by.exp();
                    }
                }
                moved.set_hyperparameters(&alpha, &betas).unwrap();
                moved.log_posterior()
            };
            for i in 0..gradient.len() {
                let slope = (at(&[(i, H)]) - at(&[(i, -H)])) / (2.0 * H);
                prop_assert!((slope - gradient[i]).abs() < 1e-5 * (1.0 + slope.abs()));
                for j in 0..gradient.len() {
                    let up = at(&[(i, H), (j, H)]) - at(&[(i, H), (j, -H)]);
                    let down = at(&[(i, -H), (j, H)]) - at(&[(i, -H), (j, -H)]);
                    let curvature = (up - down) / (4.0 * H * H);
                    prop_assert!((curvature - hessian[(i, j)]).abs() < 1e-4 * (1.0 + curvature.abs()));
                }
            }
        }
    }
}
