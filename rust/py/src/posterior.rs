//! The posterior as a Python object.

use numpy::{PyArray1, PyArray2, PyArrayMethods, ToPyArray};
use pyo3::prelude::*;
use sparsebayes::Posterior;

use crate::arrays::index_array;

/// The fitted model, in the units of the given columns and targets.
#[pyclass(frozen, name = "Posterior", module = "sparsebayes._core")]
pub(crate) struct PyPosterior {
    pub(crate) posterior: Posterior,
    /// Means of the columns that the core centred.
    pub(crate) means: Vec<f64>,
}

impl From<Posterior> for PyPosterior {
    fn from(posterior: Posterior) -> Self {
        Self {
            posterior,
            means: Vec::new(),
        }
    }
}

#[pymethods]
impl PyPosterior {
    /// Column indices of the active functions, ascending.
    #[getter]
    fn active<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        index_array(py, &self.posterior.active)
    }

    /// Prior precision of each weight.
    #[getter]
    fn alpha<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.posterior.alpha.to_pyarray(py)
    }

    /// Posterior mean.
    #[getter]
    fn mu<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.posterior.mu.to_pyarray(py)
    }

    /// Posterior covariance.
    #[getter]
    fn sigma<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let m = self.posterior.active.len();
        // Symmetric, so the order of storage does not matter.
        PyArray1::from_slice(py, self.posterior.sigma.as_slice()).reshape([m, m])
    }

    /// Means of the columns that the core centred.
    #[getter]
    fn means<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.means.to_pyarray(py)
    }

    /// How well the data determine each weight.
    #[getter]
    fn gamma<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.posterior.gamma.to_pyarray(py)
    }

    /// Noise precision; 1 for likelihoods without one.
    #[getter]
    fn beta(&self) -> f64 {
        self.posterior.beta
    }

    /// Final log evidence.
    #[getter]
    fn log_evidence(&self) -> f64 {
        self.posterior.log_evidence
    }

    /// Log evidence at the start and after each step.
    #[getter]
    fn trace<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.posterior.trace.to_pyarray(py)
    }

    /// Number of steps.
    #[getter]
    fn n_iter(&self) -> usize {
        self.posterior.n_iter()
    }

    /// How the fit ended.
    #[getter]
    fn status(&self) -> &'static str {
        self.posterior.status.name()
    }
}
