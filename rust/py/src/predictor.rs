//! Predictors as Python objects.

use std::collections::BTreeMap;
use std::path::PathBuf;

use numpy::{
    PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArrayDyn,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sparsebayes::predictor::{Parts, Table};
use sparsebayes::{Error, Predictor, with_threads};

use crate::arrays::{rows, vector};
use crate::errors::{file_error, invalid, to_python};

/// Fewest kernel terms of a batch for which a thread pool is used.
const MIN_POOL_TERMS: usize = 1 << 21;

/// A fitted model without its estimator.
#[pyclass(frozen, name = "Predictor", module = "sparsebayes._core")]
pub(crate) struct PyPredictor(Predictor);

type Matrix<'py> = Bound<'py, PyArray2<f64>>;

impl PyPredictor {
    /// Calls `fill` with the interpreter released, on several threads if the batch is large.
    fn batch<T: Send>(
        &self,
        py: Python<'_>,
        x: &[f64],
        n_threads: Option<usize>,
        fill: impl FnOnce(&Predictor, &[f64]) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let terms = x.len().saturating_mul(self.0.n_functions());
        py.detach(|| {
            if terms < MIN_POOL_TERMS || n_threads == Some(1) {
                fill(&self.0, x)
            } else {
                with_threads(n_threads, || fill(&self.0, x))?
            }
        })
        .map_err(to_python)
    }

    fn features<'a>(&self, x: &'a PyReadonlyArray2<'_, f64>) -> PyResult<(&'a [f64], usize)> {
        let x = rows("X", x)?;
        if x.n_features != self.0.n_features() {
            let (got, expected) = (x.n_features, self.0.n_features());
            return Err(invalid(format!(
                "X must have {expected} columns, as the model was fitted with; got {got}"
            )));
        }
        Ok((x.values, x.n_points))
    }

    fn matrix<'py>(
        &self,
        py: Python<'py>,
        x: &PyReadonlyArray2<'py, f64>,
        width: usize,
        n_threads: Option<usize>,
        fill: impl Fn(&Predictor, &[f64], &mut [f64]) -> Result<(), Error> + Send + Sync,
    ) -> PyResult<Matrix<'py>> {
        let (values, n) = self.features(x)?;
        let mut out = vec![0.0; n * width];
        self.batch(py, values, n_threads, |model, x| fill(model, x, &mut out))?;
        PyArray1::from_vec(py, out).reshape([n, width])
    }

    /// [`Self::matrix`] for two tables that are filled together.
    fn pair<'py>(
        &self,
        py: Python<'py>,
        x: &PyReadonlyArray2<'py, f64>,
        width: usize,
        n_threads: Option<usize>,
        fill: impl Fn(&Predictor, &[f64], &mut [f64], &mut [f64]) -> Result<(), Error> + Send + Sync,
    ) -> PyResult<(Matrix<'py>, Matrix<'py>)> {
        let (values, n) = self.features(x)?;
        let (mut first, mut second) = (vec![0.0; n * width], vec![0.0; n * width]);
        self.batch(py, values, n_threads, |model, x| {
            fill(model, x, &mut first, &mut second)
        })?;
        let table = |values| PyArray1::from_vec(py, values).reshape([n, width]);
        Ok((table(first)?, table(second)?))
    }
}

#[pymethods]
#[allow(non_snake_case, clippy::needless_pass_by_value)] // the Python signatures
impl PyPredictor {
    /// Builds a model from a JSON header and tables by name.
    #[staticmethod]
    fn from_parts(header: &str, tables: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut parsed = BTreeMap::new();
        for (name, table) in tables {
            let table: PyReadonlyArrayDyn<'_, f64> = table.extract()?;
            let values = table.as_array().iter().copied().collect();
            let shape = table.shape().to_vec();
            parsed.insert(name.extract()?, Table { shape, values });
        }
        let parts = Parts::new(header, parsed).and_then(Predictor::from_parts);
        parts.map(Self).map_err(to_python)
    }

    /// Reads a model file.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let model = py.detach(|| Predictor::load(&path));
        model.map(Self).map_err(|error| file_error(error, &path))
    }

    /// Reads the bytes of a model file.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let model = Predictor::from_bytes(bytes);
        model.map(Self).map_err(to_python)
    }

    /// The bytes of a model file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.0.to_bytes().map_err(to_python)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes a model file atomically.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(&path))
            .map_err(|error| file_error(error, &path))
    }

    /// The header as JSON.
    #[getter]
    fn header(&self) -> PyResult<String> {
        serde_json::to_string(self.0.header()).map_err(|error| invalid(error.to_string()))
    }

    /// Number of features.
    #[getter]
    fn n_features(&self) -> usize {
        self.0.n_features()
    }

    /// Number of basis functions that a prediction evaluates.
    #[getter]
    fn n_functions(&self) -> usize {
        self.0.n_functions()
    }

    /// Means of regression, (n, n_outputs), or probabilities, (n, n_classes).
    #[pyo3(signature = (X, *, n_threads=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<Matrix<'py>> {
        let width = self.0.n_predicted();
        self.matrix(py, &X, width, n_threads, Predictor::predict_into)
    }

    /// Means and standard deviations, each (n, n_outputs).
    #[pyo3(signature = (X, *, n_threads=None))]
    fn predict_std<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<(Matrix<'py>, Matrix<'py>)> {
        let width = self.0.n_outputs();
        self.pair(py, &X, width, n_threads, Predictor::predict_std_into)
    }

    /// Gradients of means and standard deviations in the features, each (n, n_outputs * n_features), output after output.
    #[pyo3(signature = (X, *, n_threads=None))]
    fn predict_gradient<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<(Matrix<'py>, Matrix<'py>)> {
        let d = self.0.n_features();
        let width = self.0.n_outputs() * d;
        self.pair(py, &X, width, n_threads, |model, x, mean, std| {
            let stds = std.chunks_exact_mut(width);
            let rows = mean.chunks_exact_mut(width).zip(stds);
            (x.chunks_exact(d).zip(rows))
                .try_for_each(|(x, (mean, std))| model.gradient_into(x, mean, std))
        })
    }

    /// Linear predictors.
    #[pyo3(signature = (X, *, n_threads=None))]
    fn decision<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<Matrix<'py>> {
        let width = self.0.n_decisions();
        self.matrix(py, &X, width, n_threads, Predictor::decision_into)
    }

    /// Indices of the most probable classes, (n,).
    #[pyo3(signature = (X, *, n_threads=None))]
    fn classify<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyArray1<usize>>> {
        let (values, n) = self.features(&X)?;
        let mut out = vec![0; n];
        self.batch(py, values, n_threads, |model, x| {
            model.classify_into(x, &mut out)
        })?;
        Ok(PyArray1::from_vec(py, out))
    }

    /// `predict` into an existing array.
    #[pyo3(signature = (X, out, *, n_threads=None))]
    fn predict_into<'py>(
        &self,
        py: Python<'py>,
        X: PyReadonlyArray2<'py, f64>,
        mut out: PyReadwriteArray2<'py, f64>,
        n_threads: Option<usize>,
    ) -> PyResult<()> {
        let (values, n) = self.features(&X)?;
        let shape = [n, self.0.n_predicted()];
        let (got, in_order) = (out.shape().to_vec(), out.is_c_contiguous());
        match out.as_slice_mut() {
            Ok(out) if got == shape && in_order => {
                self.batch(py, values, n_threads, |model, x| model.predict_into(x, out))
            }
            _ => Err(invalid(format!(
                "out must have shape {shape:?} and be in C order, got shape {got:?}"
            ))),
        }
    }

    /// The prediction for one row given as a contiguous float64 vector: a float, or an array of several numbers.
    #[pyo3(signature = (x, return_std=false))]
    fn predict_one<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray1<'py, f64>,
        return_std: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let x = vector("x", &x)?;
        let several = !self.0.header().flat || self.0.is_classifier();
        if x.len() != self.0.n_features() {
            let (got, expected) = (x.len(), self.0.n_features());
            return Err(invalid(format!(
                "x must hold {expected} numbers, one row as the model was fitted with; got {got}"
            )));
        }
        if return_std {
            let n = self.0.n_outputs();
            let (mut mean, mut std) = (vec![0.0; n], vec![0.0; n]);
            let done = self.0.predict_std_into(x, &mut mean, &mut std);
            done.map_err(to_python)?;
            if !several {
                return (mean[0], std[0]).into_bound_py_any(py);
            }
            return (PyArray1::from_vec(py, mean), PyArray1::from_vec(py, std))
                .into_bound_py_any(py);
        }
        if several {
            let mut out = vec![0.0; self.0.n_predicted()];
            let done = self.0.predict_into(x, &mut out);
            done.map_err(to_python)?;
            return Ok(PyArray1::from_vec(py, out).into_any());
        }
        let value = self.0.predict_one(x).map_err(to_python)?;
        value.into_bound_py_any(py)
    }
}
