//! Inference. Knows [`Statistics`]; may not name a design or a kernel.

mod action;
mod beyond;
mod blocks;
mod climb;
mod coarse;
mod conditional;
mod creep;
mod damping;
mod dictionary;
mod exact;
mod exchange;
mod fixed_point;
mod inner;
mod joint;
mod laplace;
mod largest;
mod leap;
mod modal_pools;
mod mode;
mod outputs;
mod outside;
mod pool;
mod prior;
mod range;
mod ranking;
mod record;
mod sampled;
mod screened;
mod search;
mod sequential;
mod settings;
mod settled;
mod shared;
mod shared_candidates;
mod shared_classes;
mod stand_ins;
mod state;
mod stationary;
mod together;
mod top_down;
mod variational;
mod warm;

pub use blocks::{Keep, Sketch, fit_in_blocks};
pub(crate) use outputs::OutputState;
pub use outputs::{Ascent, Exchange, MStep, OutputNoise, RetargetedFit, fit_outputs};
pub use record::{Action, Step, Watch};
pub use settings::{Blocks, Laplace, Noise, Rules, Scheme, Search, Settings};

use joint::NoiseRange;
use prior::{Gamma, Priors};
use record::{Halt, Recorder};
use settings::START_NOISE;
pub(crate) use state::State;
pub use top_down::TopDownFit;
pub use warm::Warm;

use crate::Result;
use crate::model::Posterior;
use crate::stats::{Statistics, check_flag};

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
    run(stats, rules, None, watch)
}

/// Fits a model by the sequential scheme, from one that is given; with a Gaussian likelihood it does not end lower.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if the start does not fit the dictionary or the rules, and as for [`fit`].
pub fn fit_from(
    stats: &mut dyn Statistics,
    rules: &Rules,
    start: &Warm,
    watch: &mut Watch<'_>,
) -> Result<Posterior> {
    start.check(stats, rules)?;
    run(stats, rules, Some(start), watch)
}

fn run(
    stats: &mut dyn Statistics,
    rules: &Rules,
    start: Option<&Warm>,
    watch: &mut Watch<'_>,
) -> Result<Posterior> {
    let scale = stats.target_scale();
    let gaussian = stats.is_linear();
    let exact = rules.laplace == Laplace::Exact;
    if exact && gaussian {
        return Err(exact::no_laplace());
    }
    let mut state = Setting::of(stats, rules)?.empty();
    let priors = Priors::new(rules.alpha_prior, stats.norms(), scale);
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let range = NoiseRange::usual();
    let variational = rules.scheme == Scheme::Variational;
    let outcome = if variational {
        variational::maximise(stats, &mut state, &priors, rules, range, &mut recorder)
    } else if rules.scheme != Scheme::Sequential {
        fixed_point::maximise(
            stats,
            &mut state,
            priors.clone(),
            rules,
            range,
            &mut recorder,
        )
    } else {
        let limits = (rules, range);
        one_by_one(start, stats, &mut state, &priors, limits, &mut recorder)
    };
    let outcome = match outcome {
        Ok(_) if exact => exact::maximise(stats, &mut state, &priors, rules, &mut recorder),
        outcome => outcome,
    };
    let status = if variational {
        status(stats, &state, outcome)?
    } else {
        self::outcome(stats, &mut state, outcome, &mut recorder)?
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

/// The sequential scheme, from an empty model or the one given, and the search after it.
fn one_by_one(
    start: Option<&Warm>,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    (rules, range): (&Rules, NoiseRange),
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Halt> {
    let limits = (rules, range);
    if stats.is_linear() {
        let found = if let Some(start) = start {
            warm::maximise(start, stats, state, priors, limits, recorder)?
        } else {
            sequential::maximise(stats, state, priors.clone(), rules, range, recorder)?
        };
        return exchange::go_on(found, stats, state, priors, limits, recorder);
    }
    if rules.share_alpha && stats.n_predictors() > 1 {
        return shared_classes::maximise(stats, state, rules, recorder);
    }
    let found = if let Some(start) = start {
        warm::maximise(start, stats, state, priors, limits, recorder)?
    } else {
        laplace::maximise(stats, state, priors, rules, recorder)?
    };
    exchange::go_on_at_modes(found, stats, state, priors, rules, recorder)
}

/// What a model begins with.
struct Setting {
    beta: f64,
    noise_prior: Gamma,
    /// That of the empty model.
    deviance: f64,
    n_noise: f64,
}

impl Setting {
    fn of(stats: &mut dyn Statistics, rules: &Rules) -> Result<Self> {
        let scale = stats.target_scale();
        range::check(scale, stats.norms(), rules, stats.is_linear())?;
        let (beta, n_noise) = match rules.noise {
            _ if !stats.is_linear() => (1.0, 0.0),
            Noise::Fixed(variance) => (scale * scale / variance, stats.n_obs()),
            Noise::Estimated => (1.0 / START_NOISE, stats.n_obs()),
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
    outcome: std::result::Result<Status, Halt>,
    recorder: &mut Recorder<'_>,
) -> Result<Status> {
    if !stats.is_linear() && matches!(outcome, Err(Halt::Stopped | Halt::MaxIterations)) {
        // Between two looks for the mode the state is a step ahead of it.
        mode::find_some_mode(stats, state)?;
        recorder.amend(state);
    }
    status(stats, state, outcome)
}

fn status(
    stats: &dyn Statistics,
    state: &State,
    outcome: std::result::Result<Status, Halt>,
) -> Result<Status> {
    match outcome {
        Ok(Status::Converged) if state.at_alpha_floor() => Ok(Status::AlphaFloor),
        Ok(status) => Ok(status),
        Err(Halt::MaxIterations) => Ok(Status::MaxIterations),
        Err(Halt::Stopped) => Ok(Status::Stopped),
        Err(Halt::Failed(error)) => {
            // A factorisation that was told to end early looks like one that broke down.
            check_flag(stats.cancel_flag().as_deref())?;
            Err(error)
        }
    }
}
