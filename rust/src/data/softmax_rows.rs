//! The softmax of C linear predictors per row, and its derivatives.

use crate::data::row_blocks::ROW_BLOCK;
use crate::parallel::map_pieces;
use crate::{Error, Result};

/// Probabilities and derivatives at the linear predictors of all rows: a vector for each class.
///
/// With p the probabilities and w the sample weights, the negative second derivative of the log-likelihood of a row is
/// `w (diag(p) - p p^T)`: element (c, c) is `own`, and (c, d) is `-p_c weighted_d`.
#[derive(Debug, Default)]
pub(crate) struct SoftmaxRows {
    /// p of each class.
    pub(crate) p: Vec<Vec<f64>>,
    /// w p.
    pub(crate) weighted: Vec<Vec<f64>>,
    /// w p (1 - p).
    pub(crate) own: Vec<Vec<f64>>,
    /// w (y - p), where y is 1 for the rows of the class and 0 for others.
    pub(crate) residual: Vec<Vec<f64>>,
}

impl SoftmaxRows {
    /// Evaluates the rows; `eta(rows, out)` adds their linear predictors to zeros, class after class. Returns the deviance as well.
    pub(crate) fn at(
        labels: &[usize],
        weights: Option<&[f64]>,
        n_classes: usize,
        eta: impl Fn(std::ops::Range<usize>, &mut [f64]) + Sync + Send,
    ) -> (Self, f64) {
        let n = labels.len();
        let parts = map_pieces(n, ROW_BLOCK, |rows| {
            let height = rows.len();
            let mut values = vec![0.0; n_classes * height];
            eta(rows.clone(), &mut values);
            let mut part = Self::zeros(height, n_classes);
            let mut row = vec![0.0; n_classes];
            let mut deviance = 0.0;
            for i in 0..height {
                let weight = weights.map_or(1.0, |w| w[rows.start + i]);
                for (c, value) in row.iter_mut().enumerate() {
                    *value = values[c * height + i];
                }
                deviance += weight * part.set(i, &mut row, labels[rows.start + i], weight);
            }
            (rows, part, deviance)
        });
        let mut all = Self::zeros(n, n_classes);
        let mut deviance = 0.0;
        for (rows, part, share) in parts {
            for (to, from) in [
                (&mut all.p, part.p),
                (&mut all.weighted, part.weighted),
                (&mut all.own, part.own),
                (&mut all.residual, part.residual),
            ] {
                for (to, from) in to.iter_mut().zip(&from) {
                    to[rows.clone()].copy_from_slice(from);
                }
            }
            deviance += share;
        }
        (all, deviance)
    }

    fn zeros(n: usize, n_classes: usize) -> Self {
        let zeros = vec![vec![0.0; n]; n_classes];
        Self {
            p: zeros.clone(),
            weighted: zeros.clone(),
            own: zeros.clone(),
            residual: zeros,
        }
    }

    /// Sets row `i` and returns minus twice its log-likelihood; overwrites `eta`.
    fn set(&mut self, i: usize, eta: &mut [f64], label: usize, weight: f64) -> f64 {
        let top = (1..eta.len()).fold(0, |top, c| if eta[c] > eta[top] { c } else { top });
        let (highest, difference) = (eta[top], eta[top] - eta[label]);
        // Relative to the largest, so that nothing overflows; `rest` is the sum without the 1 of the largest.
        let mut rest = 0.0;
        for (c, value) in eta.iter_mut().enumerate() {
            *value = (*value - highest).exp();
            rest += if c == top { 0.0 } else { *value };
        }
        for (c, e) in eta.iter().enumerate() {
            let p = e / (1.0 + rest);
            // 1 - p without cancellation: only the largest can be near 1.
            let others = if c == top {
                rest / (1.0 + rest)
            } else {
                1.0 - p
            };
            self.p[c][i] = p;
            self.weighted[c][i] = weight * p;
            self.own[c][i] = weight * p * others;
            self.residual[c][i] = weight * if c == label { others } else { -p };
        }
        2.0 * (difference + rest.ln_1p())
    }
}

/// Class labels as integers, and the number of classes.
///
/// # Errors
/// [`Error::Invalid`] unless the labels are 0, 1, ..., at least two, and each has a row.
pub(crate) fn labels(target: &[f64]) -> Result<(Vec<usize>, usize)> {
    let mut labels = Vec::with_capacity(target.len());
    let mut seen = vec![false; target.len()];
    for &t in target {
        // Whole and in range, so the conversion is exact.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let label = (t.fract() == 0.0 && t >= 0.0 && t < target.len() as f64).then_some(t as usize);
        let Some(label) = label else { break };
        seen[label] = true;
        labels.push(label);
    }
    let n_classes = seen.iter().take_while(|&&s| s).count();
    if labels.len() < target.len() || n_classes < 2 || seen[n_classes..].contains(&true) {
        let what = "y must hold class numbers 0, 1, ..., each of them, two at least, on some row";
        return Err(Error::Invalid { what: what.into() });
    }
    Ok((labels, n_classes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(eta: [f64; 3], label: usize) -> (SoftmaxRows, f64) {
        SoftmaxRows::at(&[label], Some(&[2.0]), 3, |_, out| {
            out.copy_from_slice(&eta);
        })
    }

    #[test]
    fn terms_are_derivatives_of_the_log_likelihood() {
        let h = 1e-5;
        for label in 0..3 {
            let eta = [0.3, -1.2, 0.8];
            let (here, _) = at(eta, label);
            for c in 0..3 {
                let (mut up, mut down) = (eta, eta);
                up[c] += h;
                down[c] -= h;
                let ((up, high), (down, low)) = (at(up, label), at(down, label));
                let first = -0.5 * (high - low) / (2.0 * h);
                assert!((first - here.residual[c][0]).abs() < 1e-9);
                for d in 0..3 {
                    let second = (up.residual[d][0] - down.residual[d][0]) / (2.0 * h);
                    let curvature = if c == d {
                        here.own[c][0]
                    } else {
                        -here.p[c][0] * here.weighted[d][0]
                    };
                    assert!((second + curvature).abs() < 1e-9);
                }
            }
        }
    }

    #[test]
    fn extreme_predictors_stay_finite_and_precise() {
        for label in 0..3 {
            let (rows, deviance) = at([-900.0, 40.0, 0.0], label);
            assert!(deviance.is_finite() && (0..3).all(|c| rows.own[c][0] >= 0.0));
            // 1 - p of the certain class, to full relative precision.
            assert!((rows.own[1][0] / (2.0 * (-40.0_f64).exp()) - 1.0).abs() < 1e-14);
        }
        let (_, deviance) = at([-900.0, 40.0, 0.0], 1);
        assert!((deviance / (4.0 * (-40.0_f64).exp()) - 1.0).abs() < 1e-14);
    }

    #[test]
    fn labels_are_integers_without_gaps() {
        assert_eq!(labels(&[0.0, 2.0, 1.0]).unwrap(), (vec![0, 2, 1], 3));
        for bad in [
            &[0.0, 0.0][..],
            &[0.0, 2.0, 2.0],
            &[0.0, 0.5, 1.0],
            &[-1.0, 0.0, 1.0],
            &[0.0, 1.0, 1e300],
            &[0.0, 1.0, f64::NAN],
            &[],
        ] {
            assert!(labels(bad).is_err(), "{bad:?}");
        }
    }
}
