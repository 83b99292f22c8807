//! Small problems at the ends of arithmetic, and what must hold of every fit. For the fuzz target `fits` and tests/core.

use std::ops::ControlFlow;

use sparsebayes::internal::{Blocks, OutputNoise, SoftmaxStatistics, fit_in_blocks, fit_outputs};
use sparsebayes::{
    Complexity, DenseDesign, Error, Likelihood, Noise, Observations, Posterior, Result, Scheme,
    Search, Settings, Statistics, Status, Step, SufficientStatistics, SumStatistics, fit,
};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Rows(Likelihood),
    /// The dictionary in blocks.
    Blocks(Likelihood),
    /// The Gaussian likelihood, from sums over the rows.
    Sums,
    Softmax,
    /// Two Gaussian outputs: the targets and the first column.
    Outputs,
}

#[derive(Debug, Clone)]
pub(crate) struct Extreme {
    pub(crate) kind: Kind,
    pub(crate) columns: Vec<Vec<f64>>,
    pub(crate) targets: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
    pub(crate) settings: Settings,
}

/// Integers that make a problem: kind and scheme, rows, style and size of each column, numbers, size of the targets, decades
/// of the weights, fixed noise, priors, tolerance.
pub(crate) type Recipe = (
    (u8, u8),
    u8,
    Vec<(u8, i16)>,
    Vec<i16>,
    i16,
    Option<u8>,
    Option<i16>,
    Option<[i16; 4]>,
    u8,
);

/// From 1e-308 to 1e308, most of them near 1.
fn size(of: i16) -> f64 {
    10.0_f64.powf(308.0 * (f64::from(of) / 32768.0).powi(15))
}

const LIKELIHOODS: [Likelihood; 5] = [
    Likelihood::Gaussian,
    Likelihood::Bernoulli,
    Likelihood::Poisson,
    Likelihood::NegativeBinomial(0.5),
    Likelihood::Gamma(0.5),
];

fn pick<T: Copy, const N: usize>(from: [T; N], which: u8) -> T {
    from[usize::from(which) % N]
}

impl From<Recipe> for Extreme {
    fn from(recipe: Recipe) -> Self {
        use Likelihood::{Bernoulli, Gamma, NegativeBinomial, Poisson};
        use Scheme::{Em, MacKay, Sequential, Variational};
        let ((kind, scheme), n, columns, numbers, scale, decades, noise, priors, tol) = recipe;
        let n = n % 12;
        let mut numbers = numbers.iter().map(|&v| f64::from(v) / 32768.0).cycle();
        let mut vector = || -> Vec<f64> { (0..n).map(|_| numbers.next().unwrap_or(0.5)).collect() };
        let mut all: Vec<Vec<f64>> = Vec::new();
        for &(style, of) in columns.iter().take(columns.len() % 9) {
            let (new, near, apart) = (vector(), all.last(), pick([0.0, 1e-16, 1e-8], style));
            let column = new
                .iter()
                .enumerate()
                .map(|(i, v)| match (style / 3 % 8, near) {
                    (0..3, Some(near)) => near[i] * (1.0 + apart * v),
                    (3, _) => size(of),
                    (4, _) => size(of) * v.round(),
                    _ => size(of) * v,
                });
            all.push(column.collect());
        }
        let likelihood = pick(LIKELIHOODS, kind);
        let other = pick([Kind::Sums, Kind::Softmax, Kind::Outputs], kind);
        let (rows, blocks) = (Kind::Rows(likelihood), Kind::Blocks(likelihood));
        let kind = pick([rows, rows, blocks, other], kind / 3);
        let target = |v: f64| match kind {
            Kind::Rows(Bernoulli) | Kind::Blocks(Bernoulli) => f64::from(v > 0.0),
            Kind::Rows(Poisson | NegativeBinomial(_))
            | Kind::Blocks(Poisson | NegativeBinomial(_)) => (5.0 * size(scale) * v).abs().round(),
            Kind::Rows(Gamma(_)) | Kind::Blocks(Gamma(_)) => (5.0 * size(scale) * v).abs(),
            Kind::Softmax => (3.0 * v).abs().floor(),
            _ => size(scale) * v,
        };
        let [a, b, c, d] = priors.map_or([0.0; 4], |priors| priors.map(size));
        let weight = |decades: u8, v: f64| 10.0_f64.powf(f64::from(decades % 24) * v);
        Self {
            kind,
            columns: all,
            targets: vector().into_iter().map(target).collect(),
            weights: decades.map(|most| vector().into_iter().map(|v| weight(most, v)).collect()),
            settings: Settings {
                noise: noise.map_or(Noise::Estimated, |of| Noise::Fixed(size(of))),
                tol: 10.0_f64.powi(-i32::from(tol % 10)),
                max_iter: 200,
                scheme: pick(
                    [Sequential, Sequential, Sequential, MacKay, Em, Variational],
                    scheme,
                ),
                alpha_prior: [a, b],
                noise_prior: [c, d],
                search: pick(
                    [Search::Greedy, Search::Greedy, Search::Exchange],
                    scheme / 6,
                ),
                unpenalized: pick([&[][..], &[], &[0], &[0, 2]], scheme / 18).to_vec(),
                complexity: Complexity::default(),
            },
        }
    }
}

impl Extreme {
    /// Fits and predicts. Panics on a defect; returns how the fit ended, or `None` if it was refused or broke down.
    pub(crate) fn run(&self) -> Option<Status> {
        let refused = |error: &Error| match error {
            Error::NotPositiveDefinite(_) | Error::Breakdown { .. } => true,
            other => other.is_invalid_input(),
        };
        let outcome = self.solve();
        assert!(outcome.as_ref().err().is_none_or(refused), "{outcome:?}");
        outcome.ok()
    }

    fn solve(&self) -> Result<Status> {
        let rules = &self.settings.clone().check()?;
        let (n, k) = (self.targets.len(), self.columns.len());
        let design = &DenseDesign::new(self.columns.concat(), n, k)?;
        let (targets, weights) = (self.targets.clone(), self.weights.clone());
        let go_on = &mut |_: &Step| ControlFlow::Continue(());
        let sums = SufficientStatistics::of(design, &targets, weights.as_deref(), None)?;
        let mut stats: Box<dyn Statistics> = match self.kind {
            Kind::Rows(likelihood) => {
                Box::new(Observations::new(design, likelihood, targets, weights)?)
            }
            Kind::Sums => Box::new(SumStatistics::new(&sums, false, 0)?),
            Kind::Softmax => Box::new(SoftmaxStatistics::new(design, &targets, weights)?),
            Kind::Blocks(likelihood) => {
                let mut rows = Observations::in_part(design, likelihood, targets, weights)?;
                let mut blocks = Blocks::default();
                (blocks.sample, blocks.working, blocks.entrants, blocks.block) = (3, 2, 1, 2);
                let keep = &mut |_: &_| Ok(());
                let posterior = fit_in_blocks(&mut rows, rules, &blocks, None, keep, go_on)?;
                return self.check(&posterior);
            }
            Kind::Outputs => {
                let second = self.columns.first().unwrap_or(&targets);
                let noise = OutputNoise::Own(vec![self.settings.noise; 2]);
                let both = [&targets[..], second].concat();
                let mut rows = Observations::outputs(design, both, 2, weights, None)?;
                let found = fit_outputs(&mut rows, rules, &noise, go_on)?;
                check(
                    &found.alpha,
                    &found.beta,
                    &[found.mu.as_slice(), &found.trace],
                );
                return Ok(found.status);
            }
        };
        self.check(&fit(&mut *stats, rules, go_on)?)
    }

    fn check(&self, found: &Posterior) -> Result<Status> {
        let (m, sigma) = (found.active.len(), &found.sigma);
        assert!(
            found.active.is_sorted_by(|a, b| a < b),
            "{:?}",
            found.active
        );
        assert_eq!(
            [
                found.alpha.len(),
                found.mu.len(),
                sigma.nrows(),
                sigma.ncols()
            ],
            [m; 4]
        );
        let evidence = &[found.log_evidence];
        let others = [
            &found.mu,
            sigma.as_slice(),
            &found.gamma,
            &found.trace,
            evidence,
        ];
        check(&found.alpha, &[found.beta], &others);
        let Settings {
            noise,
            scheme,
            search,
            ..
        } = self.settings;
        let plain = (self.kind, scheme, search, &self.weights)
            == (
                Kind::Rows(Likelihood::Gaussian),
                Scheme::Sequential,
                Search::Greedy,
                &None,
            );
        let largest = self
            .targets
            .iter()
            .fold(0.0, |most: f64, t| most.max(t.abs()));
        // At given noise the evidence does not fall, unless the noise is below the rounding of the targets.
        if plain && matches!(noise, Noise::Fixed(variance) if variance > 1e-6 * largest * largest) {
            let falls = |pair: &[f64]| pair[1] < pair[0] - 1e-9 * (1.0 + pair[0].abs());
            assert!(!found.trace.windows(2).any(falls), "{:?}", found.trace);
        }
        if let Kind::Rows(likelihood) | Kind::Blocks(likelihood) = self.kind {
            self.predict(found, likelihood)?;
        }
        Ok(found.status)
    }

    fn predict(&self, posterior: &Posterior, likelihood: Likelihood) -> Result<()> {
        let (n, k) = (self.targets.len(), self.columns.len());
        let model = posterior.predictor_of_columns(k, likelihood)?;
        let x: Vec<f64> = (0..n * k).map(|at| self.columns[at % k][at / k]).collect();
        let (mut mean, mut std) = (vec![0.0; n * model.n_predicted()], vec![0.0; n]);
        model.predict_into(&x, &mut mean)?;
        // The mean of counts may overflow.
        assert!(mean.iter().all(|&m| m.is_finite() || m > 0.0), "{mean:?}");
        if likelihood == Likelihood::Gaussian {
            model.predict_std_into(&x, &mut mean, &mut std)?;
            assert!(std.iter().all(|s| s.is_finite() && *s >= 0.0), "{std:?}");
        }
        Ok(())
    }
}

/// Precisions are positive, or 0 of functions with a flat prior, and all numbers finite.
fn check(alpha: &[f64], beta: &[f64], others: &[&[f64]]) {
    assert!(
        alpha.iter().all(|v| v.is_finite() && *v >= 0.0),
        "{alpha:?}"
    );
    assert!(beta.iter().all(|v| v.is_finite() && *v > 0.0), "{beta:?}");
    assert!(
        others.iter().all(|all| all.iter().all(|v| v.is_finite())),
        "{others:?}"
    );
}
