//! The record of a fit: the steps, the trace of the evidence, and the callback of the caller.

use std::ops::ControlFlow;

use crate::Error;
use crate::fit::model::Model;
use crate::fit::tuning::Tuning;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Added a function.
    Add(usize),
    /// Re-estimated the alpha of an active function.
    Reestimate(usize),
    /// Deleted a function.
    Delete(usize),
    /// Replaced the model by a better one that a search or another start found.
    Search,
    /// Re-estimated the noise level.
    Noise,
    /// Moved all alphas, and the noise level if it is estimated, in one joint step.
    Joint,
    /// Found the posterior mode and made the Laplace approximation there.
    Mode,
    /// Progress of a pass over the inactive candidates: not a step, and without a number of its own.
    Sweep {
        /// Candidates evaluated.
        done: usize,
        /// Candidates of this pass.
        of: usize,
    },
}

impl Action {
    /// The name in lower case, and the function that was changed.
    #[must_use]
    pub fn parts(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Add(j) => ("add", Some(j)),
            Self::Reestimate(j) => ("reestimate", Some(j)),
            Self::Delete(j) => ("delete", Some(j)),
            Self::Search => ("search", None),
            Self::Noise => ("noise", None),
            Self::Joint => ("joint", None),
            Self::Mode => ("mode", None),
            Self::Sweep { .. } => ("sweep", None),
        }
    }
}

/// One step, as the callback receives it. Evidence (with priors: log posterior) and noise are in the units of the targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// 1 for the first step.
    pub iteration: usize,
    /// What was done.
    pub action: Action,
    /// The gain in log evidence; for changes of a single alpha the predicted gain, which equals the achieved one.
    pub gain: f64,
    /// Log evidence after the step.
    pub log_evidence: f64,
    /// Functions in the model after the step.
    pub n_active: usize,
    /// Noise precision after the step; 1 for likelihoods without one.
    pub beta: f64,
}

/// Called after each step; a break ends the fit with the present model.
pub type StepCallback<'w> = dyn FnMut(&Step) -> ControlFlow<()> + 'w;

/// Why a fit ended before convergence.
#[derive(Debug)]
pub(crate) enum Stop {
    MaxIterations,
    Stopped,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The result of a trial, or `None` if round-off made a posterior precision indefinite.
pub(crate) fn unless_indefinite<T>(trial: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match trial {
        Err(Stop::Failed(Error::NotPositiveDefinite(_))) => Ok(None),
        trial => trial.map(Some),
    }
}

/// What the recorder adds to the objective of a model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offset {
    /// For each active function.
    pub(crate) per_function: f64,
    /// For the whole model.
    pub(crate) whole: f64,
}

/// Counts steps, stores the evidence after each, and calls the callback.
pub(crate) struct Recorder<'w> {
    pub(crate) trace: Vec<f64>,
    max_iter: usize,
    /// Steps of a recorder without trace.
    silent_steps: usize,
    target_scale: f64,
    pub(crate) offset: Offset,
    /// The dictionary indices of a working set while steps are indexed by its positions.
    pub(crate) members: Option<Vec<usize>>,
    /// The dictionary indices of the part of a large dictionary to which `members` refers.
    pub(crate) working: Option<Vec<usize>>,
    /// [`Model::least_pivot`] before the step, for debug assertions.
    least_pivot: f64,
    watch: Option<&'w mut StepCallback<'w>>,
}

impl<'w> Recorder<'w> {
    pub(crate) fn new(
        model: &Model,
        max_iter: usize,
        target_scale: f64,
        watch: &'w mut StepCallback<'w>,
    ) -> Self {
        let mut this = Self {
            max_iter,
            target_scale,
            watch: Some(watch),
            ..Self::silent()
        };
        this.begin(model);
        this
    }

    /// Starts the trace at this model.
    pub(crate) fn begin(&mut self, model: &Model) {
        self.least_pivot = model.least_pivot();
        self.trace = vec![self.in_target_units(model)];
    }

    /// Replaces the last evidence by that of `model`, which was moved to its mode or mean since the last step.
    pub(crate) fn amend(&mut self, model: &Model) {
        let value = self.in_target_units(model);
        if let Some(last) = self.trace.last_mut() {
            *last = value;
        }
    }

    /// A recorder for trials, without trace or callback. A trial that round-off keeps from convergence ends with
    /// [`Stop::MaxIterations`].
    pub(crate) fn silent() -> Self {
        Self {
            trace: Vec::new(),
            max_iter: 100 * Tuning::MAX_STEPS,
            silent_steps: 0,
            target_scale: 1.0,
            offset: Offset::default(),
            members: None,
            working: None,
            least_pivot: 1.0,
            watch: None,
        }
    }

    /// The objective in the units of the targets: the density of t / c is c^N times that of t; beta of t / c is c^2 beta.
    fn in_target_units(&self, model: &Model) -> f64 {
        let offset =
            self.offset.per_function * model.penalized().count() as f64 + self.offset.whole;
        model.log_posterior() + offset - model.powers_of_target() * self.target_scale.ln()
    }

    pub(crate) fn n_iter(&self) -> usize {
        self.trace.len() - 1
    }

    /// The action with its function indexed in the dictionary.
    fn named(&self, action: Action) -> Action {
        let index = |i: usize, list: &Option<Vec<usize>>| list.as_ref().map_or(i, |list| list[i]);
        let name = |i: usize| index(index(i, &self.members), &self.working);
        match action {
            Action::Add(i) => Action::Add(name(i)),
            Action::Reestimate(i) => Action::Reestimate(name(i)),
            Action::Delete(i) => Action::Delete(name(i)),
            other => other,
        }
    }

    /// Asserts that a predicted gain was achieved.
    fn check_gain(&mut self, action: Action, predicted: Option<f64>, achieved: f64, model: &Model) {
        let pivot = model.least_pivot();
        if let Some(gain) = predicted {
            // Nearly dependent functions have small pivots, and the evidence fewer correct digits.
            let lost = 1024.0 * f64::EPSILON / pivot.min(self.least_pivot);
            let (gain_size, size) = (gain.abs().max(1.0), self.trace[self.n_iter()].abs());
            let slack = (1e-8 + lost) * gain_size + (1e-11 + lost) * size;
            debug_assert!(
                (achieved - gain).abs() <= slack,
                "{action:?}: predicted {gain}, achieved {achieved}"
            );
        }
        self.least_pivot = pivot;
    }

    /// Reports the progress of a pass over the candidates to the callback.
    pub(crate) fn report_sweep(
        &mut self,
        done: usize,
        of: usize,
        model: &Model,
    ) -> Result<(), Stop> {
        let log_evidence = self.in_target_units(model);
        let step = self.report(Action::Sweep { done, of }, 0.0, log_evidence, model);
        self.notify(&step)
    }

    fn report(&self, action: Action, gain: f64, log_evidence: f64, model: &Model) -> Step {
        Step {
            iteration: self.n_iter(),
            action: self.named(action),
            gain,
            log_evidence,
            n_active: model.len(),
            beta: model.noise_precision() / (self.target_scale * self.target_scale),
        }
    }

    fn notify(&mut self, step: &Step) -> Result<(), Stop> {
        if self
            .watch
            .as_mut()
            .is_some_and(|watch| watch(step).is_break())
        {
            return Err(Stop::Stopped);
        }
        Ok(())
    }

    /// Records a step with its predicted gain; `None`: report the achieved gain.
    pub(crate) fn step(
        &mut self,
        action: Action,
        gain: Option<f64>,
        model: &Model,
    ) -> Result<(), Stop> {
        if self.watch.is_none() {
            self.silent_steps += 1;
            return if self.silent_steps < self.max_iter {
                Ok(())
            } else {
                Err(Stop::MaxIterations)
            };
        }
        let offset = match action {
            Action::Add(_) => self.offset.per_function,
            Action::Delete(_) => -self.offset.per_function,
            _ => 0.0,
        };
        let gain = gain.map(|gain| gain + offset);
        let before = self.trace[self.n_iter()];
        let log_evidence = self.in_target_units(model);
        if cfg!(debug_assertions) {
            self.check_gain(action, gain, log_evidence - before, model);
        }
        self.trace.push(log_evidence);
        let gain = gain.unwrap_or(log_evidence - before);
        let step = self.report(action, gain, log_evidence, model);
        self.notify(&step)?;
        if self.n_iter() >= self.max_iter {
            return Err(Stop::MaxIterations);
        }
        Ok(())
    }
}
