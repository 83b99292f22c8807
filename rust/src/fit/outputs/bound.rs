//! Weights and alphas of the multinomial probit machine together, where E- and M-steps in turn would creep.
//!
//! mRVM1 (Psorakis et al. 2010) is coordinate ascent on a variational bound of ln p(t): with the weights' posterior and
//! the auxiliary variables factorised, the E-step (3), (4) maximises it over the latter and the M-step over the rest. With both
//! posteriors at their best for a mean W it is, up to a constant,
//!
//! `B(W, alpha) = sum_n ln P(t_n | W^T phi_n) - 1/2 sum_c w_c^T A w_c + C/2 (ln|A| - ln|Phi^T Phi + A|)`,
//!
//! whose gradient in W is `Phi^T (Y - Phi W) - A W`, Y being what the E-step returns. A stationary point of B is a fixed point of
//! both steps. As `-Hessian(ln P)` is less than the identity, steps whitened by `Phi^T Phi + A` are never too long.

use super::super::action::ALPHA_FLOOR;
use super::state::OutputState;
use crate::Result;
use crate::linalg::Cholesky;
use crate::linalg::blas::{axpy, dot};
use crate::linalg::parallel::{fill_pieces, map_pieces};
use crate::probit::Probit;
use crate::stats::OutputObservations;

/// Rows at a time.
const ROWS: usize = 1024;

/// B as a function of `x`: for each class the whitened weights `L^T w_c`, then for each function
/// `(ln alpha - ln alpha_0) sqrt(C / 2)`, where `L L^T = Phi^T W Phi + A_0` belongs to the model as it stood.
pub(super) struct Together {
    /// Unit-norm columns of the active functions, N x m.
    columns: Vec<f64>,
    /// L at the start.
    whitening: Cholesky,
    ln_alpha: Vec<f64>,
    /// The factor at another alpha.
    chol: Cholesky,
    n_outputs: usize,
}

/// Weights (class after class) and alphas that an `x` stands for, in the state's own units and order.
pub(super) struct Unpacked {
    pub(super) weights: Vec<f64>,
    pub(super) alpha: Vec<f64>,
}

impl Together {
    pub(super) fn new(stats: &mut OutputObservations<'_>, state: &OutputState) -> Self {
        Self {
            columns: stats.active_columns(&state.active),
            whitening: state.levels[0].chol.clone(),
            ln_alpha: state.alpha.iter().map(|a| a.ln()).collect(),
            chol: Cholesky::with_capacity(state.len()),
            n_outputs: state.outputs.len(),
        }
    }

    fn len(&self) -> usize {
        self.ln_alpha.len()
    }

    /// The unit of ln alpha in `x`: the curvature of `C/2 ln|A|` and its like is about C/2.
    fn unit(&self) -> f64 {
        (2.0 / self.n_outputs as f64).sqrt()
    }

    /// The `x` of the model as it stands.
    pub(super) fn start(&self, state: &OutputState) -> Vec<f64> {
        let m = self.len();
        let mut x = Vec::with_capacity(m * (self.n_outputs + 1));
        let lower = &self.whitening;
        for output in &state.outputs {
            // L^T mu: row i of L^T is column i of L.
            x.extend((0..m).map(|i| (i..m).map(|k| lower.get(k, i) * output.mu[k]).sum::<f64>()));
        }
        x.resize(m * (self.n_outputs + 1), 0.0);
        x
    }

    pub(super) fn unpack(&self, x: &[f64]) -> Unpacked {
        let m = self.len();
        let (whitened, moves) = x.split_at(m * self.n_outputs);
        let mut weights = whitened.to_vec();
        for weights in weights.chunks_exact_mut(m.max(1)) {
            self.whitening.solve_lower_transpose_in_place(weights);
        }
        let alpha = self.ln_alpha.iter().zip(moves);
        let alpha = alpha.map(|(a, u)| (a + self.unit() * u).exp().max(ALPHA_FLOOR));
        Unpacked {
            weights,
            alpha: alpha.collect(),
        }
    }

    /// Phi W at every row, N x C.
    pub(super) fn predictions(&self, weights: &[f64]) -> Vec<f64> {
        let m = self.len();
        let n = self.columns.len() / m.max(1);
        let mut predictions = vec![0.0; n * self.n_outputs];
        let classes = predictions.chunks_exact_mut(n.max(1));
        for (prediction, weights) in classes.zip(weights.chunks_exact(m.max(1))) {
            fill_pieces(prediction, ROWS, |start, part| {
                let rows = start..start + part.len();
                for (column, &w) in self.columns.chunks_exact(n).zip(weights) {
                    axpy(w, &column[rows.clone()], part);
                }
            });
        }
        predictions
    }

    /// B and its gradient at `x`.
    pub(super) fn bound(
        &mut self,
        x: &[f64],
        probit: &Probit,
        labels: &[usize],
        row_weights: Option<&[f64]>,
        gram: impl Fn(usize, usize) -> f64,
    ) -> Result<(f64, Vec<f64>)> {
        let (m, c) = (self.len(), self.n_outputs as f64);
        let Unpacked { weights, alpha } = self.unpack(x);
        let predictions = self.predictions(&weights);
        let expected = probit.expectations(&predictions, labels, self.n_outputs)?;
        let fit: f64 = match row_weights {
            None => expected.log_probability.iter().sum(),
            Some(w) => dot(w, &expected.log_probability),
        };
        let mut residuals = expected.targets;
        residuals
            .iter_mut()
            .zip(&predictions)
            .for_each(|(y, f)| *y -= f);
        self.chol
            .refactor(m, |i, j| gram(i, j) + if i == j { alpha[i] } else { 0.0 })?;
        let mut variances = vec![0.0; m];
        self.chol.inverse_diagonal_into(&mut variances);

        let ln_alpha: f64 = alpha.iter().map(|a| a.ln()).sum();
        let mut bound = fit + 0.5 * c * (ln_alpha - self.chol.ln_det());
        let mut gradient = self.projections(&mut residuals, row_weights);
        let mut squares = vec![0.0; m];
        let classes = gradient
            .chunks_exact_mut(m.max(1))
            .zip(weights.chunks_exact(m.max(1)));
        for (gradient, weights) in classes {
            for k in 0..m {
                gradient[k] -= alpha[k] * weights[k];
                squares[k] += weights[k] * weights[k];
            }
            self.whitening.solve_lower_in_place(gradient);
        }
        bound -= 0.5 * dot(&alpha, &squares);
        let slope = (0..m).map(|k| {
            0.5 * (c * (1.0 - alpha[k] * variances[k]) - alpha[k] * squares[k]) * self.unit()
        });
        gradient.extend(slope);
        Ok((bound, gradient))
    }

    /// Phi^T of the residuals of each class, times the sample weights: m x C.
    fn projections(&self, residuals: &mut [f64], row_weights: Option<&[f64]>) -> Vec<f64> {
        let m = self.len();
        let n = self.columns.len() / m.max(1);
        if let Some(w) = row_weights {
            for residual in residuals.chunks_exact_mut(n.max(1)) {
                residual.iter_mut().zip(w).for_each(|(r, w)| *r *= w);
            }
        }
        let residuals = &*residuals;
        let of_class = |class: usize| {
            let residual = &residuals[class * n..(class + 1) * n];
            let columns = self.columns.chunks_exact(n);
            columns
                .map(|column| dot(column, residual))
                .collect::<Vec<f64>>()
        };
        map_pieces(self.n_outputs, 1, |class| of_class(class.start)).concat()
    }
}
