//! Asks the system for the memory that a fit may take, before it begins: an allocation that fails within a fit ends the process.

use sparsebayes::{Error, Scheme};

/// Candidates that a sequential fit has at hand beside its model: its pool and the next one.
const POOL: usize = 1024;
/// Functions whose values on all rows a sequential fit stores: those in the model, of which few models have more.
const STORED: usize = 128;
/// Numbers in the low-rank features of a dictionary: at the rows and at the centres, each twice.
const FEATURES: usize = 4 << 22;
/// Square matrices of the functions at hand: Gram matrix, factor, inverse of the factor, covariance, and copies for a rollback.
const SQUARES: usize = 7;
/// Vectors of the length of the rows, and as many of the length of the dictionary.
const VECTORS: usize = 24;
/// Bytes for everything else: small arrays, and the arenas of the allocator.
const FLAT: usize = 32 << 20;

/// Asks for the memory of a fit with `n_predictors` linear predictors of each row.
///
/// A fit to a provider or to sums over rows has vectors as long as the dictionary instead of the rows: `[n_basis, n_basis]`.
pub(crate) fn check_fit(
    [n_rows, n_basis]: [usize; 2],
    n_predictors: usize,
    scheme: Scheme,
) -> Result<(), Error> {
    let (at_hand, stored) = if scheme == Scheme::Sequential {
        (n_basis.min(POOL), n_basis.min(STORED))
    } else {
        (n_basis, n_basis)
    };
    let parts = [
        n_rows.saturating_mul(stored),
        square(at_hand.saturating_mul(n_predictors)).saturating_mul(SQUARES),
        n_rows.saturating_mul(n_basis).min(FEATURES),
        vectors([n_rows, n_basis], n_predictors),
    ];
    let remedy = "fewer candidates, or scheme='sequential', take less";
    reserve(&parts, "the fit", remedy)
}

/// Asks for the memory of a sequential fit of several outputs: each has a posterior, and there is no pool.
pub(crate) fn check_output_fit(
    [n_rows, n_basis]: [usize; 2],
    n_outputs: usize,
) -> Result<(), Error> {
    let stored = n_basis.min(STORED);
    // Values of the functions in the model are stored one by one, and copied side by side; Gram columns beside them.
    let lengths = n_rows.saturating_mul(2).saturating_add(n_basis);
    let parts = [
        lengths.saturating_mul(stored),
        square(stored).saturating_mul(SQUARES.saturating_mul(n_outputs)),
        vectors([n_rows, n_basis], n_outputs),
    ];
    reserve(&parts, "the fit", "fewer candidates or outputs take less")
}

/// Numbers in the vectors of all predictors.
fn vectors([n_rows, n_basis]: [usize; 2], n_predictors: usize) -> usize {
    let lengths = n_rows.saturating_add(n_basis);
    lengths.saturating_mul(VECTORS.saturating_mul(n_predictors))
}

pub(crate) fn square(n: usize) -> usize {
    n.saturating_mul(n)
}

/// Asks for the memory of arrays with these many numbers, and gives it back unused; `Error::Memory` where the system refuses.
pub(crate) fn reserve(parts: &[usize], what: &str, remedy: &str) -> Result<(), Error> {
    let numbers = parts.iter().fold(0, |sum: usize, &n| sum.saturating_add(n));
    let bytes = numbers
        .saturating_mul(size_of::<f64>())
        .saturating_add(FLAT);
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let mebibytes = bytes >> 20;
    let what =
        format!("{what} may take {mebibytes} MiB of memory, which the system refuses; {remedy}");
    Err(Error::Memory { what })
}
