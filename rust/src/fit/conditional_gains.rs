//! Which of a shortlist gains most once others of it are in: Tipping & Faul (2003), appendix A.2, among its members.

use nalgebra::DMatrix;

use crate::fit::dictionary::Dictionary;
use crate::fit::evidence::Factors;
use crate::fit::model::State;

/// Factors of a shortlist, kept up to date as its members enter one by one: a small Gaussian elimination.
///
/// `overlap` is phi_i^T C^-1 phi_j among the members (S on its diagonal), `q` is phi_i^T C^-1 t.
pub(crate) struct Conditional {
    overlap: DMatrix<f64>,
    q: Vec<f64>,
    open: Vec<bool>,
}

impl Conditional {
    pub(crate) fn new(
        dictionary: &Dictionary,
        list: &[usize],
        gram: &DMatrix<f64>,
        state: &State,
    ) -> Self {
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

    /// The open member with most to gain.
    pub(crate) fn best(
        &self,
        dictionary: &Dictionary,
        list: &[usize],
        state: &State,
    ) -> Option<(usize, f64)> {
        let gains = (0..list.len()).filter(|&c| self.open[c]).map(|c| {
            let factors = Factors {
                s: self.overlap[(c, c)],
                q: self.q[c],
                prior: dictionary.priors().of(list[c]),
            };
            (c, dictionary.gain(list[c], factors, state))
        });
        // `>` keeps the first of equals, which is the better of the dictionary's own ranking.
        gains
            .filter(|g| g.1 > 0.0)
            .fold(None, |best: Option<(usize, f64)>, g| match best {
                Some(b) if g.1 <= b.1 => Some(b),
                _ => Some(g),
            })
    }

    /// Takes member `c` out of the list and, if it enters, its share out of the others: appendix A.2.
    pub(crate) fn condition_on(&mut self, c: usize, factors: Factors) {
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
