//! The fixed-point equations of the Laplace evidence: residual R and its Jacobian, Newton's method, and Rprop as fallback.
//!
//! At the mode belonging to alpha, with B as it is there, a fixed point has alpha_j = gamma_j / mu_j^2 for every
//! active function, which is equation (20) in MacKay's form. In x = ln alpha the residual is
//! `R_j = ln gamma_j - 2 ln |mu_j| - x_j`; it depends on x also through the mode and through B:
//!
//! * d mu / d x_k = -alpha_k mu_k Sigma_k, from differentiating the condition for the mode;
//! * d Sigma_jj / d x_k = -alpha_k Sigma_jk^2 + alpha_k mu_k D_jk, where the second term is the change of B with the mode;
//!   D is [`Statistics::variance_drift`].
//!
//! With the prior exp(-c tr S), mu_j^2 becomes mu_j^2 - 2 c (Sigma - Sigma A Sigma)_jj: see [`drift_of_sampling_variances`].
//!
//! With a Gamma prior of shape a and rate b, `R_j = ln(gamma_j + 2 a) - ln(mu_j^2 + 2 b) - x_j`.
//!
//! For starts far from the solution, such as where one of two nearly equal functions replaces the other, there are Newton steps with the
//! constraint v = 1 / alpha >= 0 (Josephy 1979): the conditions are a complementarity problem in the prior variances v, R = 0 where
//! v > 0 and R >= 0 where v = 0. Each step solves the linearised complementarity problem.
//!
//! As alpha_j tends to infinity R_j tends to ln(s / q^2), which is zero only if q^2 = s: unlike the gradient of the
//! evidence, R has no false root at infinity. An alpha at its floor with R < 0 is held there.

use std::collections::BTreeSet;

use nalgebra::DVector;

use crate::data::Statistics;
use crate::fit::context::Fit;
use crate::fit::model::Model;
use crate::fit::record::{Action, Stop};
use crate::fit::tuning::Tuning;
use crate::linalg::Matrix;
use crate::{Error, Result};

/// A new alpha of active function `k`, clamped to its floor and to the largest multiple of the sparsity factor s; 0 stays 0.
fn bounded(model: &Model, k: usize, alpha: f64) -> f64 {
    if model.is_unpenalized(k) {
        return 0.0;
    }
    let most = Tuning::MAX_ALPHA_RATIO * model.sparsity(k);
    alpha.min(most).max(Tuning::ALPHA_FLOOR)
}

/// R of each active function, and which functions are to be deleted.
pub(crate) struct Residual {
    values: Vec<f64>,
    /// Alphas that do not move: at their floor with R < 0, or zero, for a flat prior. Their R is set to zero.
    held: Vec<bool>,
    /// Functions whose alpha is at its upper bound with R > 0.
    vanishing: Vec<bool>,
}

impl Residual {
    /// The residual of a model at its mode.
    pub(crate) fn of(model: &Model) -> Self {
        let mut this = Self {
            values: Vec::new(),
            held: Vec::new(),
            vanishing: Vec::new(),
        };
        for k in 0..model.len() {
            if model.is_unpenalized(k) {
                this.values.push(0.0);
                this.held.push(true);
                this.vanishing.push(false);
                continue;
            }
            let (alpha, factors, prior) = (model.alpha[k], model.factors(k), model.priors[k]);
            let s = factors.first.s.max(f64::MIN_POSITIVE);
            let gamma = s / (alpha + s);
            let value = if model.complexity == 0.0 && prior.is_flat() {
                gamma.ln() - 2.0 * mean_size(model, k).ln() - alpha.ln()
            } else {
                let square = mean_square(model, k);
                (gamma + 2.0 * prior.shape).ln() - (square + 2.0 * prior.rate).ln() - alpha.ln()
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
    fn retained(&self) -> Vec<bool> {
        self.vanishing.iter().map(|vanishing| !vanishing).collect()
    }

    /// Positions of the retained functions.
    fn positions(&self) -> impl Iterator<Item = usize> {
        (0..self.vanishing.len()).filter(|&k| !self.vanishing[k])
    }

    /// The Jacobian with the rows of held alphas replaced: these alphas do not move.
    fn hold(&self, mut jacobian: Matrix) -> Matrix {
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
    pub(crate) fn distance(&self, model: &Model) -> f64 {
        self.positions()
            .filter(|&k| !model.is_unpenalized(k))
            .map(|k| model.factors(k).change_from(model.alpha[k]))
            .fold(0.0, f64::max)
    }

    /// Whether R may be round-off only. Sigma_kk has a relative error of the unit round-off times H_kk Sigma_kk because its
    /// inverse cancels, and mu loses at least as much in sums of weights that cancel. Where that error exceeds the
    /// tolerance, a step reduces R only by chance, and a search for such a step may not end.
    pub(crate) fn is_rounding(&self, model: &Model) -> bool {
        self.distance(model) <= 2.0 * f64::EPSILON * model.cancellation()
    }
}

/// |mu_k|, at least the smallest positive number.
fn mean_size(model: &Model, k: usize) -> f64 {
    model.mu()[k].abs().max(f64::MIN_POSITIVE)
}

/// mu_k^2 - 2 c (Sigma - Sigma A Sigma)_kk, at least the smallest positive number.
fn mean_square(model: &Model, k: usize) -> f64 {
    let prior = 2.0 * model.complexity * model.sampling_variance(k, 0);
    (model.mu()[k].powi(2) - prior).max(f64::MIN_POSITIVE)
}

/// dR / dx.
fn jacobian(stats: &mut dyn Statistics, model: &Model) -> Result<Matrix> {
    let drift = stats.variance_drift(&model.active, model.reference(), model.sigma())?;
    let (alpha, mu, sigma, m) = (&model.alpha, model.mu(), model.sigma(), model.len());
    // gamma = s / (alpha + s) avoids the cancellation in 1 - alpha Sigma.
    let gamma_of = |k: usize| {
        let s = model.sparsity(k);
        s / (alpha[k] + s)
    };
    let gamma: Vec<f64> = (0..m).map(gamma_of).collect();
    let complexity = model.complexity;
    let columns = 0..if complexity > 0.0 { m } else { 0 };
    let squares: Vec<f64> = columns.clone().map(|j| mean_square(model, j)).collect();
    let (n, values) = (
        columns.len(),
        columns.flat_map(|k| model.shrunk_covariances(k, 0)),
    );
    let shrunk = Matrix::from_iterator(m, n, values);
    let sampling = if complexity > 0.0 {
        drift_of_sampling_variances(stats, model, &drift, &shrunk)?
    } else {
        Matrix::zeros(0, 0)
    };
    Ok(Matrix::from_fn(m, m, |j, k| {
        let (size, prior) = (mean_size(model, j), model.priors[j]);
        let own = if j == k { sigma[(j, j)] } else { 0.0 };
        let d_variance = alpha[k] * (mu[k] * drift[(j, k)] - sigma[(j, k)] * sigma[(j, k)]);
        let d_ln_gamma = -alpha[j] * (own + d_variance) / (gamma[j] + 2.0 * prior.shape);
        let d_ln_square = if complexity > 0.0 {
            let d_mean = -2.0 * mu[j] * alpha[k] * mu[k] * sigma[(j, k)];
            let d_sampling = alpha[k] * mu[k] * sampling[(j, k)]
                - 2.0 * alpha[k] * sigma[(j, k)] * (sigma[(j, k)] - shrunk[(j, k)]);
            (d_mean - 2.0 * complexity * d_sampling) / (squares[j] + 2.0 * prior.rate)
        } else {
            // d ln(mu^2 + 2 b) = 2 |mu| d |mu| / (mu^2 + 2 b)
            let d_size = -mu[j] / size * alpha[k] * mu[k] * sigma[(j, k)];
            2.0 * d_size / (size + 2.0 * prior.rate / size)
        };
        d_ln_gamma - d_ln_square - if j == k { 1.0 } else { 0.0 }
    }))
}

/// For `V = Sigma - Sigma A Sigma`, whose change with B is `d V_jj / d x_k = alpha_k mu_k (D_jk - 2 E_jk)`: D - 2 E.
///
/// `D_jk = T(u_j, u_j, u_k)` with u_j = Phi Sigma_j and T, linear in each argument, the change of B with the linear predictor.
/// `E_jk = T(u_j, w_j, u_k)` with w_j = Phi (Sigma A Sigma)_j. Drifts of Sigma + t Sigma A Sigma are cubic in t, with the first coefficient
/// `2 T(u_j, w_j, u_k) + T(u_j, u_j, w_k)`, of which the second term is D A Sigma.
fn drift_of_sampling_variances(
    stats: &mut dyn Statistics,
    model: &Model,
    drift: &Matrix,
    shrunk: &Matrix,
) -> Result<Matrix> {
    let m = model.len();
    let sigma = model.sigma().view((0, 0), (m, m)).into_owned();
    let mut of = |s: &Matrix| stats.variance_drift(&model.active, model.reference(), s);
    let odd = (of(&(&sigma + shrunk))? - of(&(&sigma - shrunk))?) * 0.5;
    let first = odd - of(shrunk)?;
    let weighted = Matrix::from_fn(m, m, |j, k| drift[(j, k)] * model.alpha[k]);
    Ok(drift - first + weighted * sigma)
}

/// The step d with `R + J d = 0` in the free rows and d = `given` in the others; `None` if that system is singular.
fn solve(jacobian: &Matrix, r: &[f64], free: &[bool], given: f64) -> Option<Vec<f64>> {
    let rows: Vec<usize> = (0..r.len()).filter(|&k| free[k]).collect();
    if rows.is_empty() {
        return Some(vec![given; r.len()]);
    }
    let matrix = Matrix::from_fn(rows.len(), rows.len(), |a, b| jacobian[(rows[a], rows[b])]);
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
fn stepped(model: &Model, direction: &[f64], length: f64) -> Vec<f64> {
    let limit = Tuning::MAX_LN_CHANGE;
    let next = |k: usize| {
        let (alpha, s, dx) = (model.alpha[k], model.sparsity(k), length * direction[k]);
        let next = if alpha < s {
            alpha * dx.clamp(-limit, limit).exp()
        } else {
            alpha / (1.0 - dx).max((-limit).exp())
        };
        bounded(model, k, next)
    };
    (0..model.len()).map(next).collect()
}

impl Fit<'_, '_> {
    /// Brings the active set to the fixed point: by Newton's method, and by Rprop to a closer start where Newton's method stalls. Returns
    /// whether it converged.
    pub(crate) fn solve_fixed_point(&mut self, tol: f64) -> Result<bool, Stop> {
        let mut near = 0.1;
        loop {
            let before = self.model.alpha.clone();
            if self.newton(tol)? {
                return Ok(true);
            }
            if Residual::of(self.model).is_rounding(self.model) {
                return Ok(false);
            }
            // From the same alphas Newton's method would stall again.
            let stuck = self.model.alpha == before;
            let mut moved = false;
            while !moved {
                if near <= tol {
                    return Ok(false);
                }
                near *= 0.2;
                moved = self.rprop(near)? || !stuck;
            }
        }
    }

    /// Newton's method to the fixed point. Functions whose alpha tends to infinity are deleted once the others have converged. Returns
    /// whether all have.
    pub(crate) fn newton(&mut self, tol: f64) -> Result<bool, Stop> {
        self.record_mode()?;
        for _ in 0..Tuning::MAX_STEPS {
            let here = Residual::of(self.model);
            if here.distance(self.model) <= tol {
                if !here.vanishing.contains(&true) {
                    return Ok(true);
                }
                self.delete_marked(&here.vanishing)?;
                continue;
            }
            let jacobian = here.hold(jacobian(self.stats, self.model)?);
            let moved = if here.is_rounding(self.model) {
                self.damped_step(&jacobian, &here, 1)?
            } else {
                self.damped_step(&jacobian, &here, Tuning::MAX_HALVINGS)?
                    || self.josephy_newton_step(&jacobian, &here)?
            };
            if !moved {
                return Ok(false);
            }
            self.record(Action::Joint, None)?;
        }
        Ok(false)
    }

    /// Takes the first of `n_lengths` Newton steps, each half as long as the one before, that reduces R enough.
    /// Returns `false`, with the model restored, if none does.
    fn damped_step(
        &mut self,
        jacobian: &Matrix,
        here: &Residual,
        n_lengths: usize,
    ) -> Result<bool> {
        let Some(direction) = solve(jacobian, &here.values, &here.retained(), 0.0) else {
            return Ok(false);
        };
        let before = self.model.clone();
        let mut length = 1.0;
        for _ in 0..n_lengths {
            let alphas = stepped(&before, &direction, length);
            if self.model.set_alphas(&alphas).is_ok() {
                self.find_mode()?;
                if Residual::of(self.model).norm() < (1.0 - 0.1 * length) * here.norm() {
                    return Ok(true);
                }
            }
            self.model.clone_from(&before);
            length *= 0.5;
        }
        Ok(false)
    }

    /// Deletes the marked functions, and finds the mode without them.
    fn delete_marked(&mut self, marked: &[bool]) -> Result<(), Stop> {
        for k in (0..marked.len()).rev().filter(|&k| marked[k]) {
            let j = self.model.active[k];
            let gain = self.model.factors(k).gain_of_deleting(self.model.alpha[k]);
            self.model.delete(k);
            self.record(Action::Delete(j), Some(gain))?;
        }
        self.record_mode()
    }

    /// Rprop (Riedmiller & Braun 1993) with R as the gradient: each alpha follows the sign of its R with its own step, which
    /// grows while the sign stays the same and halves when it changes. Returns whether any step was taken.
    ///
    /// Slow but robust: where R demands alpha = infinity, but not at the alpha that a Newton step predicts, R changes its sign
    /// in between, and halving finds the root. Ends within `near` of the fixed point, at the round-off of R, or after [`Tuning::MAX_STEPS`] rounds.
    fn rprop(&mut self, near: f64) -> Result<bool, Stop> {
        self.find_mode()?;
        let mut steps = vec![(0.5_f64, 0.0); self.model.len()];
        for round in 0..Tuning::MAX_STEPS {
            let here = Residual::of(self.model);
            if here.distance(self.model) <= near || here.is_rounding(self.model) {
                return Ok(round > 0);
            }
            let mut alphas = Vec::with_capacity(self.model.len());
            for (k, ((step, last), &r)) in steps.iter_mut().zip(&here.values).enumerate() {
                *step = if *last * r < 0.0 {
                    *step * 0.5
                } else {
                    (*step * 1.3).min(Tuning::MAX_LN_CHANGE)
                };
                *last = r;
                let change = if r == 0.0 { 0.0 } else { step.copysign(r) };
                alphas.push(bounded(self.model, k, self.model.alpha[k] * change.exp()));
            }
            self.model.set_alphas(&alphas)?;
            self.find_mode()?;
            self.record(Action::Joint, None)?;
        }
        Ok(true)
    }

    /// Newton steps that refine a fixed point from the tolerance to round-off, in the alphas and in the mode, so that the
    /// published result does not depend on the order in which sums over rows were accumulated.
    pub(crate) fn refine_to_rounding(&mut self) -> Result<(), Stop> {
        let mut best = self.model.clone();
        match self.take_full_steps(&mut best) {
            Ok(()) => {}
            Err(Error::NotPositiveDefinite(_)) => self.model.clone_from(&best),
            Err(error) => return Err(error.into()),
        }
        match self.record(Action::Joint, None) {
            // The fit has converged in any case.
            Err(Stop::MaxIterations) => Ok(()),
            outcome => outcome,
        }
    }

    /// The steps of [`refine_to_rounding`]. `best` is the most accurate model so far. Newton steps to the mode are full ones: so close to
    /// it the likelihood cannot tell whether a step raises it.
    fn take_full_steps(&mut self, best: &mut Model) -> Result<()> {
        self.relinearise()?;
        for _ in 0..2 {
            let here = Residual::of(self.model);
            best.clone_from(self.model);
            if here.distance(self.model) <= Tuning::ROUNDING || here.vanishing.contains(&true) {
                break;
            }
            let jacobian = here.hold(jacobian(self.stats, self.model)?);
            let Some(direction) = solve(&jacobian, &here.values, &here.retained(), 0.0) else {
                break;
            };
            self.model
                .set_alphas(&stepped(self.model, &direction, 1.0))?;
            self.relinearise()?;
            // False for NaN.
            if Residual::of(self.model).norm() < here.norm() {
                continue;
            }
            self.model.clone_from(best);
            break;
        }
        Ok(())
    }
}

impl Fit<'_, '_> {
    /// Takes the first solution of the linearised problem that reduces R, by itself or with a few Newton steps from its end.
    /// Returns `false`, with the model restored, if none does.
    fn josephy_newton_step(&mut self, jacobian_here: &Matrix, here: &Residual) -> Result<bool> {
        // With a smaller R only round-off prevents progress, and other choices of functions do not help.
        let n_trials = if here.norm() < Tuning::LOOSE_TOL {
            1
        } else {
            scaled_budget(Tuning::JOSEPHY_TRIALS, self.model.len(), 2)
        };
        let before = self.model.clone();
        for step in complementary_steps(jacobian_here, here).take(n_trials) {
            let alpha = |k: usize| {
                let alpha = before.alpha[k] / (1.0 - step[k]).max(0.0);
                bounded(&before, k, alpha)
            };
            let alphas: Vec<f64> = (0..before.len()).map(alpha).collect();
            if self.model.set_alphas(&alphas).is_ok() {
                self.find_mode()?;
                for _ in 0..Tuning::MAX_HALVINGS {
                    let there = Residual::of(self.model);
                    if there.norm() < 0.9 * here.norm() {
                        return Ok(true);
                    }
                    let jacobian = there.hold(jacobian(self.stats, self.model)?);
                    if !self.damped_step(&jacobian, &there, Tuning::MAX_HALVINGS)? {
                        break;
                    }
                }
            }
            self.model.clone_from(&before);
        }
        Ok(false)
    }
}

/// Solutions of the linearised complementarity problem, found by guessing the set of positive variances and correcting
/// the guess. There may be several solutions; the guess decides which one is found.
///
/// A step d is relative and in the prior variance, `1/alpha (1 - d)`: where one function is about to replace a nearly
/// equal one, R is far from linear in ln alpha, but almost linear in the variances.
fn complementary_steps<'a>(
    jacobian: &'a Matrix,
    here: &'a Residual,
) -> impl Iterator<Item = Vec<f64>> + 'a {
    let retained = here.retained();
    let mut search = ActiveSetSearch {
        jacobian,
        r: &here.values,
        seen: BTreeSet::new(),
        systems_left: scaled_budget(64 * Tuning::JOSEPHY_TRIALS, retained.len(), 3),
    };
    let guesses = std::iter::once(retained.clone()).chain((0..retained.len()).map(move |k| {
        let mut guess = retained.clone();
        guess[k] = false;
        guess
    }));
    guesses.filter_map(move |guess| search.solve_from(guess))
}

/// `budget` for models of up to 100 functions; for larger ones the share with the same cost, where the cost of one item grows
/// with this power of the number of functions. At least 1.
fn scaled_budget(budget: usize, n_alphas: usize, power: u32) -> usize {
    let share = budget * 100_usize.pow(power) / n_alphas.max(100).saturating_pow(power);
    share.max(1)
}

/// The search for sets of positive variances that solve the linearised problem.
struct ActiveSetSearch<'a> {
    jacobian: &'a Matrix,
    r: &'a [f64],
    /// Sets that were tried: from one of them the same corrections would follow.
    seen: BTreeSet<Vec<bool>>,
    systems_left: usize,
}

impl ActiveSetSearch<'_> {
    /// The solution that follows from one guess, unless it was found before.
    fn solve_from(&mut self, mut free: Vec<bool>) -> Option<Vec<f64>> {
        loop {
            if self.systems_left == 0 || !self.seen.insert(free.clone()) {
                return None;
            }
            self.systems_left -= 1;
            let step = solve(self.jacobian, self.r, &free, 1.0)?;
            let corrected = self.corrected(&free, &step);
            if corrected == free {
                return Some(step);
            }
            free = corrected;
        }
    }

    /// The set of positive variances that is consistent with `step`, the solution for `free`.
    fn corrected(&self, free: &[bool], step: &[f64]) -> Vec<bool> {
        let n = self.r.len();
        let is_free = |k: usize| {
            if free[k] {
                return step[k] < 1.0;
            }
            let change: f64 = (0..n).map(|i| self.jacobian[(k, i)] * step[i]).sum();
            self.r[k] + change < 0.0
        };
        (0..n).map(is_free).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DenseDesign, SoftmaxStatistics};
    use crate::fit::evidence::{Gamma, Priors};
    use crate::fit::laplace::mode::find_mode;
    use crate::fit::settings::NoisePrecision;

    const N: usize = 60;
    const K: usize = 4;
    const CLASSES: usize = 3;

    fn wave(i: usize, frequency: f64) -> f64 {
        (frequency * (i as f64 + 0.5)).sin()
    }

    /// The mode at these alphas of a model with one column for each of three classes, and a second one for the first.
    fn at(stats: &mut SoftmaxStatistics<'_>, alphas: &[f64], complexity: f64) -> Model {
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut model = Model::empty(&[NoisePrecision::fixed(1.0)], Gamma::FLAT, &[deviance], 0.0);
        model.complexity = complexity;
        let functions = [0, K + 2, 2 * K + 3, 3];
        model.fill(&functions, &[1.0; 4], &Priors::default(), None);
        find_mode(stats, &mut model).unwrap();
        model.set_alphas(alphas).unwrap();
        find_mode(stats, &mut model).unwrap();
        model
    }

    #[test]
    fn the_jacobian_equals_finite_differences_of_the_residual() {
        let values = (0..N * K).map(|i| wave(i, 0.37) + 0.3 * wave(i * i, 0.11));
        let design = DenseDesign::new(values.collect::<Vec<f64>>(), N, K).unwrap();
        let target: Vec<f64> = (0..N).map(|i| ((i * i + i / 7) % CLASSES) as f64).collect();
        let mut stats = SoftmaxStatistics::new(&design, &target, None).unwrap();
        let alphas = [0.5, 2.0, 8.0, 1.0];
        let h: f64 = 1e-4;
        for (complexity, b) in [0.0, 0.005]
            .into_iter()
            .flat_map(|c| (0..4).map(move |b| (c, b)))
        {
            let model = at(&mut stats, &alphas, complexity);
            let expected = jacobian(&mut stats, &model).unwrap();
            let mut moved = |factor: f64| {
                let mut there = alphas;
                there[b] *= factor;
                Residual::of(&at(&mut stats, &there, complexity)).values
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
