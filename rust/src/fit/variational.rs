//! The variational RVM of Bishop & Tipping (2000): q(w) q(alpha) q(beta), from the full basis, with pruning.
//!
//! With priors Gamma(a, b) and Gamma(c, d) the factors are
//!
//! * q(w) = Normal(mu, Sigma), Sigma^-1 = diag(E\[alpha\]) + E\[beta\] Phi^T Phi, mu = E\[beta\] Sigma Phi^T t;
//! * `q(alpha_i)` = Gamma(a + 1/2, b + (`mu_i`^2 + `Sigma_ii`) / 2);
//! * q(beta) = Gamma(c + N/2, d + <||t - Phi w||^2> / 2).
//!
//! Each Gamma has a fixed shape and is determined by its mean. So the lower bound, at the optimal q(w), is a function of
//! E\[alpha\] and E\[beta\] alone: it is stationary where their updates leave them unchanged, and it equals
//! `ln p(t | <alpha>, <beta>) + sum (a ln <alpha_i> - b <alpha_i>) + c ln <beta> - d <beta>`, the objective of the other
//! schemes, plus constants ([`offset`]). Every step that raises that objective therefore raises the bound.
//!
//! The likelihood of a class is bounded, row by row, by a Gaussian with a parameter xi (Jaakkola & Jordan 2000), optimal at
//! `xi_n^2 = <(w^T phi_n)^2>`. Given the E\[alpha\], the bound is concave in the mean and the Cholesky factor of Sigma: `ln cosh` of
//! half the norm `(<eta_n^2>)^1/2` is convex in them. So it has one maximum, to which alternating updates of xi and q(w) converge, with
//! one more digit in 20 to 100 rounds. Between rounds the mean and the factor are therefore extrapolated by squared steps
//! (SQUAREM: Varadhan & Roland 2008): all values of these are moments of some q(w) and give a valid bound, which is kept if
//! it is higher.
//!
//! The updates above converge slowly. MacKay's updates, which go further in the same direction, are taken instead where
//! they raise the bound. A function whose E\[alpha\] tends to infinity is deleted if that raises the bound, and added again if
//! that raises it.

use crate::Result;
use crate::fit::context::Fit;
use crate::fit::evidence::Gamma;
use crate::fit::full_basis::Hyperparameters;
use crate::fit::model::Model;
use crate::fit::record::{Action, Offset, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Plateau;
use crate::fit::settings::{Noise, Scheme};
use crate::fit::tuning::{Effort, Tuning};
use crate::linalg::{Cholesky, Matrix};
use crate::model::Status;

impl Fit<'_, '_> {
    /// The variational scheme, from the full basis to convergence.
    pub(crate) fn variational(&mut self) -> Result<Status, Stop> {
        self.recorder.offset = self.bound_offset();
        let status = self.maximize_bound();
        self.stats.remove_bound();
        status
    }

    /// [`Fit::variational`] on bounds of the likelihood, which it leaves in place.
    fn maximize_bound(&mut self) -> Result<Status, Stop> {
        self.fill_bounded()?;
        self.recorder.begin(self.model);
        self.update_until_near()?;
        self.or_roll_back(Action::Joint, Fit::finish_bound)
    }

    /// The difference between the bound and the objective of the other schemes.
    ///
    /// With A = a + 1/2 a function contributes `E[ln p(w | alpha)] - KL(q(alpha) || p(alpha))` to the bound, which is
    /// `(ln <alpha> - ln 2 pi - <alpha> <w^2>) / 2 + a ln <alpha> - b <alpha>` and
    /// `ln Gamma(A) - ln Gamma(a) - A ln A + A + a ln b`; the objective subtracts `a ln(a / b) - a`. For beta, A = c + N / 2, and
    /// the objective subtracts nothing. The constants of an improper prior are infinite for every model, and left out.
    fn bound_offset(&self) -> Offset {
        let ([a, b], [c, d]) = (self.rules.alpha_prior, self.rules.noise_prior);
        let facts = self.stats.facts();
        let per_function = if a > 0.0 && b > 0.0 {
            entropy_like(a, 0.5) + a * a.ln() - a
        } else {
            0.0
        };
        let whole = match self.rules.noise {
            _ if !facts.is_linear => 0.0,
            // The objective includes the prior of a fixed beta; the bound does not.
            Noise::Fixed(_) => {
                let (Gamma { shape, rate }, beta) = (self.model.noise_prior, self.model.beta());
                rate * beta - shape * (beta / (facts.target_scale * facts.target_scale)).ln()
            }
            Noise::Estimated if c > 0.0 && d > 0.0 => {
                entropy_like(c, 0.5 * facts.n_obs) + c * d.ln()
            }
            Noise::Estimated => 0.0,
        };
        Offset {
            per_function,
            whole,
        }
    }

    /// Puts all functions into an empty model, and makes the local bounds tight at the prior.
    fn fill_bounded(&mut self) -> Result<()> {
        let (all, alpha) = self.full_start();
        let cancel = self.stats.facts().cancel.clone();
        let priors = self.dictionary.priors();
        self.model.fill(&all, &alpha, priors, cancel.as_ref());
        let sigma = &mut self.model.levels[0].sigma;
        sigma.fill(0.0);
        sigma.fill_diagonal(1.0 / Tuning::INITIAL_ALPHA);
        self.tighten()?;
        if self.stats.facts().is_linear {
            self.model.expand_about(self.stats, &vec![0.0; all.len()])?;
            self.model.recentre(self.stats)?;
        }
        Ok(())
    }

    /// Makes the bound tight at the present q(w), and recomputes q(w). For a Gaussian likelihood only the provider is informed.
    fn tighten(&mut self) -> Result<()> {
        let model = &mut *self.model;
        self.stats.bound(&model.active, model.mu(), model.sigma())?;
        if self.stats.facts().is_linear {
            return Ok(());
        }
        self.relinearise()
    }

    /// Updates all factors, and prunes, until they change little.
    fn update_until_near(&mut self) -> Result<(), Stop> {
        for _ in 0..Tuning::MAX_STEPS {
            let moved = self.update_bound()?;
            self.record(Action::Joint, None)?;
            let pruned = self.prune(moved)?;
            self.model.recentre(self.stats)?;
            if moved <= Tuning::COARSE_TOL && !pruned {
                break;
            }
        }
        Ok(())
    }

    /// Updates all factors: by MacKay's update where it raises the bound, by the update of the paper otherwise (the EM objective is concave
    /// in each logarithm, so a shortened update raises the bound too). Returns the largest change of a logarithm. If the factorisation
    /// fails at the new values, the model stays as it is.
    fn update_bound(&mut self) -> Result<f64> {
        let before = Hyperparameters::of(self.model);
        let bound = self.model.log_posterior();
        let updated =
            |scheme| Hyperparameters::updated(self.model, scheme, Tuning::MAX_BETA_GROWTH);
        let (em, mackay) = (updated(Scheme::Em), updated(Scheme::MacKay));
        self.model.alpha.copy_from_slice(&mackay.alpha);
        self.model.levels[0].noise.beta = mackay.beta;
        let rose = self.advance().is_ok() && self.model.log_posterior() >= bound;
        if !rose
            && self
                .model
                .set_hyperparameters(&em.alpha, &[em.beta])
                .is_err()
        {
            self.model
                .set_hyperparameters(&before.alpha, &[before.beta])?;
        }
        self.model.recentre(self.stats)?;
        Ok(before.distance(&Hyperparameters::of(self.model)))
    }

    /// Recomputes the posterior after a change of the hyperparameters, with local bounds that are tight at the old one.
    fn advance(&mut self) -> Result<()> {
        if self.stats.facts().is_linear {
            self.model.recompute()?;
            return self.model.recentre(self.stats);
        }
        self.tighten()
    }

    /// Converges on the active set, and adds functions that were pruned too early. `good` receives each converged model; `None` asks for a
    /// return to it.
    fn finish_bound(&mut self, good: &mut Model) -> Result<Option<Status>, Stop> {
        self.dictionary.penalty = -self.recorder.offset.per_function;
        let effort = Effort {
            tol: self.rules.tol,
            ..Tuning::FINE_EFFORT
        };
        loop {
            let converged = if self.stats.facts().is_linear {
                self.refine(effort)?
            } else {
                self.converge_bounds(effort)?
            };
            if self.has_fallen_below(good) {
                return Ok(None);
            }
            good.clone_from(self.model);
            let model = &*self.model;
            self.stats.bound(&model.active, model.mu(), model.sigma())?;
            self.refresh()?;
            if self.add_block(Tuning::MAX_BLOCK_ADDITIONS)? == 0 {
                return Ok(Some(self.ending(converged, false)));
            }
        }
    }

    /// Converges to the joint maximum in the E\[alpha\] of the active set and xi. Deletes functions that gain almost nothing: those whose
    /// E\[alpha\] is lost in round-off, as at the maximum q^2 / s - 1 is s / alpha, a difference that loses alpha / s times its relative
    /// precision. Such a function gains (s / alpha)^2 / 4 nats. Returns whether it converged.
    fn converge_bounds(&mut self, effort: Effort) -> Result<bool, Stop> {
        loop {
            let converged = self.converge_squarem(effort)?;
            let deleted = self.delete_where(|factors, alpha, gain| {
                alpha >= 5.0 * Tuning::MAX_ALPHA_RATIO * factors.first.s
                    && gain >= -0.1 * Tuning::MIN_GAIN
            })?;
            if !deleted {
                return Ok(converged);
            }
        }
    }

    fn converge_squarem(&mut self, effort: Effort) -> Result<bool, Stop> {
        let fine = Effort {
            tol: Tuning::SAFETY * Tuning::SAFETY * effort.tol,
            ..effort
        };
        self.refine(fine)?;
        let (mut nearest, mut cycles_without_progress, mut slow) = (f64::INFINITY, 0, 1.0_f64);
        let (mut plateau, mut at_rest) = (Plateau::new(), true);
        let mut extrapolates = true;
        while cycles_without_progress < Tuning::MAX_STEPS / 2 {
            let start = Moments::of(self.model)?;
            let Some(once) = self.round(fine)? else {
                continue;
            };
            let before = Hyperparameters::of(self.model);
            let Some(twice) = self.round(fine)? else {
                continue;
            };
            let change = before.distance(&Hyperparameters::of(self.model));
            let path = [start, once, twice];
            let squared = SquaredStep::of(&path);
            // A squared step may hide the slowest direction from the next one.
            slow = squared.stride.max(0.5 * slow);
            let distance = slow * change.max(squared.last_change);
            if distance <= Tuning::SAFETY * effort.tol {
                break;
            }
            // At the level of round-off the strides are random, and so is `distance`.
            if plateau.length_at(self.model.log_posterior()) >= Tuning::MAX_STEPS / 2 {
                at_rest = change <= Tuning::SAFETY * effort.tol;
                break;
            }
            cycles_without_progress = if distance < nearest {
                0
            } else {
                cycles_without_progress + 1
            };
            nearest = nearest.min(distance);
            // An extrapolation that cycled at the level of round-off takes long, and so would the next.
            if squared.stride > 1.0 && extrapolates {
                let moments = squared.end(&path);
                extrapolates = self.extrapolate(&moments, fine)?;
            }
        }
        let ended = cycles_without_progress < Tuning::MAX_STEPS / 2 && at_rest;
        Ok(ended && refine::residual(self.model, effort) <= effort.tol)
    }

    /// The moments after one round of xi and alphas. `None` if a function was deleted: earlier moments then belong to another model.
    fn round(&mut self, effort: Effort) -> Result<Option<Moments>, Stop> {
        let size = self.model.len();
        self.tighten()?;
        self.record(Action::Joint, None)?;
        self.refine(effort)?;
        if self.model.len() < size {
            return Ok(None);
        }
        Ok(Some(Moments::of(self.model)?))
    }

    /// Moves to the bound that is tight at these moments, if it is higher there. Returns `false` if the alphas cycled under that
    /// bound.
    fn extrapolate(&mut self, moments: &Moments, effort: Effort) -> Result<bool, Stop> {
        let before = self.model.clone();
        self.stats
            .bound(&before.active, &moments.mu, &moments.covariance())?;
        let expanded = self.model.expand_about(self.stats, before.mu());
        let silent = &mut Recorder::silent();
        let outcome = expanded
            .map_err(Stop::from)
            .and_then(|()| refine::converge(self.stats, self.model, effort, silent));
        match outcome {
            Ok(_) if self.model.log_posterior() > before.log_posterior() => {
                self.record(Action::Joint, None)?;
                Ok(true)
            }
            Err(Stop::Failed(crate::Error::Interrupted)) => Err(crate::Error::Interrupted.into()),
            outcome => {
                self.model.clone_from(&before);
                Ok(!matches!(outcome, Err(Stop::MaxIterations)))
            }
        }
    }
}

/// ln Gamma(A) - ln Gamma(a) - A ln A + A for A = a + `half`.
fn entropy_like(a: f64, half: f64) -> f64 {
    let full = a + half;
    libm::lgamma(full) - libm::lgamma(a) - full * full.ln() + full
}

/// Mean and Cholesky factor of a covariance.
#[derive(Clone)]
struct Moments {
    mu: Vec<f64>,
    /// Lower triangle, row by row.
    factor: Vec<f64>,
}

impl Moments {
    /// The moments of q(w).
    fn of(model: &Model) -> Result<Self> {
        let m = model.len();
        let mut chol = Cholesky::with_capacity(m.max(1));
        chol.refactor(m, |i, j| model.sigma()[(i, j)])?;
        let rows = (0..m).flat_map(|i| (0..=i).map(move |j| (i, j)));
        Ok(Self {
            mu: model.mu().to_vec(),
            factor: rows.map(|(i, j)| chol.get(i, j)).collect(),
        })
    }

    fn covariance(&self) -> Matrix {
        let m = self.mu.len();
        let row = |i: usize| &self.factor[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
        Matrix::from_fn(m, m, |i, j| {
            row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum()
        })
    }

    /// All values in units of the standard deviations of `unit`: the mean and row i of the factor over the length of its row i.
    fn in_units_of<'a>(&'a self, unit: &'a Self) -> impl Iterator<Item = f64> + 'a {
        let row = |i: usize| i * (i + 1) / 2..(i + 1) * (i + 2) / 2;
        (0..self.mu.len()).flat_map(move |i| {
            let length: f64 = unit.factor[row(i)].iter().map(|l| l * l).sum();
            let length = length.sqrt();
            let entries = std::iter::once(self.mu[i]).chain(self.factor[row(i)].iter().copied());
            entries.map(move |value| value / length)
        })
    }

    fn combined(parts: [(&Self, f64); 3]) -> Self {
        let combine = |values: fn(&Self) -> &[f64]| {
            let n = values(parts[0].0).len();
            let at = |i: usize| parts.iter().map(|(p, c)| c * values(p)[i]).sum();
            (0..n).map(at).collect()
        };
        Self {
            mu: combine(|p| &p.mu),
            factor: combine(|p| &p.factor),
        }
    }
}

/// The squared step of Varadhan & Roland (2008), scheme S3: x - 2 s r + s^2 v, with r and v the first and second
/// differences of three points and s = -|r| / |v|, in units of the standard deviations at the first.
struct SquaredStep {
    /// -s, at least 1: about 1 / (1 - rate of convergence), the ratio of the remaining distance to the last change.
    stride: f64,
    /// Largest change between the last two points.
    last_change: f64,
}

impl SquaredStep {
    fn of([start, once, twice]: &[Moments; 3]) -> Self {
        let pairs = start.in_units_of(start).zip(once.in_units_of(start));
        let (mut first, mut second, mut last_change) = (0.0, 0.0, 0.0_f64);
        for ((x0, x1), x2) in pairs.zip(twice.in_units_of(start)) {
            let (r, v) = (x1 - x0, (x2 - x1) - (x1 - x0));
            first += r * r;
            second += v * v;
            last_change = last_change.max((x2 - x1).abs());
        }
        let ratio: f64 = first / second;
        let stride = if ratio.is_finite() {
            ratio.sqrt().max(1.0)
        } else {
            1.0
        };
        Self {
            stride,
            last_change,
        }
    }

    /// x0 + 2 k (x1 - x0) + k^2 (x2 - 2 x1 + x0), where k is the stride.
    fn end(&self, [start, once, twice]: &[Moments; 3]) -> Moments {
        let k = self.stride;
        Moments::combined([
            (start, (1.0 - k) * (1.0 - k)),
            (once, 2.0 * k * (1.0 - k)),
            (twice, k * k),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments of two weights with values `end + rate^k` times 1, -2, 3, ...
    fn at(k: i32, rate: f64) -> Moments {
        let ends = [1.0, -2.0, 3.0, 0.5, 2.0];
        let value = |i: usize| ends[i] + rate.powi(k) * ends[(i + 2) % 5];
        Moments {
            mu: vec![value(0), value(1)],
            factor: vec![value(2), value(3), value(4)],
        }
    }

    #[test]
    fn a_squared_step_reaches_the_limit_along_one_slow_direction() {
        for rate in [0.5, 0.9, 0.99] {
            let path = [at(0, rate), at(1, rate), at(2, rate)];
            let squared = SquaredStep::of(&path);
            assert!((squared.stride * (1.0 - rate) - 1.0).abs() < 1e-9, "{rate}");
            let (found, end) = (squared.end(&path), at(i32::MAX, rate));
            let pairs = found.mu.iter().zip(&end.mu);
            for (a, b) in pairs.chain(found.factor.iter().zip(&end.factor)) {
                assert!((a - b).abs() < 1e-9, "{rate}: {a} {b}");
            }
        }
    }
}
