//! Exchange search: from an optimum of the greedy algorithm to better ones by exchanging, merging and splitting functions.
//!
//! Tipping & Faul (2003) note that their algorithm may converge to a poor local maximum. Here functions of a converged
//! model are exchanged for others on a working set; what is found there converges on all of the data like any other model,
//! and the result is never worse than the start.
//!
//! For other likelihoods than the Gaussian the working set is linearised at the posterior mode. The gain of a move there is
//! a prediction: the mode is recomputed, the fit converges, and the move is kept if the Laplace evidence is higher.

pub(crate) mod lns;
pub(crate) mod moves;

use std::collections::BTreeSet;

use crate::fit::context::Fit;
use crate::fit::greedy::LocalFit;
use crate::fit::model::Model;
use crate::fit::record::{Action, Recorder, Stop, unless_indefinite};
use crate::fit::search::moves::{Move, Moves};
use crate::fit::sequential::Start;
use crate::fit::settings::Search;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::model::Status;
use crate::parallel::map_pieces;

/// Limits of a search on working sets.
pub(crate) struct SearchBudget {
    moves: Moves,
    /// Remaining trials of moves that gain nothing by themselves, but may after re-estimation of the other functions.
    trials: usize,
}

impl SearchBudget {
    /// The budget for a setting.
    pub(crate) fn of(search: Search) -> Self {
        Self {
            moves: Moves::All,
            trials: match search {
                Search::Exchange => 160,
                Search::Greedy => 24,
            },
        }
    }
}

impl Fit<'_, '_> {
    /// Continues from an optimum if the settings ask for a search. Returns the status of the better model.
    pub(crate) fn exchange(&mut self, found: Status) -> Result<Status, Stop> {
        if self.rules.search == Search::Greedy || self.model.penalized().next().is_none() {
            return Ok(found);
        }
        let greedy = self.model.clone();
        self.clear_dictionary();
        let outcome = if self.stats.facts().is_linear {
            self.exchange_on_rows()
        } else {
            self.exchange_at_modes()
        };
        let status = unless_indefinite(outcome)?.flatten();
        if let Some(status) = status
            && self.model.log_posterior() >= greedy.log_posterior()
        {
            return Ok(status);
        }
        let moved = self.model.log_posterior().to_bits() != greedy.log_posterior().to_bits();
        self.model.clone_from(&greedy);
        if moved {
            self.record(Action::Search, None)?;
        }
        Ok(found)
    }

    /// Alternates between searches on a working set and convergence on all data; `None` if no better model was found.
    fn exchange_on_rows(&mut self) -> Result<Option<Status>, Stop> {
        let mut budget = SearchBudget::of(self.rules.search);
        self.refresh()?;
        let loose = self.rules.loosened();
        let whole = self.dictionary.n_candidates() <= Tuning::MAX_WHOLE_DICTIONARY;
        let mut status = None;
        for round in 0..Tuning::MAX_WORKING_SETS {
            if whole && round > 0 {
                // The working set is the same as before, and with it most trials.
                budget.trials = 0;
            }
            let set = self.exchange_set(whole)?;
            if !self.on(&set, |local, _| local.explore(&mut budget, round == 0))? {
                break;
            }
            self.model.centre(self.stats)?;
            self.record(Action::Search, None)?;
            self.refresh_or_update(None)?;
            let rules = if whole { self.rules } else { &loose };
            status = Some(self.with_rules(rules).sequential(Start::default())?);
        }
        if status.is_some() && !whole {
            status = Some(self.sequential(Start::default())?);
        }
        Ok(status)
    }

    /// The working set of the whole dictionary, or of the active functions and their substitutes.
    fn exchange_set(&mut self, whole: bool) -> Result<WorkingSet, Stop> {
        let members = if whole {
            self.dictionary.sample(0, usize::MAX)
        } else {
            let mut members = self.dictionary.substitutes(self.model);
            let near = self
                .dictionary
                .near_candidates(self.model, Tuning::SAMPLE_SIZE);
            members.extend(near);
            members
        };
        Ok(self.working_set(&members)?)
    }

    /// Searches on linearisations of the likelihood, each at the mode of the model found before.
    fn exchange_at_modes(&mut self) -> Result<Option<Status>, Stop> {
        let mut status = None;
        let mut budget = SearchBudget::of(self.rules.search);
        for _ in 0..Tuning::MAX_WORKING_SETS {
            let better = self.exchange_at_mode(&mut budget)?;
            if better.is_none() {
                break;
            }
            status = better;
        }
        Ok(status)
    }

    /// Makes moves on the linearisation at the mode, and continues the fit from there. Returns `None`, with the model restored,
    /// if it does not converge to a better model.
    fn exchange_at_mode(&mut self, budget: &mut SearchBudget) -> Result<Option<Status>, Stop> {
        let before = self.model.clone();
        self.clear_dictionary();
        self.find_mode()?;
        self.refresh()?;
        let members = self.dictionary.substitutes(self.model);
        let set = self.working_set(&members)?;
        let moved = self.on(&set, |local, _| local.improve(budget));
        let outcome = match moved {
            Ok(true) => self.continue_from_moves(&before),
            moved => moved.map(|_| None),
        };
        let status = unless_indefinite(outcome)?.flatten();
        if status.is_none() {
            self.model.clone_from(&before);
        }
        Ok(status)
    }

    /// Fits to convergence after moves; `None` if the result is not better than `before`.
    fn continue_from_moves(&mut self, before: &Model) -> Result<Option<Status>, Stop> {
        self.find_mode()?;
        if self.model.log_posterior() + Tuning::MAX_TRIAL_DEFICIT < before.log_posterior() {
            return Ok(None);
        }
        self.record(Action::Search, None)?;
        self.clear_dictionary();
        let status = self.converge_at_modes(&mut self.model.clone(), 0)?;
        let better =
            self.model.log_posterior() > before.log_posterior() + Tuning::MIN_EXCHANGE_GAIN;
        if better && status == Status::Converged {
            return Ok(Some(status));
        }
        // The model before is restored: record its evidence.
        self.recorder.step(Action::Search, None, before)?;
        Ok(None)
    }
}

impl LocalFit<'_> {
    /// Runs every search on this working set; returns whether one of them found a better model.
    fn explore(&mut self, budget: &mut SearchBudget, first: bool) -> Result<bool, Stop> {
        // Early additions may have led the greedy algorithm far from the best model.
        let crowded =
            Tuning::MIN_ROWS_PER_FUNCTION * self.model.len() as f64 > self.set.facts.n_obs;
        let mut found = false;
        if first && crowded && self.set.len() <= Tuning::MAX_WHOLE_DICTIONARY {
            found |= self.eliminate()?;
        }
        if crowded {
            // In so large a model few exchanges beat the elimination, and each takes long.
            (budget.moves, budget.trials) = (Moves::Exchanges, 24);
        }
        Ok(found | self.improve(budget)?)
    }

    /// Tries promising moves until none of them leads to a better model; returns whether there was one, which is converged to a loose
    /// tolerance.
    pub(crate) fn improve(&mut self, budget: &mut SearchBudget) -> Result<bool, Stop> {
        let mut best = self.clone();
        best.renew();
        let mut rejected = BTreeSet::new();
        loop {
            // Merges and splits are many: they are tried once no exchange leads to a better model.
            let mut better = None;
            for kind in [Moves::Exchanges, Moves::All] {
                if better.is_none() && (kind == Moves::Exchanges || budget.moves == Moves::All) {
                    better = best.best_of_batch(kind, budget, &mut rejected)?;
                }
            }
            let Some(better) = better else { break };
            best = better;
        }
        Ok(self.replace_by(best))
    }

    /// Takes the other model if it is better; returns whether it is.
    fn replace_by(&mut self, other: Self) -> bool {
        let better = other.evidence() > self.evidence() + Tuning::MIN_EXCHANGE_GAIN;
        if better {
            *self = other;
        }
        better
    }

    /// The best model from the first batch of moves in which one leads to a better model.
    fn best_of_batch(
        &mut self,
        kind: Moves,
        budget: &mut SearchBudget,
        rejected: &mut BTreeSet<(Vec<usize>, Vec<usize>)>,
    ) -> Result<Option<Self>, Stop> {
        let key = |change: &Move| (change.deleted.clone(), change.added.clone());
        let mut moves = self.moves(kind, -Tuning::MAX_TRIAL_DEFICIT)?;
        moves.retain(|change| !rejected.contains(&key(change)));
        for batch in moves.chunks(Tuning::TRIAL_BATCH) {
            self.set.facts.check_cancelled()?;
            let predicted_better = batch[0].gain > Tuning::MIN_EXCHANGE_GAIN;
            if !predicted_better {
                if budget.trials == 0 {
                    break;
                }
                budget.trials -= batch.len().min(budget.trials);
            }
            // All moves of a batch start from the same model, so the result does not depend on the number of threads.
            let outcomes = map_pieces(batch.len(), 1, |range| {
                let mut trial = self.clone();
                trial.make(&batch[range.start])?;
                trial.recompute()?;
                self.refined(trial, &mut Recorder::silent())
            });
            let (mut better, mut bar) = (None, self.evidence() + Tuning::MIN_EXCHANGE_GAIN);
            for outcome in outcomes {
                if let Some(other) = unless_indefinite(outcome)?.flatten()
                    && other.evidence() > bar
                {
                    bar = other.evidence();
                    better = Some(other);
                }
            }
            if better.is_some() {
                return Ok(better);
            }
            rejected.extend(batch.iter().map(key));
        }
        Ok(None)
    }

    /// Backward elimination: starts with all functions of the working set and prunes them. Takes the result if it is better; returns whether
    /// it is.
    ///
    /// Where a model has almost as many functions as there are rows, early additions may have led the greedy algorithm far
    /// from the best model, and exchanges do not lead back; in compressed sensing near its limits, for example.
    fn eliminate(&mut self) -> Result<bool, Stop> {
        let attempt = || {
            let mut other = Self::new(self.set, self.pruned_from_all()?);
            let silent = &mut Recorder::silent();
            other.maximize(Tuning::COARSE_EFFORT, silent)?;
            other.renew();
            other.maximize(Tuning::TRIAL_EFFORT, silent)?;
            Ok(other)
        };
        let other = unless_indefinite(attempt())?;
        self.set.facts.check_cancelled()?;
        Ok(other.is_some_and(|other| self.replace_by(other)))
    }

    /// The model of the whole working set after pruning, at the present noise level.
    ///
    /// MacKay's update is `alpha' = gamma / mu^2`. Its geometric mean with alpha is the update of Wipf & Nagarajan (2010), which
    /// maximises a bound on the evidence (ln|C| is concave in the variances 1 / alpha, so its tangent is an upper bound). It
    /// never lowers the evidence.
    fn pruned_from_all(&self) -> Result<Model, Stop> {
        let all: Vec<usize> = (0..self.set.len()).collect();
        let mut initial = vec![Tuning::INITIAL_ALPHA; all.len()];
        self.model.unpenalized().for_each(|i| initial[i] = 0.0);
        let mut model = self.set.model_of(&all, &initial, &self.model)?;
        for _ in 0..Tuning::MAX_STEPS {
            self.set.facts.check_cancelled()?;
            let next: Vec<f64> = (0..model.len()).map(|k| model.concave_update(k)).collect();
            let is_kept = |&k: &usize| {
                if model.is_unpenalized(k) {
                    return true;
                }
                let factors = model.factors(k);
                next[k] < Tuning::PRUNE_RATIO * factors.first.s || factors.optimal_alpha().is_some()
            };
            let kept: Vec<usize> = (0..next.len()).filter(is_kept).collect();
            let change = |&k: &usize| (next[k] / model.alpha[k]).ln().abs(); // NaN, which `max` ignores, for a flat prior
            let largest = kept.iter().map(change).fold(0.0, f64::max);
            let near = largest <= Tuning::COARSE_TOL && kept.len() == model.len();
            let functions: Vec<usize> = kept.iter().map(|&k| model.active[k]).collect();
            let alpha: Vec<f64> = kept.iter().map(|&k| next[k]).collect();
            model = self.set.model_of(&functions, &alpha, &self.model)?;
            if near {
                break;
            }
        }
        Ok(model)
    }
}
