//! The multinomial probit likelihood of C scores.
//!
//! Each score f_c has a noisy copy y_c ~ Normal(f_c, 1), and the class is that of the largest copy: equation (1) of
//! Psorakis, Damoulas & Girolami (2010),
//!
//! `P(t = i | f) = E_u[prod_{j != i} Phi(u + f_i - f_j)]` with standard normal u.

mod batch;
mod quadrature;

use crate::linalg::simd::dispatch;
use crate::parallel::map_pieces;
use crate::{Error, Result};

use crate::likelihood::probit::batch::{Piece, Table, Wanted};
pub(crate) use crate::likelihood::probit::batch::{Workspace, packed};
use crate::likelihood::probit::quadrature::Nodes;

/// Rows per task of a thread.
const ROWS_PER_TASK: usize = 64;
/// The multinomial probit likelihood, with a given number of quadrature nodes.
///
/// ```
/// use sparsebayes::internal::Probit;
///
/// // Two rows with three scores each, column-major. In row 0 all three are equal.
/// let scores = [0.0, 3.0, 0.0, 0.0, 0.0, -800.0];
/// let probit = Probit::default();
/// let log_p = probit.log_probabilities(&scores, 3)?;
/// assert!((log_p[0].exp() - 1.0 / 3.0).abs() < 1e-9);
///
/// // The expected copy of the own class exceeds its score; the others are lower by the same total.
/// let e = probit.expectations(&scores, &[0, 1], 3)?;
/// assert!(e.targets[0] > 0.0 && (e.targets[0] + e.targets[2] + e.targets[4]).abs() < 1e-12);
/// # Ok::<(), sparsebayes::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Probit {
    nodes: Nodes,
}

/// The result of an E-step.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectations {
    /// The means of the noisy copies y given the class, N x C column-major: equations (3) and (4).
    pub targets: Vec<f64>,
    /// ln P(t | f) of each row's own class.
    pub log_probability: Vec<f64>,
}

impl Default for Probit {
    fn default() -> Self {
        Self {
            nodes: Nodes::new(Self::NODES),
        }
    }
}

impl Probit {
    /// Nodes that give an error below 1e-6 for probabilities and expectations of up to 14 classes and any scores:
    /// see `docs/theory/probit-quadrature.md`.
    pub const NODES: usize = 16;
    /// Nodes that give this accuracy for up to 30 classes.
    const NODES_FOR_MANY_CLASSES: usize = 24;
    const MAX_CLASSES_FOR_NODES: usize = 14;

    /// The likelihood with enough nodes for this number of classes.
    #[must_use]
    pub fn for_classes(n_classes: usize) -> Self {
        let nodes = if n_classes <= Self::MAX_CLASSES_FOR_NODES {
            Self::NODES
        } else {
            Self::NODES_FOR_MANY_CLASSES
        };
        Self {
            nodes: Nodes::new(nodes),
        }
    }

    /// The likelihood with `n_nodes` nodes per integral. Two classes have a closed form and use none.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `n_nodes` is from 1 to 1000.
    pub fn new(n_nodes: usize) -> Result<Self> {
        if !(1..=1000).contains(&n_nodes) {
            let what = format!(
                "n_quadrature must lie between 1 and 1000, got {n_nodes}; {} are exact to 1e-6",
                Self::NODES
            );
            return Err(Error::Invalid { what });
        }
        Ok(Self {
            nodes: Nodes::new(n_nodes),
        })
    }

    /// P(t = c | f) for N x C column-major scores, in the same layout: equation (1).
    ///
    /// One integral per row, for the class of the largest score, gives all classes. The probabilities of a row are
    /// normalised; their sum differs from 1 only by the quadrature error. The error is absolute: probabilities below
    /// 1e-14 may become 0.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::NonFinite`] or [`Error::Invalid`] if `scores` is not such a table, a score exceeds 1e12
    /// in magnitude, or there are fewer than two classes.
    pub fn probabilities(&self, scores: &[f64], n_classes: usize) -> Result<Vec<f64>> {
        let table = Table::new(scores, n_classes)?;
        Ok(self.evaluate(table, Wanted::Probabilities).0)
    }

    /// [`Probit::probabilities`] on the calling thread, without allocations.
    pub(crate) fn probabilities_into(
        &self,
        scores: &[f64],
        n_classes: usize,
        workspace: &mut Workspace,
        out: &mut [f64],
    ) -> Result<()> {
        let table = Table::new(scores, n_classes)?;
        dispatch(Piece {
            nodes: &self.nodes,
            table,
            rows: 0..table.n_rows,
            wanted: Wanted::Probabilities,
            workspace,
            out,
            log_probability: &mut Vec::new(),
        });
        Ok(())
    }

    /// The logarithms of the probabilities, accurate for any small probability: one integral per row and class.
    ///
    /// # Errors
    /// As [`Probit::probabilities`].
    pub fn log_probabilities(&self, scores: &[f64], n_classes: usize) -> Result<Vec<f64>> {
        let table = Table::new(scores, n_classes)?;
        Ok(self.evaluate(table, Wanted::LogProbabilities).0)
    }

    /// The E-step: means of the noisy copies of the scores given that the copy of the row's own class is the largest.
    ///
    /// # Errors
    /// As [`Probit::probabilities`], and [`Error::Invalid`] for a label that is not below `n_classes`.
    pub fn expectations(
        &self,
        scores: &[f64],
        labels: &[usize],
        n_classes: usize,
    ) -> Result<Expectations> {
        let table = Table::labelled(scores, labels, n_classes)?;
        let (targets, log_probability) = self.evaluate(table, Wanted::Expectations(labels));
        Ok(Expectations {
            targets,
            log_probability,
        })
    }

    /// The E-step, and minus the Hessian of each row's ln P in its scores: the identity minus the covariance of the copies.
    ///
    /// The second table has C (C + 1) / 2 columns: the lower triangles in row-major order. The matrices are positive
    /// semi-definite up to the quadrature error.
    ///
    /// # Errors
    /// As [`Probit::expectations`].
    pub fn curvatures(
        &self,
        scores: &[f64],
        labels: &[usize],
        n_classes: usize,
    ) -> Result<(Expectations, Vec<f64>)> {
        let table = Table::labelled(scores, labels, n_classes)?;
        let (mut targets, log_probability) = self.evaluate(table, Wanted::Curvatures(labels));
        let curvatures = targets.split_off(scores.len());
        let expectations = Expectations {
            targets,
            log_probability,
        };
        Ok((expectations, curvatures))
    }

    /// The requested columns of all rows, and one number per row.
    fn evaluate(&self, table: Table<'_>, wanted: Wanted<'_>) -> (Vec<f64>, Vec<f64>) {
        let n_columns = wanted.n_columns(table.n_classes);
        let parts = map_pieces(table.n_rows, ROWS_PER_TASK, |rows| {
            let mut out = vec![0.0; rows.len() * n_columns];
            let mut log_probability = Vec::new();
            dispatch(Piece {
                nodes: &self.nodes,
                table,
                rows,
                wanted,
                workspace: &mut Workspace::default(),
                out: &mut out,
                log_probability: &mut log_probability,
            });
            (out, log_probability)
        });
        let (tables, columns): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        (join(&tables, table.n_rows, n_columns), columns.concat())
    }
}

/// Joins tables that hold all columns of successive rows.
fn join(parts: &[Vec<f64>], n_rows: usize, n_columns: usize) -> Vec<f64> {
    let mut all = Vec::with_capacity(n_rows * n_columns);
    for column in 0..n_columns {
        for part in parts {
            let height = part.len() / n_columns;
            all.extend_from_slice(&part[column * height..][..height]);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    //! Values and refusals are tested in `tests/python/test_probit.py`.

    use proptest::prelude::*;

    use super::*;

    fn rows() -> impl Strategy<Value = (Vec<f64>, usize)> {
        (2..=10_usize, -1.0..1.5_f64).prop_flat_map(|(n, size)| {
            let scale = 10.0_f64.powf(size);
            (prop::collection::vec(-scale..scale, n), 0..n)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn curvatures_are_minus_the_derivatives_of_the_expectations((scores, own) in rows()) {
            // Targets minus scores are the gradient of ln P.
            let (probit, n) = (Probit::new(64).unwrap(), scores.len());
            let (expected, curvatures) = probit.curvatures(&scores, &[own], n).unwrap();
            prop_assert_eq!(&expected, &probit.expectations(&scores, &[own], n).unwrap());
            let step = 1e-4;
            for d in 0..n {
                let moved = |by: f64| {
                    let mut scores = scores.clone();
                    scores[d] += by;
                    probit.expectations(&scores, &[own], n).unwrap().targets
                };
                let (up, down) = (moved(step), moved(-step));
                for c in 0..n {
                    let slope = (up[c] - down[c]) / (2.0 * step) - f64::from(u8::from(c == d));
                    let found = curvatures[packed(c.max(d), c.min(d))];
                    prop_assert!((found + slope).abs() < 1e-6, "{c} {d}: {found} {slope}");
                }
            }
        }

        #[test]
        fn scores_of_any_size_stay_finite(
            row in prop::collection::vec((-1.0..1.0_f64, 0.0..12.0_f64), 2..40),
            n_nodes in 1..200_usize,
        ) {
            let scores: Vec<f64> = row.iter().map(|(sign, size)| sign * 10.0_f64.powf(*size)).collect();
            let probit = Probit::new(n_nodes).unwrap();
            for own in 0..scores.len() {
                let found = probit.expectations(&scores, &[own], scores.len()).unwrap();
                prop_assert!(found.targets.iter().all(|y| y.is_finite()));
                prop_assert!(found.log_probability[0].is_finite());
                // The exact mean lies in the cone; that of a few nodes need not.
                if n_nodes >= Probit::NODES {
                    let rounding = 1e-13 * scores.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
                    let most = found.targets[own] + rounding + 1e-5;
                    prop_assert!(found.targets.iter().all(|y| *y <= most));
                }
            }
            let p = probit.probabilities(&scores, scores.len()).unwrap();
            prop_assert!(p.iter().all(|p| (0.0..=1.0).contains(p)), "{p:?}");
            let log_p = probit.log_probabilities(&scores, scores.len()).unwrap();
            prop_assert!(log_p.iter().all(|p| p.is_finite() && *p <= 1e-12));
        }
    }

    /// N x C scores from a sine wave, column-major.
    fn wave(n_rows: usize, n_classes: usize) -> Vec<f64> {
        let values = 0..u32::try_from(n_rows * n_classes).unwrap();
        values.map(|k| 4.0 * (f64::from(k) * 0.7).sin()).collect()
    }

    #[test]
    fn a_row_does_not_depend_on_other_rows() {
        let (n, c) = (ROWS_PER_TASK + 13, 5);
        let scores = wave(n, c);
        let labels: Vec<usize> = (0..n).map(|i| i % c).collect();
        let probit = Probit::default();
        let all = probit.expectations(&scores, &labels, c).unwrap();
        let p = probit.probabilities(&scores, c).unwrap();
        for row in [0, 7, 8, 30, ROWS_PER_TASK - 1, ROWS_PER_TASK, n - 1] {
            let own: Vec<f64> = (0..c).map(|class| scores[class * n + row]).collect();
            let alone = probit.expectations(&own, &labels[row..=row], c).unwrap();
            let p_alone = probit.probabilities(&own, c).unwrap();
            for class in 0..c {
                let here = [all.targets[class * n + row], p[class * n + row]];
                assert_eq!(
                    here.map(f64::to_bits),
                    [alone.targets[class], p_alone[class]].map(f64::to_bits)
                );
            }
            assert_eq!(
                all.log_probability[row].to_bits(),
                alone.log_probability[0].to_bits()
            );
        }
    }

    #[test]
    fn many_classes_do_not_underflow() {
        let scores: Vec<f64> = (0..1000).map(|k| if k == 0 { -1e6 } else { 0.0 }).collect();
        let found = Probit::default().expectations(&scores, &[0], 1000).unwrap();
        assert!(found.log_probability[0].is_finite());
        let (own, other) = (found.targets[0], found.targets[1]);
        // The mean of all copies equals the mean score.
        assert!((own - other).abs() < 2e-3 && (own + 999.0 * other + 1e6).abs() < 1e-3);
    }
}
