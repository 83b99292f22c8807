//! The context of a fit: data, model, dictionary, rules and record, which every scheme shares.

use crate::Error;
use crate::data::{Facts, Statistics};
use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Gamma;
use crate::fit::greedy::LocalFit;
use crate::fit::model::Model;
use crate::fit::record::{Action, Recorder, Stop, unless_indefinite};
use crate::fit::refine;
use crate::fit::settings::{Rules, Scheme};
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;
use crate::linalg::Matrix;
use crate::model::{OutputPosterior, Posterior, Status};

/// A fit of a model to data. The schemes are its methods, each in a file of its own.
pub(crate) struct Fit<'a, 'w> {
    pub(crate) stats: &'a mut dyn Statistics,
    pub(crate) model: &'a mut Model,
    /// S and Q of all functions at the last pass over the data, and the priors of their alphas.
    pub(crate) dictionary: &'a mut Dictionary,
    pub(crate) rules: &'a Rules,
    pub(crate) recorder: &'a mut Recorder<'w>,
}

impl<'w> Fit<'_, 'w> {
    /// Records a step with its predicted gain; `None`: the achieved gain.
    pub(crate) fn record(&mut self, action: Action, gain: Option<f64>) -> Result<(), Stop> {
        self.recorder.step(action, gain, self.model)
    }

    /// Brings alphas and noise of the active set to convergence, on the data; returns whether it converged.
    pub(crate) fn refine(&mut self, effort: Effort) -> Result<bool, Stop> {
        refine::converge(self.stats, self.model, effort, self.recorder)
    }

    /// A pass over the dictionary, which moves the quadratic model to the posterior mean.
    pub(crate) fn refresh(&mut self) -> crate::Result<()> {
        self.dictionary.refresh(self.stats, self.model)
    }

    /// Forgets all that was computed from the data.
    pub(crate) fn clear_dictionary(&mut self) {
        *self.dictionary = Dictionary::new(
            self.stats.facts().n_basis(),
            self.dictionary.priors().clone(),
        );
    }

    /// The statistics of the active functions and `others`.
    pub(crate) fn working_set(&mut self, others: &[usize]) -> crate::Result<WorkingSet> {
        WorkingSet::about(self.stats, self.model, self.dictionary.priors(), others)
    }

    /// Runs `f` on a working set, with functions numbered by their position there; the recorder translates them back.
    pub(crate) fn on<T>(
        &mut self,
        set: &WorkingSet,
        f: impl FnOnce(&mut LocalFit<'_>, &mut Recorder<'w>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let mut model = std::mem::replace(self.model, Model::empty(&[], Gamma::FLAT, &[], 0.0));
        for j in &mut model.active {
            *j = set.place(*j);
        }
        let mut local = LocalFit::new(set, model);
        self.recorder.members = Some(set.members.clone());
        let result = f(&mut local, self.recorder);
        self.recorder.members = None;
        *self.model = local.model;
        for j in &mut self.model.active {
            *j = set.members[*j];
        }
        result
    }

    /// Greedy steps on a working set.
    pub(crate) fn maximize_on(&mut self, set: &WorkingSet, effort: Effort) -> Result<(), Stop> {
        self.on(set, |local, recorder| local.maximize(effort, recorder))
    }

    /// Adds the functions that have a flat prior to an empty model.
    pub(crate) fn add_unpenalized(&mut self) -> crate::Result<()> {
        let functions = self.rules.unpenalized.clone();
        if !functions.is_empty() {
            self.fill(&functions, &vec![0.0; functions.len()])?;
            self.recorder.amend(self.model);
        }
        Ok(())
    }

    /// The functions that are not zero on all rows, and the alphas with which schemes start from all of them.
    pub(crate) fn full_start(&self) -> (Vec<usize>, Vec<f64>) {
        let (flat, norms) = (&self.rules.unpenalized, &self.stats.facts().norms);
        let functions = (0..norms.len()).filter(|&j| norms[j] > 0.0);
        let initial = |j: usize| {
            if flat.contains(&j) {
                (j, 0.0)
            } else {
                (j, Tuning::INITIAL_ALPHA)
            }
        };
        functions.map(initial).unzip()
    }

    /// Adds up to a block of candidates of the dictionary, each the best one given the additions before it, and returns how many.
    pub(crate) fn add_block(&mut self, limit: usize) -> Result<usize, Stop> {
        let list = self
            .dictionary
            .best_candidates(self.model, 4 * Tuning::MAX_BLOCK_ADDITIONS);
        if list.is_empty() {
            return Ok(0);
        }
        let (set, before) = (self.working_set(&list)?, self.model.active.clone());
        let min_gain = self.dictionary.penalty + Tuning::MIN_GAIN;
        let added = self.on(&set, |local, recorder| {
            local.add_several(min_gain, Tuning::BLOCK_GAIN_RATIO, limit, recorder)
        })?;
        // Where functions are dependent up to round-off, some of those before may have been deleted.
        let is_new = |j: &usize| !before.contains(j);
        let new: Vec<usize> = self.model.active.iter().copied().filter(is_new).collect();
        self.dictionary.count_entries(&new);
        Ok(added)
    }

    /// Runs `work` with a copy of the model, which `work` replaces by each converged model. If round-off makes the posterior precision
    /// indefinite or lowers the evidence, restores that copy and records it as `action`: the fit ends as stalled.
    pub(crate) fn or_roll_back(
        &mut self,
        action: Action,
        work: impl FnOnce(&mut Self, &mut Model) -> Result<Option<Status>, Stop>,
    ) -> Result<Status, Stop> {
        let mut good = self.model.clone();
        let outcome = work(self, &mut good);
        if let Some(Some(status)) = unless_indefinite(outcome)? {
            return Ok(status);
        }
        self.model.clone_from(&good);
        self.record(action, None)?;
        Ok(Status::Stalled)
    }

    /// Whether the evidence is below that of `good`. Every step raises it, so this is an effect of round-off.
    pub(crate) fn has_fallen_below(&self, good: &Model) -> bool {
        let (now, then) = (self.model.log_posterior(), good.log_posterior());
        now < then - 10.0 * Tuning::MIN_GAIN * (1.0 + then.abs())
    }

    /// This fit by other rules.
    pub(crate) fn with_rules<'b>(&'b mut self, rules: &'b Rules) -> Fit<'b, 'w> {
        Fit {
            stats: self.stats,
            model: self.model,
            dictionary: self.dictionary,
            rules,
            recorder: self.recorder,
        }
    }

    /// Adds functions with these precisions to an empty model, and finds its posterior mode.
    pub(crate) fn fill(&mut self, functions: &[usize], alpha: &[f64]) -> crate::Result<()> {
        self.model
            .start(self.stats, functions, alpha, self.dictionary.priors())?;
        self.settle()?;
        self.check_bounded()
    }

    /// Checks that there is a mode: without a prior the weight of a column that separates classes, or that is zero in every row with a
    /// count, grows without bound. Where Newton's method then ends, the likelihood is flat, and its next step would still change
    /// predictors by 1. (The intercept alone has such a weight if all counts are 0; predictions bear that.)
    fn check_bounded(&self) -> crate::Result<()> {
        if self.stats.facts().is_linear || self.rules.unpenalized == [0] {
            return Ok(());
        }
        let (model, steps) = (&*self.model, &self.model.outputs[0].offset);
        if !(0..model.len()).any(|k| model.is_unpenalized(k) && steps[k].abs() > 0.05) {
            return Ok(());
        }
        let what = "unpenalized names columns that separate classes, or rows without counts from others: without a prior their weights \
                    would be infinite; leave them out";
        Err(Error::Invalid { what: what.into() })
    }

    /// Moves the quadratic model of the data to the posterior mean where round-off matters, or to the posterior mode.
    pub(crate) fn settle(&mut self) -> crate::Result<()> {
        if self.stats.facts().is_linear {
            return self.model.recentre(self.stats);
        }
        self.find_mode()
    }

    /// Replaces the quadratic model of the data by the one about the posterior mean.
    pub(crate) fn relinearise(&mut self) -> crate::Result<()> {
        let mu = self.model.mu().to_vec();
        self.model.expand_about(self.stats, &mu)
    }

    /// The fitted model of one output, sorted by index, in the units of the given columns and targets.
    pub(crate) fn publish(&mut self, outcome: Result<Status, Stop>) -> crate::Result<Posterior> {
        let (mut found, model) = (self.publish_outputs(outcome)?, &*self.model);
        let log_evidence = match (self.rules.scheme, found.trace.last()) {
            (Scheme::Variational, Some(&bound)) => bound,
            _ => found.log_evidence,
        };
        Ok(Posterior {
            gamma: model.order().iter().map(|&k| model.gamma(k, 0)).collect(),
            active: found.active,
            alpha: found.alpha,
            mu: found.mu.as_slice().to_vec(),
            sigma: found.sigma.swap_remove(0),
            beta: found.beta[0],
            log_evidence,
            trace: found.trace,
            status: found.status,
        })
    }

    /// The fitted model of several outputs.
    pub(crate) fn publish_outputs(
        &mut self,
        outcome: Result<Status, Stop>,
    ) -> crate::Result<OutputPosterior> {
        let status = self.status(outcome)?;
        let trace = std::mem::take(&mut self.recorder.trace);
        let posterior = self.model.published(trace, status, self.stats.facts());
        posterior.checked()
    }

    /// The status of a fit with this outcome. If a limit or the callback ended it, the posterior mode is found for the model as it is.
    pub(crate) fn status(&mut self, outcome: Result<Status, Stop>) -> crate::Result<Status> {
        let is_early = matches!(outcome, Err(Stop::Stopped | Stop::MaxIterations));
        let has_modes = !self.stats.facts().is_linear && self.rules.scheme != Scheme::Variational;
        if is_early && has_modes {
            self.find_some_mode()?;
        }
        // The quadratic model may have been moved to the posterior mean since the last step.
        self.recorder.amend(self.model);
        let at_floor = |&alpha: &f64| alpha > 0.0 && alpha <= Tuning::ALPHA_FLOOR;
        match outcome {
            Ok(Status::Converged) if self.model.alpha.iter().any(at_floor) => {
                Ok(Status::AlphaFloor)
            }
            Ok(status) => Ok(status),
            Err(Stop::MaxIterations) => Ok(Status::MaxIterations),
            Err(Stop::Stopped) => Ok(Status::Stopped),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

impl Model {
    /// The positions of the active functions in the order of their indices.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_unstable_by_key(|&k| self.active[k]);
        order
    }

    /// This model sorted by index, in the units of the given columns and targets: the weight of a column with norm c is 1/c times that of
    /// the unit column.
    pub(crate) fn published(
        &self,
        trace: Vec<f64>,
        status: Status,
        facts: &Facts,
    ) -> OutputPosterior {
        let (order, scale) = (self.order(), facts.target_scale);
        let unit = |k: usize| scale / facts.norms[self.active[k]];
        let covariance = |sigma: &Matrix| {
            Matrix::from_fn(order.len(), order.len(), |i, j| {
                let (i, j) = (order[i], order[j]);
                // After rank-one updates the two triangles differ in the last bits.
                0.5 * (sigma[(i, j)] + sigma[(j, i)]) * (unit(i) * unit(j))
            })
        };
        let mu = |k: usize, c: usize| self.outputs[c].mu[order[k]] * unit(order[k]);
        let alpha = |&k: &usize| self.alpha[k] / (unit(k) * unit(k));
        let levels = || self.levels.iter();
        OutputPosterior {
            active: order.iter().map(|&k| self.active[k]).collect(),
            alpha: order.iter().map(alpha).collect(),
            mu: Matrix::from_fn(order.len(), self.outputs.len(), mu),
            sigma: levels().map(|level| covariance(&level.sigma)).collect(),
            beta: levels().map(|l| l.noise.beta / (scale * scale)).collect(),
            at_floor: levels().map(|l| l.noise.at_floor()).collect(),
            // The density of t / c is c^n times that of t.
            log_evidence: self.log_evidence() - self.n_contrasts() * scale.ln(),
            trace,
            status,
        }
    }
}
