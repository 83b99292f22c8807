//! Inference: maximization of the marginal likelihood over hyperparameters. Knows [`Statistics`], but no design matrix or kernel.
//!
//! The sequential scheme of Tipping & Faul (2003):
//! * `sequential`: a Gaussian likelihood, on working sets of the dictionary; `laplace`: other likelihoods;
//! * `greedy`: the loop of the paper, the change with the largest gain first, and `candidates`: its S and Q;
//! * `refine`: alphas and noise of the active set to convergence, and `newton`: joint steps on all of them;
//! * `plan`: the cheaper data from which a fit finds its first model;
//! * `rollback`: return to the last converged model where round-off prevails.
//!
//! What they work on:
//! * `model`: the active set and its posterior, for one output or several that share their alphas; `noise`: their noise levels;
//! * `evidence`: the marginal likelihood as a function of one alpha, with `shared_evidence` for several noise levels; `prior`;
//! * `dictionary`: S and Q of all candidates; `substitutes`: candidates that could replace an active function;
//! * `working_set`: exact statistics of part of the dictionary; `ranking`: the best few of many;
//! * `settings`: what a caller sets, and its checks; `tuning`: constants; `record`: steps, trace and callback.
//!
//! Other schemes: `full_basis` (MacKay and EM updates), `variational`, `mrvm` (probit classification), `search` (exchanges of
//! functions after a fit), and `large` (dictionaries in blocks).

pub(crate) mod laplace;
pub(crate) mod large;
pub(crate) mod mrvm;
pub(crate) mod search;

mod candidates;
mod dictionary;
mod evidence;
mod full_basis;
mod greedy;
mod model;
mod newton;
mod noise;
mod plan;
mod prior;
mod publish;
mod ranking;
mod record;
mod refine;
mod rollback;
mod sequential;
mod settings;
mod shared_evidence;
mod substitutes;
mod tuning;
mod variational;
mod working_set;

pub use crate::fit::large::working_set::{BlockCheckpoint, SaveCheckpoint, fit_in_blocks};
pub use crate::fit::mrvm::{Ascent, MStep, RetargetedFit, TopDownFit};
pub use crate::fit::noise::OutputNoise;
pub use crate::fit::record::{Action, Step, StepCallback};
pub use crate::fit::settings::{Blocks, Noise, Rules, Scheme, Search, Settings};
pub use crate::model::Status;

use crate::Result;
use crate::data::{Observations, Statistics};
use crate::fit::dictionary::Dictionary;
use crate::fit::model::State;
use crate::fit::noise::NoisePrecision;
use crate::fit::plan::FirstStage;
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::{Recorder, Stop};
use crate::fit::sequential::Start;
use crate::model::{OutputPosterior, Posterior};

/// Fits a sparse Bayesian model by the scheme that the rules name.
///
/// `watch` is called after each step and may end the fit.
///
/// # Errors
/// Errors of the provider, and [`Error::NotPositiveDefinite`](crate::Error::NotPositiveDefinite) if round-off makes the
/// posterior precision indefinite before there is a converged model to return to.
pub fn fit(
    stats: &mut dyn Statistics,
    rules: &Rules,
    watch: &mut StepCallback<'_>,
) -> Result<Posterior> {
    fit_in_stages(FirstStage::AllRows, stats, rules, watch)
}

/// [`fit`] of rows in memory. Where rows and functions are many, finds the first model faster, from approximate data.
///
/// # Errors
/// As [`fit`].
pub fn fit_rows(
    rows: &mut Observations<'_>,
    rules: &Rules,
    watch: &mut StepCallback<'_>,
) -> Result<Posterior> {
    let first = FirstStage::choose(rows, rules)?;
    fit_in_stages(first, rows, rules, watch)
}

fn fit_in_stages(
    first: FirstStage<'_>,
    stats: &mut dyn Statistics,
    rules: &Rules,
    watch: &mut StepCallback<'_>,
) -> Result<Posterior> {
    let scale = stats.facts().target_scale;
    let mut state = empty_model(stats, rules)?;
    let priors = Priors::new(rules.alpha_prior, &stats.facts().norms, scale);
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let outcome = match rules.scheme {
        Scheme::Sequential => {
            fit_and_search(first, stats, &mut state, &priors, rules, &mut recorder)
        }
        Scheme::MacKay | Scheme::Em => {
            full_basis::fit(stats, &mut state, priors, rules, &mut recorder)
        }
        Scheme::Variational => variational::fit(stats, &mut state, &priors, rules, &mut recorder),
    };
    let status = if rules.scheme == Scheme::Variational {
        status(&state, outcome)?
    } else {
        status_at_mode(stats, &mut state, outcome, &mut recorder)?
    };
    // The quadratic model may have been moved to the posterior mean since the last step.
    recorder.amend(&state);
    let mut posterior =
        Posterior::publish(&state, recorder.trace, status, stats.facts()).checked()?;
    if let (Scheme::Variational, Some(&bound)) = (rules.scheme, posterior.trace.last()) {
        posterior.log_evidence = bound;
    }
    Ok(posterior)
}

/// Fits several Gaussian outputs that share their functions and prior precisions, by the sequential scheme.
///
/// `t_c = Phi w_c + noise of precision beta_c`, `w_jc ~ Normal(0, 1/alpha_j)` for every output c; the log evidence is the sum over the
/// outputs. `noise` replaces the noise of the settings, and the priors of the settings are not used. The noise precision in a step is the
/// inverse of the mean noise variance.
///
/// # Errors
/// As [`fit`], and [`Error::Shape`](crate::Error::Shape) if there is not one noise level for each output.
pub fn fit_outputs(
    stats: &mut Observations<'_>,
    rules: &Rules,
    noise: &OutputNoise,
    watch: &mut StepCallback<'_>,
) -> Result<OutputPosterior> {
    let scale = stats.facts().target_scale;
    settings::check_scale(scale)?;
    let given = noise.levels(stats.variances().len())?;
    // The unit of the targets is the root of their mean variance.
    let variances = match noise {
        OutputNoise::Shared(_) => &[1.0],
        OutputNoise::Own(_) => stats.variances(),
    };
    let mut levels = Vec::with_capacity(given.len());
    for (&noise, &variance) in given.iter().zip(variances) {
        settings::check_noise_scale(scale, noise)?;
        levels.push(NoisePrecision::new(noise, variance, scale));
    }
    let deviances = stats.gradient(&[], &[], &mut [])?;
    let mut state = State::empty(&levels, Gamma::FLAT, &deviances, stats.facts().n_obs);
    let mut recorder = Recorder::new(&state, rules.max_iter, scale, watch);
    let (first, priors) = (FirstStage::AllRows, Priors::default());
    let outcome = fit_and_search(first, stats, &mut state, &priors, rules, &mut recorder);
    let status = status(&state, outcome)?;
    recorder.amend(&state);
    OutputPosterior::publish(&state, recorder.trace, status, stats.facts()).checked()
}

/// The sequential scheme and the search for a better optimum after it.
fn fit_and_search(
    first: FirstStage<'_>,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let found = if stats.facts().is_linear {
        fit_sequentially(first, stats, state, priors, rules, recorder)?
    } else {
        let mut fit = laplace::Fit {
            stats,
            state,
            rules,
            recorder,
        };
        fit.run_from_empty(priors)?
    };
    search::exchange::continue_from(found, stats, state, priors, rules, recorder)
}

/// The sequential scheme for a Gaussian likelihood from an empty model.
fn fit_sequentially(
    first: FirstStage<'_>,
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> std::result::Result<Status, Stop> {
    let mut start = Start::default();
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    if let Some(refreshed) = first.run(stats, state, priors, rules, recorder)? {
        dictionary = refreshed;
    } else {
        let whole = sequential::initial_model(stats, state, &mut dictionary, recorder)?;
        start = Start::after_initial_model(whole, stats.facts().n_obs, state);
    }
    sequential::complete(stats, state, &mut dictionary, start, rules, recorder)
}

/// The empty model, with the checks of the rules against the units of the data.
fn empty_model(stats: &mut dyn Statistics, rules: &Rules) -> Result<State> {
    let scale = stats.facts().target_scale;
    settings::check_units(scale, &stats.facts().norms, rules, stats.facts().is_linear)?;
    let (noise, n_noise) = if stats.facts().is_linear {
        (
            NoisePrecision::new(rules.noise, 1.0, scale),
            stats.facts().n_obs,
        )
    } else {
        (NoisePrecision::fixed(1.0), 0.0)
    };
    let [shape, rate] = rules.noise_prior;
    let rate = rate / (scale * scale);
    let deviance = stats.deviance(&[], &[])?;
    let prior = Gamma { shape, rate };
    Ok(State::empty(&[noise], prior, &[deviance], n_noise))
}

/// The status of a fit other than the variational one. If it was interrupted, the posterior mode is found for the state as it is.
fn status_at_mode(
    stats: &mut dyn Statistics,
    state: &mut State,
    outcome: std::result::Result<Status, Stop>,
    recorder: &mut Recorder<'_>,
) -> Result<Status> {
    if !stats.facts().is_linear && matches!(outcome, Err(Stop::Stopped | Stop::MaxIterations)) {
        laplace::mode::find_some_mode(stats, state)?;
        recorder.amend(state);
    }
    status(state, outcome)
}

fn status(state: &State, outcome: std::result::Result<Status, Stop>) -> Result<Status> {
    match outcome {
        Ok(Status::Converged) if state.at_alpha_floor() => Ok(Status::AlphaFloor),
        Ok(status) => Ok(status),
        Err(Stop::MaxIterations) => Ok(Status::MaxIterations),
        Err(Stop::Stopped) => Ok(Status::Stopped),
        Err(Stop::Failed(error)) => Err(error),
    }
}
