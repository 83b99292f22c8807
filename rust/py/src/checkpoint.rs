//! Checkpoints of fits in blocks as Python dicts.

use numpy::{PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sparsebayes::internal::BlockCheckpoint;

use crate::arrays::index_array;
use crate::errors::invalid;

/// A checkpoint as a dict of arrays.
pub(crate) fn to_dict<'py>(
    py: Python<'py>,
    checkpoint: &BlockCheckpoint,
) -> PyResult<Bound<'py, PyDict>> {
    let counts = [checkpoint.round, checkpoint.stride, checkpoint.idle];
    let dict = PyDict::new(py);
    dict.set_item("working", index_array(py, &checkpoint.working))?;
    dict.set_item("active", index_array(py, &checkpoint.active))?;
    dict.set_item("alpha", checkpoint.alpha.to_pyarray(py))?;
    dict.set_item("beta", [checkpoint.beta].to_pyarray(py))?;
    dict.set_item("trace", checkpoint.trace.to_pyarray(py))?;
    dict.set_item("counts", index_array(py, &counts))?;
    Ok(dict)
}

/// The checkpoint of such a dict.
pub(crate) fn from_dict(dict: &Bound<'_, PyDict>) -> PyResult<BlockCheckpoint> {
    let counts = whole(dict, "counts")?;
    let beta = real(dict, "beta")?;
    let (&[round, stride, idle], &[beta]) = (&counts[..], &beta[..]) else {
        return Err(invalid("resume must have three counts and one beta"));
    };
    Ok(BlockCheckpoint {
        working: whole(dict, "working")?,
        active: whole(dict, "active")?,
        alpha: real(dict, "alpha")?,
        beta,
        trace: real(dict, "trace")?,
        round,
        stride,
        idle,
    })
}

fn item<'py>(dict: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing = || invalid(format!("resume must have an array {name:?}"));
    dict.get_item(name)?.ok_or_else(missing)
}

fn real(dict: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<f64>> {
    let values: PyReadonlyArray1<'_, f64> = item(dict, name)?.extract()?;
    Ok(values.as_array().to_vec())
}

fn whole(dict: &Bound<'_, PyDict>, name: &str) -> PyResult<Vec<usize>> {
    let values: PyReadonlyArray1<'_, i64> = item(dict, name)?.extract()?;
    let values = values.as_array();
    let values = values.iter().map(|&v| usize::try_from(v));
    let values = values.collect::<Result<_, _>>();
    values.map_err(|_| invalid(format!("resume must have no negative numbers in {name:?}")))
}
