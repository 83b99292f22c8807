//! Newton's method on the fixed-point equations of the Laplace evidence.
//!
//! At the mode belonging to alpha, with B as it is there, a fixed point has alpha_j = gamma_j / mu_j^2 for every
//! active function, which is equation (20) in the form of MacKay. In x = ln alpha the residual is
//! `R_j = ln gamma_j - 2 ln |mu_j| - x_j`, and it moves with x through the mode and through B:
//!
//! * d mu / d x_k = -alpha_k mu_k Sigma_k, from differentiating the condition for the mode;
//! * d Sigma_jj / d x_k = -alpha_k Sigma_jk^2 + alpha_k mu_k D_jk, the second part because B moves with the mode;
//!   D is [`Statistics::variance_drift`].
//!
//! As alpha_j grows without bound R_j tends to ln(s / q^2), which vanishes only on the border of relevance: unlike the
//! gradient of the evidence, R has no false root at infinity.

use nalgebra::{DMatrix, DVector};

use super::action::ALPHA_FLOOR;
use super::inner::{self, Settled};
use super::mode::find_mode;
use super::record::{Action, Halt, Recorder};
use super::state::State;
use crate::Result;
use crate::stats::Statistics;

/// Newton steps before the search is given up.
const MOST_STEPS: usize = 60;
/// Longest move of the ln alpha of a strong function in one step.
const LONGEST: f64 = 2.0;

/// A function with alpha beyond this many times s is as good as gone: outside, it has less to gain than counts.
const DEPARTED: f64 = 2e3;

/// Moves the active set to the fixed point; functions that tend to infinity are removed on the way.
pub(super) fn polish(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MOST_STEPS {
        remove_departed(stats, state, recorder)?;
        if inner::residual(state, None) <= tol {
            return Ok(Settled::Converged);
        }
        let here = residual(state);
        let moved = match direction(stats, state, &here)? {
            Some(direction) => advance(stats, state, &direction, &here)?,
            None => false,
        };
        if !moved {
            return Ok(Settled::Stalled);
        }
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(Settled::Stalled)
}

/// Deletes functions whose alpha has passed every bound, and finds the mode without them.
fn remove_departed(stats: &mut dyn Statistics, state: &mut State, recorder: &mut Recorder<'_>) -> Result<(), Halt> {
    while let Some(k) = (0..state.len()).find(|&k| state.alpha[k] > DEPARTED * state.factors(k).s) {
        let (j, gain) = (state.active[k], state.factors(k).gain_of_deleting(state.alpha[k]));
        state.delete(k);
        recorder.step(Action::Delete(j), Some(gain), state)?;
        find_mode(stats, state)?;
    }
    Ok(())
}

/// R at the state's mode.
fn residual(state: &State) -> DVector<f64> {
    DVector::from_fn(state.len(), |j, _| {
        // gamma = s / (alpha + s), free of the cancellation in 1 - alpha Sigma_jj.
        let s = state.factors(j).s.max(f64::MIN_POSITIVE);
        (s / (state.alpha[j] + s)).ln() - 2.0 * state.mu[j].abs().max(f64::MIN_POSITIVE).ln() - state.alpha[j].ln()
    })
}

/// The Newton direction in ln alpha; `None` if the Jacobian is singular.
fn direction(stats: &mut dyn Statistics, state: &State, here: &DVector<f64>) -> Result<Option<DVector<f64>>> {
    let m = state.len();
    let drift = stats.variance_drift(&state.active, &state.sigma)?;
    let (alpha, mu, sigma) = (&state.alpha, &state.mu, &state.sigma);
    let jacobian = DMatrix::from_fn(m, m, |j, k| {
        let gamma = state.gamma(j).max(f64::MIN_POSITIVE);
        let d_variance = alpha[k] * (mu[k] * drift[(j, k)] - sigma[(j, k)] * sigma[(j, k)]);
        let own = if j == k { sigma[(j, j)] } else { 0.0 };
        let d_ln_gamma = -alpha[j] * (own + d_variance) / gamma;
        let d_ln_mu = -alpha[k] * mu[k] * sigma[(j, k)] / mu[j];
        d_ln_gamma - 2.0 * d_ln_mu - if j == k { 1.0 } else { 0.0 }
    });
    let direction = jacobian.lu().solve(&-here);
    Ok(direction.filter(|d| d.amax().is_finite()))
}

/// Where a Newton step of length `dx` takes ln alpha.
///
/// Strong functions move in ln alpha, no further than allowed. Weak ones move in the prior variance 1 / alpha, in which
/// everything is smooth through zero: `1/alpha - dx/alpha` is the same step to first order. One that would pass zero
/// stops short of it.
fn moved(alpha: f64, s: f64, dx: f64) -> f64 {
    const MOST_GROWTH: f64 = 10.0;
    if alpha < s {
        (alpha * dx.clamp(-LONGEST, LONGEST).exp()).max(ALPHA_FLOOR)
    } else {
        alpha / (1.0 - dx).max(1.0 / MOST_GROWTH)
    }
}

/// Follows the sign of R, each alpha with a step of its own that grows while the sign lasts and halves when it turns;
/// until Newton's method can take over, or for as long as that is worth trying.
///
/// Slow and hard to mislead: where a function is wanted at alpha = infinity but not at the alpha that this promises, R
/// changes its sign in between, and halving finds the place. (Rprop, Riedmiller & Braun 1993, with R for the gradient.)
pub(super) fn creep(stats: &mut dyn Statistics, state: &mut State, recorder: &mut Recorder<'_>) -> Result<(), Halt> {
    const ROUNDS: usize = 150;
    const NEAR: f64 = 0.03;
    const FIRST: f64 = 0.5;
    find_mode(stats, state)?;
    let mut functions = state.active.clone();
    let mut steps = vec![(FIRST, 0.0); functions.len()];
    for _ in 0..ROUNDS {
        remove_departed(stats, state, recorder)?;
        // Functions leave and never enter here, and the order of the others is kept.
        let mut stays = functions.iter().map(|j| state.active.contains(j));
        steps.retain(|_| stays.next().unwrap_or(false));
        functions.clone_from(&state.active);
        if inner::residual(state, None) <= NEAR {
            return Ok(());
        }
        let r = residual(state);
        for ((step, last), &r) in steps.iter_mut().zip(r.iter()) {
            *step = if *last * r < 0.0 { *step * 0.5 } else { (*step * 1.3).min(LONGEST) };
            *last = r;
        }
        let alpha: Vec<f64> =
            state.alpha.iter().zip(&steps).map(|(a, (step, r))| (a * step.copysign(*r).exp()).max(ALPHA_FLOOR)).collect();
        state.set_hyperparameters(&alpha, state.beta)?;
        find_mode(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(())
}

/// Goes along `direction` as far as brings R closer to zero; `false`, and the state as before, if nothing does.
fn advance(stats: &mut dyn Statistics, state: &mut State, direction: &DVector<f64>, here: &DVector<f64>) -> Result<bool> {
    let before = state.clone();
    let sparsity: Vec<f64> = (0..before.len()).map(|k| before.factors(k).s).collect();
    let mut length = 1.0;
    for _ in 0..12 {
        let alpha: Vec<f64> =
            (0..before.len()).map(|k| moved(before.alpha[k], sparsity[k], length * direction[k])).collect();
        if state.set_hyperparameters(&alpha, before.beta).is_ok() {
            find_mode(stats, state)?;
            if residual(state).norm() < (1.0 - 0.1 * length) * here.norm() {
                return Ok(true);
            }
        }
        state.clone_from(&before);
        length *= 0.5;
    }
    // The provider's weights belong to the last mode tried; bring them back.
    find_mode(stats, state)?;
    Ok(false)
}
