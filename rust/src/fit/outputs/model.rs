//! The active set of a model with several outputs, and its posterior.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{OutputStatistics, Residuals};
use crate::fit::evidence::Factors;
use crate::fit::model::close_gap;
use crate::fit::prior::Gamma;
use crate::fit::shared_evidence::Term;
use crate::fit::tuning::Tuning;
use crate::linalg::vector::{axpy, dot, head, leading, rank_one};
use crate::linalg::{Cholesky, NotPositiveDefinite};

/// Active functions and alphas, shared by all outputs, and the posterior of each output's weights.
///
/// As in [`State`](crate::fit::State), the data enter as a quadratic model of each output's squared residual about a
/// *reference* point, which is kept near the mean so that the residual does not cancel.
///
/// Invariants, with m active functions: each level holds the Cholesky factor of H = diag(alpha) + beta G and its inverse
/// `sigma`, and each of its outputs has `mu = r + sigma (beta gradient - alpha r)`. There is one level for each output, or one
/// for all. Matrices have spare capacity; their leading m x m blocks are used. [`OutputState::recompute`] computes from scratch
/// what the actions update.
#[derive(Debug, Clone)]
pub(crate) struct OutputState {
    pub(crate) active: Vec<usize>,
    pub(crate) alpha: Vec<f64>,
    pub(crate) levels: Vec<Level>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) gram: DMatrix<f64>,
    pub(crate) n_obs: f64,
    /// Round-off of the evidence, in nats, below which the quadratic models keep their reference.
    negligible: f64,
}

/// A noise precision and the posterior covariance at it.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    pub(crate) beta: f64,
    pub(crate) chol: Cholesky,
    pub(crate) sigma: DMatrix<f64>,
}

/// The weights of one output. `gradient` and `deviance` are the projected and the squared residual at `reference`.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) mu: Vec<f64>,
    /// mu - reference, stored so that it need not be computed as a difference.
    pub(crate) offset: Vec<f64>,
    reference: Vec<f64>,
    pub(crate) gradient: Vec<f64>,
    pub(crate) deviance: f64,
}

/// A candidate to add: its inner products with the active functions and with the residual of each output at its reference.
/// Its own norm is 1.
pub(crate) struct Candidate<'a> {
    pub(crate) index: usize,
    pub(crate) gram: &'a [f64],
    pub(crate) gradient: &'a [f64],
}

impl OutputState {
    /// An empty model. `betas` has one entry for each output or one for all; `squares` are the squared norms of the targets.
    pub(crate) fn empty(betas: &[f64], squares: &[f64], n_obs: f64) -> Self {
        let level = |&beta: &f64| Level {
            beta,
            chol: Cholesky::with_capacity(0),
            sigma: DMatrix::zeros(0, 0),
        };
        let output = |&deviance: &f64| Output {
            mu: Vec::new(),
            offset: Vec::new(),
            reference: Vec::new(),
            gradient: Vec::new(),
            deviance,
        };
        Self {
            active: Vec::new(),
            alpha: Vec::new(),
            levels: betas.iter().map(level).collect(),
            outputs: squares.iter().map(output).collect(),
            gram: DMatrix::zeros(0, 0),
            n_obs,
            negligible: Tuning::MAX_ROUND_OFF,
        }
    }

    /// Allows round-off up to a small fraction of the smallest gain of any step.
    pub(crate) fn set_smallest_gain(&mut self, gain: f64) {
        self.negligible = Tuning::MAX_ROUND_OFF.max(1e-7 * gain);
    }

    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    /// The level of output `c`.
    pub(crate) fn level_of(&self, c: usize) -> usize {
        c.min(self.levels.len() - 1)
    }

    /// The outputs of level `l`.
    pub(crate) fn outputs_of(&self, l: usize) -> std::ops::Range<usize> {
        if self.levels.len() == 1 {
            0..self.outputs.len()
        } else {
            l..l + 1
        }
    }

    /// Sparsity and quality factors of active function `k`: a term for each level.
    ///
    /// Equation (23) in the form Sigma_kk = 1 / (alpha + s), mu_k = q / (alpha + s).
    pub(crate) fn factors(&self, k: usize, terms: &mut Vec<Term>) {
        terms.clear();
        terms.extend(self.levels.iter().enumerate().map(|(l, level)| {
            let outputs = &self.outputs[self.outputs_of(l)];
            let (alpha, variance) = (self.alpha[k], level.sigma[(k, k)]);
            if 1.0 - alpha * variance < Tuning::MIN_RELIABLE_GAMMA {
                return self.term_from_totals(k, l);
            }
            Term {
                n: outputs.len() as f64,
                s: (1.0 / variance - alpha).max(0.0),
                power: outputs.iter().map(|o| (o.mu[k] / variance).powi(2)).sum(),
            }
        }));
    }

    /// The term of level `l` from S and Q, equations (24) and (25), for a posterior variance close to the prior's.
    #[cold]
    fn term_from_totals(&self, k: usize, l: usize) -> Term {
        let gradient: Vec<f64> = self.outputs.iter().map(|o| o.gradient[k]).collect();
        let candidate = Candidate {
            index: self.active[k],
            gram: head(&self.gram, k, self.len()),
            gradient: &gradient,
        };
        let sparsity = self.project(&candidate, l).1;
        let of = |c: usize| {
            let total = Factors {
                s: sparsity,
                q: self.quality(&candidate, c),
                prior: Gamma::FLAT,
            };
            total.left_out(self.alpha[k])
        };
        let outputs = self.outputs_of(l);
        Term {
            n: outputs.len() as f64,
            s: of(outputs.start).s,
            power: outputs.map(|c| of(c).q.powi(2)).sum(),
        }
    }

    /// Checks that each active function has a positive variance at each level.
    pub(crate) fn check_variances(&self) -> Result<(), NotPositiveDefinite> {
        let positive = |k: usize| {
            let mut levels = self.levels.iter();
            levels.all(|level| level.sigma[(k, k)] > 0.0)
        };
        match (0..self.len()).find(|&k| !positive(k)) {
            Some(pivot) => Err(NotPositiveDefinite { pivot }),
            None => Ok(()),
        }
    }

    /// Round-off of the evidence, in nats: far from the reference the residuals are differences of large terms.
    fn rounding(&self) -> f64 {
        let of_output = |(c, output): (usize, &Output)| {
            let distance: f64 = output.offset.iter().map(|d| d.abs()).sum();
            f64::EPSILON * self.levels[self.level_of(c)].beta * distance * distance
        };
        self.outputs.iter().enumerate().map(of_output).sum()
    }

    /// Moves the references to the means by a pass over the rows, if the round-off is not negligible.
    pub(crate) fn recentre(&mut self, stats: &mut dyn OutputStatistics) -> Result<()> {
        if self.rounding() > self.negligible {
            let residuals = stats.active_residuals(&self.active, &self.means())?;
            self.set_data(&residuals, |projections, k, _| projections[k])?;
        }
        Ok(())
    }

    /// Sets the quadratic models about the means, from the residuals there. `entry(projections, k, j)` returns the entry of
    /// active function `k`, which is number `j` in the dictionary.
    pub(crate) fn set_data(
        &mut self,
        residuals: &Residuals,
        entry: impl Fn(&[f64], usize, usize) -> f64,
    ) -> Result<()> {
        let data = residuals.projections.iter().zip(&residuals.squares);
        for (output, (projections, square)) in self.outputs.iter_mut().zip(data) {
            output.reference.copy_from_slice(&output.mu);
            for (k, (gradient, &j)) in output.gradient.iter_mut().zip(&self.active).enumerate() {
                *gradient = entry(projections, k, j);
            }
            output.deviance = *square;
        }
        self.recompute()
    }

    /// Inner product of two active functions.
    pub(crate) fn gram(&self, i: usize, j: usize) -> f64 {
        self.gram[(i, j)]
    }

    /// Posterior means, m x C.
    pub(crate) fn means(&self) -> DMatrix<f64> {
        DMatrix::from_fn(self.len(), self.outputs.len(), |k, c| self.outputs[c].mu[k])
    }

    /// The reference of output `c`.
    pub(crate) fn reference(&self, c: usize) -> &[f64] {
        &self.outputs[c].reference
    }

    /// `v = L^-1 beta g`, and with it S: equation (24) for level `l`.
    fn project(&self, candidate: &Candidate<'_>, l: usize) -> (Vec<f64>, f64) {
        let level = &self.levels[l];
        let mut v: Vec<f64> = candidate.gram.iter().map(|g| level.beta * g).collect();
        level.chol.solve_lower_in_place(&mut v);
        // S = beta - ||L^-1 beta g||^2 subtracts a squared norm, never large cross terms of both signs.
        let s = level.beta - dot(&v, &v);
        (v, s)
    }

    /// Q of output `c`: equation (25).
    fn quality(&self, candidate: &Candidate<'_>, c: usize) -> f64 {
        let along = dot(candidate.gram, &self.outputs[c].offset);
        self.levels[self.level_of(c)].beta * (candidate.gradient[c] - along)
    }

    /// S of each level and Q of each output for an inactive function.
    pub(crate) fn candidate_factors(&self, candidate: &Candidate<'_>) -> (Vec<f64>, Vec<f64>) {
        let s = (0..self.levels.len()).map(|l| self.project(candidate, l).1);
        let q = (0..self.outputs.len()).map(|c| self.quality(candidate, c));
        (s.collect(), q.collect())
    }

    /// Adds a function with precision `alpha`: appendix A.2, for each output.
    pub(crate) fn add(&mut self, candidate: &Candidate<'_>, alpha: f64) -> Result<()> {
        let m = self.len();
        self.reserve(m + 1);
        let q: Vec<f64> = (0..self.outputs.len())
            .map(|c| self.quality(candidate, c))
            .collect();
        for l in 0..self.levels.len() {
            let (v, s) = self.project(candidate, l);
            let range = self.outputs_of(l);
            let level = &mut self.levels[l];
            let mut u = v.clone();
            level.chol.solve_lower_transpose_in_place(&mut u);
            // With S as pivot the evidence rises by exactly the gain that S and Q predict, whatever their round-off.
            level.chol.push_solved(&v, alpha + s)?;
            let variance = 1.0 / (alpha + s);
            rank_one(&mut level.sigma, variance, &u);
            for (k, &uk) in u.iter().enumerate() {
                level.sigma[(k, m)] = -variance * uk;
                level.sigma[(m, k)] = -variance * uk;
            }
            level.sigma[(m, m)] = variance;
            for c in range {
                let mean = variance * q[c];
                let output = &mut self.outputs[c];
                axpy(-mean, &u, &mut output.mu);
                axpy(-mean, &u, &mut output.offset);
                output.mu.push(mean);
                output.offset.push(mean);
                output.gradient.push(candidate.gradient[c]);
                output.reference.push(0.0);
            }
        }
        for (k, &g) in candidate.gram.iter().enumerate() {
            self.gram[(k, m)] = g;
            self.gram[(m, k)] = g;
        }
        self.gram[(m, m)] = 1.0;
        self.alpha.push(alpha);
        self.active.push(candidate.index);
        Ok(())
    }

    /// Re-estimates the alpha of active function `k`: appendix A.3.
    pub(crate) fn reestimate(&mut self, k: usize, alpha: f64) -> Result<()> {
        let delta = alpha - self.alpha[k];
        self.alpha[k] = alpha;
        for level in &mut self.levels {
            let factor = 1.0 + delta * level.sigma[(k, k)];
            if factor < 1e-6 || level.chol.update_diagonal(k, delta).is_err() {
                // The rank-one formulae would lose more than six digits.
                return self.recompute();
            }
        }
        self.subtract_column(k, |variance| delta / (1.0 + delta * variance));
        Ok(())
    }

    /// Deletes active function `k`: appendix A.4.
    pub(crate) fn delete(&mut self, k: usize) {
        let m = self.len();
        self.subtract_column(k, |variance| 1.0 / variance);
        let column = head(&self.gram, k, m).to_vec();
        for output in &mut self.outputs {
            // The residual at the reference without this function.
            let r = output.reference[k];
            output.deviance += r * (2.0 * output.gradient[k] + r * column[k]);
            axpy(r, &column, &mut output.gradient);
            for values in [
                &mut output.mu,
                &mut output.offset,
                &mut output.reference,
                &mut output.gradient,
            ] {
                values.remove(k);
            }
        }
        for level in &mut self.levels {
            level.chol.remove(k);
            close_gap(&mut level.sigma, k, m);
        }
        close_gap(&mut self.gram, k, m);
        self.alpha.remove(k);
        self.active.remove(k);
    }

    /// `sigma -= c sigma_k sigma_k^T`, `mu -= c mu_k sigma_k`, with c a function of sigma_kk.
    fn subtract_column(&mut self, k: usize, c: impl Fn(f64) -> f64) {
        let m = self.len();
        for l in 0..self.levels.len() {
            let range = self.outputs_of(l);
            let sigma = &mut self.levels[l].sigma;
            let column = head(sigma, k, m).to_vec();
            let c = c(column[k]);
            rank_one(sigma, -c, &column);
            for output in &mut self.outputs[range] {
                let mean = output.mu[k];
                axpy(-c * mean, &column, &mut output.mu);
                axpy(-c * mean, &column, &mut output.offset);
            }
        }
    }

    /// Sets all hyperparameters at once and recomputes.
    pub(crate) fn set_hyperparameters(&mut self, alpha: &[f64], betas: &[f64]) -> Result<()> {
        self.alpha.copy_from_slice(alpha);
        for (level, &beta) in self.levels.iter_mut().zip(betas) {
            level.beta = beta;
        }
        self.recompute()
    }

    /// Noise precision of each level.
    pub(crate) fn betas(&self) -> Vec<f64> {
        self.levels.iter().map(|level| level.beta).collect()
    }

    /// Factors, covariances and means from scratch.
    pub(crate) fn recompute(&mut self) -> Result<()> {
        let m = self.len();
        for l in 0..self.levels.len() {
            let range = self.outputs_of(l);
            let (alpha, gram, level) = (&self.alpha, &self.gram, &mut self.levels[l]);
            let beta = level.beta;
            level.chol.refactor(m, |i, j| {
                beta * gram[(i, j)] + if i == j { alpha[i] } else { 0.0 }
            })?;
            level.chol.inverse_into(&mut level.sigma);
            for output in &mut self.outputs[range] {
                let terms = alpha.iter().zip(&output.gradient).zip(&output.reference);
                for (offset, ((a, g), r)) in output.offset.iter_mut().zip(terms) {
                    *offset = beta * g - a * r;
                }
                level.chol.solve_in_place(&mut output.offset);
                let parts = output.reference.iter().zip(&output.offset);
                for (mu, (r, offset)) in output.mu.iter_mut().zip(parts) {
                    *mu = r + offset;
                }
            }
        }
        Ok(())
    }

    fn reserve(&mut self, m: usize) {
        if m > self.gram.nrows() {
            let capacity = m + m / 2;
            let len = self.len();
            self.gram = leading(&self.gram, len, capacity);
            for level in &mut self.levels {
                level.sigma = leading(&level.sigma, len, capacity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::shared_evidence::SharedFactors;
    use proptest::prelude::*;

    const ROWS: usize = 12;
    const COLUMNS: usize = 7;
    const OUTPUTS: usize = 3;

    /// Unit-norm columns and the targets of each output.
    struct Data {
        phi: Vec<Vec<f64>>,
        t: Vec<Vec<f64>>,
    }

    impl Data {
        fn new(values: &[f64]) -> Self {
            let (columns, t) = values.split_at(ROWS * COLUMNS);
            let unit = |column: &[f64]| {
                let norm = dot(column, column).sqrt().max(1e-3);
                column.iter().map(|v| v / norm).collect()
            };
            Self {
                phi: columns.chunks_exact(ROWS).map(unit).collect(),
                t: t.chunks_exact(ROWS).map(<[f64]>::to_vec).collect(),
            }
        }

        fn empty(&self, betas: &[f64]) -> OutputState {
            let squares: Vec<f64> = self.t.iter().map(|t| dot(t, t)).collect();
            OutputState::empty(betas, &squares, ROWS as f64)
        }

        /// Adds a function; returns the gain that its factors predict.
        fn add(&self, state: &mut OutputState, index: usize, alpha: f64) -> f64 {
            let column = &self.phi[index];
            let gram: Vec<f64> = state
                .active
                .iter()
                .map(|&j| dot(&self.phi[j], column))
                .collect();
            let gradient: Vec<f64> = (0..OUTPUTS)
                .map(|c| {
                    let mut residual = self.t[c].clone();
                    for (&j, &r) in state.active.iter().zip(state.reference(c)) {
                        axpy(-r, &self.phi[j], &mut residual);
                    }
                    dot(column, &residual)
                })
                .collect();
            let candidate = Candidate {
                index,
                gram: &gram,
                gradient: &gradient,
            };
            let (s, q) = state.candidate_factors(&candidate);
            let term = |l: usize| {
                let outputs = state.outputs_of(l);
                Term {
                    n: outputs.len() as f64,
                    s: s[l],
                    power: outputs.map(|c| q[c] * q[c]).sum(),
                }
            };
            let terms: Vec<Term> = (0..s.len()).map(term).collect();
            state.add(&candidate, alpha).unwrap();
            -SharedFactors(&terms).gain_of_deleting(alpha)
        }
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(-1.0..1.0_f64, ROWS * (COLUMNS + OUTPUTS))
    }

    #[test]
    fn factors_do_not_depend_on_the_alpha_of_their_function() {
        let values: Vec<f64> = (0..ROWS * (COLUMNS + OUTPUTS))
            .map(|i| (2.3 * i as f64).sin())
            .collect();
        let data = Data::new(&values);
        for betas in [&[5.0][..], &[2.0, 10.0, 50.0]] {
            let mut state = data.empty(betas);
            for j in 0..5 {
                data.add(&mut state, j, 1.0 + j as f64);
            }
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            state.factors(2, &mut expected);
            for exponent in -3..=20 {
                state.reestimate(2, 10_f64.powi(exponent)).unwrap();
                state.factors(2, &mut found);
                for (found, expected) in found.iter().zip(&expected) {
                    assert!((found.s / expected.s - 1.0).abs() < 1e-8, "1e{exponent}");
                    assert!(
                        (found.power / expected.power - 1.0).abs() < 1e-8,
                        "1e{exponent}"
                    );
                }
            }
        }
    }

    proptest! {
        #[test]
        fn actions_in_any_order_achieve_predicted_gains_and_equal_a_recomputation(
            values in values(),
            shared in any::<bool>(),
            actions in proptest::collection::vec((0_u8..3, 0_usize..COLUMNS, -2.0..3.0_f64), 1..20),
        ) {
            let data = Data::new(&values);
            let betas: &[f64] = if shared { &[5.0] } else { &[2.0, 10.0, 50.0] };
            let mut state = data.empty(betas);
            let mut terms = Vec::new();
            for (action, j, ln_alpha) in actions {
                let (before, alpha) = (state.log_evidence(), ln_alpha.exp());
                let place = state.active.iter().position(|&i| i == j);
                let predicted = match (action, place) {
                    (_, None) => data.add(&mut state, j, alpha),
                    (0, Some(k)) => {
                        state.factors(k, &mut terms);
                        let predicted = SharedFactors(&terms).gain_of_deleting(state.alpha[k]);
                        state.delete(k);
                        predicted
                    }
                    (_, Some(k)) => {
                        state.factors(k, &mut terms);
                        let predicted = SharedFactors(&terms).gain_of_moving(state.alpha[k], alpha);
                        state.reestimate(k, alpha).unwrap();
                        predicted
                    }
                };
                prop_assert!((state.log_evidence() - before - predicted).abs() < 1e-7 * (1.0 + before.abs()));
            }
            let mut fresh = state.clone();
            fresh.recompute().unwrap();
            let m = state.len();
            for (a, b) in state.levels.iter().zip(&fresh.levels) {
                for k in 0..m {
                    for (x, y) in head(&a.sigma, k, m).iter().zip(head(&b.sigma, k, m)) {
                        prop_assert!((x - y).abs() < 1e-7);
                    }
                }
            }
            for (a, b) in state.outputs.iter().zip(&fresh.outputs) {
                prop_assert!(a.mu.iter().zip(&b.mu).all(|(x, y)| (x - y).abs() < 1e-7));
            }
            prop_assert!((state.log_evidence() - fresh.log_evidence()).abs() < 1e-7);
        }

        #[test]
        fn newton_steps_have_the_derivatives_of_the_evidence(values in values(), shared in any::<bool>()) {
            const H: f64 = 1e-4;
            let data = Data::new(&values);
            let betas: &[f64] = if shared { &[5.0] } else { &[2.0, 10.0, 50.0] };
            let mut state = data.empty(betas);
            for j in 0..4 {
                data.add(&mut state, j, 1.0 + j as f64);
            }
            let free: Vec<usize> = (0..betas.len()).collect();
            let (gradient, hessian) = crate::fit::outputs::newton::derivatives(&state, &free);
            let at = |moves: &[(usize, f64)]| {
                let mut moved = state.clone();
                let (mut alpha, mut betas) = (state.alpha.clone(), state.betas());
                for &(i, by) in moves {
                    if i < 4 {
                        alpha[i] *= by.exp();
                    } else {
                        betas[i - 4] *= by.exp();
                    }
                }
                moved.set_hyperparameters(&alpha, &betas).unwrap();
                moved.log_evidence()
            };
            for i in 0..gradient.len() {
                let slope = (at(&[(i, H)]) - at(&[(i, -H)])) / (2.0 * H);
                prop_assert!((slope - gradient[i]).abs() < 1e-5 * (1.0 + slope.abs()));
                for j in 0..gradient.len() {
                    let up = at(&[(i, H), (j, H)]) - at(&[(i, H), (j, -H)]);
                    let down = at(&[(i, -H), (j, H)]) - at(&[(i, -H), (j, -H)]);
                    let curvature = (up - down) / (4.0 * H * H);
                    prop_assert!((curvature - hessian[(i, j)]).abs() < 1e-4 * (1.0 + curvature.abs()));
                }
            }
        }
    }
}
