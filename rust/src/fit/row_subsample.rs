//! Curvature from part of the rows, for the way from a first model to a nearly complete one where rows are many.
//!
//! Most of the cost of a working set or a pass over the dictionary is Gram matrices: a product per row and pair of functions, where
//! gradients take one per row and function. Here the quadratic model of the data,
//! `deviance - 2 d^T gradient + d^T G d` about the present mean, has the deviance and the gradient of all rows, and the Gram
//! matrix G of one row in sixteen, scaled up. The error is a few per cent of d^T G d, the curvature of the change, and not of what
//! the model explains; the next quadratic model, with exact gradients, removes it. The fit ends on all rows.

use nalgebra::DMatrix;

use crate::data::{Approximation, Facts, Statistics, Sweep};
use crate::fit::context::Fit;
use crate::fit::model::Model;
use crate::fit::record::{Action, Stop};
use crate::fit::tuning::Tuning;
use crate::linalg::LowerTriangle;
use crate::{Error, Result};

/// [`Statistics`] of a Gaussian likelihood with the Gram matrices of part of the rows.
pub(crate) struct SubsampledStatistics<'a> {
    whole: &'a mut dyn Statistics,
    part: &'a mut dyn Statistics,
    /// Length on the part, scaled up, of each column that has unit length on all rows.
    ratio: Vec<f64>,
}

impl<'a> SubsampledStatistics<'a> {
    fn new(whole: &'a mut dyn Statistics, part: &'a mut dyn Statistics) -> Self {
        let rows = (whole.facts().n_obs / part.facts().n_obs).sqrt();
        let norms = whole.facts().norms.iter().zip(&part.facts().norms);
        let ratio = |(&all, &some): (&f64, &f64)| if all > 0.0 { rows * some / all } else { 0.0 };
        let ratio = norms.map(ratio).collect();
        Self { whole, part, ratio }
    }

    /// Converts a Gram matrix of unit columns of the part to unit columns of the whole.
    fn scale(&self, gram: &mut DMatrix<f64>, functions: &[usize]) {
        for (b, &j) in functions.iter().enumerate() {
            for (a, &i) in functions.iter().enumerate() {
                gram[(a, b)] *= self.ratio[i] * self.ratio[j];
            }
        }
    }
}

impl Fit<'_, '_> {
    /// Where rows and functions are many, makes a first model on all rows, nearly completes it on [`SubsampledStatistics`], and
    /// returns true; the model then holds the statistics of all rows, and the dictionary is refreshed.
    ///
    /// (A step from the empty model changes all that the model explains, so the error of its curvature would be large.) If a precision
    /// becomes indefinite, the model is empty again.
    pub(crate) fn start_from_subsample(&mut self) -> Result<bool, Stop> {
        // Smaller dictionaries are one working set.
        if self.stats.facts().n_basis() <= Tuning::MAX_WHOLE_DICTIONARY {
            return Ok(false);
        }
        let empty = self.model.clone();
        let mut outcome = None;
        let kind = Approximation::RowSubsample {
            share: Tuning::SUBSAMPLE_RATIO,
            least: Tuning::MIN_SUBSAMPLE_ROWS,
        };
        let Self {
            stats,
            model,
            dictionary,
            rules,
            recorder,
        } = self;
        stats.with_approximation(kind, &mut |whole, part| {
            let mut fit = Fit {
                stats: whole,
                model,
                dictionary,
                rules,
                recorder,
            };
            outcome = Some(fit.start_from_part(part));
        })?;
        let Some(outcome) = outcome else {
            return Ok(false);
        };
        self.clear_dictionary();
        match outcome {
            Ok(()) => {
                self.model.relinearise(self.stats)?;
                self.record(Action::Joint, None)?;
                self.refresh()?;
                Ok(true)
            }
            Err(Stop::Failed(Error::NotPositiveDefinite(_))) => {
                self.model.clone_from(&empty);
                Ok(false)
            }
            Err(Stop::Failed(error)) => Err(error.into()),
            Err(halt) => {
                self.model.relinearise(self.stats)?;
                self.recorder.amend(self.model);
                Err(halt)
            }
        }
    }

    fn start_from_part(&mut self, part: &mut dyn Statistics) -> Result<(), Stop> {
        self.model_of_sample()?;
        self.clear_dictionary();
        let mut sampled = SubsampledStatistics::new(self.stats, part);
        self.model.relinearise(&mut sampled)?;
        let mut fit = Fit {
            stats: &mut sampled,
            model: self.model,
            dictionary: self.dictionary,
            rules: self.rules,
            recorder: self.recorder,
        };
        fit.nearly_complete()
    }
}

impl Model {
    /// Replaces the quadratic model of the data by the one of `stats` at the posterior mean.
    fn relinearise(&mut self, stats: &mut dyn Statistics) -> Result<()> {
        let mu = self.mu().to_vec();
        self.expand_about(stats, &mu)
    }
}

impl Statistics for SubsampledStatistics<'_> {
    fn facts(&self) -> &Facts {
        self.whole.facts()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.whole.deviance(active, mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        let mut own = DMatrix::zeros(mu.len(), mu.len());
        self.part.local(active, mu, &mut own, gradient)?;
        self.scale(&mut own, active);
        gram.view_mut((0, 0), own.shape()).copy_from(&own);
        Ok(self.whole.gradient(active, mu, gradient)?[0])
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.whole.gradient(active, mu, gradient)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let mut sweep = self.whole.sweep(active, mu, &[])?;
        if !wanted.is_empty() {
            sweep.gram = self.part.sweep(&[], &[], wanted)?.gram;
        }
        for (column, &j) in sweep.gram.iter_mut().zip(wanted) {
            for (v, ratio) in column.iter_mut().zip(&self.ratio) {
                *v *= ratio * self.ratio[j];
            }
        }
        // S is a difference, so both terms need the Gram matrices of the part.
        sweep.diag = self.ratio.iter().map(|r| r * r).collect();
        Ok(sweep)
    }

    fn project(&mut self, js: &[usize]) -> Result<Vec<f64>> {
        self.whole.project(js)
    }

    fn among(&mut self, js: &[usize]) -> Result<(LowerTriangle, Vec<f64>)> {
        let mut gram = self.part.among(js)?.0.whole();
        self.scale(&mut gram, js);
        Ok((LowerTriangle::of(&gram), self.whole.project(js)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Likelihood;
    use crate::data::{DenseDesign, Observations};

    const RUN: usize = 64;
    const SAME: usize = 4;
    const RUNS: usize = 6;
    const K: usize = 5;

    /// Rows in runs, each repeated several times, so that a subsample has the same statistics.
    fn repeated(value: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..RUNS * SAME * RUN)
            .map(|row| value(row / (SAME * RUN) * RUN + row % RUN))
            .collect()
    }

    #[test]
    fn a_subsample_of_repeated_rows_has_the_statistics_of_all() {
        let columns: Vec<f64> = (0..K)
            .flat_map(|j| repeated(move |row| ((row * (j + 2)) as f64).sin() * (1.0 + j as f64)))
            .collect();
        let target = repeated(|row| (row as f64).cos());
        let weights = repeated(|row| 1.0 + (row % 3) as f64);
        let design = DenseDesign::new(&columns, target.len(), K).unwrap();
        let observe = || {
            let (target, weights) = (target.clone(), Some(weights.clone()));
            Observations::new(&design, Likelihood::Gaussian, target, weights).unwrap()
        };
        let (active, mu, others) = ([3, 1], [0.7, -0.2], [4, 1, 0]);
        let mut exact = observe();
        let (mut gram, mut gradient) = (DMatrix::zeros(2, 2), vec![0.0; 2]);
        let deviance = exact.local(&active, &mu, &mut gram, &mut gradient).unwrap();
        let sweep = exact.sweep(&active, &mu, &others).unwrap();
        let among = exact.among(&others).unwrap();
        let mut called = false;
        let near = |a: &[f64], b: &[f64]| {
            assert_eq!(a.len(), b.len());
            assert!(
                a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12),
                "{a:?} {b:?}"
            );
        };
        let (share, least) = (SAME, RUNS * RUN);
        let kind = Approximation::RowSubsample { share, least };
        let mut whole = observe();
        whole
            .with_approximation(kind, &mut |whole, part| {
                called = true;
                let mut sampled = SubsampledStatistics::new(whole, part);
                let (mut g, mut slope) = (DMatrix::zeros(2, 2), vec![0.0; 2]);
                let d = sampled.local(&active, &mu, &mut g, &mut slope).unwrap();
                near(&[d], &[deviance]);
                near(&slope, &gradient);
                near(g.as_slice(), gram.as_slice());
                let s = sampled.sweep(&active, &mu, &others).unwrap();
                near(&s.diag, &sweep.diag);
                near(&s.gradient, &sweep.gradient);
                near(&s.gram.concat(), &sweep.gram.concat());
                let a = sampled.among(&others).unwrap();
                near(a.0.whole().as_slice(), among.0.whole().as_slice());
                near(&a.1, &among.1);
            })
            .unwrap();
        assert!(called);
    }
}
