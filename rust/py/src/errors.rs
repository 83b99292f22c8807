//! Core errors as Python exceptions. The only file that names exceptions.

use std::io;
use std::path::Path;

use pyo3::create_exception;
use pyo3::exceptions::{PyArithmeticError, PyMemoryError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    sparsebayes,
    NumericalError,
    PyArithmeticError,
    "The computation broke down although the input was valid."
);

/// Bad input is a `ValueError`, too little memory a `MemoryError`, broken arithmetic a `NumericalError`; what Python raised in a
/// provider comes back as it was.
pub(crate) fn to_python(error: &sparsebayes::Error) -> PyErr {
    if let sparsebayes::Error::Provider(error) = error
        && let Some(raised) = error.downcast_ref::<PyErr>()
    {
        return Python::attach(|py| raised.clone_ref(py));
    }
    let message = error.to_string();
    if let sparsebayes::Error::Memory { .. } = error {
        PyMemoryError::new_err(message)
    } else if error.is_invalid_input() {
        PyValueError::new_err(message)
    } else {
        NumericalError::new_err(message)
    }
}

/// An error that concerns a file: an `OSError` of the kind that Python has for it, or a `ValueError` about its content.
pub(crate) fn of_file(error: &sparsebayes::Error, path: &Path) -> PyErr {
    match error {
        sparsebayes::Error::Io(error) => match error.raw_os_error() {
            Some(number) => {
                let kind = error.kind().to_string();
                PyOSError::new_err((number, kind, path.to_path_buf()))
            }
            None => io::Error::new(error.kind(), error.to_string()).into(),
        },
        sparsebayes::Error::Format { what } => {
            PyValueError::new_err(format!("{}: {what}", path.display()))
        }
        error => to_python(error),
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

/// Whether this is what functions raise that cannot do with what they were given.
pub(crate) fn is_refusal(error: &PyErr, py: Python<'_>) -> bool {
    error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py)
}

/// A `ValueError` with this message.
pub(crate) fn invalid(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}
