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
use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::{Factors, Term};
use crate::fit::laplace::{self, mode::find_mode};
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::sequential;
use crate::fit::sequential::Start;
use crate::fit::settings::{Rules, Scheme};
use crate::fit::tuning::Tuning;

/// Runs from the full basis to convergence. `state`: an empty model.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let everything: Vec<usize> = (0..stats.facts().n_basis())
        .filter(|&i| stats.facts().norms[i] > 0.0)
        .collect();
    let alpha = vec![Tuning::INITIAL_ALPHA; everything.len()];
    fill(stats, state, &everything, &alpha, &priors)?;
    recorder.begin(state);
    let gaussian = stats.facts().is_linear;
    loop {
        let change = update(stats, state, rules.scheme)?;
        recorder.step(Action::Joint, None, state)?;
        let pruned = prune(state, change, recorder)?;
        relinearise(stats, state)?;
        if change <= Tuning::LOOSE_TOL && !pruned {
            break;
        }
    }
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors);
    dictionary.refresh(stats, state)?;
    if gaussian {
        let start = Start::default();
        sequential::complete(stats, state, &mut dictionary, start, rules, recorder)
    } else {
        let mut fit = laplace::Fit {
            stats,
            state,
            rules,
            recorder,
        };
        fit.complete(&mut dictionary, 0)
    }
}

/// Adds functions with these precisions to an empty model.
pub(crate) fn fill(
    stats: &mut dyn Statistics,
    state: &mut State,
    functions: &[usize],
    alpha: &[f64],
    priors: &Priors,
) -> Result<()> {
    state.fill(
        functions,
        Tuning::INITIAL_ALPHA,
        priors,
        stats.facts().cancel.as_ref(),
    );
    state.alpha.copy_from_slice(alpha);
    let mu = vec![0.0; functions.len()];
    let mut gram = nalgebra::DMatrix::zeros(mu.len(), mu.len());
    let mut gradient = mu.clone();
    let deviance = stats.local(functions, &mu, &mut gram, &mut gradient)?;
    state.set_data(&mu, &gradient, &[deviance], Some(&gram))?;
    relinearise(stats, state)
}

/// Moves the quadratic model of the data to the present mean or mode.
fn relinearise(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    if stats.facts().is_linear {
        state.recentre(stats)?;
        Ok(())
    } else {
        find_mode(stats, state)
    }
}

/// One update of all alphas and the noise. Returns the largest change in their logarithms; 0, with the state unchanged, if the
/// posterior precision at the new values is not positive definite.
fn update(stats: &mut dyn Statistics, state: &mut State, scheme: Scheme) -> Result<f64> {
    let before = (state.alpha.clone(), state.betas());
    let mut change: f64 = 0.0;
    let mut alpha = Vec::with_capacity(state.len());
    for k in 0..state.len() {
        let next = new_alpha(state, k, scheme)
            .clamp(Tuning::ALPHA_FLOOR, Tuning::INFINITE_RATIO * before.0[k]);
        change = change.max((next / before.0[k]).ln().abs());
        alpha.push(next);
    }
    let beta = state.levels[0].noise.moved(|| new_beta(state, scheme));
    change = change.max((beta / state.beta()).ln().abs());
    if state.set_hyperparameters(&alpha, &[beta]).is_err() {
        state.set_hyperparameters(&before.0, &before.1)?;
        return Ok(0.0);
    }
    relinearise(stats, state)?;
    Ok(change)
}

pub(crate) fn new_alpha(state: &State, k: usize, scheme: Scheme) -> f64 {
    let prior = state.priors[k];
    let square: f64 = state.outputs.iter().map(|o| o.mu[k] * o.mu[k]).sum();
    let determined = match scheme {
        Scheme::Em => {
            let variance = |c: usize| state.levels[state.level_of(c)].sigma[(k, k)];
            let variances: f64 = (0..state.outputs.len()).map(variance).sum();
            let n = state.outputs.len() as f64;
            return (n + 2.0 * prior.shape) / (square + variances + 2.0 * prior.rate);
        }
        // gamma = s / (alpha + s), free of the cancellation in 1 - alpha Sigma_kk.
        Scheme::MacKay | Scheme::Sequential | Scheme::Variational => {
            let gamma = |term: Term| term.n * (term.s / (state.alpha[k] + term.s));
            state.factors(k).terms().map(gamma).sum::<f64>()
        }
    };
    let square = square + 2.0 * prior.rate;
    let next = (determined + 2.0 * prior.shape) / square.max(f64::MIN_POSITIVE);
    if prior.is_flat() {
        next
    } else {
        // Where mu and a are close to zero the update is alpha -> c / alpha, which would oscillate.
        (next * state.alpha[k]).sqrt()
    }
}

pub(crate) fn new_beta(state: &State, scheme: Scheme) -> f64 {
    let gamma = state.determined(0);
    let prior = state.noise_prior;
    let residual = state.deviance_at_mean(0).max(0.0) + 2.0 * prior.rate;
    let (rows, residual) = match scheme {
        Scheme::Em => (state.n_noise(), residual + gamma / state.beta()),
        Scheme::MacKay | Scheme::Sequential | Scheme::Variational => {
            (state.n_noise() - gamma, residual)
        }
    };
    (rows + 2.0 * prior.shape).max(f64::MIN_POSITIVE) / residual.max(f64::MIN_POSITIVE)
}

/// Deletes functions whose alpha grows without bound if the evidence gains, and returns whether there were any. `change` is the result of
/// the last [`update`].
///
/// With an informative prior an alpha may be on its way to a finite value: prune only once the updates have nearly converged.
pub(crate) fn prune(
    state: &mut State,
    change: f64,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<bool, Stop> {
    delete_where(state, recorder, |factors, alpha, gain| {
        let is_stable = !factors.prior.is_flat() && change <= Tuning::COARSE_TOL;
        let is_large = alpha >= Tuning::PRUNE_RATIO * factors.first.s;
        (is_large || is_stable) && factors.optimal_alpha().is_none() && gain >= 0.0
    })
}

/// Deletes the functions for which `is_deleted(factors, alpha, gain)`, and returns whether there were any.
pub(crate) fn delete_where(
    state: &mut State,
    recorder: &mut Recorder<'_>,
    is_deleted: impl Fn(&Factors, f64, f64) -> bool,
) -> std::result::Result<bool, Stop> {
    let size = state.len();
    for k in (0..size).rev() {
        let (factors, alpha) = (state.factors(k), state.alpha[k]);
        let gain = factors.gain_of_deleting(alpha);
        if is_deleted(&factors, alpha, gain) {
            let j = state.active[k];
            state.delete(k);
            recorder.step(Action::Delete(j), Some(gain), state)?;
        }
    }
    if state.len() < size {
        // Rank-one updates accumulate round-off.
        state.recompute()?;
    }
    Ok(state.len() < size)
}
