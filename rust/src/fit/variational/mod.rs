//! The variational RVM of Bishop & Tipping (2000): q(w) q(alpha) q(beta), from the full basis, with pruning.
//!
//! With priors Gamma(a, b) and Gamma(c, d) the factors are
//!
//! * q(w) = Normal(mu, Sigma), Sigma^-1 = diag(E\[alpha\]) + E\[beta\] Phi^T Phi, mu = E\[beta\] Sigma Phi^T t;
//! * `q(alpha_i)` = Gamma(a + 1/2, b + (`mu_i`^2 + `Sigma_ii`) / 2);
//! * q(beta) = Gamma(c + N/2, d + <||t - Phi w||^2> / 2).
//!
//! Each Gamma has a shape that never changes and is told by its mean. So the lower bound, q(w) being at its best, is a
//! function of E\[alpha\] and E\[beta\] alone: what their update leaves fixed is where it is stationary, and it equals
//! `ln p(t | <alpha>, <beta>) + sum (a ln <alpha_i> - b <alpha_i>) + c ln <beta> - d <beta>` and constants ([`offset`]),
//! the objective of the other schemes. All that climbs that objective therefore climbs the bound.
//!
//! A class has no Gaussian likelihood; it is bounded by one row by row, with a parameter xi each (Jaakkola & Jordan 2000),
//! best at `xi_n^2 = <(w^T phi_n)^2>`: [`touching`].
//!
//! The updates above crawl, so they are the fallback of bolder ones (MacKay's, in the same direction) that are taken
//! where the bound rises by them. A function whose E\[alpha\] is on its way to infinity is taken out where the bound rises by
//! that; one that is out comes back where it rises by that.

mod local_bounds;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Statistics, check_flag};
use crate::fit::Status;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::ALPHA_FLOOR;
use crate::fit::full_basis::{new_alpha, new_beta, prune};
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::{Action, Offset, Recorder, Stop};
use crate::fit::refine;
use crate::fit::refine::Refined;
use crate::fit::rollback::{evidence_fell, roll_back, roll_back_if_indefinite};
use crate::fit::settings::{Noise, Rules, Scheme};
use crate::fit::tuning::{Effort, Tuning};

/// Updates of everything end where no ln E\[alpha\] nor ln E\[beta\] moves by more; the rest is done on what is left.
const NEAR: f64 = 0.1;

/// And after so many in any case.
const MOST_UPDATES: usize = 1000;

/// Runs from the full basis to convergence. `state`: an empty model.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let noise = rules.noise_range().filter(|_| stats.is_linear());
    recorder.offset = offset(stats, state, rules);
    fill(stats, state, priors)?;
    recorder.begin(state);
    approach(stats, state, noise, recorder)?;
    let mut good = state.clone();
    let outcome = finish(stats, state, &mut good, priors, rules, noise, recorder);
    let cancel = stats.cancel_flag();
    roll_back_if_indefinite(
        outcome,
        state,
        &good,
        Action::Joint,
        cancel.as_deref(),
        recorder,
    )
}

/// What the bound has beside the objective of the other schemes.
///
/// With A = a + 1/2 a function brings `E[ln p(w | alpha)]` less KL(q(alpha) || p(alpha)), which is
/// `(ln <alpha> - ln 2 pi - <alpha> <w^2>) / 2 + a ln <alpha> - b <alpha>` and
/// `ln Gamma(A) - ln Gamma(a) - A ln A + A + a ln b`; the objective has `a ln(a / b) - a` less. Beta likewise, with
/// A = c + N / 2 and no term of its own in the objective. The constants of an improper prior are infinite for every model
/// alike, and left out.
fn offset(stats: &dyn Statistics, state: &State, rules: &Rules) -> Offset {
    let [a, b] = rules.alpha_prior;
    let [c, d] = rules.noise_prior;
    let scale = stats.target_scale();
    let per_function = if a > 0.0 && b > 0.0 {
        entropy_like(a, 0.5) + a * a.ln() - a
    } else {
        0.0
    };
    let whole = match rules.noise {
        _ if !stats.is_linear() => 0.0,
        // The objective counts the prior of a beta that is given; the bound knows of none.
        Noise::Fixed(_) => {
            let Gamma { shape, rate } = state.noise_prior;
            rate * state.beta - shape * (state.beta / (scale * scale)).ln()
        }
        Noise::Estimated if c > 0.0 && d > 0.0 => entropy_like(c, 0.5 * stats.n_obs()) + c * d.ln(),
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

/// Puts all functions into an empty model, and the bound where the prior expects the linear predictors.
fn fill(stats: &mut dyn Statistics, state: &mut State, priors: &Priors) -> Result<()> {
    let everything: Vec<usize> = (0..stats.n_basis())
        .filter(|&i| stats.norms()[i] > 0.0)
        .collect();
    let m = everything.len();
    state.fill(
        &everything,
        Tuning::INITIAL_ALPHA,
        priors,
        stats.cancel_flag(),
    );
    state.sigma.fill(0.0);
    state.sigma.fill_diagonal(1.0 / Tuning::INITIAL_ALPHA);
    let mut gram = DMatrix::zeros(m, m);
    local_bounds::touch(stats, state, &mut gram)?;
    if stats.is_linear() {
        let mu = vec![0.0; m];
        let mut gradient = mu.clone();
        let deviance = stats.local(&everything, &mu, &mut gram, &mut gradient)?;
        state.set_data(&mu, &gradient, deviance, Some(&gram))?;
        state.recentre(stats)?;
    }
    Ok(())
}

/// Updates of everything, and pruning, until what is left moves little.
fn approach(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<(), Stop> {
    let mut gram = DMatrix::zeros(state.len(), state.len());
    for _ in 0..MOST_UPDATES {
        let moved = update(stats, state, noise, &mut gram)?;
        recorder.step(Action::Joint, None, state)?;
        let pruned = prune(state, moved, recorder)?;
        state.recentre(stats)?;
        if moved <= NEAR && !pruned {
            break;
        }
    }
    Ok(())
}

/// The most that an update changes E\[beta\] by, as a factor. Noise that grows as fast as it can swallows the signal before the
/// alphas have told it apart: with 2 in place of 1.2 (or no limit) fits of 47 problems ended 0.4 (1.3) nats lower in the mean.
const MOST_NOISE: f64 = 1.2;

/// Expected alphas and beta.
struct Means {
    alpha: Vec<f64>,
    beta: f64,
}

impl Means {
    /// Those that one of the updates of the fixed-point schemes takes the state to, or towards.
    ///
    /// What EM maximises is concave in each logarithm, so part of its way raises the bound too.
    fn after(scheme: Scheme, state: &State, noise: Option<NoiseRange>) -> Self {
        let alpha = (0..state.len()).map(|k| {
            new_alpha(state, k, scheme)
                .clamp(ALPHA_FLOOR, Tuning::MAX_ALPHA_GROWTH * state.alpha[k])
        });
        Self {
            alpha: alpha.collect(),
            beta: noise.map_or(state.beta, |range| {
                let slow = new_beta(state, scheme);
                let slow = slow.clamp(state.beta / MOST_NOISE, MOST_NOISE * state.beta);
                slow.min(range.beta_max)
            }),
        }
    }

    /// Largest change of a logarithm from these to the state's.
    fn distance(&self, state: &State) -> f64 {
        let pairs = self.alpha.iter().zip(&state.alpha);
        let changes = pairs.map(|(before, after)| (after / before).ln().abs());
        changes.fold((state.beta / self.beta).ln().abs(), f64::max)
    }
}

/// One update of all factors: bold where the bound rises by that, by the paper's formulae elsewhere; the largest change of
/// a logarithm. A state whose factor fails at the new values stays as it is.
fn update(
    stats: &mut dyn Statistics,
    state: &mut State,
    noise: Option<NoiseRange>,
    gram: &mut DMatrix<f64>,
) -> Result<f64> {
    let (alpha, beta) = (state.alpha.clone(), state.beta);
    let before = Means { alpha, beta };
    let bound = state.log_posterior();
    let plain = Means::after(Scheme::Em, state, noise);
    let bold = Means::after(Scheme::MacKay, state, noise);
    state.alpha.copy_from_slice(&bold.alpha);
    state.beta = bold.beta;
    let mut risen = advance(stats, state, gram).is_ok() && state.log_posterior() >= bound;
    check_flag(stats.cancel_flag().as_deref())?;
    if !risen {
        risen = state.set_hyperparameters(&plain.alpha, plain.beta).is_ok();
    }
    if !risen {
        state.set_hyperparameters(&before.alpha, before.beta)?;
    }
    state.recentre(stats)?;
    Ok(before.distance(state))
}

/// Brings the posterior to new hyperparameters, the bound touching where the old one has it.
fn advance(stats: &mut dyn Statistics, state: &mut State, gram: &mut DMatrix<f64>) -> Result<()> {
    if stats.is_linear() {
        state.recompute()?;
        state.recentre(stats)?;
        Ok(())
    } else {
        local_bounds::touch(stats, state, gram)
    }
}

/// Brings what is left to convergence, and takes back what was pruned too early. `good`: the last settled model.
fn finish(
    stats: &mut dyn Statistics,
    state: &mut State,
    good: &mut State,
    priors: &Priors,
    rules: &Rules,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let penalty = -recorder.offset.per_function;
    let mut dictionary = Dictionary::new(stats.n_basis(), priors.clone()).with_penalty(penalty);
    let effort = Effort {
        gain: Tuning::MIN_GAIN,
        step: Tuning::FINE_STEP,
        tol: rules.tol,
    };
    loop {
        let settled = if stats.is_linear() {
            refine::converge(stats, state, noise, effort, recorder)?
        } else {
            local_bounds::settle(stats, state, effort, recorder)?
        };
        if evidence_fell(state, good) {
            return roll_back(state, good, Action::Joint, recorder);
        }
        good.clone_from(state);
        stats.bound(&state.active, &state.mu, &state.sigma)?;
        dictionary.refresh(stats, state)?;
        if dictionary.add(Tuning::MAX_BLOCK_ADDITIONS, stats, state, recorder)? > 0 {
            continue;
        }
        let at_floor = noise.is_some_and(|range| state.beta >= range.beta_max);
        return Ok(match settled {
            _ if dictionary.excludes_gain(state) => Status::Stalled,
            Refined::Stalled => Status::Stalled,
            Refined::Converged if at_floor => Status::NoiseFloor,
            Refined::Converged => Status::Converged,
        });
    }
}
