//! Kernels as Python objects.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sparsebayes::{Kernel, KernelDesign, with_threads};

use crate::arrays::rows;
use crate::errors::to_python;

/// A kernel that the core evaluates.
#[pyclass(frozen, name = "Kernel", module = "sparsebayes._core")]
pub(crate) struct PyKernel(pub(crate) Kernel);

#[pymethods]
#[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signatures
impl PyKernel {
    /// A kernel in the form of model files, as JSON: a name, or `{name: parameters}`.
    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let kernel = serde_json::from_str(json);
        kernel
            .map(Self)
            .map_err(|error| PyValueError::new_err(format!("invalid kernel: {error}")))
    }

    /// k(X, Z), one row for each row of X.
    #[pyo3(signature = (X, Z, *, n_threads=None))]
    fn matrix<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        Z: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (x, z) = (rows("X", &X)?, rows("Z", &Z)?);
        x.check_alike("Z", &z)?;
        let shape = [x.n_points, z.n_points];
        let values = py
            .detach(|| {
                // The column-major values of the transpose are k(X, Z) in row-major order.
                let design = KernelDesign::new(
                    z.values,
                    x.values,
                    x.n_features,
                    vec![self.0.clone()],
                    false,
                )?;
                with_threads(n_threads, || design.values())?
            })
            .map_err(to_python)?;
        PyArray1::from_vec(py, values).reshape(shape)
    }
}
