//! Likelihoods other than the Gaussian, by the Laplace approximation: Tipping & Faul (2003), section 2.2.
//!
//! The likelihood is linearised at the posterior mode, the alphas maximise the evidence of the resulting Gaussian model,
//! and both are repeated until neither changes. The certificate at the end is for this fixed point, which treats the
//! working weights B as constants in alpha. It is close to, but not exactly, a stationary point of the Laplace evidence,
//! and that evidence may fall when the mode is recomputed.
//!
//! The alternation gets near the fixed point fast but need not reach it: a function may be added under one linearisation
//! and deleted under the next, for ever. The end is therefore left to Newton's method on the fixed-point equations, whose
//! Jacobian includes the change of the mode and of B.

mod fixed_point;
pub(crate) mod mode;

use crate::fit::context::Fit;
use crate::fit::dictionary::Dictionary;
use crate::fit::laplace::fixed_point::Residual;
use crate::fit::model::Model;
use crate::fit::record::{Action, Stop, unless_indefinite};
use crate::fit::refine;
use crate::fit::search::SearchBudget;
use crate::fit::search::lns::Opening;
use crate::fit::settings::Search;
use crate::fit::tuning::{Effort, Tuning};
use crate::model::Status;

impl Fit<'_, '_> {
    /// Fits from an empty model to convergence.
    ///
    /// Some active sets have no fixed point: one function has a gain in the linearisation without it, but not in the one with
    /// it. If working sets lead to such a set, the fit restarts without working sets, unless it stalled at round-off.
    pub(crate) fn laplace(&mut self) -> Result<Status, Stop> {
        let empty = self.model.clone();
        self.add_unpenalized()?;
        self.refresh()?;
        self.first_model_at_modes()?;
        let status = self.complete_at_modes(Tuning::MAX_WORKING_SETS)?;
        if status == Status::Converged || Residual::of(self.model).is_rounding(self.model) {
            return Ok(status);
        }
        let stalled = self.model.clone();
        self.model.clone_from(&empty);
        self.add_unpenalized()?;
        self.clear_dictionary();
        let status = self.complete_at_modes(0)?;
        if status != Status::Converged && stalled.log_posterior() > self.model.log_posterior() {
            self.model.clone_from(&stalled);
            self.record(Action::Mode, None)?;
        }
        Ok(status)
    }

    /// Continues from a model that converged on a smaller dictionary.
    pub(crate) fn resume_at_modes(&mut self) -> Result<Status, Stop> {
        let status = self.complete_at_modes(Tuning::MAX_WORKING_SETS)?;
        if status == Status::Converged || Residual::of(self.model).is_rounding(self.model) {
            return Ok(status);
        }
        self.complete_at_modes(0)
    }

    /// [`Self::converge_at_modes`] with rollback to the last model at its mode.
    pub(crate) fn complete_at_modes(&mut self, max_working_sets: usize) -> Result<Status, Stop> {
        self.or_roll_back(Action::Mode, |fit, good| {
            fit.converge_at_modes(good, max_working_sets).map(Some)
        })
    }

    /// Fits from the present model to convergence, with at most `max_working_sets` working sets. `good` receives each model at
    /// its mode.
    pub(crate) fn converge_at_modes(
        &mut self,
        good: &mut Model,
        max_working_sets: usize,
    ) -> Result<Status, Stop> {
        let mut rounds = WorkingSetRounds {
            max: max_working_sets,
            highest: self.model.log_posterior(),
            ..WorkingSetRounds::default()
        };
        let (mut fine, mut limit) = (false, Tuning::MAX_BLOCK_ADDITIONS);
        loop {
            let reached = unless_indefinite(self.reach_fixed_point(fine, &rounds))?;
            if reached.is_none() {
                let Some(next) = self.retract_block(good)? else {
                    return Ok(Status::Stalled);
                };
                limit = next;
            }
            let converged = reached == Some(true);
            let in_rounds = !fine && rounds.made < rounds.max;
            let exchanging = in_rounds
                && (1..=Tuning::MAX_SIZE_FOR_EXCHANGES).contains(&self.model.len())
                && rounds.substituted != self.model.active;
            self.refresh()?;
            let gains = self.dictionary.has_gain(self.model);
            self.record(Action::Mode, None)?;
            let evidence = self.model.log_posterior();
            rounds.gained = evidence - rounds.highest;
            rounds.highest = rounds.highest.max(evidence);
            if in_rounds && rounds.made > 0 && rounds.gained > Tuning::MAX_FINAL_GAIN {
                rounds.max += 1;
            }
            good.clone_from(self.model);
            if in_rounds && (gains || exchanging) {
                fine = self.next_round(&mut rounds, gains, exchanging)?;
                continue;
            }
            if self.add_block(std::mem::replace(&mut limit, Tuning::MAX_BLOCK_ADDITIONS))? > 0 {
                fine |= self.dictionary.has_reentries();
                continue;
            }
            if !converged && !fine {
                fine = true;
            } else if converged && !self.dictionary.excludes_gain(self.model) {
                self.refine_to_rounding()?;
                return Ok(Status::Converged);
            } else {
                return Ok(Status::Stalled);
            }
        }
    }

    /// Brings the active set to its fixed point if `fine`, or else near it; returns whether it converged.
    fn reach_fixed_point(&mut self, fine: bool, rounds: &WorkingSetRounds) -> Result<bool, Stop> {
        if fine {
            return self.solve_fixed_point(self.rules.tol);
        }
        // Newton steps of a large model take time, and the pass after a large gain will find more.
        let is_large = self.model.len() > Tuning::SAMPLE_SIZE / 4;
        let is_early = is_large && rounds.gained > Tuning::MAX_FINAL_GAIN;
        self.approach_fixed_point(rounds.made > 0 && rounds.max > 0 && !is_early)
    }

    /// Restores `good` after the functions added since have made the posterior precision indefinite by round-off. Returns how many to
    /// add next: one after several; after one, which is not added again, as many as usual. `None` if none were added.
    fn retract_block(&mut self, good: &Model) -> Result<Option<usize>, Stop> {
        let is_new = |j: &usize| !good.active.contains(j);
        let new: Vec<usize> = self.model.active.iter().copied().filter(is_new).collect();
        self.model.clone_from(good);
        self.record(Action::Mode, None)?;
        Ok(match new[..] {
            [] => None,
            [j] => {
                self.dictionary.exclude(j);
                Some(Tuning::MAX_BLOCK_ADDITIONS)
            }
            _ => Some(1),
        })
    }

    /// Brings the active set near its fixed point, and the model to its mode. With `try_newton`, tries Newton's method too;
    /// returns whether that converged.
    fn approach_fixed_point(&mut self, try_newton: bool) -> Result<bool, Stop> {
        self.alternate(Tuning::LOOSE_TOL.max(self.rules.tol))?;
        if !try_newton {
            return Ok(false);
        }
        // Cheaper than a pass over the dictionary, which at worst finds a function to add after all.
        let converged = self.newton(self.rules.tol)?;
        self.record_mode()?;
        Ok(converged)
    }

    /// Alternates between mode and alphas of the active set until the alphas converge to `tol`, or a few times. Ends at a mode.
    fn alternate(&mut self, tol: f64) -> Result<(), Stop> {
        for round in 0.. {
            self.record_mode()?;
            let distance = refine::residual(self.model, Tuning::COARSE_EFFORT);
            if distance <= tol || round >= Tuning::MAX_ALTERNATIONS {
                break;
            }
            self.refine(Effort {
                gain: 0.0,
                tol: tol.min(0.1 * distance),
                moves_noise: false,
                ..Tuning::COARSE_EFFORT
            })?;
        }
        Ok(())
    }

    /// Finds the mode and records it.
    fn record_mode(&mut self) -> Result<(), Stop> {
        self.find_mode()?;
        self.record(Action::Mode, None)
    }

    /// Fits a first model on a sample of the dictionary.
    fn first_model_at_modes(&mut self) -> Result<(), Stop> {
        let round = Round {
            others: sample(self.dictionary, self.stats.facts().n_predictors),
            effort: Tuning::COARSE_EFFORT,
            trials: Tuning::MAX_FAILED_TRIALS,
            exchanging: false,
            // The mode has moved since the first functions were added, and with it the best companions for them.
            opening: Opening::Restart,
        };
        self.run_round(&round)?;
        Ok(())
    }

    /// Fits on the next working set; returns whether only the fixed point remains to be solved for.
    fn next_round(
        &mut self,
        rounds: &mut WorkingSetRounds,
        gains: bool,
        exchanging: bool,
    ) -> Result<bool, Stop> {
        rounds.made += 1;
        let before = self.model.active.clone();
        let searching = rounds.made <= Tuning::MAX_LAPLACE_SEARCHES;
        // A large model takes time for each pass over the dictionary, and gains from many candidates.
        let size = self.model.len();
        let limit = size.clamp(Tuning::SAMPLE_SIZE / 4, Tuning::SAMPLE_SIZE);
        let mut members = self.dictionary.best_candidates(self.model, limit);
        members.extend(self.dictionary.near_candidates(self.model, limit));
        if searching || exchanging {
            members.extend(self.dictionary.substitutes(self.model));
            rounds.substituted.clone_from(&before);
        }
        let round = Round {
            others: members,
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
        if self.run_round(&round)? {
            return Ok(self.model.active == before);
        }
        if gains {
            // The linearisation is not accurate at the model that the working set led to. Add one block at a time instead.
            rounds.max = 0;
        }
        Ok(!gains)
    }

    /// Runs the Gaussian algorithm on a working set, with the likelihood linearised at the mode, and finds the mode anew; repeats
    /// until the active set stays the same. Returns whether the Laplace evidence rose.
    fn run_round(&mut self, round: &Round) -> Result<bool, Stop> {
        let mut improved = false;
        // Working set and model must use the same linearisation.
        self.record_mode()?;
        for _ in 0..Tuning::MAX_WORKING_SETS {
            let before = self.model.clone();
            let set = self.working_set(&round.others)?;
            let outcome = self.on(&set, |local, recorder| {
                local.maximize(round.effort, recorder)?;
                local.renew();
                if round.trials > 0 && local.search(round.trials, round.opening)? {
                    recorder.step(Action::Search, None, &local.model)?;
                }
                let budget = &mut SearchBudget::of(Search::Greedy);
                if round.exchanging && local.improve(budget)? {
                    recorder.step(Action::Search, None, &local.model)?;
                }
                Ok(())
            });
            // Far from its mode the likelihood can be too steep for its linearisation.
            let found = unless_indefinite(outcome.and_then(|()| Ok(self.find_mode()?)))?;
            let rose = found.is_some() && self.model.log_posterior() > before.log_posterior();
            if !rose {
                self.model.clone_from(&before);
            }
            self.record(Action::Mode, None)?;
            improved |= rose;
            if !rose || self.model.active == before.active {
                break;
            }
        }
        Ok(improved)
    }
}

/// The working sets of one fit.
#[derive(Default)]
struct WorkingSetRounds {
    made: usize,
    /// Rises by one with each round that gains much.
    max: usize,
    /// The highest evidence at a pass over the dictionary. One round may lower what another one gains.
    highest: f64,
    /// By how many nats the last pass was above those before.
    gained: f64,
    /// The active set for which the last working set had substitutes.
    substituted: Vec<usize>,
}

/// What is done on a working set.
struct Round {
    /// Candidates besides the active functions.
    others: Vec<usize>,
    effort: Effort,
    /// Neighbourhoods to try.
    trials: usize,
    /// Whether to try exchanges after them.
    exchanging: bool,
    opening: Opening,
}

/// Candidates for a first model: functions at even distances in the dictionary, the same for each linear predictor, so that
/// all classes are treated alike.
fn sample(dictionary: &Dictionary, n_predictors: usize) -> Vec<usize> {
    // Half as many as for a Gaussian likelihood: the Gram matrix changes with each mode.
    let size = (Tuning::SAMPLE_SIZE / 2)
        .min(Tuning::MAX_WHOLE_DICTIONARY / n_predictors)
        .max(1);
    let n_each = dictionary.n_basis() / n_predictors;
    let mut sample: Vec<usize> = (0..n_each).filter(|&j| dictionary.diag[j] > 0.0).collect();
    if sample.len() > size {
        sample = (0..size).map(|k| sample[k * sample.len() / size]).collect();
    }
    let of_each = |c| sample.iter().map(move |j| c * n_each + j);
    (0..n_predictors).flat_map(of_each).collect()
}
