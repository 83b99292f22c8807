//! Fits of arbitrary problems: a model in finite numbers, or a reason.

use std::ops::ControlFlow;

use sparsebayes::{
    DenseDesign, Design, Error, KernelDesign, Likelihood, Multinomial, Observations, OutputNoise,
    OutputObservations, Posterior, Predictor, Result, Rules, Settings, Status, Step,
    SufficientStatistics, Summary, fit, fit_outputs,
};

use crate::harness::Target;
use crate::problem::{Kind, Problem};
use crate::random::Random;

#[derive(Debug, Clone)]
pub(crate) struct Fits;

impl Target for Fits {
    type Input = Problem;

    fn make(&self, random: &mut Random) -> Problem {
        Problem::make(random)
    }

    fn run(&self, problem: &Problem) -> std::result::Result<&'static str, String> {
        match solve(problem) {
            Ok(Outcome {
                status,
                wrong: None,
            }) => Ok(status.name()),
            Ok(Outcome {
                status,
                wrong: Some(what),
            }) => Err(format!("{}: {what}", status.name())),
            Err(error) if error.is_invalid_input() => Ok("refused"),
            Err(Error::NotPositiveDefinite(_) | Error::Breakdown { .. }) => Ok("numerical error"),
            Err(error) => Err(format!("an error that makes no sense here: {error}")),
        }
    }

    fn to_bytes(&self, input: &Problem) -> Vec<u8> {
        serde_json::to_vec(input).unwrap_or_default()
    }

    fn read(&self, bytes: &[u8]) -> Option<Problem> {
        serde_json::from_slice(bytes).ok()
    }
}

struct Outcome {
    status: Status,
    /// The first thing that should not be.
    wrong: Option<String>,
}

fn solve(problem: &Problem) -> Result<Outcome> {
    let rules = problem.settings().check()?;
    if problem.kernels.is_empty() {
        let design = DenseDesign::new(&problem.values[..], problem.n_rows, problem.n_columns)?;
        return with_design(problem, &design, &rules, None);
    }
    let x = &problem.values;
    let design = KernelDesign::new(x, x, problem.n_columns, problem.kernels.clone(), true)?;
    with_design(problem, &design, &rules, Some(&design))
}

fn with_design(
    problem: &Problem,
    design: &dyn Design,
    rules: &Rules,
    kernels: Option<&KernelDesign>,
) -> Result<Outcome> {
    let weights = (!problem.weights.is_empty()).then(|| problem.weights.clone());
    let likelihood = match problem.kind {
        Kind::Outputs { shared } => return outputs(problem, design, rules, weights, shared),
        Kind::Classes => {
            let mut rows = Multinomial::new(design, &problem.targets, weights)?;
            return Ok(judge(&fit(&mut rows, rules, &mut go_on)?, None));
        }
        Kind::Sums => {
            let sums =
                SufficientStatistics::of(design, &problem.targets, weights.as_deref(), None)?;
            let posterior = fit(&mut Summary::new(&sums, false)?, rules, &mut go_on)?;
            return Ok(judge(&posterior, None));
        }
        Kind::Gaussian => Likelihood::Gaussian,
        Kind::Bernoulli => Likelihood::Bernoulli,
        Kind::Poisson => Likelihood::Poisson,
    };
    let mut rows = Observations::new(design, likelihood, problem.targets.clone(), weights)?;
    let posterior = fit(&mut rows, rules, &mut go_on)?;
    if problem.n_columns == 0 {
        // There is nothing to predict from.
        return Ok(judge(&posterior, None));
    }
    let model = match kernels {
        Some(design) => posterior.predictor(design, likelihood),
        None => posterior.predictor_of_columns(problem.n_columns, likelihood),
    };
    Ok(judge(&posterior, Some((problem, model))))
}

fn go_on(_: &Step) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn judge(posterior: &Posterior, served: Option<(&Problem, Result<Predictor>)>) -> Outcome {
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
    } else if !posterior.active.is_sorted() {
        Some("active does not ascend".to_owned())
    } else {
        not_finite(&named).or_else(|| not_positive(&posterior.alpha, &[posterior.beta]))
    };
    let wrong = wrong.or_else(|| served.and_then(|(problem, model)| not_served(problem, model)));
    Outcome {
        status: posterior.status,
        wrong,
    }
}

fn not_finite(named: &[(&str, &[f64])]) -> Option<String> {
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
fn not_served(problem: &Problem, model: Result<Predictor>) -> Option<String> {
    let model = match model {
        Ok(model) => model,
        Err(error) => return Some(format!("there is no predictor of it: {error}")),
    };
    let (n, k) = (problem.n_rows, problem.n_columns);
    let x: Vec<f64> = if problem.kernels.is_empty() {
        (0..n * k)
            .map(|at| problem.values[at % k * n + at / k])
            .collect()
    } else {
        problem.values.clone()
    };
    let mut out = vec![f64::NAN; n * model.n_predicted()];
    let answered = model.predict_into(&x, &mut out);
    if model.is_classifier() && answered.is_ok() && !out.iter().all(|p| (0.0..=1.0).contains(p)) {
        return Some(format!("probabilities {out:?}"));
    }
    None
}

fn outputs(
    problem: &Problem,
    design: &dyn Design,
    rules: &Rules,
    weights: Option<Vec<f64>>,
    shared: bool,
) -> Result<Outcome> {
    let Settings { noise, .. } = problem.settings();
    let n = problem.n_outputs;
    let mut rows = OutputObservations::new(design, problem.targets.clone(), n, weights)?;
    let noise = if shared {
        OutputNoise::Shared(noise)
    } else {
        OutputNoise::Own(vec![noise; n])
    };
    let posterior = fit_outputs(&mut rows, rules, &noise, &mut go_on)?;
    let mut named = vec![
        ("alpha", &posterior.alpha[..]),
        ("mu", posterior.mu.as_slice()),
        ("beta", &posterior.beta),
        ("the trace", &posterior.trace),
    ];
    named.extend(
        posterior
            .sigma
            .iter()
            .map(|sigma| ("sigma", sigma.as_slice())),
    );
    let wrong = not_finite(&named).or_else(|| not_positive(&posterior.alpha, &posterior.beta));
    Ok(Outcome {
        status: posterior.status,
        wrong,
    })
}
