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
//! `xi_n^2 = <(w^T phi_n)^2>`: [`local_bounds`].
//!
//! The updates above converge slowly. MacKay's updates, which go further in the same direction, are taken instead where
//! they raise the bound. A function whose E\[alpha\] tends to infinity is deleted if that raises the bound, and added again if
//! that raises it.

mod local_bounds;

use crate::Result;
use crate::data::Statistics;
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::full_basis::{new_alpha, new_beta, prune};
use crate::fit::laplace::mode::expand_about;
use crate::fit::model::State;
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::{Action, Offset, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Refined;
use crate::fit::rollback::{evidence_fell, roll_back, roll_back_if_indefinite};
use crate::fit::settings::{Noise, Rules, Scheme};
use crate::fit::tuning::{Effort, Tuning};

/// Fits from the full basis to convergence; `state` is an empty model.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    recorder.offset = offset(stats, state, rules);
    let status = climb(stats, state, priors, rules, recorder);
    stats.remove_bound();
    status
}

/// [`fit`] on bounds of the likelihood, which it leaves in place.
fn climb(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    fill(stats, state, priors)?;
    recorder.begin(state);
    approach(stats, state, recorder)?;
    let mut good = state.clone();
    let outcome = finish(stats, state, &mut good, priors, rules, recorder);
    roll_back_if_indefinite(outcome, state, &good, Action::Joint, recorder)
}

/// The difference between the bound and the objective of the other schemes.
///
/// With A = a + 1/2 a function contributes `E[ln p(w | alpha)] - KL(q(alpha) || p(alpha))` to the bound, which is
/// `(ln <alpha> - ln 2 pi - <alpha> <w^2>) / 2 + a ln <alpha> - b <alpha>` and
/// `ln Gamma(A) - ln Gamma(a) - A ln A + A + a ln b`; the objective subtracts `a ln(a / b) - a`. For beta, A = c + N / 2, and
/// the objective subtracts nothing. The constants of an improper prior are infinite for every model, and left out.
fn offset(stats: &dyn Statistics, state: &State, rules: &Rules) -> Offset {
    let [a, b] = rules.alpha_prior;
    let [c, d] = rules.noise_prior;
    let scale = stats.facts().target_scale;
    let per_function = if a > 0.0 && b > 0.0 {
        entropy_like(a, 0.5) + a * a.ln() - a
    } else {
        0.0
    };
    let whole = match rules.noise {
        _ if !stats.facts().is_linear => 0.0,
        // The objective includes the prior of a fixed beta; the bound does not.
        Noise::Fixed(_) => {
            let Gamma { shape, rate } = state.noise_prior;
            rate * state.beta() - shape * (state.beta() / (scale * scale)).ln()
        }
        Noise::Estimated if c > 0.0 && d > 0.0 => {
            entropy_like(c, 0.5 * stats.facts().n_obs) + c * d.ln()
        }
        Noise::Estimated => 0.0,
    };
    Offset {
        per_function,
        whole,
    }
}

/// ln Gamma(A) - ln Gamma(a) - A ln A + A for A = a + `half`.
fn entropy_like(a: f64, half: f64) -> f64 {
    let full = a + half;
    libm::lgamma(full) - libm::lgamma(a) - full * full.ln() + full
}

/// Puts all functions into an empty model, and makes the local bounds tight at the prior.
fn fill(stats: &mut dyn Statistics, state: &mut State, priors: &Priors) -> Result<()> {
    let all: Vec<usize> = (0..stats.facts().n_basis())
        .filter(|&i| stats.facts().norms[i] > 0.0)
        .collect();
    state.fill(
        &all,
        Tuning::INITIAL_ALPHA,
        priors,
        stats.facts().cancel.as_ref(),
    );
    state.sigma_mut().fill(0.0);
    state.sigma_mut().fill_diagonal(1.0 / Tuning::INITIAL_ALPHA);
    local_bounds::tighten(stats, state)?;
    if stats.facts().is_linear {
        expand_about(stats, state, &vec![0.0; all.len()])?;
        state.recentre(stats)?;
    }
    Ok(())
}

/// Updates all factors, and prunes, until they change little.
fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<(), Stop> {
    for _ in 0..Tuning::MAX_STEPS {
        let moved = update(stats, state)?;
        recorder.step(Action::Joint, None, state)?;
        let pruned = prune(state, moved, recorder)?;
        state.recentre(stats)?;
        if moved <= Tuning::COARSE_TOL && !pruned {
            break;
        }
    }
    Ok(())
}

/// Expected alphas and beta.
struct Means {
    alpha: Vec<f64>,
    beta: f64,
}

impl Means {
    /// The means after one update of a fixed-point scheme.
    ///
    /// The EM objective is concave in each logarithm, so a shortened update raises the bound too.
    fn after(scheme: Scheme, state: &State) -> Self {
        let alpha = (0..state.len()).map(|k| {
            new_alpha(state, k, scheme)
                .clamp(Tuning::ALPHA_FLOOR, Tuning::INFINITE_RATIO * state.alpha[k])
        });
        Self {
            alpha: alpha.collect(),
            beta: state.levels[0].noise.moved(|| {
                let beta = state.beta();
                new_beta(state, scheme).clamp(
                    beta / Tuning::MAX_BETA_GROWTH,
                    Tuning::MAX_BETA_GROWTH * beta,
                )
            }),
        }
    }

    /// Largest change of a logarithm from these means to those of the state.
    fn distance(&self, state: &State) -> f64 {
        let pairs = self.alpha.iter().zip(&state.alpha);
        let changes = pairs.map(|(before, after)| (after / before).ln().abs());
        changes.fold((state.beta() / self.beta).ln().abs(), f64::max)
    }
}

/// Updates all factors: by MacKay's update where it raises the bound, by the update of the paper otherwise. Returns the largest
/// change of a logarithm. If the factorisation fails at the new values, the state stays as it is.
fn update(stats: &mut dyn Statistics, state: &mut State) -> Result<f64> {
    let (alpha, beta) = (state.alpha.clone(), state.beta());
    let before = Means { alpha, beta };
    let bound = state.log_posterior();
    let em = Means::after(Scheme::Em, state);
    let mackay = Means::after(Scheme::MacKay, state);
    state.alpha.copy_from_slice(&mackay.alpha);
    state.levels[0].noise.beta = mackay.beta;
    let rose = advance(stats, state).is_ok() && state.log_posterior() >= bound;
    if !rose && state.set_hyperparameters(&em.alpha, &[em.beta]).is_err() {
        state.set_hyperparameters(&before.alpha, &[before.beta])?;
    }
    state.recentre(stats)?;
    Ok(before.distance(state))
}

/// Recomputes the posterior after a change of the hyperparameters, with local bounds that are tight at the old one.
fn advance(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    if stats.facts().is_linear {
        state.recompute()?;
        state.recentre(stats)?;
        Ok(())
    } else {
        local_bounds::tighten(stats, state)
    }
}

/// Converges on the active set, and adds functions that were pruned too early. `good` receives each converged model.
fn finish(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let penalty = -recorder.offset.per_function;
    let mut dictionary =
        Dictionary::new(stats.facts().n_basis(), priors.clone()).with_penalty(penalty);
    let effort = Effort {
        tol: rules.tol,
        ..Tuning::FINE_EFFORT
    };
    loop {
        let refined = if stats.facts().is_linear {
            refine::converge(stats, state, effort, recorder)?
        } else {
            local_bounds::converge(stats, state, effort, recorder)?
        };
        if evidence_fell(state, good) {
            return roll_back(state, good, Action::Joint, recorder);
        }
        good.clone_from(state);
        stats.bound(&state.active, state.mu(), state.sigma())?;
        dictionary.refresh(stats, state)?;
        if dictionary.add(Tuning::MAX_BLOCK_ADDITIONS, stats, state, recorder)? > 0 {
            continue;
        }
        return Ok(match refined {
            _ if dictionary.excludes_gain(state) => Status::Stalled,
            Refined::Stalled => Status::Stalled,
            Refined::Converged if state.at_noise_floor() => Status::NoiseFloor,
            Refined::Converged => Status::Converged,
        });
    }
}
