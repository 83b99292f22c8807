//! The view over all K candidates: their sparsity and quality, and which to add.

use std::collections::{BTreeMap, HashMap};

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Statistics, Sweep};
use crate::fit::conditional_gains::Conditional;
use crate::fit::evidence::Factors;
use crate::fit::model::{Entrant, State};
use crate::fit::prior::Priors;
use crate::fit::ranking::ranked;
use crate::fit::record::{Action, Recorder, Stop};
use crate::fit::settings::{
    ALIGNED, BLOCK_RATIO, LEAST_ENTRIES, LEAST_GAIN, MOST_ENTRIES, SHORTLIST,
};
use crate::fit::working_set::WorkingSet;
use crate::linalg::batched_triangular::{LANES, pack_lower, solve_lanes, square_lanes};
use crate::linalg::vector::axpy;
use crate::parallel::map_pieces;

/// S, Q and Gram columns over the dictionary.
///
/// Between calls `gram` holds Phi^T W phi_j for every active j (and others that were active once). `diag`,
/// `gradient` are those at the last [`Dictionary::refresh`], at the weights `seen`; `factors` belong to the state as it was
/// when last asked for.
pub(crate) struct Dictionary {
    gram: HashMap<usize, Vec<f64>>,
    diag: Vec<f64>,
    gradient: Vec<f64>,
    /// Functions and weights at the last pass, to which `gradient` belongs.
    seen: Vec<(usize, f64)>,
    factors: Vec<Factors>,
    /// The model to which `factors` belong; none once a pass has brought something new.
    priced: Option<Priced>,
    entries: Vec<u8>,
    priors: Priors,
    /// What a function has to gain beyond [`Factors::gain_of_adding`] to be let in.
    toll: f64,
    /// Part of its length (squared) that a candidate has outside the span of the model where S is more than the error of the last pass.
    resolved: f64,
}

/// What factors of sparsity and quality depend on, beside the data.
#[derive(PartialEq)]
struct Priced {
    active: Vec<usize>,
    alpha: Vec<f64>,
    beta: f64,
    mu: Vec<f64>,
}

impl Priced {
    fn of(state: &State) -> Self {
        Self {
            active: state.active.clone(),
            alpha: state.alpha.clone(),
            beta: state.beta,
            mu: state.mu.clone(),
        }
    }
}

impl Dictionary {
    pub(crate) fn new(n_basis: usize, priors: Priors) -> Self {
        Self {
            gram: HashMap::new(),
            diag: Vec::new(),
            gradient: Vec::new(),
            seen: Vec::new(),
            factors: Vec::new(),
            priced: None,
            entries: vec![0; n_basis],
            priors,
            toll: 0.0,
            resolved: ALIGNED,
        }
    }

    /// Lets in only what gains more than `toll`, none of which counts as gain.
    pub(crate) fn with_toll(self, toll: f64) -> Self {
        Self { toll, ..self }
    }

    /// One pass over the data: everything here, and the state's quadratic model, taken anew at the state's mean.
    pub(crate) fn refresh(&mut self, stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
        let (wanted, mu) = (self.columns_wanted(stats, state), state.mu.clone());
        let sweep = stats.sweep(&state.active, &mu, &wanted)?;
        let deviance = self.take(sweep, wanted, state);
        self.resolved = ALIGNED;
        let active_gradient: Vec<f64> = state.active.iter().map(|&j| self.gradient[j]).collect();
        // Working weights are those at the new reference too: S is a difference, and its terms have to match.
        let gram = (!stats.is_linear()).then(|| {
            DMatrix::from_fn(state.len(), state.len(), |a, b| {
                self.gram[&state.active[a.min(b)]][state.active[a.max(b)]]
            })
        });
        state.set_data(&mu, &active_gradient, deviance, gram.as_ref())?;
        self.reprice(state);
        Ok(())
    }

    /// The same by [`Statistics::approximate_sweep`], if that is less work: to choose a pool by. The state is at a mode, and stays as it is.
    pub(crate) fn refresh_nearly(
        &mut self,
        stats: &mut dyn Statistics,
        state: &mut State,
    ) -> Result<()> {
        /// Well above what such a pass leaves out.
        const RESOLVED: f64 = 1e-5;
        let wanted = self.columns_wanted(stats, state);
        let Some(sweep) = stats.approximate_sweep(&state.active, &state.mu, &wanted)? else {
            return self.refresh(stats, state);
        };
        self.take(sweep, wanted, state);
        self.resolved = RESOLVED;
        self.reprice(state);
        Ok(())
    }

    /// Active functions whose Gram columns a pass has to bring.
    fn columns_wanted(&mut self, stats: &dyn Statistics, state: &State) -> Vec<usize> {
        if !stats.is_linear() {
            self.gram.clear();
        }
        self.forget_spare_columns(state);
        let known = |j: &&usize| self.gram.contains_key(j);
        state.active.iter().filter(|j| !known(j)).copied().collect()
    }

    /// Keeps what a pass has brought, but for the deviance.
    fn take(&mut self, sweep: Sweep, wanted: Vec<usize>, state: &State) -> f64 {
        let weights = state.active.iter().copied().zip(state.mu.iter().copied());
        self.seen = weights.collect();
        self.gram.extend(wanted.into_iter().zip(sweep.gram));
        self.diag = sweep.diag;
        self.gradient = sweep.gradient;
        self.priced = None;
        sweep.deviance
    }

    /// Takes the Gram columns of the model out of a pool of all candidates, so that no pass has to bring them.
    pub(crate) fn learn(&mut self, pool: &WorkingSet, state: &State) {
        for &j in &state.active {
            let n_basis = self.diag.len();
            self.gram.entry(j).or_insert_with(|| {
                let mut column = vec![0.0; n_basis];
                for (i, product) in pool.products_with(j) {
                    column[i] = product;
                }
                column
            });
        }
    }

    /// Whether every function of the state was in it at a pass before.
    pub(crate) fn knows(&self, state: &State) -> bool {
        state.active.iter().all(|j| self.gram.contains_key(j))
    }

    /// S and Q of every candidate for a state that has moved since, all its functions having been in it then.
    pub(crate) fn reprice(&mut self, state: &State) {
        let model = Priced::of(state);
        if self.priced.as_ref() != Some(&model) {
            self.factors = self.factors_of_all(state);
            self.priced = Some(model);
        }
    }

    /// Candidates for a first model: all up to `whole` of them, otherwise `size` from all over the dictionary. (Those that
    /// go best with the targets resemble one another; starting from them costs several nats at the end.)
    pub(crate) fn sample(&self, size: usize, whole: usize) -> Vec<usize> {
        let candidates: Vec<usize> = (0..self.n_basis())
            .filter(|&i| self.diag[i] > 0.0)
            .collect();
        if candidates.len() <= whole {
            return candidates;
        }
        (0..size)
            .map(|k| candidates[k * candidates.len() / size])
            .collect()
    }

    /// Functions that are no zero columns.
    pub(crate) fn n_candidates(&self) -> usize {
        self.diag.iter().filter(|&&d| d > 0.0).count()
    }

    /// Drops columns of functions long gone once they outnumber those in use.
    fn forget_spare_columns(&mut self, state: &State) {
        const SPARE: usize = 256;
        if self.gram.len() > 2 * state.len() + SPARE {
            let seen = &self.seen;
            self.gram
                .retain(|j, _| state.active.contains(j) || seen.iter().any(|s| s.0 == *j));
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

    /// phi_j^T W phi_i, j being active.
    pub(crate) fn product(&self, j: usize, i: usize) -> f64 {
        self.gram[&j][i]
    }

    /// Whether each function is a candidate: outside the model and not a zero column.
    pub(crate) fn outside(&self, state: &State) -> Vec<bool> {
        let mut outside: Vec<bool> = self.diag.iter().map(|&d| d > 0.0).collect();
        state.active.iter().for_each(|&j| outside[j] = false);
        outside
    }

    /// Whether S is more than the rounding that is left of an almost dependent function.
    pub(crate) fn resolves(&self, i: usize, f: Factors, state: &State) -> bool {
        f.s > self.least_sparsity(i, state)
    }

    /// S below which it is nothing but rounding, or the error of the last pass.
    pub(crate) fn least_sparsity(&self, i: usize, state: &State) -> f64 {
        self.resolved * state.beta * self.diag[i]
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

    /// Weights that are not what they were at the last pass, and by how much.
    fn moved(&self, state: &State) -> Vec<(usize, f64)> {
        let mut change: BTreeMap<usize, f64> = self.seen.iter().map(|&(j, mu)| (j, -mu)).collect();
        for (&j, &mu) in state.active.iter().zip(&state.mu) {
            *change.entry(j).or_default() += mu;
        }
        change.into_iter().filter(|c| c.1 != 0.0).collect()
    }

    /// S and Q of every candidate: equations (24) and (25).
    fn factors_of_all(&self, state: &State) -> Vec<Factors> {
        let columns = self.active_columns(state);
        let moved = self.moved(state);
        let lower = pack_lower(state.chol());
        let pieces = map_pieces(self.n_basis(), LANES, |range| {
            let mut v = self.scaled_lanes(&columns, range.start, state.beta);
            solve_lanes(&lower, &mut v);
            let overlap = square_lanes(&v);
            let mut gradient = self.gradient[range.clone()].to_vec();
            for &(j, change) in &moved {
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

    /// Whether candidate `i` is worth its place now.
    pub(crate) fn gain(&self, i: usize, f: Factors, state: &State) -> f64 {
        // A function that keeps coming back for next to nothing must not keep the loop alive.
        let least = match self.entries[i] {
            0..LEAST_ENTRIES => LEAST_GAIN,
            LEAST_ENTRIES..MOST_ENTRIES => 1e-3,
            _ => f64::INFINITY,
        };
        let gain = if self.resolves(i, f, state) {
            f.gain_of_adding() - self.toll
        } else {
            0.0
        };
        if gain > least && f.optimal_alpha().is_some() {
            gain
        } else {
            0.0
        }
    }

    /// Whether a candidate was kept out although it still has something to gain.
    pub(crate) fn refuses(&self, state: &State) -> bool {
        const WORTH_TELLING: f64 = 1e-6;
        /// Relative rounding of S, and a gain that it does not explain: the twin of an active function seems to gain less.
        const BLUR: f64 = 1e-14;
        const SURE: f64 = 0.01;
        (0..self.factors.len()).any(|i| {
            if state.active.contains(&i) || self.diag[i] <= 0.0 {
                return false;
            }
            let f = self.factors[i];
            if self.resolves(i, f, state) {
                return self.entries[i] >= LEAST_ENTRIES
                    && f.gain_of_adding() > self.toll + WORTH_TELLING;
            }
            // Rounding blurs S, and adding the function would spoil the rest; but it may be sure that it has to gain.
            let blurred = Factors {
                s: f.s.max(BLUR * state.beta * self.diag[i]),
                ..f
            };
            blurred.gain_of_adding() > self.toll + SURE
        })
    }

    /// Whether some candidate outside has something to gain.
    pub(crate) fn gains(&self, state: &State) -> bool {
        self.most_to_gain(state) > 0.0
    }

    /// The largest gain outside.
    pub(crate) fn most_to_gain(&self, state: &State) -> f64 {
        let outside = self.outside(state);
        (0..self.factors.len())
            .filter(|&i| outside[i])
            .map(|i| self.gain(i, self.factors[i], state))
            .fold(0.0, f64::max)
    }

    /// Remembers that these were let in, or offered to be.
    pub(crate) fn note_offers(&mut self, candidates: &[usize]) {
        for &i in candidates {
            self.entries[i] = self.entries[i].saturating_add(1);
        }
    }

    /// Whether some function has left and come back more often than chance would have it.
    pub(crate) fn returns(&self) -> bool {
        self.entries.iter().any(|&e| e > 2)
    }

    /// At most `limit` candidates outside with most to gain, best first.
    pub(crate) fn gainers(&self, state: &State, limit: usize) -> Vec<usize> {
        self.best(state, limit, |i| self.gain(i, self.factors[i], state))
    }

    /// At most `limit` candidates outside that gain, or nearly: some may once the others have moved.
    pub(crate) fn contenders(&self, state: &State, limit: usize) -> Vec<usize> {
        const NEARLY: f64 = 0.3;
        self.best(state, limit, |i| {
            let f = self.factors[i];
            let ratio = f.q * (f.q / f.s);
            if ratio > NEARLY && self.resolves(i, f, state) {
                ratio
            } else {
                0.0
            }
        })
    }

    /// Candidates outside with the highest scores above zero, best first.
    fn best(&self, state: &State, limit: usize, score: impl Fn(usize) -> f64) -> Vec<usize> {
        let outside = self.outside(state);
        let scores = (0..self.factors.len())
            .filter(|&i| outside[i])
            .map(|i| (score(i), i));
        ranked(scores, limit)
    }

    /// Adds the best candidates, up to `block` of them, each with the gain it has given those before it; returns how many.
    ///
    /// Call right after [`Dictionary::refresh`].
    pub(crate) fn add(
        &mut self,
        block: usize,
        stats: &mut dyn Statistics,
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<usize, Stop> {
        let list = self.gainers(state, SHORTLIST);
        if list.is_empty() {
            return Ok(0);
        }
        let (gram, _) = stats.among(&list)?;
        let mut conditional = Conditional::new(self, &list, &gram, state);
        let mut first_gain = None;
        let mut entered: Vec<usize> = Vec::new();
        let size_before = state.len();
        while entered.len() < block {
            let Some((c, gain)) = conditional.best(self, &list, state) else {
                break;
            };
            if gain < BLOCK_RATIO * *first_gain.get_or_insert(gain) {
                break;
            }
            let i = list[c];
            let mut products: Vec<f64> = state.active[..size_before]
                .iter()
                .map(|j| self.gram[j][i])
                .collect();
            products.extend(entered.iter().map(|&e| gram[(e, c)]));
            let entrant = Entrant {
                index: i,
                gram: &products,
                gram_self: gram[(c, c)],
                gradient: self.gradient[i],
                prior: self.priors.of(i),
            };
            let projection = state.project(&entrant);
            let factors = projection.1;
            conditional.condition_on(c, factors);
            let Some(alpha) = factors.optimal_alpha() else {
                continue;
            };
            state.add(&entrant, projection, alpha)?;
            entered.push(c);
            self.entries[i] = self.entries[i].saturating_add(1);
            let recentred = state.recentre(stats)?;
            recorder.step(Action::Add(i), Some(factors.gain_of_adding()), state)?;
            if recentred {
                // The gradients here belong to the reference before.
                break;
            }
        }
        Ok(entered.len())
    }
}
