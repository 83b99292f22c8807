//! What a fitted model has to be: numbers that fit one another, and something to predict with.

use sparsebayes::internal::OutputPosterior;
use sparsebayes::{Posterior, Predictor, Result};

use crate::fits::turned;
use crate::problem::Problem;

pub(crate) struct Outcome {
    pub(crate) ending: &'static str,
    /// The first thing that should not be.
    pub(crate) wrong: Option<String>,
}

impl Outcome {
    /// Itself, unless something else is wrong.
    pub(crate) fn or_else(mut self, other: impl FnOnce() -> Option<String>) -> Self {
        self.wrong = self.wrong.or_else(other);
        self
    }
}

pub(crate) fn judge(posterior: &Posterior) -> Outcome {
    let m = posterior.active.len();
    let lengths = [
        posterior.alpha.len(),
        posterior.mu.len(),
        posterior.sigma.nrows(),
        posterior.sigma.ncols(),
    ];
    let named = [
        ("alpha", &posterior.alpha[..]),
        ("mu", &posterior.mu),
        ("sigma", posterior.sigma.as_slice()),
        ("gamma", &posterior.gamma),
        ("beta", &[posterior.beta]),
        ("log evidence", &[posterior.log_evidence]),
        ("the trace", &posterior.trace),
    ];
    let wrong = if lengths != [m; 4] {
        Some("lengths differ".to_owned())
    } else if !posterior.active.is_sorted_by(|a, b| a < b) {
        Some("active does not ascend".to_owned())
    } else {
        not_finite(&named).or_else(|| not_positive(&posterior.alpha, &[posterior.beta]))
    };
    Outcome {
        ending: posterior.status.name(),
        wrong,
    }
}

pub(crate) fn judge_outputs(posterior: &OutputPosterior) -> Outcome {
    let mut named = vec![
        ("alpha", &posterior.alpha[..]),
        ("mu", posterior.mu.as_slice()),
        ("beta", &posterior.beta),
        ("the trace", &posterior.trace),
    ];
    let sigma = posterior.sigma.iter();
    named.extend(sigma.map(|sigma| ("sigma", sigma.as_slice())));
    let wrong = not_finite(&named).or_else(|| not_positive(&posterior.alpha, &posterior.beta));
    Outcome {
        ending: posterior.status.name(),
        wrong,
    }
}

pub(crate) fn not_finite(named: &[(&str, &[f64])]) -> Option<String> {
    let bad = |(name, values): &(&str, &[f64])| {
        values
            .iter()
            .find(|v| !v.is_finite())
            .map(|v| format!("{name} holds {v}"))
    };
    named.iter().find_map(bad)
}

fn not_positive(alpha: &[f64], beta: &[f64]) -> Option<String> {
    let bad = |v: &&f64| **v <= 0.0;
    let alpha = alpha.iter().find(bad).map(|v| format!("alpha holds {v}"));
    alpha.or_else(|| beta.iter().find(bad).map(|v| format!("beta holds {v}")))
}

/// A model in finite numbers can be served, and answers for the rows it has seen or says why not.
pub(crate) fn not_served(problem: &Problem, model: Result<Predictor>) -> Option<String> {
    let model = match model {
        Ok(model) => model,
        Err(error) => return Some(format!("there is no predictor of it: {error}")),
    };
    let n = problem.n_rows;
    let x = if problem.kernels.is_empty() {
        turned(&problem.values, n)
    } else {
        problem.values.clone()
    };
    let room = |width: usize| vec![f64::NAN; n * width];
    let mut out = room(model.n_predicted());
    let answered = model.predict_into(&x, &mut out);
    if model.is_classifier() && answered.is_ok() && !out.iter().all(|p| (0.0..=1.0).contains(p)) {
        return Some(format!("probabilities {out:?}"));
    }
    if !model.is_classifier() {
        let (mut mean, mut std) = (room(model.n_outputs()), room(model.n_outputs()));
        let answered = model.predict_std_into(&x, &mut mean, &mut std);
        if answered.is_ok() && std.iter().any(|&s| s < 0.0) {
            return Some(format!("standard deviations {std:?}"));
        }
    }
    None
}
