//! Inference. Knows [`Statistics`]; may not name a design or a kernel.

pub(crate) mod laplace;
pub(crate) mod large;
pub(crate) mod mrvm;
pub(crate) mod search;

mod candidates;
mod conditional_gains;
mod damping;
mod dictionary;
mod evidence;
mod full_basis;
mod greedy;
mod low_rank_start;
mod model;
mod newton;
mod outputs;
mod prior;
mod ranking;
mod record;
mod refine;
mod rollback;
mod row_subsample;
mod scale_checks;
mod sequential;
mod settings;
mod shared_evidence;
mod substitutes;
mod tuning;
mod variational;
mod working_set;

pub use crate::fit::large::working_set::{BlockCheckpoint, SaveCheckpoint, fit_in_blocks};
pub(crate) use crate::fit::outputs::model::OutputState;
pub use crate::fit::outputs::{OutputNoise, fit_outputs};
pub use crate::fit::record::{Action, Step, Watch};
pub use crate::fit::settings::{Blocks, Noise, Rules, Scheme, Search, Settings};

pub(crate) use crate::fit::model::State;
pub use crate::fit::mrvm::{Ascent, MStep, RetargetedFit, TopDownFit};
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::{Recorder, Stop};
use crate::fit::tuning::Tuning;

use crate::Result;
use crate::data::{Statistics, check_flag};
use crate::model::Posterior;

/// How a fit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// At a maximum: Tipping & Faul (2003), section 4.4, over the whole dictionary.
    Converged,
    /// Likewise, but the noise estimate sits at its floor, a millionth of the variance of the targets.
    NoiseFloor,
    /// Likewise, but some alpha sits at its floor: the data ask for a weight without bound.
    AlphaFloor,
    /// After as many steps as allowed.
    MaxIterations,
    /// The watcher asked for it.
    Stopped,
    /// Rounding stands between the model and a certified maximum.
    Stalled,
}

impl Status {
    /// The name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::NoiseFloor => "noise_floor",
            Self::AlphaFloor => "alpha_floor",
            Self::MaxIterations => "max_iter",
            Self::Stopped => "stopped",
            Self::Stalled => "stalled",
        }
    }
}

/// Fits a sparse Bayesian model by the scheme that the rules name.
///
/// `watch` sees each step and may end the fit.
///
/// # Errors
/// Whatever the provider meets, and [`Error::NotPositiveDefinite`](crate::Error::NotPositiveDefinite) should the
/// posterior precision lose definiteness to rounding.
pub fn fit(stats: &mut dyn Statistics, rules: &Rules, watch: &mut Watch<'_>) -> Result<Posterior> {
    let scale = stats.target_scale();
    let mut state = InitialModel::of(stats, rules)?.empty();
    let priors = Priors::new(rules.alpha_prior, stats.norms(), scale);
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let variational = rules.scheme == Scheme::Variational;
    let outcome = if variational {
        variational::fit(stats, &mut state, &priors, rules, &mut recorder)
    } else if rules.scheme != Scheme::Sequential {
        full_basis::fit(stats, &mut state, priors.clone(), rules, &mut recorder)
    } else {
        one_by_one(stats, &mut state, &priors, rules, &mut recorder)
    };
    let status = if variational {
        status(stats, &state, outcome)?
    } else {
        crate::fit::outcome(stats, &mut state, outcome, &mut recorder)?
    };
    // The state may have been brought to its mean once more since the last step.
    recorder.amend(&state);
    let mut posterior =
        Posterior::publish(&state, recorder.trace, status, stats.norms(), scale).checked()?;
    if let (true, Some(&bound)) = (variational, posterior.trace.last()) {
        posterior.log_evidence = bound;
    }
    Ok(posterior)
}

/// The sequential scheme and the search after it.
fn one_by_one(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let found = if stats.is_linear() {
        sequential::fit(stats, state, priors.clone(), rules, recorder)?
    } else {
        laplace::schedule::fit(stats, state, priors, rules, recorder)?
    };
    search::exchange::continue_from(found, stats, state, priors, rules, recorder)
}

/// What a model begins with.
struct InitialModel {
    beta: f64,
    noise_prior: Gamma,
    /// That of the empty model.
    deviance: f64,
    n_noise: f64,
}

impl InitialModel {
    fn of(stats: &mut dyn Statistics, rules: &Rules) -> Result<Self> {
        let scale = stats.target_scale();
        scale_checks::check(scale, stats.norms(), rules, stats.is_linear())?;
        let (beta, n_noise) = match rules.noise {
            _ if !stats.is_linear() => (1.0, 0.0),
            Noise::Fixed(variance) => (scale * scale / variance, stats.n_obs()),
            Noise::Estimated => (1.0 / Tuning::INITIAL_NOISE, stats.n_obs()),
        };
        let [shape, rate] = rules.noise_prior;
        Ok(Self {
            beta,
            noise_prior: Gamma {
                shape,
                rate: rate / (scale * scale),
            },
            deviance: stats.deviance(&[], &[])?,
            n_noise,
        })
    }

    fn empty(&self) -> State {
        State::empty(self.beta, self.noise_prior, self.deviance, self.n_noise)
    }
}

/// How a fit ended whose evidence is that of its state; a state left between two looks for the mode is brought to it.
fn outcome(
    stats: &mut dyn Statistics,
    state: &mut State,
    outcome: std::result::Result<Status, Stop>,
    recorder: &mut Recorder<'_>,
) -> Result<Status> {
    if !stats.is_linear() && matches!(outcome, Err(Stop::Stopped | Stop::MaxIterations)) {
        // Between two looks for the mode the state is a step ahead of it.
        crate::fit::laplace::mode::find_some_mode(stats, state)?;
        recorder.amend(state);
    }
    status(stats, state, outcome)
}

fn status(
    stats: &dyn Statistics,
    state: &State,
    outcome: std::result::Result<Status, Stop>,
) -> Result<Status> {
    match outcome {
        Ok(Status::Converged) if state.at_alpha_floor() => Ok(Status::AlphaFloor),
        Ok(status) => Ok(status),
        Err(Stop::MaxIterations) => Ok(Status::MaxIterations),
        Err(Stop::Stopped) => Ok(Status::Stopped),
        Err(Stop::Failed(error)) => {
            // A factorisation that was told to end early looks like one that broke down.
            check_flag(stats.cancel_flag().as_deref())?;
            Err(error)
        }
    }
}
