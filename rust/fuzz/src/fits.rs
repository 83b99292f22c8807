//! Fits of arbitrary problems: a model in finite numbers, or a reason.

use sparsebayes::internal::{
    JoinedDesign, OutputObservations, ProviderStatistics, RowMajorDesign, RowPart,
    SoftmaxStatistics, fit_outputs,
};
use sparsebayes::{
    DenseDesign, Design, Error, KernelDesign, Likelihood, Observations, Result, Rules, Scheme,
    Search, SufficientStatistics, SumStatistics, fit,
};

use crate::harness::Target;
use crate::judge::{Outcome, judge, judge_outputs, not_served};
use crate::parts::SharedGroups;
use crate::problem::{Kind, Problem, Way};
use crate::random::Random;
use crate::watch::Watcher;
use crate::{blocks, machines};

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
                ending,
                wrong: None,
            }) => Ok(ending),
            Ok(Outcome {
                ending,
                wrong: Some(what),
            }) => Err(format!("{ending}: {what}")),
            Err(error) if error.is_invalid_input() => Ok("refused"),
            Err(Error::NotPositiveDefinite(_)) => Ok("indefinite"),
            Err(Error::Breakdown { .. }) => Ok("broke down"),
            Err(Error::Interrupted) if problem.by_flag && problem.stop_after > 0 => {
                Ok("interrupted")
            }
            Err(error) => Err(format!("an error that makes no sense here: {error}")),
        }
    }

    fn sort(&self, problem: &Problem) -> &'static str {
        match (problem.kind, problem.way) {
            (Kind::Scores, _) => return "probit",
            (Kind::BottomUp, _) => return "mRVM1",
            (Kind::TopDown, _) => return "mRVM2",
            (Kind::Outputs { .. }, _) => return "outputs",
            (_, Way::Blocks { .. }) => return "blocks",
            _ => {}
        }
        let settings = problem.settings();
        match settings.search {
            _ if settings.scheme != Scheme::Sequential => "full basis",
            Search::Greedy => "greedy",
            Search::Exchange => "exchange",
        }
    }

    fn to_bytes(&self, input: &Problem) -> Vec<u8> {
        serde_json::to_vec(input).unwrap_or_default()
    }

    fn read(&self, bytes: &[u8]) -> Option<Problem> {
        serde_json::from_slice(bytes).ok()
    }
}

/// N x K numbers column after column as rows, or back with the two lengths exchanged.
pub(crate) fn turned(values: &[f64], n_rows: usize) -> Vec<f64> {
    let n_columns = values.len() / n_rows.max(1);
    (0..values.len())
        .map(|at| values[at % n_columns * n_rows + at / n_columns])
        .collect()
}

fn solve(problem: &Problem) -> Result<Outcome> {
    if problem.kind == Kind::Scores {
        return machines::scores(problem);
    }
    let rules = problem.settings().check()?;
    let (n, k, values) = (problem.n_rows, problem.n_columns, &problem.values[..]);
    if problem.kind == Kind::TopDown {
        return machines::top_down(problem, &rules);
    }
    if !problem.kernels.is_empty() {
        let kernels = problem.kernels.clone();
        let design = KernelDesign::new(values, problem.centres(), k, kernels, true)?;
        let Way::Joined(extra) = problem.way else {
            return with_design(problem, &design, &rules, Some(&design));
        };
        // Some of the features once more as columns.
        let columns = turned(values, k);
        let columns = DenseDesign::new(&columns[..n * extra.min(k)], n, extra.min(k))?;
        return with_design(
            problem,
            &JoinedDesign::new(&design, &columns)?,
            &rules,
            None,
        );
    }
    match problem.way {
        Way::Rows => {
            let design = RowMajorDesign::new(turned(values, n), n, k)?;
            with_design(problem, &design, &rules, None)
        }
        Way::Joined(first) => {
            let first = first.min(k);
            let (left, right) = values.split_at(n * first);
            let left = DenseDesign::new(left, n, first)?;
            let right = DenseDesign::new(right, n, k - first)?;
            with_design(problem, &JoinedDesign::new(&left, &right)?, &rules, None)
        }
        _ => {
            let design = DenseDesign::new(values, n, k)?;
            with_design(problem, &design, &rules, None)
        }
    }
}

fn with_design(
    problem: &Problem,
    design: &dyn Design,
    rules: &Rules,
    kernels: Option<&KernelDesign>,
) -> Result<Outcome> {
    let (weights, mut watcher) = (problem.weights(), Watcher::of(problem));
    let flag = watcher.flag();
    let likelihood = match problem.kind {
        Kind::Outputs { shared } => {
            let (targets, n) = (problem.targets.clone(), problem.n_outputs);
            let rows = OutputObservations::new(design, targets, n, weights)?;
            let (mut rows, noise) = (rows.cancelled_by(flag), problem.levels(shared));
            let posterior = fit_outputs(&mut rows, rules, &noise, &mut |_| watcher.step())?;
            return Ok(judge_outputs(&posterior));
        }
        Kind::Classes => {
            let rows = SoftmaxStatistics::new(design, &problem.targets, weights)?;
            let mut rows = rows.cancelled_by(flag);
            let posterior = fit(&mut rows, rules, &mut |_| watcher.step())?;
            return Ok(judge(&posterior));
        }
        Kind::Sums => {
            let sums = sums(problem, design)?;
            let mut summary = SumStatistics::new(&sums, false, 0)?.cancelled_by(flag);
            let posterior = fit(&mut summary, rules, &mut |_| watcher.step())?;
            return Ok(judge(&posterior));
        }
        Kind::BottomUp => return machines::bottom_up(problem, design, rules),
        Kind::Bernoulli => Likelihood::Bernoulli,
        Kind::Poisson => Likelihood::Poisson,
        Kind::Gaussian | Kind::TopDown | Kind::Scores => Likelihood::Gaussian,
    };
    let observe = || {
        let targets = problem.targets.clone();
        if matches!(problem.way, Way::Blocks { .. }) {
            Observations::in_part(design, likelihood, targets, weights.clone())
        } else {
            Observations::new(design, likelihood, targets, weights.clone())
        }
    };
    let posterior = match problem.way {
        Way::Blocks { .. } => match blocks::fit(problem, observe, rules)? {
            Ok(posterior) => posterior,
            Err(outcome) => return Ok(outcome),
        },
        Way::Parts(n_parts) => {
            let rows = together(problem, likelihood, n_parts)?;
            let mut rows = ProviderStatistics::new(rows)?.cancelled_by(flag);
            fit(&mut rows, rules, &mut |_| watcher.step())?
        }
        _ => fit(&mut observe()?.cancelled_by(flag), rules, &mut |_| {
            watcher.step()
        })?,
    };
    let outcome = judge(&posterior);
    let in_columns = problem.kernels.is_empty();
    // Without a column there is nothing to predict from; there is no predictor of kernels with columns beside them.
    if problem.n_columns == 0 || !(in_columns || kernels.is_some()) {
        return Ok(outcome);
    }
    let model = match kernels {
        Some(design) => posterior.predictor(design, likelihood),
        None => posterior.predictor_of_columns(problem.n_columns, likelihood),
    };
    Ok(outcome.or_else(|| not_served(problem, model)))
}

/// From where to where the rows of each part go.
fn cuts(problem: &Problem, n_parts: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let n = problem.n_rows;
    (0..n_parts).map(move |part| part * n / n_parts..(part + 1) * n / n_parts)
}

/// These rows of a design that is stored column after column.
fn some_rows(problem: &Problem, rows: &std::ops::Range<usize>) -> Vec<f64> {
    problem
        .values
        .chunks_exact(problem.n_rows.max(1))
        .flat_map(|column| column[rows.clone()].iter().copied())
        .collect()
}

/// Rows of the problem in parts that answer together.
fn together(problem: &Problem, likelihood: Likelihood, n_parts: usize) -> Result<SharedGroups<'_>> {
    let d = problem.n_columns;
    let mut n_basis = d;
    let mut parts = Vec::new();
    for rows in cuts(problem, n_parts) {
        let design: Box<dyn Design + Send> = if problem.kernels.is_empty() {
            Box::new(DenseDesign::new(some_rows(problem, &rows), rows.len(), d)?)
        } else {
            let x = &problem.values[rows.start * d..rows.end * d];
            let kernels = problem.kernels.clone();
            Box::new(KernelDesign::new(x, problem.centres(), d, kernels, true)?)
        };
        n_basis = design.n_basis();
        let weights = problem.weights();
        let weights = weights.map(|w| w[rows.clone()].to_vec());
        let targets = problem.targets[rows].to_vec();
        parts.push(RowPart::new(design, likelihood, targets, weights)?);
    }
    Ok(SharedGroups {
        parts,
        n_basis,
        likelihood,
    })
}

/// Sums over the rows: all at once, or part after part, every other of them on its own first and on a journey.
fn sums(problem: &Problem, design: &dyn Design) -> Result<SufficientStatistics> {
    let weights = problem.weights();
    let weights = weights.as_deref();
    let Way::Parts(n_parts) = problem.way else {
        return SufficientStatistics::of(design, &problem.targets, weights, None);
    };
    let k = problem.n_columns;
    let mut sums = SufficientStatistics::new(k)?;
    for (part, rows) in cuts(problem, n_parts).enumerate() {
        let own = DenseDesign::new(some_rows(problem, &rows), rows.len(), k)?;
        let targets = &problem.targets[rows.clone()];
        let weights = weights.map(|w| &w[rows]);
        if part % 2 == 0 {
            sums.update(&own, targets, weights)?;
        } else {
            let other = SufficientStatistics::of(&own, targets, weights, None)?;
            let (n_rows, numbers) = (other.n_rows(), other.parts());
            sums.merge(&SufficientStatistics::from_parts(k, n_rows, &numbers)?)?;
        }
    }
    Ok(sums)
}
