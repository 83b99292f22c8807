//! Tipping & Faul's loop on a working set: apply the change with the largest gain until none remains.
//!
//! This is section 4 of the paper: S and Q of every candidate are updated at every step ([`Candidates`]) by the formulae of
//! its appendix. A step on a [`WorkingSet`] costs (members x active functions) and touches no data.

use crate::fit::candidates::{Candidates, Update};
use crate::fit::model::Model;
use crate::fit::record::{Action, Recorder, Stop, unless_indefinite};
use crate::fit::refine;
use crate::fit::refine::Change;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;

/// A model on a working set, with S and Q of its candidates. Functions are numbered by their position in the working set.
#[derive(Clone)]
pub(crate) struct LocalFit<'s> {
    pub(crate) set: &'s WorkingSet,
    pub(crate) model: Model,
    pub(crate) candidates: Candidates,
}

impl<'s> LocalFit<'s> {
    pub(crate) fn new(set: &'s WorkingSet, model: Model) -> Self {
        Self {
            candidates: Candidates::new(set, &model),
            set,
            model,
        }
    }

    /// Maximizes the evidence on the working set until no change gains more than `effort` asks for.
    pub(crate) fn maximize(
        &mut self,
        effort: Effort,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let coarse = effort.tol.max(Tuning::COARSE_TOL);
        let (mut tol, mut highest) = (coarse, f64::NEG_INFINITY);
        loop {
            self.step_greedily(effort, recorder)?;
            let refined = self.refine(Effort { tol, ..effort }, recorder)?;
            if !refined || self.evidence() < highest {
                // Round-off exceeds the gains; the caller continues on the data, or ends as stalled.
                return Ok(());
            }
            highest = self.evidence();
            let limit = self.room(effort);
            let added = self.add_several(effort.gain, Tuning::JOINT_GAIN_RATIO, limit, recorder)?;
            if added == 0 && tol <= effort.tol {
                return Ok(());
            }
            tol = if added == 0 { effort.tol } else { coarse };
        }
    }

    /// [`Self::maximize`] at the initial noise, which several outputs leave early: gains of all of them add up, so where it is too low
    /// functions without end would explain the rest.
    pub(crate) fn maximize_at_held_noise(
        &mut self,
        rows_per_function: f64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let n = self.model.outputs.len();
        let effort = Effort {
            rows_per_function,
            ..Tuning::HELD_NOISE_EFFORT
        };
        self.maximize(effort, recorder)?;
        if self.room(effort) == 0 {
            self.refine(Tuning::COARSE_EFFORT.of_outputs(n), recorder)?;
        }
        Ok(())
    }

    /// Rows for each function of a first model: gains of several outputs add up.
    pub(crate) fn rows_per_function(&self) -> f64 {
        if self.model.outputs.len() > 1 {
            Tuning::MIN_ROWS_PER_FUNCTION
        } else {
            0.0
        }
    }

    /// The number of functions that may be added.
    fn room(&self, effort: Effort) -> usize {
        let rows = effort.rows_per_function * self.model.len() as f64;
        if rows > self.set.facts.n_obs {
            0
        } else {
            usize::MAX
        }
    }

    /// Brings alphas and noise of the active set to convergence. Returns `false`, with the model restored, if round-off made the
    /// posterior precision indefinite.
    fn refine(&mut self, effort: Effort, recorder: &mut Recorder<'_>) -> Result<bool, Stop> {
        let before = self.model.clone();
        let refined = refine::converge(&mut &*self.set, &mut self.model, effort, recorder);
        if unless_indefinite(refined)?.is_none() {
            self.model.clone_from(&before);
            return Ok(false);
        }
        if (&self.model.alpha, self.model.betas()) != (&before.alpha, before.betas()) {
            self.candidates.refresh(self.set, &self.model);
        }
        Ok(true)
    }

    /// Single changes, largest gain first, at fixed noise: steps 4 to 8, 10 and 11 of section 4.
    ///
    /// Functions that gain less than `effort.step` wait until the active set has converged: next to a function that has not,
    /// a similar one would be added.
    pub(crate) fn step_greedily(
        &mut self,
        effort: Effort,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let mut good = None;
        for steps in 1.. {
            self.set.facts.check_cancelled()?;
            // Step 4, as in section 4.2: of all changes the one with the largest gain, equations (27), (32) and (37).
            let Some(best) = self.best_change(effort) else {
                break; // step 11: nothing gains enough
            };
            let good = good.get_or_insert_with(|| self.model.clone());
            // Steps 5 to 8: theta = q^2 - s decides whether a function is added or re-estimated at its optimal alpha (20), or
            // deleted (21). Step 10: each updates S and Q of all candidates, appendix A.2 to A.4.
            let mut outcome = match best {
                Best::Addition(i) => self.add(i, recorder),
                Best::Change(change) => self.apply(change, recorder),
            };
            // Rank-one updates accumulate round-off; recomputation removes it: equations (6), (24) and (25).
            if outcome.is_ok() && steps % (2 * self.model.len() + 20) == 0 {
                outcome = self.recompute();
                if outcome.is_ok() {
                    good.clone_from(&self.model);
                }
            }
            self.go_on(outcome, good, best, recorder)?;
        }
        Ok(())
    }

    /// Goes on after a change; from the `good` model, and without one of its functions, if round-off made the posterior precision
    /// indefinite.
    fn go_on(
        &mut self,
        outcome: Result<(), Stop>,
        good: &mut Model,
        best: Best,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        if unless_indefinite(outcome)?.is_none() {
            self.model.clone_from(good);
            self.avoid(best, recorder)?;
            good.clone_from(&self.model);
        }
        Ok(())
    }

    /// The addition, re-estimation or deletion with the largest gain.
    fn best_change(&self, effort: Effort) -> Option<Best> {
        let min_gain = effort.gain.max(effort.step);
        let addition = self
            .candidates
            .best_addition(self.set, &self.model, min_gain)
            .filter(|_| self.room(effort) > 0);
        // A duplicate of an active function gains as much as its re-estimation, up to round-off: do not add it.
        let is_better = |change: &Change| {
            addition.is_none_or(|(_, gain)| change.gain >= gain * (1.0 - Tuning::TIE))
        };
        let change = refine::best_change(&self.model, effort).filter(is_better);
        change
            .map(Best::Change)
            .or(addition.map(|(i, _)| Best::Addition(i)))
    }

    /// Adds member `i` with its optimal alpha: appendix A.2.
    pub(crate) fn add(&mut self, i: usize, recorder: &mut Recorder<'_>) -> Result<(), Stop> {
        let Self {
            set,
            model,
            candidates,
        } = self;
        let candidate = set.candidate(i, model);
        let projection = model.project(&candidate);
        candidates.count_entry(i);
        let Some((alpha, gain)) = projection.factors.best_above(0.0) else {
            // The updated S and Q have drifted: recompute them.
            candidates.refresh(set, model);
            return Ok(());
        };
        model.add(&candidate, &projection, alpha)?;
        candidates.condition_on_last(set, model);
        model.recentre(&mut &**set)?;
        recorder.step(Action::Add(i), Some(gain), model)
    }

    /// Adds the candidate with the largest gain above `min_gain`, and further ones, at most `limit` in all, with this fraction of it;
    /// returns how many.
    pub(crate) fn add_several(
        &mut self,
        mut min_gain: f64,
        ratio: f64,
        limit: usize,
        recorder: &mut Recorder<'_>,
    ) -> Result<usize, Stop> {
        let mut good = None;
        for added in 0..limit {
            let Some((i, gain)) = self
                .candidates
                .best_addition(self.set, &self.model, min_gain)
            else {
                return Ok(added);
            };
            // Once the active duplicate has converged, this function may gain nothing.
            if added > 0 && self.set.has_duplicate(i, &self.model.active) {
                return Ok(added);
            }
            min_gain = min_gain.max(ratio * gain);
            let good = good.get_or_insert_with(|| self.model.clone());
            let outcome = self.add(i, recorder);
            self.go_on(outcome, good, Best::Addition(i), recorder)?;
        }
        Ok(limit)
    }

    /// Re-estimates or deletes an active function: appendix A.3 and A.4.
    fn apply(&mut self, change: Change, recorder: &mut Recorder<'_>) -> Result<(), Stop> {
        let Change { k, alpha, .. } = change;
        let i = self.model.active[k];
        let update = if alpha.is_finite() {
            Update::Reestimation(alpha - self.model.alpha[k])
        } else {
            Update::Deletion
        };
        self.candidates.shift(self.set, &self.model, k, update);
        refine::apply(&mut &*self.set, &mut self.model, change, recorder)?;
        if alpha == f64::INFINITY {
            self.candidates.reopen(self.set, &self.model, i);
        }
        Ok(())
    }

    /// Deletes member `i`, if it is active, without a record.
    pub(crate) fn delete(&mut self, i: usize) {
        if let Some(k) = self.model.active.iter().position(|&j| j == i) {
            self.candidates
                .shift(self.set, &self.model, k, Update::Deletion);
            self.model.delete(k);
            self.candidates.reopen(self.set, &self.model, i);
        }
    }

    /// Goes on after `best` made the posterior precision indefinite, so some functions are linearly dependent up to round-off: deletes
    /// and excludes the functions whose deletion costs least, one after another, until the rest can be recomputed; in an empty model,
    /// excludes the function that was added.
    fn avoid(&mut self, best: Best, recorder: &mut Recorder<'_>) -> Result<(), Stop> {
        loop {
            let cheapest = self.model.cheapest_deletion();
            let (i, action) = match (cheapest, best) {
                (Some(k), _) => (self.model.active[k], Action::Delete(self.model.active[k])),
                (None, Best::Addition(i)) => (i, Action::Search),
                (None, Best::Change(_)) => return Ok(()),
            };
            self.delete(i);
            self.candidates.exclude(i);
            // Its factors are updated in place; a failed recomputation loses them.
            let rest = self.model.clone();
            let recomputed = self.recompute();
            if cheapest.is_none() {
                recomputed?;
            } else if unless_indefinite(recomputed)?.is_none() {
                self.model = rest;
                continue;
            }
            return recorder.step(action, None, &self.model);
        }
    }

    /// Recomputes the posterior and S and Q from scratch.
    pub(crate) fn recompute(&mut self) -> Result<(), Stop> {
        self.model.recompute()?;
        self.candidates.refresh(self.set, &self.model);
        Ok(())
    }

    /// Forgets which candidates were excluded, and recomputes S and Q.
    pub(crate) fn renew(&mut self) {
        self.candidates = Candidates::new(self.set, &self.model);
    }
}

/// The change with the largest gain.
#[derive(Clone, Copy)]
enum Best {
    Addition(usize),
    Change(Change),
}

impl WorkingSet {
    /// Whether one of the functions `active` is a duplicate of function `i`.
    fn has_duplicate(&self, i: usize, active: &[usize]) -> bool {
        let (products, diagonal) = (self.gram.column(i), self.gram.diagonal());
        let limit = |j: usize| Tuning::DUPLICATE_COS2 * diagonal[i] * diagonal[j];
        active.iter().any(|&j| products[j].powi(2) > limit(j))
    }
}
