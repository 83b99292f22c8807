//! Threads, kept from one call to the next.
//!
//! To start two takes a third of a millisecond, and new ones find neither stacks nor memory in place. The first thread of a pool
//! starts the others, while the caller waits and its core is free. Started by the caller, two threads on two cores often
//! shared one: one that wakes goes where it was last, and systems look for a better place only where cores are mostly idle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::{io, mem, process, thread};

use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};

use super::placement::Cores;
use super::standby::{self, Crew};
use crate::{Error, Result};

/// Those of the process.
pub(super) static CREWS: Crews = Crews::new();

/// Pools that wait for a call.
pub(super) struct Crews(Mutex<Vec<Pool>>);

/// Threads, with what says for which calls they are.
struct Pool {
    /// The cores that they may use, which are those of the thread that had them started.
    cores: Cores,
    /// In a process forked since there are none of them.
    process: u32,
    crew: Arc<Crew>,
    threads: ThreadPool,
}

impl Crews {
    /// Pools that wait at most.
    const KEPT: usize = 2;

    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// [`with_threads`](super::with_threads).
    pub(super) fn with<T: Send>(
        &self,
        n_threads: Option<usize>,
        f: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        if standby::has(n_threads) {
            return Ok(f());
        }
        let pool = self.take(n_threads)?;
        let job = || standby::during(&pool.crew, f);
        let out = pool.threads.install(job);
        self.keep(pool);
        Ok(out)
    }

    /// [`beside`](super::beside).
    pub(super) fn beside<T: Send, M>(
        &self,
        n_threads: Option<usize>,
        f: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce() -> M,
    ) -> Result<(thread::Result<T>, M)> {
        let pool = self.take(n_threads)?;
        let mut out = None;
        let met = pool.threads.in_place_scope(|scope| {
            scope.spawn(|_| {
                let job = || standby::during(&pool.crew, f);
                // Whoever hands over the job is told, and looks no further at what it left.
                out = Some(catch_unwind(AssertUnwindSafe(job)));
            });
            meanwhile()
        });
        self.keep(pool);
        // The scope ends when the job has.
        let out = out.ok_or_else(|| Error::Provider("a thread left its job".into()))?;
        Ok((out, met))
    }

    /// A pool that waits, or a new one.
    fn take(&self, n_threads: Option<usize>) -> Result<Pool> {
        let (cores, process) = (Cores::of_this_thread(), process::id());
        if let Some(pool) = self.find(n_threads, &cores, process) {
            return Ok(pool);
        }
        let (threads, crew) = start(n_threads).map_err(Error::Provider)?;
        Ok(Pool {
            cores,
            process,
            crew,
            threads,
        })
    }

    fn find(&self, n_threads: Option<usize>, cores: &Cores, process: u32) -> Option<Pool> {
        // Whoever holds the lock may have been left behind by a fork.
        let mut idle = self.0.try_lock().ok()?;
        if idle.iter().any(|pool| pool.process != process) {
            // As its threads were: nobody is there to hear that they are to end.
            mem::forget(mem::take(&mut *idle));
        }
        let fits = |pool: &Pool| pool.crew.n_threads == n_threads && pool.cores == *cores;
        let at = idle.iter().position(fits)?;
        Some(idle.remove(at))
    }

    /// Has a pool wait for the next call, and the oldest go where there are many.
    fn keep(&self, pool: Pool) {
        let Ok(mut idle) = self.0.try_lock() else {
            return;
        };
        idle.push(pool);
        let oldest = (idle.len() > Self::KEPT).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Starts threads (`None`: one per core).
fn start(n_threads: Option<usize>) -> std::result::Result<(ThreadPool, Arc<Crew>), Failure> {
    let mut others = Vec::new();
    let threads = ThreadPoolBuilder::new()
        .num_threads(n_threads.unwrap_or(0))
        .spawn_handler(|thread| {
            if thread.index() == 0 {
                return run(thread, None);
            }
            others.push(thread);
            Ok(())
        })
        .build()?;
    let crew = threads.install(|| -> io::Result<_> {
        let crew = Crew::new(n_threads, others.len());
        for thread in others {
            run(thread, Some(Arc::clone(&crew)))?;
        }
        // One that is on this core goes to another before it is needed.
        thread::yield_now();
        Ok(crew)
    })?;
    Ok((threads, crew))
}

fn run(thread: ThreadBuilder, crew: Option<Arc<Crew>>) -> io::Result<()> {
    thread::Builder::new().spawn(move || {
        if let Some(crew) = crew {
            crew.enter();
        }
        thread.run();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::thread::{ThreadId, current};

    use super::*;

    /// The threads of a pool.
    fn members(crews: &Crews, n_threads: Option<usize>) -> HashSet<ThreadId> {
        let all = || rayon::broadcast(|_| current().id());
        crews.with(n_threads, all).unwrap().into_iter().collect()
    }

    #[test]
    fn threads_serve_one_call_after_the_other() {
        let crews = Crews::new();
        let first = members(&crews, Some(2));
        assert_eq!(first.len(), 2);
        assert!(!first.contains(&current().id()));
        assert_eq!(members(&crews, Some(2)), first);
        let (leader, ()) = crews.beside(Some(2), || current().id(), || ()).unwrap();
        assert!(first.contains(&leader.unwrap()));
        assert_eq!(members(&crews, Some(3)).len(), 3);
        assert_eq!(members(&crews, Some(2)), first);
    }

    #[test]
    fn few_pools_wait() {
        let crews = Crews::new();
        let first = members(&crews, Some(1));
        members(&crews, Some(2));
        members(&crews, Some(3));
        assert_eq!(crews.0.lock().unwrap().len(), Crews::KEPT);
        assert_ne!(members(&crews, Some(1)), first);
    }

    #[test]
    fn calls_at_the_same_time_share_no_thread() {
        let (crews, both) = (Crews::new(), Barrier::new(2));
        let look = || {
            both.wait();
            let threads: HashSet<_> = rayon::broadcast(|_| current().id()).into_iter().collect();
            both.wait();
            threads
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| crews.with(Some(2), look).unwrap());
            (crews.with(Some(2), look).unwrap(), other.join().unwrap())
        });
        assert!(one.is_disjoint(&other));
    }

    #[test]
    fn a_call_within_a_call_stays_on_its_thread() {
        let crews = Crews::new();
        let of_two = || (current().id(), rayon::current_num_threads());
        let (outer, same, fewer) = crews
            .with(Some(2), || {
                let same = crews.with(Some(2), of_two).unwrap();
                (of_two(), same, crews.with(Some(1), of_two).unwrap())
            })
            .unwrap();
        assert_eq!(same, outer);
        assert_ne!(fewer.0, outer.0);
        assert_eq!(fewer.1, 1);
    }

    #[test]
    #[allow(clippy::panic)]
    fn panics_are_the_callers() {
        let crews = Crews::new();
        let (out, met) = crews
            .beside(Some(2), || -> usize { panic!("as told") }, || 5)
            .unwrap();
        assert_eq!(*out.unwrap_err().downcast::<&str>().unwrap(), "as told");
        assert_eq!(met, 5);
        // The thread leads no longer: a call on it would take others' threads for its own.
        let lead = || rayon::broadcast(|_| standby::has(Some(2)));
        let lead = crews.with(Some(2), lead).unwrap();
        assert_eq!(lead.into_iter().filter(|&leads| leads).count(), 1);
        let panicking = || crews.with(Some(2), || -> usize { panic!("as told") });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        assert_eq!(crews.with(Some(2), || 7).unwrap(), 7);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_use_the_cores_of_their_caller() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

        let crews = Crews::new();
        let cores = || {
            crews
                .with(Some(1), || sched_getaffinity(None).unwrap())
                .unwrap()
        };
        let all = sched_getaffinity(None).unwrap();
        assert_eq!(cores(), all);
        thread::scope(|scope| {
            // The choice of a thread is its own.
            scope.spawn(|| {
                let mut one = CpuSet::new();
                one.set(sched_getcpu());
                sched_setaffinity(None, &one).unwrap();
                assert_eq!(cores(), one);
            });
        });
        assert_eq!(cores(), all);
    }
}
