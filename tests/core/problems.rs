//! Data with fixed seeds, and the short way to fit them.

use sparsebayes::{
    DenseDesign, Design, Kernel, Likelihood, Noise, Observations, Posterior, Settings, Statistics,
    Step, fit, fit_rows,
};
use std::ops::ControlFlow;

/// Uniform numbers in [-1, 1) from a linear congruential generator: the same everywhere, for ever.
pub(crate) struct Uniform(pub(crate) u64);

impl Iterator for Uniform {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
    }
}

/// A dictionary, column-major, and its targets.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) phi: Vec<f64>,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) t: Vec<f64>,
    pub(crate) likelihood: Likelihood,
}

/// Random columns, of which the first three matter.
pub(crate) fn columns(n: usize, k: usize, seed: u64) -> Problem {
    let mut random = Uniform(seed);
    let phi: Vec<f64> = random.by_ref().take(n * k).collect();
    let coefficients = [2.0, -1.0, 0.5];
    let t = (0..n).map(|i| {
        let signal: f64 = (0..k.min(3))
            .map(|j| coefficients[j] * phi[j * n + i])
            .sum();
        signal + 0.3 * random.next().unwrap()
    });
    let t = t.collect();
    Problem {
        phi,
        n,
        k,
        t,
        likelihood: Likelihood::Gaussian,
    }
}

/// This problem with labels.
pub(crate) fn labels(n: usize, k: usize, seed: u64) -> Problem {
    let mut problem = columns(n, k, seed);
    let mut random = Uniform(seed + 1);
    for t in &mut problem.t {
        *t = f64::from(u8::from(*t + random.next().unwrap() > 0.0));
    }
    problem.likelihood = Likelihood::Bernoulli;
    problem
}

/// This problem with counts.
pub(crate) fn counts(n: usize, k: usize, seed: u64) -> Problem {
    let mut problem = columns(n, k, seed);
    for t in &mut problem.t {
        *t = (1.0 + *t).exp().round();
    }
    problem.likelihood = Likelihood::Poisson;
    problem
}

/// This problem with counts of a negative binomial distribution.
pub(crate) fn overdispersed(n: usize, k: usize, seed: u64) -> Problem {
    Problem {
        likelihood: Likelihood::NegativeBinomial(0.4),
        ..counts(n, k, seed)
    }
}

/// This problem with positive targets of shape 2.
pub(crate) fn positive(n: usize, k: usize, seed: u64) -> Problem {
    let mut problem = columns(n, k, seed);
    for t in &mut problem.t {
        *t = (1.0 + *t).exp();
    }
    problem.likelihood = Likelihood::Gamma(0.5);
    problem
}

/// Points of a surface: `n` rows of two coordinates, and targets.
pub(crate) fn surface(n: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut random = Uniform(seed);
    let x: Vec<f64> = random.by_ref().take(2 * n).map(|u| 10.0 * u).collect();
    let t = x.chunks_exact(2).map(|p| {
        let r = p[0].hypot(p[1]).max(1e-9);
        r.sin() / r + 0.1 * random.next().unwrap()
    });
    let t = t.collect();
    (x, t)
}

impl Problem {
    pub(crate) fn design(&self) -> DenseDesign<'_> {
        DenseDesign::new(&self.phi[..], self.n, self.k).unwrap()
    }

    pub(crate) fn fit(&self, settings: Settings) -> (Posterior, Vec<Step>) {
        fit_design(&self.design(), self.likelihood, &self.t, None, settings)
    }

    pub(crate) fn column(&self, j: usize) -> &[f64] {
        &self.phi[j * self.n..(j + 1) * self.n]
    }
}

pub(crate) fn fit_design(
    design: &dyn Design,
    likelihood: Likelihood,
    t: &[f64],
    weights: Option<Vec<f64>>,
    settings: Settings,
) -> (Posterior, Vec<Step>) {
    let mut observations = Observations::new(design, likelihood, t.to_vec(), weights).unwrap();
    let mut steps = Vec::new();
    let posterior = fit_rows(&mut observations, &settings.check().unwrap(), &mut |step| {
        steps.push(*step);
        ControlFlow::Continue(())
    });
    (posterior.unwrap(), steps)
}

/// Fits whatever provides the statistics.
pub(crate) fn fit_statistics(stats: &mut dyn Statistics, settings: Settings) -> Posterior {
    let rules = settings.check().unwrap();
    fit(stats, &rules, &mut |_| ControlFlow::Continue(())).unwrap()
}

pub(crate) fn gaussian(inverse_square_width: f64) -> Kernel {
    Kernel::Gaussian {
        inverse_square_widths: vec![inverse_square_width],
    }
}

/// The label 1 for each target above the border, 0 for the others.
pub(crate) fn above(border: f64, t: &[f64]) -> Vec<f64> {
    t.iter().map(|&t| f64::from(u8::from(t > border))).collect()
}

pub(crate) fn sharp() -> Settings {
    Settings {
        tol: 1e-10,
        ..Settings::default()
    }
}

pub(crate) fn fixed(variance: f64) -> Settings {
    Settings {
        noise: Noise::Fixed(variance),
        ..Settings::default()
    }
}
