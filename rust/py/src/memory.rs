//! Checks before a fit that the system grants the memory it may need: a failed allocation within a fit ends the process.

use sparsebayes::{Error, Scheme};

/// Most candidates in the working set of a sequential fit and the next one.
const MAX_WORKING_SET: usize = 1024;
/// Most basis functions whose values a sequential fit stores: larger models are rare.
const MAX_STORED_FUNCTIONS: usize = 128;
/// Most numbers in the low-rank features of a dictionary: at the rows and at the centres, each twice.
const MAX_FEATURE_NUMBERS: usize = 4 << 22;
/// Square matrices of the working set: Gram matrix, factor, inverse of the factor, covariance, and copies for a rollback.
const N_SQUARES: usize = 7;
/// Vectors of the length of the rows, and as many of the length of the dictionary.
const N_VECTORS: usize = 24;
/// Bytes for small arrays and the allocator.
const BASE_BYTES: usize = 32 << 20;

/// Checks the memory of a fit with `n_predictors` linear predictors per row.
///
/// A fit to a provider or to sums has vectors of the length of the dictionary instead of the rows: `[n_basis, n_basis]`.
pub(crate) fn check_fit(
    [n_rows, n_basis]: [usize; 2],
    n_predictors: usize,
    scheme: Scheme,
) -> Result<(), Error> {
    let (n_working, stored) = if scheme == Scheme::Sequential {
        (
            n_basis.min(MAX_WORKING_SET),
            n_basis.min(MAX_STORED_FUNCTIONS),
        )
    } else {
        (n_basis, n_basis)
    };
    let parts = [
        n_rows.saturating_mul(stored),
        square(n_working.saturating_mul(n_predictors)).saturating_mul(N_SQUARES),
        n_rows.saturating_mul(n_basis).min(MAX_FEATURE_NUMBERS),
        vectors([n_rows, n_basis], n_predictors),
    ];
    let remedy = "fewer candidates, or scheme='sequential', take less";
    reserve(&parts, "the fit", remedy)
}

/// Checks the memory of a sequential fit of several outputs: each has a posterior, and they share a working set.
pub(crate) fn check_output_fit(
    [n_rows, n_basis]: [usize; 2],
    n_outputs: usize,
) -> Result<(), Error> {
    let stored = n_basis.min(MAX_STORED_FUNCTIONS);
    // The values of active functions are stored twice, once contiguously; and their Gram columns.
    let lengths = n_rows.saturating_mul(2).saturating_add(n_basis);
    let parts = [
        lengths.saturating_mul(stored),
        square(n_basis.min(MAX_WORKING_SET)).saturating_mul(N_SQUARES),
        square(stored).saturating_mul(N_SQUARES.saturating_mul(n_outputs)),
        vectors([n_rows, n_basis], n_outputs),
    ];
    reserve(&parts, "the fit", "fewer candidates or outputs take less")
}

/// Numbers in the vectors of all predictors.
fn vectors([n_rows, n_basis]: [usize; 2], n_predictors: usize) -> usize {
    let lengths = n_rows.saturating_add(n_basis);
    lengths.saturating_mul(N_VECTORS.saturating_mul(n_predictors))
}

pub(crate) fn square(n: usize) -> usize {
    n.saturating_mul(n)
}

/// `Error::Memory` if the system refuses to allocate arrays with these many numbers; the memory is freed at once.
pub(crate) fn reserve(parts: &[usize], what: &str, remedy: &str) -> Result<(), Error> {
    let numbers = parts.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
    let bytes = numbers
        .saturating_mul(size_of::<f64>())
        .saturating_add(BASE_BYTES);
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let mebibytes = bytes >> 20;
    let what =
        format!("{what} may take {mebibytes} MiB of memory, which the system refuses; {remedy}");
    Err(Error::Memory { what })
}
