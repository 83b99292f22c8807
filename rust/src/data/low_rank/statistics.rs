//! Approximate statistics of a Gaussian likelihood from a few features, with which a fit chooses its first model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Result;
use crate::data::column_cache::{lengths, unit_columns};
use crate::data::low_rank::features::LowRankFeatures;
use crate::data::{Facts, GramAndGradient, Statistics, Sweep};
use crate::error::check_flag;
use crate::linalg::columns::Table;
use crate::linalg::vector::{axpy, dot};

/// [`Statistics`] of a dictionary that is replaced by its low-rank features. No field has the length of the rows.
#[derive(Clone)]
pub(crate) struct LowRankStatistics {
    pub(crate) features: Arc<LowRankFeatures>,
    /// F^T W F, F^T W t and t^T W t.
    gram: Table,
    projections: Vec<f64>,
    target_sq: f64,
    facts: Facts,
    /// F^T times the residual at the latest `mu`.
    gradient: Vec<f64>,
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
            facts: Facts {
                n_obs: weights.iter().sum(),
                n_predictors: 1,
                is_linear: true,
                norms: lengths(&squares)?,
                target_scale,
                cancel,
            },
            features: Arc::new(features),
            gram,
            gradient: projections.clone(),
            projections,
            target_sq,
        })
    }

    fn move_to(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.facts.check_cancelled()?;
        let model = self.features.combine(active, &self.facts.norms, mu);
        let explained = self.gram.products(&model);
        self.gradient.copy_from_slice(&self.projections);
        axpy(-1.0, &explained, &mut self.gradient);
        // ||t - F a||^2 = t^T t - a^T F^T t - a^T F^T (t - F a)
        Ok(self.target_sq - dot(&model, &self.projections) - dot(&model, &self.gradient))
    }
}

impl Statistics for LowRankStatistics {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.move_to(active, mu)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        let deviance = self.move_to(active, mu)?;
        let own = self
            .features
            .projections(&self.gradient, active, &self.facts.norms);
        gradient.copy_from_slice(&own);
        Ok(vec![deviance])
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let deviance = self.move_to(active, mu)?;
        let columns = (wanted, self.facts.norms.as_slice());
        let sums = self
            .features
            .sums(&self.gram, &self.gradient, columns, false);
        self.facts.check_cancelled()?;
        Ok(unit_columns(sums, &self.facts.norms, true, vec![deviance]))
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.move_to(active, mu)?;
        let (gram, right) = (&self.gram, &self.gradient);
        let among = self
            .features
            .lower_among(gram, right, js, &self.facts.norms);
        self.facts.check_cancelled()?;
        Ok(among)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::low_rank::features::{EXACT, EXACT_COLUMN, LowRankPolicy};
    use crate::data::low_rank::{gaussian, points};
    use crate::data::tests::{all_sums, assert_near};
    use crate::data::{DenseDesign, Design, Observations};
    use crate::{Kernel, KernelDesign, Likelihood};

    fn weights(n: usize) -> Vec<f64> {
        (0..n).map(|i| 1.0 + 0.5 * (i as f64).cos()).collect()
    }

    fn target(n: usize) -> Vec<f64> {
        (0..n).map(|i| (0.01 * i as f64).sin()).collect()
    }

    fn observations(design: &dyn Design) -> Observations<'_> {
        let (target, weights) = (target(design.n_rows()), weights(design.n_rows()));
        Observations::new(design, Likelihood::Gaussian, target, Some(weights)).unwrap()
    }

    fn stored(design: &KernelDesign) -> DenseDesign<'static> {
        DenseDesign::new(design.values().unwrap(), design.n_rows(), design.n_basis()).unwrap()
    }

    fn check(rows: &[f64], centres: &[f64], kernels: Vec<Kernel>, bias: bool) {
        let design = KernelDesign::new(rows, centres, 2, kernels, bias).unwrap();
        let (n, k) = (design.n_rows(), design.n_basis());
        let policy = LowRankPolicy {
            tol: EXACT,
            max_features: 300,
        };
        let features = LowRankFeatures::of(&design, Some(&weights(n)), policy).unwrap();
        let dense = stored(&design);
        let mut rows = observations(&dense);
        assert!(
            features.rank() < n / 3 && features.error_within(EXACT_COLUMN, &rows.facts().norms)
        );
        let scale = rows.facts().target_scale;
        let scaled: Vec<f64> = target(n).iter().map(|t| t / scale).collect();
        let mut part =
            LowRankStatistics::new(features, &scaled, Some(&weights(n)), scale, None).unwrap();
        let (active, mu, js) = ([0, 7, k - 1], [3.0, -2.0, 5.0], [4, 0, k / 2]);
        let sums = |stats: &mut dyn Statistics| {
            let facts = [&stats.facts().norms[..], &[stats.facts().target_scale]].concat();
            [facts, all_sums(stats, &active, &mu, &js)].concat()
        };
        assert_near(&sums(&mut part), &sums(&mut rows), 1e-8);
    }

    #[test]
    fn sums_equal_sums_over_the_rows() {
        let (rows, others) = (points(700, 1.0), points(400, 1.3));
        check(&rows, &rows, vec![gaussian(0.5)], true);
        check(&rows, &others, vec![gaussian(0.5)], false);
        check(&rows, &others, vec![gaussian(0.3), gaussian(0.7)], true);
    }

    #[test]
    fn an_outlier_becomes_a_landmark() {
        // Not in the sample from which the first landmarks are chosen.
        let mut rows = points(3000, 1.0);
        rows[2..4].copy_from_slice(&[3.0, -3.5]);
        check(&rows, &rows[..800], vec![gaussian(0.2)], true);
    }

    /// In the units of the original columns, sums do not depend on the approximation of the norms.
    #[test]
    fn approximate_norms_serve_as_units() {
        let square = |i: usize| (i * i) as f64;
        let rows: Vec<f64> = (0..2600).map(|i| 3.0 * (0.37 * square(i)).sin()).collect();
        let design = KernelDesign::new(&rows, &rows, 2, vec![gaussian(1.0)], true).unwrap();
        let dense = stored(&design);
        let (mut nearly, mut exactly) = (observations(&design), observations(&dense));
        let off = |(a, b): (&f64, &f64)| (a / b - 1.0).abs();
        let worst = nearly.facts.norms.iter().zip(&exactly.facts.norms).map(off);
        let worst = worst.fold(0.0, f64::max);
        assert!(1e-9 < worst && worst < 0.1, "{worst}");
        let (active, mu) = ([7, 900], [3.0, -2.0]);
        for _ in 0..2 {
            let sums = |stats: &mut Observations<'_>| {
                let norms = stats.facts().norms.clone();
                let mu: Vec<f64> = active.iter().zip(mu).map(|(&j, m)| m * norms[j]).collect();
                let sweep = stats.sweep(&active, &mu, &[900]).unwrap();
                let mut all = sweep.deviances.clone();
                for (i, norm) in norms.iter().enumerate() {
                    let gram = sweep.gram[0][i] * norms[900];
                    all.extend([sweep.diag[i] * norm, sweep.gradient[i], gram].map(|v| v * norm));
                }
                all
            };
            assert_near(&sums(&mut nearly), &sums(&mut exactly), 1e-9);
        }
        // A pass over some functions uses the same norms.
        let js = [1, 900];
        let whole = nearly.sweep(&active, &mu, &[900]).unwrap();
        let some = nearly.sweep_of(&js, &active, &mu, &[900]).unwrap();
        for (some, whole) in [
            (&some.diag, &whole.diag),
            (&some.gradient, &whole.gradient),
            (&some.gram[0], &whole.gram[0]),
        ] {
            assert_near(some, &js.map(|j| whole[j]), 1e-9);
        }
    }
}
