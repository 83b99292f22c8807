//! Work split over threads so that the split never shows in the result.
//!
//! Pieces are cut by size alone, each piece is computed by one thread in one fixed order, and results come back in
//! the order of the pieces. So the same input gives the same bits, however many threads there are.

use std::ops::Range;

#[cfg(feature = "parallel")]
use super::{crews::CREWS, standby};

/// Cuts `0..len` into pieces of `size`, the last one shorter.
pub(crate) fn pieces(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len)
        .step_by(size)
        .map(move |start| start..(start + size).min(len))
}

/// Maps `f` over the [`pieces`] of `0..len`, in parallel when the crate is built so, results in order.
pub(crate) fn map_pieces<T: Send>(
    len: usize,
    size: usize,
    f: impl Fn(Range<usize>) -> T + Sync + Send,
) -> Vec<T> {
    #[cfg(feature = "parallel")]
    if len > size && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        standby::call();
        let ranges: Vec<_> = pieces(len, size).collect();
        return ranges.into_par_iter().map(f).collect();
    }
    pieces(len, size).map(f).collect()
}

#[cfg(feature = "fit")]
/// Calls `f` with each piece of `size` of `values` and where it begins, in parallel when the crate is built so.
pub(crate) fn fill_pieces<T: Send>(
    values: &mut [T],
    size: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    #[cfg(feature = "parallel")]
    if values.len() > size && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        standby::call();
        let pieces = values.par_chunks_mut(size).enumerate();
        // Pieces may differ in work, so threads take one at a time.
        let pieces = pieces.with_max_len(1);
        pieces.for_each(|(piece, values)| f(piece * size, values));
        return;
    }
    fill_alone(values, size, f);
}

#[cfg(feature = "fit")]
/// Some ten microseconds of multiplications: a thread that sleeps takes longer to wake, one that stands by a tenth of it.
const WORTH_A_CALL: usize = 1 << 18;

#[cfg(feature = "fit")]
/// [`fill_pieces`] that take so many multiplications in all: by this thread alone where another one takes longer to come.
pub(crate) fn fill_pieces_of<T: Send>(
    multiplications: usize,
    values: &mut [T],
    size: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    if multiplications < WORTH_A_CALL {
        fill_alone(values, size, f);
    } else {
        fill_pieces(values, size, f);
    }
}

#[cfg(feature = "fit")]
fn fill_alone<T>(values: &mut [T], size: usize, f: impl Fn(usize, &mut [T])) {
    // Matrices of no columns come in pieces of no size.
    if values.is_empty() {
        return;
    }
    for (piece, values) in values.chunks_mut(size).enumerate() {
        f(piece * size, values);
    }
}

/// Runs `f` with at most `n_threads` threads at its disposal (`None`: one per core).
///
/// Threads wait for the next call when one has ended, and calls at the same time have threads of their own.
///
/// # Errors
/// [`Error::Provider`](crate::Error::Provider) when the system refuses the threads.
pub fn with_threads<T: Send>(
    n_threads: Option<usize>,
    f: impl FnOnce() -> T + Send,
) -> crate::Result<T> {
    #[cfg(feature = "parallel")]
    {
        CREWS.with(n_threads, f)
    }
    #[cfg(not(feature = "parallel"))]
    {
        let _ = n_threads;
        Ok(f())
    }
}

/// Runs `f` on another thread, [with as many](with_threads) at its disposal, and `meanwhile` on this one.
/// Returns when both have ended: what a panic of `f` carried is returned, one of `meanwhile` goes on.
///
/// # Errors
/// As [`with_threads`]; neither has run then.
pub fn beside<T: Send, M>(
    n_threads: Option<usize>,
    f: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce() -> M,
) -> crate::Result<(std::thread::Result<T>, M)> {
    #[cfg(feature = "parallel")]
    {
        CREWS.beside(n_threads, f, meanwhile)
    }
    #[cfg(not(feature = "parallel"))]
    {
        let _ = n_threads;
        std::thread::scope(|scope| {
            let other = std::thread::Builder::new()
                .spawn_scoped(scope, f)
                .map_err(|e| crate::Error::Provider(Box::new(e)))?;
            let met = meanwhile();
            Ok((other.join(), met))
        })
    }
}
