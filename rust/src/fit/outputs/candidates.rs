//! Sparsity and quality factors of every candidate for several outputs, and which candidate to add.

use std::collections::HashMap;

use crate::Result;
use crate::data::{OutputStatistics, Residuals};
use crate::fit::outputs::model::{Candidate, OutputState};
use crate::fit::shared_evidence::{SharedFactors, Term};
use crate::fit::tuning::Tuning;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::column_combination::add_combination;
use crate::linalg::vector::head;
use crate::parallel::map_pieces;

/// S of each level and Q of each output for the whole dictionary: equations (24) and (25).
///
/// They belong to the present state, and are meaningless for active functions. `gram` holds Phi^T W `phi_j` for every active j
/// (and some that were active before). `projections` belong to the residuals of the weights `seen`.
pub(crate) struct Candidates {
    gram: HashMap<usize, Vec<f64>>,
    /// Candidates whose column is not zero.
    usable: Vec<bool>,
    active: Vec<bool>,
    projections: Vec<Vec<f64>>,
    /// The active functions at the last pass over the rows, with their weight for each output.
    seen: Vec<(usize, Vec<f64>)>,
    s: Vec<Vec<f64>>,
    q: Vec<Vec<f64>>,
    entries: Vec<u8>,
    /// Candidates ranked by an upper bound of their gain, from the last call of [`Self::best_addition`].
    ranked: Vec<(usize, f64)>,
    /// Work space, one value for each candidate.
    work: Vec<f64>,
}

impl Candidates {
    /// The factors at the present state, by a pass over the rows.
    pub(crate) fn new(stats: &mut dyn OutputStatistics, state: &mut OutputState) -> Result<Self> {
        let k = stats.n_basis();
        let mut this = Self {
            gram: HashMap::new(),
            usable: stats.norms().iter().map(|&norm| norm > 0.0).collect(),
            active: vec![false; k],
            projections: Vec::new(),
            seen: Vec::new(),
            s: vec![vec![0.0; k]; state.levels.len()],
            q: vec![vec![0.0; k]; state.outputs.len()],
            entries: vec![0; k],
            ranked: Vec::new(),
            work: vec![0.0; k],
        };
        this.refresh(stats, state)?;
        Ok(this)
    }

    /// A pass over the rows: recomputes the projections and the quadratic models of the state at its means.
    pub(crate) fn refresh(
        &mut self,
        stats: &mut dyn OutputStatistics,
        state: &mut OutputState,
    ) -> Result<()> {
        self.drop_spare_columns(state);
        let missing: Vec<usize> = state
            .active
            .iter()
            .copied()
            .filter(|j| !self.gram.contains_key(j))
            .collect();
        if !missing.is_empty() {
            let columns = stats.gram_columns(&missing)?;
            self.gram.extend(missing.into_iter().zip(columns));
        }
        let residuals = stats.residuals(&state.active, &state.means())?;
        state.set_data(&residuals, |projections, _, j| projections[j])?;
        let weights =
            |k: usize| -> Vec<f64> { (0..self.q.len()).map(|c| state.reference(c)[k]).collect() };
        let active = state.active.iter().enumerate();
        self.seen = active.map(|(k, &j)| (j, weights(k))).collect();
        let Residuals { projections, .. } = residuals;
        self.projections = projections;
        self.update_factors(state);
        Ok(())
    }

    /// Recomputes S and Q for a state whose functions all have Gram columns.
    pub(crate) fn update_factors(&mut self, state: &OutputState) {
        self.active.fill(false);
        state.active.iter().for_each(|&j| self.active[j] = true);
        for l in 0..state.levels.len() {
            self.s[l] = self.sparsities(state, l);
        }
        for c in 0..state.outputs.len() {
            let beta = state.levels[state.level_of(c)].beta;
            let mut q = self.projections[c].clone();
            let (moved, changes): (Vec<usize>, Vec<f64>) = self
                .moved(c, state, &state.outputs[c].mu)
                .into_iter()
                .unzip();
            let changes: Vec<f64> = changes.iter().map(|change| -change).collect();
            add_combination(&self.gram_of(&moved), &changes, &mut q);
            for q in &mut q {
                *q *= beta;
            }
            self.q[c] = q;
        }
    }

    /// The stored Gram columns of these functions.
    fn gram_of(&self, js: &[usize]) -> Vec<&[f64]> {
        js.iter().map(|j| self.gram[j].as_slice()).collect()
    }

    /// S of every candidate at level `l`.
    fn sparsities(&self, state: &OutputState, l: usize) -> Vec<f64> {
        let level = &state.levels[l];
        let columns = self.gram_of(&state.active);
        let lower = pack_lower(&level.chol);
        let parts = map_pieces(self.usable.len(), LANES, |range| {
            let mut lanes = vec![[0.0; LANES]; columns.len()];
            for (lane, column) in lanes.iter_mut().zip(&columns) {
                let values = lane.iter_mut().zip(&column[range.clone()]);
                values.for_each(|(v, g)| *v = level.beta * g);
            }
            solve_lanes(&lower, &mut lanes);
            let overlap = square_lanes(&lanes);
            let s = overlap[..range.len()].iter().map(|o| level.beta - o);
            s.collect::<Vec<f64>>()
        });
        parts.concat()
    }

    /// Changes of the weights of output `c` since the last pass, given its present weights of the active functions.
    fn moved(&self, c: usize, state: &OutputState, weights: &[f64]) -> Vec<(usize, f64)> {
        let mut change: Vec<(usize, f64)> =
            self.seen.iter().map(|(j, seen)| (*j, -seen[c])).collect();
        for (&j, &w) in state.active.iter().zip(weights) {
            match change.iter_mut().find(|(i, _)| *i == j) {
                Some(entry) => entry.1 += w,
                None => change.push((j, w)),
            }
        }
        change.retain(|entry| entry.1 != 0.0);
        change
    }

    /// Drops columns of inactive functions once they outnumber those in use.
    fn drop_spare_columns(&mut self, state: &OutputState) {
        if self.gram.len() > 2 * state.len() + Tuning::SAMPLE_SIZE {
            let seen = &self.seen;
            self.gram
                .retain(|j, _| state.active.contains(j) || seen.iter().any(|s| s.0 == *j));
        }
    }

    /// The factors of candidate `i`, a term for each noise level; `false` if they are round-off.
    fn terms(&self, i: usize, state: &OutputState, terms: &mut Vec<Term>) -> bool {
        // With little noise, less of a function remains than with much noise. It is enough if one level resolves it, and the
        // others do not lose it completely.
        terms.clear();
        let mut resolved = false;
        for (l, level) in state.levels.iter().enumerate() {
            let outputs = state.outputs_of(l);
            let s = self.s[l][i];
            if s.is_nan() || s <= 1e-3 * Tuning::MIN_ORTHOGONAL_PART * level.beta {
                return false;
            }
            resolved |= s > Tuning::MIN_ORTHOGONAL_PART * level.beta;
            terms.push(Term {
                n: outputs.len() as f64,
                s,
                power: outputs.map(|c| self.q[c][i] * self.q[c][i]).sum(),
            });
        }
        resolved
    }

    /// The addition with the largest gain, if that is at least `least`.
    pub(crate) fn best_addition(
        &mut self,
        state: &OutputState,
        least: f64,
    ) -> Option<(usize, f64)> {
        let mut terms = Vec::with_capacity(state.levels.len());
        let mut ranked = std::mem::take(&mut self.ranked);
        ranked.clear();
        for i in 0..self.usable.len() {
            let open = self.usable[i] && !self.active[i] && self.entries[i] < Tuning::MAX_ENTRIES;
            if open && self.terms(i, state, &mut terms) {
                let bound = SharedFactors(&terms).bound();
                if bound > least.max(Tuning::MIN_GAIN) {
                    ranked.push((i, bound));
                }
            }
        }
        // Bounds of several outputs are loose. In descending order, fewer candidates need the exact gain.
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let mut best: Option<(usize, f64)> = None;
        for &(i, bound) in &ranked {
            let most = best.map_or(least, |b| b.1 * (1.0 - Tuning::TIE));
            if bound <= most {
                break;
            }
            self.terms(i, state, &mut terms);
            let hurdle = most.max(Tuning::MIN_GAIN);
            if let Some((_, gain)) = SharedFactors(&terms).best_above(hurdle) {
                // Among ties the lowest index is chosen: round-off must not choose the model.
                let ahead = |b: (usize, f64)| {
                    gain > b.1 * (1.0 + Tuning::TIE)
                        || (i < b.0 && gain >= b.1 * (1.0 - Tuning::TIE))
                };
                if best.is_none_or(ahead) {
                    best = Some((i, gain));
                }
            }
        }
        self.ranked = ranked;
        best
    }

    /// Whether an excluded candidate still gains.
    pub(crate) fn excludes_gain(&self, state: &OutputState) -> bool {
        let mut terms = Vec::with_capacity(state.levels.len());
        (0..self.usable.len()).any(|i| {
            self.entries[i] >= Tuning::MAX_ENTRIES
                && self.usable[i]
                && !self.active[i]
                && self.terms(i, state, &mut terms)
                && SharedFactors(&terms)
                    .best()
                    .is_some_and(|b| b.1 > Tuning::MIN_REPORTED_GAIN)
        })
    }

    /// Computes the Gram column of candidate `i`, and in the same pass those of others likely to be added soon: a few columns
    /// cost little more than one.
    fn fetch(&mut self, stats: &mut dyn OutputStatistics, i: usize) -> Result<()> {
        const MAX_COLUMNS: usize = 16;
        let likely = self.ranked.iter().map(|&(j, _)| j);
        let others = likely.filter(|&j| j != i && !self.active[j] && !self.gram.contains_key(&j));
        // Once `i` is added, candidates that suit the same output gain less: those for other outputs come first.
        let mut served = vec![false; self.q.len()];
        served[self.best_output(i)] = true;
        let (first, like): (Vec<usize>, Vec<usize>) =
            others.partition(|&j| !std::mem::replace(&mut served[self.best_output(j)], true));
        let mut wanted = [vec![i], first, like].concat();
        wanted.truncate(MAX_COLUMNS);
        let columns = stats.gram_columns(&wanted)?;
        self.gram.extend(wanted.into_iter().zip(columns));
        Ok(())
    }

    /// The output for which candidate `i` has the largest |Q|.
    fn best_output(&self, i: usize) -> usize {
        let of_output = |c: &usize| self.q[*c][i].abs();
        let better = |a: usize, b: usize| if of_output(&b) > of_output(&a) { b } else { a };
        (0..self.q.len()).fold(0, better)
    }

    /// Adds candidate `i` with its optimal alpha, and returns the gain; `None` if there is none after all.
    pub(crate) fn add(
        &mut self,
        stats: &mut dyn OutputStatistics,
        state: &mut OutputState,
        i: usize,
    ) -> Result<Option<f64>> {
        self.entries[i] = self.entries[i].saturating_add(1);
        if !self.gram.contains_key(&i) {
            self.fetch(stats, i)?;
        }
        self.update_factors_of(state, i);
        let mut terms = Vec::new();
        let resolved = self.terms(i, state, &mut terms);
        let best = SharedFactors(&terms).best().filter(|_| resolved);
        let Some((alpha, gain)) = best else {
            // The factors had accumulated round-off.
            self.update_factors(state);
            return Ok(None);
        };
        self.insert_function(state, i, alpha)?;
        Ok(Some(gain))
    }

    /// Adds function `i` with this alpha.
    pub(crate) fn add_with_alpha(
        &mut self,
        stats: &mut dyn OutputStatistics,
        state: &mut OutputState,
        i: usize,
        alpha: f64,
    ) -> Result<()> {
        if !self.gram.contains_key(&i) {
            self.fetch(stats, i)?;
        }
        self.insert_function(state, i, alpha)
    }

    /// Adds function `i`, whose Gram column is stored.
    fn insert_function(&mut self, state: &mut OutputState, i: usize, alpha: f64) -> Result<()> {
        let (products, gradient) = self.candidate(state, i);
        state.add(
            &Candidate {
                index: i,
                gram: &products,
                gradient: &gradient,
            },
            alpha,
        )?;
        self.active[i] = true;
        self.shift(state, state.len() - 1, |variance| -1.0 / variance);
        Ok(())
    }

    /// Resets the counts of additions, after a change of the targets.
    pub(crate) fn reset_entries(&mut self) {
        self.entries.fill(0);
    }

    /// Re-estimates the alpha of active function `k`: appendix A.3.
    pub(crate) fn reestimate(
        &mut self,
        state: &mut OutputState,
        k: usize,
        alpha: f64,
    ) -> Result<()> {
        let delta = alpha - state.alpha[k];
        self.shift(state, k, |variance| delta / (1.0 + delta * variance));
        state.reestimate(k, alpha)
    }

    /// Deletes active function `k`: appendix A.4.
    pub(crate) fn delete(&mut self, state: &mut OutputState, k: usize) {
        self.shift(state, k, |variance| 1.0 / variance);
        let i = state.active[k];
        self.active[i] = false;
        state.delete(k);
        // Its updated factors are differences of equal terms.
        self.update_factors_of(state, i);
    }

    /// Inner products of function `i`, whose Gram column is stored, with the active functions and the residuals at the
    /// references.
    fn candidate(&self, state: &OutputState, i: usize) -> (Vec<f64>, Vec<f64>) {
        let column = &self.gram[&i];
        let products = state.active.iter().map(|&j| column[j]).collect();
        let gradient = (0..state.outputs.len()).map(|c| {
            let moved = self.moved(c, state, state.reference(c));
            let shift: f64 = moved.iter().map(|&(j, change)| change * column[j]).sum();
            self.projections[c][i] - shift
        });
        (products, gradient.collect())
    }

    /// Recomputes S and Q of one function, whose Gram column is stored.
    fn update_factors_of(&mut self, state: &OutputState, i: usize) {
        let (products, gradient) = self.candidate(state, i);
        let (s, q) = state.candidate_factors(&Candidate {
            index: i,
            gram: &products,
            gradient: &gradient,
        });
        self.s.iter_mut().zip(s).for_each(|(all, s)| all[i] = s);
        self.q.iter_mut().zip(q).for_each(|(all, q)| all[i] = q);
    }

    /// `S += c w^2` and `Q += c mu_k w` with `w_i = beta Sigma_k^T Phi^T phi_i` and c a function of Sigma_kk: the updates of
    /// appendix A.
    fn shift(&mut self, state: &OutputState, k: usize, c: impl Fn(f64) -> f64) {
        for (l, level) in state.levels.iter().enumerate() {
            let c = c(level.sigma[(k, k)]);
            let mut work = std::mem::take(&mut self.work);
            self.write_covariances(state, l, k, &mut work);
            for (s, w) in self.s[l].iter_mut().zip(&work) {
                *s += c * (w * w);
            }
            for o in state.outputs_of(l) {
                add_combination(&[&work], &[c * state.outputs[o].mu[k]], &mut self.q[o]);
            }
            self.work = work;
        }
    }

    /// Writes `beta Sigma_k^T Phi^T phi_i` at level `l` into `out`, for every candidate i.
    fn write_covariances(&self, state: &OutputState, l: usize, k: usize, out: &mut [f64]) {
        let level = &state.levels[l];
        let column = head(&level.sigma, k, state.len()).iter();
        let column: Vec<f64> = column.map(|sigma| level.beta * sigma).collect();
        out.fill(0.0);
        add_combination(&self.gram_of(&state.active), &column, out);
    }
}
