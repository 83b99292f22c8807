//! Fits that set out from a model.

use std::ops::ControlFlow;

use sparsebayes::{Error, Observations, Posterior, Result, Settings, Status, Warm, fit_from};

use crate::dense::dense;
use crate::problems::{Problem, columns, fixed, labels};

fn from(problem: &Problem, settings: Settings, start: &Warm) -> Result<Posterior> {
    let (design, t) = (problem.design(), problem.t.clone());
    let mut stats = Observations::new(&design, problem.likelihood, t, None)?;
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    fit_from(&mut stats, &settings.check()?, start, go_on)
}

fn start_at(found: &Posterior) -> Warm {
    Warm {
        functions: found.active.clone(),
        alpha: found.alpha.clone(),
        beta: found.beta,
    }
}

#[test]
fn from_its_end_a_fit_stays_there() {
    for seed in 0..6 {
        for (problem, settings) in [
            (columns(60, 30, seed), Settings::default()),
            (columns(60, 30, seed), fixed(0.03)),
            (labels(80, 30, seed), Settings::default()),
        ] {
            let (found, _) = problem.fit(settings);
            let again = from(&problem, settings, &start_at(&found)).unwrap();
            assert_eq!(again.status, Status::Converged);
            assert_eq!(again.active, found.active);
            for (a, b) in again.alpha.iter().zip(&found.alpha) {
                assert!((a / b).ln().abs() < 1e-5, "{a} {b}");
            }
        }
    }
}

#[test]
fn from_anywhere_a_fit_ends_at_an_optimum_and_no_lower() {
    for (seed, step) in (0..12).zip((1..=4).cycle()) {
        let problem = columns(60, 30, seed);
        let functions: Vec<usize> = (0..30).step_by(step).collect();
        let start = Warm {
            alpha: functions.iter().map(|&j| 0.1 * (1 + j) as f64).collect(),
            functions,
            beta: 5.0,
        };
        let found = from(&problem, Settings::default(), &start).unwrap();
        assert_eq!(found.status, Status::Converged);
        assert!(*found.trace.last().unwrap() >= found.trace[0]);
        let certified = dense(&problem, &found);
        assert!(certified.log_alpha_change <= 1e-5);
        assert!(certified.gain_outside <= 1e-6);
    }
}

#[test]
fn from_nothing_a_fit_finds_what_there_is() {
    let start = Warm {
        functions: Vec::new(),
        alpha: Vec::new(),
        beta: 1.0,
    };
    let found = from(&columns(60, 10, 1), Settings::default(), &start).unwrap();
    assert_eq!(found.status, Status::Converged);
    assert!(found.active.contains(&0));
}

#[test]
fn starts_that_make_no_sense_are_refused() {
    let problem = columns(20, 5, 0);
    let sound = Warm {
        functions: vec![0, 2],
        alpha: vec![1.0, 1.0],
        beta: 1.0,
    };
    assert!(from(&problem, Settings::default(), &sound).is_ok());
    let with = |functions: &[usize], alpha: &[f64], beta: f64| Warm {
        functions: functions.to_vec(),
        alpha: alpha.to_vec(),
        beta,
    };
    for start in [
        with(&[0, 5], &[1.0, 1.0], 1.0),
        with(&[2, 2], &[1.0, 1.0], 1.0),
        with(&[0, 2], &[1.0], 1.0),
        with(&[0, 2], &[1.0, 0.0], 1.0),
        with(&[0, 2], &[1.0, f64::NAN], 1.0),
        with(&[0, 2], &[1.0, 1.0], f64::INFINITY),
    ] {
        let refused = from(&problem, Settings::default(), &start);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{start:?}");
    }
}
