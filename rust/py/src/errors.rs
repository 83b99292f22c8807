//! Core errors as Python exceptions.

use std::io;
use std::path::Path;

use pyo3::create_exception;
use pyo3::exceptions::{PyArithmeticError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use sparsebayes::Error;

create_exception!(
    sparsebayes,
    NumericalError,
    PyArithmeticError,
    "The computation broke down although the input was valid."
);

/// Invalid input becomes a `ValueError`, lack of memory a `MemoryError`, an arithmetic breakdown a `NumericalError`. An
/// exception of a Python provider is raised again unchanged.
pub(crate) fn to_python(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Provider(error) => match error.downcast::<PyErr>() {
            Ok(raised) => *raised,
            Err(_) => NumericalError::new_err(message),
        },
        Error::Memory { .. } => PyMemoryError::new_err(message),
        error if error.is_invalid_input() => PyValueError::new_err(message),
        _ => NumericalError::new_err(message),
    }
}

/// An error about a file: the matching kind of `OSError`, or a `ValueError` about the content.
pub(crate) fn file_error(error: Error, path: &Path) -> PyErr {
    match error {
        Error::Io(error) => match error.raw_os_error() {
            Some(number) => {
                let kind = error.kind().to_string();
                PyOSError::new_err((number, kind, path.to_path_buf()))
            }
            None => io::Error::new(error.kind(), error.to_string()).into(),
        },
        Error::Format { what } => PyValueError::new_err(format!("{}: {what}", path.display())),
        error => to_python(error),
    }
}

/// A caught panic of the core.
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
