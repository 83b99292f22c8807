//! The error type of the crate.

#[cfg(feature = "fit")]
use std::sync::atomic::{AtomicBool, Ordering};

/// An error. A fit that did not converge is not an error but a [`Status`](crate::Status).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two inputs disagree in shape.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// The offending argument.
        what: &'static str,
        /// The length it should have had.
        expected: usize,
        /// The length it had.
        got: usize,
    },
    /// A value that should be finite is not.
    #[error("{what} holds values that are not finite (NaN or infinity); remove or impute them")]
    NonFinite {
        /// The offending argument.
        what: &'static str,
    },
    /// A setting or argument is outside its domain.
    #[error("{what}")]
    Invalid {
        /// A sentence that names the argument, its value and the remedy.
        what: String,
    },
    /// A model file, or the parts of a model, do not describe a valid model.
    #[error("{what}")]
    Format {
        /// A sentence that names the problem.
        what: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A factorisation met a pivot that is not positive.
    #[cfg(feature = "fit")]
    #[error(transparent)]
    NotPositiveDefinite(#[from] NotPositiveDefinite),
    /// A computed number that must be finite is not.
    #[error("the computation broke down: {what} is not finite")]
    Breakdown {
        /// Which number.
        what: &'static str,
    },
    /// The computation needs more memory than there is.
    #[error("{what}")]
    Memory {
        /// A sentence that names how much memory, for what, and how to need less.
        what: String,
    },
    /// The caller cancelled the computation.
    #[error("interrupted")]
    Interrupted,
    /// A provider of statistics failed.
    #[error("the provider of statistics failed: {0}")]
    Provider(Box<dyn std::error::Error + Send + Sync>),
}

/// The matrix is not positive definite to working precision: a squared pivot is not positive, infinite or NaN.
#[cfg(feature = "fit")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the matrix is not positive definite: pivot {pivot} is not a positive number")]
pub struct NotPositiveDefinite {
    /// Row of that pivot.
    pub pivot: usize,
}

impl Error {
    /// Whether invalid input caused the error, not arithmetic.
    #[must_use]
    pub fn is_invalid_input(&self) -> bool {
        matches!(
            self,
            Self::Shape { .. }
                | Self::NonFinite { .. }
                | Self::Invalid { .. }
                | Self::Format { .. }
        )
    }

    /// [`Error::Memory`] for `n_numbers` numbers that the system refused to allocate.
    #[cfg(feature = "fit")]
    pub(crate) fn no_memory_for(what: &str, n_numbers: usize) -> Self {
        let mebibytes = n_numbers.saturating_mul(size_of::<f64>()) >> 20;
        let what = format!("{what} takes {mebibytes} MiB of memory, which the system refuses");
        Self::Memory { what }
    }

    pub(crate) fn check_len(what: &'static str, expected: usize, got: usize) -> Result<()> {
        if expected == got {
            Ok(())
        } else {
            Err(Self::Shape {
                what,
                expected,
                got,
            })
        }
    }

    pub(crate) fn check_finite(what: &'static str, values: &[f64]) -> Result<()> {
        // No early exit, so that the loop is vectorised.
        if values.iter().fold(true, |all, v| all & v.is_finite()) {
            Ok(())
        } else {
            Err(Self::NonFinite { what })
        }
    }
}

/// Result with the crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// [`Error::Interrupted`] if the caller has raised the flag.
#[cfg(feature = "fit")]
pub(crate) fn check_flag(cancel: Option<&AtomicBool>) -> Result<()> {
    match cancel {
        Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Interrupted),
        _ => Ok(()),
    }
}
