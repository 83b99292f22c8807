//! The plan of a fit: the data of a first model, chosen before the fit. The fit then continues on all rows, on which alone it ends.
//!
//! * Low-rank features. A smooth kernel is nearly a product of few features (`data/low_rank`), on which passes over the dictionary cost
//!   little. If the features lack something that the targets need, candidates gain more on the rows than in features, and the model
//!   is discarded.
//! * Gram matrices of one row in sixteen (`data/row_subsample.rs`), where rows and functions are many.

use nalgebra::DMatrix;

use crate::data::{LowRankStatistics, Observations, Statistics, SubsampledStatistics};
use crate::fit::candidates::Candidates;
use crate::fit::dictionary::Dictionary;
use crate::fit::full_basis::fill;
use crate::fit::model::State;
use crate::fit::noise::NoisePrecision;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::sequential;
use crate::fit::sequential::Start;
use crate::fit::settings::{Noise, Rules, Scheme};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::{Error, Result};

/// The data of the first model of a fit.
#[allow(clippy::large_enum_variant)] // one for each fit
pub(crate) enum FirstStage<'d> {
    AllRows,
    LowRankFeatures(LowRankStatistics),
    /// One row in sixteen.
    RowSubsample(Observations<'d>),
}

impl<'d> FirstStage<'d> {
    /// The cheapest data from which the first model of a fit is accurate enough.
    pub(crate) fn choose(rows: &Observations<'d>, rules: &Rules) -> Result<Self> {
        let facts = rows.facts();
        // A small dictionary fits into one working set: approximations would save nothing.
        let is_small = facts.n_basis() <= Tuning::MAX_WHOLE_DICTIONARY;
        if rules.scheme != Scheme::Sequential || !facts.is_linear || is_small {
            return Ok(Self::AllRows);
        }
        let beta = NoisePrecision::new(rules.noise, 1.0, facts.target_scale).beta;
        let is_too_precise = rules.noise != Noise::Estimated && beta > Tuning::MAX_LOW_RANK_BETA;
        if !is_too_precise
            && rules.max_iter >= 1000
            && let Some(features) = rows.low_rank()?
        {
            return Ok(Self::LowRankFeatures(features));
        }
        let part = rows.subsample(Tuning::SUBSAMPLE_RATIO, Tuning::MIN_SUBSAMPLE_ROWS)?;
        Ok(part.map_or(Self::AllRows, Self::RowSubsample))
    }

    /// Brings an empty state to a nearly converged model on all rows and returns the refreshed dictionary; `None`, with the state
    /// empty, where this stage is no help.
    pub(crate) fn run(
        self,
        stats: &mut dyn Statistics,
        state: &mut State,
        priors: &Priors,
        rules: &Rules,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Dictionary>, Stop> {
        let empty = state.clone();
        let outcome = match self {
            Self::AllRows => return Ok(None),
            Self::LowRankFeatures(mut features) => {
                start_from_features(stats, &mut features, state, priors, rules, recorder)
            }
            Self::RowSubsample(mut part) => {
                start_from_subsample(stats, &mut part, state, priors, recorder).map(Some)
            }
        };
        // Approximate data have fewer digits than the rows, on which the fit may well succeed.
        if let Ok(None) | Err(Stop::Failed(Error::NotPositiveDefinite(_))) = outcome {
            state.clone_from(&empty);
            return Ok(None);
        }
        outcome
    }
}

/// A model of low-rank features, continued on all rows; `None` where their error is too large.
fn start_from_features(
    stats: &mut dyn Statistics,
    features: &mut LowRankStatistics,
    state: &mut State,
    priors: &Priors,
    rules: &Rules,
    recorder: &mut Recorder<'_>,
) -> Result<Option<Dictionary>, Stop> {
    let model = match fit_features(stats, features, (state, priors), rules) {
        Ok(Some(model)) => model,
        Ok(None) | Err(Stop::MaxIterations) => return Ok(None),
        Err(stop) => return Err(stop),
    };
    model.apply(stats, state, priors)?;
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    if dictionary.largest_gain(state) > Tuning::MAX_LOW_RANK_GAIN {
        return Ok(None);
    }
    recorder.step(Action::Search, None, state)?;
    Ok(Some(dictionary))
}

/// Makes a first model on all rows, and nearly completes it with the Gram matrices of a subsample; the state then holds the statistics of
/// all rows.
///
/// (A step from the empty model changes all that the model explains, so the error of its curvature would be large.)
fn start_from_subsample(
    stats: &mut dyn Statistics,
    part: &mut Observations<'_>,
    state: &mut State,
    priors: &Priors,
    recorder: &mut Recorder<'_>,
) -> Result<Dictionary, Stop> {
    let mut nearly_complete = |state: &mut State, recorder: &mut Recorder<'_>| {
        sequential::model_of_sample(stats, state, priors, recorder)?;
        let mut sampled = SubsampledStatistics::new(stats, part);
        relinearise(&mut sampled, state)?;
        sequential::nearly_complete(&mut sampled, state, priors, recorder)
    };
    match nearly_complete(state, recorder) {
        Err(Stop::Failed(error)) => return Err(error.into()),
        Err(halt) => {
            relinearise(stats, state)?;
            recorder.amend(state);
            return Err(halt);
        }
        Ok(()) => relinearise(stats, state)?,
    }
    recorder.step(Action::Joint, None, state)?;
    let mut dictionary = Dictionary::new(stats.facts().n_basis(), priors.clone());
    dictionary.refresh(stats, state)?;
    Ok(dictionary)
}

/// Replaces the quadratic model of the state by the one of `stats` at the posterior mean.
fn relinearise(stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
    let (m, mu) = (state.len(), state.mu().to_vec());
    let (mut gram, mut gradient) = (DMatrix::zeros(m, m), vec![0.0; m]);
    let deviance = stats.local(&state.active, &mu, &mut gram, &mut gradient)?;
    state.set_data(&mu, &gradient, &[deviance], Some(&gram))
}

/// The model of the sequential scheme on low-rank features; `None` where their error is too large.
fn fit_features(
    whole: &mut dyn Statistics,
    features: &mut LowRankStatistics,
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
