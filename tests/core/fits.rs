//! Fits end at optima.

use std::ops::ControlFlow;

use sparsebayes::internal::{FirstStage, fit_from};
use sparsebayes::{
    Complexity, KernelDesign, Likelihood, Noise, Observations, Posterior, Predictor, Search,
    Settings, Status,
};

use crate::dense::dense;
use crate::problems::{
    Problem, columns, counts, fit_design, fixed, gaussian, labels, overdispersed, positive, surface,
};

fn assert_optimal(problem: &Problem, settings: Settings) {
    let (posterior, steps) = problem.fit(settings);
    assert_eq!(posterior.status, Status::Converged);
    let found = dense(problem, &posterior);
    assert!(found.log_alpha_change <= 1e-5, "{}", found.log_alpha_change);
    assert!(found.gain_outside <= 1e-6, "{}", found.gain_outside);
    let reported = *posterior.trace.last().unwrap();
    assert!(
        (found.evidence - reported).abs() <= 1e-8 * reported.abs(),
        "{} {reported}",
        found.evidence
    );
    assert_eq!(posterior.trace.len(), steps.len() + 1);
}

#[test]
fn gaussian_fits_end_at_optima() {
    for seed in 0..8 {
        for (n, k) in [(60, 4), (60, 30), (40, 40)] {
            assert_optimal(&columns(n, k, seed), Settings::default());
            assert_optimal(&columns(n, k, seed), fixed(0.03));
        }
    }
}

#[test]
fn fits_of_other_likelihoods_end_at_the_classic_fixed_point() {
    for seed in 0..8 {
        for (n, k) in [(80, 4), (80, 30)] {
            assert_optimal(&labels(n, k, seed), Settings::default());
            assert_optimal(&counts(n, k, seed), Settings::default());
            assert_optimal(&overdispersed(n, k, seed), Settings::default());
            assert_optimal(&positive(n, k, seed), Settings::default());
        }
    }
}

/// In debug builds each step asserts that it gains what its factors predict.
#[test]
fn steps_with_a_prior_on_complexity_raise_the_objective() {
    for seed in 0..4 {
        for complexity in [Complexity::Weight(0.3), Complexity::Bic, Complexity::Ebic] {
            for search in [Search::Greedy, Search::Exchange] {
                let settings = Settings {
                    complexity,
                    search,
                    ..Settings::default()
                };
                let (posterior, _) = columns(60, 30, seed).fit(settings.clone());
                assert_eq!(posterior.status, Status::Converged);
                let rises = |pair: &[f64]| pair[1] >= pair[0] - 1e-8 * (1.0 + pair[0].abs());
                assert!(posterior.trace.windows(2).all(rises));
                let (plain, _) = columns(60, 30, seed).fit(Settings::default());
                assert!(posterior.active.len() <= plain.active.len());
                for problem in [labels(80, 30, seed), counts(80, 30, seed)] {
                    assert_eq!(problem.fit(settings.clone()).0.status, Status::Converged);
                }
            }
        }
    }
}

#[test]
fn a_fit_from_its_own_model_stays_there() {
    for problem in [columns(60, 30, 1), counts(60, 30, 1), positive(60, 30, 1)] {
        let design = problem.design();
        let rows = || {
            let (design, t) = (&design, problem.t.clone());
            Observations::new(design, problem.likelihood, t, None).unwrap()
        };
        let rules = Settings::default().check().unwrap();
        let found =
            sparsebayes::fit_rows(&mut rows(), &rules, &mut |_| ControlFlow::Continue(())).unwrap();
        let first =
            FirstStage::given(found.active.clone(), found.alpha.clone(), found.beta).unwrap();
        let again = fit_from(first, &mut rows(), &rules, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(again.active, found.active);
        assert!((again.log_evidence - found.log_evidence).abs() < 1e-8);
        let first = FirstStage::given(vec![30], vec![1.0], 1.0).unwrap();
        let refused = fit_from(first, &mut rows(), &rules, &mut |_| {
            ControlFlow::Continue(())
        });
        assert!(refused.unwrap_err().is_invalid_input());
    }
    for (functions, alpha, beta) in [
        (vec![2, 1], vec![1.0; 2], 1.0),
        (vec![1, 1], vec![1.0; 2], 1.0),
        (vec![1], vec![1.0; 2], 1.0),
        (vec![1], vec![-1.0], 1.0),
        (vec![1], vec![f64::INFINITY], 1.0),
        (vec![1], vec![1.0], 0.0),
        (vec![1], vec![1.0], f64::INFINITY),
    ] {
        let first = FirstStage::given(functions, alpha, beta);
        assert!(first.is_err_and(|e| e.is_invalid_input()));
    }
}

#[test]
fn offsets_of_counts_are_weights_of_their_rates() {
    let problem = counts(80, 10, 3);
    let design = problem.design();
    let exposure: Vec<f64> = (0..80).map(|i| 0.5 + 0.05 * f64::from(i)).collect();
    let offset = Some(exposure.iter().map(|e| e.ln()).collect());
    let rules = Settings::default().check().unwrap();
    let (likelihood, t) = (Likelihood::Poisson, problem.t.clone());
    let mut rows = Observations::with_offset(&design, likelihood, t, None, offset, None).unwrap();
    let by_offset =
        sparsebayes::fit_rows(&mut rows, &rules, &mut |_| ControlFlow::Continue(())).unwrap();
    // E e^eta - t eta = E (e^eta - (t / E) eta)
    let rates = problem
        .t
        .iter()
        .zip(&exposure)
        .map(|(t, e)| t / e)
        .collect();
    let mut rows = Observations::new(&design, likelihood, rates, Some(exposure)).unwrap();
    let by_weights =
        sparsebayes::fit_rows(&mut rows, &rules, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(by_offset.active, by_weights.active);
    for (a, b) in by_offset.mu.iter().zip(&by_weights.mu) {
        assert!((a - b).abs() < 1e-7);
    }
}

#[test]
fn targets_that_are_an_exact_sum_of_columns_stop_at_the_noise_floor() {
    let mut problem = columns(20, 30, 1);
    problem.t = (0..20)
        .map(|i| problem.column(4)[i] - 2.0 * problem.column(7)[i])
        .collect();
    let (posterior, _) = problem.fit(Settings::default());
    assert_eq!(posterior.status, Status::NoiseFloor);
    assert!(posterior.trace.iter().all(|e| e.is_finite()));
}

#[test]
fn a_dictionary_of_zeros_gives_an_empty_model() {
    let mut problem = columns(10, 3, 0);
    problem.phi.fill(0.0);
    let (posterior, _) = problem.fit(Settings {
        noise: Noise::Fixed(1.0),
        ..Settings::default()
    });
    assert!(posterior.active.is_empty());
    assert_eq!(posterior.status, Status::Converged);
}

/// Linear predictor and its variance, from the values of the active functions.
fn linear_predictor(posterior: &Posterior, phi: &[f64]) -> (f64, f64) {
    let m = phi.len();
    let eta = phi.iter().zip(&posterior.mu).map(|(p, w)| p * w).sum();
    let terms = (0..m * m).map(|at| phi[at / m] * posterior.sigma[(at / m, at % m)] * phi[at % m]);
    (eta, terms.sum())
}

#[test]
fn predictors_of_posteriors_sum_their_active_functions() {
    let n = 60;
    let (x, t) = surface(n, 3);
    // Far from zero, so that the constant is in the model.
    let t: Vec<f64> = t.iter().map(|t| t + 10.0).collect();
    let kernels = vec![gaussian(0.05), gaussian(0.5)];
    let design = KernelDesign::new(&x, &x, 2, kernels.clone(), true).unwrap();
    let (posterior, _) = fit_design(&design, Likelihood::Gaussian, &t, None, Settings::default());
    let model = posterior.predictor(&design, Likelihood::Gaussian).unwrap();
    assert!(posterior.active[0] == 0 && posterior.active.len() > 3);
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-10 * (1.0 + b.abs()), "{a} {b}");
    for x0 in x.chunks_exact(2).take(9) {
        let value = |&j: &usize| match j.checked_sub(1) {
            None => 1.0,
            Some(j) => kernels[j / n].eval(x0, &x[j % n * 2..][..2]),
        };
        let phi: Vec<f64> = posterior.active.iter().map(value).collect();
        let (eta, v) = linear_predictor(&posterior, &phi);
        let (mut mean, mut std) = ([0.0], [0.0]);
        model.predict_std_into(x0, &mut mean, &mut std).unwrap();
        close(mean[0], eta);
        close(std[0], (1.0 / posterior.beta + v).sqrt());
    }
    let too_small = KernelDesign::new(&x[..2], &x[..2], 2, kernels, true).unwrap();
    assert!(
        posterior
            .predictor(&too_small, Likelihood::Gaussian)
            .is_err()
    );
}

#[test]
fn predictors_of_columns_have_the_link_of_the_likelihood() {
    for problem in [
        columns(60, 8, 1),
        labels(60, 8, 1),
        counts(60, 8, 1),
        overdispersed(60, 8, 1),
        positive(60, 8, 1),
    ] {
        let (posterior, _) = problem.fit(Settings::default());
        let model: Predictor = posterior
            .predictor_of_columns(8, problem.likelihood)
            .unwrap();
        let row: Vec<f64> = (0..8).map(|j| problem.phi[j * problem.n]).collect();
        let phi: Vec<f64> = posterior.active.iter().map(|&j| row[j]).collect();
        let (eta, v) = linear_predictor(&posterior, &phi);
        let mean = match problem.likelihood {
            Likelihood::Gaussian => eta,
            Likelihood::Bernoulli => {
                let kappa = (1.0 + std::f64::consts::PI / 8.0 * v).sqrt().recip();
                1.0 / (1.0 + (-kappa * eta).exp())
            }
            _ => eta.exp(),
        };
        let found = model.predict_one(&row).unwrap();
        assert!(
            (found - mean).abs() < 1e-10 * (1.0 + mean),
            "{found} {mean}"
        );
        let noise = model
            .parts()
            .tables
            .get("noise_variance")
            .map(|table| table.values[0]);
        let expected = match problem.likelihood {
            Likelihood::Gaussian => Some(1.0 / posterior.beta),
            Likelihood::NegativeBinomial(d) | Likelihood::Gamma(d) => Some(d),
            Likelihood::Bernoulli | Likelihood::Poisson => None,
        };
        assert_eq!(noise, expected);
        let needed = posterior.active.last().unwrap();
        assert!(
            posterior
                .predictor_of_columns(*needed, problem.likelihood)
                .is_err()
        );
    }
}
