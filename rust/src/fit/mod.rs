//! Inference: maximization of the marginal likelihood over hyperparameters. Knows [`Statistics`], but no design matrix or kernel.
//!
//! `context` is a fit: data, model, dictionary, rules and record, and the return to the last converged model where round-off
//! prevails. The schemes are its methods:
//! * `sequential`: Tipping & Faul (2003) for a Gaussian likelihood, on working sets of the dictionary; `laplace`: other likelihoods;
//! * `full_basis` (MacKay and EM updates); `variational`; `mrvm` (probit classification);
//! * `large` (dictionaries in blocks); `search` (exchanges after a fit, with `search::moves`); `search::lns` (the search within a fit);
//! * `groups`: columns that share a precision;
//! * `plan`: the cheaper data from which a fit finds its first model;
//!
//! On a working set:
//! * `greedy`: the loop of the paper, the change with the largest gain first; `candidates`: its S and Q;
//! * `refine`: alphas and noise of the active set to convergence; `newton`: joint steps on all of them.
//!
//! What they work on:
//! * `model`: the active set and its posterior, for one output or several that share their alphas;
//! * `evidence`: the marginal likelihood as a function of one alpha;
//! * `dictionary`: S and Q of all functions, and the choice of working sets;
//! * `working_set`: exact statistics of part of the dictionary;
//! * `settings`: what a caller sets, its checks, and noise levels; `tuning`: constants; `record`: steps, trace and callback.

mod candidates;
mod context;
mod dictionary;
mod evidence;
mod full_basis;
mod greedy;
mod groups;
mod laplace;
mod large;
mod model;
mod mrvm;
mod newton;
mod plan;
mod record;
mod refine;
mod search;
mod sequential;
mod settings;
mod tuning;
mod variational;
mod working_set;

pub use crate::fit::groups::{GroupPosterior, GroupProblem, fit_groups};
pub use crate::fit::large::{BlockCheckpoint, SaveCheckpoint, fit_in_blocks};
pub use crate::fit::mrvm::{Ascent, MStep, RetargetedFit, TopDownFit};
pub use crate::fit::plan::FirstStage;
pub use crate::fit::record::{Action, Step, StepCallback};
pub use crate::fit::settings::{
    Blocks, Complexity, Noise, OutputNoise, Rules, Scheme, Search, Settings,
};
pub use crate::model::Status;

use crate::Result;
use crate::data::{Observations, Statistics};
use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Priors;
use crate::fit::model::Model;
use crate::fit::record::Recorder;
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
    fit_from(FirstStage::all_rows(), stats, rules, watch)
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
    fit_from(FirstStage::choose(rows, rules)?, rows, rules, watch)
}

/// [`fit`] with a first model from these data.
///
/// # Errors
/// As [`fit`].
pub fn fit_from(
    first: FirstStage<'_>,
    stats: &mut dyn Statistics,
    rules: &Rules,
    watch: &mut StepCallback<'_>,
) -> Result<Posterior> {
    let mut model = Model::initial(stats, rules)?;
    let mut recorder = Recorder::new(&model, rules.max_iter, stats.facts().target_scale, watch);
    let mut fit = Fit {
        dictionary: &mut Dictionary::of(stats.facts(), rules),
        stats,
        model: &mut model,
        rules,
        recorder: &mut recorder,
    };
    let outcome = match rules.scheme {
        Scheme::Sequential => {
            let found = if fit.stats.facts().is_linear {
                let start = fit.first_stage(first);
                let found = start.and_then(|start| fit.sequential(start));
                found.and_then(|found| fit.with_less_complexity(found))
            } else {
                fit.first_stage_at_modes(first)
            };
            found.and_then(|found| fit.exchange(found))
        }
        Scheme::MacKay | Scheme::Em => fit.full_basis(),
        Scheme::Variational => fit.variational(),
    };
    fit.publish(outcome)
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
    let mut model = Model::of_outputs(stats, noise, rules)?;
    let mut recorder = Recorder::new(&model, rules.max_iter, stats.facts().target_scale, watch);
    let mut fit = Fit {
        dictionary: &mut Dictionary::new(stats.facts().n_basis(), Priors::default()),
        stats,
        model: &mut model,
        rules,
        recorder: &mut recorder,
    };
    let start = fit.first_model();
    let found = start.and_then(|start| fit.sequential(start));
    let found = found.and_then(|found| fit.with_less_complexity(found));
    let outcome = found.and_then(|found| fit.exchange(found));
    fit.publish_outputs(outcome)
}
