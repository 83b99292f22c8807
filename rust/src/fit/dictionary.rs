//! S and Q of every function of the dictionary, and the choice of additions.

use std::collections::{BTreeMap, HashMap};

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Statistics, Sweep};
use crate::fit::evidence::{Factors, Term};
use crate::fit::model::{Candidate, Level, State};
use crate::fit::prior::Priors;
use crate::fit::ranking::ranked;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::vector::{axpy, mirrored};
use crate::parallel::map_pieces;

/// Active functions, alphas, means and noise precisions of a model.
type ModelKey = (Vec<usize>, Vec<f64>, Vec<f64>, Vec<f64>);

/// S, Q and Gram columns over the dictionary.
///
/// Between calls `gram` holds Phi^T W phi_j for every active j, and for some that were active before. `diag` and `gradient`
/// were computed by the last [`Dictionary::refresh`]; S and Q belong to `factors_model`.
pub(crate) struct Dictionary {
    gram: HashMap<usize, Vec<f64>>,
    diag: Vec<f64>,
    /// Products of every function with the working residual of each output, one output after the other.
    gradient: Vec<f64>,
    /// Functions at the last pass, to which `gradient` belongs, with the weight for each output.
    weights: Vec<(usize, Vec<f64>)>,
    /// S at each noise level and Q of each output.
    s: Vec<Vec<f64>>,
    q: Vec<Vec<f64>>,
    /// The model to which S and Q belong; `None` after a pass.
    factors_model: Option<ModelKey>,
    /// How often each function was added or offered.
    entries: Vec<u8>,
    priors: Priors,
    /// Part of [`Factors::gain_of_adding`] that does not count: the cost of a function in the objective.
    penalty: f64,
}

impl Dictionary {
    pub(crate) fn new(n_basis: usize, priors: Priors) -> Self {
        Self {
            gram: HashMap::new(),
            diag: Vec::new(),
            gradient: Vec::new(),
            weights: Vec::new(),
            s: Vec::new(),
            q: Vec::new(),
            factors_model: None,
            entries: vec![0; n_basis],
            priors,
            penalty: 0.0,
        }
    }

    /// Subtracts `penalty` from the gain of every addition.
    pub(crate) fn with_penalty(self, penalty: f64) -> Self {
        Self { penalty, ..self }
    }

    /// One pass over the data: recomputes everything here and the state's quadratic model at the posterior mean.
    pub(crate) fn refresh(&mut self, stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
        let (wanted, mu) = (self.columns_wanted(stats, state), state.means());
        let sweep = stats.sweep(&state.active, &mu, &wanted)?;
        let deviances = self.take(sweep, wanted, state);
        let active_gradient = self.gradient_of(&state.active);
        // S is a difference, so both terms need the working weights W of the new reference.
        let gram = (!stats.facts().is_linear).then(|| {
            DMatrix::from_fn(state.len(), state.len(), |a, b| {
                self.gram[&state.active[a.min(b)]][state.active[a.max(b)]]
            })
        });
        state.set_data(&mu, &active_gradient, &deviances, gram.as_ref())?;
        self.update_factors(state);
        Ok(())
    }

    /// Active functions whose Gram columns the next pass has to compute.
    fn columns_wanted(&mut self, stats: &dyn Statistics, state: &State) -> Vec<usize> {
        if !stats.facts().is_linear {
            self.gram.clear();
        }
        self.drop_spare_columns(state);
        let known = |j: &&usize| self.gram.contains_key(j);
        state.active.iter().filter(|j| !known(j)).copied().collect()
    }

    /// Stores the results of a pass and returns the deviances.
    fn take(&mut self, sweep: Sweep, wanted: Vec<usize>, state: &State) -> Vec<f64> {
        let weights = |k: usize| state.outputs.iter().map(|o| o.mu[k]).collect();
        let active = state.active.iter().enumerate();
        self.weights = active.map(|(k, &j)| (j, weights(k))).collect();
        self.gram.extend(wanted.into_iter().zip(sweep.gram));
        self.diag = sweep.diag;
        self.gradient = sweep.gradient;
        self.factors_model = None;
        sweep.deviances
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
            state.means(),
            state.betas(),
        );
        if self.factors_model.as_ref() != Some(&model) {
            (self.s, self.q) = self.factors_of_all(state);
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

    /// The factors of candidate `i` beside the model `state`.
    pub(crate) fn factors_of(&self, i: usize, state: &State) -> Factors {
        state.combine(|l| self.s[l][i], |c| self.q[c][i], self.priors.of(i))
    }

    /// S of candidate `i` at level `l`.
    pub(crate) fn sparsity(&self, i: usize, l: usize) -> f64 {
        self.s[l][i]
    }

    /// Q of candidate `i` for output `c`.
    pub(crate) fn quality(&self, i: usize, c: usize) -> f64 {
        self.q[c][i]
    }

    /// Products of these functions with the residual at the last pass, one output after the other.
    pub(crate) fn gradient_of(&self, functions: &[usize]) -> Vec<f64> {
        let outputs = self.gradient.chunks_exact(self.n_basis().max(1));
        let of_output = |gradient: &[f64]| functions.iter().map(|&j| gradient[j]).collect();
        outputs
            .flat_map(|gradient| -> Vec<f64> { of_output(gradient) })
            .collect()
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

    /// Whether S exceeds its error by round-off and by the last pass.
    pub(crate) fn resolves(&self, i: usize, f: &Factors, state: &State) -> bool {
        state.resolves(f, Tuning::MIN_ORTHOGONAL_PART, self.diag[i])
    }

    /// Bound on the error of S of candidate `i` at noise precision `beta`.
    pub(crate) fn s_error(&self, i: usize, beta: f64) -> f64 {
        Tuning::MIN_ORTHOGONAL_PART * beta * self.diag[i]
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

    /// Functions whose weights for output `c` have changed since the last pass, with the changes.
    fn weight_changes(&self, state: &State, c: usize) -> Vec<(usize, f64)> {
        let weights = self.weights.iter();
        let mut change: BTreeMap<usize, f64> = weights.map(|(j, mu)| (*j, -mu[c])).collect();
        for (&j, &mu) in state.active.iter().zip(&state.outputs[c].mu) {
            *change.entry(j).or_default() += mu;
        }
        change.into_iter().filter(|c| c.1 != 0.0).collect()
    }

    /// S at each noise level and Q of each output, for every candidate: equations (24) and (25).
    fn factors_of_all(&self, state: &State) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let columns = self.active_columns(state);
        let sparsities = |level: &Level| {
            let (beta, lower) = (level.noise.beta, pack_lower(&level.chol));
            let pieces = map_pieces(self.n_basis(), LANES, |range| {
                let mut v = self.scaled_lanes(&columns, range.start, beta);
                solve_lanes(&lower, &mut v);
                let pairs = self.diag[range].iter().zip(square_lanes(&v));
                pairs
                    .map(|(diag, overlap)| beta * diag - overlap)
                    .collect::<Vec<_>>()
            });
            pieces.concat()
        };
        let qualities = |c: usize| {
            let beta = state.levels[state.level_of(c)].noise.beta;
            let gradient = &self.gradient[c * self.n_basis()..][..self.n_basis()];
            let changes = self.weight_changes(state, c);
            let pieces = map_pieces(self.n_basis(), LANES, |range| {
                let mut gradient = gradient[range.clone()].to_vec();
                for &(j, change) in &changes {
                    axpy(-change, &self.gram[&j][range.clone()], &mut gradient);
                }
                for g in &mut gradient {
                    *g *= beta;
                }
                gradient
            });
            pieces.concat()
        };
        (
            state.levels.iter().map(sparsities).collect(),
            (0..state.outputs.len()).map(qualities).collect(),
        )
    }

    /// The gain of adding candidate `i` with these factors; 0 if it may not be added.
    pub(crate) fn gain(&self, i: usize, f: &Factors, state: &State) -> f64 {
        let least = self.penalty + Tuning::MIN_GAIN;
        let is_excluded = self.entries[i] >= Tuning::MAX_ENTRIES;
        if is_excluded || f.bound() <= least || !self.resolves(i, f, state) {
            return 0.0;
        }
        match f.best_above(0.0) {
            Some((_, gain)) if gain > least => gain - self.penalty,
            _ => 0.0,
        }
    }

    /// Whether a candidate that may not be added would gain.
    pub(crate) fn excludes_gain(&self, state: &State) -> bool {
        (0..self.n_basis()).any(|i| {
            if state.active.contains(&i) || self.diag[i] <= 0.0 {
                return false;
            }
            let f = &self.factors_of(i, state);
            if self.resolves(i, f, state) {
                return self.entries[i] >= Tuning::MAX_ENTRIES
                    && f.gain_of_adding() > self.penalty + Tuning::MIN_REPORTED_GAIN;
            }
            // S is not resolved, so the function cannot be added; but its gain may be certain with the largest S possible. Round-off of S
            // cannot cause so large a gain, not even for a duplicate of an active function.
            let bounded = |(term, level): (Term, &Level)| Term {
                s: term
                    .s
                    .max(Tuning::ROUNDING * level.noise.beta * self.diag[i]),
                ..term
            };
            let mut terms = f.terms().zip(&state.levels).map(bounded);
            let first = terms.next().unwrap_or(f.first);
            Factors::of_levels(first, terms, f.prior).gain_of_adding()
                > self.penalty + Tuning::MIN_SEARCH_GAIN
        })
    }

    /// Whether some candidate has a positive gain.
    pub(crate) fn has_gain(&self, state: &State) -> bool {
        self.largest_gain(state) > 0.0
    }

    /// The largest gain of a candidate.
    pub(crate) fn largest_gain(&self, state: &State) -> f64 {
        self.scores(state, |i| self.gain(i, &self.factors_of(i, state), state))
            .fold(0.0, |most, (gain, _)| f64::max(most, gain))
    }

    /// Forgets how often candidates were added or offered, after a change of the targets.
    pub(crate) fn reset_entries(&mut self) {
        self.entries.fill(0);
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
        let gain = |i: usize| self.gain(i, &self.factors_of(i, state), state);
        ranked(self.scores(state, gain), limit)
    }

    /// At most `limit` candidates by q^2 / s, including some that would gain only after the others have changed.
    pub(crate) fn near_candidates(&self, state: &State, limit: usize) -> Vec<usize> {
        let score = |i: usize| {
            let f = &self.factors_of(i, state);
            let ratio = f.terms().map(Term::ratio).fold(0.0, f64::max);
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
        (0..self.n_basis())
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
        let gram = mirrored(stats.among(&state.active, state.reference(), &list)?.0);
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
                gradient: vec![self.gradient[i]],
                prior: self.priors.of(i),
            };
            let projection = state.project(&candidate);
            let best = projection.factors.best_above(0.0);
            shortlist.condition_on(c, &projection.factors);
            let Some((alpha, gain)) = best else {
                continue;
            };
            state.add(&candidate, &projection, alpha)?;
            added.push(c);
            self.entries[i] = self.entries[i].saturating_add(1);
            let recentred = state.recentre(stats)?;
            recorder.step(Action::Add(i), Some(gain), state)?;
            if recentred {
                // The gradients here belong to the previous reference.
                break;
            }
        }
        Ok(added.len())
    }
}

/// S and Q of a few candidates for one output, updated as they are added one by one: Tipping & Faul (2003), appendix A.2.
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
            state.beta() * columns[k][list[c]]
        });
        for mut column in v.column_iter_mut() {
            state.chol().solve_lower_in_place(column.as_mut_slice());
        }
        Self {
            overlap: gram * state.beta() - v.tr_mul(&v),
            q: list.iter().map(|&i| dictionary.quality(i, 0)).collect(),
            open: vec![true; list.len()],
        }
    }

    /// The open member with the largest gain; of ties the first, which [`ranked`] put first.
    fn best(&self, dictionary: &Dictionary, list: &[usize], state: &State) -> Option<(usize, f64)> {
        let gains = (0..list.len()).filter(|&c| self.open[c]).map(|c| {
            let prior = dictionary.priors().of(list[c]);
            let factors = Factors::new(self.overlap[(c, c)], self.q[c], prior);
            (c, dictionary.gain(list[c], &factors, state))
        });
        gains
            .filter(|g| g.1 > 0.0)
            .fold(None, |best: Option<(usize, f64)>, g| match best {
                Some(b) if g.1 <= b.1 => Some(b),
                _ => Some(g),
            })
    }

    /// Closes member `c` and, if it has a finite alpha, updates the others for its addition.
    fn condition_on(&mut self, c: usize, factors: &Factors) {
        self.open[c] = false;
        let Some(alpha) = factors.optimal_alpha() else {
            return;
        };
        let variance = 1.0 / (alpha + factors.first.s);
        let mean = variance * factors.first.q;
        let column = self.overlap.column(c).clone_owned();
        self.overlap.ger(-variance, &column, &column, 1.0);
        for (q, overlap) in self.q.iter_mut().zip(column.iter()) {
            *q -= mean * overlap;
        }
    }
}
