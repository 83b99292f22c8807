//! Whether there is memory for a fit, asked before it begins: once it runs an allocation that fails ends the process.

use pyo3::exceptions::PyMemoryError;
use sparsebayes::{Error, Scheme};

/// Functions that a sequential fit holds at a time beside those in the model: its pool and what waits for the next.
const POOL: usize = 1024;
/// Functions whose values on all rows a sequential fit keeps: those in the model, and few models have more. (A pool has none:
/// its Gram matrix is made from blocks of rows.)
const KEPT: usize = 128;
/// Square matrices of the functions at hand: Gram matrix, factor, covariance, and what is kept to go back to.
const SQUARES: usize = 6;
/// Vectors of the length of the rows, and of the dictionary.
const VECTORS: usize = 24;
/// Beside all that: room of threads, small things.
const FLAT: usize = 16 << 20;

/// The size of a fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) n_rows: usize,
    pub(crate) n_basis: usize,
    /// Linear predictors of a row.
    pub(crate) n_predictors: usize,
    pub(crate) scheme: Scheme,
}

impl Size {
    /// Bytes that a fit may well take; too many to count are all there are.
    fn bytes(self) -> usize {
        let (functions, kept) = if self.scheme == Scheme::Sequential {
            (self.n_basis.min(POOL), self.n_basis.min(KEPT))
        } else {
            (self.n_basis, self.n_basis)
        };
        let columns = self.n_rows.saturating_mul(kept);
        let all = functions.saturating_mul(self.n_predictors);
        let squares = all.saturating_mul(all).saturating_mul(SQUARES);
        let lengths = self.n_rows.saturating_add(self.n_basis);
        let vectors = lengths.saturating_mul(VECTORS * self.n_predictors);
        let numbers = columns.saturating_add(squares).saturating_add(vectors);
        numbers
            .saturating_mul(size_of::<f64>())
            .saturating_add(FLAT)
    }

    /// Asks the system for that much, and gives it back.
    pub(crate) fn check(self) -> Result<(), Error> {
        reserve(
            self.bytes(),
            "the fit",
            "fewer candidates, or scheme='sequential', take less",
        )
    }
}

/// Asks the system for this much memory, untouched, and gives it back; a `MemoryError` where it has not so much.
pub(crate) fn reserve(bytes: usize, what: &str, remedy: &str) -> Result<(), Error> {
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let mebibytes = bytes >> 20;
    let message =
        format!("{what} may take {mebibytes} MiB of memory, which the system refuses; {remedy}");
    Err(Error::Provider(Box::new(PyMemoryError::new_err(message))))
}
