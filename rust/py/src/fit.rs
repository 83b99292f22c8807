//! The fits: borrow, check, run, wrap.

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use sparsebayes::linalg::with_threads;
use sparsebayes::{
    DenseDesign, Design, Error, JoinedDesign, Kernel, KernelDesign, Likelihood, Noise,
    Observations, Posterior, Rules, Scheme, Settings, fit,
};

use crate::arrays::{Rows, columns, rows, vector};
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

/// A dictionary of kernels about `centres`, after a constant if `bias` and before the columns of `extra`.
pub(crate) struct KernelDictionary<'a> {
    x: Rows<'a>,
    centres: Rows<'a>,
    kernels: Vec<Kernel>,
    bias: bool,
    /// Values, column after column, and their number of rows and columns.
    extra: Option<(&'a [f64], (usize, usize))>,
}

impl<'a> KernelDictionary<'a> {
    pub(crate) fn new(
        x: &'a PyReadonlyArray2<'_, f64>,
        centres: &'a PyReadonlyArray2<'_, f64>,
        kernels: &[PyRef<'_, PyKernel>],
        bias: bool,
        extra: Option<&'a PyReadonlyArray2<'_, f64>>,
    ) -> PyResult<Self> {
        let (x, centres) = (rows("X", x)?, rows("centres", centres)?);
        x.check_alike("centres", &centres)?;
        let extra = extra
            .map(|e| Ok::<_, PyErr>((columns("extra", e)?, e.as_array().dim())))
            .transpose()?;
        let kernels = kernels.iter().map(|k| k.kernel().clone()).collect();
        Ok(Self {
            x,
            centres,
            kernels,
            bias,
            extra,
        })
    }

    /// Shows the design to `solve`, its kernels evaluated when asked or, unless `lazy`, once (None: what is faster).
    pub(crate) fn solve<T>(
        self,
        lazy: Option<bool>,
        solve: impl FnOnce(&dyn Design) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (x, z, d) = (self.x.values, self.centres.values, self.x.n_features);
        let kernels = KernelDesign::new(x, z, d, self.kernels, self.bias)?;
        let large = kernels.n_rows().saturating_mul(kernels.n_basis()) > STORED;
        let stored;
        let left: &dyn Design = if lazy.unwrap_or(d <= CHEAP || large) {
            &kernels
        } else {
            stored = kernels.materialise()?;
            &stored
        };
        let Some((values, (n_rows, n_columns))) = self.extra else {
            return solve(left);
        };
        let right = DenseDesign::new(values, n_rows, n_columns)?;
        solve(&JoinedDesign::new(left, &right)?)
    }
}

fn rules(
    noise_variance: Option<f64>,
    tol: f64,
    max_iter: usize,
    scheme: &str,
    alpha_prior: [f64; 2],
    noise_prior: [f64; 2],
) -> PyResult<Rules> {
    Settings {
        noise: noise_variance.map_or(Noise::Estimated, Noise::Fixed),
        tol,
        max_iter,
        scheme: self::scheme(scheme)?,
        alpha_prior,
        noise_prior,
    }
    .check()
    .map_err(|error| to_python(&error))
}

fn scheme(name: &str) -> PyResult<Scheme> {
    match name {
        "sequential" => Ok(Scheme::Sequential),
        "mackay" => Ok(Scheme::MacKay),
        "em" => Ok(Scheme::Em),
        _ => Err(invalid(format!(
            "scheme must be 'sequential', 'mackay' or 'em', got {name:?}"
        ))),
    }
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
    max_iter=100_000, scheme="sequential", alpha_prior=[0.0, 0.0], noise_prior=[0.0, 0.0], n_threads=None,
    callback=None))]
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
    scheme: &str,
    alpha_prior: [f64; 2],
    noise_prior: [f64; 2],
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyPosterior> {
    let values = columns("Phi", &Phi)?;
    let [n_rows, n_basis] = Phi.as_array().dim().into();
    let rules = rules(
        noise_variance,
        tol,
        max_iter,
        scheme,
        alpha_prior,
        noise_prior,
    )?;
    let task = Task::new(likelihood, &target, weights.as_ref(), rules, n_threads)?;
    let posterior = run(py, callback.as_ref(), |line| {
        with_threads(task.n_threads, || {
            task.solve(&DenseDesign::new(values, n_rows, n_basis)?, line)
        })?
    })?;
    Ok(PyPosterior(posterior))
}

/// Fits a model whose basis functions are kernels about `centres`, after a constant if `bias` and before the columns of
/// `extra`.
///
/// `lazy`: never store the design (None: where X has few columns, or by its size). Both ways give the same model to the bit.
#[pyfunction]
#[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true, extra=None, lazy=None, likelihood="gaussian",
    noise_variance=None, tol=1e-6, max_iter=100_000, scheme="sequential", alpha_prior=[0.0, 0.0],
    noise_prior=[0.0, 0.0], n_threads=None, callback=None))]
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
    extra: Option<PyReadonlyArray2<'_, f64>>,
    lazy: Option<bool>,
    likelihood: &str,
    noise_variance: Option<f64>,
    tol: f64,
    max_iter: usize,
    scheme: &str,
    alpha_prior: [f64; 2],
    noise_prior: [f64; 2],
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyPosterior> {
    let dictionary = KernelDictionary::new(&X, &centres, &kernels, bias, extra.as_ref())?;
    let rules = rules(
        noise_variance,
        tol,
        max_iter,
        scheme,
        alpha_prior,
        noise_prior,
    )?;
    let task = Task::new(likelihood, &target, weights.as_ref(), rules, n_threads)?;
    let posterior = run(py, callback.as_ref(), |line| {
        with_threads(task.n_threads, || {
            dictionary.solve(lazy, |design| task.solve(design, line))
        })?
    })?;
    Ok(PyPosterior(posterior))
}
