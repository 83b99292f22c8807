//! Approximate statistics of a Gaussian likelihood from a few features, with which a fit chooses its first model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::column_cache::{lengths, unit_columns};
use crate::data::column_table::Table;
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::{Statistics, Sweep, check_flag, with_both_triangles};
use crate::linalg::LowerTriangle;
use crate::linalg::vector::{axpy, dot};

/// [`Statistics`] of a dictionary that is replaced by its low-rank features. No field has the length of the rows.
pub(crate) struct LowRankStatistics {
    features: LowRankFeatures,
    /// F^T W F, F^T W t and t^T W t.
    gram: Table,
    projections: Vec<f64>,
    target_sq: f64,
    n_obs: f64,
    norms: Vec<f64>,
    target_scale: f64,
    /// F^T times the residual at the latest `mu`, and the deviance there.
    gradient: Vec<f64>,
    deviance: f64,
    cancel: Option<Arc<AtomicBool>>,
}

impl LowRankStatistics {
    /// `targets` are divided by `target_scale` already.
    pub(crate) fn new(
        features: LowRankFeatures,
        targets: &[f64],
        weights: Option<&[f64]>,
        target_scale: f64,
        cancel: Option<Arc<AtomicBool>>,
    ) -> Result<Self> {
        let weights = weights.map_or_else(|| vec![1.0; targets.len()], <[f64]>::to_vec);
        let weighted: Vec<f64> = targets.iter().zip(&weights).map(|(t, w)| t * w).collect();
        let gram = features.gram(&weights);
        check_flag(cancel.as_deref())?;
        let projections = features.project(&weighted);
        let target_sq = dot(targets, &weighted);
        let squares = features.sums(&gram, &projections, (&[], &[]), true).diag;
        Ok(Self {
            norms: lengths(&squares)?,
            features,
            gram,
            gradient: projections.clone(),
            projections,
            target_sq,
            deviance: target_sq,
            n_obs: weights.iter().sum(),
            target_scale,
            cancel,
        })
    }

    /// Whether the norms are near those of the original columns.
    pub(crate) fn norms_are_close(&self) -> bool {
        /// Largest error of a column, relative to its norm.
        const MAX_ERROR: f64 = 0.5;
        self.features.error_within(MAX_ERROR, &self.norms)
    }

    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        check_flag(self.cancel.as_deref())?;
        let model = self.features.combine(active, &self.norms, mu);
        let explained = self.gram.products(&model);
        self.gradient.copy_from_slice(&self.projections);
        axpy(-1.0, &explained, &mut self.gradient);
        // ||t - F a||^2 = t^T t - a^T F^T t - a^T F^T (t - F a)
        self.deviance =
            self.target_sq - dot(&model, &self.projections) - dot(&model, &self.gradient);
        Ok(self.deviance)
    }
}

impl Statistics for LowRankStatistics {
    fn n_obs(&self) -> f64 {
        self.n_obs
    }

    fn n_basis(&self) -> usize {
        self.norms.len()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.target_scale
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.cancel.clone()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        let (own, slope) = self.among(active)?;
        gram.view_mut((0, 0), own.shape()).copy_from(&own);
        gradient.copy_from_slice(&slope);
        Ok(deviance)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let deviance = self.move_to(active, mu)?;
        gradient.copy_from_slice(&self.project(active)?);
        Ok(deviance)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let deviance = self.move_to(active, mu)?;
        let columns = (wanted, self.norms.as_slice());
        let sums = self
            .features
            .sums(&self.gram, &self.gradient, columns, false);
        check_flag(self.cancel.as_deref())?;
        Ok(unit_columns(sums, &self.norms, true, deviance))
    }

    fn project(&mut self, js: &[usize]) -> Result<Vec<f64>> {
        Ok(self.features.projections(&self.gradient, js, &self.norms))
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        self.lower_among(js).map(with_both_triangles)
    }

    fn lower_among(&mut self, js: &[usize]) -> Result<(LowerTriangle, Vec<f64>)> {
        let (gram, right) = (&self.gram, &self.gradient);
        let among = self.features.lower_among(gram, right, js, &self.norms);
        check_flag(self.cancel.as_deref())?;
        Ok(among)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::low_rank::gaussian;
    use crate::data::low_rank::policy::LowRankPolicy;
    use crate::data::{DenseDesign, Design, DictionaryPart, Observations};
    use crate::{KernelDesign, Likelihood};

    /// The features of wide kernels are accurate.
    #[test]
    fn sums_equal_sums_over_the_rows() {
        const N: usize = 1300;
        let rows: Vec<f64> = (0..2 * N).map(|i| (i as f64 * 1.37).sin()).collect();
        let design = KernelDesign::new(&rows, &rows, 2, vec![gaussian(0.5)], true).unwrap();
        let weights: Vec<f64> = (0..N).map(|i| 1.0 + 0.5 * (i as f64).cos()).collect();
        let target: Vec<f64> = (0..N).map(|i| (0.01 * i as f64).sin()).collect();
        let policy = LowRankPolicy {
            tol: 1e-13,
            ..LowRankPolicy::coarse(&design).unwrap()
        };
        let factor = LowRankFeatures::of(&design, Some(&weights), policy).unwrap();
        let dense = DenseDesign::new(design.values().unwrap(), N, design.n_basis()).unwrap();
        let given = Some(weights.clone());
        let mut rows =
            Observations::new(&dense, Likelihood::Gaussian, target.clone(), given).unwrap();
        let scale = rows.target_scale();
        let scaled: Vec<f64> = target.iter().map(|t| t / scale).collect();
        let mut part =
            LowRankStatistics::new(factor, &scaled, Some(&weights), scale, None).unwrap();
        let near = |a: &[f64], b: &[f64]| {
            assert_eq!(a.len(), b.len());
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() < 1e-8 * (1.0 + b.abs()), "{a} {b}");
            }
        };
        near(&[part.n_obs(), part.target_scale()], &[rows.n_obs(), scale]);
        near(part.norms(), rows.norms());
        let (active, mu) = ([0, 7, 900], [3.0, -2.0, 5.0]);
        near(
            &[part.deviance(&active, &mu).unwrap()],
            &[rows.deviance(&active, &mu).unwrap()],
        );
        let local = |stats: &mut dyn Statistics| {
            let (mut gram, mut slope) = (DMatrix::zeros(3, 3), vec![0.0; 3]);
            let deviance = stats.local(&active, &mu, &mut gram, &mut slope).unwrap();
            let mut all = gram.as_slice().to_vec();
            all.extend_from_slice(&slope);
            stats.gradient(&active, &mu, &mut slope).unwrap();
            all.extend_from_slice(&slope);
            let sweep = stats.sweep(&active, &mu, &[900, 2]).unwrap();
            all.extend(sweep.diag.iter().chain(&sweep.gradient));
            all.extend(sweep.gram.concat());
            let (among, gradient) = stats.among(&[4, 0, 1299]).unwrap();
            all.extend(among.as_slice().iter().chain(&gradient));
            all.extend(stats.project(&[4, 0, 1299]).unwrap());
            all.extend([deviance, sweep.deviance]);
            all
        };
        near(&local(&mut part), &local(&mut rows));
    }

    /// In the units of the original columns, sums do not depend on the approximation of the norms.
    #[test]
    fn approximate_norms_serve_as_units() {
        const N: usize = 1300;
        let square = |i: usize| (i * i) as f64;
        let rows: Vec<f64> = (0..2 * N).map(|i| 3.0 * (0.37 * square(i)).sin()).collect();
        let design = KernelDesign::new(&rows, &rows, 2, vec![gaussian(1.0)], true).unwrap();
        let dense = DenseDesign::new(design.values().unwrap(), N, design.n_basis()).unwrap();
        let target: Vec<f64> = (0..N).map(|i| (0.01 * i as f64).sin()).collect();
        let weights: Vec<f64> = (0..N).map(|i| 1.0 + 0.5 * (i as f64).cos()).collect();
        let observations = |design| {
            let (target, weights) = (target.clone(), Some(weights.clone()));
            Observations::new(design, Likelihood::Gaussian, target, weights).unwrap()
        };
        let (mut nearly, mut exactly) =
            (observations(&design as &dyn Design), observations(&dense));
        let off = |(a, b): (&f64, &f64)| (a / b - 1.0).abs();
        let worst = nearly.norms().iter().zip(exactly.norms()).map(off);
        let worst = worst.fold(0.0, f64::max);
        assert!(1e-9 < worst && worst < 0.1, "{worst}");
        let (active, mu) = ([7, 900], [3.0, -2.0]);
        for _ in 0..2 {
            let sums = |stats: &mut Observations<'_>| {
                let norms = stats.norms().to_vec();
                let mu: Vec<f64> = active.iter().zip(mu).map(|(&j, m)| m * norms[j]).collect();
                let sweep = stats.sweep(&active, &mu, &[900]).unwrap();
                let mut all = vec![sweep.deviance];
                for (i, norm) in norms.iter().enumerate() {
                    let gram = sweep.gram[0][i] * norms[900];
                    all.extend([sweep.diag[i] * norm, sweep.gradient[i], gram].map(|v| v * norm));
                }
                all
            };
            for (a, b) in sums(&mut nearly).iter().zip(sums(&mut exactly)) {
                assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
            }
        }
        // A pass over some functions uses the same norms.
        let (whole, some) = (
            nearly.sweep(&active, &mu, &[900]).unwrap(),
            nearly.sweep_of(&[1, 900], &active, &mu, &[900]).unwrap(),
        );
        for (k, i) in [1, 900].into_iter().enumerate() {
            let pairs = [
                (some.diag[k], whole.diag[i]),
                (some.gradient[k], whole.gradient[i]),
                (some.gram[0][k], whole.gram[0][i]),
            ];
            for (a, b) in pairs {
                assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
            }
        }
    }
}
