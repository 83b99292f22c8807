//! Large-neighbourhood search: a few neighbouring functions out together, and the greedy scheme fills the gap.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search may first try another way through the problem from an empty model. Then each trial takes out
//! an active function with those most aligned with it and lets the ordinary scheme go on from there. A better result
//! replaces the model. All of it happens on a [`Pool`], at no cost that grows with the rows or the dictionary.

use std::sync::Arc;

use super::climb::{Outside, climb, climb_from, step_greedily};
use super::joint::NoiseRange;
use super::pool::Pool;
use super::record::{Halt, Recorder};
use super::settings::{
    FREE, HELD, HOPELESS, LEAST_IMPROVEMENT, MOST_IN_VAIN, NEIGHBOURHOOD, START_NOISE, TRIAL,
};
use super::state::State;
use crate::Error;
use crate::linalg::relay::relay;

/// Trials under way at a time. Each sets out from the best model of all but as many before it, so that with more of them
/// what one finds comes too late for the next.
const AHEAD: usize = 2;

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
    if let Some(better) = best.better(opened)? {
        best = better;
    }
    let mut course = Course {
        best: Arc::new(best),
        trials_left: most_trials,
        in_vain: 0,
        failure: None,
    };
    let mut reached = f64::NEG_INFINITY;
    while course.goes_on() && course.best.evidence > reached {
        reached = course.best.evidence;
        let seeds = seeds(&course.best.state);
        let start = Arc::clone(&course.best);
        let trial =
            |i: usize, model: &Arc<Model>| model.without_neighbourhood(pool, seeds[i], noise);
        let judge = |outcome| course.judge(outcome);
        relay(seeds.len(), AHEAD, &start, trial, judge);
    }
    if let Some(halt) = course.failure {
        return Err(halt);
    }
    let best = course.best;
    let found = best.evidence > before + LEAST_IMPROVEMENT;
    if found {
        *state = best.state.clone();
    }
    Ok(found)
}

/// How far a search has come.
struct Course {
    best: Arc<Model>,
    trials_left: usize,
    /// Trials since there was a better model.
    in_vain: usize,
    failure: Option<Halt>,
}

impl Course {
    /// Takes the outcome of the next trial; the best model, unless that is to be the last.
    fn judge(&mut self, outcome: Result<Option<Model>, Halt>) -> Option<Arc<Model>> {
        self.trials_left = self.trials_left.saturating_sub(1);
        self.in_vain += 1;
        match self.best.better(outcome) {
            Ok(Some(better)) => {
                self.best = Arc::new(better);
                self.in_vain = 0;
            }
            Ok(None) => {}
            Err(halt) => self.failure = Some(halt),
        }
        self.goes_on().then(|| Arc::clone(&self.best))
    }

    fn goes_on(&self) -> bool {
        self.failure.is_none() && self.trials_left > 0 && self.in_vain < MOST_IN_VAIN
    }
}

/// Where to look: the functions whose loss would cost least first, for there the model is loosest.
fn seeds(state: &State) -> Vec<usize> {
    let cost = |k: usize| -state.factors(k).gain_of_deleting(state.alpha[k]);
    let mut order: Vec<(f64, usize)> = (0..state.len())
        .map(|k| (cost(k), state.active[k]))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, i)| i).collect()
}

/// Precisions at which the noise is held in turn on another way to an optimum.
///
/// Where it is estimated: its start. Where it is given: falling to what it is in stages, for little noise from the first
/// function on asks that everything be explained by whatever enters first.
pub(super) fn levels(beta: f64, noise_is_free: bool) -> Vec<f64> {
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

    /// The other if that is better. One that lost its definiteness or its way to rounding is no better.
    fn better(&self, other: Result<Option<Self>, Halt>) -> Result<Option<Self>, Halt> {
        match other {
            Ok(Some(other)) if other.evidence > self.evidence + LEAST_IMPROVEMENT => {
                Ok(Some(other))
            }
            Ok(_) | Err(Halt::Failed(Error::NotPositiveDefinite(_)) | Halt::MaxIterations) => {
                Ok(None)
            }
            Err(halt) => Err(halt),
        }
    }

    /// This model as trials are settled.
    fn settled(&self, pool: &Pool, noise: Option<NoiseRange>) -> Result<Option<Self>, Halt> {
        self.challenge(pool, self.state.clone(), self.outside.clone(), noise)
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
        self.challenge(pool, state, outside, noise)
    }

    /// What becomes of this model if `seed` and its neighbours leave; `None` if nothing better.
    fn without_neighbourhood(
        &self,
        pool: &Pool,
        seed: usize,
        noise: Option<NoiseRange>,
    ) -> Result<Option<Self>, Halt> {
        let (mut state, mut outside) = (self.state.clone(), self.outside.clone());
        for i in pool.nearest(seed, &state.active) {
            if let Some(k) = state.active.iter().position(|&j| j == i) {
                outside.delete(pool, &mut state, k);
            }
        }
        step_greedily(
            pool,
            &mut state,
            &mut outside,
            FREE,
            &mut Recorder::silent(),
        )?;
        if self.has_functions_of(&state) {
            return Ok(None);
        }
        self.challenge(pool, state, outside, noise)
    }

    /// Settles a state that is nearly so, if that can make it better than this one.
    pub(super) fn challenge(
        &self,
        pool: &Pool,
        mut state: State,
        mut outside: Outside,
        noise: Option<NoiseRange>,
    ) -> Result<Option<Self>, Halt> {
        if state.log_posterior() + HOPELESS < self.evidence {
            return Ok(None);
        }
        climb_from(
            pool,
            &mut state,
            &mut outside,
            noise,
            TRIAL,
            &mut Recorder::silent(),
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

impl Pool {
    /// The active functions most aligned with `seed`, itself among them; none if it is not active.
    fn nearest(&self, seed: usize, active: &[usize]) -> Vec<usize> {
        if !active.contains(&seed) {
            return Vec::new();
        }
        let mut nearest = active.to_vec();
        let alignment = |i: usize| self.gram[(seed, i)].abs();
        nearest.sort_by(|&a, &b| alignment(b).total_cmp(&alignment(a)).then(a.cmp(&b)));
        nearest.truncate(NEIGHBOURHOOD);
        nearest
    }
}
