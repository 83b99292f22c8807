//! Fits of one output.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::internal::{FirstStage, SoftmaxStatistics, fit_from};
use sparsebayes::{
    Complexity, Design, Error, Likelihood, Noise, Observations, Rules, Scheme, Search, Settings,
    Statistics,
};

use crate::arrays;
use crate::arrays::{BasisValues, vector};
use crate::dictionary::KernelDictionary;
use crate::errors::{invalid, to_python};
use crate::kernel::PyKernel;
use crate::memory::check_fit;
use crate::posterior::PyPosterior;
use crate::runner::run;

/// One linear predictor per row with a likelihood, or classes with a softmax.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Scalar(Likelihood),
    Classes,
}

/// Everything that a fit needs except its design.
pub(crate) struct Task<'a> {
    pub(crate) kind: Kind,
    pub(crate) target: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) options: Options,
    pub(crate) rules: Rules,
    pub(crate) n_threads: Option<usize>,
}

/// What only some fits have.
pub(crate) struct Options {
    dispersion: f64,
    offset: Option<Vec<f64>>,
    /// Functions of the first model, their prior precisions and the noise precision.
    first: Option<(Vec<usize>, Vec<f64>, f64)>,
}

impl Options {
    /// Takes the keywords `dispersion` (of the likelihood), `offset` (of each linear predictor) and `first` (a model: functions,
    /// alpha, beta) from those of a fit.
    pub(crate) fn take(settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let take = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let Some(settings) = settings else {
                return Ok(None);
            };
            let found = settings.get_item(name)?;
            if found.is_some() {
                settings.del_item(name)?;
            }
            Ok(found.filter(|value| !value.is_none()))
        };
        let dispersion = take("dispersion")?.map_or(Ok(f64::NAN), |value| value.extract())?;
        let offset: Option<PyReadonlyArray1<'_, f64>> =
            take("offset")?.map(|value| value.extract()).transpose()?;
        let offset = offset.as_ref().map(|values| vector("offset", values));
        Ok(Self {
            dispersion,
            offset: offset.transpose()?.map(<[f64]>::to_vec),
            first: take("first")?.map(|value| value.extract()).transpose()?,
        })
    }
}

impl<'a> Task<'a> {
    pub(crate) fn new(
        likelihood: &str,
        target: &'a PyReadonlyArray1<'_, f64>,
        weights: Option<&'a PyReadonlyArray1<'_, f64>>,
        options: Options,
        rules: Rules,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let kind = match likelihood {
            "multinomial" => Kind::Classes,
            name => Kind::Scalar(Likelihood::named(name, options.dispersion).map_err(to_python)?),
        };
        Ok(Self {
            kind,
            target: vector("target", target)?,
            weights: arrays::weights(weights)?,
            options,
            rules,
            n_threads,
        })
    }

    /// The data of the first model, and all data.
    fn statistics<'d>(
        &self,
        design: &'d dyn Design,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(FirstStage<'d>, Box<dyn Statistics + 'd>), Error> {
        let (target, weights) = (self.target, self.weights.map(<[f64]>::to_vec));
        let n_predictors = match self.kind {
            Kind::Scalar(_) => 1,
            Kind::Classes => n_classes(target),
        };
        let shape = [design.n_rows(), design.n_basis()];
        check_fit(shape, n_predictors, self.rules.scheme)?;
        let cancel = Arc::clone(cancel);
        Ok(match self.kind {
            Kind::Scalar(likelihood) => {
                let (target, offset) = (target.to_vec(), self.options.offset.clone());
                let cancel = Some(cancel);
                let rows =
                    Observations::with_offset(design, likelihood, target, weights, offset, cancel)?;
                let first = match self.options.first.clone() {
                    Some((functions, alpha, beta)) => FirstStage::given(functions, alpha, beta)?,
                    None => FirstStage::choose(&rows, &self.rules)?,
                };
                (first, Box::new(rows))
            }
            Kind::Classes => {
                let rows = SoftmaxStatistics::new(design, target, weights)?.cancelled_by(cancel);
                (FirstStage::all_rows(), Box::new(rows))
            }
        })
    }
}

/// The number of classes from class indices that are not yet validated.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // invalid indices still give some number
fn n_classes(target: &[f64]) -> usize {
    let largest = target.iter().copied().fold(0.0, f64::max);
    (largest as usize)
        .saturating_add(1)
        .min(target.len().max(1))
}

/// The rules of a fit from keyword arguments; the core has the defaults.
pub(crate) fn rules(arguments: Option<&Bound<'_, PyDict>>) -> PyResult<Rules> {
    let mut settings = Settings::default();
    for (name, value) in arguments.into_iter().flatten() {
        match name.extract::<String>()?.as_str() {
            "noise_variance" => {
                let variance: Option<f64> = value.extract()?;
                settings.noise = variance.map_or(Noise::Estimated, Noise::Fixed);
            }
            "tol" => settings.tol = value.extract()?,
            "max_iter" => settings.max_iter = value.extract()?,
            "scheme" => settings.scheme = scheme(&value.extract::<String>()?)?,
            "alpha_prior" => settings.alpha_prior = value.extract()?,
            "noise_prior" => settings.noise_prior = value.extract()?,
            "unpenalized" => settings.unpenalized = value.extract()?,
            "complexity" => settings.complexity = complexity(Some(&value))?,
            "search" => settings.search = search(&value.extract::<String>()?)?,
            other => {
                let message = format!("got an unexpected keyword argument {other:?}");
                return Err(PyTypeError::new_err(message));
            }
        }
    }
    settings.check().map_err(to_python)
}

/// Rules of fits that have only these settings.
pub(crate) fn plain_rules(
    tol: f64,
    max_iter: usize,
    unpenalized: Vec<usize>,
    weight: Option<&Bound<'_, PyAny>>,
) -> PyResult<Rules> {
    let settings = Settings {
        tol,
        max_iter,
        unpenalized,
        complexity: complexity(weight)?,
        ..Settings::default()
    };
    settings.check().map_err(to_python)
}

/// The weight of the prior on complexity, or the criterion that it is taken from.
fn complexity(value: Option<&Bound<'_, PyAny>>) -> PyResult<Complexity> {
    let Some(value) = value else {
        return Ok(Complexity::default());
    };
    match value.extract::<String>().as_deref() {
        Ok("bic") => Ok(Complexity::Bic),
        Ok("ebic") => Ok(Complexity::Ebic),
        Ok(other) => Err(invalid(format!(
            "complexity must be a number, 'bic' or 'ebic', got {other:?}"
        ))),
        Err(_) => Ok(Complexity::Weight(value.extract()?)),
    }
}

fn scheme(name: &str) -> PyResult<Scheme> {
    match name {
        "sequential" => Ok(Scheme::Sequential),
        "mackay" => Ok(Scheme::MacKay),
        "em" => Ok(Scheme::Em),
        "variational" => Ok(Scheme::Variational),
        _ => Err(invalid(format!(
            "scheme must be 'sequential', 'mackay', 'em' or 'variational', got {name:?}"
        ))),
    }
}

fn search(name: &str) -> PyResult<Search> {
    match name {
        "greedy" => Ok(Search::Greedy),
        "exchange" => Ok(Search::Exchange),
        _ => Err(invalid(format!(
            "search must be 'greedy' or 'exchange', got {name:?}"
        ))),
    }
}

/// A likelihood with one linear predictor per row and no dispersion.
pub(crate) fn scalar_likelihood(name: &str) -> PyResult<Likelihood> {
    Likelihood::named(name, f64::NAN).map_err(to_python)
}

/// Fits a model whose basis functions are the columns of `Phi`.
///
/// `likelihood="multinomial"`: `target` holds class indices, and function j of class c is `c * n_basis + j`.
#[pyfunction]
#[pyo3(signature = (Phi, target, weights=None, *, likelihood="gaussian", n_threads=None, callback=None,
    **settings))]
pub(crate) fn fit_dense(
    py: Python<'_>,
    Phi: PyReadonlyArray2<'_, f64>,
    target: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    likelihood: &str,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
    settings: Option<Bound<'_, PyDict>>,
) -> PyResult<PyPosterior> {
    let phi = BasisValues::new("Phi", &Phi)?;
    let options = Options::take(settings.as_ref())?;
    let rules = rules(settings.as_ref())?;
    let weights = weights.as_ref();
    let task = Task::new(likelihood, &target, weights, options, rules, n_threads)?;
    let posterior = run(py, task.n_threads, callback.as_ref(), |reporter| {
        let design = phi.design()?;
        let (first, mut stats) = task.statistics(&design, &reporter.cancel)?;
        fit_from(first, &mut *stats, &task.rules, &mut |step| {
            reporter.step(step)
        })
    })?;
    Ok(posterior.into())
}

/// Fits a model whose basis functions are a constant if `bias`, kernels at `centres`, and the columns of `extra`.
///
/// `lazy`: do not store the design (None: depends on its size and the number of columns of X). Both give the same bits.
#[pyfunction]
#[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true, extra=None, lazy=None,
    likelihood="gaussian", n_threads=None, callback=None, **settings))]
pub(crate) fn fit_kernel(
    py: Python<'_>,
    X: PyReadonlyArray2<'_, f64>,
    centres: PyReadonlyArray2<'_, f64>,
    kernels: Vec<PyRef<'_, PyKernel>>,
    target: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    bias: bool,
    extra: Option<PyReadonlyArray2<'_, f64>>,
    lazy: Option<bool>,
    likelihood: &str,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
    settings: Option<Bound<'_, PyDict>>,
) -> PyResult<PyPosterior> {
    let dictionary = KernelDictionary::new(&X, &centres, &kernels, bias, extra.as_ref())?;
    let options = Options::take(settings.as_ref())?;
    let rules = rules(settings.as_ref())?;
    let weights = weights.as_ref();
    let task = Task::new(likelihood, &target, weights, options, rules, n_threads)?;
    let posterior = run(py, task.n_threads, callback.as_ref(), |reporter| {
        dictionary.solve(lazy, Some(&reporter.cancel), |design| {
            let (first, mut stats) = task.statistics(design, &reporter.cancel)?;
            fit_from(first, &mut *stats, &task.rules, &mut |step| {
                reporter.step(step)
            })
        })
    })?;
    Ok(posterior.into())
}
