//! mRVM1 and mRVM2 (Psorakis et al. 2010): compared with dense formulas, and with the probit of two classes in closed form.

use nalgebra::{Cholesky, DMatrix, Dyn};
use sparsebayes::internal::{Ascent, MStep, OutputPosterior, Probit, RetargetedFit, TopDownFit};
use sparsebayes::{Error, Observations, Status, Step};
use std::f64::consts::{FRAC_1_SQRT_2, TAU};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::problems::{Problem, Uniform, columns};

fn observe<'a>(problem: &'a Problem, targets: &[f64], weights: Option<&[f64]>) -> Observations<'a> {
    let n_outputs = targets.len() / problem.n;
    let weights = weights.map(<[f64]>::to_vec);
    Observations::unscaled_outputs(problem.design(), targets.to_vec(), n_outputs, weights).unwrap()
}

fn m_step(fit: &mut RetargetedFit<'_>) -> MStep {
    fit.maximise(1e-7, 1e-9, 1000, &mut |_: &Step| ControlFlow::Continue(()))
        .unwrap()
}

fn active_columns(problem: &Problem, active: &[usize]) -> DMatrix<f64> {
    DMatrix::from_fn(problem.n, active.len(), |i, k| problem.column(active[k])[i])
}

/// A matrix with its rows times the square roots of these weights.
fn weighted(mut matrix: DMatrix<f64>, weights: Option<&[f64]>) -> DMatrix<f64> {
    for (i, w) in weights.into_iter().flatten().enumerate() {
        matrix.row_mut(i).scale_mut(w.sqrt());
    }
    matrix
}

/// Phi^T Phi + A.
fn precision(phi: &DMatrix<f64>, alpha: &[f64]) -> DMatrix<f64> {
    phi.tr_mul(phi) + DMatrix::from_diagonal(&nalgebra::DVector::from_column_slice(alpha))
}

fn ln_det(factor: &Cholesky<f64, Dyn>) -> f64 {
    2.0 * factor.l().diagonal().map(f64::ln).sum()
}

/// Checks an M-step against the covariance of the targets, factored whole: the evidence, its slope in ln alpha, and the gains of
/// adding functions.
fn assert_maximal(
    problem: &Problem,
    targets: &[f64],
    weights: Option<&[f64]>,
    posterior: &OutputPosterior,
) {
    let (n, c) = (problem.n, targets.len() / problem.n);
    let phi = weighted(active_columns(problem, &posterior.active), weights);
    let t = weighted(DMatrix::from_column_slice(n, c, targets), weights);
    let mut covariance = DMatrix::identity(n, n);
    for (k, alpha) in posterior.alpha.iter().enumerate() {
        covariance.ger(1.0 / alpha, &phi.column(k), &phi.column(k), 1.0);
    }
    let factor = covariance.cholesky().unwrap();
    let solved = factor.solve(&t);
    if weights.is_none() {
        let each = n as f64 * TAU.ln() + ln_det(&factor);
        let evidence = -0.5 * (c as f64 * each + t.dot(&solved));
        assert!((posterior.log_evidence / evidence - 1.0).abs() < 1e-9);
    }
    for j in 0..problem.k {
        let column = weighted(active_columns(problem, &[j]), weights);
        let mut s = column.dot(&factor.solve(&column));
        let mut q2 = column.tr_mul(&solved).norm_squared() / c as f64;
        if let Some(k) = posterior.active.iter().position(|&a| a == j) {
            let alpha = posterior.alpha[k];
            q2 *= (alpha / (alpha - s)).powi(2);
            s *= alpha / (alpha - s);
            let change = (s * s / (q2 - s) / alpha).ln();
            assert!(change.abs() < 1e-5, "{j}: {change}");
        } else {
            let excess = (q2 / s - 1.0).max(0.0);
            let gain = 0.5 * c as f64 * (excess - excess.ln_1p());
            assert!(gain < 2e-7, "{j}: {gain}");
        }
    }
}

#[test]
fn m_steps_end_where_no_function_gains() {
    // The larger dictionary has more candidates than one working set.
    for (k, seed) in [(40, 1), (2100, 2)] {
        let problem = columns(60, k, seed);
        let targets = |seed| -> Vec<f64> {
            let noise = Uniform(seed).take(180);
            let signal = (0..3).flat_map(|c| {
                let pair = problem.column(c).iter().zip(problem.column(c + 1));
                pair.map(|(a, b)| 5.0 * a - 3.0 * b)
            });
            signal.zip(noise).map(|(t, u)| t + 2.0 * u).collect()
        };
        let weights: Vec<f64> = Uniform(seed + 7).take(60).map(|u| 1.5 + u).collect();
        for weights in [None, Some(&weights[..])] {
            let rows = observe(&problem, &targets(seed), weights);
            let mut fit = RetargetedFit::new(rows, 1.0, &[7], &[0.5]).unwrap();
            for seed in [seed, seed + 20] {
                let targets = targets(seed);
                fit.set_targets(targets.clone()).unwrap();
                let step = m_step(&mut fit);
                assert_eq!(step.status, Status::Converged);
                assert_eq!(step.trace.len(), step.n_active.len());
                let rises = |pair: &[f64]| pair[1] >= pair[0] - 1e-9 * pair[0].abs();
                assert!(step.trace.windows(2).all(rises));
                let posterior = fit.posterior(&step);
                assert_eq!(step.n_active.last(), Some(&posterior.active.len()));
                assert_maximal(&problem, &targets, weights, &posterior);
            }
        }
    }
}

/// The E-step and ln P for two classes: the noisy copies differ by a normal variable of variance 2, truncated at zero.
fn e_step(scores: &[f64], labels: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let n = labels.len();
    let (mut targets, mut log_p) = (scores.to_vec(), Vec::new());
    for (i, &own) in labels.iter().enumerate() {
        let (own, other) = (own * n + i, (1 - own) * n + i);
        let u = FRAC_1_SQRT_2 * (scores[own] - scores[other]);
        let p = 0.5 * libm::erfc(-FRAC_1_SQRT_2 * u);
        let hazard = (-0.5 * u * u).exp() / (TAU.sqrt() * p);
        targets[own] += FRAC_1_SQRT_2 * hazard;
        targets[other] -= FRAC_1_SQRT_2 * hazard;
        log_p.push(p.ln());
    }
    (targets, log_p)
}

/// Binary labels of which some are wrong, so that no separating model has infinite weights.
fn binary(problem: &Problem) -> Vec<usize> {
    let label = |(i, t): (usize, &f64)| usize::from((*t > 0.0) != (i % 11 == 0));
    problem.t.iter().enumerate().map(label).collect()
}

/// A fixed point of the E-step and the M-step, and the variational bound there.
fn assert_fixed_point(
    problem: &Problem,
    labels: &[usize],
    weights: Option<&[f64]>,
    posterior: &OutputPosterior,
    tolerance: f64,
) -> f64 {
    let (n, m) = (problem.n, posterior.active.len());
    let plain = active_columns(problem, &posterior.active);
    let mu = DMatrix::from_column_slice(m, 2, posterior.mu.as_slice());
    let (targets, log_p) = e_step((&plain * &mu).as_slice(), labels);
    let phi = weighted(plain, weights);
    let factor = precision(&phi, &posterior.alpha).cholesky().unwrap();
    let targets = weighted(DMatrix::from_column_slice(n, 2, &targets), weights);
    let again = factor.solve(&phi.tr_mul(&targets));
    assert!((&again - &mu).amax() < tolerance * mu.amax());
    let sigma = factor.inverse();
    let mut bound: f64 = match weights {
        Some(weights) => log_p.iter().zip(weights).map(|(p, w)| w * p).sum(),
        None => log_p.iter().sum(),
    };
    bound -= ln_det(&factor);
    for (k, alpha) in posterior.alpha.iter().enumerate() {
        let square = mu.row(k).norm_squared();
        let slope = 2.0 * (1.0 - alpha * sigma[(k, k)]) - alpha * square;
        assert!(slope.abs() < tolerance, "{k}: {slope}");
        bound += alpha.ln() - 0.5 * alpha * square;
    }
    bound
}

#[test]
fn joint_ascent_ends_at_a_fixed_point_of_both_steps_above_theirs() {
    for (seed, is_weighted) in [(1, false), (2, true), (3, false)] {
        let problem = columns(120, 12, seed);
        let labels = binary(&problem);
        let weights: Vec<f64> = (0..120).map(|i| 0.5 + f64::from(i % 3)).collect();
        let weights = is_weighted.then_some(&weights[..]);
        let (targets, _) = e_step(&vec![0.0; 240], &labels);
        let rows = observe(&problem, &targets, weights);
        let mut fit = RetargetedFit::new(rows, 1.0, &[0], &[1.0]).unwrap();
        let alternate = |fit: &mut RetargetedFit<'_>| {
            let step = m_step(fit);
            let (targets, log_p) = e_step(&fit.predictions(), &labels);
            fit.set_targets(targets).unwrap();
            let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
            let terms = log_p.iter().enumerate().map(|(i, p)| weight(i) * p);
            (
                fit.posterior(&step),
                terms.sum::<f64>() + fit.log_occam_factor(),
            )
        };
        let mut last = f64::NEG_INFINITY;
        for _ in 0..15 {
            let (_, bound) = alternate(&mut fit);
            assert!(bound > last - 1e-9 * last.abs(), "{bound} {last}");
            last = bound;
        }
        let probit = Probit::for_classes(2);
        for _ in 0..4 {
            let (least, radius) = (1e-12, 1.0);
            let ascent = Ascent { least, radius };
            let targets = fit.maximise_bound(&probit, &labels, ascent).unwrap();
            fit.set_targets(targets).unwrap();
            m_step(&mut fit);
        }
        let (posterior, bound) = alternate(&mut fit);
        assert!(posterior.active.len() > 1);
        let dense = assert_fixed_point(&problem, &labels, weights, &posterior, 1e-4);
        assert!(
            (bound - dense).abs() < 1e-6 * dense.abs(),
            "{bound} {dense}"
        );
        assert!(bound >= last - 1e-9 * last.abs(), "{bound} {last}");
    }
}

#[test]
fn an_empty_model_asks_for_the_targets_of_equal_scores() {
    let problem = columns(30, 4, 1);
    let labels = binary(&problem);
    let (targets, _) = e_step(&[0.0; 60], &labels);
    let rows = observe(&problem, &targets, None);
    let mut fit = RetargetedFit::new(rows, 1.0, &[], &[]).unwrap();
    let (least, radius) = (1e-6, 1.0);
    let ascent = Ascent { least, radius };
    let probit = Probit::for_classes(2);
    let found = fit.maximise_bound(&probit, &labels, ascent).unwrap();
    for (found, expected) in found.iter().zip(&targets) {
        assert!((found - expected).abs() < 1e-12);
    }
    fit.set_cancel(Arc::new(AtomicBool::new(true)));
    let watch = &mut |_: &Step| ControlFlow::Continue(());
    let outcome = fit.maximise(1e-7, 1e-9, 100, watch);
    assert!(matches!(outcome, Err(Error::Interrupted)));
    assert!(fit.set_targets(vec![0.0; 59]).is_err());
}

#[test]
fn top_down_fits_solve_penalised_least_squares() {
    let (n, k, c) = (50, 23, 3);
    let problem = columns(n, k, 4);
    let mut random = Uniform(9);
    let mut draw = |count: usize| -> Vec<f64> { random.by_ref().take(count).collect() };
    let targets = draw(n * c);
    let weights: Vec<f64> = draw(n).iter().map(|u| 1.5 + u).collect();
    let flag = Arc::new(AtomicBool::new(false));
    for weights in [None, Some(weights)] {
        let (phi, w) = (problem.phi.clone(), weights.clone());
        let mut fit = TopDownFit::new(phi, n, k, w, Arc::clone(&flag)).unwrap();
        let mut kept: Vec<usize> = (0..k).collect();
        for every in [k + 1, 7, 2] {
            let positions: Vec<usize> = (0..kept.len()).filter(|p| p % every != 1).collect();
            if every <= k {
                fit.keep(&positions).unwrap();
                kept = positions.iter().map(|&p| kept[p]).collect();
            }
            let m = fit.n_basis();
            assert_eq!(m, kept.len());
            let alpha: Vec<f64> = draw(m * c).iter().map(|u| 1.1 + u).collect();
            let found = fit.solve(&targets, &alpha).unwrap();
            let plain = active_columns(&problem, &kept);
            let phi = weighted(plain.clone(), weights.as_deref());
            let t = DMatrix::from_column_slice(n, c, &targets);
            let t = weighted(t, weights.as_deref());
            for (output, found) in found.chunks_exact(m).enumerate() {
                let factor = precision(&phi, &alpha[output * m..][..m]).cholesky();
                let expected = factor.unwrap().solve(&phi.tr_mul(&t.column(output)));
                for (a, b) in found.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-10, "{a} {b}");
                }
            }
            let predicted = fit.predictions(&found, c).unwrap();
            let expected = plain * DMatrix::from_column_slice(m, c, &found);
            for (a, b) in predicted.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-12);
            }
        }
        for positions in [&[1, 1][..], &[2, 1], &[kept.len()]] {
            assert!(fit.keep(positions).is_err_and(|e| e.is_invalid_input()));
        }
        fit.keep(&[]).unwrap();
        assert!(fit.solve(&targets, &[]).unwrap().is_empty());
    }
}

#[test]
fn initial_precisions_out_of_range_are_refused() {
    let problem = columns(6, 2, 1);
    let start = |active: &[usize], alpha: &[f64]| {
        RetargetedFit::new(observe(&problem, &problem.t, None), 1.0, active, alpha)
    };
    assert!(start(&[1], &[1e-6]).is_ok());
    for alpha in [0.0, 5e-324, 1e300, -1.0, f64::NAN, f64::INFINITY] {
        assert!(start(&[1], &[alpha]).is_err_and(|e| e.is_invalid_input()));
    }
    assert!(start(&[1, 1], &[1.0; 2]).is_err_and(|e| e.is_invalid_input()));
    assert!(start(&[2], &[1.0]).is_err_and(|e| e.is_invalid_input()));
}

#[test]
fn top_down_fits_name_bad_arguments_and_can_be_cancelled() {
    let flag = Arc::new(AtomicBool::new(false));
    let start = |phi: &[f64], weights: Option<Vec<f64>>| {
        TopDownFit::new(phi.to_vec(), 2, 1, weights, Arc::clone(&flag))
    };
    for (phi, weights) in [
        (&[1.0][..], None),
        (&[1.0, f64::NAN], None),
        (&[1.0, 1e200], None),
        (&[1.0, 2.0], Some(vec![1.0])),
        (&[1.0, 2.0], Some(vec![1.0, f64::INFINITY])),
    ] {
        assert!(start(phi, weights).is_err_and(|e| e.is_invalid_input()));
    }
    let mut fit = start(&[1.0, 2.0], None).unwrap();
    assert!(fit.solve(&[1.0; 3], &[1.0]).is_err());
    assert!(fit.solve(&[1.0; 2], &[]).is_err());
    assert!(fit.solve(&[1.0, f64::NAN], &[1.0]).is_err());
    assert!(fit.solve(&[1.0; 2], &[f64::NAN]).is_err());
    assert!(fit.predictions(&[1.0, 2.0], 1).is_err());
    let late = Arc::new(AtomicBool::new(false));
    fit.set_cancel(Arc::clone(&late));
    assert!(fit.solve(&[1.0; 2], &[1.0]).is_ok());
    late.store(true, Ordering::Relaxed);
    let outcome = fit.solve(&[1.0; 2], &[1.0]);
    assert!(matches!(outcome, Err(Error::Interrupted)));
}
