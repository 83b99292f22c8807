//! Moves on a working set: which active functions to exchange for which inactive ones, and the gain of that.
//!
//! Delete the functions J at fixed noise and other precisions. As a function of A_J alone the log evidence is, up to a
//! constant, `1/2 [ln|A_J| - ln|A_J + s| + q^T (A_J + s)^-1 q]`: equation (18) of Tipping & Faul (2003) with the matrix s and
//! the vector q of the model without J. It is 0 at A_J = infinity, and in the model `Sigma_JJ = (A_J + s)^-1` and
//! `mu_J = Sigma_JJ q` (equation 23 for several functions). So the deletion gains
//!
//! `-1/2 [ln|A_J Sigma_JJ| + mu_J^T Sigma_JJ^-1 mu_J]`,
//!
//! and, since it replaces Sigma by `Sigma - Sigma_J Sigma_JJ^-1 Sigma_J^T` (appendix A.4 for several functions), the factors of
//! a candidate i with `u = beta Sigma_J^T Phi^T phi_i` become
//!
//! `S + u^T Sigma_JJ^-1 u` and `Q + u^T Sigma_JJ^-1 mu_J`.
//!
//! The gain of adding i at its best precision is equation (27) at these factors. Both gains are exact. With several outputs the gains
//! are sums over them, and the outputs of one noise level share S, s and Sigma.

use crate::Error;
use crate::fit::candidates::most_aligned;
use crate::fit::evidence::Factors;
use crate::fit::greedy::LocalFit;
use crate::fit::model::Model;
use crate::fit::record::{Recorder, Stop};
use crate::fit::tuning::Tuning;
use crate::linalg::Cholesky;
use crate::linalg::vector::{dot, head};
use crate::parallel::map_pieces;

/// A change of the active set. Functions are numbered as in the working set.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) deleted: Vec<usize>,
    pub(crate) added: Vec<usize>,
    /// Gain in log evidence at fixed noise and other precisions, where each added function gets its best precision in turn.
    pub(crate) gain: f64,
}

/// The kinds of moves that a search may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// One function for another.
    Exchanges,
    /// Also merges (two for one) and splits (one for two).
    All,
}

impl LocalFit<'_> {
    /// The moves with a gain above `least`, best first.
    pub(crate) fn moves(&mut self, moves: Moves, least: f64) -> Result<Vec<Move>, Stop> {
        let Self {
            set,
            model,
            candidates,
        } = self;
        let m = model.len();
        let (mut covariances, mut shrunk) = (Vec::new(), Vec::new());
        for (l, level) in model.levels.iter().enumerate() {
            let mut products = |x: &[f64]| candidates.products(set, model, l, x);
            covariances.push((0..m).map(|k| products(head(&level.sigma, k, m))).collect());
            let columns = 0..if model.complexity > 0.0 { m } else { 0 };
            let of = |k| products(&model.shrunk_covariances(k, l));
            shrunk.push(columns.map(of).collect());
        }
        let view = View {
            local: self,
            covariances,
            shrunk,
        };
        let movable: Vec<usize> = self.model.penalized().collect();
        let pieces = map_pieces(movable.len(), 1, |range| {
            view.moves_of(movable[range.start], moves)
        });
        let mut found = Vec::new();
        for piece in pieces {
            found.extend(piece?);
        }
        found.retain(|change| change.gain > least);
        found.sort_by(|a, b| {
            let key = |m: &Move| (m.deleted.clone(), m.added.clone());
            b.gain.total_cmp(&a.gain).then_with(|| key(a).cmp(&key(b)))
        });
        Ok(found)
    }

    /// Makes a move.
    pub(crate) fn make(&mut self, change: &Move) -> Result<(), Stop> {
        change.deleted.iter().for_each(|&i| self.delete(i));
        let mut added = change.added.iter();
        added.try_for_each(|&i| self.add(i, &mut Recorder::silent()))
    }
}

/// A model, and for each noise level and active function k the products `beta Sigma_k^T Phi^T phi_i` with every member i.
struct View<'a> {
    local: &'a LocalFit<'a>,
    covariances: Vec<Vec<Vec<f64>>>,
    /// `beta (Sigma A Sigma)_k^T Phi^T phi_i` likewise, with a complexity prior.
    shrunk: Vec<Vec<Vec<f64>>>,
}

impl View<'_> {
    /// Moves that delete the active function at position `k`.
    fn moves_of(&self, k: usize, moves: Moves) -> Result<Vec<Move>, Stop> {
        self.local.set.facts.check_cancelled()?;
        let mut found = self.best_for(&[k], Tuning::EXCHANGES_PER_FUNCTION)?;
        if moves == Moves::All {
            for first in found.clone() {
                found.extend(self.split(&first)?);
            }
            for l in self.neighbours(k) {
                found.extend(self.best_for(&[k, l], 1)?);
            }
        }
        Ok(found)
    }

    /// At most `limit` moves that replace the functions at these positions by one other.
    fn best_for(&self, positions: &[usize], limit: usize) -> Result<Vec<Move>, Stop> {
        let LocalFit { set, model, .. } = self.local;
        let deletion = Deletion::new(model, positions)?;
        let gain = |i: usize| {
            let factors = deletion.factors_after(self, positions, i);
            let (_, gain) = factors.best_above(0.0)?;
            model.resolves(&factors, 1.0).then_some((gain, i))
        };
        let open = (0..set.len()).filter(|&i| self.local.candidates.open[i]);
        let mut gains: Vec<(f64, usize)> = open.filter_map(gain).collect();
        gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        gains.truncate(limit);
        let deleted: Vec<usize> = positions.iter().map(|&k| model.active[k]).collect();
        let change = |(gain, i)| Move {
            deleted: deleted.clone(),
            added: vec![i],
            gain: deletion.gain + gain,
        };
        Ok(gains.into_iter().map(change).collect())
    }

    /// The exchange followed by the best further addition.
    fn split(&self, exchange: &Move) -> Result<Option<Move>, Stop> {
        let mut trial = self.local.clone();
        exchange
            .deleted
            .iter()
            .for_each(|&i| trial.candidates.exclude(i));
        trial.make(exchange)?;
        let second = trial.candidates.best_addition(trial.set, &trial.model, 0.0);
        Ok(second.map(|(i, gain)| Move {
            deleted: exchange.deleted.clone(),
            added: [&exchange.added[..], &[i]].concat(),
            gain: exchange.gain + gain,
        }))
    }

    /// The active functions most aligned with the one at position `k`.
    fn neighbours(&self, k: usize) -> Vec<usize> {
        let model = &self.local.model;
        let active = &model.active;
        let products = self.local.set.gram.column(active[k]);
        let others = model.penalized().filter(|&l| l != k);
        most_aligned(
            others.map(|l| (products[active[l]], l)),
            Tuning::EXCHANGES_PER_FUNCTION,
        )
    }
}

/// Deletion of several active functions together.
struct Deletion {
    /// Cholesky factor L of Sigma_JJ at each noise level.
    chol: Vec<Cholesky>,
    /// L^-1 mu_J of each output.
    means: Vec<Vec<f64>>,
    /// L^-1 (Sigma A Sigma)_JJ L^-T at each level, with a complexity prior.
    shrunk: Vec<[[f64; 2]; 2]>,
    /// Gain in log evidence: mostly negative.
    gain: f64,
}

impl Deletion {
    fn new(model: &Model, positions: &[usize]) -> Result<Self, Error> {
        let mut chol = vec![Cholesky::with_capacity(positions.len()); model.levels.len()];
        for (chol, level) in chol.iter_mut().zip(&model.levels) {
            chol.refactor(positions.len(), |a, b| {
                level.sigma[(positions[a], positions[b])]
            })?;
        }
        let prior = |&k: &usize| {
            let (prior, alpha) = (model.priors[k], model.alpha[k]);
            0.5 * model.outputs.len() as f64 * alpha.ln() + prior.log_density(alpha)
        };
        let mut gain = -positions.iter().map(prior).sum::<f64>();
        let mut means = Vec::with_capacity(model.outputs.len());
        for (c, output) in model.outputs.iter().enumerate() {
            let chol = &chol[model.level_of(c)];
            let mut own: Vec<f64> = positions.iter().map(|&k| output.mu[k]).collect();
            chol.solve_lower_in_place(&mut own);
            gain -= 0.5 * (chol.ln_det() + dot(&own, &own));
            means.push(own);
        }
        let mut shrunk = Vec::new();
        if model.complexity > 0.0 {
            for (l, chol) in chol.iter().enumerate() {
                let square = Self::shrunk(model, l, chol, positions);
                // tr S changes by tr Sigma_JJ^-1 (Sigma A Sigma)_JJ - |J|.
                let change = square[0][0] + square[1][1] - positions.len() as f64;
                gain -= model.complexity * model.outputs_of(l).len() as f64 * change;
                shrunk.push(square);
            }
        }
        Ok(Self {
            chol,
            means,
            shrunk,
            gain,
        })
    }

    fn shrunk(model: &Model, l: usize, chol: &Cholesky, positions: &[usize]) -> [[f64; 2]; 2] {
        let mut square = [[0.0; 2]; 2];
        for (j, alpha) in model.alpha.iter().enumerate() {
            let mut own = [0.0; 2];
            for (own, &k) in own.iter_mut().zip(positions) {
                *own = model.levels[l].sigma[(j, k)];
            }
            chol.solve_lower_in_place(&mut own[..positions.len()]);
            for (a, row) in square.iter_mut().enumerate() {
                for (b, sum) in row.iter_mut().enumerate() {
                    *sum += alpha * own[a] * own[b];
                }
            }
        }
        square
    }

    /// The factors of inactive member `i` after the deletion of the functions at `positions`.
    fn factors_after(&self, view: &View<'_>, positions: &[usize], i: usize) -> Factors {
        let solved = |l: usize, table: &[Vec<f64>]| {
            let mut u = [0.0; 2];
            for (u, &k) in u.iter_mut().zip(positions) {
                *u = table[k][i];
            }
            self.chol[l].solve_lower_in_place(&mut u[..positions.len()]);
            u
        };
        let covariances = view.covariances.iter().enumerate();
        let products: Vec<[f64; 2]> = covariances.map(|(l, table)| solved(l, table)).collect();
        let (model, factors) = (&view.local.model, &view.local.candidates.factors);
        let own = |l: usize| &products[l][..positions.len()];
        let s = |l: usize| factors.s[l][i] + dot(own(l), own(l));
        let q = |c: usize| factors.q[c][i] + dot(own(model.level_of(c)), &self.means[c]);
        // Sigma loses Sigma_J Sigma_JJ^-1 Sigma_J^T: with u = L^-1 Sigma_J^T g, and v the same of Sigma A Sigma, rho gains
        // u^T u + 2 u^T v - u^T L^-1 (Sigma A Sigma)_JJ L^-T u.
        let rho = |l: usize| {
            let (u, v, square) = (products[l], solved(l, &view.shrunk[l]), self.shrunk[l]);
            let bent: f64 = (0..2).map(|a| u[a] * dot(&square[a], &u)).sum();
            factors.rho[l][i] + dot(&u, &u) + 2.0 * dot(&u, &v) - bent
        };
        model.combine(s, q, rho, factors.priors.of(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::search::lns::tests::working_set;
    use crate::fit::working_set::WorkingSet;

    const ROWS: usize = 60;
    const COLUMNS: usize = 30;

    /// A working set of overlapping bumps, and an empty model.
    fn bumps(prior: [f64; 2]) -> (WorkingSet, Model) {
        let x = |row: usize| row as f64 / ROWS as f64;
        let bump = |j: usize| {
            let centre = j as f64 / COLUMNS as f64;
            (0..ROWS).map(move |row| (-((x(row) - centre) / 0.06).powi(2)).exp())
        };
        let columns: Vec<f64> = (0..COLUMNS).flat_map(bump).collect();
        let noise = |row: usize| ((row * 7919) as f64).sin();
        let target = (0..ROWS).map(|row| (14.0 * x(row)).sin() + 0.3 * noise(row));
        working_set(&columns, target.collect(), 10.0, prior)
    }

    /// The greedy model on it.
    fn greedy((set, model): &(WorkingSet, Model)) -> LocalFit<'_> {
        let mut local = LocalFit::new(set, model.clone());
        local
            .maximize(Tuning::COARSE_EFFORT, &mut Recorder::silent())
            .unwrap();
        local.renew();
        local
    }

    /// The evidence after a move, computed from scratch.
    fn achieved(local: &LocalFit<'_>, change: &Move) -> f64 {
        let mut trial = local.clone();
        trial.make(change).unwrap();
        trial.recompute().unwrap();
        trial.evidence()
    }

    #[test]
    fn predicted_gains_of_moves_are_achieved() {
        for (prior, complexity) in [([0.0, 0.0], 0.0), ([0.5, 0.02], 0.0), ([0.0, 0.0], 0.3)] {
            let (set, mut empty) = bumps(prior);
            empty.complexity = complexity;
            let data = (set, empty);
            let mut local = greedy(&data);
            let before = local.evidence();
            let moves = local.moves(Moves::All, f64::NEG_INFINITY).unwrap();
            for sizes in [(1, 1), (2, 1), (1, 2)] {
                let of_size = |m: &&Move| (m.deleted.len(), m.added.len()) == sizes;
                let some: Vec<&Move> = moves.iter().filter(of_size).collect();
                assert!(!some.is_empty(), "no move of {sizes:?}");
                for change in some {
                    let gain = achieved(&local, change) - before;
                    assert!(
                        (gain - change.gain).abs() < 1e-8 * (1.0 + gain.abs()),
                        "{change:?} gained {gain}"
                    );
                }
            }
        }
    }
}
