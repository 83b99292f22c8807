//! S and Q of every function of the dictionary, and the choice of additions.

use std::collections::{BTreeMap, HashMap};

use crate::Result;
use crate::data::{Facts, Statistics};
use crate::fit::candidates::{FactorTable, first, load_lanes, ranked};
use crate::fit::evidence::{Factors, Priors, Term};
use crate::fit::model::{Level, Model};
use crate::fit::settings::Rules;
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::Matrix;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, solve_lanes_transposed};
use crate::parallel::map_pieces;

/// Active functions, alphas, means and noise precisions of a model.
type ModelKey = (Vec<usize>, Vec<f64>, Vec<f64>, Vec<f64>);

/// S, Q and Gram columns over the dictionary.
///
/// Between calls `gram` holds Phi^T W phi_j for every active j, and for some that were active before. `diag` and `gradient`
/// were computed by the last [`Dictionary::refresh`]; S and Q belong to `factors_model`.
pub(crate) struct Dictionary {
    pub(crate) gram: HashMap<usize, Vec<f64>>,
    /// phi_i^T W phi_i of every function.
    pub(crate) diag: Vec<f64>,
    /// Products of every function with the working residual of each output, one output after the other.
    gradient: Vec<f64>,
    /// Functions at the last pass, to which `gradient` belongs, with the weight for each output.
    weights: Vec<(usize, Vec<f64>)>,
    pub(crate) factors: FactorTable,
    /// The model to which S and Q belong; `None` after a pass.
    factors_model: Option<ModelKey>,
    /// How often each function was added or offered.
    entries: Vec<u8>,
    /// Part of [`Factors::gain_of_adding`] that does not count: the cost of a function in the objective.
    pub(crate) penalty: f64,
}

impl Dictionary {
    pub(crate) fn new(n_basis: usize, priors: Priors) -> Self {
        Self {
            gram: HashMap::new(),
            diag: Vec::new(),
            gradient: Vec::new(),
            weights: Vec::new(),
            factors: FactorTable::new(priors),
            factors_model: None,
            entries: vec![0; n_basis],
            penalty: 0.0,
        }
    }

    /// An empty one, with the priors of the rules in the units of the data.
    pub(crate) fn of(facts: &Facts, rules: &Rules) -> Self {
        let priors = Priors::new(rules.alpha_prior, &facts.norms, facts.target_scale);
        Self::new(facts.n_basis(), priors)
    }

    /// One pass over the data: recomputes everything here and the model's quadratic model at the posterior mean.
    pub(crate) fn refresh(&mut self, stats: &mut dyn Statistics, model: &mut Model) -> Result<()> {
        let is_linear = stats.facts().is_linear;
        if !is_linear {
            self.gram.clear();
        }
        self.drop_spare_columns(model);
        let is_unknown = |j: &usize| !self.gram.contains_key(j);
        let wanted: Vec<usize> = model.active.iter().copied().filter(is_unknown).collect();
        let mu = model.means();
        let sweep = stats.sweep(&model.active, &mu, &wanted)?;
        let weights = |k: usize| model.outputs.iter().map(|o| o.mu[k]).collect();
        let active = model.active.iter().enumerate();
        self.weights = active.map(|(k, &j)| (j, weights(k))).collect();
        self.gram.extend(wanted.into_iter().zip(sweep.gram));
        self.diag = sweep.diag;
        self.gradient = sweep.gradient;
        self.factors_model = None;
        // S is a difference, so both terms need the working weights W of the new reference.
        let gram = (!is_linear).then(|| {
            Matrix::from_fn(model.len(), model.len(), |a, b| {
                self.gram[&model.active[a.min(b)]][model.active[a.max(b)]]
            })
        });
        let gradient = self.gradient_of(&model.active);
        model.set_data(&mu, &gradient, &sweep.deviances, gram.as_ref())?;
        self.update_factors(model);
        Ok(())
    }

    /// Copies the Gram columns of the active functions from a working set of all candidates, so that no pass has to compute them.
    pub(crate) fn take_columns(&mut self, set: &WorkingSet, model: &Model) {
        for &j in &model.active {
            let n_basis = self.diag.len();
            self.gram.entry(j).or_insert_with(|| {
                let mut column = vec![0.0; n_basis];
                for (&i, &product) in set.members.iter().zip(set.gram.column(set.place(j))) {
                    column[i] = product;
                }
                column
            });
        }
    }

    /// Whether the Gram columns of all active functions are known.
    pub(crate) fn has_columns(&self, model: &Model) -> bool {
        model.active.iter().all(|j| self.gram.contains_key(j))
    }

    /// S and Q of every candidate for the present model, whose Gram columns have to be known.
    pub(crate) fn update_factors(&mut self, model: &Model) {
        let key = (
            model.active.clone(),
            model.alpha.clone(),
            model.means(),
            model.betas(),
        );
        if self.factors_model.as_ref() == Some(&key) {
            return;
        }
        self.factors_model = Some(key);
        let active = model.active.iter();
        let columns: Vec<&[f64]> = active.map(|j| self.gram[j].as_slice()).collect();
        let outputs = 0..model.outputs.len();
        let changes = outputs.map(|c| self.weight_changes(model, c));
        let changes: Vec<Vec<_>> = changes
            .map(|of| {
                of.into_iter()
                    .map(|(j, w)| (w, &self.gram[&j][..]))
                    .collect()
            })
            .collect();
        let gradients: Vec<&[f64]> = self.gradient.chunks_exact(self.n_basis().max(1)).collect();
        self.factors
            .compute(model, &columns, &self.diag, &gradients, &changes);
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
    fn drop_spare_columns(&mut self, model: &Model) {
        if self.gram.len() > 2 * model.len() + Tuning::SAMPLE_SIZE {
            let weights = &self.weights;
            self.gram
                .retain(|j, _| model.active.contains(j) || weights.iter().any(|w| w.0 == *j));
        }
    }

    pub(crate) fn n_basis(&self) -> usize {
        self.diag.len()
    }

    pub(crate) fn priors(&self) -> &Priors {
        &self.factors.priors
    }

    /// Products of these functions with the residual at the last pass, one output after the other.
    pub(crate) fn gradient_of(&self, functions: &[usize]) -> Vec<f64> {
        let outputs = self.gradient.chunks_exact(self.n_basis().max(1));
        outputs
            .flat_map(|gradient| functions.iter().map(|&j| gradient[j]))
            .collect()
    }

    /// Whether each function is a candidate: inactive and not a zero column.
    pub(crate) fn inactive(&self, model: &Model) -> Vec<bool> {
        let mut inactive: Vec<bool> = self.diag.iter().map(|&d| d > 0.0).collect();
        model.active.iter().for_each(|&j| inactive[j] = false);
        inactive
    }

    /// Functions whose weights for output `c` have changed since the last pass, with the changes.
    fn weight_changes(&self, model: &Model, c: usize) -> Vec<(usize, f64)> {
        let weights = self.weights.iter();
        let mut change: BTreeMap<usize, f64> = weights.map(|(j, mu)| (*j, -mu[c])).collect();
        for (&j, &mu) in model.active.iter().zip(&model.outputs[c].mu) {
            *change.entry(j).or_default() += mu;
        }
        change.into_iter().filter(|c| c.1 != 0.0).collect()
    }

    /// The gain of adding candidate `i` with these factors; 0 if it may not be added.
    pub(crate) fn gain(&self, i: usize, f: &Factors, model: &Model) -> f64 {
        let least = self.penalty + Tuning::MIN_GAIN;
        let is_excluded = self.entries[i] >= Tuning::MAX_ENTRIES;
        if is_excluded || f.bound() <= least || !model.resolves(f, self.diag[i]) {
            return 0.0;
        }
        match f.best_above(0.0) {
            Some((_, gain)) if gain > least => gain - self.penalty,
            _ => 0.0,
        }
    }

    /// Whether a candidate that may not be added would gain.
    pub(crate) fn excludes_gain(&self, model: &Model) -> bool {
        (0..self.n_basis()).any(|i| {
            if model.active.contains(&i) || self.diag[i] <= 0.0 {
                return false;
            }
            let f = &self.factors.of(i, model);
            if model.resolves(f, self.diag[i]) {
                return self.entries[i] >= Tuning::MAX_ENTRIES
                    && f.gain_of_adding() > self.penalty + 10.0 * Tuning::MIN_GAIN;
            }
            // S is not resolved, so the function cannot be added; but its gain may be certain with the largest S possible. Round-off of S
            // cannot cause so large a gain, not even for a duplicate of an active function.
            let bounded = |(term, level): (Term, &Level)| Term {
                s: term
                    .s
                    .max(Tuning::ROUNDING * level.noise.beta * self.diag[i]),
                ..term
            };
            let mut terms = f.terms().zip(&model.levels).map(bounded);
            let first = terms.next().unwrap_or(f.first);
            Factors::of_levels(first, terms, f.prior).gain_of_adding()
                > self.penalty + Tuning::MIN_SEARCH_GAIN
        })
    }

    /// Whether some candidate has a positive gain.
    pub(crate) fn has_gain(&self, model: &Model) -> bool {
        self.largest_gain(model) > 0.0
    }

    /// The largest gain of a candidate.
    pub(crate) fn largest_gain(&self, model: &Model) -> f64 {
        self.scores(model, |i| self.gain(i, &self.factors.of(i, model), model))
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

    /// Keeps candidate `i` out.
    pub(crate) fn exclude(&mut self, i: usize) {
        self.entries[i] = Tuning::MAX_ENTRIES;
    }

    /// Whether some function was added again and again.
    pub(crate) fn has_reentries(&self) -> bool {
        self.entries.iter().any(|&e| e > 2)
    }

    /// At most `limit` candidates with positive gains, largest first.
    pub(crate) fn best_candidates(&self, model: &Model, limit: usize) -> Vec<usize> {
        let gain = |i: usize| self.gain(i, &self.factors.of(i, model), model);
        ranked(self.scores(model, gain), limit)
    }

    /// At most `limit` candidates by q^2 / s, including some that would gain only after the others have changed.
    pub(crate) fn near_candidates(&self, model: &Model, limit: usize) -> Vec<usize> {
        let score = |i: usize| {
            let f = &self.factors.of(i, model);
            let ratio = f.terms().map(Term::ratio).fold(0.0, f64::max);
            if ratio > Tuning::MIN_NEAR_RATIO && model.resolves(f, self.diag[i]) {
                ratio
            } else {
                0.0
            }
        };
        ranked(self.scores(model, score), limit)
    }

    /// The score of every candidate with its index.
    fn scores<'s>(
        &'s self,
        model: &'s Model,
        score: impl Fn(usize) -> f64 + 's,
    ) -> impl Iterator<Item = (f64, usize)> + 's {
        let inactive = self.inactive(model);
        (0..self.n_basis())
            .filter(move |&i| inactive[i])
            .map(move |i| (score(i), i))
    }

    /// For each active function the candidates that would gain most after its deletion.
    ///
    /// Tipping & Faul (2003), A.4: with `u = beta Sigma Phi^T phi_i`, deleting k adds `u_k^2 / Sigma_kk` to s of candidate i and
    /// `u_k mu_k / Sigma_kk` to q. The gain increases with q^2 / s, by which candidates are ranked; of several outputs with the sum.
    pub(crate) fn substitutes(&self, model: &Model) -> Vec<usize> {
        let active = model.active.iter();
        let columns: Vec<&[f64]> = active.map(|j| self.gram[j].as_slice()).collect();
        let levels = model.levels.iter();
        let lower: Vec<_> = levels.map(|level| pack_lower(&level.chol)).collect();
        let (inactive, least) = (self.inactive(model), Tuning::MIN_ORTHOGONAL_PART);
        let pieces = map_pieces(self.n_basis(), LANES, |range| {
            let mut scores = vec![[0.0; LANES]; model.len()];
            for (l, level) in model.levels.iter().enumerate() {
                let (beta, mut u) = (level.noise.beta, vec![[0.0; LANES]; columns.len()]);
                load_lanes(&columns, range.clone(), beta, &mut u);
                solve_lanes(&lower[l], 0, &mut u);
                solve_lanes_transposed(&lower[l], &mut u);
                for (lane, i) in range.clone().enumerate().filter(|&(_, i)| inactive[i]) {
                    let (own, error) = (self.factors.s[l][i], least * beta * self.diag[i]);
                    for (k, (u, scores)) in u.iter().zip(&mut scores).enumerate() {
                        let ratio = u[lane] * (1.0 / level.sigma[(k, k)]);
                        let s = own + u[lane] * ratio;
                        if s > error {
                            for c in model.outputs_of(l) {
                                let q = self.factors.q[c][i] + ratio * model.outputs[c].mu[k];
                                scores[lane] += q * (q / s);
                            }
                        }
                    }
                }
            }
            let best = |scores: &[f64; LANES]| {
                let keys = scores
                    .iter()
                    .map(|score| score.to_bits())
                    .zip(range.clone());
                first(keys.filter(|key| key.0 > 0).collect(), Tuning::SUBSTITUTES)
            };
            scores.iter().map(best).collect::<Vec<_>>()
        });
        let of_function = |k: usize| {
            let keys = pieces.iter().flat_map(|piece| &piece[k]).copied();
            first(keys.collect(), Tuning::SUBSTITUTES)
        };
        let best = model.penalized().flat_map(of_function);
        best.map(|(_, i)| i).collect()
    }
}
