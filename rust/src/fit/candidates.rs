//! S and Q of the inactive members of a working set, updated at every step.

use crate::fit::evidence::{Factors, gain_of_excess};
use crate::fit::model::State;
use crate::fit::prior::{Gamma, Priors};
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::refine::Change;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::columns::AlignedColumns;
use crate::linalg::simd::{Simd, WithSimd, dispatch};
use crate::linalg::symmetric::SymmetricMatrix;
use crate::linalg::vector::head;
use crate::parallel::fill_pieces;

/// Members of one parallel piece, and the products (members x active functions^2) from which more than one thread is used.
const PIECE: usize = 8 * LANES;
const MIN_PARALLEL_PRODUCTS: usize = 2_000_000;

/// S and Q of every member of a working set: equations (24) and (25).
///
/// Between calls they belong to the present state; those of active functions are undefined.
#[derive(Clone)]
pub(crate) struct Candidates {
    /// S at each noise level.
    s: Vec<AlignedColumns>,
    /// Q of each output.
    q: Vec<AlignedColumns>,
    /// Whether a member may be added: inactive and not excluded.
    open: Vec<bool>,
    /// How often each member was added.
    entries: Vec<u8>,
    priors: Priors,
    /// w of [`Candidates::shift`].
    work: AlignedColumns,
}

impl Candidates {
    pub(crate) fn new(set: &WorkingSet, state: &State) -> Self {
        let zeros = AlignedColumns::zeros(set.len());
        let mut this = Self {
            s: vec![zeros.clone(); state.levels.len()],
            q: vec![zeros.clone(); state.outputs.len()],
            open: vec![false; set.len()],
            entries: vec![0; set.len()],
            priors: set.priors.clone(),
            work: zeros,
        };
        this.refresh(set, state);
        this
    }

    /// Computes S and Q from scratch.
    pub(crate) fn refresh(&mut self, set: &WorkingSet, state: &State) {
        (0..set.len()).for_each(|i| self.set_open(i, true));
        state.active.iter().for_each(|&j| self.set_open(j, false));
        for (c, (q, output)) in self.q.iter_mut().zip(&state.outputs).enumerate() {
            q.copy_from_slice(set.projections_of(c));
            for (&j, &mu) in state.active.iter().zip(&output.mu) {
                let column = set.gram.column(j);
                for (q, g) in q.iter_mut().zip(column) {
                    *q -= mu * g;
                }
            }
            let beta = state.levels[state.level_of(c)].noise.beta;
            q.iter_mut().for_each(|q| *q *= beta);
        }
        let sequential = state.len() * state.len() * set.len() < MIN_PARALLEL_PRODUCTS;
        let piece = if sequential { set.len() } else { PIECE };
        for (s, level) in self.s.iter_mut().zip(&state.levels) {
            let (beta, lower) = (level.noise.beta, pack_lower(&level.chol));
            fill_pieces(s, piece, |start, s| {
                let mut lanes = vec![[0.0; LANES]; state.len()];
                for (k, s) in s.chunks_mut(LANES).enumerate() {
                    let first = start + k * LANES;
                    let members = first..first + s.len();
                    for (lane, &j) in lanes.iter_mut().zip(&state.active) {
                        let column = &set.gram.column(j)[members.clone()];
                        let values = lane.iter_mut().zip(column);
                        values.for_each(|(v, g)| *v = beta * g);
                    }
                    solve_lanes(&lower, &mut lanes);
                    let overlap = square_lanes(&lanes);
                    let own = &set.gram.diagonal()[members];
                    for ((s, own), overlap) in s.iter_mut().zip(own).zip(overlap) {
                        *s = beta * own - overlap;
                    }
                }
            });
        }
    }

    /// The addition with the largest gain, if that exceeds `min_gain`.
    pub(crate) fn best_addition(&self, state: &State, min_gain: f64) -> Option<(usize, f64)> {
        let ([s], [q], true) = (&self.s[..], &self.q[..], self.priors.are_flat()) else {
            return self.best_among_all(state, min_gain);
        };
        let min_s = Tuning::MIN_ORTHOGONAL_PART * state.beta();
        let best = largest_ratio(s, q, &self.open, min_s)?;
        let gain = self.factors_of(best, state).gain_of_adding();
        (gain > Tuning::MIN_GAIN.max(min_gain)).then_some((best, gain))
    }

    /// [`Candidates::best_addition`] where gains do not rise with q^2 / s: with several outputs, or with informative priors.
    fn best_among_all(&self, state: &State, min_gain: f64) -> Option<(usize, f64)> {
        let min_gain = min_gain.max(Tuning::MIN_GAIN);
        let bounds = self.bounds(state).into_iter().enumerate();
        let mut bounds: Vec<(f64, usize)> = bounds
            .filter(|&(i, bound)| bound > min_gain && self.is_open(i))
            .map(|(i, bound)| (bound, i))
            .collect();
        // In descending order of an upper bound, few candidates need the exact gain.
        bounds.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(usize, f64)> = None;
        for (bound, i) in bounds {
            let ties = best.map_or(min_gain, |b| b.1 * (1.0 - Tuning::TIE));
            if bound <= ties {
                break;
            }
            let factors = self.factors_of(i, state);
            if !state.resolves(&factors, Tuning::MIN_ORTHOGONAL_PART, 1.0) {
                continue;
            }
            if let Some((_, gain)) = factors.best_above(ties) {
                // Of ties the lowest index wins: round-off must not choose the model.
                let is_ahead = |b: (usize, f64)| {
                    gain > b.1 * (1.0 + Tuning::TIE)
                        || (i < b.0 && gain >= b.1 * (1.0 - Tuning::TIE))
                };
                if best.is_none_or(is_ahead) {
                    best = Some((i, gain));
                }
            }
        }
        best
    }

    /// An upper bound of the gain of each member: the sum of the largest gains of each noise level.
    fn bounds(&self, state: &State) -> Vec<f64> {
        let mut bounds = vec![0.0; self.open.len()];
        let mut squares = vec![0.0; self.open.len()];
        for (l, s) in self.s.iter().enumerate() {
            let outputs = state.outputs_of(l);
            let n = outputs.len() as f64;
            squares.fill(0.0);
            for q in &self.q[outputs] {
                squares
                    .iter_mut()
                    .zip(q.iter())
                    .for_each(|(sum, q)| *sum += q * q);
            }
            for (bound, (square, s)) in bounds.iter_mut().zip(squares.iter().zip(s.iter())) {
                *bound += gain_of_excess(n, square / (n * s) - 1.0);
            }
        }
        bounds
    }

    /// `S += c w^2` and `Q += c mu_k w` with `w_i = beta Sigma_k^T Phi^T phi_i` and c a function of Sigma_kk: every update of
    /// appendix A has this form.
    fn shift(&mut self, set: &WorkingSet, state: &State, k: usize, c: impl Fn(f64) -> f64) {
        for (l, level) in state.levels.iter().enumerate() {
            self.shift_level(set, state, k, l, c(level.sigma[(k, k)]));
        }
    }

    /// [`Candidates::shift`] of level `l`; `work` then holds w / beta.
    fn shift_level(&mut self, set: &WorkingSet, state: &State, k: usize, l: usize, c: f64) {
        let (level, outputs) = (&state.levels[l], state.outputs_of(l));
        let own = &state.outputs[outputs.clone()];
        let means: Vec<f64> = own.iter().map(|output| output.mu[k]).collect();
        dispatch(Shift {
            gram: &set.gram,
            active: &state.active,
            covariance: head(&level.sigma, k, state.len()),
            beta: level.noise.beta,
            c,
            means: &means,
            s: &mut self.s[l],
            q: &mut self.q[outputs],
            w: &mut self.work,
        });
    }

    /// `beta Sigma_k^T Phi^T phi_i` of every member i at level `l`.
    pub(crate) fn covariances(
        &mut self,
        set: &WorkingSet,
        state: &State,
        k: usize,
        l: usize,
    ) -> Vec<f64> {
        self.shift_level(set, state, k, l, 0.0);
        let beta = state.levels[l].noise.beta;
        self.work.iter().map(|w| beta * w).collect()
    }

    /// The factors of member `i`, beside the model `state`.
    pub(crate) fn factors_of(&self, i: usize, state: &State) -> Factors {
        state.combine(|l| self.s[l][i], |c| self.q[c][i], self.priors.of(i))
    }

    /// S of member `i` at level `l`.
    pub(crate) fn sparsity(&self, i: usize, l: usize) -> f64 {
        self.s[l][i]
    }

    /// Q of member `i` for output `c`.
    pub(crate) fn quality(&self, i: usize, c: usize) -> f64 {
        self.q[c][i]
    }

    /// The prior of member `i`.
    pub(crate) fn prior(&self, i: usize) -> Gamma {
        self.priors.of(i)
    }

    /// Whether member `i` may be added: inactive and not excluded.
    pub(crate) fn is_open(&self, i: usize) -> bool {
        self.open[i]
    }

    /// Records whether member `i` is inactive; excluded members stay closed.
    fn set_open(&mut self, i: usize, inactive: bool) {
        self.open[i] = inactive && self.entries[i] < Tuning::MAX_ENTRIES;
    }

    /// Excludes member `i` from further additions.
    pub(crate) fn exclude(&mut self, i: usize) {
        self.entries[i] = Tuning::MAX_ENTRIES;
        self.open[i] = false;
    }

    /// Adds member `i` with its optimal alpha: appendix A.2.
    pub(crate) fn add(
        &mut self,
        set: &WorkingSet,
        state: &mut State,
        i: usize,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let mut products = Vec::with_capacity(state.len());
        let candidate = set.candidate(i, state, &mut products);
        let projection = state.project(&candidate);
        self.entries[i] = self.entries[i].saturating_add(1);
        let Some((alpha, gain)) = projection.factors.best_above(0.0) else {
            // The updated S and Q have drifted: recompute them.
            self.refresh(set, state);
            return Ok(());
        };
        state.add(&candidate, &projection, alpha)?;
        self.set_open(i, false);
        self.shift(set, state, state.len() - 1, |variance| -1.0 / variance);
        state.recentre(&mut &*set)?;
        recorder.step(Action::Add(i), Some(gain), state)
    }

    /// Re-estimates or deletes an active function.
    pub(crate) fn apply(
        &mut self,
        set: &WorkingSet,
        state: &mut State,
        change: Change,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let Change { k, alpha, gain } = change;
        let i = state.active[k];
        let action = if alpha.is_finite() {
            // Appendix A.3.
            let delta = alpha - state.alpha[k];
            self.shift(set, state, k, |variance| delta / (1.0 + delta * variance));
            state.reestimate(k, alpha)?;
            Action::Reestimate(i)
        } else {
            self.delete(set, state, k);
            Action::Delete(i)
        };
        state.recentre(&mut &*set)?;
        recorder.step(action, Some(gain), state)
    }

    /// Deletes the function whose deletion costs least and excludes it: steps from this state made the posterior precision
    /// indefinite, so some functions are linearly dependent up to round-off.
    pub(crate) fn delete_cheapest(
        &mut self,
        set: &WorkingSet,
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Stop> {
        let Some(k) = state.cheapest_deletion() else {
            return Ok(());
        };
        let i = state.active[k];
        self.refresh(set, state);
        self.delete(set, state, k);
        self.entries[i] = Tuning::MAX_ENTRIES;
        state.recompute()?;
        self.refresh(set, state);
        recorder.step(Action::Delete(i), None, state)
    }

    /// Deletes active function `k`: appendix A.4.
    pub(crate) fn delete(&mut self, set: &WorkingSet, state: &mut State, k: usize) {
        self.shift(set, state, k, |variance| 1.0 / variance);
        let i = state.active[k];
        self.set_open(i, true);
        state.delete(k);
        // The update of its own factors is a difference of equal terms: compute them from the data.
        let mut products = Vec::with_capacity(state.len());
        let own = state.project(&set.candidate(i, state, &mut products));
        self.s.iter_mut().zip(own.s).for_each(|(all, s)| all[i] = s);
        self.q.iter_mut().zip(own.q).for_each(|(all, q)| all[i] = q);
    }
}

/// The open member with the largest q^2 / s above 1 whose s exceeds `min_s`.
///
/// Under flat priors gains rise with q^2 / s. Comparing products avoids logarithms and divisions.
fn largest_ratio(s: &[f64], q: &[f64], open: &[bool], min_s: f64) -> Option<usize> {
    let (mut best, mut best_square, mut best_s) = (None, 1.0, 1.0);
    for (i, ((&s, &q), &open)) in s.iter().zip(q).zip(open).enumerate() {
        let square = q * q;
        if open && s > min_s && square * best_s > (1.0 + Tuning::TIE) * best_square * s {
            (best, best_square, best_s) = (Some(i), square, s);
        }
    }
    best
}

/// Columns of the Gram matrix per pass of [`Shift`] over w.
const COLUMNS: usize = 8;

struct Shift<'a> {
    gram: &'a SymmetricMatrix,
    active: &'a [usize],
    covariance: &'a [f64],
    beta: f64,
    c: f64,
    /// mu_k of each output of the level.
    means: &'a [f64],
    s: &'a mut [f64],
    q: &'a mut [AlignedColumns],
    w: &'a mut [f64],
}

impl WithSimd for Shift<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let n = self.w.len();
        self.w.fill(0.0);
        let column = |j: usize| self.gram.column(j);
        let mut terms = self.active.iter().zip(self.covariance);
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
        let c = self.c * self.beta * self.beta;
        for (s, w) in self.s.iter_mut().zip(self.w.iter()) {
            *s += c * (w * w);
        }
        for (q, mean) in self.q.iter_mut().zip(self.means) {
            let d = self.c * mean * self.beta;
            for (q, w) in q.iter_mut().zip(self.w.iter()) {
                *q += d * w;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_tied_largest_ratios_is_found() {
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
        // Columns in the span of the model up to round-off.
        (s[0], q[0], s[8], q[8]) = (-1e-9, 9.0, 0.05, 9.0);
        assert_eq!(find(&s, &q, &open), Some(3));
    }
}
