//! A start from low-rank features of the kernel, on which passes over the dictionary cost little.
//!
//! A smooth kernel is nearly a product of few features (`data/low_rank`). The model found on them is only a start: the fit on all rows
//! continues from its functions and precisions. If the features lack something that the targets need, candidates gain more on the rows
//! than in features, and the start is discarded.

use crate::data::{Approximation, Statistics};
use crate::fit::candidates::Candidates;
use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Priors;
use crate::fit::model::Model;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::settings::Noise;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::{Error, Result};

impl Fit<'_, '_> {
    /// Brings an empty model to a nearly converged one on all rows, with a refreshed dictionary; returns `false`, with the model empty,
    /// where features are no help.
    pub(crate) fn start_from_features(&mut self) -> Result<bool, Stop> {
        let is_too_precise =
            self.rules.noise != Noise::Estimated && self.model.beta() > Tuning::MAX_LOW_RANK_BETA;
        // A small dictionary fits into one working set: features would save nothing.
        let is_small = self.stats.facts().n_basis() <= Tuning::MAX_WHOLE_DICTIONARY;
        if is_small || is_too_precise || self.rules.max_iter < 1000 {
            return Ok(false);
        }
        let empty = self.model.clone();
        let mut outcome = None;
        let kind = Approximation::LowRankFeatures;
        let (dictionary, rules) = (&mut *self.dictionary, &self.rules.loosened());
        self.stats
            .with_approximation(kind, &mut |whole, features| {
                let norms = &features.facts().norms;
                let own = Priors::new(rules.alpha_prior, norms, features.facts().target_scale);
                let mut fit = Fit {
                    model: &mut empty.clone(),
                    dictionary: &mut Dictionary::new(norms.len(), own),
                    stats: features,
                    rules,
                    recorder: &mut Recorder::silent(),
                };
                outcome = Some(fit.fit_features(whole, dictionary.priors()));
            })?;
        let Some(outcome) = outcome else {
            return Ok(false);
        };
        let started = outcome.and_then(|start| {
            let Some(start) = start else {
                return Ok(false);
            };
            start.apply(self.stats, self.model, self.dictionary.priors())?;
            self.refresh()?;
            Ok(self.dictionary.largest_gain(self.model) <= Tuning::MAX_LOW_RANK_GAIN)
        });
        match started {
            Ok(true) => {
                self.record(Action::Search, None)?;
                Ok(true)
            }
            // Features have fewer digits than the rows, on which the fit may well succeed.
            Ok(false) | Err(Stop::MaxIterations | Stop::Failed(Error::NotPositiveDefinite(_))) => {
                self.model.clone_from(&empty);
                self.clear_dictionary();
                Ok(false)
            }
            Err(stop) => Err(stop),
        }
    }

    /// The model of the sequential scheme on low-rank features; `None` where their error is too large.
    fn fit_features(
        &mut self,
        whole: &mut dyn Statistics,
        priors: &Priors,
    ) -> Result<Option<LowRankModel>, Stop> {
        let empty = self.model.clone();
        let start = self.first_model()?;
        if self.model.beta() > Tuning::MAX_LOW_RANK_BETA {
            return Ok(None);
        }
        let scale = self.stats.facts().target_scale;
        let mut initial = LowRankModel::of(self.model, &self.stats.facts().norms, scale);
        // Where features miss part of the signal, their fit counts it as noise, which would hide the gains: test with the initial noise at most.
        let initial_beta = 1.0 / (Tuning::INITIAL_NOISE * scale * scale);
        initial.beta = initial.beta.max(initial_beta);
        let size = Tuning::SAMPLE_SIZE / 4;
        let sample = self.dictionary.sample(size, size);
        let on_rows = initial.gains(whole, &sample, empty.clone(), priors)?;
        let in_features = initial.gains(self.stats, &sample, empty, self.dictionary.priors())?;
        let mut pairs = on_rows.iter().zip(&in_features);
        if pairs.any(|(rows, features)| rows > &(features + Tuning::MAX_LOW_RANK_ERROR)) {
            return Ok(None);
        }
        self.complete(start)?;
        let norms = &self.stats.facts().norms;
        Ok(Some(LowRankModel::of(self.model, norms, scale)))
    }
}

/// Functions, precisions and noise of a model of low-rank features, in the units of the caller.
struct LowRankModel {
    functions: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
}

impl LowRankModel {
    fn of(model: &Model, norms: &[f64], scale: f64) -> Self {
        let in_units = |(&j, alpha): (&usize, &f64)| alpha * (norms[j] / scale).powi(2);
        let alpha = model.active.iter().zip(&model.alpha);
        Self {
            functions: model.active.clone(),
            alpha: alpha.map(in_units).collect(),
            beta: model.beta() / (scale * scale),
        }
    }

    /// The gain of adding each candidate to this model; 0 for its own functions.
    fn gains(
        &self,
        stats: &mut dyn Statistics,
        candidates: &[usize],
        mut model: Model,
        priors: &Priors,
    ) -> Result<Vec<f64>, Stop> {
        self.apply(stats, &mut model, priors)?;
        let set = WorkingSet::about(stats, &mut model, priors, candidates)?;
        model.active.iter_mut().for_each(|j| *j = set.place(*j));
        let factors = Candidates::new(&set, &model).factors;
        let gain = |&i: &usize| {
            let i = set.place(i);
            if model.active.contains(&i) {
                0.0
            } else {
                factors.of(i, &model).gain_of_adding()
            }
        };
        Ok(candidates.iter().map(gain).collect())
    }

    /// Adds to an empty model the functions whose column is not entirely zero.
    fn apply(&self, stats: &mut dyn Statistics, model: &mut Model, priors: &Priors) -> Result<()> {
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
        let noise = &mut model.levels[0].noise;
        noise.beta = noise.moved(|| self.beta * scale * scale);
        model.start(stats, &functions, &alpha, priors)?;
        model.recentre(stats)?;
        Ok(())
    }
}
