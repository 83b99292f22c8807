//! Working sets at a posterior mode: the Gaussian algorithm on a few functions and the linearised likelihood.

use crate::Error;
use crate::fit::dictionary::Dictionary;
use crate::fit::greedy::maximize;
use crate::fit::laplace::Fit;
use crate::fit::laplace::mode::find_mode;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Stop};
use crate::fit::search::lns::{Opening, search};
use crate::fit::search::local::{SearchBudget, improve};
use crate::fit::settings::Search;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// The working sets of one fit.
#[derive(Default)]
pub(crate) struct WorkingSetRounds {
    made: usize,
    max: usize,
    /// The active set for which the last working set had substitutes.
    substituted: Vec<usize>,
}

impl WorkingSetRounds {
    pub(crate) fn at_most(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Whether another working set is allowed.
    pub(crate) fn are_left(&self) -> bool {
        self.made < self.max
    }

    /// Whether one was used, and none has failed.
    pub(crate) fn have_begun(&self) -> bool {
        self.made > 0 && self.max > 0
    }

    /// Whether exchanges of these active functions are still to be tried, and cheap.
    pub(crate) fn may_exchange(&self, state: &State) -> bool {
        (1..=Tuning::MAX_SIZE_FOR_EXCHANGES).contains(&state.len())
            && self.substituted != state.active
    }

    /// Fits on the next working set; returns whether only the fixed point remains to be solved for.
    pub(crate) fn next(
        &mut self,
        fit: &mut Fit<'_, '_>,
        dictionary: &Dictionary,
        gains: bool,
        exchanging: bool,
    ) -> Result<bool, Stop> {
        self.made += 1;
        let before = fit.state.active.clone();
        let searching = self.made <= Tuning::MAX_LAPLACE_SEARCHES;
        let limit = Tuning::SAMPLE_SIZE / 4;
        let mut members = dictionary.best_candidates(fit.state, limit);
        members.extend(dictionary.near_candidates(fit.state, limit));
        if searching || exchanging {
            members.extend(dictionary.substitutes(fit.state));
            self.substituted.clone_from(&before);
        }
        let round = Round {
            others: &members,
            effort: Tuning::FINE_EFFORT,
            trials: if gains && searching {
                Tuning::MAX_FAILED_TRIALS
            } else {
                0
            },
            // Not while a candidate still gains.
            exchanging: exchanging && !gains,
            opening: Opening::Plain,
        };
        if fit.run_round(dictionary.priors(), &round)? {
            return Ok(fit.state.active == before);
        }
        if gains {
            // The linearisation is not accurate at the model that the working set led to. Add one block at a time instead.
            self.max = 0;
        }
        Ok(!gains)
    }
}

/// Candidates for a first model: functions at even distances in the dictionary, the same for each linear predictor, so that
/// all classes are treated alike.
fn sample(dictionary: &Dictionary, n_predictors: usize) -> Vec<usize> {
    // Half as many as for a Gaussian likelihood: the Gram matrix changes with each mode.
    let size = (Tuning::SAMPLE_SIZE / 2)
        .min(Tuning::MAX_WHOLE_DICTIONARY / n_predictors)
        .max(1);
    let n_each = dictionary.n_basis() / n_predictors;
    let mut sample: Vec<usize> = (0..n_each).filter(|&j| dictionary.diag(j) > 0.0).collect();
    if sample.len() > size {
        sample = (0..size).map(|k| sample[k * sample.len() / size]).collect();
    }
    let of_each = |c| sample.iter().map(move |j| c * n_each + j);
    (0..n_predictors).flat_map(of_each).collect()
}

/// What is done on a working set.
struct Round<'a> {
    /// Candidates besides the active functions.
    others: &'a [usize],
    effort: Effort,
    /// Neighbourhoods to try.
    trials: usize,
    /// Whether to try exchanges after them.
    exchanging: bool,
    opening: Opening,
}

impl Fit<'_, '_> {
    /// Fits a first model on a sample of the dictionary.
    pub(super) fn first_model(&mut self, dictionary: &Dictionary) -> Result<(), Stop> {
        let sample = sample(dictionary, self.stats.facts().n_predictors);
        let round = Round {
            others: &sample,
            effort: Tuning::COARSE_EFFORT,
            trials: Tuning::MAX_FAILED_TRIALS,
            exchanging: false,
            // The mode has moved since the first functions were added, and with it the best companions for them.
            opening: Opening::Restart,
        };
        self.run_round(dictionary.priors(), &round)?;
        Ok(())
    }

    /// Runs the Gaussian algorithm on a working set, with the likelihood linearised at the mode, and finds the mode anew; repeats
    /// until the active set stays the same. Returns whether the Laplace evidence rose.
    fn run_round(&mut self, priors: &Priors, round: &Round<'_>) -> Result<bool, Stop> {
        let mut improved = false;
        // Working set and state must use the same linearisation.
        self.record_mode()?;
        for _ in 0..Tuning::MAX_WORKING_SETS {
            let before = self.state.clone();
            let set = WorkingSet::about(self.stats, self.state, priors, round.others)?;
            let outcome = set.within(self.state, self.recorder, |state, recorder| {
                maximize(&set, state, round.effort, recorder)?;
                if round.trials > 0 && search(&set, state, round.trials, round.opening)? {
                    recorder.step(Action::Search, None, state)?;
                }
                let budget = &mut SearchBudget::of(Search::Greedy);
                if round.exchanging && improve(&set, state, budget)? {
                    recorder.step(Action::Search, None, state)?;
                }
                Ok(())
            });
            match outcome.and_then(|()| Ok(find_mode(self.stats, self.state)?)) {
                Ok(()) => {}
                // Far from its mode the likelihood can be too steep for its linearisation.
                Err(Stop::Failed(Error::NotPositiveDefinite(_))) => self.state.clone_from(&before),
                Err(halt) => return Err(halt),
            }
            let rose = self.state.log_posterior() > before.log_posterior();
            if !rose {
                self.state.clone_from(&before);
            }
            self.record(Action::Mode, None)?;
            improved |= rose;
            if !rose || self.state.active == before.active {
                break;
            }
        }
        Ok(improved)
    }
}
