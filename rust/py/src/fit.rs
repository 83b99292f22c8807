//! The fits: borrow, check, run, wrap.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use sparsebayes::linalg::with_threads;
use sparsebayes::{
    DenseDesign, Design, Error, KernelDesign, Likelihood, Noise, Observations, Posterior, Rules,
    Settings, fit,
};

use crate::arrays::{columns, rows, vector};
use crate::errors::{invalid, to_python};
use crate::kernel::PyKernel;
use crate::posterior::PyPosterior;
use crate::watcher::{Line, run};

/// Designs up to this many values are stored; larger ones are evaluated again at each pass.
const STORED: usize = 1 << 26;

/// Kernels of so few inputs are evaluated again faster than they are read from memory.
const CHEAP: usize = 8;

/// What every fit needs beside its design.
struct Task<'a> {
    likelihood: Likelihood,
    target: &'a [f64],
    weights: Option<&'a [f64]>,
    rules: Rules,
    n_threads: Option<usize>,
}

impl<'a> Task<'a> {
    fn new(
        likelihood: &str,
        target: &'a PyReadonlyArray1<'_, f64>,
        weights: Option<&'a PyReadonlyArray1<'_, f64>>,
        rules: Rules,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        Ok(Self {
            likelihood: self::likelihood(likelihood)?,
            target: vector("target", target)?,
            weights: weights.map(|w| vector("weights", w)).transpose()?,
            rules,
            n_threads,
        })
    }

    fn solve(&self, design: &dyn Design, line: &Line) -> Result<Posterior, Error> {
        let weights = self.weights.map(<[f64]>::to_vec);
        let mut observations =
            Observations::new(design, self.likelihood, self.target.to_vec(), weights)?
                .cancelled_by(line.cancel.clone());
        fit(&mut observations, &self.rules, &mut |step| line.watch(step))
    }
}

pub(crate) fn rules(noise_variance: Option<f64>, tol: f64, max_iter: usize) -> PyResult<Rules> {
    let noise = noise_variance.map_or(Noise::Estimated, Noise::Fixed);
    Settings {
        noise,
        tol,
        max_iter,
    }
    .check()
    .map_err(|error| to_python(&error))
}

/// Whether there is room to keep all values of a design.
pub(crate) fn is_stored(design: &dyn Design) -> bool {
    design.n_rows().saturating_mul(design.n_basis()) <= STORED
}

fn likelihood(name: &str) -> PyResult<Likelihood> {
    match name {
        "gaussian" => Ok(Likelihood::Gaussian),
        "bernoulli" => Ok(Likelihood::Bernoulli),
        "poisson" => Ok(Likelihood::Poisson),
        _ => Err(invalid(format!(
            "likelihood must be 'gaussian', 'bernoulli' or 'poisson', got {name:?}"
        ))),
    }
}

/// Fits a model whose basis functions are the columns of `Phi`.
#[pyfunction]
#[pyo3(signature = (Phi, target, weights=None, *, likelihood="gaussian", noise_variance=None, tol=1e-6,
    max_iter=100_000, n_threads=None, callback=None))]
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)] // the Python signature
pub(crate) fn fit_dense(
    py: Python<'_>,
    Phi: PyReadonlyArray2<'_, f64>,
    target: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    likelihood: &str,
    noise_variance: Option<f64>,
    tol: f64,
    max_iter: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyPosterior> {
    let values = columns("Phi", &Phi)?;
    let [n_rows, n_basis] = Phi.as_array().dim().into();
    let rules = rules(noise_variance, tol, max_iter)?;
    let task = Task::new(likelihood, &target, weights.as_ref(), rules, n_threads)?;
    let posterior = run(py, callback.as_ref(), |line| {
        with_threads(task.n_threads, || {
            task.solve(&DenseDesign::new(values, n_rows, n_basis)?, line)
        })?
    })?;
    Ok(PyPosterior(posterior))
}

/// Fits a model whose basis functions are kernels about `centres`, after a constant if `bias`.
///
/// `lazy`: never store the design (None: where X has few columns, or by its size). Both ways give the same model to the bit.
#[pyfunction]
#[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true, lazy=None, likelihood="gaussian",
    noise_variance=None, tol=1e-6, max_iter=100_000, n_threads=None, callback=None))]
#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)] // the Python signature
pub(crate) fn fit_kernel(
    py: Python<'_>,
    X: PyReadonlyArray2<'_, f64>,
    centres: PyReadonlyArray2<'_, f64>,
    kernels: Vec<PyRef<'_, PyKernel>>,
    target: PyReadonlyArray1<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    bias: bool,
    lazy: Option<bool>,
    likelihood: &str,
    noise_variance: Option<f64>,
    tol: f64,
    max_iter: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyPosterior> {
    let (x, z) = (rows("X", &X)?, rows("centres", &centres)?);
    x.check_alike("centres", &z)?;
    let kernels = kernels.iter().map(|k| k.kernel().clone()).collect();
    let rules = rules(noise_variance, tol, max_iter)?;
    let task = Task::new(likelihood, &target, weights.as_ref(), rules, n_threads)?;
    let posterior = run(py, callback.as_ref(), |line| {
        with_threads(task.n_threads, || {
            let design = KernelDesign::new(x.values, z.values, x.n_features, kernels, bias)?;
            if lazy.unwrap_or(x.n_features <= CHEAP || !is_stored(&design)) {
                task.solve(&design, line)
            } else {
                task.solve(&design.materialise()?, line)
            }
        })?
    })?;
    Ok(PyPosterior(posterior))
}
