//! Fits of columns in groups that share a precision.

// Python signatures.
#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::needless_pass_by_value
)]

use numpy::{
    IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods, ToPyArray,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::internal::{GroupProblem, fit_groups as fit};

use crate::arrays::{columns, index_array, vector};
use crate::errors::invalid;
use crate::memory::check_output_fit;
use crate::runner::run;

/// Fits targets, (n, `n_outputs`), to columns in groups, whose weights in the prior on complexity are the `shares` of that of a single
/// column.
///
/// Both arrays are in Fortran order, with rows that are multiplied by the roots of their weights. Returns the groups in the model, their
/// precisions, the noise precision, the means and the covariance of their weights, the trace of the log evidence, and the status.
#[pyfunction]
#[pyo3(signature = (Phi, targets, groups, shares, *, n_contrasts, n_flat, beta, complexity, unit, offset, tol, max_iter,
    n_threads=None, callback=None))]
pub(crate) fn fit_groups<'py>(
    py: Python<'py>,
    Phi: PyReadonlyArray2<'py, f64>,
    targets: PyReadonlyArray2<'py, f64>,
    groups: Vec<Vec<usize>>,
    shares: PyReadonlyArray1<'py, f64>,
    n_contrasts: f64,
    n_flat: usize,
    beta: Option<f64>,
    complexity: f64,
    unit: f64,
    offset: f64,
    tol: f64,
    max_iter: usize,
    n_threads: Option<usize>,
    callback: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (n_rows, n_columns) = (Phi.shape()[0], Phi.shape()[1]);
    if n_rows == 0 || targets.shape()[0] != n_rows {
        return Err(invalid(format!(
            "Phi and targets must have as many rows; got {n_rows} and {}",
            targets.shape()[0]
        )));
    }
    if !are_disjoint(&groups, n_columns) {
        return Err(invalid(format!(
            "groups must hold different columns among {n_columns}"
        )));
    }
    let shares = vector("shares", &shares)?;
    if shares.len() != groups.len() {
        return Err(invalid(format!(
            "shares must have a value for each of {} groups; got {}",
            groups.len(),
            shares.len()
        )));
    }
    let problem = GroupProblem {
        shares,
        columns: columns("Phi", &Phi)?,
        targets: columns("targets", &targets)?,
        n_rows,
        groups,
        n_contrasts,
        n_flat,
        beta,
        complexity,
        unit,
        offset,
        tol,
        max_iter,
    };
    let n_outputs = targets.shape()[1];
    let found = run(py, n_threads, callback.as_ref(), |reporter| {
        check_output_fit([n_rows, n_columns], n_outputs)?;
        fit(&problem, Some(&reporter.cancel), &mut |step| {
            reporter.step(step)
        })
    })?;
    let result = PyDict::new(py);
    let shape = [found.mu.nrows(), found.mu.ncols()];
    let mu = found.mu.transpose().as_slice().to_vec();
    result.set_item("active", index_array(py, &found.active))?;
    result.set_item("alpha", found.alpha.to_pyarray(py))?;
    result.set_item("beta", found.beta)?;
    result.set_item("mu", PyArray1::from_vec(py, mu).reshape(shape)?)?;
    // Symmetric, so the order of storage does not matter.
    let sigma = PyArray1::from_slice(py, found.sigma.as_slice()).reshape([shape[0]; 2])?;
    result.set_item("sigma", sigma)?;
    result.set_item("trace", found.trace.into_pyarray(py))?;
    result.set_item("status", found.status.name())?;
    Ok(result)
}

/// Whether no group is empty, and each of these columns is in at most one.
fn are_disjoint(groups: &[Vec<usize>], n_columns: usize) -> bool {
    let mut is_free = vec![true; n_columns];
    let mut members = groups.iter().flatten();
    let each_once = members.all(|&j| is_free.get_mut(j).is_some_and(std::mem::take));
    each_once && groups.iter().all(|group| !group.is_empty())
}
