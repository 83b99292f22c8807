//! Fits of several outputs.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use numpy::{PyArray1, PyArray2, PyArrayMethods, ToPyArray};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use sparsebayes::internal::{OutputNoise, OutputPosterior, fit_outputs};
use sparsebayes::{Design, Error, Noise, Observations, Rules};

use crate::arrays;
use crate::arrays::{BasisValues, columns, index_array};
use crate::dictionary::KernelDictionary;
use crate::errors::invalid;
use crate::fit::plain_rules;
use crate::kernel::PyKernel;
use crate::memory::check_output_fit;
use crate::runner::{Reporter, run};

/// Everything that a fit of several outputs needs except its design.
struct Task<'a> {
    targets: &'a [f64],
    n_outputs: usize,
    weights: Option<&'a [f64]>,
    noise: OutputNoise,
    rules: Rules,
}

impl<'a> Task<'a> {
    fn new(
        targets: &'a PyReadonlyArray2<'_, f64>,
        weights: Option<&'a PyReadonlyArray1<'_, f64>>,
        noise_variance: Option<&[f64]>,
        shared_noise: bool,
        rules: Rules,
    ) -> PyResult<Self> {
        let [_, n_outputs]: [usize; 2] = targets.as_array().dim().into();
        let noise = match (noise_variance, shared_noise) {
            (None, true) => OutputNoise::Shared(Noise::Estimated),
            (None, false) => OutputNoise::Own(vec![Noise::Estimated; n_outputs]),
            (Some([variance]), true) => OutputNoise::Shared(Noise::Fixed(*variance)),
            (Some(_), true) => {
                return Err(invalid(
                    "noise_variance must hold one value if the noise is shared",
                ));
            }
            (Some(variances), false) => {
                OutputNoise::Own(variances.iter().map(|&v| Noise::Fixed(v)).collect())
            }
        };
        Ok(Self {
            targets: columns("targets", targets)?,
            n_outputs,
            weights: arrays::weights(weights)?,
            noise,
            rules,
        })
    }

    fn solve(&self, design: &dyn Design, reporter: &Reporter) -> Result<OutputPosterior, Error> {
        check_output_fit([design.n_rows(), design.n_basis()], self.n_outputs)?;
        let weights = self.weights.map(<[f64]>::to_vec);
        let mut observations = Observations::outputs(
            design,
            self.targets.to_vec(),
            self.n_outputs,
            weights,
            Some(reporter.cancel.clone()),
        )?;
        fit_outputs(&mut observations, &self.rules, &self.noise, &mut |step| {
            reporter.step(step)
        })
    }
}

/// Fits several outputs of one model whose basis functions are the columns of `Phi`.
#[pyfunction]
#[pyo3(signature = (Phi, targets, weights=None, *, noise_variance=None, shared_noise=false, unpenalized=vec![], complexity=None,
    tol=1e-6, max_iter=100_000, n_threads=None, callback=None))]
pub(crate) fn fit_dense_outputs(
    py: Python<'_>,
    Phi: PyReadonlyArray2<'_, f64>,
    targets: PyReadonlyArray2<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    noise_variance: Option<Vec<f64>>,
    shared_noise: bool,
    unpenalized: Vec<usize>,
    complexity: Option<Bound<'_, PyAny>>,
    tol: f64,
    max_iter: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyOutputPosterior> {
    let phi = BasisValues::new("Phi", &Phi)?;
    let rules = plain_rules(tol, max_iter, unpenalized, complexity.as_ref())?;
    let noise_variance = noise_variance.as_deref();
    let task = Task::new(
        &targets,
        weights.as_ref(),
        noise_variance,
        shared_noise,
        rules,
    )?;
    let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
        task.solve(&phi.design()?, reporter)
    })?;
    Ok(PyOutputPosterior(posterior))
}

/// Fits several outputs of one model whose basis functions are a constant if `bias`, kernels at `centres`, and the columns
/// of `extra`.
#[pyfunction]
#[pyo3(signature = (X, centres, kernels, targets, weights=None, *, bias=true, extra=None, noise_variance=None,
    shared_noise=false, unpenalized=vec![], complexity=None, tol=1e-6, max_iter=100_000, n_threads=None, callback=None))]
pub(crate) fn fit_kernel_outputs(
    py: Python<'_>,
    X: PyReadonlyArray2<'_, f64>,
    centres: PyReadonlyArray2<'_, f64>,
    kernels: Vec<PyRef<'_, PyKernel>>,
    targets: PyReadonlyArray2<'_, f64>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    bias: bool,
    extra: Option<PyReadonlyArray2<'_, f64>>,
    noise_variance: Option<Vec<f64>>,
    shared_noise: bool,
    unpenalized: Vec<usize>,
    complexity: Option<Bound<'_, PyAny>>,
    tol: f64,
    max_iter: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'_, PyAny>>,
) -> PyResult<PyOutputPosterior> {
    let dictionary = KernelDictionary::new(&X, &centres, &kernels, bias, extra.as_ref())?;
    let rules = plain_rules(tol, max_iter, unpenalized, complexity.as_ref())?;
    let noise_variance = noise_variance.as_deref();
    let task = Task::new(
        &targets,
        weights.as_ref(),
        noise_variance,
        shared_noise,
        rules,
    )?;
    let posterior = run(py, n_threads, callback.as_ref(), |reporter| {
        // Each Gram column takes a pass here, so the kernel values are stored if they fit into memory.
        let lazy = !dictionary.can_store();
        dictionary.solve(Some(lazy), Some(&reporter.cancel), |design| {
            task.solve(design, reporter)
        })
    })?;
    Ok(PyOutputPosterior(posterior))
}

/// The fitted model of several outputs, in the units of the given columns and targets.
#[pyclass(frozen, name = "OutputPosterior", module = "sparsebayes._core")]
pub(crate) struct PyOutputPosterior(pub(crate) OutputPosterior);

#[pymethods]
impl PyOutputPosterior {
    /// Column indices of the active functions, ascending.
    #[getter]
    fn active<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        index_array(py, &self.0.active)
    }

    /// Prior precision of the weights of each function.
    #[getter]
    fn alpha<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.0.alpha.to_pyarray(py)
    }

    /// Posterior means, (`n_active`, `n_outputs`).
    #[getter]
    fn mu<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let shape = [self.0.mu.nrows(), self.0.mu.ncols()];
        PyArray1::from_vec(py, self.0.mu.transpose().as_slice().to_vec()).reshape(shape)
    }

    /// Posterior covariance for each noise level.
    #[getter]
    fn sigma<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyArray2<f64>>>> {
        let m = self.0.active.len();
        // Symmetric, so the order of storage does not matter.
        let matrix =
            |sigma: &[f64]| -> PyResult<_> { PyArray1::from_slice(py, sigma).reshape([m, m]) };
        self.0.sigma.iter().map(|s| matrix(s.as_slice())).collect()
    }

    /// Noise precision of each output, or one for all.
    #[getter]
    fn beta<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.0.beta.to_pyarray(py)
    }

    /// For each noise level, whether it was estimated and ended at the noise floor.
    #[getter]
    fn at_floor<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        self.0.at_floor.to_pyarray(py)
    }

    /// Final joint log evidence of all outputs.
    #[getter]
    fn log_evidence(&self) -> f64 {
        self.0.log_evidence
    }

    /// Joint log evidence at the start and after each step.
    #[getter]
    fn trace<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.0.trace.to_pyarray(py)
    }

    /// Number of steps.
    #[getter]
    fn n_iter(&self) -> usize {
        self.0.n_iter()
    }

    /// How the fit ended.
    #[getter]
    fn status(&self) -> &'static str {
        self.0.status.name()
    }
}
