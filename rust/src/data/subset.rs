//! Some functions of a large dictionary, as if they were all there are.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nalgebra::DMatrix;

use crate::Result;
use crate::data::design::{Block, Design};
use crate::data::{DictionaryPart, Statistics, Sweep};

/// Some columns of a design, in the order given.
pub(crate) struct SubsetDesign<'a> {
    pub(crate) design: &'a dyn Design,
    pub(crate) columns: &'a [usize],
}

impl Design for SubsetDesign<'_> {
    fn n_rows(&self) -> usize {
        self.design.n_rows()
    }

    fn n_basis(&self) -> usize {
        self.columns.len()
    }

    fn block<'s>(
        &'s self,
        rows: Range<usize>,
        columns: Range<usize>,
        buffer: &'s mut Vec<f64>,
    ) -> Block<'s> {
        let height = rows.len();
        let mut part = Vec::new();
        buffer.clear();
        let columns = &self.columns[columns];
        for run in columns.chunk_by(|a, b| a + 1 == *b) {
            let asked = run[0]..run[0] + run.len();
            let block = self.design.block(rows.clone(), asked, &mut part);
            for c in 0..run.len() {
                buffer.extend_from_slice(block.column(c, height));
            }
        }
        Block {
            data: buffer,
            stride: height,
        }
    }
}

/// [`Statistics`] of some functions of a provider; they go by their place among these.
pub(crate) struct Subset<'a> {
    stats: &'a mut dyn DictionaryPart,
    functions: Vec<usize>,
    norms: Vec<f64>,
}

impl<'a> Subset<'a> {
    /// The functions given, whose lengths are not asked for: [`Statistics::norms`] has none.
    pub(crate) fn unmeasured(stats: &'a mut dyn DictionaryPart, functions: Vec<usize>) -> Self {
        Self {
            stats,
            functions,
            norms: Vec::new(),
        }
    }

    /// The functions given, with their lengths.
    pub(crate) fn measured(
        stats: &'a mut dyn DictionaryPart,
        functions: Vec<usize>,
    ) -> Result<Self> {
        let norms = stats.lengths_of(&functions)?;
        Ok(Self {
            stats,
            functions,
            norms,
        })
    }

    fn named(&self, places: &[usize]) -> Vec<usize> {
        places.iter().map(|&i| self.functions[i]).collect()
    }
}

impl Statistics for Subset<'_> {
    fn n_obs(&self) -> f64 {
        self.stats.n_obs()
    }

    fn n_basis(&self) -> usize {
        self.functions.len()
    }

    fn is_linear(&self) -> bool {
        self.stats.is_linear()
    }

    fn norms(&self) -> &[f64] {
        &self.norms
    }

    fn target_scale(&self) -> f64 {
        self.stats.target_scale()
    }

    fn cancel_flag(&self) -> Option<Arc<AtomicBool>> {
        self.stats.cancel_flag()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.stats.deviance(&self.named(active), mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        self.stats.local(&self.named(active), mu, gram, gradient)
    }

    fn bound(&mut self, active: &[usize], mu: &[f64], sigma: &DMatrix<f64>) -> Result<()> {
        self.stats.bound(&self.named(active), mu, sigma)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<f64> {
        self.stats.gradient(&self.named(active), mu, gradient)
    }

    fn variance_drift(&mut self, active: &[usize], sigma: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        self.stats.variance_drift(&self.named(active), sigma)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let (active, wanted) = (self.named(active), self.named(wanted));
        self.stats.sweep_of(&self.functions, &active, mu, &wanted)
    }

    fn among(&mut self, js: &[usize]) -> Result<(DMatrix<f64>, Vec<f64>)> {
        self.stats.among(&self.named(js))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vector::dot;
    use crate::{DenseDesign, Likelihood, Observations};

    fn values() -> Vec<f64> {
        (0..90).map(|i| (f64::from(i) * 1.3).sin() + 0.1).collect()
    }

    #[test]
    fn columns_come_in_the_order_asked_for() {
        let design = DenseDesign::new(values(), 9, 10).unwrap();
        let columns = [7, 2, 3, 4, 9];
        let subset = SubsetDesign {
            design: &design,
            columns: &columns,
        };
        let mut buffer = Vec::new();
        let block = subset.block(2..7, 1..5, &mut buffer);
        for c in 0..4 {
            let j = columns[1 + c];
            assert_eq!(block.column(c, 5), &values()[9 * j + 2..9 * j + 7]);
        }
    }

    /// Answers for a part of the dictionary are those parts of the answers for all of it.
    #[test]
    fn a_subset_answers_as_the_whole_does() {
        let design = DenseDesign::new(values(), 9, 10).unwrap();
        let target: Vec<f64> = (0..9).map(|i| f64::from(i % 2)).collect();
        let weights = Some((1..10).map(f64::from).collect());
        for likelihood in [Likelihood::Gaussian, Likelihood::Bernoulli] {
            let mut whole =
                Observations::new(&design, likelihood, target.clone(), weights.clone()).unwrap();
            let mut part =
                Observations::in_part(&design, likelihood, target.clone(), weights.clone())
                    .unwrap();
            let functions = vec![1, 4, 8];
            let mut subset = Subset::measured(&mut part, functions.clone()).unwrap();
            let mu = [0.3, -0.2];
            let all = whole.sweep(&[8, 1], &mu, &[1]).unwrap();
            let some = subset.sweep(&[2, 0], &mu, &[0]).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() < 1e-13 * (1.0 + b.abs());
            assert!(near(some.deviance, all.deviance));
            for (c, &j) in functions.iter().enumerate() {
                assert!(near(some.diag[c], all.diag[j]));
                assert!(near(some.gradient[c], all.gradient[j]));
                assert!(near(some.gram[0][c], all.gram[0][j]));
                assert!(near(subset.norms()[c], whole.norms()[j]));
            }
            let (gram, gradient) = whole.among(&[4, 8]).unwrap();
            let (own_gram, own_gradient) = subset.among(&[1, 2]).unwrap();
            assert!(near(
                dot(&gradient, &gradient),
                dot(&own_gradient, &own_gradient)
            ));
            assert!((gram - own_gram).amax() < 1e-13);
        }
    }
}
