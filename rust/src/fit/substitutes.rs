//! Candidates that could replace an active function.

use std::ops::Range;

use crate::fit::candidates::load_lanes;
use crate::fit::dictionary::Dictionary;
use crate::fit::model::Model;
use crate::fit::tuning::Tuning;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, solve_lanes_transposed};
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::parallel::map_pieces;

/// Candidates of one parallel piece.
const PIECE: usize = 16 * LANES;

impl Dictionary {
    /// For each active function the candidates that would gain most after its deletion.
    ///
    /// Tipping & Faul (2003), A.4: with `u = beta Sigma Phi^T phi_i`, deleting k adds `u_k^2 / Sigma_kk` to s of candidate i and
    /// `u_k mu_k / Sigma_kk` to q. The gain increases with q^2 / s, by which candidates are ranked; of several outputs with the sum.
    pub(crate) fn substitutes(&self, model: &Model) -> Vec<usize> {
        let columns = self.active_columns(model);
        let levels = model.levels.iter();
        let lower: Vec<_> = levels.map(|level| pack_lower(&level.chol)).collect();
        let inactive = self.inactive(model);
        let pieces = map_pieces(self.n_basis(), PIECE, |piece| {
            let mut best: Vec<Best> = vec![Best::default(); model.len()];
            for first in piece.clone().step_by(LANES) {
                let range = first..(first + LANES).min(piece.end);
                let mut scores = vec![[0.0; LANES]; model.len()];
                for (l, lower) in lower.iter().enumerate() {
                    let beta = model.levels[l].noise.beta;
                    let mut u = vec![[0.0; LANES]; columns.len()];
                    load_lanes(&columns, range.clone(), beta, &mut u);
                    solve_lanes(lower, &mut u);
                    solve_lanes_transposed(lower, &mut u);
                    dispatch(Score {
                        factors: &LaneFactors::of(self, &inactive, range.clone(), model, l),
                        model,
                        level: l,
                        u: &u,
                        scores: &mut scores,
                    });
                }
                for (best, scores) in best.iter_mut().zip(&scores) {
                    for (i, &score) in range.clone().zip(scores) {
                        best.offer(score, i);
                    }
                }
            }
            best
        });
        let mut best: Vec<Best> = vec![Best::default(); model.len()];
        for piece in pieces {
            for (best, offered) in best.iter_mut().zip(piece) {
                for (score, i) in offered.ranked {
                    best.offer(score, i);
                }
            }
        }
        best.into_iter()
            .flat_map(|b| b.ranked)
            .map(|(_, i)| i)
            .collect()
    }
}

/// Factors of adjacent functions at one noise level; active functions cannot be substitutes.
struct LaneFactors {
    s: [f64; LANES],
    /// Q of each output of the level.
    q: Vec<[f64; LANES]>,
    /// Bound on the rounding error of s: a candidate with a smaller s scores 0. Infinite for active functions.
    s_error: [f64; LANES],
}

impl LaneFactors {
    fn of(
        dictionary: &Dictionary,
        inactive: &[bool],
        range: Range<usize>,
        model: &Model,
        level: usize,
    ) -> Self {
        let outputs = model.outputs_of(level);
        let mut this = Self {
            s: [0.0; LANES],
            q: vec![[0.0; LANES]; outputs.len()],
            s_error: [f64::INFINITY; LANES],
        };
        for (lane, i) in range.enumerate().filter(|&(_, i)| inactive[i]) {
            this.s[lane] = dictionary.factors().s(i, level);
            for (q, c) in this.q.iter_mut().zip(outputs.clone()) {
                q[lane] = dictionary.factors().q(i, c);
            }
            this.s_error[lane] = dictionary.s_error(i, model.levels[level].noise.beta);
        }
        this
    }
}

/// Adds to row k of the scores q^2 / s after the deletion of function k; nothing for candidates that cannot be added.
struct Score<'a> {
    factors: &'a LaneFactors,
    model: &'a Model,
    level: usize,
    u: &'a [[f64; LANES]],
    scores: &'a mut [[f64; LANES]],
}

impl WithSimd for Score<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let LaneFactors { s, q, s_error } = self.factors;
        let sigma = &self.model.levels[self.level].sigma;
        let outputs = &self.model.outputs[self.model.outputs_of(self.level)];
        for (k, (u, scores)) in self.u.iter().zip(self.scores.iter_mut()).enumerate() {
            let precision = 1.0 / sigma[(k, k)];
            for (q, output) in q.iter().zip(outputs) {
                let mean = output.mu[k];
                for lane in 0..LANES {
                    let ratio = u[lane] * precision;
                    let s = s[lane] + u[lane] * ratio;
                    let q = q[lane] + ratio * mean;
                    scores[lane] += if s > s_error[lane] { q * (q / s) } else { 0.0 };
                }
            }
        }
    }
}

/// The candidates with the highest scores, best first.
#[derive(Clone)]
struct Best {
    ranked: Vec<(f64, usize)>,
    /// Scores up to this are not among the best.
    threshold: f64,
}

impl Default for Best {
    fn default() -> Self {
        Self {
            ranked: Vec::with_capacity(Tuning::SUBSTITUTES + 1),
            threshold: 0.0,
        }
    }
}

impl Best {
    fn offer(&mut self, score: f64, i: usize) {
        if score > self.threshold {
            let place = self.ranked.partition_point(|b| b.0 >= score);
            self.ranked.insert(place, (score, i));
            self.ranked.truncate(Tuning::SUBSTITUTES);
            if let [.., last] = &self.ranked[..]
                && self.ranked.len() == Tuning::SUBSTITUTES
            {
                self.threshold = last.0;
            }
        }
    }
}
