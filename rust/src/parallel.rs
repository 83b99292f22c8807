//! Deterministic parallel loops and thread pools.
//!
//! The pieces of a loop depend only on the size of the input. One thread computes a piece in a fixed order, and results
//! are returned in the order of the pieces. So the same input gives the same bits for any number of threads.

#[cfg(feature = "parallel")]
use std::collections::BTreeMap;
use std::ops::Range;
#[cfg(feature = "parallel")]
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "parallel")]
use std::sync::Mutex;

#[cfg(feature = "parallel")]
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Divides `0..len` into pieces of `size`; the last one may be shorter.
pub(crate) fn pieces(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len)
        .step_by(size)
        .map(move |start| start..(start + size).min(len))
}

/// Maps `f` over the [`pieces`] of `0..len` in parallel; returns the results in order.
pub(crate) fn map_pieces<T: Send>(
    len: usize,
    size: usize,
    f: impl Fn(Range<usize>) -> T + Sync + Send,
) -> Vec<T> {
    #[cfg(feature = "parallel")]
    if len > size && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        let ranges: Vec<_> = pieces(len, size).collect();
        return ranges.into_par_iter().map(f).collect();
    }
    pieces(len, size).map(f).collect()
}

#[cfg(feature = "fit")]
/// Calls `f` in parallel with the start and the values of each piece of `size`.
pub(crate) fn fill_pieces<T: Send>(
    values: &mut [T],
    size: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    #[cfg(feature = "parallel")]
    if values.len() > size && rayon::current_num_threads() > 1 {
        use rayon::prelude::*;
        let pieces = values.par_chunks_mut(size).enumerate();
        // One piece per task, because pieces may differ in work.
        let pieces = pieces.with_max_len(1);
        pieces.for_each(|(piece, values)| f(piece * size, values));
        return;
    }
    fill_alone(values, size, f);
}

#[cfg(feature = "fit")]
/// Fewest multiplications for which threads are used: about ten microseconds, the time to wake one.
const MIN_PARALLEL_MULTIPLICATIONS: usize = 1 << 18;

#[cfg(feature = "fit")]
/// [`fill_pieces`] of known total work: on this thread alone if waking others would take longer.
pub(crate) fn fill_pieces_of<T: Send>(
    multiplications: usize,
    values: &mut [T],
    size: usize,
    f: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    if multiplications < MIN_PARALLEL_MULTIPLICATIONS {
        fill_alone(values, size, f);
    } else {
        fill_pieces(values, size, f);
    }
}

#[cfg(feature = "fit")]
fn fill_alone<T>(values: &mut [T], size: usize, f: impl Fn(usize, &mut [T])) {
    // The piece size of a matrix without columns is 0.
    if values.is_empty() {
        return;
    }
    for (piece, values) in values.chunks_mut(size).enumerate() {
        f(piece * size, values);
    }
}

/// Idle thread pools, at most one per thread count (`None`: one thread per core).
///
/// Each call takes a pool out, so that concurrent calls share no threads: a fit may block its thread until a callback
/// returns, or hold a lock while it waits for parallel work. The process id is part of the key because a forked process
/// inherits the pools of its parent without their threads.
#[cfg(feature = "parallel")]
static IDLE_POOLS: Mutex<BTreeMap<(u32, Option<usize>), ThreadPool>> = Mutex::new(BTreeMap::new());

/// Calls `f` with an idle pool of `n_threads` threads, or with a new one, and keeps the pool for the next call.
#[cfg(feature = "parallel")]
fn with_pool<T>(n_threads: Option<usize>, f: impl FnOnce(&ThreadPool) -> T) -> crate::Result<T> {
    let key = (std::process::id(), n_threads);
    // Never `lock`: after a fork the mutex may be held by a thread that the child does not have.
    let idle = IDLE_POOLS.try_lock().ok();
    let pool = match idle.and_then(|mut pools| pools.remove(&key)) {
        Some(pool) => pool,
        None => ThreadPoolBuilder::new()
            .num_threads(n_threads.unwrap_or(0))
            .build()
            .map_err(|e| crate::Error::Provider(Box::new(e)))?,
    };
    let out = f(&pool);
    if let Ok(mut pools) = IDLE_POOLS.try_lock() {
        pools.insert(key, pool);
    }
    Ok(out)
}

/// Runs `f` with at most `n_threads` threads (`None`: one per core).
///
/// Thread pools are cached, and concurrent calls have different pools. Inside a rayon pool with `n_threads` threads, or with
/// `None` inside any rayon pool, `f` runs in that pool.
///
/// # Errors
/// [`Error::Provider`](crate::Error::Provider) when the system refuses the threads.
pub fn with_threads<T: Send>(
    n_threads: Option<usize>,
    f: impl FnOnce() -> T + Send,
) -> crate::Result<T> {
    #[cfg(feature = "parallel")]
    {
        let is_inside = rayon::current_thread_index().is_some()
            && n_threads.is_none_or(|n| n == rayon::current_num_threads());
        if is_inside {
            return Ok(f());
        }
        with_pool(n_threads, |pool| pool.install(f))
    }
    #[cfg(not(feature = "parallel"))]
    {
        let _ = n_threads;
        Ok(f())
    }
}

/// Runs `f` on another thread, with at most `n_threads` threads, and `meanwhile` on this thread.
///
/// Returns when both have ended. A panic of `f` is returned as an error; a panic of `meanwhile` is resumed.
///
/// # Errors
/// [`Error::Provider`](crate::Error::Provider) when the system refuses the threads; then neither function was called.
#[cfg(feature = "parallel")]
pub fn run_alongside<T: Send, M>(
    n_threads: Option<usize>,
    f: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce() -> M,
) -> crate::Result<(std::thread::Result<T>, M)> {
    let (out, met) = with_pool(n_threads, |pool| {
        let mut out = None;
        let met = pool.in_place_scope(|scope| {
            // The caller gets the payload of a panic, and `f` leaves nothing else behind.
            scope.spawn(|_| out = Some(catch_unwind(AssertUnwindSafe(f))));
            meanwhile()
        });
        (out, met)
    })?;
    let out = out.ok_or_else(|| crate::Error::Provider("a thread did not run its job".into()))?;
    Ok((out, met))
}

#[cfg(test)]
#[cfg(feature = "parallel")]
mod pool_tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread;
    use std::thread::{ThreadId, current};

    use super::*;

    fn thread_ids() -> HashSet<ThreadId> {
        rayon::broadcast(|_| current().id()).into_iter().collect()
    }

    fn ids_of(n_threads: usize) -> HashSet<ThreadId> {
        with_threads(Some(n_threads), thread_ids).unwrap()
    }

    #[test]
    fn pools_are_reused() {
        // No other test has pools of 5 and 6 threads. A pool is lost where another test has the lock on the map.
        let reused = (0..100).any(|_| {
            let first = ids_of(5);
            assert_eq!(first.len(), 5);
            assert!(!first.contains(&current().id()));
            assert_eq!(ids_of(6).len(), 6);
            let (leader, ()) = run_alongside(Some(5), || current().id(), || ()).unwrap();
            first.contains(&leader.unwrap()) && ids_of(5) == first
        });
        assert!(reused);
    }

    #[test]
    fn concurrent_calls_share_no_thread() {
        let both = Barrier::new(2);
        let ids = || {
            both.wait();
            let ids = thread_ids();
            both.wait();
            ids
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| with_threads(Some(2), ids).unwrap());
            (with_threads(Some(2), ids).unwrap(), other.join().unwrap())
        });
        assert!(one.is_disjoint(&other));
    }

    #[test]
    fn a_nested_call_stays_on_its_thread() {
        let place = || (current().id(), rayon::current_num_threads());
        with_threads(Some(2), || {
            assert_eq!(with_threads(Some(2), place).unwrap(), place());
            assert_eq!(with_threads(None, place).unwrap(), place());
            let (id, n_threads) = with_threads(Some(1), place).unwrap();
            assert!(id != current().id() && n_threads == 1);
        })
        .unwrap();
    }

    #[test]
    #[allow(clippy::panic)]
    fn panics_reach_the_caller() {
        let (out, met) = run_alongside(Some(2), || -> usize { panic!("expected") }, || 5).unwrap();
        assert_eq!(*out.unwrap_err().downcast::<&str>().unwrap(), "expected");
        assert_eq!(met, 5);
        let panicking = || with_threads(Some(2), || -> usize { panic!("expected") });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        assert_eq!(with_threads(Some(2), || 7).unwrap(), 7);
    }
}
