//! The multinomial probit likelihood as functions of arrays.

use numpy::{IntoPyArray, npyffi::NPY_ORDER};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use sparsebayes::internal::Probit;
use sparsebayes::{Error, with_threads};

use crate::arrays::{class_numbers, columns};
use crate::errors::to_python;

pub(crate) fn probit(n_nodes: Option<usize>, n_classes: usize) -> Result<Probit, Error> {
    n_nodes.map_or_else(|| Ok(Probit::for_classes(n_classes)), Probit::new)
}

/// A matrix from column-major values.
pub(crate) fn table(
    py: Python<'_>,
    values: Vec<f64>,
    shape: [usize; 2],
) -> PyResult<Bound<'_, PyArray2<f64>>> {
    values
        .into_pyarray(py)
        .reshape_with_order(shape, NPY_ORDER::NPY_FORTRANORDER)
}

/// A method that returns a number for each row and class.
type ScoreFunction = fn(&Probit, &[f64], usize) -> Result<Vec<f64>, Error>;

/// Applies a method to a matrix of scores.
fn map_scores<'py>(
    py: Python<'py>,
    scores: &PyReadonlyArray2<'py, f64>,
    n_nodes: Option<usize>,
    n_threads: Option<usize>,
    method: ScoreFunction,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let values = columns("scores", scores)?;
    let shape: [usize; 2] = scores.as_array().dim().into();
    let n_classes = shape[1];
    let found = py
        .detach(|| {
            let probit = probit(n_nodes, n_classes)?;
            with_threads(n_threads, || method(&probit, values, n_classes))?
        })
        .map_err(to_python)?;
    table(py, found, shape)
}

/// P(t = c | f) for an N x C matrix of scores in Fortran order; each row sums to 1.
#[pyfunction]
#[pyo3(signature = (scores, *, n_nodes=None, n_threads=None))]
#[allow(clippy::needless_pass_by_value)] // the Python signature
pub(crate) fn probit_probabilities<'py>(
    py: Python<'py>,
    scores: PyReadonlyArray2<'py, f64>,
    n_nodes: Option<usize>,
    n_threads: Option<usize>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    map_scores(py, &scores, n_nodes, n_threads, Probit::probabilities)
}

/// Logarithms of the probabilities, accurate for any small probability.
#[pyfunction]
#[pyo3(signature = (scores, *, n_nodes=None, n_threads=None))]
#[allow(clippy::needless_pass_by_value)] // the Python signature
pub(crate) fn probit_log_probabilities<'py>(
    py: Python<'py>,
    scores: PyReadonlyArray2<'py, f64>,
    n_nodes: Option<usize>,
    n_threads: Option<usize>,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    map_scores(py, &scores, n_nodes, n_threads, Probit::log_probabilities)
}

/// Means of the noisy copies of the scores given the classes, and ln P of each row's own class.
#[pyfunction]
#[pyo3(signature = (scores, labels, *, n_nodes=None, n_threads=None))]
#[allow(clippy::needless_pass_by_value, clippy::type_complexity)] // the Python signature
pub(crate) fn probit_expectations<'py>(
    py: Python<'py>,
    scores: PyReadonlyArray2<'py, f64>,
    labels: PyReadonlyArray1<'py, i64>,
    n_nodes: Option<usize>,
    n_threads: Option<usize>,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>)> {
    let values = columns("scores", &scores)?;
    let shape: [usize; 2] = scores.as_array().dim().into();
    let [n_rows, n_classes] = shape;
    let labels = class_numbers("labels", &labels, n_rows)?;
    let found = py
        .detach(|| {
            let probit = probit(n_nodes, n_classes)?;
            with_threads(n_threads, || {
                probit.expectations(values, &labels, n_classes)
            })?
        })
        .map_err(to_python)?;
    let targets = table(py, found.targets, shape)?;
    Ok((targets, found.log_probability.into_pyarray(py)))
}
