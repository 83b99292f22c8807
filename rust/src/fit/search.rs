//! Large-neighbourhood search: a few neighbouring functions out together, and the greedy scheme fills the gap.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search may first try another way through the problem from an empty model. Then each trial takes out
//! an active function with those most aligned with it and lets the ordinary scheme go on from there. A better result
//! replaces the model. All of it happens on a [`Pool`], at no cost that grows with the rows or the dictionary.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::abreast::ALIKE;
use super::climb::{climb, climb_from, step_greedily};
use super::joint::NoiseRange;
use super::outside::Outside;
use super::pool::Pool;
use super::ranking::most_aligned;
use super::record::{Halt, Recorder};
use super::settings::{FREE, HELD, HOPELESS, LEAST_IMPROVEMENT, NEIGHBOURHOOD, START_NOISE, TRIAL};
use super::state::State;
use super::trials::{self, Budget};
use crate::Error;

/// What a search begins with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
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
pub(super) fn search(
    pool: &Pool,
    state: &mut State,
    noise: Option<NoiseRange>,
    most_trials: usize,
    opening: Opening,
) -> Result<bool, Halt> {
    // Where no function could stand in for another, settling is all there would be to it, and whoever goes on from here does that.
    let settles = opening == Opening::Settling && pool.is_spread;
    if state.len() == 0 || settles {
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
    let mut budget = Budget::of(most_trials);
    loop {
        let reached = best.evidence;
        let seeds = seeds(pool, &best.state);
        best = trials::round(pool, best, seeds, noise, &mut budget)?;
        // An evidence that is no number any more is no better.
        let goes_on = best.evidence > reached && !budget.is_spent();
        if !goes_on {
            break;
        }
    }
    let found = best.evidence > before + LEAST_IMPROVEMENT;
    if found {
        *state = best.state;
    }
    Ok(found)
}

/// Where to look: functions that others could stand in for, those whose loss would cost least first, for there the model is
/// loosest.
fn seeds(pool: &Pool, state: &State) -> Vec<usize> {
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
    let start = 1.0 / START_NOISE;
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
pub(super) struct Model {
    pub(super) state: State,
    pub(super) outside: Outside,
    pub(super) evidence: f64,
}

impl Model {
    pub(super) fn new(pool: &Pool, state: State) -> Self {
        Self {
            outside: Outside::new(pool, &state),
            evidence: state.log_posterior(),
            state,
        }
    }

    /// The other, if that is better by what counts. One that lost its definiteness or its way to rounding is no better.
    pub(super) fn bettered_by(
        &self,
        other: Result<Option<Self>, Halt>,
    ) -> Result<Option<Self>, Halt> {
        match other {
            Ok(other) => {
                Ok(other.filter(|other| other.evidence > self.evidence + LEAST_IMPROVEMENT))
            }
            Err(Halt::Failed(Error::NotPositiveDefinite(_)) | Halt::MaxIterations) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    /// This model as trials are settled.
    fn settled(&self, pool: &Pool, noise: Option<NoiseRange>) -> Result<Option<Self>, Halt> {
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
    fn restart(&self, pool: &Pool, noise: Option<NoiseRange>) -> Result<Option<Self>, Halt> {
        let mut recorder = Recorder::silent();
        let noise_prior = self.state.noise_prior;
        let mut state = State::empty(1.0 / START_NOISE, noise_prior, pool.target_sq, pool.n_obs);
        for level in levels(self.state.beta, noise.is_some()) {
            let alpha = state.alpha.clone();
            state.set_hyperparameters(&alpha, level)?;
            climb(pool, &mut state, None, HELD, &mut recorder)?;
        }
        climb(pool, &mut state, noise, FREE, &mut recorder)?;
        let outside = Outside::new(pool, &state);
        self.challenge(pool, state, outside, noise, &mut recorder)
    }

    /// What becomes of this model if these functions leave; `None` if nothing better. It ends early once it is called `off`.
    pub(super) fn without(
        &self,
        pool: &Pool,
        leaving: &[usize],
        noise: Option<NoiseRange>,
        off: &Arc<AtomicBool>,
    ) -> Result<Option<Self>, Halt> {
        let mut recorder = Recorder::silent_until(off);
        let (mut state, mut outside) = (self.state.clone(), self.outside.clone());
        for i in leaving {
            if let Some(k) = state.active.iter().position(|j| j == i) {
                outside.delete(pool, &mut state, k);
            }
        }
        step_greedily(pool, &mut state, &mut outside, FREE, &mut recorder)?;
        if self.has_functions_of(&state) {
            return Ok(None);
        }
        self.challenge(pool, state, outside, noise, &mut recorder)
    }

    /// Settles a state that is nearly so, if that can make it better than this one.
    pub(super) fn challenge(
        &self,
        pool: &Pool,
        mut state: State,
        mut outside: Outside,
        noise: Option<NoiseRange>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<Self>, Halt> {
        if state.log_posterior() + HOPELESS < self.evidence {
            return Ok(None);
        }
        climb_from(pool, &mut state, &mut outside, noise, TRIAL, recorder)?;
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

impl Pool {
    /// Whether a function outside the model is so aligned with function `j` of it that it could do part of what that does. Of
    /// columns that are all but orthogonal the same come back.
    fn has_others_like(&self, j: usize, active: &[usize]) -> bool {
        let diagonal = self.gram.diagonal();
        let mut products = self.gram.column(j).iter().zip(diagonal).enumerate();
        let is_like = |g: &f64, own: &f64| g * g > ALIKE * own * diagonal[j];
        products.any(|(i, (g, own))| is_like(g, own) && !active.contains(&i))
    }

    /// The active functions most aligned with `seed`, itself among them; none if it is not active.
    pub(super) fn nearest(&self, seed: usize, active: &[usize]) -> Vec<usize> {
        if !active.contains(&seed) {
            return Vec::new();
        }
        let products = self.gram.column(seed);
        most_aligned(active.iter().map(|&i| (products[i], i)), NEIGHBOURHOOD)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::fit::prior::{Gamma, Priors};
    use crate::stats::{DenseDesign, Observations, Statistics};

    pub(in super::super) const ROWS: usize = 4;

    /// Three columns at right angles, and one between the first two.
    pub(in super::super) const COLUMNS: [[f64; ROWS]; 4] = [
        [2.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 3.0, 0.0],
        [1.0, 0.5, 0.0, 0.0],
    ];

    /// A pool of all columns, and a model of the three at right angles.
    pub(in super::super) fn model_of_three() -> (Pool, Model) {
        model_of(&COLUMNS, [3.0, -1.0, 2.0, 0.1], 3)
    }

    /// A pool of these columns, and a model of the `first` of them.
    pub(in super::super) fn model_of(
        columns: &[[f64; ROWS]],
        target: [f64; ROWS],
        first: usize,
    ) -> (Pool, Model) {
        let values = columns.concat();
        let design = DenseDesign::new(&values, ROWS, columns.len()).unwrap();
        let kind = Likelihood::Gaussian;
        let mut stats = Observations::new(&design, kind, target.to_vec(), None).unwrap();
        let deviance = stats.deviance(&[], &[]).unwrap();
        let mut state = State::empty(100.0, Gamma::FLAT, deviance, stats.n_obs());
        let priors = Priors::new([0.0; 2], stats.norms(), stats.target_scale());
        let everything: Vec<usize> = (0..columns.len()).collect();
        let pool = Pool::about(&mut stats, &mut state, &priors, &everything).unwrap();
        let mut outside = Outside::new(&pool, &state);
        for i in 0..first {
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
