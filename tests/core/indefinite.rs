//! A model survives round-off that makes its posterior precision indefinite.

use std::cell::Cell;
use std::ops::ControlFlow;

use sparsebayes::{
    Facts, GramAndGradient, Matrix, Observations, Result, Settings, Statistics, Status, Sweep, fit,
};

use crate::problems::{Problem, counts, labels};

/// Rows whose Gram matrix is indefinite for more than `MOST` functions once `broken` is set.
struct Brittle<'a> {
    rows: Observations<'a>,
    broken: &'a Cell<bool>,
}

const MOST: usize = 2;

impl Statistics for Brittle<'_> {
    fn facts(&self) -> &Facts {
        self.rows.facts()
    }

    fn deviance(&mut self, active: &[usize], mu: &[f64]) -> Result<f64> {
        self.rows.deviance(active, mu)
    }

    fn local(&mut self, active: &[usize], mu: &[f64]) -> Result<(f64, GramAndGradient)> {
        let (deviance, (mut gram, gradient)) = self.rows.local(active, mu)?;
        if self.broken.get() && active.len() > MOST {
            gram.fill(-1e9);
        }
        Ok((deviance, (gram, gradient)))
    }

    fn gradient(&mut self, active: &[usize], mu: &[f64], gradient: &mut [f64]) -> Result<Vec<f64>> {
        self.rows.gradient(active, mu, gradient)
    }

    fn variance_drift(&mut self, active: &[usize], mu: &[f64], sigma: &Matrix) -> Result<Matrix> {
        self.rows.variance_drift(active, mu, sigma)
    }

    fn sweep(&mut self, active: &[usize], mu: &[f64], wanted: &[usize]) -> Result<Sweep> {
        self.rows.sweep(active, mu, wanted)
    }

    fn among(&mut self, active: &[usize], mu: &[f64], js: &[usize]) -> Result<GramAndGradient> {
        self.rows.among(active, mu, js)
    }
}

/// A fit stopped after so many steps, from when on the rows are brittle: how it ended, functions in it and whether it is sound.
fn stopped_after(problem: &Problem, steps: u64) -> (Status, usize, bool) {
    let (design, broken) = (problem.design(), Cell::new(false));
    let rows = Observations::new(&design, problem.likelihood, problem.t.clone(), None).unwrap();
    let broken_rows = &mut Brittle {
        rows,
        broken: &broken,
    };
    let rules = Settings::default().check().unwrap();
    let mut left = steps;
    let model = fit(broken_rows, &rules, &mut |_| {
        left -= 1;
        if left > 0 {
            return ControlFlow::Continue(());
        }
        broken.set(true);
        ControlFlow::Break(())
    });
    let model = model.unwrap();
    let finite = model
        .mu
        .iter()
        .chain(model.sigma.iter())
        .all(|v| v.is_finite());
    (
        model.status,
        model.active.len(),
        finite && model.log_evidence.is_finite(),
    )
}

#[test]
fn a_model_stopped_without_a_mode_loses_functions() {
    for problem in [labels(200, 12, 3), counts(200, 12, 3)] {
        for steps in 1..30 {
            let (status, size, sound) = stopped_after(&problem, steps);
            assert_eq!(status, Status::Stopped);
            assert!(size <= MOST && sound, "{size} after {steps}");
        }
    }
}
