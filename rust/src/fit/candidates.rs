//! What the members of a pool outside a model have to gain, step by step.

use crate::fit::evidence::Factors;
use crate::fit::model::State;
use crate::fit::prior::Priors;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Proposal;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::aligned_columns::AlignedColumns;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::linalg::symmetric::SymmetricMatrix;
use crate::linalg::vector::head;
use crate::parallel::fill_pieces;

/// Members whose S is found by one thread at a time, and members times active functions squared from which there are several.
const PIECE: usize = 8 * LANES;
const MANY_PRODUCTS: usize = 2_000_000;

/// S and Q of every member of a pool: equations (24) and (25).
///
/// Between calls they belong to the state as it is; for functions in the model they mean nothing.
#[derive(Clone)]
pub(crate) struct Candidates {
    s: AlignedColumns,
    q: AlignedColumns,
    /// Whether a member may enter: not those in the model and those that are kept out.
    open: Vec<bool>,
    entries: Vec<u8>,
    priors: Priors,
    /// One value for each member.
    work: AlignedColumns,
}

impl Candidates {
    pub(crate) fn new(pool: &WorkingSet, state: &State) -> Self {
        let mut this = Self {
            s: AlignedColumns::zeros(pool.len()),
            q: AlignedColumns::zeros(pool.len()),
            open: vec![false; pool.len()],
            entries: vec![0; pool.len()],
            priors: pool.priors.clone(),
            work: AlignedColumns::zeros(pool.len()),
        };
        this.refresh(pool, state);
        this
    }

    /// Everything from scratch.
    pub(crate) fn refresh(&mut self, pool: &WorkingSet, state: &State) {
        (0..pool.len()).for_each(|i| self.set_open(i, true));
        state.active.iter().for_each(|&j| self.set_open(j, false));
        self.q.copy_from_slice(&pool.projections);
        for (&j, &mu) in state.active.iter().zip(&state.mu) {
            let column = pool.gram.column(j);
            for (q, g) in self.q.iter_mut().zip(column) {
                *q -= mu * g;
            }
        }
        self.q.iter_mut().for_each(|q| *q *= state.beta);
        let lower = pack_lower(state.chol());
        // Where they take little time, all of them in one piece: other threads have to be called.
        let few = state.len() * state.len() * pool.len() < MANY_PRODUCTS;
        let piece = if few { pool.len() } else { PIECE };
        fill_pieces(&mut self.s, piece, |start, s| {
            let mut lanes = vec![[0.0; LANES]; state.len()];
            for (k, s) in s.chunks_mut(LANES).enumerate() {
                let first = start + k * LANES;
                let members = first..first + s.len();
                for (lane, &j) in lanes.iter_mut().zip(&state.active) {
                    let column = &pool.gram.column(j)[members.clone()];
                    lane.iter_mut()
                        .zip(column)
                        .for_each(|(v, g)| *v = state.beta * g);
                }
                solve_lanes(&lower, &mut lanes);
                let overlap = square_lanes(&lanes);
                let own = &pool.gram.diagonal()[members];
                for ((s, own), overlap) in s.iter_mut().zip(own).zip(overlap) {
                    *s = state.beta * own - overlap;
                }
            }
        });
    }

    /// The addition that gains most, if it gains `least`.
    pub(crate) fn best_addition(&self, state: &State, least: f64) -> Option<(usize, f64)> {
        if !self.priors.are_flat() {
            return self.best_addition_of_all(state, least);
        }
        let best = largest_ratio(
            &self.s,
            &self.q,
            &self.open,
            Tuning::MIN_ORTHOGONAL_PART * state.beta,
        )?;
        let gain = self.gain(best);
        if gain <= Tuning::MIN_GAIN.max(least) {
            return None;
        }
        if gain <= Tuning::min_gain(self.entries[best]) {
            // That one has come too often, and others may not.
            return self.best_addition_of_all(state, least);
        }
        Some((best, gain))
    }

    /// [`Candidates::best_addition`] where the order of gains is not that of q^2 / s.
    fn best_addition_of_all(&self, state: &State, least: f64) -> Option<(usize, f64)> {
        let resolved = Tuning::MIN_ORTHOGONAL_PART * state.beta;
        (0..self.s.len())
            .filter(|&i| self.is_open(i) && self.s[i] > resolved)
            .map(|i| (i, self.gain(i)))
            .filter(|&(i, gain)| gain > Tuning::min_gain(self.entries[i]).max(least))
            .fold(None, |best: Option<(usize, f64)>, next| match best {
                Some(best) if next.1 <= best.1 * (1.0 + Tuning::TIE) => Some(best),
                _ => Some(next),
            })
    }

    /// What adding member `i` gains.
    pub(crate) fn gain(&self, i: usize) -> f64 {
        self.factors_of(i).gain_of_adding()
    }

    /// `S += c w^2` and `Q += d w` with `w_i = beta Sigma_k^T Phi^T phi_i`: appendix A, all of its updates.
    fn shift(&mut self, pool: &WorkingSet, state: &State, k: usize, c: f64, d: f64) {
        dispatch(Shift {
            gram: &pool.gram,
            active: &state.active,
            covariance: head(&state.sigma, k, state.len()),
            beta: state.beta,
            c,
            d,
            s: &mut self.s,
            q: &mut self.q,
            w: &mut self.work,
        });
    }

    /// `beta Sigma_k^T Phi^T phi_i` of every member i: how what is left of it goes with active function `k`.
    pub(crate) fn covariances(&mut self, pool: &WorkingSet, state: &State, k: usize) -> Vec<f64> {
        self.shift(pool, state, k, 0.0, 0.0);
        self.work.iter().map(|w| state.beta * w).collect()
    }

    /// S and Q of member `i`.
    pub(crate) fn factors_of(&self, i: usize) -> Factors {
        Factors {
            s: self.s[i],
            q: self.q[i],
            prior: self.priors.of(i),
        }
    }

    /// Whether member `i` is outside and has not been kept there.
    pub(crate) fn is_open(&self, i: usize) -> bool {
        self.open[i]
    }

    /// Says that member `i` is outside and may enter, unless it is kept out, or that it is inside.
    fn set_open(&mut self, i: usize, outside: bool) {
        self.open[i] = outside && self.entries[i] < Tuning::MAX_ENTRIES;
    }

    /// Keeps member `i` outside.
    pub(crate) fn exclude(&mut self, i: usize) {
        self.entries[i] = Tuning::MAX_ENTRIES;
        self.open[i] = false;
    }

    /// Adds member `i` with the alpha that is best for it: appendix A.2.
    pub(crate) fn add(
        &mut self,
        pool: &WorkingSet,
        state: &mut State,
        i: usize,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let mut products = Vec::with_capacity(state.len());
        let entrant = pool.candidate(i, state, &mut products);
        let projection = state.project(&entrant);
        let factors = projection.1;
        self.entries[i] = self.entries[i].saturating_add(1);
        let Some(alpha) = factors.optimal_alpha() else {
            // The updates had drifted so far as to have it wrong.
            self.refresh(pool, state);
            return Ok(());
        };
        state.add(&entrant, projection, alpha)?;
        self.set_open(i, false);
        let k = state.len() - 1;
        let (variance, mean) = (state.sigma[(k, k)], state.mu[k]);
        self.shift(pool, state, k, -1.0 / variance, -mean / variance);
        state.recentre(&mut &*pool)?;
        recorder.step(Action::Add(i), Some(factors.gain_of_adding()), state)
    }

    /// Re-estimates or deletes an active function.
    pub(crate) fn apply(
        &mut self,
        pool: &WorkingSet,
        state: &mut State,
        step: Proposal,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let Proposal { k, alpha, gain } = step;
        let i = state.active[k];
        let action = if alpha.is_finite() {
            self.reestimate(pool, state, k, alpha)?;
            Action::Reestimate(i)
        } else {
            self.delete(pool, state, k);
            Action::Delete(i)
        };
        state.recentre(&mut &*pool)?;
        recorder.step(action, Some(gain), state)
    }

    /// Moves the alpha of active function `k`: appendix A.3.
    fn reestimate(
        &mut self,
        pool: &WorkingSet,
        state: &mut State,
        k: usize,
        alpha: f64,
    ) -> Result<(), Stop> {
        let delta = alpha - state.alpha[k];
        let kappa = delta / (1.0 + delta * state.sigma[(k, k)]);
        self.shift(pool, state, k, kappa, kappa * state.mu[k]);
        state.reestimate(k, alpha)?;
        Ok(())
    }

    /// Takes the function out that costs least, and keeps it out: functions are so alike that rounding took the
    /// definiteness of the posterior precision on the way from this state.
    pub(crate) fn make_do(
        &mut self,
        pool: &WorkingSet,
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let Some(k) = state.cheapest_deletion() else {
            return Ok(());
        };
        let i = state.active[k];
        self.refresh(pool, state);
        self.delete(pool, state, k);
        self.entries[i] = Tuning::MAX_ENTRIES;
        state.recompute()?;
        self.refresh(pool, state);
        recorder.step(Action::Delete(i), None, state)
    }

    /// Takes active function `k` out: appendix A.4.
    pub(crate) fn delete(&mut self, pool: &WorkingSet, state: &mut State, k: usize) {
        let (variance, mean) = (state.sigma[(k, k)], state.mu[k]);
        self.shift(pool, state, k, 1.0 / variance, mean / variance);
        let i = state.active[k];
        self.set_open(i, true);
        state.delete(k);
        // Its own factors went through a cancellation of everything.
        let mut products = Vec::with_capacity(state.len());
        let factors = state.factors_outside(&pool.candidate(i, state, &mut products));
        (self.s[i], self.q[i]) = (factors.s, factors.q);
    }
}

/// The member with the largest q^2 / s, if that is more than 1, among those that may enter and whose s exceeds `resolved`.
///
/// Under flat priors gains rise with q^2 / s. Ratios are compared by products: neither logarithms nor divisions are needed.
fn largest_ratio(s: &[f64], q: &[f64], open: &[bool], resolved: f64) -> Option<usize> {
    let (mut best, mut best_square, mut best_s) = (None, 1.0, 1.0);
    for (i, ((&s, &q), &open)) in s.iter().zip(q).zip(open).enumerate() {
        let square = q * q;
        if open && s > resolved && square * best_s > (1.0 + Tuning::TIE) * best_square * s {
            (best, best_square, best_s) = (Some(i), square, s);
        }
    }
    best
}

/// Columns of the Gram matrix that [`Shift`] takes at a time.
const COLUMNS: usize = 8;

struct Shift<'a> {
    gram: &'a SymmetricMatrix,
    active: &'a [usize],
    covariance: &'a [f64],
    beta: f64,
    c: f64,
    d: f64,
    s: &'a mut [f64],
    q: &'a mut [f64],
    w: &'a mut [f64],
}

impl WithSimd for Shift<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // compiled once for each processor: see `dispatch`
    fn with_simd<S: Simd>(self, _: S) {
        let n = self.w.len();
        self.w.fill(0.0);
        let column = |j: usize| self.gram.column(j);
        let mut terms = self.active.iter().zip(self.covariance);
        // Several columns at a time, so that w is read and written less often.
        while terms.len() >= COLUMNS {
            let mut columns = [(&[][..], 0.0); COLUMNS];
            for (slot, (&j, &c)) in columns.iter_mut().zip(&mut terms) {
                *slot = (&column(j)[..n], c);
            }
            let [
                (g0, c0),
                (g1, c1),
                (g2, c2),
                (g3, c3),
                (g4, c4),
                (g5, c5),
                (g6, c6),
                (g7, c7),
            ] = columns;
            for (i, w) in self.w.iter_mut().enumerate() {
                let first = (c0 * g0[i] + c1 * g1[i]) + (c2 * g2[i] + c3 * g3[i]);
                let second = (c4 * g4[i] + c5 * g5[i]) + (c6 * g6[i] + c7 * g7[i]);
                *w += first + second;
            }
        }
        for (&j, &c) in terms {
            for (w, g) in self.w.iter_mut().zip(column(j)) {
                *w += c * g;
            }
        }
        let (c, d) = (self.c * self.beta * self.beta, self.d * self.beta);
        for ((s, q), w) in self.s.iter_mut().zip(self.q.iter_mut()).zip(self.w.iter()) {
            *s += c * (w * w);
            *q += d * w;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_ratios_is_found() {
        let find = |s: &[f64], q: &[f64], open: &[bool]| largest_ratio(s, q, open, 0.1);
        assert_eq!(find(&[], &[], &[]), None);
        let (mut s, mut q, mut open) = (vec![2.0; 9], vec![1.0; 9], vec![true; 9]);
        assert_eq!(find(&s, &q, &open), None);
        (q[3], q[4], q[7]) = (-5.0, 5.0 * (1.0 + 0.4 * Tuning::TIE), 5.0);
        assert_eq!(find(&s, &q, &open), Some(3));
        q[7] = 5.0 * (1.0 + Tuning::TIE);
        assert_eq!(find(&s, &q, &open), Some(7));
        open[7] = false;
        assert_eq!(find(&s, &q, &open), Some(3));
        // The model explains all of these but for round-off.
        (s[0], q[0], s[8], q[8]) = (-1e-9, 9.0, 0.05, 9.0);
        assert_eq!(find(&s, &q, &open), Some(3));
    }
}
