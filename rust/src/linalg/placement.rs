//! Which cores the threads of a pool run on: all others keep off that of the one that hands out the work.
//!
//! Systems wake a thread where it slept, and look for a better place only now and then: of two threads both may stay on
//! one of two cores for all of a short fit. Where there are fewer cores than threads, or no way to say, they are left alone.

#[cfg(target_os = "linux")]
pub(super) use linux::{Cores, Placement};
#[cfg(not(target_os = "linux"))]
pub(super) use other::{Cores, Placement};

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::{Mutex, PoisonError};

    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// Those that a thread may use; `None` where the system does not say.
    #[derive(PartialEq)]
    pub(in super::super) struct Cores(Option<CpuSet>);

    impl Cores {
        pub(in super::super) fn of_this_thread() -> Self {
            Self(sched_getaffinity(None).ok())
        }
    }

    /// The one that hands out the work may use all cores, the others all but that on which it runs.
    pub(in super::super) struct Placement {
        /// `None`: threads are left alone.
        allowed: Option<CpuSet>,
        known: Mutex<Known>,
    }

    struct Known {
        /// Core of the thread that hands out the work when it last looked.
        home: usize,
        /// Who does.
        leader: Pid,
        members: Vec<Pid>,
    }

    impl Placement {
        /// Called by the first of a pool, before there are others.
        pub(in super::super) fn new(n_others: usize) -> Self {
            let enough = |cores: &CpuSet| n_others > 0 && cores.count() as usize > n_others;
            let leader = gettid();
            Self {
                allowed: sched_getaffinity(None).ok().filter(enough),
                known: Mutex::new(Known {
                    home: sched_getcpu(),
                    leader,
                    members: vec![leader],
                }),
            }
        }

        /// Called by each of the others as it begins.
        pub(in super::super) fn enter(&self) {
            let Some(allowed) = self.allowed else { return };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.members.push(gettid());
            keep_off(known.home, allowed, None);
        }

        /// Called by the one that is to hand out the work.
        pub(in super::super) fn lead(&self) {
            let Some(allowed) = self.allowed else { return };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let this = gettid();
            if this != known.leader {
                known.leader = this;
                // Where that is refused it stays as it is.
                let _ = sched_setaffinity(None, &allowed);
                known.settle(sched_getcpu(), allowed);
            }
        }

        /// Called by the one that hands out the work, now and then: the system may have moved it.
        pub(in super::super) fn follow(&self) {
            let Some(allowed) = self.allowed else { return };
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let home = sched_getcpu();
            if home != known.home {
                known.settle(home, allowed);
            }
        }
    }

    impl Known {
        fn settle(&mut self, home: usize, allowed: CpuSet) {
            self.home = home;
            for &member in self.members.iter().filter(|&&member| member != self.leader) {
                keep_off(home, allowed, Some(member));
            }
        }
    }

    /// Has a thread (`None`: this one) run anywhere else than on this core.
    fn keep_off(core: usize, mut allowed: CpuSet, thread: Option<Pid>) {
        allowed.unset(core);
        // Where that is refused it stays as it is.
        let _ = sched_setaffinity(thread, &allowed);
    }

    #[cfg(test)]
    mod tests {
        use std::sync::Barrier;

        use super::*;
        use crate::linalg::with_threads;

        /// The cores that each of two threads of a pool of `n` may use, that which hands out the work first.
        fn cores_of_two(n: usize) -> (CpuSet, CpuSet) {
            let both = Barrier::new(2);
            let look = || {
                both.wait();
                sched_getaffinity(None).unwrap()
            };
            with_threads(Some(n), || rayon::join(look, look)).unwrap()
        }

        #[test]
        fn the_second_thread_keeps_off_one_core() {
            let all = sched_getaffinity(None).unwrap();
            let (first, second) = cores_of_two(2);
            assert_eq!(first, all);
            if all.count() > 1 {
                assert_eq!(second.count(), all.count() - 1);
            } else {
                assert_eq!(second, all);
            }
            assert_eq!(sched_getaffinity(None).unwrap(), all);
        }

        #[test]
        fn more_threads_than_cores_are_left_alone() {
            let all = sched_getaffinity(None).unwrap();
            assert_eq!(cores_of_two(all.count() as usize + 1), (all, all));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    /// All that there are.
    #[derive(PartialEq)]
    pub(in super::super) struct Cores;

    impl Cores {
        pub(in super::super) fn of_this_thread() -> Self {
            Self
        }
    }

    /// Threads are left alone.
    pub(in super::super) struct Placement;

    #[allow(clippy::unused_self)] // as on Linux
    impl Placement {
        pub(in super::super) fn new(_n_others: usize) -> Self {
            Self
        }

        pub(in super::super) fn enter(&self) {}

        pub(in super::super) fn lead(&self) {}

        pub(in super::super) fn follow(&self) {}
    }
}
