//! NumPy arrays as slices and indices as NumPy arrays; checks of contiguity and shape.

use numpy::{
    Element, IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use sparsebayes::{DenseDesign, Error};

use crate::errors::invalid;

/// A row-major matrix of points.
pub(crate) struct Rows<'a> {
    pub(crate) values: &'a [f64],
    pub(crate) n_points: usize,
    pub(crate) n_features: usize,
}

impl Rows<'_> {
    /// Checks that the argument `name` has the same number of features.
    pub(crate) fn check_alike(&self, name: &str, other: &Self) -> PyResult<()> {
        if self.n_features == other.n_features {
            return Ok(());
        }
        Err(invalid(format!(
            "{name} must have as many columns as X, {}; got {}",
            self.n_features, other.n_features
        )))
    }
}

/// A contiguous vector.
pub(crate) fn vector<'a, T: Element>(
    name: &str,
    array: &'a PyReadonlyArray1<'_, T>,
) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| {
        invalid(format!(
            "{name} must be contiguous; pass numpy.ascontiguousarray({name})"
        ))
    })
}

/// Sample weights, if given.
pub(crate) fn weights<'a>(
    array: Option<&'a PyReadonlyArray1<'_, f64>>,
) -> PyResult<Option<&'a [f64]>> {
    array.map(|w| vector("weights", w)).transpose()
}

/// A C-ordered matrix.
pub(crate) fn rows<'a>(name: &str, array: &'a PyReadonlyArray2<'_, f64>) -> PyResult<Rows<'a>> {
    match array.as_slice() {
        Ok(values) if array.is_c_contiguous() => Ok(Rows {
            values,
            n_points: array.shape()[0],
            n_features: array.shape()[1],
        }),
        _ => Err(invalid(format!(
            "{name} must be in C order; pass numpy.ascontiguousarray({name})"
        ))),
    }
}

/// The column-major values of a Fortran-ordered matrix.
pub(crate) fn columns<'a>(name: &str, array: &'a PyReadonlyArray2<'_, f64>) -> PyResult<&'a [f64]> {
    match array.as_slice() {
        Ok(values) if array.is_fortran_contiguous() => Ok(values),
        _ => Err(invalid(format!(
            "{name} must be in Fortran order; pass numpy.asfortranarray({name})"
        ))),
    }
}

/// The values of basis functions in either storage order.
pub(crate) struct BasisValues<'a> {
    values: &'a [f64],
    by_columns: bool,
    n_rows: usize,
    n_basis: usize,
}

impl<'a> BasisValues<'a> {
    /// A contiguous matrix in Fortran or C order.
    pub(crate) fn new(name: &str, array: &'a PyReadonlyArray2<'_, f64>) -> PyResult<Self> {
        let values = array.as_slice().map_err(|_| {
            invalid(format!(
                "{name} must be contiguous; pass numpy.asfortranarray({name})"
            ))
        })?;
        Ok(Self {
            values,
            by_columns: array.is_fortran_contiguous(),
            n_rows: array.shape()[0],
            n_basis: array.shape()[1],
        })
    }

    /// The design, which copies a matrix in C order.
    pub(crate) fn design(&self) -> Result<DenseDesign<'a>, Error> {
        if self.by_columns {
            DenseDesign::new(self.values, self.n_rows, self.n_basis)
        } else {
            DenseDesign::from_rows(self.values, self.n_rows, self.n_basis)
        }
    }
}

/// Indices of basis functions; the core checks their range.
pub(crate) fn functions(name: &str, array: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    indices(name, "functions", array)
}

fn indices(name: &str, what: &str, array: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    let numbers = vector(name, array)?.iter().map(|&i| usize::try_from(i));
    numbers
        .collect::<Result<_, _>>()
        .map_err(|_| invalid(format!("{name} must not be negative: {what} count from 0")))
}

/// Indices or counts as a NumPy array.
pub(crate) fn index_array<'py>(py: Python<'py>, indices: &[usize]) -> Bound<'py, PyArray1<i64>> {
    let values: Vec<i64> = indices.iter().map(|&i| as_index(i)).collect();
    values.into_pyarray(py)
}

/// Indices and counts refer to arrays in memory, so they are far below 2^63.
pub(crate) fn as_index(i: usize) -> i64 {
    i64::try_from(i).unwrap_or(i64::MAX)
}

/// Class indices, one for each of `n_rows` rows; the core checks their range.
pub(crate) fn class_numbers(
    name: &str,
    array: &PyReadonlyArray1<'_, i64>,
    n_rows: usize,
) -> PyResult<Vec<usize>> {
    let got = vector(name, array)?.len();
    if got != n_rows {
        return Err(invalid(format!(
            "{name} must hold one class number for each of {n_rows} rows, got {got}"
        )));
    }
    indices(name, "classes", array)
}
