//! NumPy arrays as slices: contiguity and shapes. The only file that names NumPy types on the way in.

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
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
    /// Checks that `other`, called `name`, has as many features.
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
pub(crate) fn vector<'a>(name: &str, array: &'a PyReadonlyArray1<'_, f64>) -> PyResult<&'a [f64]> {
    array.as_slice().map_err(|_| {
        invalid(format!(
            "{name} must be contiguous; pass numpy.ascontiguousarray({name})"
        ))
    })
}

/// A C-ordered matrix.
pub(crate) fn rows<'a>(name: &str, array: &'a PyReadonlyArray2<'_, f64>) -> PyResult<Rows<'a>> {
    if !array.is_c_contiguous() {
        return Err(invalid(format!(
            "{name} must be in C order; pass numpy.ascontiguousarray({name})"
        )));
    }
    let [n_points, n_features] = [array.shape()[0], array.shape()[1]];
    let values = array
        .as_slice()
        .map_err(|_| invalid(format!("{name} must be contiguous")))?;
    Ok(Rows {
        values,
        n_points,
        n_features,
    })
}

/// The values of a Fortran-ordered matrix, column after column.
pub(crate) fn columns<'a>(name: &str, array: &'a PyReadonlyArray2<'_, f64>) -> PyResult<&'a [f64]> {
    if !array.is_fortran_contiguous() {
        return Err(invalid(format!(
            "{name} must be in Fortran order; pass numpy.asfortranarray({name})"
        )));
    }
    array
        .as_slice()
        .map_err(|_| invalid(format!("{name} must be contiguous")))
}

/// The values of basis functions, in the order in which they lie in memory.
pub(crate) struct BasisValues<'a> {
    values: &'a [f64],
    by_columns: bool,
    n_rows: usize,
    n_basis: usize,
}

impl<'a> BasisValues<'a> {
    /// Column after column or row after row.
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

    /// Fits read columns: rows are copied first.
    pub(crate) fn design(&self) -> Result<DenseDesign<'a>, Error> {
        if self.by_columns {
            DenseDesign::new(self.values, self.n_rows, self.n_basis)
        } else {
            DenseDesign::from_rows(self.values, self.n_rows, self.n_basis)
        }
    }
}

/// Numbers of basis functions; the core checks their range.
pub(crate) fn functions(name: &str, array: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    let values = array.as_slice().map_err(|_| {
        invalid(format!(
            "{name} must be contiguous; pass numpy.ascontiguousarray({name})"
        ))
    })?;
    let numbers = values.iter().map(|&j| usize::try_from(j));
    numbers.collect::<Result<_, _>>().map_err(|_| {
        invalid(format!(
            "{name} must not be negative: functions count from 0"
        ))
    })
}

/// Class numbers, one for each of `n_rows` rows; the core checks their range.
pub(crate) fn class_numbers(
    name: &str,
    array: &PyReadonlyArray1<'_, i64>,
    n_rows: usize,
) -> PyResult<Vec<usize>> {
    let values = array.as_slice().map_err(|_| {
        invalid(format!(
            "{name} must be contiguous; pass numpy.ascontiguousarray({name})"
        ))
    })?;
    if values.len() != n_rows {
        let got = values.len();
        return Err(invalid(format!(
            "{name} must hold one class number for each of {n_rows} rows, got {got}"
        )));
    }
    let numbers = values.iter().map(|&label| usize::try_from(label));
    numbers
        .collect::<Result<_, _>>()
        .map_err(|_| invalid(format!("{name} must not be negative: classes count from 0")))
}
