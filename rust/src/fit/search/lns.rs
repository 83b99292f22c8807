//! Large-neighbourhood search: a few neighbouring functions out together, and the greedy scheme fills the gap.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search may first try another way through the problem from an empty model. Then each trial takes out
//! an active function with those most aligned with it and lets the ordinary scheme go on from there. A better result
//! replaces the model. All of it happens on a [`WorkingSet`], at no cost that grows with the rows or the dictionary.

use std::collections::BTreeSet;

use crate::Error;
use crate::fit::candidates::Candidates;
use crate::fit::greedy::{maximize, maximize_from, step_greedily};
use crate::fit::model::State;
use crate::fit::newton::NoiseRange;
use crate::fit::ranking::most_aligned;
use crate::fit::record::{Recorder, Stop};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::parallel::map_pieces;

/// Squared cosine of two columns from which one function can do part of what the other does.
const SUBSTITUTE_COS2: f64 = 0.04;

/// What a search begins with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The model as it is.
    #[default]
    Plain,
    /// The model settled. That is what a restart would come to where the pool has made the model from nothing.
    Settling,
    /// Another way through the problem, from an empty model.
    Restart,
}

/// Looks for a better model in the neighbourhood of each active function; whether one was found.
///
/// `state` is that of a fit on the pool. It then stands at the better model, loosely settled.
pub(crate) fn search(
    pool: &WorkingSet,
    state: &mut State,
    noise: Option<NoiseRange>,
    most_trials: usize,
    opening: Opening,
) -> Result<bool, Stop> {
    if state.len() == 0 {
        return Ok(false);
    }
    let before = state.log_posterior();
    let mut best = Model::new(pool, state.clone());
    let opened = match opening {
        Opening::Plain => Ok(None),
        Opening::Settling => best.settled(pool, noise),
        Opening::Restart => best.restart(pool, noise),
    };
    if let Some(better) = best.bettered_by(opened)? {
        best = better;
    }
    let mut budget = Budget {
        trials: most_trials,
        in_vain: Tuning::MAX_FAILED_TRIALS,
    };
    while try_all(pool, &mut best, noise, &mut budget)? && !budget.is_spent() {}
    let found = best.evidence > before + Tuning::MIN_SEARCH_GAIN;
    if found {
        *state = best.state;
    }
    Ok(found)
}

/// What is left to a search: trials in all, and trials in a row that lead to no better model.
struct Budget {
    trials: usize,
    in_vain: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.trials == 0 || self.in_vain == 0
    }

    fn spend(&mut self, trials: usize, is_better: bool) {
        self.trials = self.trials.saturating_sub(trials);
        self.in_vain = if is_better {
            Tuning::MAX_FAILED_TRIALS
        } else {
            self.in_vain.saturating_sub(trials)
        };
    }
}

/// Deletes each neighbourhood of the model in turn, and replaces the model wherever that leads to a better one; whether it did.
fn try_all(
    pool: &WorkingSet,
    best: &mut Model,
    noise: Option<NoiseRange>,
    budget: &mut Budget,
) -> Result<bool, Stop> {
    let start = best.evidence;
    // Neighbourhoods tried from the best model, sorted: in a model of few functions most are the same.
    let mut tried = BTreeSet::new();
    for batch in seeds(pool, &best.state).chunks(Tuning::TRIAL_BATCH) {
        if budget.is_spent() {
            break;
        }
        let neighbourhood = |&seed: &usize| pool.nearest(seed, &best.state.active);
        let mut neighbourhoods: Vec<Vec<usize>> = batch.iter().map(neighbourhood).collect();
        neighbourhoods.retain(|leaving| {
            let mut sorted = leaving.clone();
            sorted.sort_unstable();
            tried.insert(sorted)
        });
        // All trials of a batch start from the same model, so the result does not depend on the number of threads.
        let outcomes = map_pieces(neighbourhoods.len(), 1, |range| {
            best.without(pool, &neighbourhoods[range.start], noise)
        });
        let before = best.evidence;
        for outcome in outcomes {
            if let Some(better) = best.bettered_by(outcome)? {
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

/// Where to look: functions that others could stand in for, those whose loss would cost least first, for there the model is
/// loosest.
fn seeds(pool: &WorkingSet, state: &State) -> Vec<usize> {
    let cost = |k: usize| -state.factors(k).gain_of_deleting(state.alpha[k]);
    let mut order: Vec<(f64, usize)> = (0..state.len())
        .filter(|&k| pool.has_others_like(state.active[k], &state.active))
        .map(|k| (cost(k), state.active[k]))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, i)| i).collect()
}

/// Precisions at which the noise is held in turn on another way to an optimum.
///
/// Where it is estimated: its start. Where it is given: falling to what it is in stages, for little noise from the first
/// function on asks that everything be explained by whatever enters first.
fn levels(beta: f64, noise_is_free: bool) -> Vec<f64> {
    const STAGE: f64 = 10.0;
    let start = 1.0 / Tuning::INITIAL_NOISE;
    if noise_is_free {
        return vec![start];
    }
    let mut levels: Vec<f64> = std::iter::successors(Some(start), |level| Some(level * STAGE))
        .take_while(|&level| level < beta)
        .collect();
    levels.push(beta);
    levels
}

/// A model over the pool, with what it leaves to gain outside.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) state: State,
    pub(crate) outside: Candidates,
    pub(crate) evidence: f64,
}

impl Model {
    pub(crate) fn new(pool: &WorkingSet, state: State) -> Self {
        Self {
            outside: Candidates::new(pool, &state),
            evidence: state.log_posterior(),
            state,
        }
    }

    /// The other, if that is better by what counts. One that lost its definiteness or its way to rounding is no better.
    fn bettered_by(&self, other: Result<Option<Self>, Stop>) -> Result<Option<Self>, Stop> {
        match other {
            Ok(other) => {
                Ok(other.filter(|other| other.evidence > self.evidence + Tuning::MIN_SEARCH_GAIN))
            }
            Err(Stop::Failed(Error::NotPositiveDefinite(_)) | Stop::MaxIterations) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    /// This model as trials are settled.
    fn settled(&self, pool: &WorkingSet, noise: Option<NoiseRange>) -> Result<Option<Self>, Stop> {
        let recorder = &mut Recorder::silent();
        self.challenge(
            pool,
            self.state.clone(),
            self.outside.clone(),
            noise,
            recorder,
        )
    }

    /// What the scheme comes to from an empty model; `None` if nothing better.
    fn restart(&self, pool: &WorkingSet, noise: Option<NoiseRange>) -> Result<Option<Self>, Stop> {
        let mut recorder = Recorder::silent();
        let noise_prior = self.state.noise_prior;
        let mut state = State::empty(
            1.0 / Tuning::INITIAL_NOISE,
            noise_prior,
            pool.target_sq,
            pool.n_obs,
        );
        for level in levels(self.state.beta, noise.is_some()) {
            let alpha = state.alpha.clone();
            state.set_hyperparameters(&alpha, level)?;
            maximize(
                pool,
                &mut state,
                None,
                Tuning::HELD_NOISE_EFFORT,
                &mut recorder,
            )?;
        }
        maximize(
            pool,
            &mut state,
            noise,
            Tuning::COARSE_EFFORT,
            &mut recorder,
        )?;
        let outside = Candidates::new(pool, &state);
        self.challenge(pool, state, outside, noise, &mut recorder)
    }

    /// What becomes of this model if these functions leave; `None` if nothing better.
    fn without(
        &self,
        pool: &WorkingSet,
        leaving: &[usize],
        noise: Option<NoiseRange>,
    ) -> Result<Option<Self>, Stop> {
        let mut recorder = Recorder::silent();
        let (mut state, mut outside) = (self.state.clone(), self.outside.clone());
        for i in leaving {
            if let Some(k) = state.active.iter().position(|j| j == i) {
                outside.delete(pool, &mut state, k);
            }
        }
        step_greedily(
            pool,
            &mut state,
            &mut outside,
            Tuning::COARSE_EFFORT,
            &mut recorder,
        )?;
        if self.has_functions_of(&state) {
            return Ok(None);
        }
        self.challenge(pool, state, outside, noise, &mut recorder)
    }

    /// Settles a state that is nearly so, if that can make it better than this one.
    pub(crate) fn challenge(
        &self,
        pool: &WorkingSet,
        mut state: State,
        mut outside: Candidates,
        noise: Option<NoiseRange>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Self>, Stop> {
        if state.log_posterior() + Tuning::MAX_TRIAL_DEFICIT < self.evidence {
            return Ok(None);
        }
        maximize_from(
            pool,
            &mut state,
            &mut outside,
            noise,
            Tuning::TRIAL_EFFORT,
            recorder,
        )?;
        Ok(Some(Self {
            evidence: state.log_posterior(),
            state,
            outside,
        }))
    }

    fn has_functions_of(&self, other: &State) -> bool {
        let sorted = |state: &State| {
            let mut active = state.active.clone();
            active.sort_unstable();
            active
        };
        sorted(&self.state) == sorted(other)
    }
}

impl WorkingSet {
    /// Whether a function outside the model is so aligned with function `j` of the model that it can replace part of it.
    fn has_others_like(&self, j: usize, active: &[usize]) -> bool {
        let diagonal = self.gram.diagonal();
        let mut products = self.gram.column(j).iter().zip(diagonal).enumerate();
        let is_like = |g: &f64, own: &f64| g * g > SUBSTITUTE_COS2 * own * diagonal[j];
        products.any(|(i, (g, own))| is_like(g, own) && !active.contains(&i))
    }

    /// The active functions most aligned with `seed`, itself among them; none if it is not active.
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
    use crate::fit::prior::{Gamma, Priors};

    const ROWS: usize = 4;

    /// Three orthogonal columns, and one between the first two.
    const COLUMNS: [[f64; ROWS]; 4] = [
        [2.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 3.0, 0.0],
        [1.0, 0.5, 0.0, 0.0],
    ];

    /// A pool of all columns, and a model of the three orthogonal ones.
    pub(crate) fn model_of_three() -> (WorkingSet, Model) {
        let values = COLUMNS.concat();
        let target = vec![3.0, -1.0, 2.0, 0.1];
        let design = DenseDesign::new(&values, ROWS, COLUMNS.len()).unwrap();
        let kind = Likelihood::Gaussian;
        let mut stats = Observations::new(&design, kind, target, None).unwrap();
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(100.0, Gamma::FLAT, deviance, stats.n_obs());
        let priors = Priors::new([0.0; 2], stats.norms(), stats.target_scale());
        let everything: Vec<usize> = (0..COLUMNS.len()).collect();
        let pool = WorkingSet::about(&mut stats, &mut state, &priors, &everything).unwrap();
        let mut outside = Candidates::new(&pool, &state);
        for i in 0..3 {
            let silent = &mut Recorder::silent();
            outside.add(&pool, &mut state, i, silent).unwrap();
        }
        let evidence = state.log_posterior();
        let model = Model {
            state,
            outside,
            evidence,
        };
        (pool, model)
    }

    #[test]
    fn a_search_ends_after_all_trials_or_many_in_vain() {
        let mut budget = Budget {
            trials: 100,
            in_vain: Tuning::MAX_FAILED_TRIALS,
        };
        budget.spend(Tuning::MAX_FAILED_TRIALS - 1, false);
        budget.spend(4, true);
        budget.spend(Tuning::MAX_FAILED_TRIALS - 1, false);
        assert!(!budget.is_spent());
        budget.spend(1, false);
        assert!(budget.is_spent());
        budget.spend(100, true);
        assert!(budget.in_vain == Tuning::MAX_FAILED_TRIALS && budget.is_spent());
    }

    #[test]
    fn only_functions_that_others_could_stand_in_for_are_taken_out() {
        let (pool, model) = model_of_three();
        let Model {
            mut state,
            mut outside,
            ..
        } = model;
        let mut tried = seeds(&pool, &state);
        tried.sort_unstable();
        assert_eq!(tried, [0, 1]);
        outside.delete(&pool, &mut state, 0);
        outside.delete(&pool, &mut state, 0);
        let silent = &mut Recorder::silent();
        outside.add(&pool, &mut state, 3, silent).unwrap();
        assert_eq!(seeds(&pool, &state), [3]);
    }
}
