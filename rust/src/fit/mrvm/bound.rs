//! The variational bound of mRVM1, with its gradient and curvature.
//!
//! mRVM1 (Psorakis et al. 2010) is coordinate ascent on a variational bound of ln p(t): with factorised posteriors of weights
//! and auxiliary variables, the E-step (3), (4) maximises it over the latter and the M-step over the rest. With both posteriors
//! optimal for a mean W the bound is, up to a constant,
//!
//! `B(W, alpha) = sum_n ln P(t_n | W^T phi_n) - 1/2 sum_c w_c^T A w_c + C/2 (ln|A| - ln|Phi^T Phi + A|)`,
//!
//! with the gradient `Phi^T (Y - Phi W) - A W` in W, where Y are the targets of the E-step. A stationary point of B is a fixed
//! point of both steps.

use crate::Result;
use crate::fit::tuning::Tuning;
use crate::likelihood::probit::{Probit, packed};
use crate::linalg::batched_triangular::LANES;
use crate::linalg::gemm::{TallMatrix, add_lower_transpose_product, add_transpose_product};
use crate::linalg::gemm::{add_combination, product};
use crate::linalg::simd::{dispatch, vectorised};
use crate::linalg::vector::{axpy, dot, head};
use crate::linalg::{Cholesky, Matrix};
use crate::parallel::map_pieces;

/// B as a function of `x`: the weights of each class, class after class, then ln alpha of each function.
///
/// In these coordinates B is far from quadratic: where an alpha grows e-fold, the penalty of weights that stay the same grows
/// much more than if they shrank with it. Steps and derivatives therefore use coordinates (v, u) local to an `x`: alphas become
/// `alpha_k e^{u_k}` and weights `(w_kc + v_kc) / (1 + theta_k (e^{u_k} - 1))`, where `theta = alpha Sigma_kk` is the share of the
/// prior in a weight. In a regression on one function, this is exactly how the weight changes.
pub(crate) struct Bound<'a> {
    /// Columns of the active functions, N x m.
    pub(crate) columns: Vec<f64>,
    /// Their inner products, with the sample weights, m x m.
    pub(crate) gram: Matrix,
    pub(crate) labels: &'a [usize],
    pub(crate) row_weights: Option<&'a [f64]>,
    pub(crate) probit: &'a Probit,
    pub(crate) n_classes: usize,
}

/// B and its derivatives at an `x`, in local coordinates.
pub(crate) struct View {
    pub(crate) value: f64,
    pub(crate) slope: Vec<f64>,
    /// The targets of the E-step, N x C.
    pub(crate) targets: Vec<f64>,
    /// theta.
    shares: Vec<f64>,
    weights: Vec<f64>,
    alpha: Vec<f64>,
    /// `sum_c w_kc^2` for each function.
    squares: Vec<f64>,
    /// The inverse of Phi^T Phi + A.
    sigma: Matrix,
    /// Minus the Hessian of each row's ln P in its scores, times the sample weight: a column for each pair of classes.
    curvatures: Vec<f64>,
}

impl Bound<'_> {
    /// Number of active functions.
    pub(crate) fn len(&self) -> usize {
        self.gram.nrows()
    }

    fn n_rows(&self) -> usize {
        self.labels.len()
    }

    fn tall(&self) -> TallMatrix<'_> {
        TallMatrix::new(&self.columns, self.n_rows(), self.len())
    }

    /// The targets of the E-step at `x`, N x C.
    pub(crate) fn targets(&self, x: &[f64]) -> Result<Vec<f64>> {
        let scores = self.scores(x);
        let expected = self
            .probit
            .expectations(&scores, self.labels, self.n_classes)?;
        Ok(expected.targets)
    }

    /// Phi W at every row, N x C.
    fn scores(&self, x: &[f64]) -> Vec<f64> {
        let weights = &x[..self.len() * self.n_classes];
        product(self.tall(), weights, self.n_rows(), self.n_classes)
    }

    /// B and its first two derivatives.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`](crate::Error::NotPositiveDefinite) if round-off makes the precision indefinite, or a score is NaN.
    pub(crate) fn view(&self, x: &[f64]) -> Result<View> {
        let (m, n, c) = (self.len(), self.n_rows(), self.n_classes);
        let (weights, ln_alpha) = x.split_at(m * c);
        let alpha: Vec<f64> = ln_alpha.iter().map(|a| a.exp()).collect();
        let mut chol = Cholesky::with_capacity(m);
        chol.refactor(m, |i, j| {
            self.gram[(i, j)] + if i == j { alpha[i] } else { 0.0 }
        })?;
        let mut sigma = Matrix::zeros(m, m);
        chol.inverse_into(&mut sigma)?;

        let scores = self.scores(x);
        let (expected, mut curvatures) = self.probit.curvatures(&scores, self.labels, c)?;
        let targets = expected.targets;
        let mut residuals = targets.clone();
        axpy(-1.0, &scores, &mut residuals);
        let mut fit = expected.log_probability;
        if let Some(row_weights) = self.row_weights {
            let tables = [&mut residuals, &mut curvatures, &mut fit];
            for column in tables.into_iter().flat_map(|t| t.chunks_exact_mut(n)) {
                column
                    .iter_mut()
                    .zip(row_weights)
                    .for_each(|(v, w)| *v *= w);
            }
        }
        let mut slope = vec![0.0; m * (c + 1)];
        add_transpose_product(
            self.tall(),
            TallMatrix::new(&residuals, n, c),
            n,
            &mut slope,
            m,
        );

        let mut squares = vec![0.0; m];
        for (k, (slope, w)) in slope.iter_mut().zip(weights).enumerate() {
            *slope -= alpha[k % m] * w;
            squares[k % m] += w * w;
        }
        let occam = ln_alpha.iter().sum::<f64>() - chol.ln_det();
        let classes = c as f64;
        let shares: Vec<f64> = (0..m).map(|k| alpha[k] * sigma[(k, k)]).collect();
        for k in 0..m {
            slope[m * c + k] = 0.5 * (classes * (1.0 - shares[k]) - alpha[k] * squares[k]);
        }
        for (i, w) in weights.iter().enumerate() {
            slope[m * c + i % m] -= shares[i % m] * slope[i] * w;
        }
        Ok(View {
            value: fit.iter().sum::<f64>() - 0.5 * dot(&alpha, &squares) + 0.5 * classes * occam,
            slope,
            targets,
            shares,
            weights: weights.to_vec(),
            alpha,
            squares,
            sigma,
            curvatures,
        })
    }

    /// The point to which a step from `x` leads, in local coordinates.
    pub(crate) fn moved(&self, x: &[f64], view: &View, step: &[f64]) -> Vec<f64> {
        let (m, c) = (self.len(), self.n_classes);
        let mut to: Vec<f64> = x.iter().zip(step).map(|(x, d)| x + d).collect();
        let (weights, _) = to.split_at_mut(m * c);
        for (i, w) in weights.iter_mut().enumerate() {
            *w /= 1.0 + view.shares[i % m] * step[m * c + i % m].exp_m1();
        }
        to
    }

    /// Minus the Hessian of B times `v`.
    pub(crate) fn curve(&self, view: &View, v: &[f64]) -> Vec<f64> {
        let (m, c) = (self.len(), self.n_classes);
        let (steps, moves) = v.split_at(m * c);
        // The change of the weights to first order.
        let of_weight = |i: usize| steps[i] - view.shares[i % m] * view.weights[i] * moves[i % m];
        let pushed: Vec<f64> = (0..m * c).map(of_weight).collect();
        let mut out = self.curve_of_likelihood(view, &pushed);
        out.resize(m * (c + 1), 0.0);
        let (classes, View { alpha, sigma, .. }) = (c as f64, view);
        let (in_weights, in_alpha) = out.split_at_mut(m * c);
        for (i, out) in in_weights.iter_mut().enumerate() {
            let (k, w, slope) = (i % m, view.weights[i], view.slope[i]);
            let share = view.shares[k];
            let curved = *out + alpha[k] * (pushed[i] + w * moves[k]);
            // Weights are bilinear in v and u except for `(2 theta^2 - theta) w u^2 / 2`, which multiplies the slope.
            *out = curved + share * slope * moves[k];
            in_alpha[k] += alpha[k] * w * pushed[i] - share * w * curved
                + share * slope * (steps[i] - (2.0 * share - 1.0) * w * moves[k]);
        }
        let scaled: Vec<f64> = alpha.iter().zip(moves).map(|(a, v)| a * v).collect();
        for (k, out) in in_alpha.iter_mut().enumerate() {
            let column = head(sigma, k, m).iter().zip(&scaled);
            let pull: f64 = column.map(|(s, v)| s * s * v).sum();
            let own = 0.5 * (view.squares[k] + classes * sigma[(k, k)]) * moves[k];
            *out += alpha[k] * (own - 0.5 * classes * pull);
        }
        out
    }

    /// Minus the Hessian of `sum_n ln P` in the weights, times `v`.
    fn curve_of_likelihood(&self, view: &View, v: &[f64]) -> Vec<f64> {
        let (m, n, c) = (self.len(), self.n_rows(), self.n_classes);
        let parts = map_pieces(n, Tuning::PIECE, |rows| {
            let height = rows.len();
            let columns = self.tall().columns(&rows);
            let mut scores = vec![0.0; height * c];
            for (scores, v) in scores.chunks_exact_mut(height).zip(v.chunks_exact(m)) {
                add_combination(&columns, v, scores);
            }
            let mut curved = vec![0.0; height * c];
            dispatch(SymmetricProduct {
                curvatures: &view.curvatures[rows.start..],
                stride: n,
                height,
                scores: &scores,
                out: &mut curved,
            });
            let mut out = vec![0.0; m * c];
            let columns = TallMatrix::new(&self.columns[rows.start..], n, m);
            add_transpose_product(
                columns,
                TallMatrix::new(&curved, height, c),
                height,
                &mut out,
                m,
            );
            out
        });
        let mut sum = vec![0.0; m * c];
        for part in &parts {
            axpy(1.0, part, &mut sum);
        }
        sum
    }

    /// Cholesky factors of the diagonal blocks of minus the Hessian, one for each class.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`](crate::Error::NotPositiveDefinite).
    pub(crate) fn class_blocks(&self, view: &View) -> Result<Vec<Cholesky>> {
        let (m, n) = (self.len(), self.n_rows());
        let of_class = |c: usize| {
            let curvature = &view.curvatures[packed(c, c) * n..][..n];
            let mut scaled = vec![0.0; n * m];
            let columns = scaled.chunks_exact_mut(n);
            for (scaled, column) in columns.zip(self.columns.chunks_exact(n)) {
                let terms = column.iter().zip(curvature);
                scaled
                    .iter_mut()
                    .zip(terms)
                    .for_each(|(s, (x, h))| *s = x * h);
            }
            let mut block = vec![0.0; m * m];
            // Only the lower triangle.
            for start in (0..m).step_by(LANES) {
                let left = TallMatrix::new(&self.columns[start * n..], n, m - start);
                let right = TallMatrix::new(&scaled[start * n..], n, LANES.min(m - start));
                add_lower_transpose_product(left, right, n, &mut block[start * (m + 1)..], m);
            }
            let mut chol = Cholesky::with_capacity(m);
            chol.refactor(m, |i, j| {
                block[i + j * m] + if i == j { view.alpha[i] } else { 0.0 }
            })?;
            Ok(chol)
        };
        let blocks = map_pieces(self.n_classes, 1, |class| of_class(class.start));
        blocks.into_iter().collect()
    }

    /// Scales of steps in ln alpha: the absolute diagonal of minus the Hessian in ln alpha without the terms between classes,
    /// bounded from below. `blocks` are the [`Bound::class_blocks`].
    pub(crate) fn alpha_scales(&self, view: &View, blocks: &[Cholesky]) -> Vec<f64> {
        let (m, classes) = (self.len(), self.n_classes as f64);
        let scale = |k: usize| {
            let (alpha, share) = (view.alpha[k], view.shares[k]);
            let prior = (0.5 - 2.0 * share) * alpha * view.squares[k];
            let mut own = prior + 0.5 * classes * share * (1.0 - share);
            for (c, block) in blocks.iter().enumerate() {
                let (w, slope) = (view.weights[c * m + k], view.slope[c * m + k]);
                let curvature: f64 = (0..=k).map(|j| block.get(k, j).powi(2)).sum();
                own += share * w * (share * w * curvature - (2.0 * share - 1.0) * slope);
            }
            own.abs().max(Tuning::MIN_SCALE * classes)
        };
        (0..m).map(scale).collect()
    }
}

// For each row of a piece, the product of its symmetric matrix in `curvatures` with its scores. `curvatures` starts at the first row of the
// piece; its columns are `stride` apart.
vectorised!(SymmetricProduct {
    curvatures: &'a [f64], stride: usize, height: usize, scores: &'a [f64], out: &'a mut [f64]
} -> (), |this| {
    let (n, scores) = (this.height, this.scores);
    for c in 0..scores.len() / n {
        let (before, from) = this.out.split_at_mut(c * n);
        let own = &mut from[..n];
        let of_c = &scores[c * n..][..n];
        for d in 0..=c {
            let curvature = &this.curvatures[packed(c, d) * this.stride..][..n];
            let of_d = &scores[d * n..][..n];
            for r in 0..n {
                own[r] += curvature[r] * of_d[r];
            }
            if c != d {
                let other = &mut before[d * n..][..n];
                for r in 0..n {
                    other[r] += curvature[r] * of_c[r];
                }
            }
        }
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the derivatives of B for m functions and c classes on a few rows.
    fn check_derivatives(
        m: usize,
        c: usize,
        labels: &[usize],
        weights: Option<&[f64]>,
        probit: &Probit,
    ) {
        let n = labels.len();
        let columns: Vec<f64> = (0..n * m).map(|i| (0.37 * i as f64).sin()).collect();
        let weigh = |row: usize| weights.map_or(1.0, |w| w[row]);
        let gram = Matrix::from_fn(m, m, |i, j| {
            (0..n)
                .map(|r| weigh(r) * columns[i * n + r] * columns[j * n + r])
                .sum()
        });
        let bound = Bound {
            columns,
            gram,
            labels,
            row_weights: weights,
            probit,
            n_classes: c,
        };
        let x: Vec<f64> = (0..m * (c + 1)).map(|i| (1.3 * i as f64).cos()).collect();
        let view = bound.view(&x).unwrap();
        let h = 1e-3;
        let value = |steps: &[(usize, f64)]| {
            let mut step = vec![0.0; x.len()];
            for &(i, by) in steps {
                step[i] += by;
            }
            bound.view(&bound.moved(&x, &view, &step)).unwrap().value
        };
        for k in 0..x.len() {
            let slope = (value(&[(k, h)]) - value(&[(k, -h)])) / (2.0 * h);
            assert!((view.slope[k] - slope).abs() < 1e-4, "{k}: {slope}");
            let mut unit = vec![0.0; x.len()];
            unit[k] = 1.0;
            let curved = bound.curve(&view, &unit);
            for (i, curved) in curved.iter().enumerate() {
                let up = value(&[(k, h), (i, h)]) - value(&[(k, h), (i, -h)]);
                let down = value(&[(k, -h), (i, h)]) - value(&[(k, -h), (i, -h)]);
                let change = (up - down) / (4.0 * h * h);
                assert!((curved + change).abs() < 1e-3, "{i} {k}: {curved} {change}");
            }
        }
    }

    #[test]
    fn slope_and_curvature_are_derivatives_of_the_bound() {
        let probit = Probit::new(48).unwrap();
        let labels: Vec<usize> = (0..300).map(|i| (i * i) % 4).collect();
        let weights: Vec<f64> = (0..300).map(|i| 0.5 + f64::from(i % 3)).collect();
        check_derivatives(3, 4, &labels, None, &probit);
        check_derivatives(3, 4, &labels, Some(&weights), &probit);
        let pairs: Vec<usize> = labels.iter().map(|label| label % 2).collect();
        check_derivatives(2, 2, &pairs[..20], None, &probit);
    }
}
