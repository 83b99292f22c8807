//! Rows that answer in their own units: parts add up to the model of all.

use sparsebayes::internal::{CandidateProducts, ProviderStatistics, RowPart, RowProvider};
use sparsebayes::{DenseDesign, Error, Likelihood, Posterior, Result, Settings, Status, Sweep};

use crate::problems::{above, fit_design, fit_statistics, surface};

/// Several parts as one.
struct Sum(Vec<RowPart<'static>>);

impl Sum {
    fn add<T>(
        &mut self,
        ask: impl Fn(&mut RowPart<'static>) -> Result<T>,
        add: impl Fn(&mut T, T),
    ) -> Result<T> {
        let mut answers = self.0.iter_mut().map(ask);
        let mut total = answers.next().expect("a part")?;
        for answer in answers {
            add(&mut total, answer?);
        }
        Ok(total)
    }
}

fn plus(total: &mut [f64], answer: &[f64]) {
    for (t, a) in total.iter_mut().zip(answer) {
        *t += a;
    }
}

impl RowProvider for Sum {
    fn n_basis(&self) -> usize {
        self.0[0].n_basis()
    }

    fn likelihood(&self) -> Likelihood {
        self.0[0].likelihood()
    }

    fn target_moments(&mut self, centre: f64) -> Result<[f64; 3]> {
        self.add(|p| p.target_moments(centre), |t, a| plus(t, &a))
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.add(|p| p.deviance(active, mu), |t, a| *t += a)
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, Vec<f64>)> {
        self.add(
            |p| p.gradient(active, mu),
            |t, a| {
                t.0 += a.0;
                plus(&mut t.1, &a.1);
            },
        )
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<CandidateProducts> {
        self.add(
            |p| p.among(active, mu, js),
            |t, a| {
                t.deviance += a.deviance;
                plus(&mut t.gradient, &a.gradient);
                plus(&mut t.gram, &a.gram);
            },
        )
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.add(
            |p| p.sweep(active, mu, wanted),
            |t, a| {
                plus(&mut t.deviances, &a.deviances);
                plus(&mut t.diag, &a.diag);
                plus(&mut t.gradient, &a.gradient);
                for (t, a) in t.gram.iter_mut().zip(a.gram) {
                    plus(t, &a);
                }
            },
        )
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &[f64]) -> Result<Vec<f64>> {
        self.add(|p| p.variance_drift(active, mu, sigma), |t, a| plus(t, &a))
    }
}

/// Some rows of a column-major matrix.
fn part(phi: &[f64], t: &[f64], rows: &[usize], likelihood: Likelihood) -> RowPart<'static> {
    let (n, k) = (t.len(), phi.len() / t.len());
    let values: Vec<f64> = (0..k)
        .flat_map(|j| rows.iter().map(move |&i| phi[j * n + i]))
        .collect();
    let design = DenseDesign::new(values, rows.len(), k).unwrap();
    let target: Vec<f64> = rows.iter().map(|&i| t[i]).collect();
    let weights = rows.iter().map(|&i| 1.0 + (i % 3) as f64).collect();
    RowPart::new(Box::new(design), likelihood, target, Some(weights)).unwrap()
}

fn assert_alike(a: &Posterior, b: &Posterior) {
    assert_eq!(a.status, Status::Converged);
    assert_eq!(a.active, b.active);
    for (a, b) in a.alpha.iter().chain(&a.mu).zip(b.alpha.iter().chain(&b.mu)) {
        assert!((a - b).abs() <= 1e-8 * b.abs(), "{a} {b}");
    }
    assert!((a.log_evidence - b.log_evidence).abs() < 1e-8 * b.log_evidence.abs());
}

#[test]
fn parts_add_up_to_the_model_of_all_rows() {
    let (x, t) = surface(150, 11);
    let n = t.len();
    // Columns in units of their own: 1, the inputs, and bumps.
    let mut phi = vec![1e3; n];
    for c in 0..12 {
        phi.extend((0..n).map(|i| {
            let (a, b) = (x[2 * i] - x[2 * c], x[2 * i + 1] - x[2 * c + 1]);
            [0.01, 0.1, 1.0, 10.0, 100.0][c % 5] * (-0.2 * (a * a + b * b)).exp()
        }));
    }
    let binary = above(0.1, &t);
    let counts: Vec<f64> = t.iter().map(|t| (3.0 * t.abs()).round()).collect();
    let weights: Vec<f64> = (0..n).map(|i| 1.0 + (i % 3) as f64).collect();
    let design = DenseDesign::new(&phi[..], n, 13).unwrap();
    for (likelihood, t) in [
        (Likelihood::Gaussian, &t),
        (Likelihood::Bernoulli, &binary),
        (Likelihood::Poisson, &counts),
    ] {
        let rows: Vec<usize> = (0..n).collect();
        let parts = [&rows[..40], &[], &rows[40..41], &rows[41..]];
        let parts = parts.map(|rows| part(&phi, t, rows, likelihood)).into();
        let mut stats = ProviderStatistics::new(Sum(parts)).unwrap();
        let summed = fit_statistics(&mut stats, Settings::default());
        let weights = Some(weights.clone());
        let (whole, _) = fit_design(&design, likelihood, t, weights, Settings::default());
        assert_alike(&summed, &whole);
    }
}

#[test]
fn missing_functions_are_errors() {
    let mut part = part(&[1.0, 2.0], &[0.5, 0.7], &[0, 1], Likelihood::Gaussian);
    let invalid = |error| matches!(error, Some(Error::Invalid { .. }));
    let shape = |error| matches!(error, Some(Error::Shape { .. }));
    assert!(invalid(part.deviance(&[1], &[0.1]).err()));
    assert!(shape(part.deviance(&[0], &[]).err()));
    assert!(invalid(part.among(&[], &[], &[7]).err()));
    assert!(invalid(part.sweep(&[], &[], &[1]).err()));
    assert!(shape(part.variance_drift(&[0], &[0.1], &[]).err()));
    let design = DenseDesign::new(Vec::new(), 0, 3).unwrap();
    let nothing = RowPart::new(Box::new(design), Likelihood::Gaussian, Vec::new(), None).unwrap();
    assert!(invalid(ProviderStatistics::new(nothing).err()));
}
