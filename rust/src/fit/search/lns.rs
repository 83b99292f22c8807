//! Large-neighbourhood search: deletes a few neighbouring functions together, and runs the greedy algorithm from there.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search may first restart from an empty model. Each trial then deletes an active function together with
//! those most aligned with it, and continues greedily. A better result replaces the model. Everything happens on a
//! [`WorkingSet`], at a cost that depends neither on the number of rows nor on the size of the dictionary.

use std::collections::BTreeSet;

use crate::Error;
use crate::fit::candidates::Candidates;
use crate::fit::greedy::{maximize, maximize_from, step_greedily};
use crate::fit::model::State;
use crate::fit::ranking::most_aligned;
use crate::fit::record::{Recorder, Stop};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// What a search does first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Nothing.
    #[default]
    Plain,
    /// Refines the model as trials are refined, which gives what a restart would give if the working set already made the
    /// model from nothing.
    Refine,
    /// Restarts from an empty model.
    Restart,
}

/// Searches the neighbourhood of each active function; returns whether a better model was found.
///
/// `state` is the state of a fit on the working set, and holds the better model afterwards, converged to a loose tolerance.
pub(crate) fn search(
    set: &WorkingSet,
    state: &mut State,
    max_trials: usize,
    opening: Opening,
) -> Result<bool, Stop> {
    if state.len() == 0 {
        return Ok(false);
    }
    let before = state.log_posterior();
    let mut best = Model::new(set, state.clone());
    let opened = match opening {
        Opening::Plain => Ok(None),
        Opening::Refine => best.refined(set),
        Opening::Restart => best.restart(set),
    };
    if let Some(better) = best.if_better(opened)? {
        best = better;
    }
    let mut budget = TrialBudget {
        trials: max_trials,
        failures: Tuning::MAX_FAILED_TRIALS,
    };
    while try_all(set, &mut best, &mut budget)? && !budget.is_spent() {}
    let found = best.evidence > before + Tuning::MIN_SEARCH_GAIN;
    if found {
        *state = best.state;
    }
    Ok(found)
}

/// Limits of a search: trials in all, and consecutive trials without a better model.
struct TrialBudget {
    trials: usize,
    failures: usize,
}

impl TrialBudget {
    fn is_spent(&self) -> bool {
        self.trials == 0 || self.failures == 0
    }

    fn spend(&mut self, trials: usize, is_better: bool) {
        self.trials = self.trials.saturating_sub(trials);
        self.failures = if is_better {
            Tuning::MAX_FAILED_TRIALS
        } else {
            self.failures.saturating_sub(trials)
        };
    }
}

/// Tries each neighbourhood of the model in turn, and keeps every better model; returns whether there was one.
fn try_all(set: &WorkingSet, best: &mut Model, budget: &mut TrialBudget) -> Result<bool, Stop> {
    let start = best.evidence;
    // Neighbourhoods tried since the last improvement, sorted: in a small model most are the same.
    let mut tried = BTreeSet::new();
    for batch in seeds(set, &best.state).chunks(Tuning::TRIAL_BATCH) {
        if budget.is_spent() {
            break;
        }
        let neighbourhood = |&seed: &usize| set.nearest(seed, &best.state.active);
        let mut neighbourhoods: Vec<Vec<usize>> = batch.iter().map(neighbourhood).collect();
        neighbourhoods.retain(|functions| {
            let mut sorted = functions.clone();
            sorted.sort_unstable();
            tried.insert(sorted)
        });
        // All trials of a batch start from the same model, so the result does not depend on the number of threads.
        let outcomes = map_pieces(neighbourhoods.len(), 1, |range| {
            best.without(set, &neighbourhoods[range.start])
        });
        let before = best.evidence;
        for outcome in outcomes {
            if let Some(better) = best.if_better(outcome)? {
                *best = better;
            }
        }
        let is_better = best.evidence > before;
        budget.spend(batch.len(), is_better);
        if is_better {
            tried.clear();
        }
    }
    Ok(best.evidence > start)
}

/// Centres of neighbourhoods: active functions that others can replace, in ascending order of the evidence lost by deleting
/// them.
fn seeds(set: &WorkingSet, state: &State) -> Vec<usize> {
    let cost = |k: usize| -state.factors(k).gain_of_deleting(state.alpha[k]);
    let mut order: Vec<(f64, usize)> = (0..state.len())
        .filter(|&k| set.has_substitutes(state.active[k], &state.active))
        .map(|k| (cost(k), state.active[k]))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, i)| i).collect()
}

/// A model on the working set, with the factors of its inactive members.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) state: State,
    pub(crate) inactive: Candidates,
    pub(crate) evidence: f64,
}

impl Model {
    pub(crate) fn new(set: &WorkingSet, state: State) -> Self {
        Self {
            inactive: Candidates::new(set, &state),
            evidence: state.log_posterior(),
            state,
        }
    }

    /// The other model if it is better. A trial that failed by round-off is not.
    fn if_better(&self, other: Result<Option<Self>, Stop>) -> Result<Option<Self>, Stop> {
        match other {
            Ok(other) => {
                Ok(other.filter(|other| other.evidence > self.evidence + Tuning::MIN_SEARCH_GAIN))
            }
            Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    /// This model refined as trials are.
    fn refined(&self, set: &WorkingSet) -> Result<Option<Self>, Stop> {
        self.refine_trial(
            set,
            self.state.clone(),
            self.inactive.clone(),
            &mut Recorder::silent(),
        )
    }

    /// The result of the greedy algorithm from an empty model; `None` if it is far worse.
    fn restart(&self, set: &WorkingSet) -> Result<Option<Self>, Stop> {
        let mut recorder = Recorder::silent();
        let mut state = set.empty_model(&self.state);
        for betas in self.state.noise_stages() {
            let alpha = state.alpha.clone();
            state.set_hyperparameters(&alpha, &betas)?;
            maximize(set, &mut state, Tuning::HELD_NOISE_EFFORT, &mut recorder)?;
        }
        maximize(set, &mut state, Tuning::COARSE_EFFORT, &mut recorder)?;
        let inactive = Candidates::new(set, &state);
        self.refine_trial(set, state, inactive, &mut recorder)
    }

    /// The result of deleting these functions and continuing greedily; `None` if it is the same model or far worse.
    fn without(&self, set: &WorkingSet, deleted: &[usize]) -> Result<Option<Self>, Stop> {
        let mut recorder = Recorder::silent();
        let (mut state, mut inactive) = (self.state.clone(), self.inactive.clone());
        for i in deleted {
            if let Some(k) = state.active.iter().position(|j| j == i) {
                inactive.delete(set, &mut state, k);
            }
        }
        step_greedily(
            set,
            &mut state,
            &mut inactive,
            Tuning::COARSE_EFFORT,
            &mut recorder,
        )?;
        if self.has_same_functions(&state) {
            return Ok(None);
        }
        self.refine_trial(set, state, inactive, &mut recorder)
    }

    /// Refines the state of a trial; `None` if it is too far below this model to become better.
    pub(crate) fn refine_trial(
        &self,
        set: &WorkingSet,
        mut state: State,
        mut inactive: Candidates,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Self>, Stop> {
        if state.log_posterior() + Tuning::MAX_TRIAL_DEFICIT < self.evidence {
            return Ok(None);
        }
        maximize_from(
            set,
            &mut state,
            &mut inactive,
            Tuning::TRIAL_EFFORT,
            recorder,
        )?;
        Ok(Some(Self {
            evidence: state.log_posterior(),
            state,
            inactive,
        }))
    }

    fn has_same_functions(&self, other: &State) -> bool {
        let sorted = |state: &State| {
            let mut active = state.active.clone();
            active.sort_unstable();
            active
        };
        sorted(&self.state) == sorted(other)
    }
}

impl WorkingSet {
    /// Whether an inactive function is aligned enough with active function `j` to replace a part of it.
    fn has_substitutes(&self, j: usize, active: &[usize]) -> bool {
        let diagonal = self.gram.diagonal();
        let mut products = self.gram.column(j).iter().zip(diagonal).enumerate();
        let is_like = |g: &f64, own: &f64| g * g > Tuning::SUBSTITUTE_COS2 * own * diagonal[j];
        products.any(|(i, (g, own))| is_like(g, own) && !active.contains(&i))
    }

    /// The active functions most aligned with `seed`, including itself; none if it is not active.
    fn nearest(&self, seed: usize, active: &[usize]) -> Vec<usize> {
        if !active.contains(&seed) {
            return Vec::new();
        }
        let products = self.gram.column(seed);
        most_aligned(
            active.iter().map(|&i| (products[i], i)),
            Tuning::NEIGHBOURHOOD_SIZE,
        )
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::data::{DenseDesign, Observations, Statistics};
    use crate::fit::noise::NoisePrecision;
    use crate::fit::prior::{Gamma, Priors};

    const ROWS: usize = 4;

    /// Three orthogonal columns, and one in the plane of the first two.
    const COLUMNS: [[f64; ROWS]; 4] = [
        [2.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 3.0, 0.0],
        [1.0, 0.5, 0.0, 0.0],
    ];

    /// A working set of all columns, and a model of the three orthogonal ones.
    pub(crate) fn model_of_three() -> (WorkingSet, Model) {
        let values = COLUMNS.concat();
        let target = vec![3.0, -1.0, 2.0, 0.1];
        let design = DenseDesign::new(&values, ROWS, COLUMNS.len()).unwrap();
        let kind = Likelihood::Gaussian;
        let mut stats = Observations::new(&design, kind, target, None).unwrap();
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(
            &[NoisePrecision::fixed(100.0)],
            Gamma::FLAT,
            &[deviance],
            stats.facts().n_obs,
        );
        let priors = Priors::new([0.0; 2], &stats.facts().norms, stats.facts().target_scale);
        let everything: Vec<usize> = (0..COLUMNS.len()).collect();
        let set = WorkingSet::about(&mut stats, &mut state, &priors, &everything).unwrap();
        let mut inactive = Candidates::new(&set, &state);
        for i in 0..3 {
            let silent = &mut Recorder::silent();
            inactive.add(&set, &mut state, i, silent).unwrap();
        }
        let evidence = state.log_posterior();
        let model = Model {
            state,
            inactive,
            evidence,
        };
        (set, model)
    }

    #[test]
    fn a_search_ends_after_all_trials_or_too_many_failures() {
        let mut budget = TrialBudget {
            trials: 100,
            failures: Tuning::MAX_FAILED_TRIALS,
        };
        budget.spend(Tuning::MAX_FAILED_TRIALS - 1, false);
        budget.spend(4, true);
        budget.spend(Tuning::MAX_FAILED_TRIALS - 1, false);
        assert!(!budget.is_spent());
        budget.spend(1, false);
        assert!(budget.is_spent());
        budget.spend(100, true);
        assert!(budget.failures == Tuning::MAX_FAILED_TRIALS && budget.is_spent());
    }

    #[test]
    fn only_functions_with_substitutes_are_deleted() {
        let (set, model) = model_of_three();
        let Model {
            mut state,
            mut inactive,
            ..
        } = model;
        let mut tried = seeds(&set, &state);
        tried.sort_unstable();
        assert_eq!(tried, [0, 1]);
        inactive.delete(&set, &mut state, 0);
        inactive.delete(&set, &mut state, 0);
        let silent = &mut Recorder::silent();
        inactive.add(&set, &mut state, 3, silent).unwrap();
        assert_eq!(seeds(&set, &state), [3]);
    }
}
