//! The updates of Tipping (2001) from the full basis, with pruning: section 2.3 and appendix A.
//!
//! Every function starts in the model. With gamma_j = 1 - alpha_j Sigma_jj and Gamma priors (a, b) and (c, d),
//!
//! * MacKay: alpha = (gamma + 2 a) / (mu^2 + 2 b), beta = (N - sum gamma + 2 c) / (||t - Phi mu||^2 + 2 d);
//! * EM: alpha = (1 + 2 a) / (mu^2 + Sigma_jj + 2 b), 1 / beta = (||t - Phi mu||^2 + sum gamma / beta + 2 d) / (N + 2 c),
//!   which never lower the evidence.
//!
//! The alpha of an irrelevant function grows without bound, under EM in an infinite number of steps of at most s. The function is
//! deleted once its alpha is large enough and the evidence gains by it. The updates stop close to a maximum; the sequential
//! scheme continues from there, and can add functions again that were pruned too early.

use crate::Result;
use crate::fit::context::Fit;
use crate::fit::evidence::{Factors, Term};
use crate::fit::model::Model;
use crate::fit::record::{Action, Stop};
use crate::fit::sequential::Start;
use crate::fit::settings::Scheme;
use crate::fit::tuning::Tuning;
use crate::model::Status;

impl Fit<'_, '_> {
    /// Runs MacKay's or EM updates from the full basis, and continues to convergence.
    pub(crate) fn full_basis(&mut self) -> Result<Status, Stop> {
        let (everything, alpha) = self.full_start();
        self.fill(&everything, &alpha)?;
        self.recorder.begin(self.model);
        loop {
            let change = self.update_all()?;
            self.record(Action::Joint, None)?;
            let pruned = self.prune(change)?;
            self.settle()?;
            if change <= Tuning::LOOSE_TOL && !pruned {
                break;
            }
        }
        self.refresh()?;
        if self.stats.facts().is_linear {
            self.sequential(Start::default())
        } else {
            self.complete_at_modes(0)
        }
    }

    /// One update of all alphas and the noise. Returns the largest change in their logarithms; 0, with the model unchanged, if the
    /// posterior precision at the new values is not positive definite.
    fn update_all(&mut self) -> Result<f64> {
        let (model, scheme) = (&mut *self.model, self.rules.scheme);
        let before = Hyperparameters::of(model);
        let next = Hyperparameters::updated(model, scheme, f64::INFINITY);
        if model
            .set_hyperparameters(&next.alpha, &[next.beta])
            .is_err()
        {
            model.set_hyperparameters(&before.alpha, &[before.beta])?;
            return Ok(0.0);
        }
        self.settle()?;
        Ok(before.distance(&next))
    }

    /// Deletes functions whose alpha grows without bound if the evidence gains, and returns whether there were any. `change` is the
    /// largest change of a logarithm in the last update.
    ///
    /// With an informative prior an alpha may be on its way to a finite value: prune only once the updates have nearly converged.
    pub(crate) fn prune(&mut self, change: f64) -> Result<bool, Stop> {
        self.delete_where(|factors, alpha, gain| {
            let is_stable = !factors.prior.is_flat() && change <= Tuning::COARSE_TOL;
            let is_large = alpha >= Tuning::PRUNE_RATIO * factors.first.s;
            (is_large || is_stable) && factors.optimal_alpha().is_none() && gain >= 0.0
        })
    }

    /// Deletes the functions for which `is_deleted(factors, alpha, gain)`, and returns whether there were any.
    pub(crate) fn delete_where(
        &mut self,
        is_deleted: impl Fn(&Factors, f64, f64) -> bool,
    ) -> Result<bool, Stop> {
        let size = self.model.len();
        for k in self.model.penalized().rev().collect::<Vec<_>>() {
            let (factors, alpha) = (self.model.factors(k), self.model.alpha[k]);
            let gain = factors.gain_of_deleting(alpha);
            if is_deleted(&factors, alpha, gain) {
                let j = self.model.active[k];
                self.model.delete(k);
                self.record(Action::Delete(j), Some(gain))?;
            }
        }
        if self.model.len() < size {
            // Rank-one updates accumulate round-off.
            self.model.recompute()?;
        }
        Ok(self.model.len() < size)
    }
}

/// All alphas and the noise precision.
pub(crate) struct Hyperparameters {
    pub(crate) alpha: Vec<f64>,
    pub(crate) beta: f64,
}

impl Hyperparameters {
    pub(crate) fn of(model: &Model) -> Self {
        Self {
            alpha: model.alpha.clone(),
            beta: model.beta(),
        }
    }

    /// The hyperparameters after one update of a scheme, where beta changes by at most a factor.
    pub(crate) fn updated(model: &Model, scheme: Scheme, max_growth: f64) -> Self {
        let next = |k: usize| limited(model.alpha[k], new_alpha(model, k, scheme));
        let alpha = (0..model.len()).map(next);
        let beta = model.beta();
        Self {
            alpha: alpha.collect(),
            beta: model.levels[0]
                .noise
                .moved(|| new_beta(model, scheme).clamp(beta / max_growth, max_growth * beta)),
        }
    }

    /// The largest change of a logarithm.
    pub(crate) fn distance(&self, to: &Self) -> f64 {
        let pairs = self.alpha.iter().zip(&to.alpha).filter(|(a, _)| **a > 0.0);
        let changes = pairs.map(|(before, after)| (after / before).ln().abs());
        changes.fold((to.beta / self.beta).ln().abs(), f64::max)
    }
}

impl Model {
    /// The geometric mean of MacKay's update with alpha, for active function `k`.
    pub(crate) fn concave_update(&self, k: usize) -> f64 {
        let (old, next) = (self.alpha[k], new_alpha(self, k, Scheme::MacKay));
        // With a prior `new_alpha` returns that mean already.
        let next = if self.priors[k].is_flat() {
            (next * old).sqrt()
        } else {
            next
        };
        limited(old, next)
    }
}

/// `next`, within the range of one update of `old`; a flat prior stays flat.
fn limited(old: f64, next: f64) -> f64 {
    if old == 0.0 {
        return 0.0;
    }
    next.clamp(Tuning::ALPHA_FLOOR, Tuning::INFINITE_RATIO * old)
}

fn new_alpha(model: &Model, k: usize, scheme: Scheme) -> f64 {
    let prior = model.priors[k];
    let square: f64 = model.outputs.iter().map(|o| o.mu[k] * o.mu[k]).sum();
    let determined = match scheme {
        Scheme::Em => {
            let variance = |c: usize| model.levels[model.level_of(c)].sigma[(k, k)];
            let variances: f64 = (0..model.outputs.len()).map(variance).sum();
            let n = model.outputs.len() as f64;
            return (n + 2.0 * prior.shape) / (square + variances + 2.0 * prior.rate);
        }
        // gamma = s / (alpha + s), free of the cancellation in 1 - alpha Sigma_kk.
        Scheme::MacKay | Scheme::Sequential | Scheme::Variational => {
            let gamma = |term: Term| term.n * (term.s / (model.alpha[k] + term.s));
            model.factors(k).terms().map(gamma).sum::<f64>()
        }
    };
    let square = square + 2.0 * prior.rate;
    let next = (determined + 2.0 * prior.shape) / square.max(f64::MIN_POSITIVE);
    if prior.is_flat() {
        next
    } else {
        // Where mu and a are close to zero the update is alpha -> c / alpha, which would oscillate.
        (next * model.alpha[k]).sqrt()
    }
}

fn new_beta(model: &Model, scheme: Scheme) -> f64 {
    let gamma = model.determined(0);
    let prior = model.noise_prior;
    let residual = model.deviance_at_mean(0).max(0.0) + 2.0 * prior.rate;
    let (rows, residual) = match scheme {
        Scheme::Em => (model.n_noise(), residual + gamma / model.beta()),
        Scheme::MacKay | Scheme::Sequential | Scheme::Variational => {
            (model.n_noise() - gamma, residual)
        }
    };
    (rows + 2.0 * prior.shape).max(f64::MIN_POSITIVE) / residual.max(f64::MIN_POSITIVE)
}
