//! A start from low-rank features of the kernel, on which passes over the dictionary cost little.
//!
//! A smooth kernel is nearly a product of few features (`data/low_rank`). The model found on them is only a start: the fit on all rows
//! continues from its functions and precisions. If the features lack something that the targets need, candidates gain more on the rows
//! than in features, and the start is discarded.

use crate::data::{Approximation, Statistics};
use crate::fit::candidates::Candidates;
use crate::fit::dictionary::Dictionary;
use crate::fit::full_basis::fill;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::sequential;
use crate::fit::sequential::Start;
use crate::fit::settings::{Noise, Rules};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::{Error, Result};

/// Brings an empty state to a nearly converged model on all rows and returns the refreshed dictionary; `None`, with the state
/// empty, where features are no help.
pub(crate) fn fit(
    stats: &mut dyn Statistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Dictionary>, Stop> {
    let is_too_precise =
        rules.noise != Noise::Estimated && state.beta() > Tuning::MAX_LOW_RANK_BETA;
    // A small dictionary fits into one working set: features would save nothing.
    let is_small = stats.facts().n_basis() <= Tuning::MAX_WHOLE_DICTIONARY;
    if is_small || is_too_precise || rules.max_iter < 1000 {
        return Ok(None);
    }
    let empty = state.clone();
    let mut outcome = None;
    stats.with_approximation(Approximation::LowRankFeatures, &mut |whole, features| {
        outcome = Some(fit_features(whole, features, (&empty, priors), rules));
    })?;
    let Some(outcome) = outcome else {
        return Ok(None);
    };
    let dictionary = outcome.and_then(|start| {
        let Some(start) = start else {
            return Ok(None);
        };
        start.apply(stats, state, priors)?;
        let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
        dictionary.refresh(stats, state)?;
        let is_close = dictionary.largest_gain(state) <= Tuning::MAX_LOW_RANK_GAIN;
        Ok(is_close.then_some(dictionary))
    });
    match dictionary {
        Ok(Some(dictionary)) => {
            recorder.step(Action::Search, None, state)?;
            Ok(Some(dictionary))
        }
        // Features have fewer digits than the rows, on which the fit may well succeed.
        Ok(None) | Err(Stop::MaxIterations | Stop::Failed(Error::NotPositiveDefinite(_))) => {
            state.clone_from(&empty);
            Ok(None)
        }
        Err(stop) => Err(stop),
    }
}

/// The model of the sequential scheme on low-rank features; `None` where their error is too large.
fn fit_features(
    whole: &mut dyn Statistics,
    features: &mut dyn Statistics,
    (empty, priors): (&State, &Priors),
    rules: &Rules,
) -> Result<Option<LowRankModel>, Stop> {
    let (scale, mut state) = (features.facts().target_scale, empty.clone());
    let (rules, recorder) = (&rules.loosened(), &mut Recorder::silent());
    let own = Priors::new(rules.alpha_prior, &features.facts().norms, scale);
    let mut dictionary = Dictionary::new(features.facts().n_basis(), own.clone());
    let set = sequential::initial_model(features, &mut state, &mut dictionary, recorder)?;
    if state.beta() > Tuning::MAX_LOW_RANK_BETA {
        return Ok(None);
    }
    let mut initial = LowRankModel::of(&state, &features.facts().norms, scale);
    // Where features miss part of the signal, their fit counts it as noise, which would hide the gains: test with the initial noise at most.
    let initial_beta = 1.0 / (Tuning::INITIAL_NOISE * scale * scale);
    initial.beta = initial.beta.max(initial_beta);
    let size = Tuning::SAMPLE_SIZE / 4;
    let sample = dictionary.sample(size, size);
    let on_rows = gains(whole, (&initial, &sample), (empty, priors))?;
    let in_features = gains(features, (&initial, &sample), (empty, &own))?;
    let mut pairs = on_rows.iter().zip(&in_features);
    if pairs.any(|(rows, features)| rows > &(features + Tuning::MAX_LOW_RANK_ERROR)) {
        return Ok(None);
    }
    let start = Start::after_initial_model(set, features.facts().n_obs, &state);
    sequential::complete(
        features,
        &mut state,
        &mut dictionary,
        start,
        rules,
        recorder,
    )?;
    Ok(Some(LowRankModel::of(
        &state,
        &features.facts().norms,
        scale,
    )))
}

/// The gain of adding each candidate to a model; 0 for its own functions.
fn gains(
    stats: &mut dyn Statistics,
    (model, candidates): (&LowRankModel, &[usize]),
    (empty, priors): (&State, &Priors),
) -> Result<Vec<f64>, Stop> {
    let mut state = empty.clone();
    model.apply(stats, &mut state, priors)?;
    let set = WorkingSet::about(stats, &mut state, priors, candidates)?;
    set.within(&mut state, &mut Recorder::silent(), |state, _| {
        let factors = Candidates::new(&set, state);
        let gain = |i: usize| {
            if state.active.contains(&i) {
                0.0
            } else {
                factors.factors_of(i, state).gain_of_adding()
            }
        };
        Ok(candidates.iter().map(|&i| gain(set.place(i))).collect())
    })
}

/// Functions, precisions and noise of a model of low-rank features, in the units of the caller.
struct LowRankModel {
    functions: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
}

impl LowRankModel {
    fn of(state: &State, norms: &[f64], scale: f64) -> Self {
        let in_units = |(&j, alpha): (&usize, &f64)| alpha * (norms[j] / scale).powi(2);
        let alpha = state.active.iter().zip(&state.alpha);
        Self {
            functions: state.active.clone(),
            alpha: alpha.map(in_units).collect(),
            beta: state.beta() / (scale * scale),
        }
    }

    /// Adds to an empty state the functions whose column is not entirely zero.
    fn apply(&self, stats: &mut dyn Statistics, state: &mut State, priors: &Priors) -> Result<()> {
        let (scale, norms) = (stats.facts().target_scale, &stats.facts().norms);
        let pairs = self.functions.iter().zip(&self.alpha);
        let (functions, alpha): (Vec<usize>, Vec<f64>) = pairs
            .filter(|&(&j, _)| norms[j] > 0.0)
            .map(|(&j, alpha)| {
                let unit = scale / norms[j];
                (
                    j,
                    (alpha * unit * unit).clamp(Tuning::ALPHA_FLOOR, f64::MAX),
                )
            })
            .unzip();
        let noise = &mut state.levels[0].noise;
        noise.beta = noise.moved(|| self.beta * scale * scale);
        fill(stats, state, &functions, &alpha, priors)
    }
}
