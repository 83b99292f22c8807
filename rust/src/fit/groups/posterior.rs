//! The posterior of the groups in a model, and the terms of all others.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::Result;
use crate::error::check_flag;
use crate::fit::groups::gains::{Terms, eigen, eigen_each};
use crate::fit::groups::{GroupProblem, State};
use crate::fit::tuning::Tuning;
use crate::linalg::batched_triangular::{
    LANES, Lanes, pack_lower, solve_lanes, solve_lanes_transposed,
};
use crate::linalg::gemm::{TallMatrix, add_combination, add_transpose_product};
use crate::linalg::vector::{dot, head};
use crate::linalg::{Cholesky, Matrix};
use crate::parallel::{map_pieces, pieces};

/// The posterior of the active columns: A = diag(alpha), H = A + beta Phi^T Phi, Sigma = H^-1.
pub(super) struct Posterior {
    /// The position among the active groups of each column, its row of `Data::products`, alpha, and weight in the prior on complexity.
    pub(super) position: Vec<usize>,
    pub(super) rows: Vec<usize>,
    pub(super) alpha: Vec<f64>,
    pub(super) weight: Vec<f64>,
    /// The packed factor of H.
    lower: Vec<f64>,
    pub(super) sigma: Matrix,
    pub(super) mu: Matrix,
    /// ln p(t) with the prior on complexity, and without.
    pub(super) objective: f64,
    pub(super) log_evidence: f64,
    /// Targets less predictions, and their sum of squares.
    rest: Vec<f64>,
    pub(super) residual: f64,
}

/// The problem with products of its columns.
pub(super) struct Data<'a> {
    problem: &'a GroupProblem<'a>,
    cancel: Option<&'a AtomicBool>,
    pub(super) n_outputs: f64,
    n_columns: usize,
    /// Products of the columns of each group.
    own: Vec<Matrix>,
    /// Products of all columns with the targets, by outputs.
    of_targets: Vec<f64>,
    /// Products of all columns with those of the groups that have been in the model, one row for each; column-major.
    products: Vec<f64>,
    stride: usize,
    n_products: usize,
    /// First row of each group among the products.
    first: Vec<Option<usize>>,
    /// Weight of the prior on complexity for a single column.
    pub(super) complexity: f64,
}

impl<'a> Data<'a> {
    pub(super) fn new(problem: &'a GroupProblem<'a>, cancel: Option<&'a AtomicBool>) -> Self {
        let n = problem.n_rows;
        let (n_columns, n_outputs) = (problem.columns.len() / n, problem.targets.len() / n);
        let all = TallMatrix::new(problem.columns, n, n_columns);
        let mut of_targets = vec![0.0; n_columns * n_outputs];
        let targets = TallMatrix::new(problem.targets, n, n_outputs);
        add_transpose_product(all, targets, n, &mut of_targets, n_columns);
        let mut this = Self {
            problem,
            cancel,
            n_outputs: n_outputs as f64,
            n_columns,
            own: Vec::new(),
            of_targets,
            products: Vec::new(),
            stride: 0,
            n_products: 0,
            first: vec![None; problem.groups.len()],
            complexity: problem.complexity,
        };
        let own = |columns: &Vec<usize>| {
            let (own, d) = (this.columns(columns), columns.len());
            let mut out = Matrix::zeros(d, d);
            let own = TallMatrix::listed(&own);
            add_transpose_product(own, own, n, out.as_mut_slice(), d);
            out
        };
        let some = |at: Range<usize>| problem.groups[at].iter().map(own).collect::<Vec<_>>();
        let own = map_pieces(problem.groups.len(), Tuning::GROUPS_TOGETHER, some);
        this.own = own.into_iter().flatten().collect();
        this
    }

    fn columns(&self, indices: &[usize]) -> Vec<&'a [f64]> {
        let n = self.problem.n_rows;
        let column = |&j: &usize| &self.problem.columns[j * n..(j + 1) * n];
        indices.iter().map(column).collect()
    }

    /// Weight of each column of a group in the prior on complexity.
    fn weight(&self, group: usize) -> f64 {
        self.complexity * self.problem.shares[group]
    }

    /// Computes the products of a group that enters the model.
    pub(super) fn store(&mut self, group: usize) {
        if self.first[group].is_some() {
            return;
        }
        let columns = &self.problem.groups[group];
        let (first, n, m) = (self.n_products, self.problem.n_rows, columns.len());
        if first + m > self.stride {
            let stride = (first + m).max(2 * self.stride);
            let mut larger = vec![0.0; stride * self.n_columns];
            for j in 0..self.n_columns {
                let column = &self.products[j * self.stride..j * self.stride + first];
                larger[j * stride..j * stride + first].copy_from_slice(column);
            }
            (self.products, self.stride) = (larger, stride);
        }
        let all = TallMatrix::new(self.problem.columns, n, self.n_columns);
        let own = self.columns(columns);
        let out = &mut self.products[first..];
        add_transpose_product(TallMatrix::listed(&own), all, n, out, self.stride);
        self.first[group] = Some(first);
        self.n_products += m;
    }

    /// The posterior of a state whose groups have products.
    pub(super) fn posterior(&self, state: &State) -> Result<Posterior> {
        check_flag(self.cancel)?;
        let (n, beta) = (self.n_outputs, state.beta);
        let (mut position, mut rows, mut columns) = (vec![], vec![], vec![]);
        for (k, &g) in state.active.iter().enumerate() {
            let own = &self.problem.groups[g];
            let first = self.first[g].unwrap_or(0);
            position.extend(own.iter().map(|_| k));
            rows.extend(first..first + own.len());
            columns.extend_from_slice(own);
        }
        let alpha: Vec<f64> = position.iter().map(|&k| state.x[k].exp()).collect();
        let weight = position.iter().map(|&k| self.weight(state.active[k]));
        let weight: Vec<f64> = weight.collect();
        let m = rows.len();
        let mut chol = Cholesky::with_capacity(m);
        chol.refactor(m, |i, j| {
            let product = beta * self.products[columns[j] * self.stride + rows[i]];
            if i == j { product + alpha[i] } else { product }
        })?;
        let mut sigma = Matrix::zeros(m, m);
        chol.inverse_into(&mut sigma)?;
        let of_target = |i: usize, c: usize| self.of_targets[c * self.n_columns + columns[i]];
        let mu = beta
            * (&sigma
                * Matrix::from_fn(
                    m,
                    self.problem.targets.len() / self.problem.n_rows,
                    of_target,
                ));
        let (columns, mut rest) = (self.columns(&columns), self.problem.targets.to_vec());
        for (mu, rest) in mu.column_iter().zip(rest.chunks_mut(self.problem.n_rows)) {
            let weights: Vec<f64> = mu.iter().map(|mu| -mu).collect();
            add_combination(&columns, &weights, rest);
        }
        let residual = dot(&rest, &rest);
        let of_weights: f64 = alpha
            .iter()
            .enumerate()
            .map(|(i, alpha)| alpha * mu.row(i).norm_squared())
            .sum();
        let ln_det: f64 = alpha.iter().map(|alpha| alpha.ln()).sum::<f64>() - chol.ln_det();
        let of_noise = self.problem.n_contrasts * (beta / (2.0 * std::f64::consts::PI)).ln();
        let log_evidence = 0.5 * (n * (of_noise + ln_det) - beta * residual - of_weights);
        let log_evidence = log_evidence - self.problem.offset;
        let determined = |i: usize| weight[i] * (1.0 - alpha[i] * sigma[(i, i)]);
        let objective = log_evidence - n * (0..m).map(determined).sum::<f64>();
        Ok(Posterior {
            position,
            rows,
            lower: pack_lower(&chol),
            alpha,
            weight,
            sigma,
            mu,
            objective,
            log_evidence,
            rest,
            residual,
        })
    }

    /// The terms of these groups, which are not in the model.
    pub(super) fn terms(
        &self,
        state: &State,
        now: &Posterior,
        groups: &[usize],
    ) -> Result<Vec<Terms>> {
        let some = |at: Range<usize>| {
            check_flag(self.cancel)?;
            Ok(self.terms_of(state.beta, now, &groups[at]))
        };
        let pieces = map_pieces(groups.len(), Tuning::GROUPS_TOGETHER, some);
        let pieces = pieces.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(pieces.into_iter().flatten().collect())
    }

    /// The terms of some groups, with S = beta Phi_g^T Phi_g - V^T V, Q = beta Phi_g^T (t - Phi mu), and the part of the prior on
    /// complexity R = c_g S - U^T U.
    fn terms_of(&self, beta: f64, now: &Posterior, groups: &[usize]) -> Vec<Terms> {
        let of_group = |&g: &usize| self.problem.groups[g].iter().copied();
        let columns: Vec<usize> = groups.iter().flat_map(of_group).collect();
        let (n, outputs) = (self.problem.n_rows, now.mu.ncols());
        let mut q = Matrix::zeros(outputs, columns.len());
        let rest = TallMatrix::new(&now.rest, n, outputs);
        let listed = self.columns(&columns);
        add_transpose_product(
            rest,
            TallMatrix::listed(&listed),
            n,
            q.as_mut_slice(),
            outputs,
        );
        q *= beta;
        let [v, u] = self.solutions(beta, now, &columns);
        let sizes: Vec<usize> = groups.iter().map(|g| self.own[*g].nrows()).collect();
        // S and R of all groups, one after another.
        let mut s = vec![0.0; sizes.iter().map(|d| d * d).sum()];
        let (mut r, mut basis) = (s.clone(), s.clone());
        let (mut first, mut at) = (0, 0);
        for (&g, &d) in groups.iter().zip(&sizes) {
            let product = |x: &Matrix, i: usize, j: usize| {
                let m = x.nrows();
                let column = |k: usize| &x.as_slice()[(first + k) * m..][..m];
                dot(column(i), column(j))
            };
            let weight = self.weight(g);
            for (i, j) in (0..d).flat_map(|j| (0..=j).map(move |i| (i, j))) {
                let value = beta * self.own[g][(i, j)] - product(&v, i, j);
                (s[at + j * d + i], s[at + i * d + j]) = (value, value);
                if self.complexity > 0.0 {
                    let value = weight * value - product(&u, i, j);
                    (r[at + j * d + i], r[at + i * d + j]) = (value, value);
                }
            }
            (first, at) = (first + d, at + d * d);
        }
        eigen_each(&sizes, &mut s, &mut basis);
        (first, at) = (0, 0);
        let of_group = |(&g, &d): (&usize, &usize)| {
            let (basis, r) = (&basis[at..at + d * d], &r[at..at + d * d]);
            let each = (0..d).map(|k| {
                let along = &basis[k * d..][..d];
                let q = (0..outputs).map(|c| {
                    let terms = along.iter().enumerate();
                    terms.map(|(i, u)| u * q[(c, first + i)]).sum::<f64>()
                });
                let square: f64 = q.map(|q| q * q).sum();
                let of_prior = self.along(along, r).max(0.0);
                (
                    s[at + k * (d + 1)],
                    square - 2.0 * self.n_outputs * of_prior,
                )
            });
            let each = each.collect();
            (first, at) = (first + d, at + d * d);
            Terms::new(each, beta * self.own[g].trace(), self.n_outputs)
        };
        groups.iter().zip(&sizes).map(of_group).collect()
    }

    /// V = L^-1 G and, with a prior on complexity, U = `A_c`^(1/2) Sigma G, with G = beta Phi^T times these columns.
    fn solutions(&self, beta: f64, now: &Posterior, columns: &[usize]) -> [Matrix; 2] {
        let m = now.rows.len();
        let has_prior = self.complexity > 0.0;
        let mut v = Matrix::zeros(m, columns.len());
        let mut u = Matrix::zeros(m, if has_prior { columns.len() } else { 0 });
        let mut lanes: Vec<Lanes> = vec![[0.0; LANES]; m];
        for at in pieces(columns.len(), LANES) {
            for (lanes, row) in lanes.iter_mut().zip(&now.rows) {
                for (x, j) in lanes.iter_mut().zip(&columns[at.clone()]) {
                    *x = beta * self.products[j * self.stride + row];
                }
            }
            let copy = |lanes: &[Lanes], out: &mut Matrix| {
                let mut columns = out.columns_mut(at.start, at.len());
                for (lane, mut column) in columns.column_iter_mut().enumerate() {
                    for (out, x) in column.iter_mut().zip(lanes) {
                        *out = x[lane];
                    }
                }
            };
            solve_lanes(&now.lower, 0, &mut lanes);
            copy(&lanes, &mut v);
            if has_prior {
                solve_lanes_transposed(&now.lower, &mut lanes);
                for ((lanes, c), alpha) in lanes.iter_mut().zip(&now.weight).zip(&now.alpha) {
                    let root = (c * alpha).sqrt();
                    *lanes = lanes.map(|x| root * x);
                }
                copy(&lanes, &mut u);
            }
        }
        [v, u]
    }

    /// u^T R u, 0 without a prior on complexity.
    fn along(&self, u: &[f64], r: &[f64]) -> f64 {
        if self.complexity > 0.0 {
            let columns = r.chunks(u.len()).zip(u);
            columns.map(|(column, x)| x * dot(column, u)).sum()
        } else {
            0.0
        }
    }

    /// The best precision of each active group, the gain beside its absence, and the present gain.
    ///
    /// With the group left out its terms have s = 1 / variance - alpha and q = mean / variance in the eigenbasis of its part of the
    /// posterior.
    pub(super) fn best_of_active(&self, state: &State, now: &Posterior) -> Vec<(f64, f64, f64)> {
        let mut first = 0;
        let of_group = |k: usize| {
            let (d, alpha) = (self.own[state.active[k]].nrows(), state.x[k].exp());
            let mut variances = now.sigma.view((first, first), (d, d)).into_owned();
            let (mut kept, mut u) = (Matrix::default(), Matrix::zeros(d, d));
            if self.complexity > 0.0 {
                let own = now.sigma.columns(first, d);
                let scaled = Matrix::from_fn(own.nrows(), d, |i, j| {
                    now.weight[i] * now.alpha[i] * own[(i, j)]
                });
                kept = self.weight(state.active[k]) * &variances - own.transpose() * scaled;
            }
            eigen(&mut variances, &mut u);
            let m = u.transpose() * now.mu.rows(first, d);
            let each = (0..d).map(|k| {
                let variance = variances[(k, k)];
                let of_prior = self.along(head(&u, k, d), kept.as_slice());
                let square = m.row(k).norm_squared() - 2.0 * self.n_outputs * of_prior;
                (1.0 / variance - alpha, square / variance.powi(2))
            });
            let terms = Terms::new(each.collect(), alpha, self.n_outputs);
            first += d;
            let (best, gain) = terms.best();
            (best, gain, terms.value(alpha))
        };
        (0..state.active.len()).map(of_group).collect()
    }
}
