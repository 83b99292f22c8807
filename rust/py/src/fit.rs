//! Fits of one output.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use std::sync::Arc;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::internal::{FirstStage, SoftmaxStatistics, fit_from};
use sparsebayes::{
    Complexity, Design, Error, Likelihood, Noise, Observations, Posterior, Rules, Scheme, Search,
    Settings, fit,
};

use crate::arrays;
use crate::arrays::{BasisValues, vector};
use crate::dictionary::KernelDictionary;
use crate::errors::{invalid, to_python};
use crate::kernel::PyKernel;
use crate::memory::check_fit;
use crate::posterior::PyPosterior;
use crate::runner::{Reporter, run};

/// Everything that a fit needs except its design.
struct Task<'a> {
    /// The likelihood of one linear predictor per row; `None`: classes with a softmax.
    likelihood: Option<Likelihood>,
    target: &'a [f64],
    weights: Option<&'a [f64]>,
    /// What is added to the linear predictor of each row.
    offset: Option<Vec<f64>>,
    /// Functions of the first model, their prior precisions and the noise precision.
    first: Option<(Vec<usize>, Vec<f64>, f64)>,
    rules: Rules,
}

/// Removes a keyword from those of a fit.
fn take<'py>(
    settings: Option<&Bound<'py, PyDict>>,
    name: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let found = settings.get_item(name)?;
    if found.is_some() {
        settings.del_item(name)?;
    }
    Ok(found.filter(|value| !value.is_none()))
}

impl<'a> Task<'a> {
    /// The `settings` are those of [`rules`], and `dispersion` (of the likelihood), `offset` and `first`.
    fn new(
        likelihood: &str,
        target: &'a PyReadonlyArray1<'_, f64>,
        weights: Option<&'a PyReadonlyArray1<'_, f64>>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let dispersion = take(settings, "dispersion")?;
        let dispersion = dispersion.map_or(Ok(f64::NAN), |value| value.extract())?;
        let offset = take(settings, "offset")?;
        let offset: Option<PyReadonlyArray1<'_, f64>> =
            offset.map(|value| value.extract()).transpose()?;
        let offset = offset.as_ref().map(|values| vector("offset", values));
        let first = take(settings, "first")?;
        let likelihood = match likelihood {
            "multinomial" => None,
            name => Some(Likelihood::named(name, dispersion).map_err(to_python)?),
        };
        Ok(Self {
            likelihood,
            target: vector("target", target)?,
            weights: arrays::weights(weights)?,
            offset: offset.transpose()?.map(<[f64]>::to_vec),
            first: first.map(|value| value.extract()).transpose()?,
            rules: rules(settings)?,
        })
    }

    fn solve(&self, design: &dyn Design, reporter: &Reporter) -> Result<Posterior, Error> {
        let (target, rules) = (self.target, &self.rules);
        let weights = self.weights.map(<[f64]>::to_vec);
        let shape = [design.n_rows(), design.n_basis()];
        let cancel = Arc::clone(&reporter.cancel);
        let watch = &mut |step: &_| reporter.step(step);
        let Some(likelihood) = self.likelihood else {
            check_fit(shape, n_classes(target), rules.scheme)?;
            let rows = SoftmaxStatistics::new(design, target, weights)?;
            return fit(&mut rows.cancelled_by(cancel), rules, watch);
        };
        check_fit(shape, 1, rules.scheme)?;
        let (target, offset, cancel) = (target.to_vec(), self.offset.clone(), Some(cancel));
        let mut rows =
            Observations::with_offset(design, likelihood, target, weights, offset, cancel)?;
        let first = match self.first.clone() {
            Some((functions, alpha, beta)) => FirstStage::given(functions, alpha, beta)?,
            None => FirstStage::choose(&rows, rules)?,
        };
        fit_from(first, &mut rows, rules, watch)
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
    let task = Task::new(likelihood, &target, weights.as_ref(), settings.as_ref())?;
    let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
        task.solve(&phi.design()?, reporter)
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
    let task = Task::new(likelihood, &target, weights.as_ref(), settings.as_ref())?;
    let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
        dictionary.solve(lazy, Some(&reporter.cancel), |design| {
            task.solve(design, reporter)
        })
    })?;
    Ok(posterior.into())
}
