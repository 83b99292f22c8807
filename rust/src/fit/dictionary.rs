//! S and Q of every function of the dictionary, and the choice of additions.

use std::collections::{BTreeMap, HashMap};

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Statistics, Sweep};
use crate::fit::evidence::Factors;
use crate::fit::model::{Candidate, State};
use crate::fit::prior::Priors;
use crate::fit::ranking::ranked;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::vector::axpy;
use crate::parallel::map_pieces;

/// Active functions, alphas, mu and beta of a model.
type ModelKey = (Vec<usize>, Vec<f64>, Vec<f64>, f64);

/// S, Q and Gram columns over the dictionary.
///
/// Between calls `gram` holds Phi^T W phi_j for every active j, and for some that were active before. `diag` and `gradient`
/// were computed by the last [`Dictionary::refresh`]; `factors` belong to `factors_model`.
pub(crate) struct Dictionary {
    gram: HashMap<usize, Vec<f64>>,
    diag: Vec<f64>,
    gradient: Vec<f64>,
    /// Functions and weights at the last pass, to which `gradient` belongs.
    weights: Vec<(usize, f64)>,
    factors: Vec<Factors>,
    /// Active functions, alphas, mu and beta to which `factors` belong; `None` after a pass.
    factors_model: Option<ModelKey>,
    /// How often each function was added or offered.
    entries: Vec<u8>,
    priors: Priors,
    /// Part of [`Factors::gain_of_adding`] that does not count: the cost of a function in the objective.
    penalty: f64,
    /// Least part of a column (squared, relative) orthogonal to the active columns at which S exceeds the error of the last pass.
    min_orthogonal: f64,
}

impl Dictionary {
    pub(crate) fn new(n_basis: usize, priors: Priors) -> Self {
        Self {
            gram: HashMap::new(),
            diag: Vec::new(),
            gradient: Vec::new(),
            weights: Vec::new(),
            factors: Vec::new(),
            factors_model: None,
            entries: vec![0; n_basis],
            priors,
            penalty: 0.0,
            min_orthogonal: Tuning::MIN_ORTHOGONAL_PART,
        }
    }

    /// Subtracts `penalty` from the gain of every addition.
    pub(crate) fn with_penalty(self, penalty: f64) -> Self {
        Self { penalty, ..self }
    }

    /// One pass over the data: recomputes everything here and the state's quadratic model at the posterior mean.
    pub(crate) fn refresh(&mut self, stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
        let (wanted, mu) = (self.columns_wanted(stats, state), state.mu.clone());
        let sweep = stats.sweep(&state.active, &mu, &wanted)?;
        let deviance = self.take(sweep, wanted, state);
        self.min_orthogonal = Tuning::MIN_ORTHOGONAL_PART;
        let active_gradient: Vec<f64> = state.active.iter().map(|&j| self.gradient[j]).collect();
        // S is a difference, so both terms need the working weights W of the new reference.
        let gram = (!stats.is_linear()).then(|| {
            DMatrix::from_fn(state.len(), state.len(), |a, b| {
                self.gram[&state.active[a.min(b)]][state.active[a.max(b)]]
            })
        });
        state.set_data(&mu, &active_gradient, deviance, gram.as_ref())?;
        self.update_factors(state);
        Ok(())
    }

    /// An approximate refresh by [`Statistics::approximate_sweep`], if the provider has one, to choose a working set. The state has to be at
    /// a mode and does not change.
    pub(crate) fn refresh_approximately(
        &mut self,
        stats: &mut dyn Statistics,
        state: &mut State,
    ) -> Result<()> {
        let wanted = self.columns_wanted(stats, state);
        let Some(sweep) = stats.approximate_sweep(&state.active, &state.mu, &wanted)? else {
            return self.refresh(stats, state);
        };
        self.take(sweep, wanted, state);
        self.min_orthogonal = Tuning::MIN_APPROXIMATE_PART;
        self.update_factors(state);
        Ok(())
    }

    /// Active functions whose Gram columns the next pass has to compute.
    fn columns_wanted(&mut self, stats: &dyn Statistics, state: &State) -> Vec<usize> {
        if !stats.is_linear() {
            self.gram.clear();
        }
        self.drop_spare_columns(state);
        let known = |j: &&usize| self.gram.contains_key(j);
        state.active.iter().filter(|j| !known(j)).copied().collect()
    }

    /// Stores the results of a pass and returns the deviance.
    fn take(&mut self, sweep: Sweep, wanted: Vec<usize>, state: &State) -> f64 {
        let weights = state.active.iter().copied().zip(state.mu.iter().copied());
        self.weights = weights.collect();
        self.gram.extend(wanted.into_iter().zip(sweep.gram));
        self.diag = sweep.diag;
        self.gradient = sweep.gradient;
        self.factors_model = None;
        sweep.deviance
    }

    /// Copies the Gram columns of the active functions from a working set of all candidates, so that no pass has to compute them.
    pub(crate) fn take_columns(&mut self, set: &WorkingSet, state: &State) {
        for &j in &state.active {
            let n_basis = self.diag.len();
            self.gram.entry(j).or_insert_with(|| {
                let mut column = vec![0.0; n_basis];
                for (i, product) in set.products_with(j) {
                    column[i] = product;
                }
                column
            });
        }
    }

    /// Whether the Gram columns of all active functions are known.
    pub(crate) fn has_columns(&self, state: &State) -> bool {
        state.active.iter().all(|j| self.gram.contains_key(j))
    }

    /// S and Q of every candidate for the present state, whose Gram columns have to be known.
    pub(crate) fn update_factors(&mut self, state: &State) {
        let model = (
            state.active.clone(),
            state.alpha.clone(),
            state.mu.clone(),
            state.beta,
        );
        if self.factors_model.as_ref() != Some(&model) {
            self.factors = self.factors_of_all(state);
            self.factors_model = Some(model);
        }
    }

    /// Candidates for a first model: all of them if they are at most `max_whole`, otherwise `size` at equal distances in the
    /// dictionary. (The candidates most correlated with the targets are similar to one another: fits end several nats lower.)
    pub(crate) fn sample(&self, size: usize, max_whole: usize) -> Vec<usize> {
        let candidates: Vec<usize> = (0..self.n_basis())
            .filter(|&i| self.diag[i] > 0.0)
            .collect();
        if candidates.len() <= max_whole {
            return candidates;
        }
        (0..size)
            .map(|k| candidates[k * candidates.len() / size])
            .collect()
    }

    /// Number of functions that are not zero on all rows.
    pub(crate) fn n_candidates(&self) -> usize {
        self.diag.iter().filter(|&&d| d > 0.0).count()
    }

    /// Drops columns of inactive functions once they outnumber the active ones by far.
    fn drop_spare_columns(&mut self, state: &State) {
        if self.gram.len() > 2 * state.len() + Tuning::SAMPLE_SIZE {
            let weights = &self.weights;
            self.gram
                .retain(|j, _| state.active.contains(j) || weights.iter().any(|w| w.0 == *j));
        }
    }

    pub(crate) fn n_basis(&self) -> usize {
        self.diag.len()
    }

    pub(crate) fn priors(&self) -> &Priors {
        &self.priors
    }

    pub(crate) fn factors_of(&self, i: usize) -> Factors {
        self.factors[i]
    }

    /// phi_i^T W phi_i.
    pub(crate) fn diag(&self, i: usize) -> f64 {
        self.diag[i]
    }

    /// phi_j^T W phi_i of an active function j.
    pub(crate) fn product(&self, j: usize, i: usize) -> f64 {
        self.gram[&j][i]
    }

    /// Whether each function is a candidate: inactive and not a zero column.
    pub(crate) fn inactive(&self, state: &State) -> Vec<bool> {
        let mut inactive: Vec<bool> = self.diag.iter().map(|&d| d > 0.0).collect();
        state.active.iter().for_each(|&j| inactive[j] = false);
        inactive
    }

    /// Whether S exceeds its error.
    pub(crate) fn resolves(&self, i: usize, f: Factors, state: &State) -> bool {
        f.s > self.s_error(i, state)
    }

    /// Bound on the error of S by round-off and by the last pass.
    pub(crate) fn s_error(&self, i: usize, state: &State) -> f64 {
        self.min_orthogonal * state.beta * self.diag[i]
    }

    /// beta times the Gram columns of the active functions at candidates `first..first + LANES`.
    pub(crate) fn scaled_lanes(
        &self,
        columns: &[&[f64]],
        first: usize,
        beta: f64,
    ) -> Vec<[f64; LANES]> {
        let end = (first + LANES).min(self.n_basis());
        let mut lanes = vec![[0.0; LANES]; columns.len()];
        for (lanes, column) in lanes.iter_mut().zip(columns) {
            for (v, g) in lanes.iter_mut().zip(&column[first..end]) {
                *v = beta * g;
            }
        }
        lanes
    }

    pub(crate) fn active_columns(&self, state: &State) -> Vec<&[f64]> {
        state
            .active
            .iter()
            .map(|j| self.gram[j].as_slice())
            .collect()
    }

    /// Functions whose weights have changed since the last pass, with the changes.
    fn weight_changes(&self, state: &State) -> Vec<(usize, f64)> {
        let mut change: BTreeMap<usize, f64> =
            self.weights.iter().map(|&(j, mu)| (j, -mu)).collect();
        for (&j, &mu) in state.active.iter().zip(&state.mu) {
            *change.entry(j).or_default() += mu;
        }
        change.into_iter().filter(|c| c.1 != 0.0).collect()
    }

    /// S and Q of every candidate: equations (24) and (25).
    fn factors_of_all(&self, state: &State) -> Vec<Factors> {
        let columns = self.active_columns(state);
        let changes = self.weight_changes(state);
        let lower = pack_lower(state.chol());
        let pieces = map_pieces(self.n_basis(), LANES, |range| {
            let mut v = self.scaled_lanes(&columns, range.start, state.beta);
            solve_lanes(&lower, &mut v);
            let overlap = square_lanes(&v);
            let mut gradient = self.gradient[range.clone()].to_vec();
            for &(j, change) in &changes {
                axpy(-change, &self.gram[&j][range.clone()], &mut gradient);
            }
            let factors = range.zip(overlap.iter().zip(gradient));
            let factors = factors.map(|(i, (overlap, gradient))| Factors {
                s: state.beta * self.diag[i] - overlap,
                q: state.beta * gradient,
                prior: self.priors.of(i),
            });
            factors.collect::<Vec<_>>()
        });
        pieces.into_iter().flatten().collect()
    }

    /// The gain of adding candidate `i` with these factors; 0 if it may not be added.
    pub(crate) fn gain(&self, i: usize, f: Factors, state: &State) -> f64 {
        if !self.resolves(i, f, state) || f.optimal_alpha().is_none() {
            return 0.0;
        }
        let gain = f.gain_of_adding() - self.penalty;
        if gain > Tuning::MIN_GAIN && self.entries[i] < Tuning::MAX_ENTRIES {
            gain
        } else {
            0.0
        }
    }

    /// Whether a candidate that may not be added would gain.
    pub(crate) fn excludes_gain(&self, state: &State) -> bool {
        (0..self.factors.len()).any(|i| {
            if state.active.contains(&i) || self.diag[i] <= 0.0 {
                return false;
            }
            let f = self.factors[i];
            if self.resolves(i, f, state) {
                return self.entries[i] >= Tuning::MAX_ENTRIES
                    && f.gain_of_adding() > self.penalty + Tuning::MIN_REPORTED_GAIN;
            }
            // S is not resolved, so the function cannot be added; but its gain may be certain with the largest S possible. Round-off of S
            // cannot cause so large a gain, not even for a duplicate of an active function.
            let bounded = Factors {
                s: f.s.max(Tuning::ROUNDING * state.beta * self.diag[i]),
                ..f
            };
            bounded.gain_of_adding() > self.penalty + Tuning::MIN_SEARCH_GAIN
        })
    }

    /// Whether some candidate has a positive gain.
    pub(crate) fn has_gain(&self, state: &State) -> bool {
        self.largest_gain(state) > 0.0
    }

    /// The largest gain of a candidate.
    pub(crate) fn largest_gain(&self, state: &State) -> f64 {
        self.scores(state, |i| self.gain(i, self.factors[i], state))
            .fold(0.0, |most, (gain, _)| f64::max(most, gain))
    }

    /// Counts these candidates as added or offered once more.
    pub(crate) fn count_entries(&mut self, candidates: &[usize]) {
        for &i in candidates {
            self.entries[i] = self.entries[i].saturating_add(1);
        }
    }

    /// Whether some function was added again and again.
    pub(crate) fn has_reentries(&self) -> bool {
        self.entries.iter().any(|&e| e > 2)
    }

    /// At most `limit` candidates with positive gains, largest first.
    pub(crate) fn best_candidates(&self, state: &State, limit: usize) -> Vec<usize> {
        let gain = |i: usize| self.gain(i, self.factors[i], state);
        ranked(self.scores(state, gain), limit)
    }

    /// At most `limit` candidates by q^2 / s, including some that would gain only after the others have changed.
    pub(crate) fn near_candidates(&self, state: &State, limit: usize) -> Vec<usize> {
        let score = |i: usize| {
            let f = self.factors[i];
            let ratio = f.q * (f.q / f.s);
            if ratio > Tuning::MIN_NEAR_RATIO && self.resolves(i, f, state) {
                ratio
            } else {
                0.0
            }
        };
        ranked(self.scores(state, score), limit)
    }

    /// The score of every candidate with its index.
    fn scores<'s>(
        &'s self,
        state: &'s State,
        score: impl Fn(usize) -> f64 + 's,
    ) -> impl Iterator<Item = (f64, usize)> + 's {
        let inactive = self.inactive(state);
        (0..self.factors.len())
            .filter(move |&i| inactive[i])
            .map(move |i| (score(i), i))
    }

    /// Adds up to `block` candidates, each the best one given the additions before it, and returns how many.
    ///
    /// Call right after [`Dictionary::refresh`].
    pub(crate) fn add(
        &mut self,
        block: usize,
        stats: &mut dyn Statistics,
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<usize, Stop> {
        let list = self.best_candidates(state, Tuning::MAX_JOINT_ADDITIONS);
        if list.is_empty() {
            return Ok(0);
        }
        let (gram, _) = stats.among(&list)?;
        let mut shortlist = Shortlist::new(self, &list, &gram, state);
        let mut first_gain = None;
        let mut added: Vec<usize> = Vec::new();
        let size_before = state.len();
        while added.len() < block {
            let Some((c, gain)) = shortlist.best(self, &list, state) else {
                break;
            };
            if gain < Tuning::BLOCK_GAIN_RATIO * *first_gain.get_or_insert(gain) {
                break;
            }
            let i = list[c];
            let mut products: Vec<f64> = state.active[..size_before]
                .iter()
                .map(|j| self.gram[j][i])
                .collect();
            products.extend(added.iter().map(|&e| gram[(e, c)]));
            let candidate = Candidate {
                index: i,
                gram: &products,
                gram_self: gram[(c, c)],
                gradient: self.gradient[i],
                prior: self.priors.of(i),
            };
            let projection = state.project(&candidate);
            let factors = projection.1;
            shortlist.condition_on(c, factors);
            let Some(alpha) = factors.optimal_alpha() else {
                continue;
            };
            state.add(&candidate, projection, alpha)?;
            added.push(c);
            self.entries[i] = self.entries[i].saturating_add(1);
            let recentred = state.recentre(stats)?;
            recorder.step(Action::Add(i), Some(factors.gain_of_adding()), state)?;
            if recentred {
                // The gradients here belong to the previous reference.
                break;
            }
        }
        Ok(added.len())
    }
}

/// S and Q of a few candidates, updated as they are added one by one: Tipping & Faul (2003), appendix A.2.
///
/// `overlap` is phi_i^T C^-1 phi_j (S on the diagonal), `q` is phi_i^T C^-1 t.
struct Shortlist {
    overlap: DMatrix<f64>,
    q: Vec<f64>,
    open: Vec<bool>,
}

impl Shortlist {
    fn new(dictionary: &Dictionary, list: &[usize], gram: &DMatrix<f64>, state: &State) -> Self {
        let columns = dictionary.active_columns(state);
        let mut v = DMatrix::from_fn(columns.len(), list.len(), |k, c| {
            state.beta * columns[k][list[c]]
        });
        for mut column in v.column_iter_mut() {
            state.chol().solve_lower_in_place(column.as_mut_slice());
        }
        Self {
            overlap: gram * state.beta - v.tr_mul(&v),
            q: list.iter().map(|&i| dictionary.factors_of(i).q).collect(),
            open: vec![true; list.len()],
        }
    }

    /// The open member with the largest gain; of ties the first, which [`ranked`] put first.
    fn best(&self, dictionary: &Dictionary, list: &[usize], state: &State) -> Option<(usize, f64)> {
        let gains = (0..list.len()).filter(|&c| self.open[c]).map(|c| {
            let factors = Factors {
                s: self.overlap[(c, c)],
                q: self.q[c],
                prior: dictionary.priors().of(list[c]),
            };
            (c, dictionary.gain(list[c], factors, state))
        });
        gains
            .filter(|g| g.1 > 0.0)
            .fold(None, |best: Option<(usize, f64)>, g| match best {
                Some(b) if g.1 <= b.1 => Some(b),
                _ => Some(g),
            })
    }

    /// Closes member `c` and, if it has a finite alpha, updates the others for its addition.
    fn condition_on(&mut self, c: usize, factors: Factors) {
        self.open[c] = false;
        let Some(alpha) = factors.optimal_alpha() else {
            return;
        };
        let variance = 1.0 / (alpha + factors.s);
        let mean = variance * factors.q;
        let column = self.overlap.column(c).clone_owned();
        self.overlap.ger(-variance, &column, &column, 1.0);
        for (q, overlap) in self.q.iter_mut().zip(column.iter()) {
            *q -= mean * overlap;
        }
    }
}
