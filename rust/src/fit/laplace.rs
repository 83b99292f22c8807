//! Likelihoods other than the Gaussian, through the Laplace approximation: Tipping & Faul (2003), section 2.2.
//!
//! The likelihood is linearised at the posterior mode, the alphas are brought to the maximum of the resulting
//! Gaussian evidence, and so on until neither moves. What is certified at the end is this classic fixed point, which
//! treats the working weights B as constants in alpha; it is close to, and not exactly, a stationary point of the
//! Laplace evidence itself, and the evidence need not rise when the mode is found anew.

use nalgebra::DMatrix;

use super::Status;
use super::dictionary::Dictionary;
use super::inner::{self, Settled};
use super::record::{Action, Halt, Recorder};
use super::settings::{LOOSE_TOL, Rules};
use super::state::State;
use crate::Result;
use crate::linalg::Cholesky;
use crate::linalg::blas::dot;
use crate::stats::Statistics;

/// Rounds of mode and alphas before the active set counts as stalled.
const MOST_ROUNDS: usize = 200;
/// Rounds between two passes over the dictionary.
const LOOSE_ROUNDS: usize = 3;

/// Runs from the state given to convergence.
pub(super) fn maximise(
    stats: &mut dyn Statistics,
    state: &mut State,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Status, Halt> {
    let mut dictionary = Dictionary::new(stats.n_basis());
    let mut tol = LOOSE_TOL.max(rules.tol);
    loop {
        let rounds = if tol > rules.tol { LOOSE_ROUNDS } else { MOST_ROUNDS };
        let settled = settle(stats, state, tol, rounds, recorder)?;
        dictionary.refresh(stats, state)?;
        if dictionary.add_block(stats, state, recorder)? > 0 {
            continue;
        }
        if tol > rules.tol {
            tol = rules.tol;
            continue;
        }
        let stalled = settled == Settled::Stalled || dictionary.refuses(state);
        return Ok(if stalled { Status::Stalled } else { Status::Converged });
    }
}

/// Mode and alphas of the active set, in turn, until the alphas stay where they are. Ends at a mode.
fn settle(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    rounds: usize,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    let mut caution = Caution::default();
    for round in 0.. {
        find_mode(stats, state)?;
        recorder.step(Action::Mode, None, state)?;
        let distance = inner::residual(state, None);
        if distance <= tol {
            return Ok(Settled::Converged);
        }
        if round >= rounds {
            break;
        }
        let before = (state.active.clone(), state.alpha.clone());
        inner::converge(state, None, tol.min(0.1 * distance), recorder)?;
        caution.temper(distance, &before, state, recorder)?;
    }
    Ok(Settled::Stalled)
}

/// Shortens the moves of ln alpha while the rounds fail to close in.
struct Caution {
    least: f64,
    misses: u32,
    fraction: f64,
}

impl Default for Caution {
    fn default() -> Self {
        Self { least: f64::INFINITY, misses: 0, fraction: 1.0 }
    }
}

impl Caution {
    const PATIENCE: u32 = 6;

    fn temper(
        &mut self,
        distance: f64,
        before: &(Vec<usize>, Vec<f64>),
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Halt> {
        if distance < 0.9 * self.least {
            self.least = distance;
            self.misses = 0;
        } else {
            self.misses += 1;
        }
        if self.misses >= Self::PATIENCE {
            self.misses = 0;
            self.fraction *= 0.5;
        }
        if self.fraction < 1.0 && state.active == before.0 {
            let alpha: Vec<f64> = state.alpha.iter().zip(&before.1).map(|(new, old)| old * (new / old).powf(self.fraction)).collect();
            state.set_hyperparameters(&alpha, state.beta)?;
            recorder.step(Action::Joint, None, state)?;
        }
        Ok(())
    }
}

/// Moves the state's quadratic model to the mode of the posterior at its alphas: damped Newton on equation (10).
///
/// The log posterior is concave, so a shortened Newton step always rises; the prior bounds the mode, on separable
/// data too. Ends when a step promises less than rounding.
fn find_mode(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    const MOST_STEPS: usize = 200;
    let m = state.len();
    let active = state.active.clone();
    let mut mu = starting_point(stats, state)?;
    let mut gram = DMatrix::zeros(m, m);
    let mut gradient = vec![0.0; m];
    let mut chol = Cholesky::with_capacity(m.max(1));
    let mut deviance = stats.local(&active, &mu, &mut gram, &mut gradient)?;
    for _ in 0..MOST_STEPS {
        let slope: Vec<f64> = (0..m).map(|k| gradient[k] - state.alpha[k] * mu[k]).collect();
        chol.refactor(m, |i, j| gram[(i, j)] + if i == j { state.alpha[i] } else { 0.0 })?;
        let mut step = slope.clone();
        chol.solve_in_place(&mut step);
        let rise = dot(&slope, &step);
        let height = penalised(deviance, &state.alpha, &mu);
        // `rise` is twice what the quadratic model promises.
        if rise <= 1e-13 * (1.0 + height.abs()) {
            break;
        }
        let Some(next) = line_search(stats, &active, &state.alpha, &mu, &step, height, rise)? else { break };
        mu = next;
        deviance = stats.local(&active, &mu, &mut gram, &mut gradient)?;
    }
    state.set_data(&mu, &gradient, deviance, Some(&gram))
}

/// The mean of the quadratic model, unless the likelihood itself is better off where that model was made, or at zero:
/// a large step leaves the region where the model means anything.
fn starting_point(stats: &mut dyn Statistics, state: &State) -> Result<Vec<f64>> {
    let mut best = (f64::INFINITY, vec![0.0; state.len()]);
    for mu in [&state.mu[..], state.reference()] {
        let height = penalised(stats.deviance(&state.active, mu)?, &state.alpha, mu);
        // False for NaN.
        if height < best.0 {
            best = (height, mu.to_vec());
        }
    }
    Ok(best.1)
}

/// Minus twice the penalised log-likelihood, halved: what the mode minimises.
fn penalised(deviance: f64, alpha: &[f64], mu: &[f64]) -> f64 {
    0.5 * (deviance + alpha.iter().zip(mu).map(|(a, m)| a * m * m).sum::<f64>())
}

/// The longest of 1, 1/2, 1/4, ... times `step` that lowers the penalised deviance enough (Armijo).
fn line_search(
    stats: &mut dyn Statistics,
    active: &[usize],
    alpha: &[f64],
    mu: &[f64],
    step: &[f64],
    height: f64,
    rise: f64,
) -> Result<Option<Vec<f64>>> {
    let mut length = 1.0;
    for _ in 0..60 {
        let next: Vec<f64> = mu.iter().zip(step).map(|(m, s)| m + length * s).collect();
        let deviance = stats.deviance(active, &next)?;
        // False for NaN and infinity, which an overflowing exponential gives.
        if penalised(deviance, alpha, &next) <= height - 1e-4 * length * rise {
            return Ok(Some(next));
        }
        length *= 0.5;
    }
    Ok(None)
}
