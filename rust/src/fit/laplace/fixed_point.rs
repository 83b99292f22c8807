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
//! A Gamma prior of shape a and rate b makes it `R_j = ln(gamma_j + 2 a) - ln(mu_j^2 + 2 b) - x_j`.
//!
//! As alpha_j grows without bound R_j tends to ln(s / q^2), which vanishes only on the border of relevance: unlike the
//! gradient of the evidence, R has no false root at infinity. An alpha at its floor with R below zero stays there.

use nalgebra::{DMatrix, DVector};

use crate::data::{Statistics, check_flag};
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::laplace::complementarity::leap_closer;
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Refined;
use crate::{Error, Result};

/// Newton steps before the search is given up.
const MOST_STEPS: usize = 60;
/// Lengths of a Newton step that are tried.
pub(crate) const LENGTHS: usize = 6;
/// Longest move of the ln alpha of a strong function in one step.
pub(crate) const LONGEST: f64 = 2.0;

/// Alpha goes no further than this many times s: outside, such a function has less to gain than counts.
const DEPARTED: f64 = 2e3;

/// Alpha, kept between its floor and what counts as departed for a function of sparsity s.
pub(crate) fn bounded(alpha: f64, s: f64) -> f64 {
    alpha
        .min(DEPARTED * s.max(f64::MIN_POSITIVE))
        .max(ALPHA_FLOOR)
}

/// R of each function in the model, and which of them are on their way out: at the bound of alpha, and wanting more.
pub(crate) struct Residual {
    pub(crate) values: Vec<f64>,
    /// Which alphas sit at their floor and would go further down. R of these is put at zero.
    held: Vec<bool>,
    leaving: Vec<bool>,
}

impl Residual {
    /// Of a state at its mode.
    pub(crate) fn of(state: &State) -> Self {
        let mut this = Self {
            values: Vec::new(),
            held: Vec::new(),
            leaving: Vec::new(),
        };
        for k in 0..state.len() {
            let (alpha, factors, prior) = (state.alpha[k], state.factors(k), state.priors[k]);
            let s = factors.s.max(f64::MIN_POSITIVE);
            let (gamma, mu) = (s / (alpha + s), mean_size(state, k));
            let value = if prior.is_flat() {
                gamma.ln() - 2.0 * mu.ln() - alpha.ln()
            } else {
                (gamma + 2.0 * prior.shape).ln() - (mu * mu + 2.0 * prior.rate).ln() - alpha.ln()
            };
            let departed = value > 0.0 && alpha >= 0.999 * DEPARTED * s;
            let held = value < 0.0 && alpha <= ALPHA_FLOOR;
            this.values.push(if held { 0.0 } else { value });
            this.held.push(held);
            // Under a prior a stationary point may be worth less than nothing.
            let worthless =
                !prior.is_flat() && alpha >= factors.s && factors.optimal_alpha().is_none();
            this.leaving.push(departed || worthless);
        }
        this
    }

    /// Which functions are not on their way out.
    pub(crate) fn staying(&self) -> Vec<bool> {
        self.leaving.iter().map(|leaving| !leaving).collect()
    }

    /// Positions of these.
    fn positions(&self) -> impl Iterator<Item = usize> {
        (0..self.leaving.len()).filter(|&k| !self.leaving[k])
    }

    /// The Jacobian of what is left of R: alphas that are held do not move.
    pub(crate) fn hold(&self, mut jacobian: DMatrix<f64>) -> DMatrix<f64> {
        for k in (0..self.held.len()).filter(|&k| self.held[k]) {
            jacobian.row_mut(k).fill(0.0);
            jacobian[(k, k)] = -1.0;
        }
        jacobian
    }

    /// Length of R over the functions that stay.
    pub(crate) fn norm(&self) -> f64 {
        self.positions()
            .map(|k| self.values[k].powi(2))
            .sum::<f64>()
            .sqrt()
    }

    /// Largest |change in ln alpha| that re-estimation would make to a function that stays.
    pub(crate) fn distance(&self, state: &State) -> f64 {
        self.positions()
            .map(|k| state.factors(k).change_from(state.alpha[k]))
            .fold(0.0, f64::max)
    }

    /// Whether what is left of R may be rounding: Sigma_kk is not known better than to the unit roundoff times
    /// H_kk Sigma_kk, by so much its inverse cancels, and mu loses as much and more in sums of weights that cancel. Where
    /// that is more than the tolerance a step that leads closer does so by chance, and a search for one may take for ever.
    pub(crate) fn is_rounding(&self, state: &State) -> bool {
        self.distance(state) <= 2.0 * f64::EPSILON * state.cancellation()
    }
}

/// Moves the active set to the fixed point; functions that tend to infinity are removed once the others are there.
pub(crate) fn polish(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Refined, Stop> {
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)?;
    for _ in 0..MOST_STEPS {
        let here = Residual::of(state);
        if here.distance(state) <= tol {
            if !here.leaving.contains(&true) {
                return Ok(Refined::Converged);
            }
            remove(stats, state, &here.leaving, recorder)?;
            continue;
        }
        let jacobian = here.hold(jacobian(stats, state)?);
        let moved = if here.is_rounding(state) {
            advance(stats, state, &jacobian, &here, 1)?
        } else {
            advance(stats, state, &jacobian, &here, LENGTHS)?
                || leap_closer(stats, state, &jacobian, &here)?
        };
        if !moved {
            return Ok(Refined::Stalled);
        }
        recorder.step(Action::Joint, None, state)?;
    }
    Ok(Refined::Stalled)
}

/// Newton steps from a fixed point to tolerance on to one to rounding, in the alphas and in the mode, as far as they lead
/// closer. So how sums over rows were rounded, and in which parts they were added up, does not show in what is published.
pub(crate) fn sharpen(
    stats: &mut dyn Statistics,
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    let mut good = state.clone();
    match sharpened(stats, state, &mut good) {
        Ok(()) => {}
        // Where rounding takes the definiteness, what was there is as good as it gets.
        Err(Error::NotPositiveDefinite(_)) => {
            check_flag(stats.cancel_flag().as_deref())?;
            state.clone_from(&good);
        }
        Err(error) => return Err(error.into()),
    }
    match recorder.step(Action::Joint, None, state) {
        // It has come to its end all the same.
        Err(Stop::MaxIterations) => Ok(()),
        outcome => outcome,
    }
}

/// [`sharpen`]; `good` is kept at the sharpest state so far.
fn sharpened(stats: &mut dyn Statistics, state: &mut State, good: &mut State) -> Result<()> {
    const SHARP: f64 = 1e-12;
    const MOST_STEPS: usize = 2;
    step_to_mode(stats, state)?;
    for _ in 0..MOST_STEPS {
        let here = Residual::of(state);
        good.clone_from(state);
        if here.distance(state) <= SHARP || here.leaving.contains(&true) {
            break;
        }
        let jacobian = here.hold(jacobian(stats, state)?);
        let Some(direction) = solve(&jacobian, &here.values, &here.staying(), 0.0) else {
            break;
        };
        let alphas: Vec<f64> = (0..state.len())
            .map(|k| moved(state.alpha[k], state.sparsity(k), direction[k]))
            .collect();
        state.set_alphas(&alphas)?;
        step_to_mode(stats, state)?;
        // False for NaN.
        if Residual::of(state).norm() < here.norm() {
            continue;
        }
        state.clone_from(good);
        break;
    }
    Ok(())
}

/// One Newton step to the mode, in full: from where the mode was found there is no telling by the likelihood whether it rises.
fn step_to_mode(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    let (m, mu) = (state.len(), state.mu.clone());
    let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
    let deviance = stats.local(&state.active, &mu, &mut gram, &mut gradient)?;
    state.set_data(&mu, &gradient, deviance, Some(&gram))
}

/// Deletes the functions marked, and finds the mode without them.
fn remove(
    stats: &mut dyn Statistics,
    state: &mut State,
    marked: &[bool],
    recorder: &mut Recorder<'_>,
) -> Result<(), Stop> {
    for k in (0..marked.len()).rev().filter(|&k| marked[k]) {
        let j = state.active[k];
        let gain = state.factors(k).gain_of_deleting(state.alpha[k]);
        state.delete(k);
        recorder.step(Action::Delete(j), Some(gain), state)?;
    }
    find_mode(stats, state)?;
    recorder.step(Action::Mode, None, state)
}

/// |mu_k|, not less than the least positive number.
fn mean_size(state: &State, k: usize) -> f64 {
    state.mu[k].abs().max(f64::MIN_POSITIVE)
}

/// dR / dx.
pub(crate) fn jacobian(stats: &mut dyn Statistics, state: &State) -> Result<DMatrix<f64>> {
    let drift = stats.variance_drift(&state.active, &state.sigma)?;
    let (alpha, mu, sigma, m) = (&state.alpha, &state.mu, &state.sigma, state.len());
    // Free of the cancellation in 1 - alpha Sigma.
    let gamma_of = |k: usize| {
        let s = state.sparsity(k);
        s / (alpha[k] + s)
    };
    let gamma: Vec<f64> = (0..m).map(gamma_of).collect();
    Ok(DMatrix::from_fn(m, m, |j, k| {
        let (size, prior) = (mean_size(state, j), state.priors[j]);
        let own = if j == k { sigma[(j, j)] } else { 0.0 };
        let d_variance = alpha[k] * (mu[k] * drift[(j, k)] - sigma[(j, k)] * sigma[(j, k)]);
        let d_ln_gamma = -alpha[j] * (own + d_variance) / (gamma[j] + 2.0 * prior.shape);
        // d ln(mu^2 + 2 b) = 2 |mu| d |mu| / (mu^2 + 2 b)
        let d_size = -mu[j] / size * alpha[k] * mu[k] * sigma[(j, k)];
        let d_ln_square = 2.0 * d_size / (size + 2.0 * prior.rate / size);
        d_ln_gamma - d_ln_square - if j == k { 1.0 } else { 0.0 }
    }))
}

/// The step d with `R + J d = 0` where `free`, and d as given elsewhere; `None` if that is singular.
pub(crate) fn solve(
    jacobian: &DMatrix<f64>,
    r: &[f64],
    free: &[bool],
    given: f64,
) -> Option<Vec<f64>> {
    let rows: Vec<usize> = (0..r.len()).filter(|&k| free[k]).collect();
    if rows.is_empty() {
        return Some(vec![given; r.len()]);
    }
    let matrix = DMatrix::from_fn(rows.len(), rows.len(), |a, b| jacobian[(rows[a], rows[b])]);
    let right = DVector::from_fn(rows.len(), |a, _| {
        let fixed = (0..r.len())
            .filter(|&k| !free[k])
            .map(|k| jacobian[(rows[a], k)] * given);
        -r[rows[a]] - fixed.sum::<f64>()
    });
    let solution = matrix.lu().solve(&right).filter(|d| d.amax().is_finite())?;
    let mut step = vec![given; r.len()];
    rows.iter()
        .zip(solution.iter())
        .for_each(|(&k, &d)| step[k] = d);
    Some(step)
}

/// Where a Newton step of length `dx` takes ln alpha.
///
/// Strong functions move in ln alpha, no further than allowed. Weak ones move in the prior variance 1 / alpha, in which
/// everything is smooth through zero: `1/alpha - dx/alpha` is the same step to first order. One that would pass zero
/// stops short of it.
fn moved(alpha: f64, s: f64, dx: f64) -> f64 {
    const MOST_GROWTH: f64 = 10.0;
    let next = if alpha < s {
        alpha * dx.clamp(-LONGEST, LONGEST).exp()
    } else {
        alpha / (1.0 - dx).max(1.0 / MOST_GROWTH)
    };
    bounded(next, s)
}

/// Goes along Newton's direction as far as brings R closer to zero, with so many lengths tried, each half the last;
/// `false`, and the state as before, if nothing does.
pub(crate) fn advance(
    stats: &mut dyn Statistics,
    state: &mut State,
    jacobian: &DMatrix<f64>,
    here: &Residual,
    lengths: usize,
) -> Result<bool> {
    let Some(direction) = solve(jacobian, &here.values, &here.staying(), 0.0) else {
        return Ok(false);
    };
    let before = state.clone();
    let sparsities: Vec<f64> = (0..before.len()).map(|k| before.sparsity(k)).collect();
    let mut length = 1.0;
    for _ in 0..lengths {
        let alphas: Vec<f64> = (0..before.len())
            .map(|k| moved(before.alpha[k], sparsities[k], length * direction[k]))
            .collect();
        if state.set_alphas(&alphas).is_ok() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DenseDesign, SoftmaxStatistics};
    use crate::fit::prior::{Gamma, Priors};

    const N: usize = 60;
    const K: usize = 4;
    const CLASSES: usize = 3;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    /// A column of four for each of three classes, and one more, at the mode that belongs to these alphas.
    fn at(stats: &mut SoftmaxStatistics<'_>, alphas: &[f64]) -> State {
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(1.0, Gamma::FLAT, deviance, 0.0);
        state.fill(&[0, K + 2, 2 * K + 3, 3], 1.0, &Priors::default(), None);
        find_mode(stats, &mut state).unwrap();
        state.set_alphas(alphas).unwrap();
        find_mode(stats, &mut state).unwrap();
        state
    }

    #[test]
    fn the_jacobian_is_how_the_residual_answers_to_ln_alpha() {
        let values = (0..N * K).map(|i| wave(i, 0.37) + 0.3 * wave(i * i, 0.11));
        let design = DenseDesign::new(values.collect::<Vec<f64>>(), N, K).unwrap();
        let target: Vec<f64> = (0..N).map(|i| ((i * i + i / 7) % CLASSES) as f64).collect();
        let mut stats = SoftmaxStatistics::new(&design, &target, None).unwrap();
        let alphas = [0.5, 2.0, 8.0, 1.0];
        let state = at(&mut stats, &alphas);
        let expected = jacobian(&mut stats, &state).unwrap();
        let h: f64 = 1e-4;
        for b in 0..alphas.len() {
            let mut moved = |factor: f64| {
                let mut there = alphas;
                there[b] *= factor;
                Residual::of(&at(&mut stats, &there)).values
            };
            let (up, down) = (moved(h.exp()), moved((-h).exp()));
            for a in 0..alphas.len() {
                let slope = (up[a] - down[a]) / (2.0 * h);
                assert!(
                    (expected[(a, b)] - slope).abs() < 1e-5 * (1.0 + slope.abs()),
                    "{a} {b}: {} {slope}",
                    expected[(a, b)]
                );
            }
        }
    }
}
