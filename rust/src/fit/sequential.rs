//! Tipping & Faul's fast maximization of the marginal likelihood, for a Gaussian likelihood.
//!
//! The loop of the paper, section 4, runs on a [`WorkingSet`] of candidates; passes over the whole dictionary only choose the
//! next working set. Every step raises the evidence, and the convergence criterion is the paper's (section 4.4): all
//! |change in ln alpha| below tolerance and no function of the dictionary with a gain.

use crate::Error;
use crate::fit::context::Fit;
use crate::fit::model::Level;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Plateau;
use crate::fit::search::lns::Opening;
use crate::fit::tuning::{Effort, Tuning};
use crate::fit::working_set::WorkingSet;
use crate::model::Status;

/// How [`Fit::sequential`] starts: without more, from a model that has nearly converged.
#[derive(Default)]
pub(crate) struct Start {
    /// The working set of the whole dictionary, if there is one.
    pub(crate) whole: Option<WorkingSet>,
    /// Number of searches.
    pub(crate) searches: usize,
    /// How the first search begins.
    pub(crate) opening: Opening,
}

impl Fit<'_, '_> {
    /// Continues from a model to convergence over the dictionary, which has to be refreshed.
    pub(crate) fn sequential(&mut self, mut start: Start) -> Result<Status, Stop> {
        self.or_roll_back(Action::Joint, |fit, good| {
            let mut effort = Effort {
                tol: Tuning::LOOSE_TOL.max(fit.rules.tol),
                ..Tuning::FINE_EFFORT.of_outputs(fit.model.outputs.len())
            };
            let mut plateau = Plateau::new();
            loop {
                let next;
                let set = if start.whole.is_some() {
                    start.whole.as_ref()
                } else if start.searches > 0 || fit.dictionary.has_gain(fit.model) {
                    let search = (start.searches > 0).then_some(start.opening);
                    next = fit.next_working_set(search)?;
                    Some(&next)
                } else {
                    None
                };
                if let Some(set) = set {
                    if start.searches > 0 {
                        let found = fit.search(set, std::mem::take(&mut start.opening))?;
                        // One search exhausts a working set; another one needs other substitutes.
                        start.searches = if found && start.whole.is_none() {
                            start.searches - 1
                        } else {
                            0
                        };
                    }
                    fit.maximize_on(set, effort)?;
                }
                fit.refresh_or_update(start.whole.as_ref())?;
                let mut converged = fit.refine(effort)?;
                if fit.has_fallen_below(good) {
                    return Ok(None);
                }
                good.clone_from(fit.model);
                fit.dictionary.update_factors(fit.model);
                // Round-off may promise gains for ever that no step achieves, or lead back to the same model.
                let idle = plateau.length_at(fit.model.log_posterior());
                let is_idle = idle >= Tuning::MAX_IDLE_ROUNDS;
                if start.searches > 0 || (!is_idle && fit.dictionary.has_gain(fit.model)) {
                    continue;
                }
                if effort.tol > fit.rules.tol {
                    effort.tol = fit.rules.tol;
                    converged = fit.refine(effort)?;
                    fit.dictionary.update_factors(fit.model);
                    if !is_idle && fit.dictionary.has_gain(fit.model) {
                        continue;
                    }
                }
                return Ok(Some(fit.ending(converged, is_idle)));
            }
        })
    }

    /// Continues from an optimum with less weight c of the prior on complexity, then with all of it; keeps the better model.
    ///
    /// If K functions explain equal parts of the targets of N rows, each gains about N / 2K alone. Where that is below c none of them is added,
    /// though all together would lower the noise by far. The lower weight is at least Schwarz's, (ln N) / 2. Of p functions without an effect
    /// about p exp(-c) / sqrt(pi c) gain more than it: with ln(4 p / N) one for some sixteen rows.
    pub(crate) fn with_less_complexity(&mut self, found: Status) -> Result<Status, Stop> {
        let (complexity, facts) = (self.model.complexity, self.stats.facts());
        let (n_rows, n_basis) = (facts.n_obs, facts.n_basis() as f64);
        let least = (0.5 * n_rows.ln()).max((4.0 * n_basis / n_rows).ln());
        let less = least.max(Tuning::LESS_COMPLEXITY * complexity);
        let could_hide = 2.0 * complexity * n_basis > n_rows;
        let estimates_noise = self.model.levels.iter().any(|l| l.noise.is_estimated());
        if less >= complexity || !could_hide || !estimates_noise {
            return Ok(found);
        }
        let good = self.model.clone();
        let mut trial = Fit {
            stats: self.stats,
            model: self.model,
            dictionary: self.dictionary,
            rules: &self.rules.loosened(),
            recorder: &mut Recorder::silent(),
        };
        let mut status = trial.at_complexity(less);
        if status.is_ok() {
            trial.rules = self.rules;
            status = trial.at_complexity(complexity);
        }
        let bar = good.log_posterior() + Tuning::MIN_SEARCH_GAIN;
        match status {
            Ok(status) if self.model.log_posterior() > bar => {
                self.record(Action::Search, None)?;
                Ok(status)
            }
            Ok(_) | Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => {
                self.model.clone_from(&good);
                Ok(found)
            }
            Err(halt) => Err(halt),
        }
    }

    /// Continues to convergence with this weight of the prior on complexity.
    fn at_complexity(&mut self, weight: f64) -> Result<Status, Stop> {
        self.model.complexity = weight;
        self.refresh_or_update(None)?;
        self.sequential(Start::default())
    }

    /// The status at an optimum of the active set beside which no candidate gains.
    pub(crate) fn ending(&self, converged: bool, is_idle: bool) -> Status {
        if !converged || is_idle || self.dictionary.excludes_gain(self.model) {
            Status::Stalled
        } else if self.model.levels.iter().any(|l| l.noise.at_floor()) {
            Status::NoiseFloor
        } else {
            Status::Converged
        }
    }

    /// A first model from a sample of the dictionary, until no candidate gains much.
    ///
    /// An estimated noise level is fixed at first: free from the first function on, it would absorb the signal that later functions
    /// explain.
    pub(crate) fn first_model(&mut self) -> Result<Start, Stop> {
        let mut set = self.model_of_sample()?;
        let whole = self.dictionary.n_candidates() == set.len();
        // With fixed noise a restart lowers the noise in stages and finds another model.
        let is_estimated = |level: &Level| level.noise.is_estimated();
        let is_same = self.model.levels.iter().all(is_estimated) && self.model.complexity == 0.0;
        let opening = if whole && is_same {
            Opening::Refine
        } else {
            Opening::Restart
        };
        let start = Start {
            searches: Tuning::searches(self.stats.facts().n_obs),
            opening,
            whole: None,
        };
        if whole {
            // The working set has the Gram matrix; the exact residual comes from the rows.
            self.model.centre(self.stats)?;
            return Ok(Start {
                whole: Some(set),
                ..start
            });
        }
        // Gains of several outputs add up, and so do those that coarse steps leave.
        let most = Tuning::MAX_INITIAL_GAIN * self.model.outputs.len() as f64;
        let mut last = f64::NEG_INFINITY;
        loop {
            self.refresh_or_update(None)?;
            let reached = self.model.log_posterior();
            if self.dictionary.largest_gain(self.model) <= most || reached <= last {
                return Ok(start);
            }
            last = reached;
            let best = self
                .dictionary
                .best_candidates(self.model, Tuning::SAMPLE_SIZE);
            set = self.working_set(&best)?;
            self.maximize_coarsely(&set, false)?;
        }
    }

    /// [`Fit::first_model`] without the passes that follow the first working set, which it returns.
    pub(crate) fn model_of_sample(&mut self) -> Result<WorkingSet, Stop> {
        self.add_unpenalized()?;
        self.refresh()?;
        let (size, max_whole) = (Tuning::SAMPLE_SIZE, Tuning::MAX_WHOLE_DICTIONARY);
        let members = self.dictionary.sample(size, max_whole);
        let set = self.working_set(&members)?;
        let estimates_noise = self.model.levels.iter().any(|l| l.noise.is_estimated());
        self.maximize_coarsely(&set, estimates_noise)?;
        Ok(set)
    }

    /// Maximizes on a working set with coarse effort, at first with fixed noise if asked for.
    fn maximize_coarsely(&mut self, set: &WorkingSet, fix_noise: bool) -> Result<(), Stop> {
        if fix_noise {
            self.on(set, |local, recorder| {
                local.maximize_at_held_noise(local.rows_per_function(), recorder)
            })?;
        }
        let n = self.model.outputs.len();
        self.maximize_on(set, Tuning::COARSE_EFFORT.of_outputs(n))
    }

    /// The searches of [`Fit::sequential`] without its last passes: continues until no candidate gains much.
    ///
    /// On a subsample each new quadratic model changes the evidence, which is recorded as that of the last step.
    pub(crate) fn nearly_complete(&mut self) -> Result<(), Stop> {
        self.refresh()?;
        self.recorder.amend(self.model);
        let effort = Effort {
            tol: Tuning::LOOSE_TOL,
            ..Tuning::TRIAL_EFFORT
        };
        let (mut searches, mut opening) = (Tuning::MAX_SEARCHES, Opening::Restart);
        for _ in 0..Tuning::MAX_WORKING_SETS {
            let largest = self.dictionary.largest_gain(self.model);
            let searching = searches > 0 && largest <= Tuning::MAX_INITIAL_GAIN;
            let set = self.next_working_set(searching.then_some(opening))?;
            if searching {
                let found = self.search(&set, std::mem::take(&mut opening))?;
                searches = if found { searches - 1 } else { 0 };
            }
            self.maximize_on(&set, effort)?;
            self.refresh_or_update(None)?;
            self.recorder.amend(self.model);
            self.refine(effort)?;
            self.dictionary.update_factors(self.model);
            let largest = self.dictionary.largest_gain(self.model);
            if searches == 0 && largest <= Tuning::MAX_LOW_RANK_ERROR {
                break;
            }
        }
        Ok(())
    }

    /// The next working set: candidates that gain, and for a search substitutes of the active functions, otherwise candidates that nearly
    /// gain. A restart beside a poor model has a sample of the dictionary as well, since candidates that gain beside that model are alike.
    pub(crate) fn next_working_set(&mut self, search: Option<Opening>) -> Result<WorkingSet, Stop> {
        let (dictionary, size) = (&mut *self.dictionary, Tuning::SAMPLE_SIZE);
        let mut members = dictionary.best_candidates(self.model, size);
        // The model explains less than half of the variance.
        let is_poor = |level: &Level| {
            level.noise.is_estimated()
                && level.noise.beta < 2.0 * Tuning::INITIAL_NOISE * level.noise.start
        };
        if search == Some(Opening::Restart) && self.model.levels.iter().any(is_poor) {
            members.extend(dictionary.sample(size, size));
        }
        if search.is_some() {
            members.extend(dictionary.substitutes(self.model));
        } else {
            dictionary.count_entries(&members);
            members.extend(dictionary.near_candidates(self.model, size));
        }
        Ok(self.working_set(&members)?)
    }

    /// Searches the working set for a better model, and returns whether there was one.
    fn search(&mut self, set: &WorkingSet, opening: Opening) -> Result<bool, Stop> {
        let trials = Tuning::trials(self.stats.facts().n_obs);
        let found = self.on(set, |local, _| local.search(trials, opening))?;
        if found {
            // The exact residual of the new model comes from the rows.
            self.model.centre(self.stats)?;
            self.record(Action::Search, None)?;
        }
        Ok(found)
    }

    /// Brings S and Q of the dictionary to the present model: by a pass over the data only if it has functions whose Gram columns are
    /// unknown, and without computing these if `whole`, a working set of all candidates, has them.
    pub(crate) fn refresh_or_update(&mut self, whole: Option<&WorkingSet>) -> Result<(), Stop> {
        if self.dictionary.has_columns(self.model) {
            self.model.centre(self.stats)?;
            self.dictionary.update_factors(self.model);
            return Ok(());
        }
        if let Some(set) = whole {
            self.dictionary.take_columns(set, self.model);
        }
        self.refresh()?;
        Ok(())
    }
}
