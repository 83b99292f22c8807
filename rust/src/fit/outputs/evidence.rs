//! Log evidence, residuals and degrees of freedom of a model with several outputs.

use crate::fit::outputs::model::{Level, OutputState};
use crate::fit::record::Recorded;
use crate::fit::tuning::Tuning;
use crate::linalg::vector::{bilinear, dot};

impl OutputState {
    /// Number of targets of level `l`: rows (sum of sample weights) times outputs.
    pub(crate) fn n_targets(&self, l: usize) -> f64 {
        self.n_obs * self.outputs_of(l).len() as f64
    }

    /// Whether some alpha is at its lower bound.
    pub(crate) fn at_alpha_floor(&self) -> bool {
        self.alpha.iter().any(|&alpha| alpha <= Tuning::ALPHA_FLOOR)
    }

    /// sum_k gamma_k of one output of level `l`: the number of weights that the data determine.
    pub(crate) fn determined(&self, l: usize) -> f64 {
        let sigma = &self.levels[l].sigma;
        let gamma = |(k, alpha): (usize, &f64)| 1.0 - alpha * sigma[(k, k)];
        self.alpha.iter().enumerate().map(gamma).sum()
    }

    /// Squared residual at the posterior mean of output `c`.
    pub(crate) fn deviance_at_mean(&self, c: usize) -> f64 {
        let output = &self.outputs[c];
        let d = &output.offset;
        output.deviance - 2.0 * dot(d, &output.gradient) + bilinear(&self.gram, d, d)
    }

    /// Sum of the squared residuals at the posterior mean over the outputs of level `l`.
    pub(crate) fn level_deviance(&self, l: usize) -> f64 {
        self.outputs_of(l).map(|c| self.deviance_at_mean(c)).sum()
    }

    /// dL / d ln beta of level `l`.
    pub(crate) fn noise_gradient(&self, l: usize) -> f64 {
        let determined = self.outputs_of(l).len() as f64 * self.determined(l);
        0.5 * (self.n_targets(l) - self.levels[l].beta * self.level_deviance(l) - determined)
    }

    /// ln p(t | alpha, beta) of output `c`: equation (7), through the m x m factor.
    pub(crate) fn output_evidence(&self, c: usize) -> f64 {
        let level = &self.levels[self.level_of(c)];
        let noise = self.n_obs * (level.beta / std::f64::consts::TAU).ln();
        let misfit = level.beta * self.deviance_at_mean(c);
        0.5 * (noise - misfit) + self.occam_factor(c)
    }

    /// The log Occam factor of output `c`, `1/2 (ln|A| - ln|Sigma^-1| - mu^T A mu)`: the log evidence minus the log-likelihood at
    /// the posterior mean.
    fn occam_factor(&self, c: usize) -> f64 {
        let (output, level) = (&self.outputs[c], &self.levels[self.level_of(c)]);
        let ln_alpha: f64 = self.alpha.iter().map(|a| a.ln()).sum();
        let weights = self.alpha.iter().zip(&output.mu);
        let penalty: f64 = weights.map(|(a, m)| a * m * m).sum();
        0.5 * (ln_alpha - level.chol.ln_det() - penalty)
    }

    /// The log evidence of all outputs together.
    pub(crate) fn log_evidence(&self) -> f64 {
        (0..self.outputs.len())
            .map(|c| self.output_evidence(c))
            .sum()
    }

    /// The log Occam factor of all outputs together.
    pub(crate) fn log_occam_factor(&self) -> f64 {
        (0..self.outputs.len()).map(|c| self.occam_factor(c)).sum()
    }

    /// Number of targets of all outputs.
    pub(crate) fn n_noise(&self) -> f64 {
        self.n_obs * self.outputs.len() as f64
    }
}

impl Recorded for OutputState {
    fn objective(&self) -> f64 {
        self.log_evidence()
    }

    fn powers_of_target(&self) -> f64 {
        self.n_noise()
    }

    fn n_active(&self) -> usize {
        self.len()
    }

    /// The inverse of the mean noise variance.
    fn noise_precision(&self) -> f64 {
        let variances: f64 = self.levels.iter().map(|level| 1.0 / level.beta).sum();
        self.levels.len() as f64 / variances
    }

    fn least_pivot(&self) -> f64 {
        let pivot = |level: &Level, k: usize| {
            level.chol.get(k, k).powi(2) / (self.alpha[k] + level.beta * self.gram[(k, k)])
        };
        let of_level =
            |level: &Level| (0..self.len()).fold(1.0, |least, k| pivot(level, k).min(least));
        self.levels.iter().map(of_level).fold(1.0, f64::min)
    }
}
