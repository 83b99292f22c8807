//! Statistics of a subset of a large dictionary.

use nalgebra::DMatrix;

use crate::Result;
use crate::data::{Facts, Observations, Statistics, Sweep};
use crate::linalg::LowerTriangle;

/// [`Statistics`] whose dictionary is a subset of the functions of a provider; indices are positions in the subset.
pub(crate) struct Subset<'a, 'd> {
    stats: &'a mut Observations<'d>,
    functions: Vec<usize>,
    facts: Facts,
}

impl<'a, 'd> Subset<'a, 'd> {
    /// Without the lengths of the functions: the norms are NaN.
    pub(crate) fn unmeasured(stats: &'a mut Observations<'d>, functions: Vec<usize>) -> Self {
        let facts = stats.facts().with_norms(vec![f64::NAN; functions.len()]);
        Self {
            stats,
            functions,
            facts,
        }
    }

    /// With the lengths of the functions.
    pub(crate) fn measured(stats: &'a mut Observations<'d>, functions: Vec<usize>) -> Result<Self> {
        let norms = stats.lengths_of(&functions)?;
        let facts = stats.facts().with_norms(norms);
        Ok(Self {
            stats,
            functions,
            facts,
        })
    }

    /// The functions at these positions.
    fn at(&self, positions: &[usize]) -> Vec<usize> {
        positions.iter().map(|&i| self.functions[i]).collect()
    }
}

impl Statistics for Subset<'_, '_> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.stats.deviance(&self.at(active), mu)
    }

    fn local(
        &mut self,
        active: &[usize],
        mu: &[f64],
        gram: &mut DMatrix<f64>,
        gradient: &mut [f64],
    ) -> Result<f64> {
        self.stats.local(&self.at(active), mu, gram, gradient)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.stats.gradient(&self.at(active), mu, gradient)
    }

    fn variance_drift(
        &mut self,
        active: &[usize],
        mu: &[f64],
        sigma: &DMatrix<f64>,
    ) -> Result<DMatrix<f64>> {
        self.stats.variance_drift(&self.at(active), mu, sigma)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        let (active, wanted) = (self.at(active), self.at(wanted));
        self.stats.sweep_of(&self.functions, &active, mu, &wanted)
    }

    fn among(
        &mut self,
        active: &[usize],
        mu: &[f64],
        js: &[usize],
    ) -> Result<(LowerTriangle, Vec<f64>)> {
        self.stats.among(&self.at(active), mu, &self.at(js))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::vector::dot;
    use crate::{DenseDesign, Likelihood};

    #[test]
    fn sums_of_a_subset_equal_those_of_the_whole_dictionary() {
        let values: Vec<f64> = (0..90).map(|i| (f64::from(i) * 1.3).sin() + 0.1).collect();
        let design = DenseDesign::new(values, 9, 10).unwrap();
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
            assert!(near(some.deviances[0], all.deviances[0]));
            for (c, &j) in functions.iter().enumerate() {
                assert!(near(some.diag[c], all.diag[j]));
                assert!(near(some.gradient[c], all.gradient[j]));
                assert!(near(some.gram[0][c], all.gram[0][j]));
                assert!(near(subset.facts.norms[c], whole.facts.norms[j]));
            }
            let (gram, gradient) = whole.among(&[8, 1], &mu, &[4, 8]).unwrap();
            let (own_gram, own_gradient) = subset.among(&[2, 0], &mu, &[1, 2]).unwrap();
            assert!(near(
                dot(&gradient, &gradient),
                dot(&own_gradient, &own_gradient)
            ));
            assert!((gram.whole() - own_gram.whole()).amax() < 1e-13);
        }
    }
}
