//! The record of a fit: what each step did, and who is watching.

use std::ops::ControlFlow;

use crate::Error;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Put a function into the model.
    Add(usize),
    /// Moved the alpha of a function in the model to its maximum.
    Reestimate(usize),
    /// Took a function out of the model.
    Delete(usize),
    /// Replaced part of the model by something better.
    Search,
    /// Moved the noise level.
    Noise,
    /// Moved all alphas (and the noise level where it is estimated) together.
    Joint,
    /// Found the posterior mode anew and linearised the likelihood there.
    Mode,
    /// Is looking at the candidates outside, and has come so far. No step: it has no number of its own.
    Sweep {
        /// Candidates looked at.
        done: usize,
        /// Candidates to look at in this sweep.
        of: usize,
    },
}

impl Action {
    /// The name in lower case, and the function concerned.
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

/// One step, as a watcher sees it. Evidence (with priors: log posterior) and noise are in the units of the targets given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// 1 for the first step.
    pub iteration: usize,
    /// What was done.
    pub action: Action,
    /// The gain in log evidence: the predicted one for steps on a single alpha, which the step then achieves.
    pub gain: f64,
    /// Log evidence after the step.
    pub log_evidence: f64,
    /// Functions in the model after the step.
    pub n_active: usize,
    /// Noise precision after the step; 1 for likelihoods without one.
    pub beta: f64,
}

/// Called after each step; breaking ends the fit with the model as it then stands.
pub type Watch<'w> = dyn FnMut(&Step) -> ControlFlow<()> + 'w;

/// Why a loop was left early.
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

impl From<crate::linalg::NotPositiveDefinite> for Stop {
    fn from(error: crate::linalg::NotPositiveDefinite) -> Self {
        Self::Failed(error.into())
    }
}

/// What a record wants to know of a model, whatever its kind. Evidence and noise are in the units of the fit.
pub(crate) trait Recorded {
    /// What is maximised: the log evidence, with the log densities of hyperparameters that have priors.
    fn objective(&self) -> f64;
    /// The power of the unit of the targets that its exponential has.
    fn powers_of_target(&self) -> f64;
    fn n_active(&self) -> usize;
    /// With several noise levels the inverse of their mean variance.
    fn noise_precision(&self) -> f64;
    /// The least pivot of a factor, as a fraction of the diagonal element it is what remains of.
    fn least_pivot(&self) -> f64;
}

/// What is added to the objective of a state for the record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offset {
    /// For each function in the model.
    pub(crate) per_function: f64,
    /// Once.
    pub(crate) whole: f64,
}

/// Counts steps, keeps the evidence after each, and tells the watcher.
pub(crate) struct Recorder<'w> {
    pub(crate) trace: Vec<f64>,
    max_iter: usize,
    /// Steps that were not kept.
    quiet: usize,
    target_scale: f64,
    pub(crate) offset: Offset,
    /// Which functions the places of a pool stand for, while steps are recorded by them.
    pub(crate) members: Option<Vec<usize>>,
    /// The same for the functions of a working set.
    pub(crate) working: Option<Vec<usize>>,
    /// [`Recorded::least_pivot`] before the step, in builds that check.
    least_pivot: f64,
    watch: Option<&'w mut Watch<'w>>,
}

impl<'w> Recorder<'w> {
    pub(crate) fn new(
        state: &impl Recorded,
        max_iter: usize,
        target_scale: f64,
        watch: &'w mut Watch<'w>,
    ) -> Self {
        let mut this = Self {
            trace: Vec::new(),
            max_iter,
            quiet: 0,
            target_scale,
            offset: Offset::default(),
            members: None,
            working: None,
            least_pivot: state.least_pivot(),
            watch: Some(watch),
        };
        this.trace.push(this.in_target_units(state));
        this
    }

    /// Takes this state for the start.
    pub(crate) fn begin(&mut self, state: &impl Recorded) {
        self.least_pivot = state.least_pivot();
        self.trace = vec![self.in_target_units(state)];
    }

    /// Corrects the record of the last step: the state has been brought to its mode since.
    pub(crate) fn amend(&mut self, state: &impl Recorded) {
        let value = self.in_target_units(state);
        if let Some(last) = self.trace.last_mut() {
            *last = value;
        }
    }

    /// For trials: keeps nothing. One that goes on for longer than any fit does, because rounding leads it in circles, ends with
    /// [`Stop::MaxIterations`].
    pub(crate) fn silent() -> Self {
        const LONGEST_TRIAL: usize = 20_000;
        Self {
            trace: Vec::new(),
            max_iter: LONGEST_TRIAL,
            quiet: 0,
            target_scale: 1.0,
            offset: Offset::default(),
            members: None,
            working: None,
            least_pivot: 1.0,
            watch: None,
        }
    }

    /// Log posterior in the units of the targets: the density of t / c is c^N times that of t, and beta c^-2 times its.
    fn in_target_units(&self, state: &impl Recorded) -> f64 {
        // No function has a count that a float does not hold exactly.
        #[allow(clippy::cast_precision_loss)]
        let offset = self.offset.per_function * state.n_active() as f64 + self.offset.whole;
        state.objective() + offset - state.powers_of_target() * self.target_scale.ln()
    }

    /// The gain of an action in what is recorded, from that in the objective.
    fn gain_in_record(&self, action: Action, gain: f64) -> f64 {
        match action {
            Action::Add(_) => gain + self.offset.per_function,
            Action::Delete(_) => gain - self.offset.per_function,
            _ => gain,
        }
    }

    pub(crate) fn n_iter(&self) -> usize {
        self.trace.len() - 1
    }

    /// The action by the function's own name.
    fn named(&self, action: Action) -> Action {
        let member = |i: usize| self.members.as_ref().map_or(i, |members| members[i]);
        let name = |i: usize| {
            let i = member(i);
            self.working.as_ref().map_or(i, |working| working[i])
        };
        match action {
            Action::Add(i) => Action::Add(name(i)),
            Action::Reestimate(i) => Action::Reestimate(name(i)),
            Action::Delete(i) => Action::Delete(name(i)),
            other => other,
        }
    }

    /// Sees that a predicted gain was achieved.
    fn check_gain(
        &mut self,
        action: Action,
        predicted: Option<f64>,
        achieved: f64,
        state: &impl Recorded,
    ) {
        let pivot = state.least_pivot();
        if let Some(gain) = predicted {
            // Functions that depend on one another almost exactly leave their pivots fewer digits.
            let digits = 1e-8 + 64.0 * f64::EPSILON / pivot.min(self.least_pivot);
            let slack = digits * gain.abs().max(1.0) + 1e-11 * self.trace[self.n_iter()].abs();
            debug_assert!(
                (achieved - gain).abs() <= slack,
                "{action:?}: predicted {gain}, achieved {achieved}"
            );
        }
        self.least_pivot = pivot;
    }

    /// Tells the watcher how far a look at the candidates outside has come.
    pub(crate) fn sweeping(
        &mut self,
        done: usize,
        of: usize,
        state: &impl Recorded,
    ) -> Result<(), Stop> {
        let log_evidence = self.in_target_units(state);
        let step = self.report(Action::Sweep { done, of }, 0.0, log_evidence, state);
        self.tell(&step)
    }

    fn report(&self, action: Action, gain: f64, log_evidence: f64, state: &impl Recorded) -> Step {
        Step {
            iteration: self.n_iter(),
            action: self.named(action),
            gain,
            log_evidence,
            n_active: state.n_active(),
            beta: state.noise_precision() / (self.target_scale * self.target_scale),
        }
    }

    fn tell(&mut self, step: &Step) -> Result<(), Stop> {
        if self
            .watch
            .as_mut()
            .is_some_and(|watch| watch(step).is_break())
        {
            return Err(Stop::Stopped);
        }
        Ok(())
    }

    /// Records a step. `gain` is the predicted one; `None` where there was no prediction and the achieved one stands.
    pub(crate) fn step(
        &mut self,
        action: Action,
        gain: Option<f64>,
        state: &impl Recorded,
    ) -> Result<(), Stop> {
        if self.watch.is_none() {
            self.quiet += 1;
            return if self.quiet < self.max_iter {
                Ok(())
            } else {
                Err(Stop::MaxIterations)
            };
        }
        let gain = gain.map(|gain| self.gain_in_record(action, gain));
        let before = self.trace[self.n_iter()];
        let log_evidence = self.in_target_units(state);
        if cfg!(debug_assertions) {
            self.check_gain(action, gain, log_evidence - before, state);
        }
        self.trace.push(log_evidence);
        let gain = gain.unwrap_or(log_evidence - before);
        let step = self.report(action, gain, log_evidence, state);
        self.tell(&step)?;
        if self.n_iter() >= self.max_iter {
            return Err(Stop::MaxIterations);
        }
        Ok(())
    }
}
