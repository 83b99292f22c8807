//! Quasi-Newton ascent of the Laplace evidence in ln alpha, on the functions in the model.
//!
//! With T = `Phi_A` Sigma, `D_jk = sum_n b'_n T_nj^2 T_nk` ([`Statistics::variance_drift`]) and c as in `slope.rs`, twice the
//! second derivative of L in `x_j`, `x_k` is
//!
//! `delta_jk alpha_j (mu_j c_j - mu_j^2 - Sigma_jj) + alpha_j alpha_k [2 mu_j mu_k Sigma_jk + Sigma_jk^2 - mu_k D_jk
//! - mu_j D_kj - Sigma_jk (mu_k c_j + mu_j c_k)] + alpha_j mu_j alpha_k mu_k M_jk`.
//!
//! M has the second derivative of the weights B in it, and a sum over pairs of rows; it is small, is not asked for, and is
//! learned from how the slope changes: the symmetric rank-one formula on what the known part leaves unexplained.

use nalgebra::{DMatrix, DVector, SymmetricEigen};

use super::super::action::{ALPHA_FLOOR, INFINITE};
use super::super::inner::Settled;
use super::super::record::{Action, Halt, Recorder};
use super::super::settings::LOOSE_TOL;
use super::super::state::State;
use super::super::stationary::stepped;
use super::slope::Slope;
use super::to_mode;
use crate::stats::{Statistics, check_flag};
use crate::{Error, Result};

/// Steps before an ascent is given up.
const MOST_STEPS: usize = 200;

/// Relative rounding of the evidence: a change below it is none.
const ROUNDING: f64 = 1e-12;

/// Where every alpha is this close to its maximum, steps no longer count; and how many there are beyond the tolerance.
/// As in `stationary.rs`: how sums over rows were rounded must not show in what is published.
const SHARP: f64 = 1e-11;
const MOST_SHARPENING: usize = 3;

/// What a change of the evidence from `value` has to be more than.
pub(super) fn rounding(value: f64) -> f64 {
    ROUNDING * (1.0 + value.abs())
}

/// Climbs until every alpha is within `tol` of its maximum; functions that tend to infinity leave where that costs nothing.
pub(super) fn ascend(
    stats: &mut dyn Statistics,
    state: &mut State,
    tol: f64,
    recorder: &mut Recorder<'_>,
) -> Result<Settled, Halt> {
    let mut climber = Climber::new(stats, state)?;
    let most_sharpening = if tol < LOOSE_TOL { MOST_SHARPENING } else { 0 };
    let mut sharpening = 0;
    for _ in 0..MOST_STEPS {
        if let Some(k) = climber.leaving(stats, state, false)? {
            climber = climber.without(stats, state, k, recorder)?;
            continue;
        }
        let far = climber.distance(state);
        if far <= tol {
            if far <= SHARP || sharpening == most_sharpening {
                return Ok(Settled::Converged);
            }
            sharpening += 1;
        }
        if climber.step(stats, state)? {
            recorder.step(Action::Joint, None, state)?;
        } else if far <= tol {
            return Ok(Settled::Converged);
        } else if let Some(k) = climber.leaving(stats, state, true)? {
            climber = climber.without(stats, state, k, recorder)?;
        } else {
            return Ok(Settled::Stalled);
        }
    }
    Ok(Settled::Stalled)
}

/// What an ascent carries from step to step. Between calls the state is at its mode, and `slope` is that there.
struct Climber {
    slope: Slope,
    /// What the slopes seen so far say of minus the second derivative beyond the part that is known.
    learned: DMatrix<f64>,
    /// The last step: the change in ln alpha, and the change of the slope, negated.
    last: Option<(DVector<f64>, DVector<f64>)>,
    /// The alpha at which each function was last tried without, and would not go.
    tried: Vec<f64>,
}

impl Climber {
    fn new(stats: &mut dyn Statistics, state: &mut State) -> Result<Self> {
        to_mode(stats, state)?;
        let m = state.len();
        Ok(Self {
            slope: Slope::at(stats, state)?,
            learned: DMatrix::zeros(m, m),
            last: None,
            tried: vec![0.0; m],
        })
    }

    /// The largest distance of an alpha from its maximum; infinite while a function is on its way out.
    fn distance(&self, state: &State) -> f64 {
        (0..state.len())
            .map(|k| self.slope.distance(state, k, self.tried[k] > 0.0))
            .fold(0.0, f64::max)
    }

    /// A function that does not belong in the model, by its factors, and without which the evidence is no lower. Those that
    /// were tried not long ago are tried again only where the ascent is `stuck`.
    fn leaving(
        &mut self,
        stats: &mut dyn Statistics,
        state: &mut State,
        stuck: bool,
    ) -> Result<Option<usize>> {
        /// Multiple of s from which on an alpha is on its way to infinity, and by which it has to grow between trials.
        const FAR: f64 = 10.0;
        let mut tried = false;
        for k in 0..state.len() {
            let factors = self.slope.factors(state, k);
            let alpha = state.alpha[k];
            let due = stuck || alpha > FAR * self.tried[k];
            let far = alpha > FAR * factors.s && due;
            let worthless = !factors.prior.is_flat() && self.tried[k] <= 0.0;
            if factors.optimal_alpha().is_some() || !(far || worthless) {
                continue;
            }
            tried = true;
            self.tried[k] = alpha;
            if no_lower_without(stats, state, k)? {
                return Ok(Some(k));
            }
        }
        if tried {
            // The provider's weights belong to the last mode tried; bring them back.
            to_mode(stats, state)?;
            self.slope = Slope::at(stats, state)?;
        }
        Ok(None)
    }

    /// Takes out function `k`.
    fn without(
        &self,
        stats: &mut dyn Statistics,
        state: &mut State,
        k: usize,
        recorder: &mut Recorder<'_>,
    ) -> Result<Self, Halt> {
        let j = state.active[k];
        state.delete(k);
        let mut next = Self::new(stats, state)?;
        next.tried.clone_from(&self.tried);
        next.tried.remove(k);
        recorder.step(Action::Delete(j), None, state)?;
        Ok(next)
    }

    /// Goes along the direction of the quadratic model as far as the evidence rises; `false`, and the state as before, if
    /// it does not.
    fn step(&mut self, stats: &mut dyn Statistics, state: &mut State) -> Result<bool> {
        const HALVINGS: usize = 20;
        let known = known_curvature(stats, state, &self.slope)?;
        self.learn(&known);
        let slope = DVector::from_column_slice(&self.slope.values);
        let curvature = known + &self.learned;
        let units = units(&curvature, &slope);
        let direction = direction(&curvature, &slope, &units);
        let before = state.clone();
        let from = before.log_posterior();
        let mut length = 1.0;
        for _ in 0..HALVINGS {
            let alphas = self.moved(&before, &direction, length);
            let dx = DVector::from_fn(alphas.len(), |k, _| (alphas[k] / before.alpha[k]).ln());
            let promised = slope.dot(&dx);
            let arrived = arrive(stats, state, &alphas, (from, promised), |next| {
                let there = DVector::from_column_slice(&next.values);
                there.component_div(&units).norm() < slope.component_div(&units).norm()
            });
            if let Some(next) = arrived? {
                let there = DVector::from_column_slice(&next.values);
                self.last = Some((dx, slope - there));
                self.slope = next;
                return Ok(true);
            }
            state.clone_from(&before);
            length *= 0.5;
        }
        to_mode(stats, state)?;
        Ok(false)
    }

    /// Where a step along the direction takes each alpha. Strong functions move in ln alpha, weak ones in 1 / alpha: see
    /// `stationary.rs`.
    fn moved(&self, state: &State, direction: &DVector<f64>, length: f64) -> Vec<f64> {
        let moved = |k: usize| {
            let (alpha, s) = (state.alpha[k], self.slope.factors(state, k).s);
            let next = stepped(alpha, s, length * direction[k]);
            let most = (INFINITE * s).max(f64::MIN_POSITIVE);
            next.min(most.max(alpha)).max(ALPHA_FLOOR)
        };
        (0..state.len()).map(moved).collect()
    }

    /// The symmetric rank-one formula: afterwards the model explains the last change of the slope.
    fn learn(&mut self, known: &DMatrix<f64>) {
        /// Least cosine between the step and what is left to explain, and least part of the change that this is: below,
        /// what would be learned is rounding. In units in which the curvature is about one.
        const CLEAR: f64 = 1e-3;
        const WORTH_LEARNING: f64 = 1e-3;
        let Some((dx, change)) = self.last.take() else {
            return;
        };
        let units = units(&(known + &self.learned), &change);
        let rest = &change - (known + &self.learned) * &dx;
        let along = rest.dot(&dx);
        let size = rest.component_div(&units).norm();
        let clear = along.abs() > CLEAR * size * dx.component_mul(&units).norm();
        // False for NaN.
        if clear && size > WORTH_LEARNING * change.component_div(&units).norm() {
            self.learned.ger(1.0 / along, &rest, &rest, 1.0);
        }
    }
}

/// Moves the state to these alphas and to its mode there; the slope there, if that is a step forward from a place where the
/// evidence was `from` and a rise of `promised` to be had to first order. `closer` decides where rounding hides a rise.
fn arrive(
    stats: &mut dyn Statistics,
    state: &mut State,
    alphas: &[f64],
    (from, promised): (f64, f64),
    closer: impl Fn(&Slope) -> bool,
) -> Result<Option<Slope>> {
    /// A promise that is as many times what rounding makes of the evidence can be seen to be kept. Below it, or where there
    /// is hardly anything to be had, the slope may decide.
    const CLEARLY: f64 = 30.0;
    const HARDLY_ANY: f64 = 1e-7;
    let there = state
        .set_alphas(alphas)
        .and_then(|()| to_mode(stats, state));
    match there {
        Ok(()) => {}
        Err(Error::NotPositiveDefinite(_)) => {
            check_flag(stats.cancel_flag().as_deref())?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let rise = state.log_posterior() - from;
    let risen = promised > CLEARLY * rounding(from) && rise >= 1e-4 * promised;
    // False for NaN.
    let level = promised <= HARDLY_ANY.max(CLEARLY * rounding(from)) && rise >= -rounding(from);
    if !(risen || level) {
        return Ok(None);
    }
    let next = Slope::at(stats, state)?;
    Ok((risen || closer(&next)).then_some(next))
}

/// Whether the evidence is at least as high without function `k`.
fn no_lower_without(stats: &mut dyn Statistics, state: &State, k: usize) -> Result<bool> {
    let mut without = state.clone();
    without.delete(k);
    to_mode(stats, &mut without)?;
    let here = state.log_posterior();
    // False for NaN.
    Ok(without.log_posterior() >= here - rounding(here))
}

/// Minus the second derivative of the evidence in ln alpha, but for its part with M.
fn known_curvature(
    stats: &mut dyn Statistics,
    state: &State,
    slope: &Slope,
) -> Result<DMatrix<f64>> {
    let drift = stats.variance_drift(&state.active, &state.sigma)?;
    let (alpha, mu, sigma, c) = (&state.alpha, &state.mu, &state.sigma, &slope.pull);
    let m = state.len();
    Ok(DMatrix::from_fn(m, m, |j, k| {
        let s = sigma[(j, k)];
        let mut twice = alpha[j]
            * alpha[k]
            * (s * (2.0 * mu[j] * mu[k] + s - mu[k] * c[j] - mu[j] * c[k])
                - mu[k] * drift[(j, k)]
                - mu[j] * drift[(k, j)]);
        if j == k {
            twice -= alpha[j] * (slope.square(state, j) + s + 2.0 * state.priors[j].rate);
        }
        -0.5 * twice
    }))
}

/// Units of ln alpha in which the diagonal of the curvature is one, and no slope is large beside it.
fn units(curvature: &DMatrix<f64>, slope: &DVector<f64>) -> DVector<f64> {
    let unit = |k: usize| curvature[(k, k)].abs().max(slope[k].abs()).sqrt();
    DVector::from_fn(slope.len(), |k, _| unit(k).max(f64::MIN_POSITIVE.sqrt()))
}

/// The step that a quadratic model with this slope and curvature asks for; uphill, also where it has no maximum: where the
/// curvature is not positive its eigenvalues count by their size, in the units given.
fn direction(curvature: &DMatrix<f64>, slope: &DVector<f64>, units: &DVector<f64>) -> DVector<f64> {
    /// Least eigenvalue.
    const LEAST: f64 = 1e-4;
    let m = slope.len();
    // A slope of zero is that of an alpha held at its floor, or of one that has arrived: neither needs a step.
    let scaled = DMatrix::from_fn(m, m, |j, k| {
        if j != k && (slope[j] == 0.0 || slope[k] == 0.0) {
            0.0
        } else {
            curvature[(j, k)] / units[j] / units[k]
        }
    });
    let right = slope.component_div(units);
    let step = if let Some(factor) = scaled.clone().cholesky() {
        factor.solve(&right)
    } else {
        let eigen = SymmetricEigen::new(scaled);
        let mut along = eigen.eigenvectors.tr_mul(&right);
        for (a, value) in along.iter_mut().zip(eigen.eigenvalues.iter()) {
            *a /= value.abs().max(LEAST);
        }
        eigen.eigenvectors * along
    };
    step.component_div(units)
}
