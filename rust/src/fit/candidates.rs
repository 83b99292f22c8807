//! S and Q of inactive functions, and those of a working set updated at every step.

use crate::fit::evidence::{Factors, Priors, gain_of_excess};
use crate::fit::model::{Model, Projection};
use crate::fit::tuning::Tuning;
use crate::fit::working_set::WorkingSet;
use crate::linalg::batched_triangular::{
    LANES, pack_lower, solve_lanes, solve_lanes_transposed, square_lanes,
};
use crate::linalg::columns::AlignedColumns;
use crate::linalg::gemm::{add_combination, add_combinations};
use crate::linalg::vector::{axpy, head};
use crate::parallel::fill_pieces_of;

/// S and rho at each noise level and Q of each output, of every function of a working set or dictionary: equations (24) and (25).
///
/// With g the products of a function with the active ones, times beta, `rho = S - g^T Sigma A Sigma g`.
#[derive(Clone, Default)]
pub(crate) struct FactorTable {
    pub(crate) s: Vec<AlignedColumns>,
    pub(crate) q: Vec<AlignedColumns>,
    /// Empty without a complexity prior.
    pub(crate) rho: Vec<AlignedColumns>,
    pub(crate) priors: Priors,
}

impl FactorTable {
    pub(crate) fn new(priors: Priors) -> Self {
        Self {
            priors,
            ..Self::default()
        }
    }

    /// Computes S and Q of all functions from scratch. `columns` are their products with the active functions, `diag` those with
    /// themselves. Of output c, `gradients[c]` are the products with a residual, and `changes[c]` columns and weights that were added to
    /// the model since.
    pub(crate) fn compute(
        &mut self,
        model: &Model,
        columns: &[&[f64]],
        diag: &[f64],
        gradients: &[&[f64]],
        changes: &[Vec<(f64, &[f64])>],
    ) {
        let (n, m) = (diag.len(), columns.len());
        let fit_to = |table: &mut Vec<AlignedColumns>, len: usize| {
            if table.len() != len || table.iter().any(|column| column.len() != n) {
                *table = vec![AlignedColumns::zeros(n); len];
            }
        };
        fit_to(&mut self.s, model.levels.len());
        fit_to(&mut self.q, model.outputs.len());
        let has_rho = model.complexity > 0.0;
        fit_to(&mut self.rho, if has_rho { model.levels.len() } else { 0 });
        for (l, level) in model.levels.iter().enumerate() {
            let (beta, lower) = (level.noise.beta, pack_lower(&level.chol));
            let mut found = vec![[0.0; 2]; n];
            let work = m * m * n * (1 + usize::from(has_rho));
            fill_pieces_of(work, &mut found, Tuning::PIECE, |start, found| {
                let mut lanes = vec![[0.0; LANES]; m];
                for (k, found) in found.chunks_mut(LANES).enumerate() {
                    let first = start + k * LANES;
                    load_lanes(columns, first..first + found.len(), beta, &mut lanes);
                    solve_lanes(&lower, 0, &mut lanes);
                    let terms = diag[first..].iter().zip(square_lanes(&lanes));
                    for ([s, _], (own, overlap)) in found.iter_mut().zip(terms) {
                        *s = beta * own - overlap;
                    }
                    if !has_rho {
                        continue;
                    }
                    solve_lanes_transposed(&lower, &mut lanes);
                    for (lane, [s, rho]) in found.iter_mut().enumerate() {
                        let weights = lanes.iter().zip(&model.alpha);
                        let shrunk: f64 = weights.map(|(u, a)| a * u[lane] * u[lane]).sum();
                        *rho = *s - shrunk;
                    }
                }
            });
            let both = self.s[l].iter_mut().zip(&found);
            both.for_each(|(s, found)| *s = found[0]);
            if let Some(rho) = self.rho.get_mut(l) {
                let both = rho.iter_mut().zip(&found);
                both.for_each(|(rho, found)| *rho = found[1]);
            }
        }
        for (c, q) in self.q.iter_mut().enumerate() {
            let beta = model.levels[model.level_of(c)].noise.beta;
            fill_pieces_of(changes[c].len() * n, q, Tuning::PIECE, |start, q| {
                let range = start..start + q.len();
                q.copy_from_slice(&gradients[c][range.clone()]);
                for &(weight, column) in &changes[c] {
                    axpy(-weight, &column[range.clone()], q);
                }
                for q in q {
                    *q *= beta;
                }
            });
        }
    }

    /// The factors of inactive function `i` beside the model.
    pub(crate) fn of(&self, i: usize, model: &Model) -> Factors {
        let (s, q) = (|l: usize| self.s[l][i], |c: usize| self.q[c][i]);
        model.combine(s, q, |l| self.rho[l][i], self.priors.of(i))
    }

    fn set(&mut self, i: usize, own: Projection) {
        let rho = self.rho.iter_mut().zip(own.rho);
        rho.for_each(|(all, rho)| all[i] = rho);
        self.s.iter_mut().zip(own.s).for_each(|(all, s)| all[i] = s);
        self.q.iter_mut().zip(own.q).for_each(|(all, q)| all[i] = q);
    }
}

/// An update of the model by appendix A, as seen from the model before it, or after an addition.
#[derive(Clone, Copy)]
pub(crate) enum Update {
    Addition,
    /// By this change of alpha.
    Reestimation(f64),
    Deletion,
}

impl Update {
    /// c of [`Candidates::shift`].
    fn coefficient(self, variance: f64) -> f64 {
        match self {
            Self::Addition => -1.0 / variance,
            Self::Reestimation(delta) => delta / (1.0 + delta * variance),
            Self::Deletion => 1.0 / variance,
        }
    }

    /// The coefficient of w^2 by which rho changes beyond S, given y. An addition is the reverse of a deletion.
    fn bend(self, variance: f64, y: f64) -> f64 {
        let c = self.coefficient(variance);
        match self {
            Self::Addition => c * c * y,
            Self::Reestimation(delta) => -c * c * y - delta * (1.0 - c * variance).powi(2),
            Self::Deletion => -c * c * y,
        }
    }
}

/// beta times these rows of the columns, one row per lane.
pub(crate) fn load_lanes(
    columns: &[&[f64]],
    rows: std::ops::Range<usize>,
    beta: f64,
    lanes: &mut [[f64; LANES]],
) {
    for (lane, column) in lanes.iter_mut().zip(columns) {
        for (v, g) in lane.iter_mut().zip(&column[rows.clone()]) {
            *v = beta * g;
        }
    }
}

/// The candidates of a working set.
///
/// Between calls S and Q belong to the present model; those of active functions are undefined.
#[derive(Clone)]
pub(crate) struct Candidates {
    pub(crate) factors: FactorTable,
    /// Whether a member may be added: inactive and not excluded.
    pub(crate) open: Vec<bool>,
    /// How often each member was added.
    entries: Vec<u8>,
    /// Two columns for [`Candidates::shift`] and [`Candidates::products`].
    work: [AlignedColumns; 2],
}

impl Candidates {
    pub(crate) fn new(set: &WorkingSet, model: &Model) -> Self {
        let mut this = Self {
            factors: FactorTable::new(set.priors.clone()),
            open: vec![false; set.len()],
            entries: vec![0; set.len()],
            work: std::array::from_fn(|_| AlignedColumns::zeros(set.len())),
        };
        this.refresh(set, model);
        this
    }

    /// Computes S and Q from scratch.
    pub(crate) fn refresh(&mut self, set: &WorkingSet, model: &Model) {
        (0..set.len()).for_each(|i| self.set_open(i, true));
        model.active.iter().for_each(|&j| self.set_open(j, false));
        let columns = set.columns(&model.active);
        let weights = |mu: &[f64]| mu.iter().copied().zip(columns.iter().copied()).collect();
        let changes: Vec<Vec<_>> = model.outputs.iter().map(|o| weights(&o.mu)).collect();
        let outputs = 0..model.outputs.len();
        let projections: Vec<&[f64]> = outputs.map(|c| set.projections_of(c)).collect();
        let diag = set.gram.diagonal();
        self.factors
            .compute(model, &columns, diag, &projections, &changes);
    }

    /// The addition with the largest gain, if that exceeds `min_gain`.
    pub(crate) fn best_addition(
        &self,
        set: &WorkingSet,
        model: &Model,
        min_gain: f64,
    ) -> Option<(usize, f64)> {
        let ([s], [q], [], true) = (
            &self.factors.s[..],
            &self.factors.q[..],
            &self.factors.rho[..],
            self.factors.priors.are_flat(),
        ) else {
            return self.best_among_all(set, model, min_gain);
        };
        let min_s = Tuning::MIN_ORTHOGONAL_PART * model.beta();
        let best = largest_ratio(s, q, &self.open, set.gram.diagonal(), min_s)?;
        let gain = self.factors.of(best, model).gain_of_adding();
        (gain > Tuning::MIN_GAIN.max(min_gain)).then_some((best, gain))
    }

    /// [`Candidates::best_addition`] where gains do not rise with q^2 / s: with several outputs, with informative priors, or
    /// with a prior on complexity.
    fn best_among_all(
        &self,
        set: &WorkingSet,
        model: &Model,
        min_gain: f64,
    ) -> Option<(usize, f64)> {
        let min_gain = min_gain.max(Tuning::MIN_GAIN);
        let bounds = self.bounds(model).into_iter().enumerate();
        let mut bounds: Vec<(f64, usize)> = bounds
            .filter(|&(i, bound)| bound > min_gain && self.open[i])
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
            let factors = self.factors.of(i, model);
            if !model.resolves(&factors, set.gram.diagonal()[i]) {
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
    fn bounds(&self, model: &Model) -> Vec<f64> {
        let mut bounds = vec![0.0; self.open.len()];
        let mut squares = vec![0.0; self.open.len()];
        for (l, s) in self.factors.s.iter().enumerate() {
            let outputs = model.outputs_of(l);
            let n = outputs.len() as f64;
            squares.fill(0.0);
            for q in &self.factors.q[outputs] {
                squares
                    .iter_mut()
                    .zip(q.iter())
                    .for_each(|(sum, q)| *sum += q * q);
            }
            let by = -2.0 * model.complexity * n;
            let rho = self.factors.rho.get(l).into_iter().flat_map(|rho| &**rho);
            let both = squares.iter_mut().zip(rho);
            both.for_each(|(sum, rho)| *sum += by * rho.max(0.0));
            for (bound, (square, s)) in bounds.iter_mut().zip(squares.iter().zip(s.iter())) {
                *bound += gain_of_excess(n, square / (n * s) - 1.0);
            }
        }
        bounds
    }

    /// `S += c w^2` and `Q += c mu_k w` with `w_i = beta Sigma_k^T Phi^T phi_i` and c the coefficient of the update: every update of
    /// appendix A has this form.
    ///
    /// rho = S - g^T Sigma A Sigma g with g = beta Phi^T phi_i. The update takes c Sigma_k Sigma_k^T from Sigma, so with
    /// x = g^T Sigma A Sigma_k and y = (Sigma A Sigma)_kk it adds `c w^2 + 2 c w x - (c^2 y + d) w^2`, where d is the change of
    /// alpha_k times (1 - c Sigma_kk)^2: see [`Update::bend`].
    pub(crate) fn shift(&mut self, set: &WorkingSet, model: &Model, k: usize, update: Update) {
        let columns = set.columns(&model.active);
        let [w, x] = &mut self.work;
        for (l, level) in model.levels.iter().enumerate() {
            let (beta, variance) = (level.noise.beta, level.sigma[(k, k)]);
            let c = update.coefficient(variance);
            let covariances = head(&level.sigma, k, model.len());
            w.fill(0.0);
            if model.complexity > 0.0 {
                let shrunk = model.shrunk_covariances(k, l);
                let bend = c + update.bend(variance, shrunk[k]);
                x.fill(0.0);
                add_combinations(&columns, [covariances, &shrunk], [&mut **w, &mut **x]);
                let products = w.iter().zip(x.iter());
                for (rho, (w, x)) in self.factors.rho[l].iter_mut().zip(products) {
                    *rho += beta * beta * w * (bend * w + 2.0 * c * x);
                }
            } else {
                add_combination(&columns, covariances, w);
            }
            for (s, w) in self.factors.s[l].iter_mut().zip(w.iter()) {
                *s += c * beta * beta * (w * w);
            }
            for output in model.outputs_of(l) {
                let by = c * model.outputs[output].mu[k] * beta;
                axpy(by, w, &mut self.factors.q[output]);
            }
        }
    }

    /// `beta x^T Phi^T phi_i` of every member i at level `l`, with x given for each active function.
    pub(crate) fn products(
        &mut self,
        set: &WorkingSet,
        model: &Model,
        l: usize,
        x: &[f64],
    ) -> Vec<f64> {
        let [work, _] = &mut self.work;
        work.fill(0.0);
        add_combination(&set.columns(&model.active), x, work);
        let beta = model.levels[l].noise.beta;
        work.iter().map(|w| beta * w).collect()
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

    /// Counts an attempt to add member `i`.
    pub(crate) fn count_entry(&mut self, i: usize) {
        self.entries[i] = self.entries[i].saturating_add(1);
    }

    /// Closes member `i`, the last active function, and updates the others for its addition: appendix A.2.
    pub(crate) fn condition_on_last(&mut self, set: &WorkingSet, model: &Model) {
        let k = model.len() - 1;
        self.open[model.active[k]] = false;
        self.shift(set, model, k, Update::Addition);
    }

    /// Opens member `i`, which was deleted. The update of its own factors would be a difference of equal terms: they come from the data.
    pub(crate) fn reopen(&mut self, set: &WorkingSet, model: &Model, i: usize) {
        self.set_open(i, true);
        let own = model.project(&set.candidate(i, model));
        self.factors.set(i, own);
    }
}

/// The open member with the largest q^2 / s above 1 whose s exceeds `min_s` times its entry of `diag`.
///
/// Under flat priors gains rise with q^2 / s. Comparing products avoids logarithms and divisions.
fn largest_ratio(s: &[f64], q: &[f64], open: &[bool], diag: &[f64], min_s: f64) -> Option<usize> {
    let (mut best, mut best_square, mut best_s) = (None, 1.0, 1.0);
    for (i, (((&s, &q), &open), d)) in s.iter().zip(q).zip(open).zip(diag).enumerate() {
        let square = q * q;
        if open && s > min_s * d && square * best_s > (1.0 + Tuning::TIE) * best_square * s {
            (best, best_square, best_s) = (Some(i), square, s);
        }
    }
    best
}

// The best few of many scores, best first. Of equal scores the lower index comes first.

/// Indices of at most `limit` positive scores, highest first.
pub(crate) fn ranked(scores: impl Iterator<Item = (f64, usize)>, limit: usize) -> Vec<usize> {
    let scores = scores
        .filter(|&(score, _)| score > 0.0)
        // Scores equal to nine digits are ties: round-off must not choose the model.
        .map(|(score, i)| (score.to_bits() >> 22, i));
    indices(first(scores.collect(), limit))
}

/// Indices of at most `limit` products, largest absolute value first, compared exactly.
pub(crate) fn most_aligned(
    products: impl Iterator<Item = (f64, usize)>,
    limit: usize,
) -> Vec<usize> {
    // Non-negative floats are ordered like their bits.
    let sizes = products.map(|(product, i)| (product.abs().to_bits(), i));
    indices(first(sizes.collect(), limit))
}

fn indices(ranked: Vec<(u64, usize)>) -> Vec<usize> {
    ranked.into_iter().map(|(_, i)| i).collect()
}

/// At most `limit` of these keys with their indices, highest first.
pub(crate) fn first(mut ranked: Vec<(u64, usize)>, limit: usize) -> Vec<(u64, usize)> {
    let order = |a: &(u64, usize), b: &(u64, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
    if ranked.len() > limit {
        ranked.select_nth_unstable_by(limit, order);
        ranked.truncate(limit);
    }
    ranked.sort_unstable_by(order);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_ranked_and_ties_go_to_the_lowest_index() {
        let scores = [
            (2.0, 7),
            (-5.0, 1),
            (3.0, 4),
            (3.0 + 1e-12, 6),
            (0.0, 0),
            (9.0, 9),
        ];
        let of = |limit: usize| ranked(scores.into_iter(), limit);
        assert_eq!(of(10), [9, 4, 6, 7]);
        assert_eq!(of(2), [9, 4]);
        assert!(of(0).is_empty());
    }

    #[test]
    fn the_first_of_tied_largest_ratios_is_found() {
        let find = |s: &[f64], q: &[f64], open: &[bool]| largest_ratio(s, q, open, &[0.1; 9], 1.0);
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
