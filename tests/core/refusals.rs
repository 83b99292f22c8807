//! What cannot be fitted is refused, with a word on what to do.

use sparsebayes::internal::SoftmaxStatistics;
use sparsebayes::{
    DenseDesign, Error, Kernel, KernelDesign, Likelihood, Noise, Observations, Scheme, Search,
    Settings, Statistics, fit,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::problems::columns;

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |change: fn(&mut Settings), word: &str| {
        let mut bad = Settings::default();
        change(&mut bad);
        assert!(bad.check().err().unwrap().to_string().contains(word));
    };
    refused(|s| s.tol = 0.0, "tol");
    refused(|s| s.tol = f64::NAN, "tol");
    refused(|s| s.max_iter = 0, "max_iter");
    refused(|s| s.noise = Noise::Fixed(-1.0), "noise_variance");
    refused(|s| s.noise = Noise::Fixed(f64::INFINITY), "noise_variance");
    refused(
        |s| (s.search, s.scheme) = (Search::Exchange, Scheme::MacKay),
        "search",
    );
}

#[test]
fn shapes_that_disagree_are_refused() {
    assert!(DenseDesign::new(vec![1.0; 5], 2, 3).is_err());
    let design = DenseDesign::new(vec![1.0; 6], 2, 3).unwrap();
    assert!(Observations::new(&design, Likelihood::Gaussian, vec![0.0; 3], None).is_err());
    let weights = Some(vec![1.0; 3]);
    assert!(Observations::new(&design, Likelihood::Gaussian, vec![0.0; 2], weights).is_err());
    assert!(KernelDesign::new(&[1.0; 5], &[1.0; 4], 2, vec![Kernel::Linear], true).is_err());
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    assert!(DenseDesign::new(vec![1.0, f64::NAN], 2, 1).is_err());
    let design = DenseDesign::new(vec![1.0, 2.0], 2, 1).unwrap();
    let observe = |likelihood, t: [f64; 2], weights: Option<Vec<f64>>| {
        Observations::new(&design, likelihood, t.to_vec(), weights).err()
    };
    for (likelihood, t) in [
        (Likelihood::Gaussian, [f64::INFINITY, 0.0]),
        (Likelihood::Bernoulli, [0.0, 2.0]),
        (Likelihood::Poisson, [-1.0, 2.0]),
    ] {
        assert!(observe(likelihood, t, None).is_some());
    }
    for weights in [[-1.0, 1.0], [f64::NAN, 1.0], [0.0, 0.0]] {
        assert!(observe(Likelihood::Gaussian, [1.0, 2.0], Some(weights.to_vec())).is_some());
    }
}

#[test]
fn sizes_that_no_arithmetic_holds_are_refused() {
    let columns = [1.0, 2.0, 4.0, 1.0, -1.0, 1.0];
    let design = DenseDesign::new(&columns[..], 3, 2).unwrap();
    let fitted = |scale: f64, noise| {
        let targets = [1.0, 1.9, 4.2].map(|t| t * scale).to_vec();
        let mut rows = Observations::new(&design, Likelihood::Gaussian, targets, None).unwrap();
        let rules = Settings {
            noise,
            ..Settings::default()
        };
        fit(&mut rows, &rules.check().unwrap(), &mut |_| {
            ControlFlow::Continue(())
        })
    };
    for scale in [1e-150, 1e-3, 1e150] {
        let posterior = fitted(scale, Noise::Estimated).unwrap();
        assert!((posterior.mu[0] / scale - 1.03).abs() < 0.03);
        assert!(posterior.beta.is_finite() && posterior.beta > 0.0);
    }
    for (scale, noise, word) in [
        (1e-200, Noise::Estimated, "rescale y"),
        (1e200, Noise::Estimated, "rescale y"),
        (1.0, Noise::Fixed(2e-308), "noise_variance"),
        (1e-3, Noise::Fixed(1e300), "noise_variance"),
    ] {
        let error = fitted(scale, noise).err().unwrap();
        assert!(error.is_invalid_input() && error.to_string().contains(word));
    }
    for weight in [1e-200, 1e200] {
        let weights = Some(vec![1.0, weight, 1.0]);
        let refused = Observations::new(&design, Likelihood::Gaussian, vec![1.0; 3], weights);
        assert!(refused.err().unwrap().to_string().contains("sample_weight"));
    }
}

#[test]
fn a_raised_flag_interrupts() {
    let problem = columns(30, 10, 0);
    let (design, flag) = (problem.design(), Arc::new(AtomicBool::new(true)));
    let mut observations =
        Observations::new(&design, Likelihood::Gaussian, problem.t.clone(), None)
            .unwrap()
            .cancelled_by(flag);
    let rules = Settings::default().check().unwrap();
    let result = fit(
        &mut observations,
        &rules,
        &mut |_| ControlFlow::Continue(()),
    );
    assert!(matches!(result, Err(Error::Interrupted)));
}

#[test]
fn likelihoods_without_a_bound_have_no_variational_fit() {
    let problem = columns(20, 5, 0);
    let rules = Settings {
        scheme: Scheme::Variational,
        ..Settings::default()
    }
    .check()
    .unwrap();
    let design = DenseDesign::new(&problem.phi, 20, 5).unwrap();
    let classes: Vec<f64> = (0..20).map(|i| f64::from(i % 3)).collect();
    let counts = Observations::new(&design, Likelihood::Poisson, classes.clone(), None);
    let softmax = SoftmaxStatistics::new(&design, &classes, None);
    let providers: [&mut dyn Statistics; 2] = [&mut counts.unwrap(), &mut softmax.unwrap()];
    for stats in providers {
        let refused = fit(stats, &rules, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(&refused, Err(Error::Invalid { what }) if what.contains("variational")));
    }
}
