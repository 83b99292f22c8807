//! Kernels as Python objects.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2};
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
    /// exp(-sum_d w_d (x_d - z_d)^2), with one weight for all inputs or one for each.
    #[staticmethod]
    fn gaussian(inverse_square_widths: Vec<f64>) -> Self {
        Self(Kernel::Gaussian {
            inverse_square_widths,
        })
    }

    /// exp(-gamma sum_d |x_d - z_d|).
    #[staticmethod]
    fn laplacian(gamma: f64) -> Self {
        Self(Kernel::Laplacian { gamma })
    }

    /// (gamma x.z + coef0)^degree.
    #[staticmethod]
    fn polynomial(degree: u32, gamma: f64, coef0: f64) -> Self {
        Self(Kernel::Polynomial {
            degree,
            gamma,
            coef0,
        })
    }

    /// x.z, or (x - offset).(z - offset).
    #[staticmethod]
    #[pyo3(signature = (offset=None))]
    fn linear(offset: Option<Vec<f64>>) -> Self {
        Self(offset.map_or(Kernel::Linear, |offset| Kernel::CentredLinear { offset }))
    }

    /// tanh(gamma x.z + coef0).
    #[staticmethod]
    fn sigmoid(gamma: f64, coef0: f64) -> Self {
        Self(Kernel::Sigmoid { gamma, coef0 })
    }

    /// The linear spline kernel of Tipping (2001).
    #[staticmethod]
    fn linear_spline() -> Self {
        Self(Kernel::LinearSpline)
    }

    /// The sum of kernels.
    #[staticmethod]
    fn sum(terms: Vec<PyRef<'_, Self>>) -> Self {
        Self(Kernel::Sum(terms.iter().map(|k| k.0.clone()).collect()))
    }

    /// The product of kernels.
    #[staticmethod]
    fn product(factors: Vec<PyRef<'_, Self>>) -> Self {
        Self(Kernel::Product(
            factors.iter().map(|k| k.0.clone()).collect(),
        ))
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
