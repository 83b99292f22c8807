//! Large-neighbourhood search: deletes a few neighbouring functions together, and runs the greedy algorithm from there.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search may first restart from an empty model. Each trial then deletes an active function together with
//! those most aligned with it, and continues greedily. A better result replaces the model. Everything happens on a
//! [`WorkingSet`], at a cost that depends neither on the number of rows nor on the size of the dictionary.

use std::collections::BTreeSet;

use crate::Error;
use crate::fit::candidates::most_aligned;
use crate::fit::greedy::LocalFit;
use crate::fit::model::Model;
use crate::fit::record::{Recorder, Stop};
use crate::fit::settings::NoisePrecision;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// What a search does first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Nothing.
    #[default]
    Plain,
    /// Refines the model as trials are refined, which gives what a restart would give if the working set already made the
    /// model from nothing.
    Refine,
    /// Restarts from an empty model.
    Restart,
}

/// Limits of a search: trials in all, and consecutive trials without a better model.
struct TrialBudget {
    trials: usize,
    failures: usize,
}

impl TrialBudget {
    fn is_spent(&self) -> bool {
        self.trials == 0 || self.failures == 0
    }

    fn spend(&mut self, trials: usize, is_better: bool) {
        self.trials = self.trials.saturating_sub(trials);
        self.failures = if is_better {
            Tuning::MAX_FAILED_TRIALS
        } else {
            self.failures.saturating_sub(trials)
        };
    }
}

impl LocalFit<'_> {
    /// Searches the neighbourhood of each active function; returns whether a better model was found, which is converged to a loose
    /// tolerance.
    pub(crate) fn search(&mut self, max_trials: usize, opening: Opening) -> Result<bool, Stop> {
        // A restart may find functions that gain nothing beside an empty model.
        if opening == Opening::Plain && self.model.penalized().next().is_none() {
            return Ok(false);
        }
        // A large model took many additions to make, and a restart rarely makes a much better one.
        let opening = if self.model.len() > Tuning::MAX_SIZE_OF_RESTART {
            Opening::Plain
        } else {
            opening
        };
        let mut best = self.clone();
        let opened = match opening {
            Opening::Plain => Ok(None),
            Opening::Refine => self.refined(self.clone(), &mut Recorder::silent()),
            Opening::Restart => self.restarted_from(1.0),
        };
        best.take_better(opened)?;
        if opening != Opening::Plain && best.has_much_noise() {
            // With little noise functions may depend on one another almost exactly, and the evidence be round-off.
            let bar = best.evidence() + Tuning::MAX_TRIAL_DEFICIT;
            let is_better = |trial: &Self| {
                trial.evidence() > bar && trial.model.least_pivot() > Tuning::MIN_PIVOT
            };
            let trial = self.restarted_from(Tuning::LOW_NOISE);
            best.take_better(trial.map(|found| found.filter(is_better)))?;
        }
        let mut budget = TrialBudget {
            trials: max_trials,
            failures: Tuning::MAX_FAILED_TRIALS,
        };
        while best.try_all(&mut budget)? && !budget.is_spent() {}
        let found = best.evidence() > self.evidence() + Tuning::MIN_SEARCH_GAIN;
        if found {
            *self = best;
        }
        Ok(found)
    }

    /// Tries each neighbourhood of the model in turn, and keeps every better model; returns whether there was one.
    fn try_all(&mut self, budget: &mut TrialBudget) -> Result<bool, Stop> {
        let start = self.evidence();
        // Neighbourhoods tried since the last improvement, sorted: in a small model most are the same.
        let mut tried = BTreeSet::new();
        for batch in self.seeds().chunks(Tuning::TRIAL_BATCH) {
            if budget.is_spent() {
                break;
            }
            let movable: Vec<usize> = self
                .model
                .penalized()
                .map(|k| self.model.active[k])
                .collect();
            let neighbourhood = |&seed: &usize| self.set.nearest(seed, &movable);
            let mut neighbourhoods: Vec<Vec<usize>> = batch.iter().map(neighbourhood).collect();
            neighbourhoods.retain(|functions| {
                let mut sorted = functions.clone();
                sorted.sort_unstable();
                tried.insert(sorted)
            });
            // All trials of a batch start from the same model, so the result does not depend on the number of threads.
            let outcomes = map_pieces(neighbourhoods.len(), 1, |range| {
                self.without(&neighbourhoods[range.start])
            });
            let before = self.evidence();
            for outcome in outcomes {
                self.take_better(outcome)?;
            }
            let is_better = self.evidence() > before;
            budget.spend(batch.len(), is_better);
            if is_better {
                tried.clear();
            }
        }
        Ok(self.evidence() > start)
    }

    /// Centres of neighbourhoods: active functions that others can replace, in ascending order of the evidence lost by deleting
    /// them.
    fn seeds(&self) -> Vec<usize> {
        let model = &self.model;
        let cost = |k: usize| -model.factors(k).gain_of_deleting(model.alpha[k]);
        let mut order: Vec<(f64, usize)> = model
            .penalized()
            .filter(|&k| self.set.has_substitutes(model.active[k], &model.active))
            .map(|k| (cost(k), model.active[k]))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        order.into_iter().map(|(_, i)| i).collect()
    }

    /// The objective.
    pub(crate) fn evidence(&self) -> f64 {
        self.model.log_posterior()
    }

    /// Whether there is more noise than the second restart begins with, and there are fewer functions than its first model may have.
    fn has_much_noise(&self) -> bool {
        if Tuning::MIN_ROWS_AT_LOW_NOISE * self.model.len() as f64 > self.set.facts.n_obs {
            return false;
        }
        let mut levels = self.model.levels.iter().map(|level| level.noise);
        levels.any(|noise| noise.is_estimated() && noise.beta < Tuning::LOW_NOISE * noise.start)
    }

    /// Takes the result of a trial if it is better. A trial that failed by round-off is not.
    fn take_better(&mut self, trial: Result<Option<Self>, Stop>) -> Result<(), Stop> {
        match trial {
            Ok(Some(other)) if other.evidence() > self.evidence() + Tuning::MIN_SEARCH_GAIN => {
                *self = other;
                Ok(())
            }
            Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => {
                Ok(())
            }
            Err(halt) => Err(halt),
        }
    }

    /// The result of the greedy algorithm from an empty model; `None` if it is far worse.
    ///
    /// Estimated noise precisions start at `factor` times their initial values. With a factor above 1 the first model is a small one: a
    /// few functions of a wide kernel explain little each while much noise remains, and all of it together.
    fn restarted_from(&self, factor: f64) -> Result<Option<Self>, Stop> {
        let recorder = &mut Recorder::silent();
        let flat: Vec<usize> = self.model.unpenalized().collect();
        let least = self
            .set
            .model_of(&flat, &vec![0.0; flat.len()], &self.model)?;
        let mut trial = Self::new(self.set, least);
        let n = trial.model.outputs.len();
        let levels: Vec<_> = self.model.levels.iter().map(|l| l.noise).collect();
        // With a prior on complexity many weak functions together may be better than none, while each alone is not: begin without,
        // and raise its weight in stages.
        trial.model.complexity = 0.0;
        for betas in NoisePrecision::stages(&levels) {
            let alpha = trial.model.alpha.clone();
            let lowered = betas.iter().zip(&levels).map(|(beta, noise)| {
                let factor = if noise.is_estimated() { factor } else { 1.0 };
                noise.limited(factor * beta)
            });
            let betas: Vec<f64> = lowered.collect();
            trial.model.set_hyperparameters(&alpha, &betas)?;
            trial.renew();
            let rows = if factor > 1.0 {
                let most = self.model.len() as f64 + Tuning::MAX_GROWTH_AT_LOW_NOISE;
                Tuning::MIN_ROWS_AT_LOW_NOISE.max(self.set.facts.n_obs / most)
            } else {
                self.rows_per_function()
            };
            trial.maximize_at_held_noise(rows, recorder)?;
        }
        let complexity = self.model.complexity;
        if complexity > Tuning::FIRST_COMPLEXITY {
            trial.model.complexity = Tuning::FIRST_COMPLEXITY;
            trial.renew();
            trial.maximize(Tuning::COARSE_EFFORT.of_outputs(n), recorder)?;
        }
        trial.model.complexity = complexity;
        trial.renew();
        trial.maximize(Tuning::COARSE_EFFORT.of_outputs(n), recorder)?;
        trial.renew();
        self.refined(trial, recorder)
    }

    /// The result of deleting these functions and continuing greedily; `None` if it is the same model or far worse.
    fn without(&self, deleted: &[usize]) -> Result<Option<Self>, Stop> {
        let recorder = &mut Recorder::silent();
        let mut trial = self.clone();
        for &i in deleted {
            trial.delete(i);
        }
        let n = trial.model.outputs.len();
        trial.step_greedily(Tuning::COARSE_EFFORT.of_outputs(n), recorder)?;
        let sorted = |model: &Model| {
            let mut active = model.active.clone();
            active.sort_unstable();
            active
        };
        if sorted(&self.model) == sorted(&trial.model) {
            return Ok(None);
        }
        self.refined(trial, recorder)
    }

    /// A trial after refinement; `None` if it is too far below this model to become better.
    pub(crate) fn refined(
        &self,
        mut trial: Self,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Self>, Stop> {
        if trial.evidence() + Tuning::MAX_TRIAL_DEFICIT < self.evidence() {
            return Ok(None);
        }
        let n = trial.model.outputs.len();
        trial.maximize(Tuning::TRIAL_EFFORT.of_outputs(n), recorder)?;
        Ok(Some(trial))
    }
}

impl WorkingSet {
    /// Whether an inactive function is aligned enough with active function `j` to replace a part of it.
    fn has_substitutes(&self, j: usize, active: &[usize]) -> bool {
        let diagonal = self.gram.diagonal();
        let mut products = self.gram.column(j).iter().zip(diagonal).enumerate();
        let is_like = |g: &f64, own: &f64| g * g > Tuning::SUBSTITUTE_COS2 * own * diagonal[j];
        products.any(|(i, (g, own))| is_like(g, own) && !active.contains(&i))
    }

    /// The active functions most aligned with `seed`, including itself; none if it is not active.
    fn nearest(&self, seed: usize, active: &[usize]) -> Vec<usize> {
        if !active.contains(&seed) {
            return Vec::new();
        }
        let products = self.gram.column(seed);
        most_aligned(
            active.iter().map(|&i| (products[i], i)),
            Tuning::NEIGHBOURHOOD_SIZE,
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::data::{DenseDesign, Observations, Statistics};
    use crate::fit::evidence::{Gamma, Priors};

    const ROWS: usize = 4;

    /// Three orthogonal columns, and one in the plane of the first two.
    const COLUMNS: [[f64; ROWS]; 4] = [
        [2.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 3.0, 0.0],
        [1.0, 0.5, 0.0, 0.0],
    ];

    /// A working set of all columns of a table, and an empty model with this noise precision.
    pub(crate) fn working_set(
        columns: &[f64],
        target: Vec<f64>,
        beta: f64,
        prior: [f64; 2],
    ) -> (WorkingSet, Model) {
        let (rows, n_columns) = (target.len(), columns.len() / target.len());
        let design = DenseDesign::new(columns, rows, n_columns).unwrap();
        let mut stats = Observations::new(&design, Likelihood::Gaussian, target, None).unwrap();
        let deviance = stats.deviance(&[], &[]).unwrap();
        let noise = [NoisePrecision::fixed(beta)];
        let mut model = Model::empty(&noise, Gamma::FLAT, &[deviance], stats.facts().n_obs);
        let priors = Priors::new(prior, &stats.facts().norms, stats.facts().target_scale);
        let everything: Vec<usize> = (0..n_columns).collect();
        let set = WorkingSet::about(&mut stats, &mut model, &priors, &everything).unwrap();
        (set, model)
    }

    /// A working set of all columns, and an empty model.
    pub(crate) fn orthogonal_columns() -> (WorkingSet, Model) {
        working_set(
            &COLUMNS.concat(),
            vec![3.0, -1.0, 2.0, 0.1],
            100.0,
            [0.0; 2],
        )
    }

    /// The model of the three orthogonal columns.
    pub(crate) fn fit_of_three((set, model): &(WorkingSet, Model)) -> LocalFit<'_> {
        let mut local = LocalFit::new(set, model.clone());
        (0..3).for_each(|i| local.add(i, &mut Recorder::silent()).unwrap());
        local
    }

    #[test]
    fn only_functions_with_substitutes_are_deleted() {
        let data = orthogonal_columns();
        let mut local = fit_of_three(&data);
        let mut tried = local.seeds();
        tried.sort_unstable();
        assert_eq!(tried, [0, 1]);
        local.delete(0);
        local.delete(1);
        local.add(3, &mut Recorder::silent()).unwrap();
        assert_eq!(local.seeds(), [3]);
    }
}
