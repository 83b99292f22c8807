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
use super::inner::Settled;
use super::mode::find_mode;
use super::record::{Action, Halt, Recorder};
use super::state::State;
use crate::Result;
use crate::stats::Statistics;

/// Newton steps before the search is given up.
const MOST_STEPS: usize = 60;
/// Longest move of the ln alpha of a strong function in one step.
const LONGEST: f64 = 2.0;

/// Alpha goes no further than this many times s: outside, such a function has less to gain than counts.
const DEPARTED: f64 = 2e3;

/// R of each function in the model, and which of them are on their way out: at the bound of alpha, and wanting more.
struct Residual {
    values: Vec<f64>,
    leaving: Vec<bool>,
}

impl Residual {
    /// Of a state at its mode.
    fn of(state: &State) -> Self {
        let mut this = Self { values: Vec::new(), leaving: Vec::new() };
        for k in 0..state.len() {
            // gamma = s / (alpha + s), free of the cancellation in 1 - alpha Sigma_kk.
            let s = state.factors(k).s.max(f64::MIN_POSITIVE);
            let (alpha, mu) = (state.alpha[k], state.mu[k].abs().max(f64::MIN_POSITIVE));
            let value = (s / (alpha + s)).ln() - 2.0 * mu.ln() - alpha.ln();
            this.values.push(value);
            this.leaving.push(value > 0.0 && alpha >= 0.999 * DEPARTED * s);
        }
        this
    }

    /// Positions of the functions that stay.
    fn staying(&self) -> Vec<usize> {
        (0..self.leaving.len()).filter(|&k| !self.leaving[k]).collect()
    }

    /// Length of R over the functions that stay.
    fn norm(&self) -> f64 {
        self.staying().iter().map(|&k| self.values[k].powi(2)).sum::<f64>().sqrt()
    }

    /// Largest |change in ln alpha| that re-estimation would make to a function that stays.
    fn distance(&self, state: &State) -> f64 {
        let changes = self.staying().into_iter().map(|k| match state.factors(k).optimal_alpha() {
            Some(alpha) => (alpha / state.alpha[k]).ln().abs(),
            None => f64::INFINITY,
        });
        changes.fold(0.0, f64::max)
    }
}

/// Moves the active set to the fixed point; functions that tend to infinity are removed once the others are there.
pub(super) fn polish(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MOST_STEPS {
        let here = Residual::of(state);
        if here.distance(state) <= tol {
            if !here.leaving.contains(&true) {
                return Ok(Settled::Converged);
            }
            remove(stats, state, &here.leaving, recorder)?;
            continue;
        }
        let jacobian = jacobian(stats, state)?;
        let moved = advance(stats, state, &jacobian, &here)?
            || leap_closer(stats, state, &jacobian, &here)?;
        if !moved {
            return Ok(Settled::Stalled);
        }
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(Settled::Stalled)
}

/// Deletes the functions marked, and finds the mode without them.
fn remove(
    stats: &mut dyn Statistics,
    state: &mut State,
    marked: &[bool],
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    for k in (0..marked.len()).rev().filter(|&k| marked[k]) {
        let (j, gain) = (state.active[k], state.factors(k).gain_of_deleting(state.alpha[k]));
        state.delete(k);
        recorder.step(Action::Delete(j), Some(gain), state)?;
    }
    find_mode(stats, state)?;
    Ok(())
}

/// dR / dx of all functions.
fn jacobian(stats: &mut dyn Statistics, state: &State) -> Result<DMatrix<f64>> {
    let drift = stats.variance_drift(&state.active, &state.sigma)?;
    let (alpha, mu, sigma) = (&state.alpha, &state.mu, &state.sigma);
    Ok(DMatrix::from_fn(state.len(), state.len(), |j, k| {
        let gamma = state.gamma(j).max(f64::MIN_POSITIVE);
        let d_variance = alpha[k] * (mu[k] * drift[(j, k)] - sigma[(j, k)] * sigma[(j, k)]);
        let own = if j == k { sigma[(j, j)] } else { 0.0 };
        let d_ln_gamma = -alpha[j] * (own + d_variance) / gamma;
        let d_ln_mu = -alpha[k] * mu[k] * sigma[(j, k)] / mu[j];
        d_ln_gamma - 2.0 * d_ln_mu - if j == k { 1.0 } else { 0.0 }
    }))
}

/// The step d with `R + J d = 0` where `free`, and d as given elsewhere; `None` if that is singular.
fn solve(jacobian: &DMatrix<f64>, r: &[f64], free: &[bool], given: f64) -> Option<Vec<f64>> {
    let rows: Vec<usize> = (0..r.len()).filter(|&k| free[k]).collect();
    let matrix = DMatrix::from_fn(rows.len(), rows.len(), |a, b| jacobian[(rows[a], rows[b])]);
    let right = DVector::from_fn(rows.len(), |a, _| {
        let fixed = (0..r.len()).filter(|&k| !free[k]).map(|k| jacobian[(rows[a], k)] * given);
        -r[rows[a]] - fixed.sum::<f64>()
    });
    if rows.is_empty() {
        return Some(vec![given; r.len()]);
    }
    let solution = matrix.lu().solve(&right).filter(|d| d.amax().is_finite())?;
    let mut step = vec![given; r.len()];
    rows.iter().zip(solution.iter()).for_each(|(&k, &d)| step[k] = d);
    Some(step)
}

/// Steps that solve the linearised problem with its constraints: prior variances 1 / alpha that would turn negative
/// become zero instead, and such functions must want no more. Found by guessing which those are, and correcting the
/// guess; there may be several, and which is found first depends on the guess.
///
/// Steps are relative, in the prior variance: `1/alpha (1 - d)`. Where one function is about to take the place of
/// another much like it, R says little until the other is gone, but is all but linear in the prior variances.
fn leaps<'a>(
    jacobian: &'a DMatrix<f64>,
    here: &'a Residual,
) -> impl Iterator<Item = Vec<f64>> + 'a {
    let staying: Vec<bool> = here.leaving.iter().map(|leaving| !leaving).collect();
    let guesses = std::iter::once(staying.clone()).chain((0..staying.len()).map(move |k| {
        let mut guess = staying.clone();
        guess[k] = false;
        guess
    }));
    guesses.filter_map(|guess| leap(jacobian, &here.values, guess))
}

/// The leap that one guess of the functions that stay leads to.
fn leap(jacobian: &DMatrix<f64>, r: &[f64], mut free: Vec<bool>) -> Option<Vec<f64>> {
    const CORRECTIONS: usize = 20;
    for _ in 0..CORRECTIONS {
        let step = solve(jacobian, r, &free, 1.0)?;
        let wanted: Vec<bool> = (0..r.len())
            .map(|k| {
                if free[k] {
                    step[k] < 1.0
                } else {
                    let moved: f64 = (0..r.len()).map(|i| jacobian[(k, i)] * step[i]).sum();
                    r[k] + moved < 0.0
                }
            })
            .collect();
        if wanted == free {
            return Some(step);
        }
        free = wanted;
    }
    None
}

/// Where a Newton step of length `dx` takes ln alpha.
///
/// Strong functions move in ln alpha, no further than allowed. Weak ones move in the prior variance 1 / alpha, in which
/// everything is smooth through zero: `1/alpha - dx/alpha` is the same step to first order. One that would pass zero
/// stops short of it.
fn moved(alpha: f64, s: f64, dx: f64) -> f64 {
    const MOST_GROWTH: f64 = 10.0;
    let next = if alpha < s {
        (alpha * dx.clamp(-LONGEST, LONGEST).exp()).max(ALPHA_FLOOR)
    } else {
        alpha / (1.0 - dx).max(1.0 / MOST_GROWTH)
    };
    next.min(DEPARTED * s.max(f64::MIN_POSITIVE))
}

/// Follows the sign of R, each alpha with a step of its own that grows while the sign lasts and halves when it turns;
/// until Newton's method can take over, or for as long as that is worth trying.
///
/// Slow and hard to mislead: where a function is wanted at alpha = infinity but not at the alpha that this promises, R
/// changes its sign in between, and halving finds the place. (Rprop, Riedmiller & Braun 1993, with R for the gradient.)
pub(super) fn creep(
    stats: &mut dyn Statistics,
    state: &mut State,
    near: f64,
    recorder: &mut Recorder<'_>,
) -> Result<(), Halt> {
    const ROUNDS: usize = 150;
    const FIRST: f64 = 0.5;
    find_mode(stats, state)?;
    let mut steps = vec![(FIRST, 0.0); state.len()];
    for _ in 0..ROUNDS {
        let here = Residual::of(state);
        if here.distance(state) <= near {
            return Ok(());
        }
        let mut alpha = state.alpha.clone();
        for (k, ((step, last), &r)) in steps.iter_mut().zip(&here.values).enumerate() {
            *step = if *last * r < 0.0 { *step * 0.5 } else { (*step * 1.3).min(LONGEST) };
            *last = r;
            let most = DEPARTED * state.factors(k).s.max(f64::MIN_POSITIVE);
            alpha[k] = (alpha[k] * step.copysign(r).exp()).min(most).max(ALPHA_FLOOR);
        }
        state.set_hyperparameters(&alpha, state.beta)?;
        find_mode(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(())
}

/// Takes the first leap that brings R closer to zero, at once or with a few of Newton's steps from where it ends.
fn leap_closer(
    stats: &mut dyn Statistics,
    state: &mut State,
    jacobian_here: &DMatrix<f64>,
    here: &Residual,
) -> Result<bool> {
    const MOST_LEAPS: usize = 32;
    const STEPS: usize = 5;
    let before = state.clone();
    for step in leaps(jacobian_here, here).take(MOST_LEAPS) {
        let alpha: Vec<f64> = (0..before.len())
            .map(|k| {
                let most = DEPARTED * before.factors(k).s.max(f64::MIN_POSITIVE);
                (before.alpha[k] / (1.0 - step[k]).max(0.0)).clamp(ALPHA_FLOOR, most)
            })
            .collect();
        if state.set_hyperparameters(&alpha, before.beta).is_ok() {
            find_mode(stats, state)?;
            for _ in 0..STEPS {
                let there = Residual::of(state);
                if there.norm() < 0.9 * here.norm() {
                    return Ok(true);
                }
                let jacobian = jacobian(stats, state)?;
                if !advance(stats, state, &jacobian, &there)? {
                    break;
                }
            }
        }
        state.clone_from(&before);
    }
    // The provider's weights belong to the last mode tried; bring them back.
    find_mode(stats, state)?;
    Ok(false)
}

/// Goes along Newton's direction as far as brings R closer to zero; `false`, and the state as before, if nothing does.
fn advance(
    stats: &mut dyn Statistics,
    state: &mut State,
    jacobian: &DMatrix<f64>,
    here: &Residual,
) -> Result<bool> {
    const HALVINGS: usize = 6;
    let staying: Vec<bool> = here.leaving.iter().map(|leaving| !leaving).collect();
    let Some(direction) = solve(jacobian, &here.values, &staying, 0.0) else { return Ok(false) };
    let before = state.clone();
    let sparsity: Vec<f64> = (0..before.len()).map(|k| before.factors(k).s).collect();
    let mut length = 1.0;
    for _ in 0..HALVINGS {
        let alpha: Vec<f64> = (0..before.len())
            .map(|k| moved(before.alpha[k], sparsity[k], length * direction[k]))
            .collect();
        if state.set_hyperparameters(&alpha, before.beta).is_ok() {
            find_mode(stats, state)?;
            if Residual::of(state).norm() < (1.0 - 0.1 * length) * here.norm() {
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
