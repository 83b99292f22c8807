//! Jobs in a row that each build on what came of earlier ones, several under way at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "parallel")]
use super::standby;

/// Runs jobs `0..len`, the first `ahead` with what is `known` and each other with what was known once the outcome of the one `ahead`
/// of it had been judged. So jobs of unequal length do not wait for one another in batches, and threads do not show.
///
/// Outcomes are judged in the order of the jobs; `judge` says what is known then, or that it is enough (`None`).
pub(crate) fn relay<K: Clone + Send + Sync, T: Send>(
    len: usize,
    ahead: usize,
    known: &K,
    job: impl Fn(usize, &K) -> T + Sync + Send,
    judge: impl FnMut(T) -> Option<K> + Send,
) {
    let relay = Relay {
        len,
        ahead,
        job,
        bench: Mutex::new(Bench {
            judged: 0,
            early: BTreeMap::new(),
            is_over: false,
            judge,
        }),
    };
    let first = (0..len.min(ahead)).map(|i| (i, known.clone()));
    #[cfg(feature = "parallel")]
    if len > 1 && ahead > 1 && rayon::current_num_threads() > 1 {
        standby::call();
        rayon::scope_fifo(|scope| relay.spawn(scope, first));
        return;
    }
    let mut ready: VecDeque<_> = first.collect();
    while let Some((i, known)) = ready.pop_front() {
        ready.extend(relay.run(i, &known));
    }
}

struct Relay<J, F, T> {
    len: usize,
    ahead: usize,
    job: J,
    bench: Mutex<Bench<F, T>>,
}

/// Where outcomes are judged.
struct Bench<F, T> {
    judged: usize,
    /// Outcomes that came before their turn.
    early: BTreeMap<usize, T>,
    is_over: bool,
    judge: F,
}

impl<J, F, T, K> Relay<J, F, T>
where
    J: Fn(usize, &K) -> T + Sync + Send,
    F: FnMut(T) -> Option<K> + Send,
    T: Send,
    K: Clone + Send + Sync,
{
    /// Runs job `i`; the jobs that may begin then.
    fn run(&self, i: usize, known: &K) -> Vec<(usize, K)> {
        if self.bench().is_over {
            return Vec::new();
        }
        let outcome = (self.job)(i, known);
        let mut bench = self.bench();
        bench.early.insert(i, outcome);
        let mut ready = Vec::new();
        while !bench.is_over {
            let turn = bench.judged;
            let Some(outcome) = bench.early.remove(&turn) else {
                break;
            };
            bench.judged += 1;
            match (bench.judge)(outcome) {
                Some(known) if turn + self.ahead < self.len => {
                    ready.push((turn + self.ahead, known));
                }
                Some(_) => {}
                None => bench.is_over = true,
            }
        }
        ready
    }

    /// A judge that panicked is not asked again, for the panic ends the relay.
    fn bench(&self) -> MutexGuard<'_, Bench<F, T>> {
        self.bench.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(feature = "parallel")]
    fn spawn<'s>(&'s self, scope: &rayon::ScopeFifo<'s>, jobs: impl IntoIterator<Item = (usize, K)>)
    where
        K: 's,
    {
        for (i, known) in jobs {
            scope.spawn_fifo(move |scope| self.spawn(scope, self.run(i, &known)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::relay;
    use crate::linalg::parallel::with_threads;

    /// What each of `len` jobs knew, judged until `enough` of them have been: how many outcomes there were.
    fn known(len: usize, ahead: usize, enough: usize, n_threads: usize) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        let job = |i: usize, known: &usize| {
            // Of unequal length, so that some come before their turn.
            std::thread::sleep(std::time::Duration::from_micros(150 * (i as u64 * 7 % 5)));
            (i, *known)
        };
        with_threads(Some(n_threads), || {
            relay(len, ahead, &0, job, |outcome| {
                seen.push(outcome);
                (seen.len() < enough).then_some(seen.len())
            });
        })
        .unwrap();
        seen
    }

    #[test]
    fn a_job_knows_what_was_known_a_few_jobs_ago_whatever_the_threads() {
        for n_threads in [1, 2, 4] {
            let seen = known(23, 4, 100, n_threads);
            let right: Vec<_> = (0..23_usize).map(|i| (i, i.saturating_sub(3))).collect();
            assert_eq!(seen, right);
        }
    }

    #[test]
    fn nothing_is_judged_once_it_is_enough() {
        for n_threads in [1, 2, 4] {
            let seen = known(23, 4, 9, n_threads);
            assert_eq!(seen.last(), Some(&(8, 5)));
        }
    }

    #[test]
    fn few_jobs_or_none_are_no_trouble() {
        for n_threads in [1, 2] {
            assert_eq!(known(0, 4, 100, n_threads), []);
            assert_eq!(known(2, 4, 100, n_threads), [(0, 0), (1, 0)]);
            assert_eq!(known(3, 1, 100, n_threads), [(0, 0), (1, 1), (2, 2)]);
        }
    }

    #[test]
    fn a_panic_in_a_job_is_one_of_the_caller() {
        for n_threads in [1, 2] {
            let fit = || {
                with_threads(Some(n_threads), || {
                    let job = |i: usize, (): &()| assert_ne!(i, 5, "job five");
                    relay(9, 3, &(), job, Some);
                })
            };
            assert!(std::panic::catch_unwind(fit).is_err());
        }
    }
}
