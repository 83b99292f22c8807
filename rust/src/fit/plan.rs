//! The plan of a fit: the data of a first model, chosen before the fit. The fit then continues on all rows, on which alone it ends.
//!
//! * Low-rank features. A smooth kernel is nearly a product of few features (`data/low_rank`), on which passes over the dictionary cost
//!   little. If the features lack something that the targets need, candidates gain more on the rows than in features, and the model
//!   is discarded.
//! * Gram matrices of one row in sixteen (`data/row_subsample.rs`), where rows and functions are many.
//! * None, if the caller gives the first model: that of a fit to similar data.

use crate::data::{LowRankStatistics, Observations, Statistics, SubsampledStatistics};
use crate::fit::candidates::Candidates;
use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Priors;
use crate::fit::model::Model;
use crate::fit::record::{Action, Recorder, Stop, unless_indefinite};
use crate::fit::sequential::Start;
use crate::fit::settings::{Noise, NoisePrecision, Rules, Scheme};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::model::Status;
use crate::{Error, Result};

/// The data of the first model of a fit.
pub struct FirstStage<'d>(Stage<'d>);

#[allow(clippy::large_enum_variant)] // one for each fit
enum Stage<'d> {
    AllRows,
    LowRankFeatures(LowRankStatistics),
    /// One row in sixteen.
    RowSubsample(Observations<'d>),
    Given(InitialModel),
}

impl<'d> FirstStage<'d> {
    /// All rows.
    #[must_use]
    pub fn all_rows() -> Self {
        Self(Stage::AllRows)
    }

    /// A given model: `functions` in ascending order with their prior precisions, and the noise precision.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the functions are ascending, and the precisions not negative and finite, that of the noise positive.
    pub fn given(functions: Vec<usize>, alpha: Vec<f64>, beta: f64) -> Result<Self> {
        Error::check_len("alpha", functions.len(), alpha.len())?;
        let is_ascending = functions.windows(2).all(|pair| pair[0] < pair[1]);
        let is_finite = alpha.iter().all(|a| a.is_finite() && *a >= 0.0) && beta.is_finite();
        if !is_ascending || !is_finite || beta <= 0.0 {
            let what = "the first model must have ascending functions and finite precisions";
            return Err(Error::Invalid { what: what.into() });
        }
        let model = InitialModel {
            functions,
            alpha,
            beta,
        };
        Ok(Self(Stage::Given(model)))
    }

    /// The cheapest data from which the first model of a fit is accurate enough.
    ///
    /// # Errors
    /// [`Error::Interrupted`](crate::Error::Interrupted) once the caller has raised the flag.
    pub fn choose(rows: &Observations<'d>, rules: &Rules) -> Result<Self> {
        let facts = rows.facts();
        // A small dictionary fits into one working set: approximations would save nothing.
        let is_small = facts.n_basis() <= Tuning::MAX_WHOLE_DICTIONARY;
        if rules.scheme != Scheme::Sequential || !facts.is_linear || is_small {
            return Ok(Self::all_rows());
        }
        let beta = NoisePrecision::new(rules.noise, 1.0, facts.target_scale).beta;
        let is_too_precise = rules.noise != Noise::Estimated && beta > Tuning::MAX_LOW_RANK_BETA;
        if !is_too_precise
            && rules.max_iter >= 1000
            && let Some(features) = rows.low_rank.clone()
        {
            return Ok(Self(Stage::LowRankFeatures(features)));
        }
        let part = rows.subsample(Tuning::SUBSAMPLE_RATIO, 64 * Tuning::SAMPLE_SIZE)?;
        Ok(Self(part.map_or(Stage::AllRows, Stage::RowSubsample)))
    }
}

impl Fit<'_, '_> {
    /// The first model of a fit, on these data or, where they are no help, on all rows.
    pub(crate) fn first_stage(&mut self, first: FirstStage<'_>) -> Result<Start, Stop> {
        let empty = self.model.clone();
        let outcome = match first.0 {
            Stage::AllRows => return self.first_model(),
            Stage::LowRankFeatures(mut features) => self.start_from_features(&mut features),
            Stage::RowSubsample(mut part) => self.start_from_subsample(&mut part),
            Stage::Given(model) => self.start_from(&model),
        };
        if unless_indefinite(outcome)? == Some(true) {
            return Ok(Start::default());
        }
        // Approximate data have fewer digits than the rows, on which the fit may well succeed.
        self.model.clone_from(&empty);
        self.clear_dictionary();
        self.first_model()
    }

    /// Starts from a given model, whose functions must be among those of the dictionary.
    fn start_from(&mut self, given: &InitialModel) -> Result<bool, Stop> {
        let n_basis = self.stats.facts().n_basis();
        if given.functions.last().is_some_and(|&j| j >= n_basis) {
            let what = format!("the first model must have functions below {n_basis}");
            return Err(Error::Invalid { what }.into());
        }
        given.apply(self.stats, self.model, self.dictionary.priors())?;
        if !self.stats.facts().is_linear {
            self.find_mode()?; // the evidence has no meaning elsewhere
        }
        self.refresh()?;
        self.record(Action::Search, None)?;
        Ok(true)
    }

    /// Continues from the first model of a fit with another likelihood than the Gaussian; from an empty one unless it is given.
    pub(crate) fn first_stage_at_modes(&mut self, first: FirstStage<'_>) -> Result<Status, Stop> {
        let Stage::Given(given) = first.0 else {
            return self.laplace();
        };
        let empty = self.model.clone();
        let outcome = self.start_from(&given).and_then(|_| self.resume_at_modes());
        if let Some(status) = unless_indefinite(outcome)? {
            return Ok(status);
        }
        self.model.clone_from(&empty);
        self.clear_dictionary();
        self.laplace()
    }

    /// A model of low-rank features, continued on all rows; returns whether their error is small enough.
    fn start_from_features(&mut self, features: &mut LowRankStatistics) -> Result<bool, Stop> {
        let mut on_features = Fit {
            dictionary: &mut Dictionary::of(features.facts(), self.rules),
            stats: features,
            model: &mut self.model.clone(),
            rules: &self.rules.loosened(),
            recorder: &mut Recorder::silent(),
        };
        let found = on_features.fit_features(self.stats, self.dictionary.priors());
        let model = match found {
            Ok(Some(model)) => model,
            Ok(None) | Err(Stop::MaxIterations) => return Ok(false),
            Err(stop) => return Err(stop),
        };
        model.apply(self.stats, self.model, self.dictionary.priors())?;
        self.refresh()?;
        let is_close = self.dictionary.largest_gain(self.model) <= Tuning::MAX_LOW_RANK_ERROR;
        if is_close {
            self.record(Action::Search, None)?;
        }
        Ok(is_close)
    }

    /// The model of the sequential scheme on low-rank features; `None` where their error is too large.
    fn fit_features(
        &mut self,
        whole: &mut dyn Statistics,
        priors: &Priors,
    ) -> Result<Option<InitialModel>, Stop> {
        let empty = self.model.clone();
        let start = self.first_model()?;
        if self.model.beta() > Tuning::MAX_LOW_RANK_BETA {
            return Ok(None);
        }
        let scale = self.stats.facts().target_scale;
        let mut initial = InitialModel::of(self.model, &self.stats.facts().norms, scale);
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
        self.sequential(start)?;
        let norms = &self.stats.facts().norms;
        Ok(Some(InitialModel::of(self.model, norms, scale)))
    }

    /// Makes a first model on all rows, and nearly completes it with the Gram matrices of a subsample; the model then holds the statistics
    /// of all rows.
    ///
    /// (A step from the empty model changes all that the model explains, so the error of its curvature would be large.)
    fn start_from_subsample(&mut self, part: &mut Observations<'_>) -> Result<bool, Stop> {
        let outcome = self.nearly_complete_on(part);
        if let Err(Stop::Failed(error)) = outcome {
            return Err(error.into());
        }
        self.relinearise()?;
        if outcome.is_err() {
            self.recorder.amend(self.model);
        }
        outcome?;
        self.record(Action::Joint, None)?;
        self.clear_dictionary();
        self.refresh()?;
        Ok(true)
    }

    fn nearly_complete_on(&mut self, part: &mut Observations<'_>) -> Result<(), Stop> {
        self.model_of_sample()?;
        self.clear_dictionary();
        let mut fit = Fit {
            stats: &mut SubsampledStatistics::new(self.stats, part),
            model: self.model,
            dictionary: self.dictionary,
            rules: self.rules,
            recorder: self.recorder,
        };
        fit.relinearise()?;
        fit.nearly_complete()
    }
}

/// Functions, precisions and noise of a model, in the units of the caller.
struct InitialModel {
    functions: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
}

impl InitialModel {
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
                let least = if *alpha > 0.0 {
                    Tuning::ALPHA_FLOOR
                } else {
                    0.0
                };
                (j, (alpha * unit * unit).clamp(least, f64::MAX))
            })
            .unzip();
        let noise = &mut model.levels[0].noise;
        noise.beta = noise.moved(|| self.beta * scale * scale);
        model.start(stats, &functions, &alpha, priors)?;
        model.recentre(stats)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::data::DenseDesign;
    use crate::fit::fit_from;
    use crate::fit::settings::Settings;
    use crate::{Likelihood, Posterior};

    const N: usize = 2048;
    const K: usize = 20;

    fn columns() -> Vec<f64> {
        let value = |i: usize| (1.7 * i as f64 + 1e-3 * (i as f64).powi(2)).sin();
        (0..N * K).map(value).collect()
    }

    fn targets(columns: &[f64], noise: f64) -> Vec<f64> {
        let target = |i: usize| {
            let signal = 2.0 * columns[3 * N + i] - columns[11 * N + i];
            signal + noise * (7.3 * i as f64 * i as f64).sin()
        };
        (0..N).map(target).collect()
    }

    fn fit(stage: Stage<'_>, rows: &mut Observations<'_>) -> Result<Posterior> {
        let rules = Settings::default().check().unwrap();
        let watch = &mut |_: &_| ControlFlow::Continue(());
        fit_from(FirstStage(stage), rows, &rules, watch)
    }

    /// Whatever the first model is, the fit ends at the same optimum on all rows.
    #[test]
    fn fits_from_a_subsample_end_at_the_model_of_all_rows() {
        let columns = columns();
        let design = DenseDesign::new(&columns[..], N, K).unwrap();
        let weights: Vec<f64> = (0..N).map(|i| 0.5 + (i % 4) as f64).collect();
        for (weights, noise) in [(None, 0.5), (Some(weights), 0.5), (None, 0.05)] {
            let target = targets(&columns, noise);
            let rows = || {
                let (target, weights) = (target.clone(), weights.clone());
                Observations::new(&design, Likelihood::Gaussian, target, weights).unwrap()
            };
            let expected = fit(Stage::AllRows, &mut rows()).unwrap();
            let part = rows().subsample(Tuning::SUBSAMPLE_RATIO, 64).unwrap();
            let part = part.unwrap();
            assert_eq!(part.n_rows(), N / Tuning::SUBSAMPLE_RATIO);
            let found = fit(Stage::RowSubsample(part), &mut rows()).unwrap();
            assert_eq!(found.active, expected.active);
            assert_eq!(found.status, expected.status);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs();
            assert!(near(found.log_evidence, expected.log_evidence));
            for (a, b) in found.mu.iter().zip(&expected.mu) {
                assert!(near(*a, *b), "{a} {b}");
            }
        }
    }

    #[test]
    fn no_subsample_is_chosen_for_few_functions() {
        let columns = columns();
        let design = DenseDesign::new(&columns[..], N, K).unwrap();
        let target = targets(&columns, 0.5);
        let rows = Observations::new(&design, Likelihood::Gaussian, target, None).unwrap();
        let rules = Settings::default().check().unwrap();
        let chosen = FirstStage::choose(&rows, &rules).unwrap();
        assert!(matches!(chosen.0, Stage::AllRows));
    }
}
