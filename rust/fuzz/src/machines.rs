//! The multinomial probit machines, driven step by step as their users do, and the integrals they go by.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sparsebayes::internal::{
    Ascent, MStep, OutputObservations, OutputPosterior, Probit, RetargetedFit, TopDownFit,
};
use sparsebayes::{Design, Error, Result, Rules, Status};

use crate::judge::{Outcome, judge_outputs, not_finite};
use crate::problem::Problem;
use crate::watch::Watcher;

/// How far apart the first targets are.
const SPREAD: f64 = 4.0;

fn not_classes() -> Error {
    Error::Invalid {
        what: "the targets are no classes".to_owned(),
    }
}

/// N x C targets that follow the labels, column after column.
fn first_targets(labels: &[usize], n_classes: usize) -> Vec<f64> {
    let apart = |c: usize, label: usize| if c == label { SPREAD } else { 0.0 };
    let value = |c: usize, label: usize| apart(c, label) - SPREAD / n_classes as f64;
    (0..n_classes)
        .flat_map(|c| labels.iter().map(move |&label| value(c, label)))
        .collect()
}

/// mRVM1: E- and M-steps and climbs in turn until nothing moves, and once more from where that ended.
pub(crate) fn bottom_up(problem: &Problem, design: &dyn Design, rules: &Rules) -> Result<Outcome> {
    let (labels, n_classes) = problem.classes().ok_or_else(not_classes)?;
    let machine = BottomUp {
        problem,
        rules,
        labels,
        n_classes,
        probit: Probit::for_classes(n_classes),
    };
    // A start of somebody else's.
    let start = match problem.noise.first() {
        Some(&alpha) => (vec![problem.n_outputs - 1], vec![alpha]),
        None => (Vec::new(), Vec::new()),
    };
    let first = machine.run(design, &start.0, &start.1)?;
    let outcome = judge_outputs(&first);
    if outcome.wrong.is_some() || first.status != Status::Converged {
        return Ok(outcome);
    }
    Ok(judge_outputs(&machine.run(
        design,
        &first.active,
        &first.alpha,
    )?))
}

struct BottomUp<'p> {
    problem: &'p Problem,
    rules: &'p Rules,
    labels: Vec<usize>,
    n_classes: usize,
    probit: Probit,
}

impl BottomUp<'_> {
    fn run(&self, design: &dyn Design, active: &[usize], alpha: &[f64]) -> Result<OutputPosterior> {
        let mut watcher = Watcher::of(self.problem);
        let mut targets = first_targets(&self.labels, self.n_classes);
        let rows = OutputObservations::unscaled(
            design,
            targets.clone(),
            self.n_classes,
            self.problem.weights(),
        )?;
        let rows = rows.cancelled_by(watcher.flag());
        let mut fit = RetargetedFit::new(rows, 1.0, active, alpha)?;
        let (mut n_iter, mut fine) = (0, false);
        let mut before = fit.posterior(&nothing_yet());
        loop {
            fit.set_targets(targets)?;
            let step = self.maximise(&mut fit, n_iter, fine, &mut watcher)?;
            n_iter += step.trace.len().saturating_sub(1);
            let after = fit.posterior(&step);
            let expected =
                self.probit
                    .expectations(&fit.predictions(), &self.labels, self.n_classes)?;
            targets = expected.targets;
            let goes_on = matches!(step.status, Status::Converged | Status::AlphaFloor);
            let change = change(&before, &after);
            if !goes_on || (fine && change < self.rules.tol) {
                return Ok(after);
            }
            match fit.climb(&self.probit, &self.labels, ascent(change)) {
                Ok(top) => targets = top,
                // Steps in turn go on by themselves.
                Err(Error::NotPositiveDefinite(_) | Error::Breakdown { .. }) => {}
                Err(error) => return Err(error),
            }
            fine |= change.is_finite();
            before = after;
        }
    }

    fn maximise(
        &self,
        fit: &mut RetargetedFit<'_>,
        n_iter: usize,
        fine: bool,
        watcher: &mut Watcher,
    ) -> Result<MStep> {
        let (gain, tol) = if fine {
            (1e-7, 0.1 * self.rules.tol)
        } else {
            (self.n_classes as f64 / 3.0, 0.1)
        };
        let left = self.rules.max_iter.saturating_sub(n_iter).max(1);
        fit.maximise(gain, tol, left, &mut |_| watcher.step())
    }
}

fn nothing_yet() -> MStep {
    MStep {
        status: Status::Stopped,
        trace: Vec::new(),
        n_active: Vec::new(),
    }
}

/// How far each climb goes.
fn ascent(change: f64) -> Ascent {
    let (least, radius) = if change < 0.3 {
        (1e-13, 30.0)
    } else {
        (if change.is_finite() { 1.0 } else { 20.0 }, 3.0)
    };
    Ascent { least, radius }
}

/// The largest change of a ln alpha; infinite if it is one of functions.
fn change(before: &OutputPosterior, after: &OutputPosterior) -> f64 {
    if before.active != after.active {
        return f64::INFINITY;
    }
    let pairs = after.alpha.iter().zip(&before.alpha);
    pairs.map(|(a, b)| (a / b).ln().abs()).fold(0.0, f64::max)
}

/// mRVM2: EM from all functions, those that serve no class being dropped.
pub(crate) fn top_down(problem: &Problem, rules: &Rules) -> Result<Outcome> {
    /// Beyond this precision of all its weights a function goes.
    const PRUNE: f64 = 1e5;
    let (labels, c) = problem.classes().ok_or_else(not_classes)?;
    let flag = Arc::new(AtomicBool::new(false));
    let (n, k) = (problem.n_rows, problem.n_columns);
    let mut fit = TopDownFit::new(problem.values.clone(), n, k, problem.weights(), flag)?;
    let prior = |i: usize| problem.priors.get(i).copied().filter(|&v| v > 0.0);
    let (tau, upsilon) = (prior(0).unwrap_or(1e-6), prior(1).unwrap_or(1e-6));
    let probit = Probit::for_classes(c);
    let mut targets = first_targets(&labels, c);
    let mut alpha = vec![1.0; k * c];
    for _ in 0..rules.max_iter {
        let weights = fit.solve(&targets, &alpha)?;
        let scores = fit.predictions(&weights, c)?;
        let expected = probit.expectations(&scores, &labels, c)?;
        targets = expected.targets;
        let renewed = |w: &f64| (2.0 * tau + 1.0) / (w * w + 2.0 * upsilon);
        let next: Vec<f64> = weights.iter().map(renewed).collect();
        let moved = next.iter().zip(&alpha).map(|(a, b)| (a / b).ln().abs());
        let change = moved.fold(0.0, f64::max);
        alpha = next;
        if change < rules.tol {
            let named = [
                ("alpha", &alpha[..]),
                ("mu", &weights),
                ("targets", &targets),
                ("log probabilities", &expected.log_probability),
            ];
            return Ok(Outcome {
                ending: "converged",
                wrong: not_finite(&named),
            });
        }
        let m = fit.n_basis();
        let stays = |&i: &usize| (0..c).any(|class| alpha[class * m + i] <= PRUNE);
        let kept: Vec<usize> = (0..m).filter(stays).collect();
        fit.keep(&kept)?;
        alpha = (0..c)
            .flat_map(|class| kept.iter().map(move |i| class * m + i))
            .map(|at| alpha[at])
            .collect();
    }
    Ok(Outcome {
        ending: "max_iter",
        wrong: None,
    })
}

/// Probabilities and expectations of any scores that are not refused.
pub(crate) fn scores(problem: &Problem) -> Result<Outcome> {
    let (scores, c) = (&problem.values[..], problem.n_columns);
    let (labels, _) = problem.classes().ok_or_else(not_classes)?;
    let probit = Probit::for_classes(c);
    let p = probit.probabilities(scores, c)?;
    let log_p = probit.log_probabilities(scores, c)?;
    let (expected, curvatures) = probit.curvatures(scores, &labels, c)?;
    let again = probit.expectations(scores, &labels, c)?;
    let named = [
        ("log probabilities", &log_p[..]),
        ("targets", &expected.targets),
        ("log probabilities of labels", &expected.log_probability),
        ("curvatures", &curvatures),
    ];
    let mut wrong = not_finite(&named);
    if !p.iter().all(|p| (0.0..=1.0).contains(p)) {
        wrong = Some(format!("probabilities {p:?}"));
    } else if again != expected {
        wrong = Some("with curvatures expectations are others".to_owned());
    } else if !log_p.iter().all(|&p| p <= 1e-6) {
        wrong = Some(format!("log probabilities {log_p:?}"));
    }
    Ok(Outcome {
        ending: "answered",
        wrong,
    })
}
