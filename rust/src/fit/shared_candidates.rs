//! The view over all candidates where the classes of a softmax share the alpha of each basis function.
//!
//! A candidate is a basis function with its C weights. Its sparsity factor is the C x C matrix
//! `S_cd = phi^T W_cd phi - v_c^T v_d` with `v_c = L^-1 g_c`, g_c the products of phi on class c with the active functions
//! (equation 24 for several functions at once), and its quality factor the C-vector of those of its weights.

use nalgebra::{DMatrix, DVector};

use super::conditional::Conditional;
use super::dictionary::Dictionary;
use super::prior::{Gamma, Priors};
use super::ranking::ranked;
use super::record::{Action, Halt, Recorder};
use super::settings::{ALIGNED, BLOCK, BLOCK_RATIO, LEAST_ENTRIES, LEAST_GAIN, MOST_ENTRIES};
use super::shared::{Shared, Term};
use super::state::{Entrant, State};
use super::together::{components, contrasts};
use crate::Result;
use crate::linalg::lanes::{LANES, pack_lower, solve_lanes};
use crate::linalg::parallel::map_pieces;
use crate::stats::Statistics;

/// Terms of every basis function, at the state's mode.
///
/// Between calls `terms` belong to the state as it was at the last [`SharedCandidates::refresh`]; those of a function in the
/// model mean nothing. `expanded` counts K C functions, everything else the K basis functions.
pub(super) struct SharedCandidates {
    expanded: Dictionary,
    n_classes: usize,
    n_each: usize,
    contrasts: DMatrix<f64>,
    terms: Vec<Vec<Term>>,
    entries: Vec<u8>,
}

impl SharedCandidates {
    pub(super) fn new(stats: &dyn Statistics) -> Self {
        let (n_basis, n_classes) = (stats.n_basis(), stats.n_predictors());
        Self {
            expanded: Dictionary::new(n_basis, Priors::default()),
            n_classes,
            n_each: n_basis / n_classes,
            contrasts: contrasts(n_classes),
            terms: Vec::new(),
            entries: vec![0; n_basis / n_classes],
        }
    }

    /// One pass over the data: everything here, and the state's quadratic model, taken anew at the state's mean.
    pub(super) fn refresh(&mut self, stats: &mut dyn Statistics, state: &mut State) -> Result<()> {
        self.expanded.refresh(stats, state)?;
        let between = stats.between_predictors()?;
        self.terms = self.terms_of_all(state, &between);
        Ok(())
    }

    /// The expanded functions of basis function `i`.
    fn members(&self, i: usize) -> impl Iterator<Item = usize> + use<> {
        let n_each = self.n_each;
        (0..self.n_classes).map(move |c| c * n_each + i)
    }

    fn terms_of_all(&self, state: &State, between: &[Vec<f64>]) -> Vec<Vec<Term>> {
        let columns = self.expanded.active_columns(state);
        let lower = pack_lower(state.chol());
        let pieces = map_pieces(self.n_each, LANES, |range| {
            let solved = |c: usize| {
                let first = c * self.n_each + range.start;
                let mut v = self.expanded.scaled_lanes(&columns, first, state.beta);
                solve_lanes(&lower, &mut v);
                v
            };
            let v: Vec<Vec<[f64; LANES]>> = (0..self.n_classes).map(solved).collect();
            let of_one = |i: usize| {
                let lane = i - range.start;
                let overlap =
                    |c: usize, d: usize| v[c].iter().zip(&v[d]).map(|(a, b)| a[lane] * b[lane]);
                let mut s = DMatrix::zeros(self.n_classes, self.n_classes);
                let mut pair = 0;
                for c in 0..self.n_classes {
                    s[(c, c)] = self.expanded.factors_of(c * self.n_each + i).s;
                    for d in c + 1..self.n_classes {
                        let value = state.beta * between[pair][i] - overlap(c, d).sum::<f64>();
                        (s[(c, d)], s[(d, c)]) = (value, value);
                        pair += 1;
                    }
                }
                let q = self.members(i).map(|e| self.expanded.factors_of(e).q);
                self.terms_of(i, &s, &q.collect::<Vec<f64>>(), state)
            };
            range.clone().map(of_one).collect::<Vec<_>>()
        });
        pieces.into_iter().flatten().collect()
    }

    /// The terms of function `i` from its factors, without those that are but the rounding of an almost dependent function.
    fn terms_of(&self, i: usize, s: &DMatrix<f64>, q: &[f64], state: &State) -> Vec<Term> {
        let least = self.blur(i, state, ALIGNED);
        let parts = components(s, &DVector::from_column_slice(q), &self.contrasts);
        let resolved = parts
            .into_iter()
            .filter(|&(s, _)| s > least && s > f64::MIN_POSITIVE);
        resolved
            .map(|(s, q)| Term {
                n: 1.0,
                s,
                power: q * q,
            })
            .collect()
    }

    /// A fraction of the size of the matrix that S of function `i` is a difference of.
    fn blur(&self, i: usize, state: &State, fraction: f64) -> f64 {
        let largest = self.members(i).map(|e| self.expanded.diag(e));
        fraction * state.beta * largest.fold(0.0, f64::max)
    }

    /// What a function with these terms is worth, if that is worth its place now.
    fn gain(&self, i: usize, terms: &[Term]) -> Option<(f64, f64)> {
        // A function that keeps coming back for next to nothing must not keep the loop alive.
        let least = match self.entries[i] {
            0..LEAST_ENTRIES => LEAST_GAIN,
            LEAST_ENTRIES..MOST_ENTRIES => 1e-3,
            _ => return None,
        };
        Shared(terms).best_above(least)
    }

    /// Basis functions that are neither in the model nor zero.
    fn outside(&self, state: &State) -> Vec<usize> {
        let outside = self.expanded.outside(state);
        // Where all probabilities of a class are 0 or 1 its functions say nothing, but those of others may.
        (0..self.n_each)
            .filter(|&i| self.members(i).any(|e| outside[e]))
            .filter(|i| !state.active.contains(i))
            .collect()
    }

    /// Whether a candidate was kept out although it still has something to gain.
    pub(super) fn refuses(&self, state: &State) -> bool {
        const WORTH_TELLING: f64 = 1e-6;
        self.outside(state).into_iter().any(|i| {
            self.entries[i] >= LEAST_ENTRIES
                && Shared(&self.terms[i]).best_above(WORTH_TELLING).is_some()
        })
    }

    /// Whether some function has left and come back more often than chance would have it.
    pub(super) fn returns(&self) -> bool {
        self.entries.iter().any(|&e| e > 2)
    }

    /// Adds the best candidates, each with the gain it has given those before it; returns that of the first, `None` if none
    /// gains.
    ///
    /// Call right after [`SharedCandidates::refresh`].
    pub(super) fn add(
        &mut self,
        stats: &mut dyn Statistics,
        state: &mut State,
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<f64>, Halt> {
        let gain = |i: usize| self.gain(i, &self.terms[i]).map_or(0.0, |best| best.1);
        let list = ranked(self.outside(state).into_iter().map(|i| (gain(i), i)), BLOCK);
        if list.is_empty() {
            return Ok(None);
        }
        let expanded: Vec<usize> = list.iter().flat_map(|&i| self.members(i)).collect();
        let (gram, _) = stats.among(&expanded)?;
        let mut block = Block {
            conditional: Conditional::new(&self.expanded, &expanded, &gram, state),
            gram,
            entered: Vec::new(),
            size_before: state.len(),
        };
        let mut open: Vec<usize> = (0..list.len()).collect();
        let mut first_gain = None;
        while let Some((place, alpha, gain)) = self.best_of(&open, &list, &block, state) {
            if gain < BLOCK_RATIO * *first_gain.get_or_insert(gain) {
                break;
            }
            open.retain(|&p| p != place);
            self.enter(&mut block, place, &expanded, alpha, state)?;
            let i = list[place];
            self.entries[i] = self.entries[i].saturating_add(1);
            recorder.step(Action::Add(i), Some(gain), state)?;
        }
        Ok(first_gain)
    }

    /// The function of those still open with most to gain given those that entered: its place, alpha and gain.
    fn best_of(
        &self,
        open: &[usize],
        list: &[usize],
        block: &Block,
        state: &State,
    ) -> Option<(usize, f64, f64)> {
        let n = self.n_classes;
        let mut best: Option<(usize, f64, f64)> = None;
        for &place in open {
            let (first, i) = (place * n, list[place]);
            let s = block
                .conditional
                .overlap
                .view((first, first), (n, n))
                .clone_owned();
            let terms = self.terms_of(i, &s, &block.conditional.q[first..first + n], state);
            // `>` keeps the first of equals, which is the better of the ranking.
            if let Some((alpha, gain)) = self.gain(i, &terms)
                && best.is_none_or(|best| gain > best.2)
            {
                best = Some((place, alpha, gain));
            }
        }
        best
    }

    /// Puts the weights of all classes on one function into the model, one after another.
    fn enter(
        &self,
        block: &mut Block,
        place: usize,
        expanded: &[usize],
        alpha: f64,
        state: &mut State,
    ) -> Result<()> {
        let first = place * self.n_classes;
        for (c, &i) in (first..first + self.n_classes).zip(&expanded[first..]) {
            let before = &state.active[..block.size_before];
            let mut products: Vec<f64> = before
                .iter()
                .map(|&j| self.expanded.product(j, i))
                .collect();
            products.extend(block.entered.iter().map(|&e| block.gram[(e, c)]));
            let entrant = Entrant {
                index: i,
                gram: &products,
                gram_self: block.gram[(c, c)],
                gradient: self.expanded.gradient_of(i),
                prior: Gamma::FLAT,
            };
            let projection = state.project(&entrant);
            let factors = projection.1;
            state.add(&entrant, projection, alpha)?;
            block.conditional.let_in(c, alpha, factors.s, factors.q);
            block.entered.push(c);
        }
        Ok(())
    }
}

/// Functions about to enter together, by their places among the expanded ones.
struct Block {
    conditional: Conditional,
    gram: DMatrix<f64>,
    entered: Vec<usize>,
    size_before: usize,
}
