//! The one error type of the crate.

#[cfg(feature = "fit")]
use crate::linalg::NotPositiveDefinite;

/// What can go wrong. Bad input and broken arithmetic are errors; a fit that merely did not converge is a
/// [`Status`](crate::Status).
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
    /// A setting or argument lies outside its domain.
    #[error("{what}")]
    Invalid {
        /// Argument, value and remedy in one sentence.
        what: String,
    },
    /// A model file, or what stands for one, does not hold a sound model.
    #[error("{what}")]
    Format {
        /// What is wrong, in one sentence.
        what: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A factorisation met a pivot that is not positive.
    #[cfg(feature = "fit")]
    #[error(transparent)]
    NotPositiveDefinite(#[from] NotPositiveDefinite),
    /// A number that has to be finite came out otherwise.
    #[error("the computation broke down: {what} is not finite")]
    Breakdown {
        /// Which number.
        what: &'static str,
    },
    /// There is not the memory that the computation takes.
    #[error("{what}")]
    Memory {
        /// How much, for what, and what takes less, in one sentence.
        what: String,
    },
    /// The caller asked for the computation to end.
    #[error("interrupted")]
    Interrupted,
    /// A provider of statistics failed.
    #[error("the provider of statistics failed: {0}")]
    Provider(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Whether the caller's input is to blame (as against the arithmetic).
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

    /// [`Error::Memory`] for this many numbers, which the system refused.
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
        // Without a way out in between, which a loop over vectors cannot have.
        if values.iter().fold(true, |all, v| all & v.is_finite()) {
            Ok(())
        } else {
            Err(Self::NonFinite { what })
        }
    }
}

/// Result with the crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
