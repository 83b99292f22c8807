//! The trials of a search, under way on all threads there are.
//!
//! They go by batches, and threads do not show: the trials of a batch all start from the model that the batches before have led
//! to. Some take several times as long as others. So a thread that finds nothing left to do in a batch goes on with the next, from
//! the model as it is. Most batches lead nowhere, and then that is the model to start from. Where one does lead to a better model,
//! trials of later batches are called off, and made again from there.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::record::Stop;
use crate::fit::search::lns::Model;
use crate::fit::settings::{MOST_IN_VAIN, TRIALS_AT_A_TIME};
use crate::fit::working_set::WorkingSet;
use crate::parallel::run_jobs;

/// What is left to a search.
pub(crate) struct Budget {
    trials: usize,
    in_vain: usize,
}

impl Budget {
    pub(crate) fn of(trials: usize) -> Self {
        Self {
            trials,
            in_vain: MOST_IN_VAIN,
        }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.trials == 0 || self.in_vain == 0
    }

    fn spend(&mut self, trials: usize, led_to_better: bool) {
        self.trials = self.trials.saturating_sub(trials);
        self.in_vain = if led_to_better {
            MOST_IN_VAIN
        } else {
            self.in_vain.saturating_sub(trials)
        };
    }
}

/// What trials with these functions, in this order, lead to.
pub(crate) fn round(
    pool: &WorkingSet,
    best: Model,
    seeds: Vec<usize>,
    noise: Option<NoiseRange>,
    budget: &mut Budget,
) -> Result<Model, Stop> {
    let round = Mutex::new(Round::new(best, seeds, budget));
    let on =
        || -> MutexGuard<'_, Round<'_>> { round.lock().unwrap_or_else(PoisonError::into_inner) };
    run_jobs(
        || on().next(|seed, state| pool.nearest(seed, &state.active)),
        |trial: Trial| {
            let (from, leaving, off) = (&trial.from, &trial.leaving, &trial.off);
            let outcome = from.without(pool, leaving, noise, off);
            on().take(&trial, outcome);
        },
    );
    let round = round.into_inner().unwrap_or_else(PoisonError::into_inner);
    match round.halt {
        Some(halt) => Err(halt),
        None => Ok(Arc::unwrap_or_clone(round.best)),
    }
}

type Outcome = Result<Option<Model>, Stop>;

/// One trial under way.
struct Trial {
    place: usize,
    leaving: Vec<usize>,
    from: Arc<Model>,
    off: Arc<AtomicBool>,
}

/// How far a round has come.
///
/// Between calls the batches up to `settled` have been taken into account, in order, and all trials under way that `off` has not
/// called off start from `best`.
struct Round<'b> {
    best: Arc<Model>,
    seeds: Vec<usize>,
    /// The next to be tried.
    next: usize,
    outcomes: Vec<Option<Outcome>>,
    settled: usize,
    /// What has left the best model in trials, sorted: most neighbourhoods in a model of a few functions are the same.
    known: BTreeSet<Vec<usize>>,
    off: Arc<AtomicBool>,
    budget: &'b mut Budget,
    halt: Option<Stop>,
}

impl<'b> Round<'b> {
    fn new(best: Model, seeds: Vec<usize>, budget: &'b mut Budget) -> Self {
        Self {
            best: Arc::new(best),
            next: 0,
            outcomes: seeds.iter().map(|_| None).collect(),
            settled: 0,
            known: BTreeSet::new(),
            off: Arc::default(),
            budget,
            halt: None,
            seeds,
        }
    }

    fn is_over(&self) -> bool {
        self.halt.is_some() || self.budget.is_spent()
    }

    /// The next trial, that of a seed and the `nearest` functions of a model. One that would lead where another one does is over
    /// before it begins.
    fn next(&mut self, nearest: impl Fn(usize, &State) -> Vec<usize>) -> Option<Trial> {
        while !self.is_over() {
            let (place, seed) = (self.next, *self.seeds.get(self.next)?);
            self.next += 1;
            let leaving = nearest(seed, &self.best.state);
            let mut sorted = leaving.clone();
            sorted.sort_unstable();
            if self.known.insert(sorted) {
                return Some(Trial {
                    place,
                    leaving,
                    from: Arc::clone(&self.best),
                    off: Arc::clone(&self.off),
                });
            }
            self.note(place, Ok(None));
        }
        None
    }

    /// Takes in what a trial has led to.
    fn take(&mut self, trial: &Trial, outcome: Outcome) {
        if !trial.off.load(Ordering::Relaxed) {
            self.note(trial.place, outcome);
        }
    }

    fn note(&mut self, place: usize, outcome: Outcome) {
        self.outcomes[place] = Some(outcome);
        while let Some(batch) = self.complete_batch() {
            self.settle(batch);
        }
        if self.is_over() {
            self.off.store(true, Ordering::Relaxed);
        }
    }

    /// The next batch, if all of its trials are over.
    fn complete_batch(&self) -> Option<Range<usize>> {
        let batch = self.settled..(self.settled + TRIALS_AT_A_TIME).min(self.seeds.len());
        let complete = self.outcomes[batch.clone()].iter().all(Option::is_some);
        (!self.is_over() && !batch.is_empty() && complete).then_some(batch)
    }

    fn settle(&mut self, batch: Range<usize>) {
        let standing = self.best.evidence;
        for place in batch.clone() {
            let Some(outcome) = self.outcomes[place].take() else {
                continue;
            };
            match self.best.bettered_by(outcome) {
                Ok(Some(better)) => self.best = Arc::new(better),
                Ok(None) => {}
                Err(halt) => {
                    self.halt = Some(halt);
                    return;
                }
            }
        }
        let better = self.best.evidence > standing;
        self.budget.spend(batch.len(), better);
        self.settled = batch.end;
        if better {
            self.off.store(true, Ordering::Relaxed);
            self.off = Arc::default();
            self.next = self.settled;
            self.known.clear();
            self.outcomes[self.settled..]
                .iter_mut()
                .for_each(|o| *o = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::search::lns::tests::model_of_three;

    /// What a trial comes to that gains so many nats over a round's best.
    fn ahead(round: &Round<'_>, gain: f64) -> Model {
        let mut model = Model::clone(&round.best);
        model.evidence += gain;
        model
    }

    /// Each seed alone.
    fn alone(seed: usize, _: &State) -> Vec<usize> {
        vec![seed]
    }

    fn is_off(trial: &Trial) -> bool {
        trial.off.load(Ordering::Relaxed)
    }

    #[test]
    fn trials_ahead_of_a_better_model_are_made_again_from_it() {
        let (_, model) = model_of_three();
        let mut budget = Budget::of(100);
        let mut round = Round::new(model, (10..20).collect(), &mut budget);
        let standing = round.best.evidence;
        let trials: Vec<Trial> = (0..6).filter_map(|_| round.next(alone)).collect();
        assert_eq!(trials.len(), 6);
        // One that is ahead, and a batch that is complete once its first is over.
        for place in [5, 3, 1, 2] {
            let same = ahead(&round, 0.0);
            round.take(&trials[place], Ok(Some(same)));
            assert!(round.settled == 0 && trials.iter().all(|trial| !is_off(trial)));
        }
        let better = ahead(&round, 1.0);
        round.take(&trials[0], Ok(Some(better)));
        assert_eq!(round.settled, TRIALS_AT_A_TIME);
        assert!(round.best.evidence > standing && trials.iter().all(is_off));
        // What comes of one that was called off does not count.
        let much_better = ahead(&round, 5.0);
        round.take(&trials[4], Ok(Some(much_better)));
        let again: Vec<usize> = (0..3)
            .filter_map(|_| round.next(alone))
            .map(|t| t.leaving[0])
            .collect();
        assert_eq!(again, [14, 15, 16]);
        assert!(round.outcomes[4..].iter().all(Option::is_none));
    }

    #[test]
    fn trials_ahead_of_a_batch_in_vain_count() {
        let (_, model) = model_of_three();
        let mut budget = Budget::of(6);
        let mut round = Round::new(model, (0..9).collect(), &mut budget);
        let trials: Vec<Trial> = (0..9).filter_map(|_| round.next(alone)).collect();
        for trial in trials.iter().rev() {
            assert!(!round.is_over());
            let same = ahead(&round, 0.0);
            round.take(trial, Ok(Some(same)));
        }
        // Two batches are more than was to be spent, and the ninth trial is not waited for.
        assert!(round.is_over() && round.settled == 2 * TRIALS_AT_A_TIME);
        assert!(round.next(alone).is_none() && trials.iter().all(is_off));
    }

    #[test]
    fn functions_that_have_left_do_not_leave_again_unless_the_model_is_another() {
        let (_, model) = model_of_three();
        let mut budget = Budget::of(100);
        let mut round = Round::new(model, (0..12).collect(), &mut budget);
        // Three neighbourhoods, in one order or another.
        let few = |seed: usize, _: &State| match seed {
            0..6 => vec![seed % 2, 1 - seed % 2],
            6..11 => vec![7],
            _ => vec![8],
        };
        let trials: Vec<Trial> = (0..6).filter_map(|_| round.next(few)).collect();
        let places: Vec<usize> = trials.iter().map(|trial| trial.place).collect();
        assert_eq!(places, [0, 6, 11]);
        assert_eq!(round.settled, 0);
        let same = ahead(&round, 0.0);
        round.take(&trials[0], Ok(Some(same)));
        assert_eq!(round.settled, TRIALS_AT_A_TIME);
        let better = ahead(&round, 1.0);
        round.take(&trials[1], Ok(Some(better)));
        assert_eq!(round.settled, 2 * TRIALS_AT_A_TIME);
        let again: Vec<Trial> = (0..6).filter_map(|_| round.next(few)).collect();
        let places: Vec<usize> = again.iter().map(|trial| trial.place).collect();
        assert_eq!(places, [8, 11]);
    }
}
