//! Dictionaries too large for one look: a working set of their functions, and the rest in blocks.
//!
//! The ordinary scheme runs to convergence on the working set. A sweep then has S and Q of the candidates outside, block by
//! block, at the model as it is; those that gain and differ from one another come into the working set, and the scheme goes on
//! from where it is. (Starting anew ends at another optimum each time, and so never ends.) The last sweep is over all
//! candidates and finds none with anything to gain, which is the certificate of Tipping & Faul (2003), section 4.4, over the
//! whole dictionary.
//!
//! First sweeps are over parts of the dictionary, ever finer: while there is much to gain a part shows where.
//!
//! Between rounds the fit is a [`BlockCheckpoint`] and nothing else: each round begins by making its state from that, so that a fit
//! that goes on from a sketch kept somewhere takes the steps, to the bit, that it would have taken.

use std::collections::BTreeSet;

use crate::data::{DictionaryPart, Statistics, Subset, check_flag};
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::mode::find_mode;
use crate::fit::laplace::schedule;
use crate::fit::large::pricing;
use crate::fit::large::pricing::Found;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Recorder, Stop, Watch};
use crate::fit::sequential;
use crate::fit::sequential::Start;
use crate::fit::settings::{Blocks, Rules, Scheme, Search};
use crate::fit::{InitialModel, Status};
use crate::model::Posterior;
use crate::{Error, Result};

/// A fit in blocks between two rounds. Functions are those of the whole dictionary, hyperparameters in the units of the fit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockCheckpoint {
    /// The working set, ascending.
    pub working: Vec<usize>,
    /// The functions in the model, in the order they have there.
    pub active: Vec<usize>,
    /// Their precisions.
    pub alpha: Vec<f64>,
    /// The precision of the noise.
    pub beta: f64,
    /// The objective at the start and after each step.
    pub trace: Vec<f64>,
    /// Rounds so far.
    pub round: usize,
    /// The next sweep looks at one in so many candidates.
    pub stride: usize,
    /// Rounds in a row that raised the objective by nothing.
    pub idle: usize,
}

/// Told of each sketch; what it returns ends the fit if it is an error.
pub type SaveCheckpoint<'k> = dyn FnMut(&BlockCheckpoint) -> Result<()> + 'k;

/// Rounds that gain nothing after which rounding is to blame.
const MOST_IDLE: usize = 6;

/// Where a part of the dictionary has no more than this many nats to give, the next sweep is over a larger part.
const LITTLE: f64 = 0.1;

/// Each sweep is over so many times as many candidates as those before.
const FINER: usize = 8;

/// Fits by the sequential scheme over all functions of a provider that answers for some of them at a time.
///
/// `resume`: where to go on. `keep` sees the sketch before each round.
///
/// # Errors
/// As [`fit`](crate::fit::fit()); [`Error::Invalid`] for another scheme, several linear predictors, or a sketch of something else.
pub fn fit_in_blocks(
    stats: &mut dyn DictionaryPart,
    rules: &Rules,
    blocks: &Blocks,
    resume: Option<BlockCheckpoint>,
    keep: &mut SaveCheckpoint<'_>,
    watch: &mut Watch<'_>,
) -> Result<Posterior> {
    let plain = rules.scheme == Scheme::Sequential && rules.search == Search::Greedy;
    if !plain || stats.n_predictors() > 1 {
        let what =
            "a fit in blocks takes scheme='sequential', search='greedy' and one linear predictor";
        return Err(Error::Invalid { what: what.into() });
    }
    blocks.check()?;
    let setting = InitialModel::of(stats, rules)?;
    let mut sketch = match resume {
        Some(sketch) => sketch.checked(stats.n_basis())?,
        None => BlockCheckpoint::first(stats.n_basis(), blocks, setting.beta),
    };
    let mut recorder = Recorder::new(
        &setting.empty(),
        rules.max_iter,
        stats.target_scale(),
        watch,
    );
    if sketch.trace.is_empty() {
        sketch.trace.clone_from(&recorder.trace);
    }
    recorder.trace.clone_from(&sketch.trace);
    let mut run = Run {
        rules,
        blocks,
        setting,
        state: State::empty(1.0, crate::fit::Gamma::FLAT, 0.0, 0.0),
    };
    let outcome = run.finish(stats, &mut sketch, keep, &mut recorder);
    recorder.working = None;
    run.publish(stats, &sketch, outcome, recorder)
}

impl BlockCheckpoint {
    /// An empty model over functions from all over the dictionary.
    fn first(n_basis: usize, blocks: &Blocks, beta: f64) -> Self {
        let size = blocks.sample.min(n_basis);
        let mut stride = 1;
        while n_basis / (stride * FINER) >= 2 * size.max(1) {
            stride *= FINER;
        }
        Self {
            working: (0..size).map(|k| k * n_basis / size).collect(),
            beta,
            stride,
            ..Self::default()
        }
    }

    /// Where the functions in the model stand in the working set.
    fn places(&self) -> Vec<usize> {
        let place = |i: &usize| self.working.partition_point(|w| w < i);
        self.active.iter().map(place).collect()
    }

    /// Itself, if it can be of a dictionary of this size.
    fn checked(self, n_basis: usize) -> Result<Self> {
        let known = |i: &usize| self.working.binary_search(i).is_ok();
        let different: BTreeSet<_> = self.active.iter().collect();
        let sound = self.working.is_sorted_by(|a, b| a < b)
            && self.working.last().is_some_and(|&last| last < n_basis)
            && self.active.iter().all(known)
            && self.active.len() == different.len()
            && self.active.len() == self.alpha.len()
            && self.alpha.iter().all(|a| a.is_finite() && *a > 0.0)
            && self.beta.is_finite()
            && self.beta > 0.0
            && self.trace.iter().all(|t| t.is_finite())
            && self.stride > 0;
        if sound {
            return Ok(self);
        }
        let what = "resume does not hold the state of a fit over this dictionary; fit without it";
        Err(Error::Invalid { what: what.into() })
    }
}

/// A fit under way.
struct Run<'r> {
    rules: &'r Rules,
    blocks: &'r Blocks,
    setting: InitialModel,
    /// The model; its functions go by their place in the working set of the sketch.
    state: State,
}

impl Run<'_> {
    fn finish(
        &mut self,
        stats: &mut dyn DictionaryPart,
        sketch: &mut BlockCheckpoint,
        keep: &mut SaveCheckpoint<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Status, Stop> {
        loop {
            keep(sketch)?;
            let before = *sketch.trace.last().unwrap_or(&f64::NEG_INFINITY);
            let last = self.state.clone();
            let status = match self.round(stats, sketch, recorder) {
                // Made anew from the sketch the model may differ in its last digits, and these may be all it hangs by.
                Err(Stop::Failed(Error::NotPositiveDefinite(_)))
                    if last.len() > 0 && last.len() == sketch.active.len() =>
                {
                    check_flag(stats.cancel_flag().as_deref())?;
                    self.state = last;
                    self.state.active = sketch.places();
                    return Ok(Status::Stalled);
                }
                outcome => outcome?,
            };
            sketch.active = self.of_dictionary(sketch);
            sketch.alpha.clone_from(&self.state.alpha);
            sketch.beta = self.state.beta;
            sketch.trace.clone_from(&recorder.trace);
            sketch.round = sketch.round.saturating_add(1);
            let risen = *sketch.trace.last().unwrap_or(&before) > before + 1e-9 * before.abs();
            sketch.idle = if risen {
                0
            } else {
                sketch.idle.saturating_add(1)
            };
            let Some(found) = self.look_outside(stats, sketch, recorder)? else {
                return Ok(status);
            };
            if sketch.idle >= MOST_IDLE {
                return Ok(Status::Stalled);
            }
            if found.most() <= LITTLE {
                sketch.stride = (sketch.stride / FINER).max(1);
            }
            sketch.working = found.working_set(&sketch.active, &sketch.working, self.blocks);
        }
    }

    /// The scheme on the working set, from the sketch to convergence.
    fn round(
        &mut self,
        stats: &mut dyn DictionaryPart,
        sketch: &BlockCheckpoint,
        recorder: &mut Recorder<'_>,
    ) -> Result<Status, Stop> {
        let stats = &mut Subset::measured(stats, sketch.working.clone())?;
        recorder.working = Some(sketch.working.clone());
        let rules = self.rules;
        let priors = Priors::new(rules.alpha_prior, stats.norms(), stats.target_scale());
        self.begin(stats, sketch, &priors)?;
        let (state, gaussian) = (&mut self.state, stats.is_linear());
        if sketch.active.is_empty() {
            return if gaussian {
                sequential::fit(stats, state, priors, rules, recorder)
            } else {
                schedule::fit(stats, state, &priors, rules, recorder)
            };
        }
        let mut dictionary = Dictionary::new(stats.n_basis(), priors);
        if gaussian {
            dictionary.refresh(stats, state)?;
            let start = Start::warm(usize::from(sketch.round <= self.blocks.searches));
            sequential::complete(stats, state, &mut dictionary, start, rules, recorder)
        } else {
            schedule::resume(stats, state, &mut dictionary, rules, recorder)
        }
    }

    /// Makes the state from the sketch.
    fn begin(
        &mut self,
        stats: &mut dyn Statistics,
        sketch: &BlockCheckpoint,
        priors: &Priors,
    ) -> Result<(), Stop> {
        let active = sketch.places();
        let state = &mut self.state;
        *state = self.setting.empty();
        state.beta = sketch.beta;
        if active.is_empty() {
            return Ok(());
        }
        let m = active.len();
        state.fill(&active, 1.0, priors, None);
        state.alpha.clone_from(&sketch.alpha);
        let zero = vec![0.0; m];
        let mut gram = nalgebra::DMatrix::zeros(m, m);
        let mut gradient = vec![0.0; m];
        let deviance = stats.local(&active, &zero, &mut gram, &mut gradient)?;
        state.set_data(&zero, &gradient, deviance, Some(&gram))?;
        if stats.is_linear() {
            state.centre(stats)?;
        } else {
            find_mode(stats, state)?;
        }
        Ok(())
    }

    /// Sweeps, ever finer, until one finds something; `None` after one over all candidates that does not.
    fn look_outside(
        &self,
        stats: &mut dyn DictionaryPart,
        sketch: &mut BlockCheckpoint,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Found>, Stop> {
        loop {
            let offset = sketch.round % sketch.stride;
            let (n, stride) = (stats.n_basis(), sketch.stride);
            let candidates: Vec<usize> = (0..n)
                .filter(|i| i % stride == offset || sketch.working.binary_search(i).is_ok())
                .filter(|i| !sketch.active.contains(i))
                .collect();
            let model = (&sketch.active[..], &self.state);
            let found =
                pricing::sweep(stats, model, &candidates, self.rules, self.blocks, recorder)?;
            if !found.is_empty() {
                return Ok(Some(found));
            }
            if stride == 1 {
                return Ok(None);
            }
            sketch.stride = (stride / FINER).max(1);
        }
    }

    /// The functions in the model as the dictionary counts them.
    fn of_dictionary(&self, sketch: &BlockCheckpoint) -> Vec<usize> {
        let name = |&i: &usize| sketch.working[i];
        self.state.active.iter().map(name).collect()
    }

    fn publish(
        mut self,
        stats: &mut dyn DictionaryPart,
        sketch: &BlockCheckpoint,
        outcome: Result<Status, Stop>,
        mut recorder: Recorder<'_>,
    ) -> Result<Posterior> {
        let scale = stats.target_scale();
        let mut stats = Subset::measured(stats, sketch.working.clone())?;
        let status = crate::fit::outcome(&mut stats, &mut self.state, outcome, &mut recorder)?;
        let mut posterior =
            Posterior::publish(&self.state, recorder.trace, status, stats.norms(), scale)
                .checked()?;
        for j in &mut posterior.active {
            *j = sketch.working[*j];
        }
        check_flag(stats.cancel_flag().as_deref())?;
        Ok(posterior)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Kernel, KernelDesign, Likelihood, Observations, Settings};

    const BLOCKS: Blocks = Blocks {
        sample: 32,
        working: 48,
        entrants: 12,
        block: 50,
        searches: 1,
    };

    fn run(
        likelihood: Likelihood,
        resume: Option<BlockCheckpoint>,
        kept: &mut Vec<BlockCheckpoint>,
    ) -> Posterior {
        let x: Vec<f64> = (0..300).map(|i| f64::from(i * 7919 % 300) / 15.0).collect();
        let noise = |i: usize| 0.1 * (i as f64 * 12.9).sin();
        let wave = x.iter().enumerate().map(|(i, x)| x.sin() + noise(i));
        let target = wave.map(|t| match likelihood {
            Likelihood::Gaussian => t,
            _ => f64::from(u8::from(t > 0.3)),
        });
        let kernel = Kernel::Gaussian {
            inverse_square_widths: vec![0.5],
        };
        let design = KernelDesign::new(&x, &x, 1, vec![kernel], true).unwrap();
        let mut stats = Observations::in_part(&design, likelihood, target.collect(), None).unwrap();
        let rules = Settings::default().check().unwrap();
        let keep = &mut |sketch: &BlockCheckpoint| {
            kept.push(sketch.clone());
            Ok(())
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        fit_in_blocks(&mut stats, &rules, &BLOCKS, resume, keep, watch).unwrap()
    }

    #[test]
    fn a_fit_goes_on_from_any_sketch_to_the_same_end() {
        for likelihood in [Likelihood::Gaussian, Likelihood::Bernoulli] {
            let mut kept = Vec::new();
            let whole = run(likelihood, None, &mut kept);
            assert_eq!(whole.status, Status::Converged);
            assert!(kept.len() > 1 && kept[0].active.is_empty());
            for sketch in kept {
                assert!(sketch.working.len() <= BLOCKS.working.max(BLOCKS.sample) + 12);
                let again = run(likelihood, Some(sketch), &mut Vec::new());
                assert_eq!(again.active, whole.active);
                assert_eq!(again.alpha, whole.alpha);
                assert_eq!(again.trace, whole.trace);
            }
        }
    }

    #[test]
    fn blocks_of_nothing_and_sketches_of_nothing_are_refused() {
        let x = [0.0, 1.0, 2.0, 4.0];
        let design = KernelDesign::new(&x, &x, 1, vec![Kernel::LinearSpline], true).unwrap();
        let rules = Settings::default().check().unwrap();
        let run = |blocks: &Blocks, resume: Option<BlockCheckpoint>| {
            let target = vec![0.0, 1.0, 0.5, 2.0];
            let stats = Observations::in_part(&design, Likelihood::Gaussian, target, None);
            let watch = &mut |_: &_| ControlFlow::Continue(());
            fit_in_blocks(
                &mut stats.unwrap(),
                &rules,
                blocks,
                resume,
                &mut |_| Ok(()),
                watch,
            )
        };
        for nothing in 0..3 {
            let mut blocks = BLOCKS;
            let sizes = [&mut blocks.sample, &mut blocks.entrants, &mut blocks.block];
            *sizes.into_iter().nth(nothing).unwrap() = 0;
            assert!(run(&blocks, None).is_err_and(|e| e.is_invalid_input()));
        }
        let sound = BlockCheckpoint {
            working: vec![0, 1, 3],
            active: vec![3, 1],
            alpha: vec![1.0, 2.0],
            beta: 1.0,
            trace: vec![-9.0],
            stride: 1,
            ..BlockCheckpoint::default()
        };
        assert!(run(&BLOCKS, Some(sound.clone())).is_ok());
        let twice = BlockCheckpoint {
            active: vec![3, 3],
            ..sound.clone()
        };
        let no_number = BlockCheckpoint {
            trace: vec![f64::NAN],
            ..sound
        };
        for spoilt in [twice, no_number] {
            assert!(run(&BLOCKS, Some(spoilt)).is_err_and(|e| e.is_invalid_input()));
        }
    }

    #[test]
    fn first_sweeps_are_over_a_part() {
        let blocks = Blocks::default();
        for (n, stride) in [(20_000, 1), (50_000, 8), (1_000_000, 64)] {
            let sketch = BlockCheckpoint::first(n, &blocks, 1.0);
            assert_eq!((sketch.stride, sketch.working.len()), (stride, 2048));
        }
        assert_eq!(BlockCheckpoint::first(10, &blocks, 1.0).working.len(), 10);
    }
}
