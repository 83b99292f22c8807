//! Fits over dictionaries that are too large for one pass: a working set of candidates, and the rest in blocks.
//!
//! The ordinary algorithm runs to convergence on the working set. A pass then computes S and Q of all other candidates, block
//! by block, at the current model. Candidates that gain and differ from one another are added to the working set, and the fit
//! continues from the current model. (A restart in each round would converge to another optimum each time, and never end.)
//! The last pass covers all candidates and finds none with a gain, which is the certificate of Tipping & Faul (2003), section
//! 4.4, for the whole dictionary.
//!
//! The first passes cover only every n-th candidate, with n decreasing: while gains are large, a part of the dictionary shows
//! where they are.
//!
//! Between rounds the whole state of the fit is a [`BlockCheckpoint`], from which each round builds its model. So a fit that
//! resumes from a stored checkpoint takes the same steps, to the bit.

mod pricing;

use std::collections::BTreeSet;

use crate::data::{Observations, Statistics, Subset};
use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::large::pricing::{Priced, Pricing};
use crate::fit::model::Model;
use crate::fit::record::{Recorder, StepCallback, Stop, unless_indefinite};
use crate::fit::sequential::Start;
use crate::fit::settings::{Blocks, Rules, Scheme, Search};
use crate::fit::tuning::Tuning;
use crate::model::{Posterior, Status};
use crate::{Error, Result};

/// The state of a fit in blocks between two rounds. Functions are numbered as in the whole dictionary; hyperparameters are in the
/// units of the fit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockCheckpoint {
    /// The working set, ascending.
    pub working: Vec<usize>,
    /// The active functions, in the order of the model.
    pub active: Vec<usize>,
    /// Their precisions.
    pub alpha: Vec<f64>,
    /// Noise precision.
    pub beta: f64,
    /// The objective at the start and after each step.
    pub trace: Vec<f64>,
    /// Number of completed rounds.
    pub round: usize,
    /// The next pass covers one in this many candidates.
    pub stride: usize,
    /// Consecutive rounds that did not raise the objective.
    pub idle: usize,
}

/// Receives each checkpoint. An error ends the fit.
pub type SaveCheckpoint<'k> = dyn FnMut(&BlockCheckpoint) -> Result<()> + 'k;

/// Fits by the sequential algorithm over a provider that returns statistics of a part of its functions at a time.
///
/// `resume` is a checkpoint to continue from. `save` receives a checkpoint before each round.
///
/// # Errors
/// As [`fit`](crate::fit::fit()); [`Error::Invalid`] for another scheme, several linear predictors, or a checkpoint of another fit.
pub fn fit_in_blocks(
    stats: &mut Observations<'_>,
    rules: &Rules,
    blocks: &Blocks,
    resume: Option<BlockCheckpoint>,
    save: &mut SaveCheckpoint<'_>,
    watch: &mut StepCallback<'_>,
) -> Result<Posterior> {
    let plain = rules.scheme == Scheme::Sequential && rules.search == Search::Greedy;
    if !plain || stats.facts().n_predictors > 1 {
        let what =
            "a fit in blocks takes scheme='sequential', search='greedy' and one linear predictor";
        return Err(Error::Invalid { what: what.into() });
    }
    blocks.check()?;
    // Their lengths decide, like those of all functions elsewhere, whether these rules are possible.
    let (n, mut flat) = (stats.facts().n_basis(), rules.unpenalized.clone());
    flat.retain(|&j| j < n);
    stats.lengths_of(&flat)?;
    let initial = Model::initial(stats, rules)?;
    let mut checkpoint = match resume {
        Some(checkpoint) => checkpoint.checked(stats.facts().n_basis())?,
        None => BlockCheckpoint::first(stats.facts().n_basis(), rules, blocks, initial.beta()),
    };
    let mut recorder = Recorder::new(&initial, rules.max_iter, stats.facts().target_scale, watch);
    if checkpoint.trace.is_empty() {
        checkpoint.trace.clone_from(&recorder.trace);
    }
    recorder.trace.clone_from(&checkpoint.trace);
    let mut run = Run {
        rules,
        blocks,
        model: initial.clone(),
        initial,
    };
    let outcome = run.finish(stats, &mut checkpoint, save, &mut recorder);
    recorder.working = None;
    let mut part = Subset::measured(stats, checkpoint.working.clone())?;
    let dictionary = &mut Dictionary::of(part.facts(), rules);
    let mut fit = Fit {
        stats: &mut part,
        model: &mut run.model,
        dictionary,
        rules,
        recorder: &mut recorder,
    };
    let mut posterior = fit.publish(outcome)?;
    for j in &mut posterior.active {
        *j = checkpoint.working[*j];
    }
    stats.facts().check_cancelled()?;
    Ok(posterior)
}

impl BlockCheckpoint {
    /// An empty model, and a working set at even distances in the dictionary, with the functions that have a flat prior.
    fn first(n_basis: usize, rules: &Rules, blocks: &Blocks, beta: f64) -> Self {
        let size = blocks.sample.min(n_basis);
        let mut stride = 1;
        while n_basis / (stride * Tuning::STRIDE_FACTOR) >= 2 * size.max(1) {
            stride *= Tuning::STRIDE_FACTOR;
        }
        let mut working: Vec<usize> = (0..size).map(|k| k * n_basis / size).collect();
        working.extend(&rules.unpenalized);
        working.sort_unstable();
        working.dedup();
        Self {
            working,
            beta,
            stride,
            ..Self::default()
        }
    }

    /// The positions of the active functions in the working set.
    fn places(&self) -> Vec<usize> {
        let place = |i: &usize| self.working.partition_point(|w| w < i);
        self.active.iter().map(place).collect()
    }

    /// Checks that it is consistent with a dictionary of this size.
    fn checked(self, n_basis: usize) -> Result<Self> {
        let in_set = |i: &usize| self.working.binary_search(i).is_ok();
        let different: BTreeSet<_> = self.active.iter().collect();
        let valid = self.working.is_sorted_by(|a, b| a < b)
            && self.working.last().is_some_and(|&last| last < n_basis)
            && self.active.iter().all(in_set)
            && self.active.len() == different.len()
            && self.active.len() == self.alpha.len()
            && self.alpha.iter().all(|a| a.is_finite() && *a >= 0.0)
            && self.beta.is_finite()
            && self.beta > 0.0
            && self.trace.iter().all(|t| t.is_finite())
            && self.stride > 0;
        if valid {
            return Ok(self);
        }
        let what = "resume does not hold the state of a fit over this dictionary; fit without it";
        Err(Error::Invalid { what: what.into() })
    }
}

/// A running fit.
struct Run<'r> {
    rules: &'r Rules,
    blocks: &'r Blocks,
    initial: Model,
    /// The model, with functions numbered as in the working set.
    model: Model,
}

impl Run<'_> {
    fn finish(
        &mut self,
        stats: &mut Observations<'_>,
        checkpoint: &mut BlockCheckpoint,
        save: &mut SaveCheckpoint<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Status, Stop> {
        loop {
            save(checkpoint)?;
            let before = *checkpoint.trace.last().unwrap_or(&f64::NEG_INFINITY);
            let last = self.model.clone();
            let outcome = self.round(stats, checkpoint, recorder);
            let status = if last.len() > 0 && last.len() == checkpoint.active.len() {
                unless_indefinite(outcome)?
            } else {
                Some(outcome?)
            };
            let Some(status) = status else {
                // A model that is rebuilt from the checkpoint differs in its last digits, which may make it indefinite.
                self.model = last;
                self.model.active = checkpoint.places();
                return Ok(Status::Stalled);
            };
            let index = |&i: &usize| checkpoint.working[i];
            checkpoint.active = self.model.active.iter().map(index).collect();
            checkpoint.alpha.clone_from(&self.model.alpha);
            checkpoint.beta = self.model.beta();
            checkpoint.trace.clone_from(&recorder.trace);
            checkpoint.round = checkpoint.round.saturating_add(1);
            let risen = *checkpoint.trace.last().unwrap_or(&before) > before + 1e-9 * before.abs();
            checkpoint.idle = if risen {
                0
            } else {
                checkpoint.idle.saturating_add(1)
            };
            let Some(priced) = self.price_rest(stats, checkpoint, recorder)? else {
                return Ok(status);
            };
            if checkpoint.idle >= Tuning::MAX_IDLE_ROUNDS {
                return Ok(Status::Stalled);
            }
            if priced.largest_gain() <= Tuning::COARSE_EFFORT.gain {
                checkpoint.stride = (checkpoint.stride / Tuning::STRIDE_FACTOR).max(1);
            }
            checkpoint.working =
                priced.working_set(&checkpoint.active, &checkpoint.working, self.blocks);
        }
    }

    /// Fits on the working set, from the checkpoint to convergence.
    fn round(
        &mut self,
        stats: &mut Observations<'_>,
        checkpoint: &BlockCheckpoint,
        recorder: &mut Recorder<'_>,
    ) -> Result<Status, Stop> {
        let stats = &mut Subset::measured(stats, checkpoint.working.clone())?;
        recorder.working = Some(checkpoint.working.clone());
        self.model = self.initial.clone();
        self.model.levels[0].noise.beta = checkpoint.beta;
        let dictionary = &mut Dictionary::of(stats.facts(), self.rules);
        let mut fit = Fit {
            stats,
            model: &mut self.model,
            dictionary,
            rules: &self.rules.among(&checkpoint.working),
            recorder,
        };
        let is_linear = fit.stats.facts().is_linear;
        if checkpoint.active.is_empty() {
            if !is_linear {
                return fit.laplace();
            }
            let start = fit.first_model()?;
            return fit.sequential(start);
        }
        fit.fill(&checkpoint.places(), &checkpoint.alpha)?;
        if !is_linear {
            return fit.resume_at_modes();
        }
        fit.model.centre(fit.stats)?;
        fit.refresh()?;
        fit.sequential(Start {
            searches: usize::from(checkpoint.round <= self.blocks.searches),
            ..Start::default()
        })
    }

    /// Passes over more and more candidates, until one finds a gain; `None` if a pass over all candidates finds none.
    fn price_rest(
        &self,
        stats: &mut Observations<'_>,
        checkpoint: &mut BlockCheckpoint,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Priced>, Stop> {
        loop {
            let offset = checkpoint.round % checkpoint.stride;
            let (n, stride) = (stats.facts().n_basis(), checkpoint.stride);
            let candidates: Vec<usize> = (0..n)
                .filter(|i| i % stride == offset || checkpoint.working.binary_search(i).is_ok())
                .filter(|i| !checkpoint.active.contains(i))
                .collect();
            let pricing = Pricing {
                active: &checkpoint.active,
                model: &self.model,
                rules: self.rules,
                blocks: self.blocks,
                priced: Priced::default(),
            };
            let priced = pricing.run(stats, &candidates, recorder)?;
            if !priced.is_empty() {
                return Ok(Some(priced));
            }
            if stride == 1 {
                return Ok(None);
            }
            checkpoint.stride = (stride / Tuning::STRIDE_FACTOR).max(1);
        }
    }
}
