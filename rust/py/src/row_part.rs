//! Some of the rows of a fit, in memory, with methods that return their part of the sums.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, ToPyArray};
use pyo3::prelude::*;
use sparsebayes::internal::{RowPart, RowProvider};
use sparsebayes::{DenseDesign, Design, Error, KernelDesign, Scheme, with_threads};

use crate::arrays;
use crate::arrays::{functions, rows, vector};
use crate::errors::{invalid, to_python};
use crate::fit::scalar_likelihood;
use crate::kernel::PyKernel;
use crate::memory::{check_fit, reserve};
use crate::probit::table;
use crate::provider::PyCancelled;

type Columns<'py> = Bound<'py, PyArray1<f64>>;
type Matrix<'py> = Bound<'py, PyArray2<f64>>;

/// Some of the rows of a fit. Calls from several threads run one after another.
#[pyclass(frozen, name = "RowPart", module = "sparsebayes._core")]
pub(crate) struct PyRowPart {
    state: Mutex<State>,
    n_basis: usize,
    n_rows: usize,
    likelihood: String,
    n_threads: Option<usize>,
}

/// The rows, and the running fit whose cancellation they heed.
struct State {
    part: RowPart<'static>,
    fit: Option<Weak<()>>,
}

impl State {
    /// Drops the cancellation flag of a fit that has ended, so that later calls work.
    fn part(&mut self) -> &mut RowPart<'static> {
        if self.fit.take_if(|fit| fit.strong_count() == 0).is_some() {
            self.part.cancelled_by(Arc::default());
        }
        &mut self.part
    }
}

impl PyRowPart {
    fn from_design(
        design: Box<dyn Design + Send>,
        target: &[f64],
        weights: Option<&[f64]>,
        likelihood: &str,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let n_basis = design.n_basis();
        // The sums for a sequential fit take as much memory as the fit.
        check_fit([design.n_rows(), n_basis], 1, Scheme::Sequential).map_err(to_python)?;
        let weights = weights.map(<[f64]>::to_vec);
        let part = RowPart::new(
            design,
            scalar_likelihood(likelihood)?,
            target.to_vec(),
            weights,
        )
        .map_err(to_python)?;
        Ok(Self {
            n_rows: part.n_rows(),
            state: Mutex::new(State { part, fit: None }),
            n_basis,
            likelihood: likelihood.to_owned(),
            n_threads,
        })
    }

    /// Ignores poisoning: every call overwrites what an earlier one left.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `evaluate` with the interpreter released.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        evaluate: impl FnOnce(&mut RowPart<'static>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| with_threads(self.n_threads, || evaluate(self.state().part()))?)
            .map_err(to_python)
    }
}

/// Copies a column of ones if `bias` and the columns of these matrices into one design.
fn concatenate(
    blocks: &[PyReadonlyArray2<'_, f64>],
    bias: bool,
    n_rows: usize,
) -> PyResult<DenseDesign<'static>> {
    let mut n_basis = usize::from(bias);
    for block in blocks {
        let [height, width] = block.as_array().dim().into();
        if height != n_rows {
            return Err(invalid(format!(
                "Phi must have a row for each of {n_rows} targets, got a block of {height}"
            )));
        }
        n_basis += width;
    }
    reserve(
        &[n_rows.saturating_mul(n_basis)],
        "a copy of Phi",
        "fewer rows or columns take less",
    )
    .map_err(to_python)?;
    let mut values = Vec::with_capacity(n_rows * n_basis);
    if bias {
        values.resize(n_rows, 1.0);
    }
    for block in blocks {
        for column in block.as_array().columns() {
            values.extend(column);
        }
    }
    DenseDesign::new(values, n_rows, n_basis).map_err(to_python)
}

#[pymethods]
#[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signatures
impl PyRowPart {
    /// Basis functions given by their values: a constant if `bias`, and the columns of these matrices, which are copied.
    #[staticmethod]
    #[pyo3(signature = (Phi, target, weights=None, *, bias=false, likelihood="gaussian", n_threads=None))]
    fn dense(
        Phi: Vec<PyReadonlyArray2<'_, f64>>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        bias: bool,
        likelihood: &str,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let target = vector("target", &target)?;
        let weights = arrays::weights(weights.as_ref())?;
        let design = concatenate(&Phi, bias, target.len())?;
        Self::from_design(Box::new(design), target, weights, likelihood, n_threads)
    }

    /// A constant if `bias` and kernels at `centres`, evaluated in each call.
    #[staticmethod]
    #[pyo3(signature = (X, centres, kernels, target, weights=None, *, bias=true,
        likelihood="gaussian", n_threads=None))]
    #[allow(clippy::too_many_arguments)] // the Python signature
    fn kernel(
        py: Python<'_>,
        X: PyReadonlyArray2<'_, f64>,
        centres: PyReadonlyArray2<'_, f64>,
        kernels: Vec<PyRef<'_, PyKernel>>,
        target: PyReadonlyArray1<'_, f64>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
        bias: bool,
        likelihood: &str,
        n_threads: Option<usize>,
    ) -> PyResult<Self> {
        let (x, z) = (rows("X", &X)?, rows("centres", &centres)?);
        x.check_alike("centres", &z)?;
        let kernels = kernels.iter().map(|k| k.0.clone()).collect();
        let (points, centres, d) = (x.values, z.values, x.n_features);
        let design = py.detach(|| KernelDesign::new(points, centres, d, kernels, bias));
        let design = Box::new(design.map_err(to_python)?);
        let weights = arrays::weights(weights.as_ref())?;
        let target = vector("target", &target)?;
        Self::from_design(design, target, weights, likelihood, n_threads)
    }

    /// Number of basis functions.
    #[getter]
    fn n_basis(&self) -> usize {
        self.n_basis
    }

    /// Number of rows.
    #[getter]
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Name of the likelihood.
    #[getter]
    fn likelihood(&self) -> &str {
        &self.likelihood
    }

    /// Ends calls early once the fit is cancelled.
    fn listen(&self, cancelled: &PyCancelled) {
        let mut state = self.state();
        state.part.cancelled_by(Arc::clone(&cancelled.flag));
        state.fit = Some(Weak::clone(&cancelled.running));
    }

    /// Sums of w, w (t - centre) and w (t - centre)^2.
    fn target_moments<'py>(&self, py: Python<'py>, centre: f64) -> PyResult<Columns<'py>> {
        let moments = self.run(py, |part| part.target_moments(centre))?;
        Ok(moments.to_pyarray(py))
    }

    /// Minus twice the log-likelihood.
    fn deviance(
        &self,
        py: Python<'_>,
        active: PyReadonlyArray1<'_, i64>,
        mu: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<f64> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        self.run(py, |part| part.deviance(&active, mu))
    }

    /// The deviance and the gradient of the active functions.
    fn gradient<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<(f64, Columns<'py>)> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        let (deviance, gradient) = self.run(py, |part| part.gradient(&active, mu))?;
        Ok((deviance, gradient.into_pyarray(py)))
    }

    /// The deviance, and the gradient and the Gram matrix of the functions `js`.
    fn among<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        js: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(f64, Columns<'py>, Matrix<'py>)> {
        let (active, mu, js) = (
            functions("active", &active)?,
            vector("mu", &mu)?,
            functions("js", &js)?,
        );
        let answer = self.run(py, |part| part.among(&active, mu, &js))?;
        let gram = table(py, answer.gram, [js.len(), js.len()])?;
        Ok((answer.deviance, answer.gradient.into_pyarray(py), gram))
    }

    /// The deviance, and the gradient, diagonal and wanted Gram columns of all functions.
    fn sweep<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        wanted: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<(f64, Columns<'py>, Columns<'py>, Matrix<'py>)> {
        let (active, mu, wanted) = (
            functions("active", &active)?,
            vector("mu", &mu)?,
            functions("wanted", &wanted)?,
        );
        let sweep = self.run(py, |part| part.sweep(&active, mu, &wanted))?;
        Ok((
            sweep.deviances[0],
            sweep.gradient.into_pyarray(py),
            sweep.diag.into_pyarray(py),
            table(py, sweep.gram.concat(), [self.n_basis, wanted.len()])?,
        ))
    }

    /// The derivative of the posterior variances in the mode through the working weights: see
    /// `RowProvider::variance_drift`.
    fn variance_drift<'py>(
        &self,
        py: Python<'py>,
        active: PyReadonlyArray1<'py, i64>,
        mu: PyReadonlyArray1<'py, f64>,
        sigma: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Matrix<'py>> {
        let (active, mu) = (functions("active", &active)?, vector("mu", &mu)?);
        let m = active.len();
        // Column-major, whatever the storage order of the array.
        let sigma: Vec<f64> = sigma.as_array().t().iter().copied().collect();
        let drift = self.run(py, |part| part.variance_drift(&active, mu, &sigma))?;
        table(py, drift, [m, m])
    }
}
