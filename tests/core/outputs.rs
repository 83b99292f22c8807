//! Several outputs: compared with the sum of their evidences; threads, cancellation, refusals.

use nalgebra::{Cholesky, DMatrix, DVector};
use sparsebayes::internal::{OutputNoise, OutputPosterior, fit_outputs};
use sparsebayes::{
    DenseDesign, Error, KernelDesign, Noise, Observations, Settings, Status, Step, with_threads,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::problems::{Problem, Uniform, columns, gaussian, surface};

fn estimated(n_outputs: usize, shared: bool) -> OutputNoise {
    if shared {
        OutputNoise::Shared(Noise::Estimated)
    } else {
        OutputNoise::Own(vec![Noise::Estimated; n_outputs])
    }
}

/// The problem's own target and others made of the same columns, column after column.
fn targets(problem: &Problem, n_outputs: usize, seed: u64) -> Vec<f64> {
    let mut random = Uniform(seed);
    let mut targets = problem.t.clone();
    for c in 1..n_outputs {
        let w: Vec<f64> = random.by_ref().take(3).collect();
        let noise = 0.1 * c as f64;
        targets.extend((0..problem.n).map(|i| {
            let signal: f64 = (0..3).map(|j| w[j] * problem.column(j)[i]).sum();
            signal + noise * random.next().unwrap()
        }));
    }
    targets
}

fn solve(
    problem: &Problem,
    targets: &[f64],
    noise: &OutputNoise,
    watch: &mut dyn FnMut(&Step),
) -> OutputPosterior {
    let design = problem.design();
    let n_outputs = targets.len() / problem.n;
    let mut observations =
        Observations::outputs(&design, targets.to_vec(), n_outputs, None, None).unwrap();
    let rules = Settings::default().check().unwrap();
    fit_outputs(&mut observations, &rules, noise, &mut |step| {
        watch(step);
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// sum_c ln Normal(t_c; 0, 1 / beta_c + Phi A^-1 Phi^T), written out.
fn dense_evidence(problem: &Problem, targets: &[f64], posterior: &OutputPosterior) -> f64 {
    let n = problem.n;
    let phi = DMatrix::from_fn(n, posterior.active.len(), |i, k| {
        problem.column(posterior.active[k])[i] / posterior.alpha[k].sqrt()
    });
    let of_output = |(c, t): (usize, &[f64])| {
        let beta = posterior.beta[c.min(posterior.beta.len() - 1)];
        let covariance = &phi * phi.transpose() + DMatrix::identity(n, n) / beta;
        let factor = Cholesky::new(covariance).unwrap();
        let t = DVector::from_column_slice(t);
        let ln_det: f64 = factor.l().diagonal().iter().map(|d| 2.0 * d.ln()).sum();
        let ln_tau = std::f64::consts::TAU.ln();
        -0.5 * (n as f64 * ln_tau + ln_det + t.dot(&factor.solve(&t)))
    };
    targets.chunks_exact(n).enumerate().map(of_output).sum()
}

#[test]
fn gains_are_achieved_and_add_up_to_the_evidence() {
    for (seed, shared) in [(1, false), (2, true), (3, false), (4, true)] {
        let problem = columns(60, 40, seed);
        let targets = targets(&problem, 4, seed);
        let mut last = f64::NEG_INFINITY;
        // Builds for tests compare the gain promised with the gain achieved at every step.
        let posterior = solve(&problem, &targets, &estimated(4, shared), &mut |step| {
            assert!(step.log_evidence > last - 1e-9 * last.abs());
            last = step.log_evidence;
        });
        assert_eq!(posterior.status, Status::Converged);
        let dense = dense_evidence(&problem, &targets, &posterior);
        assert!((posterior.log_evidence / dense - 1.0).abs() < 1e-9);
        assert_eq!(posterior.beta.len(), if shared { 1 } else { 4 });
        assert_eq!(posterior.sigma.len(), posterior.beta.len());
        assert_eq!(posterior.mu.shape(), (posterior.active.len(), 4));
    }
}

#[test]
fn given_low_noise_is_approached_from_above() {
    // Exact targets of a few columns among many: with little noise from the start the first to enter would be kept.
    let (n, k) = (40, 150);
    let phi: Vec<f64> = Uniform(5).take(n * k).collect();
    let mut problem = columns(n, k, 5);
    problem.phi = phi;
    let support = [3, 20, 41, 77, 90, 120, 149];
    let targets: Vec<f64> = (0..n)
        .map(|i| support.iter().map(|&j| problem.column(j)[i]).sum())
        .collect();
    let noise = OutputNoise::Own(vec![Noise::Fixed(1e-4)]);
    let posterior = solve(&problem, &targets, &noise, &mut |_| {});
    assert_eq!(posterior.active, support);
    assert_eq!(posterior.beta, [1e4]);
}

#[test]
fn threads_and_lazy_designs_change_no_bit() {
    let (x, t) = surface(150, 3);
    let targets: Vec<f64> = t
        .iter()
        .copied()
        .chain(t.iter().map(|t| 0.5 - t * t))
        .collect();
    let design = KernelDesign::new(&x, &x, 2, vec![gaussian(0.16)], true).unwrap();
    let stored = design.materialise(None).unwrap();
    let rules = Settings::default().check().unwrap();
    let fit = |design: &dyn sparsebayes::Design| {
        let mut observations =
            Observations::outputs(design, targets.clone(), 2, None, None).unwrap();
        let watch = &mut |_: &Step| ControlFlow::Continue(());
        fit_outputs(&mut observations, &rules, &estimated(2, false), watch).unwrap()
    };
    let one = with_threads(Some(1), || fit(&stored)).unwrap();
    let three = with_threads(Some(3), || fit(&design)).unwrap();
    assert_eq!(one.active, three.active);
    assert_eq!(one.mu, three.mu);
    assert_eq!(one.trace, three.trace);
}

#[test]
fn a_raised_flag_and_a_watcher_end_the_fit() {
    let problem = columns(40, 20, 1);
    let design = problem.design();
    let targets = targets(&problem, 3, 1);
    let rules = Settings::default().check().unwrap();
    let noise = estimated(3, false);
    let observe = || Observations::outputs(&design, targets.clone(), 3, None, None).unwrap();
    let mut cancelled = observe().cancelled_by(Arc::new(AtomicBool::new(true)));
    let watch = &mut |_: &Step| ControlFlow::Continue(());
    let result = fit_outputs(&mut cancelled, &rules, &noise, watch);
    assert!(matches!(result, Err(Error::Interrupted)));
    let stop = &mut |_: &Step| ControlFlow::Break(());
    let stopped = fit_outputs(&mut observe(), &rules, &noise, stop).unwrap();
    assert_eq!((stopped.status, stopped.n_iter()), (Status::Stopped, 1));
}

#[test]
fn outputs_that_make_no_sense_are_refused() {
    let design = DenseDesign::new(vec![1.0, 2.0, 3.0, 4.0], 2, 2).unwrap();
    let observe = |targets: Vec<f64>, c| Observations::outputs(&design, targets, c, None, None);
    assert!(observe(vec![0.0; 3], 2).is_err());
    assert!(observe(vec![], 0).is_err());
    let empty = DenseDesign::new(vec![], 0, 2).unwrap();
    assert!(Observations::outputs(&empty, vec![], 2, None, None).is_err());
    assert!(observe(vec![0.0, 1.0, f64::NAN, 1.0], 2).is_err());
    let mut good = observe(vec![0.0, 1.0, 2.0, 1.0], 2).ok().unwrap();
    let rules = Settings::default().check().unwrap();
    for noise in [
        OutputNoise::Own(vec![Noise::Estimated]),
        OutputNoise::Own(vec![Noise::Estimated, Noise::Fixed(-1.0)]),
        OutputNoise::Shared(Noise::Fixed(f64::NAN)),
    ] {
        let watch = &mut |_: &Step| ControlFlow::Continue(());
        let error = fit_outputs(&mut good, &rules, &noise, watch).err().unwrap();
        assert!(error.is_invalid_input() && error.to_string().contains("noise_variance"));
    }
}
