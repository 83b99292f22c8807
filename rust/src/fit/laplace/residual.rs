//! The fixed-point equations of the Laplace evidence: residual R, its Jacobian, and one damped Newton step.
//!
//! At the mode belonging to alpha, with B as it is there, a fixed point has alpha_j = gamma_j / mu_j^2 for every
//! active function, which is equation (20) in MacKay's form. In x = ln alpha the residual is
//! `R_j = ln gamma_j - 2 ln |mu_j| - x_j`; it depends on x also through the mode and through B:
//!
//! * d mu / d x_k = -alpha_k mu_k Sigma_k, from differentiating the condition for the mode;
//! * d Sigma_jj / d x_k = -alpha_k Sigma_jk^2 + alpha_k mu_k D_jk, where the second term is the change of B with the mode;
//!   D is [`Statistics::variance_drift`].
//!
//! With a Gamma prior of shape a and rate b, `R_j = ln(gamma_j + 2 a) - ln(mu_j^2 + 2 b) - x_j`.
//!
//! As alpha_j tends to infinity R_j tends to ln(s / q^2), which is zero only if q^2 = s: unlike the gradient of the
//! evidence, R has no false root at infinity. An alpha at its floor with R < 0 is held there.

use nalgebra::{DMatrix, DVector};

use crate::Result;
use crate::data::Statistics;
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::tuning::Tuning;

/// Clamps alpha to its floor and to the largest multiple of the sparsity factor s.
pub(crate) fn bounded(alpha: f64, s: f64) -> f64 {
    alpha
        .min(Tuning::MAX_ALPHA_RATIO * s.max(f64::MIN_POSITIVE))
        .max(Tuning::ALPHA_FLOOR)
}

/// R of each active function, and which functions are to be deleted.
pub(crate) struct Residual {
    pub(crate) values: Vec<f64>,
    /// Alphas at their floor with R < 0. Their R is set to zero.
    held: Vec<bool>,
    /// Functions whose alpha is at its upper bound with R > 0.
    pub(crate) vanishing: Vec<bool>,
}

impl Residual {
    /// The residual of a state at its mode.
    pub(crate) fn of(state: &State) -> Self {
        let mut this = Self {
            values: Vec::new(),
            held: Vec::new(),
            vanishing: Vec::new(),
        };
        for k in 0..state.len() {
            let (alpha, factors, prior) = (state.alpha[k], state.factors(k), state.priors[k]);
            let s = factors.first.s.max(f64::MIN_POSITIVE);
            let (gamma, mu) = (s / (alpha + s), mean_size(state, k));
            let value = if prior.is_flat() {
                gamma.ln() - 2.0 * mu.ln() - alpha.ln()
            } else {
                (gamma + 2.0 * prior.shape).ln() - (mu * mu + 2.0 * prior.rate).ln() - alpha.ln()
            };
            let at_bound = value > 0.0 && alpha >= 0.999 * Tuning::MAX_ALPHA_RATIO * s;
            let held = value < 0.0 && alpha <= Tuning::ALPHA_FLOOR;
            this.values.push(if held { 0.0 } else { value });
            this.held.push(held);
            // With a prior, the log evidence at a stationary point may be lower than without the function.
            let worthless =
                !prior.is_flat() && alpha >= factors.first.s && factors.optimal_alpha().is_none();
            this.vanishing.push(at_bound || worthless);
        }
        this
    }

    /// For each active function, whether it is not vanishing.
    pub(crate) fn retained(&self) -> Vec<bool> {
        self.vanishing.iter().map(|vanishing| !vanishing).collect()
    }

    /// Positions of the retained functions.
    fn positions(&self) -> impl Iterator<Item = usize> {
        (0..self.vanishing.len()).filter(|&k| !self.vanishing[k])
    }

    /// The Jacobian with the rows of held alphas replaced: these alphas do not move.
    pub(crate) fn hold(&self, mut jacobian: DMatrix<f64>) -> DMatrix<f64> {
        for k in (0..self.held.len()).filter(|&k| self.held[k]) {
            jacobian.row_mut(k).fill(0.0);
            jacobian[(k, k)] = -1.0;
        }
        jacobian
    }

    /// Euclidean norm of R over the retained functions.
    pub(crate) fn norm(&self) -> f64 {
        self.positions()
            .map(|k| self.values[k].powi(2))
            .sum::<f64>()
            .sqrt()
    }

    /// Largest |change in ln alpha| that re-estimation would make to a retained function.
    pub(crate) fn distance(&self, state: &State) -> f64 {
        self.positions()
            .map(|k| state.factors(k).change_from(state.alpha[k]))
            .fold(0.0, f64::max)
    }

    /// Whether R may be round-off only. Sigma_kk has a relative error of the unit round-off times H_kk Sigma_kk because its
    /// inverse cancels, and mu loses at least as much in sums of weights that cancel. Where that error exceeds the
    /// tolerance, a step reduces R only by chance, and a search for such a step may not end.
    pub(crate) fn is_rounding(&self, state: &State) -> bool {
        self.distance(state) <= 2.0 * f64::EPSILON * state.cancellation()
    }
}

/// |mu_k|, at least the smallest positive number.
fn mean_size(state: &State, k: usize) -> f64 {
    state.mu()[k].abs().max(f64::MIN_POSITIVE)
}

/// dR / dx.
pub(crate) fn jacobian(stats: &mut dyn Statistics, state: &State) -> Result<DMatrix<f64>> {
    let drift = stats.variance_drift(&state.active, state.reference(), state.sigma())?;
    let (alpha, mu, sigma, m) = (&state.alpha, state.mu(), state.sigma(), state.len());
    // gamma = s / (alpha + s) avoids the cancellation in 1 - alpha Sigma.
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

/// The step d with `R + J d = 0` in the free rows and d = `given` in the others; `None` if that system is singular.
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

/// The alphas after a Newton step of `length` times `direction` in ln alpha.
///
/// A function with alpha < s moves in ln alpha. Others move in the prior variance 1 / alpha, in which the equations are
/// smooth through zero: `1/alpha - dx/alpha` is the same step to first order, and stops short of zero.
pub(crate) fn stepped(state: &State, direction: &[f64], length: f64) -> Vec<f64> {
    let limit = Tuning::MAX_LN_CHANGE;
    let next = |k: usize| {
        let (alpha, s, dx) = (state.alpha[k], state.sparsity(k), length * direction[k]);
        let next = if alpha < s {
            alpha * dx.clamp(-limit, limit).exp()
        } else {
            alpha / (1.0 - dx).max((-limit).exp())
        };
        bounded(next, s)
    };
    (0..state.len()).map(next).collect()
}

/// Takes the first of `n_lengths` Newton steps, each half as long as the one before, that reduces R enough.
/// Returns `false`, with the state restored, if none does.
pub(crate) fn damped_step(
    stats: &mut dyn Statistics,
    state: &mut State,
    jacobian: &DMatrix<f64>,
    here: &Residual,
    n_lengths: usize,
) -> Result<bool> {
    let Some(direction) = solve(jacobian, &here.values, &here.retained(), 0.0) else {
        return Ok(false);
    };
    let before = state.clone();
    let mut length = 1.0;
    for _ in 0..n_lengths {
        if state
            .set_alphas(&stepped(&before, &direction, length))
            .is_ok()
        {
            find_mode(stats, state)?;
            if Residual::of(state).norm() < (1.0 - 0.1 * length) * here.norm() {
                return Ok(true);
            }
        }
        state.clone_from(&before);
        length *= 0.5;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DenseDesign, SoftmaxStatistics};
    use crate::fit::noise::NoisePrecision;
    use crate::fit::prior::{Gamma, Priors};

    const N: usize = 60;
    const K: usize = 4;
    const CLASSES: usize = 3;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    /// The mode at these alphas of a model with one column for each of three classes, and a second one for the first.
    fn at(stats: &mut SoftmaxStatistics<'_>, alphas: &[f64]) -> State {
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(&[NoisePrecision::fixed(1.0)], Gamma::FLAT, &[deviance], 0.0);
        state.fill(&[0, K + 2, 2 * K + 3, 3], 1.0, &Priors::default(), None);
        find_mode(stats, &mut state).unwrap();
        state.set_alphas(alphas).unwrap();
        find_mode(stats, &mut state).unwrap();
        state
    }

    #[test]
    fn the_jacobian_equals_finite_differences_of_the_residual() {
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
