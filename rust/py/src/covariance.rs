//! The evidence of targets with a given covariance, computed without Python's lock, so that several threads of Python can.
//!
//! With A = C^-1 Y of m targets (Rasmussen & Williams 2006, equations 5.8 and 5.9)
//!
//! L = -(tr Y^T A + m ln |C| + const) / 2,    dL/dC = (A A^T - m C^-1) / 2.

use numpy::{
    PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use sparsebayes::internal::Cholesky;
use sparsebayes::{Error, Kernel, Matrix, Points};

use crate::arrays::{Rows, columns, rows, vector};
use crate::errors::{invalid, to_python};
use crate::kernel::PyKernel;

/// tr(Y^T C^-1 Y), ln |C| and, if `slope`, dL/dC.
struct Terms {
    square: f64,
    log_det: f64,
    slope: Option<Matrix>,
}

/// These terms of an n x n covariance; `y` has a column of n values for each target.
fn terms(c: &[f64], y: &[f64], n: usize, slope: bool) -> Result<Terms, Error> {
    let mut chol = Cholesky::with_capacity(n);
    chol.refactor(n, |i, j| c[j * n + i])?;
    let mut a = y.to_vec();
    for column in a.chunks_mut(n) {
        chol.solve_in_place(column);
    }
    let slope = if slope {
        let mut values = Matrix::zeros(n, n);
        chol.inverse_into(&mut values)?;
        let m = (y.len() / n) as f64;
        for (j, column) in values.as_mut_slice().chunks_mut(n).enumerate() {
            for value in column.iter_mut() {
                *value *= -0.5 * m;
            }
            for a in a.chunks(n) {
                for (value, a_i) in column.iter_mut().zip(a) {
                    *value += 0.5 * a_i * a[j];
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

/// The covariance a K + F diag(v) F^T + diag(noise), with K = k(|z - z'|^2) of rows z, which are the inputs in units of their widths.
struct RadialCovariance<'a> {
    kernel: Kernel,
    z: Rows<'a>,
    scale: f64,
    fixed: Matrix,
    variances: &'a [f64],
    noise: &'a [f64],
}

impl RadialCovariance<'_> {
    /// tr(Y^T C^-1 Y), ln |C| and, if `slope`, the slopes of L in the logs of each width, of a, of each v and of a factor of the noise.
    fn terms(&self, y: &[f64], slope: bool) -> Result<(f64, f64, Option<Vec<f64>>), Error> {
        let (n, d) = (self.z.n_points, self.z.n_features);
        let points = Points::from_rows(self.z.values, n, d);
        let mut k = Matrix::zeros(n, n);
        for (j, column) in k.as_mut_slice().chunks_mut(n).enumerate() {
            let centre = &self.z.values[j * d..][..d];
            self.kernel
                .column_into(&points, centre, j..n, &mut column[j..]);
        }
        let mut weighted = self.fixed.transpose();
        for (mut row, v) in weighted.row_iter_mut().zip(self.variances) {
            row *= *v;
        }
        let mut c = k.clone();
        c.gemm(1.0, &self.fixed, &weighted, self.scale);
        for (i, noise) in self.noise.iter().enumerate() {
            c[(i, i)] += noise;
        }
        let found = terms(c.as_slice(), y, n, slope)?;
        let slopes = found.slope.map(|g| self.slopes(&g, &k));
        Ok((found.square, found.log_det, slopes))
    }

    /// Multiplies the lower triangle of a matrix by -k' / k of the rows of Z.
    fn multiply_by_slopes(&self, z: &Matrix, m: &mut Matrix) {
        let norms: Vec<f64> = z.row_iter().map(|row| row.norm_squared()).collect();
        for (j, mut column) in m.column_iter_mut().enumerate() {
            let products = z.rows_range(j..) * z.row(j).transpose();
            let rows = column.iter_mut().skip(j).zip(&norms[j..]).zip(&products);
            for ((value, norm), product) in rows {
                let square = (norm + norms[j] - 2.0 * product).max(0.0);
                *value = -self.kernel.slope_in_square(square, *value);
            }
        }
    }

    /// Slopes of L from dL/dC and the lower triangle of K: dK / d ln width = -2 k' (z - z')^2 for the coordinate of the width.
    fn slopes(&self, g: &Matrix, k: &Matrix) -> Vec<f64> {
        let mut m = k.component_mul(g) * self.scale;
        let of_scale = 2.0 * m.sum() - m.trace();
        let z = Matrix::from_row_slice(self.z.n_points, self.z.n_features, self.z.values);
        if !matches!(self.kernel, Kernel::Gaussian { .. }) {
            self.multiply_by_slopes(&z, &mut m);
        }
        let sums = m.column_sum() + m.row_sum_tr();
        let product = &m * &z;
        let of_widths = z
            .column_iter()
            .zip(product.column_iter())
            .map(|(z, product)| {
                let rows = z.iter().zip(product.iter()).zip(sums.iter());
                4.0 * rows
                    .map(|((z, p), sum)| z * (sum * z - 2.0 * p))
                    .sum::<f64>()
            });
        let product = g * &self.fixed;
        let columns = self.fixed.column_iter().zip(product.column_iter());
        let of_fixed = columns.zip(self.variances).map(|((f, p), v)| v * f.dot(&p));
        let diagonal = g.diagonal();
        let of_noise = self
            .noise
            .iter()
            .zip(diagonal.iter())
            .map(|(a, b)| a * b)
            .sum();
        of_widths
            .chain([of_scale])
            .chain(of_fixed)
            .chain([of_noise])
            .collect()
    }
}

/// tr(Y^T C^-1 Y), ln |C| and, if `slope`, the slopes of L in the logs of each width, of a, of each v and of a factor of the noise, for the
/// covariance a K + F diag(v) F^T + diag(noise), with K = k(|z - z'|^2) of the rows of Z; None if it is not positive definite.
///
/// k is a Gaussian or Matern kernel of width 1. Z is in C order, F and Y are in Fortran order.
#[pyfunction]
#[allow(
    non_snake_case,
    clippy::needless_pass_by_value,
    clippy::too_many_arguments,
    clippy::type_complexity
)] // the Python signature
pub(crate) fn radial_evidence<'py>(
    py: Python<'py>,
    kernel: PyRef<'_, PyKernel>,
    Z: PyReadonlyArray2<'py, f64>,
    scale: f64,
    F: PyReadonlyArray2<'py, f64>,
    variances: PyReadonlyArray1<'py, f64>,
    noise: PyReadonlyArray1<'py, f64>,
    Y: PyReadonlyArray2<'py, f64>,
    slope: bool,
) -> PyResult<Option<(f64, f64, Option<Bound<'py, PyArray1<f64>>>)>> {
    let kernel = kernel.0.clone();
    match &kernel {
        Kernel::Gaussian {
            inverse_square_widths: widths,
        }
        | Kernel::Matern32 {
            inverse_square_widths: widths,
        }
        | Kernel::Matern52 {
            inverse_square_widths: widths,
        } if widths[..] == [1.0] => (),
        _ => {
            return Err(invalid(
                "kernel must be a Gaussian or Matern kernel of width 1",
            ));
        }
    }
    let (z, y, noise) = (rows("Z", &Z)?, columns("Y", &Y)?, vector("noise", &noise)?);
    let (f, variances) = (columns("F", &F)?, vector("variances", &variances)?);
    let n = z.n_points;
    if n == 0 || z.n_features == 0 || y.len() % n != 0 || noise.len() != n {
        return Err(invalid(format!(
            "Z, noise and Y must have as many rows; got {n}, {} and {}",
            noise.len(),
            Y.shape()[0]
        )));
    }
    if f.len() != n * variances.len() {
        return Err(invalid(format!(
            "F must have {n} rows and a column for each of {} variances; got {:?}",
            variances.len(),
            F.shape()
        )));
    }
    let fixed = Matrix::from_column_slice(n, variances.len(), f);
    let covariance = RadialCovariance {
        kernel,
        z,
        scale,
        fixed,
        variances,
        noise,
    };
    match py.detach(|| covariance.terms(y, slope)) {
        Err(Error::NotPositiveDefinite(_)) => Ok(None),
        found => {
            let (square, log_det, slopes) = found.map_err(to_python)?;
            let slopes = slopes.map(|values| PyArray1::from_vec(py, values));
            Ok(Some((square, log_det, slopes)))
        }
    }
}

/// tr(Y^T C^-1 Y), ln |C| and, if `slope`, dL/dC, for the columns of Y; None if C is not positive definite.
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
        .map(|values| PyArray1::from_vec(py, values.data.into()).reshape([n, n]))
        .transpose()?;
    Ok(Some((found.square, found.log_det, slope)))
}
