//! Large dictionaries: fits in blocks and fits from approximate data end where the covariance of the targets, factored whole, has
//! no function that gains.

use sparsebayes::internal::{BlockCheckpoint, Blocks, fit_in_blocks};
use sparsebayes::{
    Design, Error, KernelDesign, Likelihood, Observations, Posterior, Settings, Status, Step,
    fit_rows,
};
use std::ops::ControlFlow;

use crate::dense::dense;
use crate::problems::{Problem, Uniform, above, columns, counts, fixed, gaussian, labels, surface};

const SMALL: Blocks = Blocks {
    sample: 12,
    working: 20,
    entrants: 5,
    block: 16,
    searches: 1,
};

/// A fit in blocks, with all its checkpoints.
fn solve(
    design: &dyn Design,
    (likelihood, t): (Likelihood, &[f64]),
    blocks: &Blocks,
    resume: Option<BlockCheckpoint>,
) -> Result<(Posterior, Vec<BlockCheckpoint>), Error> {
    let mut rows = Observations::in_part(design, likelihood, t.to_vec(), None).unwrap();
    // Random columns outnumber the rows: an estimated noise could end at the floor.
    let rules = fixed(0.03).check().unwrap();
    let mut saved = Vec::new();
    let posterior = fit_in_blocks(
        &mut rows,
        &rules,
        blocks,
        resume,
        &mut |checkpoint| {
            saved.push(checkpoint.clone());
            Ok(())
        },
        &mut |_: &Step| ControlFlow::Continue(()),
    )?;
    Ok((posterior, saved))
}

/// Checks a posterior of this problem, and that no function of the dictionary gains.
fn assert_optimal(problem: &Problem, posterior: &Posterior) {
    assert_eq!(posterior.status, Status::Converged);
    let found = dense(problem, posterior);
    assert!(found.log_alpha_change <= 1e-4, "{}", found.log_alpha_change);
    assert!(found.gain_outside <= 1e-6, "{}", found.gain_outside);
    let evidence = posterior.log_evidence;
    assert!((found.evidence - evidence).abs() <= 1e-8 * evidence.abs());
}

#[test]
fn fits_in_blocks_end_where_no_function_of_the_dictionary_gains() {
    for seed in 0..3 {
        for problem in [
            columns(60, 300, seed),
            labels(80, 300, seed),
            counts(80, 300, seed),
        ] {
            let data = (problem.likelihood, &problem.t[..]);
            let (found, saved) = solve(&problem.design(), data, &SMALL, None).unwrap();
            assert_optimal(&problem, &found);
            assert!(saved.len() > 2);
            // From each checkpoint on a fit takes the same steps.
            let middle = saved[saved.len() / 2].clone();
            let (again, _) = solve(&problem.design(), data, &SMALL, Some(middle)).unwrap();
            assert_eq!((&found.active, &found.mu), (&again.active, &again.mu));
            assert_eq!(found.trace, again.trace);
        }
    }
}

#[test]
fn checkpoints_of_other_fits_are_refused() {
    let problem = columns(40, 60, 1);
    let data = (problem.likelihood, &problem.t[..]);
    let (_, saved) = solve(&problem.design(), data, &SMALL, None).unwrap();
    let good = saved.last().unwrap();
    assert!(!good.active.is_empty());
    let changed = |change: &dyn Fn(&mut BlockCheckpoint)| {
        let mut checkpoint = good.clone();
        change(&mut checkpoint);
        solve(&problem.design(), data, &SMALL, Some(checkpoint))
            .is_err_and(|e| e.is_invalid_input())
    };
    assert!(!changed(&|_| ()));
    assert!(changed(&|c| c.working.reverse()));
    assert!(changed(&|c| *c.working.last_mut().unwrap() = 60));
    assert!(changed(&|c| c.active.push(c.active[0])));
    assert!(changed(&|c| c.alpha.push(1.0)));
    assert!(changed(&|c| c.alpha[0] = -1.0));
    assert!(changed(&|c| c.alpha[0] = f64::INFINITY));
    assert!(changed(&|c| c.beta = 0.0));
    assert!(changed(&|c| c.beta = f64::NAN));
    assert!(changed(&|c| c.trace[0] = f64::NAN));
    assert!(changed(&|c| c.stride = 0));
    for block in [
        Blocks { sample: 0, ..SMALL },
        Blocks {
            entrants: 0,
            ..SMALL
        },
        Blocks { block: 0, ..SMALL },
    ] {
        let outcome = solve(&problem.design(), data, &block, None);
        assert!(outcome.is_err_and(|e| e.is_invalid_input()));
    }
}

/// The active functions of a posterior and every `step`-th other one of a design, as columns.
fn sampled(
    design: &dyn Design,
    (likelihood, t): (Likelihood, &[f64]),
    posterior: &Posterior,
    step: usize,
) -> (Problem, Posterior) {
    let (n, active) = (design.n_rows(), &posterior.active);
    let others = (0..design.n_basis())
        .step_by(step)
        .filter(|j| !active.contains(j));
    let functions: Vec<usize> = active.iter().copied().chain(others).collect();
    let column = |&j: &usize| {
        let mut buffer = Vec::new();
        design
            .block(0..n, j..j + 1, &mut buffer)
            .column(0, n)
            .to_vec()
    };
    let problem = Problem {
        phi: functions.iter().flat_map(column).collect(),
        n,
        k: functions.len(),
        t: t.to_vec(),
        likelihood,
    };
    let mut posterior = posterior.clone();
    posterior.active = (0..active.len()).collect();
    (problem, posterior)
}

/// Rows of two coordinates and many centres of a wide kernel, with a constant function.
fn wide(n: usize, n_centres: usize, inverse_square_width: f64) -> (KernelDesign, Vec<f64>) {
    let (x, t) = surface(n, 4);
    let centres: Vec<f64> = Uniform(8).take(2 * n_centres).map(|u| 10.0 * u).collect();
    let kernels = vec![gaussian(inverse_square_width)];
    (
        KernelDesign::new(&x, &centres, 2, kernels, true).unwrap(),
        t,
    )
}

/// Rows and centres of a kernel about as wide as the data, and smooth targets.
fn smooth(n: usize, n_centres: usize) -> (KernelDesign, Vec<f64>) {
    let (design, _) = wide(n, n_centres, 0.003);
    let (x, _) = surface(n, 4);
    let pairs = x.chunks_exact(2).zip(Uniform(5));
    let target = |(x, u): (&[f64], f64)| (0.3 * x[0]).sin() + (0.2 * x[1]).cos() - 0.7 + 0.3 * u;
    (design, pairs.map(target).collect())
}

#[test]
fn screened_candidates_do_not_gain() {
    // Few landmarks and many rows, so that bounds cost less than a pass.
    let (design, t) = smooth(1000, 3000);
    let binary = above(0.0, &t);
    let blocks = Blocks {
        sample: 60,
        working: 80,
        entrants: 20,
        block: 200,
        searches: 1,
    };
    for data in [
        (Likelihood::Gaussian, &t[..]),
        (Likelihood::Bernoulli, &binary[..]),
    ] {
        let (found, _) = solve(&design, data, &blocks, None).unwrap();
        assert!(!found.active.is_empty());
        let (problem, found) = sampled(&design, data, &found, 10);
        assert_optimal(&problem, &found);
    }
}

#[test]
fn fits_from_low_rank_features_end_where_no_function_of_the_rows_gains() {
    // Enough kernel values that features pay, in a kernel that is not too wide for coarse ones.
    for is_binary in [false, true] {
        let (design, t) = if is_binary {
            smooth(800, 1200)
        } else {
            wide(600, 2700, 0.2)
        };
        let binary = above(0.0, &t);
        let data = if is_binary {
            (Likelihood::Bernoulli, &binary[..])
        } else {
            (Likelihood::Gaussian, &t[..])
        };
        let mut rows = Observations::new(&design, data.0, data.1.to_vec(), None).unwrap();
        let rules = Settings::default().check().unwrap();
        let found = fit_rows(&mut rows, &rules, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(found.active.len() > 1);
        let (problem, found) = sampled(&design, data, &found, 9);
        assert_optimal(&problem, &found);
    }
}
