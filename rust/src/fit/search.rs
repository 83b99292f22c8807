//! Large-neighbourhood search: a few neighbouring functions out together, and the greedy scheme fills the gap.
//!
//! Optima at which no single addition, deletion, re-estimation or exchange gains still differ by several nats on the
//! same problem. Each trial here takes out an active function with those most aligned with it and lets the ordinary
//! scheme go on from there; a better result replaces the model. Trials consult only a [`Pool`] of functions: the active
//! ones and, for each, those that would serve best in its place. So a search costs one small Gram matrix, and nothing
//! else that grows with the rows or the dictionary.

use std::ops::ControlFlow;

use super::dictionary::Dictionary;
use super::joint::NoiseRange;
use super::pool::Pool;
use super::record::{Action, Halt, Recorder};
use super::sequential::climb;
use super::settings::{
    LEAST_IMPROVEMENT, MOST_TRIALS, NEIGHBOURHOOD, POOL, STAND_INS, START_NOISE,
};
use super::state::{Entrant, State};
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
    if state.len() <= NEIGHBOURHOOD {
        return Ok(false);
    }
    let members = dictionary.members_of_pool(state);
    let gram = stats.gram_among(&members)?;
    let mut pool = Pool::about(state, dictionary, &members, gram);
    let mut best = Model::of(state, &members);
    let before = best.evidence;
    let places = seeds(state, &best);
    if noise.is_none() {
        let trial = annealed(&mut pool, state.beta)?;
        if trial.log_evidence() > best.evidence + LEAST_IMPROVEMENT {
            best = Model::of_local(&trial);
        }
    }
    for seed in places {
        stats.check_cancel()?;
        if !best.active.contains(&seed) {
            continue;
        }
        let mut trial = best.state_without(&pool.nearest(seed, &best.active), &pool)?;
        climb_unseen(&mut pool, &mut trial, noise)?;
        if trial.log_evidence() > best.evidence + LEAST_IMPROVEMENT {
            best = Model::of_local(&trial);
        }
    }
    if best.evidence <= before + LEAST_IMPROVEMENT {
        return Ok(false);
    }
    *state = best.state_without(&[], &pool)?;
    state.active.iter_mut().for_each(|i| *i = members[*i]);
    // The pool knows the targets by their projections alone; the rows say exactly what the new model leaves of them.
    let mu = state.mu.clone();
    let mut gradient = vec![0.0; mu.len()];
    let deviance = stats.gradient(&state.active, &mu, &mut gradient)?;
    state.set_data(&mu, &gradient, deviance, None)?;
    recorder.step(Action::Search, None, state)?;
    Ok(true)
}

/// The model that the ordinary scheme comes to when the noise level falls to what it is in stages, as it does where it is
/// estimated. Little noise from the first function on asks that everything be explained by whatever enters first.
fn annealed(pool: &mut Pool, beta: f64) -> Result<State, Halt> {
    const STAGE: f64 = 10.0;
    let mut level = 1.0 / START_NOISE;
    let mut state = State::empty(level.min(beta), pool.target_sq, pool.n_obs);
    loop {
        climb_unseen(pool, &mut state, None)?;
        if level >= beta {
            return Ok(state);
        }
        level *= STAGE;
        let alpha = state.alpha.clone();
        state.set_hyperparameters(&alpha, level.min(beta))?;
    }
}

/// Climbs, and tells nobody.
fn climb_unseen(pool: &mut Pool, state: &mut State, noise: Option<NoiseRange>) -> Result<(), Halt> {
    let mut unwatched = |_: &super::Step| ControlFlow::Continue(());
    let mut unrecorded = Recorder::of_trial(state, &mut unwatched);
    climb(pool, state, noise, &mut unrecorded)
}

/// Where to look, by place in the pool: the functions whose loss would cost least first, for there the model is loosest.
fn seeds(state: &State, model: &Model) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> = (0..state.len())
        .map(|k| {
            (
                -state.factors(k).gain_of_deleting(state.alpha[k]),
                model.active[k],
            )
        })
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
        let n_basis = self.n_basis();
        let pieces = map_pieces(n_basis.div_ceil(LANES), |piece| {
            let first = piece * LANES;
            let mut u = self.scaled_lanes(&columns, first, state.beta);
            solve_lanes(&lower, &mut u);
            solve_lanes_transposed(&lower, &mut u);
            let ranked = u.iter().enumerate().map(|(k, u)| {
                let mut best = Best::default();
                for i in (first..(first + LANES).min(n_basis)).filter(|&i| outside[i]) {
                    let factors =
                        self.factors_of(i)
                            .without(u[i - first], state.sigma[(k, k)], state.mu[k]);
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
