//! The evidence of targets with a given covariance, computed without Python's lock, so that several threads of Python can.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use sparsebayes::internal::Cholesky;
use sparsebayes::{Error, Matrix};

use crate::arrays::{columns, rows};
use crate::errors::{invalid, to_python};

/// tr(Y^T C^-1 Y), ln |C| and, if `slope`, A A^T - m C^-1 with A = C^-1 Y, for m targets.
struct Terms {
    square: f64,
    log_det: f64,
    slope: Option<Vec<f64>>,
}

/// These terms of an n x n covariance; `y` has a column of n values for each target.
fn terms(c: &[f64], y: &[f64], n: usize, slope: bool) -> Result<Terms, Error> {
    let mut chol = Cholesky::with_capacity(n);
    chol.refactor(n, |i, j| c[i * n + j])?;
    let mut a = y.to_vec();
    for column in a.chunks_mut(n) {
        chol.solve_in_place(column);
    }
    let slope = if slope {
        let mut inverse = Matrix::zeros(n, n);
        chol.inverse_into(&mut inverse)?;
        let mut values: Vec<f64> = inverse.data.into();
        #[allow(clippy::cast_precision_loss)]
        let m = (y.len() / n) as f64;
        for (j, column) in values.chunks_mut(n).enumerate() {
            for value in column.iter_mut() {
                *value *= -m;
            }
            for a in a.chunks(n) {
                for (value, a_i) in column.iter_mut().zip(a) {
                    *value += a_i * a[j];
                }
            }
        }
        Some(values)
    } else {
        None
    };
    Ok(Terms {
        square: y.iter().zip(&a).map(|(y, a)| y * a).sum(),
        log_det: chol.ln_det(),
        slope,
    })
}

/// tr(Y^T C^-1 Y), ln |C| and, if `slope`, A A^T - m C^-1 with A = C^-1 Y, for the m columns of Y; None if C is not positive definite.
///
/// C is symmetric, in C order; Y is in Fortran order.
#[pyfunction]
#[allow(
    non_snake_case,
    clippy::needless_pass_by_value,
    clippy::type_complexity
)] // the Python signature
pub(crate) fn covariance_evidence<'py>(
    py: Python<'py>,
    C: PyReadonlyArray2<'py, f64>,
    Y: PyReadonlyArray2<'py, f64>,
    slope: bool,
) -> PyResult<Option<(f64, f64, Option<Bound<'py, PyArray2<f64>>>)>> {
    let (c, y) = (rows("C", &C)?, columns("Y", &Y)?);
    let n = c.n_points;
    if n == 0 || c.n_features != n || y.len() % n != 0 {
        return Err(invalid(format!(
            "C must be square, with a row for each of Y; got {n} x {}",
            c.n_features
        )));
    }
    let found = match py.detach(|| terms(c.values, y, n, slope)) {
        Err(Error::NotPositiveDefinite(_)) => return Ok(None),
        found => found.map_err(to_python)?,
    };
    let slope = found
        .slope
        .map(|values| PyArray1::from_vec(py, values).reshape([n, n]))
        .transpose()?;
    Ok(Some((found.square, found.log_det, slope)))
}
