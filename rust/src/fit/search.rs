//! Large-neighbourhood search: a few neighbouring functions out together, and the greedy scheme fills the gap.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. A search first tries a few other ways through the problem from an empty model. Then each trial takes out
//! an active function with those most aligned with it and lets the ordinary scheme go on from there. A better result
//! replaces the model. Trials consult only a [`Pool`] of functions: the active ones and, for each, those that would serve
//! best in its place. So a search costs one small Gram matrix, and nothing else that grows with the rows or the
//! dictionary.

use std::ops::ControlFlow;

use super::dictionary::Dictionary;
use super::joint::NoiseRange;
use super::pool::Pool;
use super::record::{Action, Halt, Recorder};
use super::sequential::climb;
use super::settings::{
    BLOCK, LEAST_IMPROVEMENT, MOST_TRIALS, NEIGHBOURHOOD, POOL, SEARCH_ROUNDS, STAND_INS,
    START_NOISE,
};
use super::state::{Entrant, State};
use crate::Error;
use crate::linalg::lanes::{LANES, pack_lower, solve_lanes, solve_lanes_transposed};
use crate::linalg::parallel::map_pieces;
use crate::stats::Statistics;

/// Looks for a better model in the neighbourhood of each active function; whether one was found.
///
/// Call right after [`Dictionary::refresh`]. The state then stands at the better model, loosely settled.
pub(super) fn search(
    stats: &mut dyn Statistics,
    dictionary: &Dictionary,
    state: &mut State,
    noise: Option<NoiseRange>,
    recorder: &mut Recorder<'_>,
) -> Result<bool, Halt> {
    if state.len() == 0 {
        return Ok(false);
    }
    let members = dictionary.members_of_pool(state);
    let gram = stats.gram_among(&members)?;
    let mut pool = Pool::about(state, dictionary, &members, gram);
    let mut best = Model::of(state, &members);
    let before = best.evidence;
    for start in restarts(state.beta, noise.is_some()) {
        stats.check_cancel()?;
        best.keep_better(start.run(&mut pool, noise))?;
    }
    for _ in 0..SEARCH_ROUNDS {
        let reached = best.evidence;
        for seed in seeds(&best.state_without(&[], &pool)?) {
            stats.check_cancel()?;
            if best.active.contains(&seed) {
                let mut trial = best.state_without(&pool.nearest(seed, &best.active), &pool)?;
                let climbed = climb_unseen(&mut pool, &mut trial, noise, BLOCK);
                best.keep_better(climbed.map(|()| trial))?;
            }
        }
        if best.evidence <= reached {
            break;
        }
    }
    if best.evidence <= before + LEAST_IMPROVEMENT {
        return Ok(false);
    }
    *state = best.state_without(&[], &pool)?;
    state.active.iter_mut().for_each(|i| *i = members[*i]);
    // The pool knows the targets by their projections alone; the rows say exactly what the new model leaves of them.
    state.centre(stats)?;
    recorder.step(Action::Search, None, state)?;
    Ok(true)
}

/// A way through the whole problem from an empty model.
struct Restart {
    /// Precisions at which the noise is held in turn, each until nothing gains.
    levels: Vec<f64>,
    /// Functions added at a time.
    block: usize,
}

impl Restart {
    /// Where `noise` may move it does after the last level.
    fn run(self, pool: &mut Pool, noise: Option<NoiseRange>) -> Result<State, Halt> {
        let mut state = State::empty(1.0 / START_NOISE, pool.target_sq, pool.n_obs);
        for level in self.levels {
            let alpha = state.alpha.clone();
            state.set_hyperparameters(&alpha, level)?;
            climb_unseen(pool, &mut state, None, self.block)?;
        }
        if noise.is_some() {
            climb_unseen(pool, &mut state, noise, self.block)?;
        }
        Ok(state)
    }
}

/// Other ways to an optimum than the one taken: which is best differs from problem to problem.
///
/// Where the noise is estimated: one function at a time, with the noise held at first, and free from the first function
/// on. Where it is given: falling to what it is in stages, for little noise from the first function on asks that
/// everything be explained by whatever enters first; and one function at a time.
fn restarts(beta: f64, noise_is_free: bool) -> [Restart; 2] {
    const STAGE: f64 = 10.0;
    let start = 1.0 / START_NOISE;
    let restart = |levels, block| Restart { levels, block };
    if noise_is_free {
        return [restart(vec![start], 1), restart(vec![], 1)];
    }
    let mut levels: Vec<f64> = std::iter::successors(Some(start), |level| Some(level * STAGE))
        .take_while(|&level| level < beta)
        .collect();
    levels.push(beta);
    [restart(levels, BLOCK), restart(vec![beta], 1)]
}

/// Climbs, and tells nobody.
fn climb_unseen(
    pool: &mut Pool,
    state: &mut State,
    noise: Option<NoiseRange>,
    block: usize,
) -> Result<(), Halt> {
    let mut unwatched = |_: &super::Step| ControlFlow::Continue(());
    let mut unrecorded = Recorder::of_trial(state, &mut unwatched);
    climb(pool, state, noise, block, &mut unrecorded)
}

/// Where to look, by place in the pool: the functions whose loss would cost least first, for there the model is loosest.
fn seeds(state: &State) -> Vec<usize> {
    let cost = |k: usize| -state.factors(k).gain_of_deleting(state.alpha[k]);
    let mut order: Vec<(f64, usize)> = (0..state.len())
        .map(|k| (cost(k), state.active[k]))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order
        .into_iter()
        .take(MOST_TRIALS)
        .map(|(_, i)| i)
        .collect()
}

/// A model over the pool: functions by their place in it.
struct Model {
    active: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
    evidence: f64,
}

impl Model {
    fn of_local(state: &State) -> Self {
        Self {
            active: state.active.clone(),
            alpha: state.alpha.clone(),
            beta: state.beta,
            evidence: state.log_evidence(),
        }
    }

    fn of(state: &State, members: &[usize]) -> Self {
        let mut this = Self::of_local(state);
        // Every active function is a member, and members ascend.
        this.active
            .iter_mut()
            .for_each(|j| *j = members.partition_point(|m| m < j));
        this
    }

    /// Becomes the trial's if that is better. A trial that lost its definiteness to rounding is no better.
    fn keep_better(&mut self, trial: Result<State, Halt>) -> Result<(), Halt> {
        match trial {
            Ok(trial) if trial.log_evidence() > self.evidence + LEAST_IMPROVEMENT => {
                *self = Self::of_local(&trial);
            }
            Ok(_) | Err(Halt::Failed(Error::NotPositiveDefinite(_))) => {}
            Err(halt) => return Err(halt),
        }
        Ok(())
    }

    /// The posterior of this model less the functions in `out`.
    fn state_without(&self, out: &[usize], pool: &Pool) -> Result<State, Halt> {
        let mut state = State::empty(self.beta, pool.target_sq, pool.n_obs);
        for (&index, &alpha) in self
            .active
            .iter()
            .zip(&self.alpha)
            .filter(|(i, _)| !out.contains(i))
        {
            let gram: Vec<f64> = state
                .active
                .iter()
                .map(|&j| pool.gram[(index, j)])
                .collect();
            let gram_self = pool.gram[(index, index)];
            state.add(
                &Entrant {
                    index,
                    gram: &gram,
                    gram_self,
                    gradient: pool.projections[index],
                },
                alpha,
            )?;
        }
        state.recompute()?;
        Ok(state)
    }
}

impl Pool {
    /// The active functions most aligned with `seed`, itself among them.
    fn nearest(&self, seed: usize, active: &[usize]) -> Vec<usize> {
        let mut nearest = active.to_vec();
        let alignment = |i: usize| self.gram[(seed, i)].abs();
        nearest.sort_by(|&a, &b| alignment(b).total_cmp(&alignment(a)).then(a.cmp(&b)));
        nearest.truncate(NEIGHBOURHOOD);
        nearest
    }
}

impl Dictionary {
    /// Active functions and those that could stand in for one of them, ascending; the whole dictionary if it is small.
    fn members_of_pool(&self, state: &State) -> Vec<usize> {
        let mut wanted = self.outside(state);
        if wanted.iter().filter(|&&o| o).count() + state.len() > POOL {
            wanted.fill(false);
            self.stand_ins(state)
                .into_iter()
                .for_each(|i| wanted[i] = true);
        }
        state.active.iter().for_each(|&j| wanted[j] = true);
        (0..wanted.len()).filter(|&i| wanted[i]).collect()
    }

    /// For each active function the candidates that would gain most were it to leave.
    ///
    /// Taking k out changes the factors of candidate i by appendix A.4, with `u_i = beta Sigma Phi^T phi_i`. Gains
    /// rise with q^2 / s, so no logarithm is needed to rank them.
    fn stand_ins(&self, state: &State) -> Vec<usize> {
        let columns = self.active_columns(state);
        let lower = pack_lower(state.chol());
        let outside = self.outside(state);
        let pieces = map_pieces(self.n_basis(), LANES, |range| {
            let mut u = self.scaled_lanes(&columns, range.start, state.beta);
            solve_lanes(&lower, &mut u);
            solve_lanes_transposed(&lower, &mut u);
            let ranked = u.iter().enumerate().map(|(k, u)| {
                let mut best = Best::default();
                for i in range.clone().filter(|&i| outside[i]) {
                    let factors = self.factors_of(i).without(
                        u[i - range.start],
                        state.sigma[(k, k)],
                        state.mu[k],
                    );
                    if self.resolves(i, factors, state) {
                        best.offer(factors.q * (factors.q / factors.s), i);
                    }
                }
                best
            });
            ranked.collect::<Vec<Best>>()
        });
        let mut best: Vec<Best> = vec![Best::default(); state.len()];
        for piece in pieces {
            for (best, offered) in best.iter_mut().zip(piece) {
                offered
                    .0
                    .into_iter()
                    .for_each(|(score, i)| best.offer(score, i));
            }
        }
        best.into_iter().flat_map(|b| b.0).map(|(_, i)| i).collect()
    }
}

/// The few best-scored candidates, best first.
#[derive(Clone, Default)]
struct Best(Vec<(f64, usize)>);

impl Best {
    fn offer(&mut self, score: f64, i: usize) {
        let place = self.0.partition_point(|b| b.0 >= score);
        if place < STAND_INS {
            self.0.insert(place, (score, i));
            self.0.truncate(STAND_INS);
        }
    }
}
