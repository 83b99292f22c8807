//! Whether there is memory for a fit, asked before it begins: once it runs an allocation that fails ends the process.

use sparsebayes::{Error, Scheme};

/// Functions that a sequential fit holds at a time beside those in the model: its pool and what waits for the next.
const POOL: usize = 1024;
/// Functions whose values on all rows a sequential fit keeps: those in the model, and few models have more. (A pool has none:
/// its Gram matrix is made from blocks of rows.)
const KEPT: usize = 128;
/// Numbers in the features of a smooth dictionary: at the rows, at the centres, and the same for the leading ones.
const FEATURES: usize = 4 << 22;
/// Square matrices of the functions at hand: Gram matrix, factor, covariance, the inverse of the factor while that is made, and what is
/// kept to go back to.
const SQUARES: usize = 7;
/// Vectors of the length of the rows, and of the dictionary.
const VECTORS: usize = 24;
/// Beside all that: small things, and what the allocator sets aside for each thread that asks for some.
const FLAT: usize = 32 << 20;

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
    /// That of a fit whose rows answer for themselves: an answer about a function in the model is as long as the dictionary.
    pub(crate) fn of_dictionary(n_basis: usize, scheme: Scheme) -> Self {
        Self {
            n_rows: n_basis,
            n_basis,
            n_predictors: 1,
            scheme,
        }
    }

    /// Bytes that a fit may well take; too many to count are all there are.
    fn bytes(self) -> usize {
        let (functions, kept) = if self.scheme == Scheme::Sequential {
            (self.n_basis.min(POOL), self.n_basis.min(KEPT))
        } else {
            (self.n_basis, self.n_basis)
        };
        let columns = self.n_rows.saturating_mul(kept);
        let all = functions.saturating_mul(self.n_predictors);
        let squares = square(all).saturating_mul(SQUARES);
        let features = self.n_rows.saturating_mul(self.n_basis).min(FEATURES);
        in_all(&[columns, squares, features, self.vectors()])
    }

    /// Numbers in vectors of each predictor.
    fn vectors(self) -> usize {
        let lengths = self.n_rows.saturating_add(self.n_basis);
        lengths.saturating_mul(VECTORS.saturating_mul(self.n_predictors))
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

/// The size of a sequential fit of several outputs: each has a posterior of its own, and there is no pool, but Gram columns and
/// values of the functions in the model.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names)] // counts of what the formulas count
pub(crate) struct OutputSize {
    pub(crate) n_rows: usize,
    pub(crate) n_basis: usize,
    pub(crate) n_outputs: usize,
}

impl OutputSize {
    fn bytes(self) -> usize {
        let kept = self.n_basis.min(KEPT);
        // Values are kept, and put together for each question.
        let lengths = self.n_rows.saturating_mul(2).saturating_add(self.n_basis);
        let columns = lengths.saturating_mul(kept);
        let squares = square(kept).saturating_mul(SQUARES.saturating_mul(self.n_outputs));
        let each = Size {
            n_rows: self.n_rows,
            n_basis: self.n_basis,
            n_predictors: self.n_outputs,
            scheme: Scheme::Sequential,
        };
        in_all(&[columns, squares, each.vectors()])
    }

    /// As [`Size::check`].
    pub(crate) fn check(self) -> Result<(), Error> {
        reserve(
            self.bytes(),
            "the fit",
            "fewer candidates or outputs take less",
        )
    }
}

/// Asks for room for so many numbers, as [`reserve`] does for bytes.
pub(crate) fn reserve_numbers(parts: &[usize], what: &str, remedy: &str) -> Result<(), Error> {
    reserve(in_all(parts), what, remedy)
}

pub(crate) fn square(n: usize) -> usize {
    n.saturating_mul(n)
}

/// Bytes of so many numbers, and of all that is small.
fn in_all(parts: &[usize]) -> usize {
    let numbers = parts.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
    numbers
        .saturating_mul(size_of::<f64>())
        .saturating_add(FLAT)
}

/// Asks the system for this much memory, untouched, and gives it back; a `MemoryError` where it has not so much.
pub(crate) fn reserve(bytes: usize, what: &str, remedy: &str) -> Result<(), Error> {
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let mebibytes = bytes >> 20;
    let what =
        format!("{what} may take {mebibytes} MiB of memory, which the system refuses; {remedy}");
    Err(Error::Memory { what })
}
