//! Core errors as Python exceptions. The only file that names exceptions.

use pyo3::create_exception;
use pyo3::exceptions::{PyArithmeticError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    sparsebayes,
    NumericalError,
    PyArithmeticError,
    "The computation broke down although the input was valid."
);

/// Bad input is a `ValueError`, broken arithmetic a `NumericalError`.
pub(crate) fn to_python(error: &sparsebayes::Error) -> PyErr {
    let message = error.to_string();
    if error.is_invalid_input() {
        PyValueError::new_err(message)
    } else {
        NumericalError::new_err(message)
    }
}

/// A panic of the core, caught on its way out.
pub(crate) fn internal(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    NumericalError::new_err(format!("internal error, please report it: {text}"))
}

/// A `ValueError` with this message.
pub(crate) fn invalid(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}
