//! Threads that stand by between two stretches of work in parallel.
//!
//! A thread that finds nothing to do sleeps within microseconds, and to wake it takes some fifty: as long as many a stretch of
//! a fit of a few milliseconds, which has dozens of them. Threads that stand by look for work a while longer.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::placement::Placement;

/// For how long after the last work: most stretches for one thread are over by then.
const PATIENCE: Duration = Duration::from_micros(200);

thread_local! {
    /// Of the thread that hands out the work: who stands by for it.
    static OWN: RefCell<Option<Arc<Crew>>> = const { RefCell::new(None) };
    static STANDS_BY: Cell<bool> = const { Cell::new(false) };
}

/// The other threads of a pool.
pub(super) struct Crew {
    /// Threads that were asked for, that which hands out the work among them; `None`: one per core.
    pub(super) n_threads: Option<usize>,
    size: usize,
    standing_by: AtomicUsize,
    placement: Placement,
}

impl Crew {
    /// Of so many; called by the first thread of the pool.
    pub(super) fn new(n_threads: Option<usize>, size: usize) -> Arc<Self> {
        Arc::new(Self {
            n_threads,
            size,
            standing_by: AtomicUsize::new(0),
            placement: Placement::new(size),
        })
    }

    /// Called by each of them as it begins.
    pub(super) fn enter(&self) {
        self.placement.enter();
    }
}

/// Runs `f`, a job of a pool of threads, the others of which may be [called](call) meanwhile.
pub(super) fn during<T>(crew: &Arc<Crew>, f: impl FnOnce() -> T) -> T {
    /// Takes its leave when `f` panics, too: the threads serve others after it.
    struct Leave;

    impl Drop for Leave {
        fn drop(&mut self) {
            OWN.set(None);
        }
    }

    crew.placement.lead();
    OWN.set(Some(Arc::clone(crew)));
    let _leave = Leave;
    f()
}

/// Whether this thread hands out the work of as many threads.
pub(super) fn has(n_threads: Option<usize>) -> bool {
    OWN.with_borrow(|own| own.as_ref().is_some_and(|crew| crew.n_threads == n_threads))
}

/// Has all others stand by from now on; called where there is work for them.
pub(super) fn call() {
    OWN.with_borrow(|own| {
        let Some(crew) = own else { return };
        crew.placement.follow();
        for _ in crew.standing_by.load(Ordering::Relaxed)..crew.size {
            crew.standing_by.fetch_add(1, Ordering::Relaxed);
            let crew = Arc::clone(crew);
            rayon::spawn(move || {
                stand_by();
                crew.standing_by.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

/// Works on whatever the pool has to do, until it has had nothing for some time.
fn stand_by() {
    // The thread that hands out the work has better to do, and to stand by twice is once too often.
    if OWN.with_borrow(Option::is_some) || STANDS_BY.replace(true) {
        return;
    }
    let mut last = Instant::now();
    while last.elapsed() < PATIENCE {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            last = Instant::now();
        } else {
            // Whoever else wants this core comes first.
            thread::yield_now();
        }
    }
    STANDS_BY.set(false);
}
