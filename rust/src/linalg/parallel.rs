//! Work split over threads so that the split never shows in the result.
//!
//! Pieces are cut by size alone, each piece is computed by one thread in one fixed order, and results come back in
//! the order of the pieces. So the same input gives the same bits, however many threads there are.

use std::ops::Range;
#[cfg(all(feature = "fit", feature = "parallel"))]
use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(feature = "fit")]
use std::sync::{Mutex, PoisonError};

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

#[cfg(feature = "fit")]
/// Runs the jobs that `next` has, as many at a time as there are threads. It is asked again after each, so there may be more of them by
/// then.
pub(crate) fn run_jobs<J: Send>(
    next: impl Fn() -> Option<J> + Sync + Send,
    run: impl Fn(J) + Sync + Send,
) {
    #[cfg(feature = "parallel")]
    if rayon::current_num_threads() > 1 {
        standby::call();
        let idle = AtomicUsize::new(rayon::current_num_threads());
        rayon::scope(|scope| hand_out(scope, &idle, &next, &run));
        return;
    }
    while let Some(job) = next() {
        run(job);
    }
}

#[cfg(all(feature = "fit", feature = "parallel"))]
/// Gives a job to each idle thread, as long as there are any, and so again after each.
fn hand_out<'s, J: Send + 's>(
    scope: &rayon::Scope<'s>,
    idle: &'s AtomicUsize,
    next: &'s (impl Fn() -> Option<J> + Sync + Send),
    run: &'s (impl Fn(J) + Sync + Send),
) {
    let one_less = |idle: usize| idle.checked_sub(1);
    while idle
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
        .is_ok()
    {
        let Some(job) = next() else {
            idle.fetch_add(1, Ordering::Relaxed);
            return;
        };
        scope.spawn(move |scope| {
            run(job);
            idle.fetch_add(1, Ordering::Relaxed);
            hand_out(scope, idle, next, run);
        });
    }
}

#[cfg(feature = "fit")]
/// Calls `f` with the number of each part and the part, which take so many multiplications in all. Whoever is done takes the next.
pub(crate) fn each_of<T: Send>(
    multiplications: usize,
    parts: &mut [T],
    f: impl Fn(usize, &mut T) + Sync + Send,
) {
    if multiplications < WORTH_A_CALL {
        for (number, part) in parts.iter_mut().enumerate() {
            f(number, part);
        }
        return;
    }
    let waiting = Mutex::new(parts.iter_mut().enumerate());
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.next()
    };
    run_jobs(next, |(number, part)| f(number, part));
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

#[cfg(all(test, feature = "fit"))]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_others_lead_to_are_run_too() {
        for n_threads in [1, 2, 3] {
            // Each job up to 99 leads to one more, and there are two to begin with.
            let (waiting, seen) = (Mutex::new(vec![0, 1]), Mutex::new(Vec::new()));
            with_threads(Some(n_threads), || {
                run_jobs(
                    || waiting.lock().unwrap().pop(),
                    |job: usize| {
                        seen.lock().unwrap().push(job);
                        if job + 2 < 100 {
                            waiting.lock().unwrap().push(job + 2);
                        }
                    },
                );
            })
            .unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!(seen, (0..100).collect::<Vec<_>>());
        }
    }
}
