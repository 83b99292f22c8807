//! Whoever watches a fit, and may end it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::problem::Problem;

/// Ends a fit after so many steps, as a watcher or as another thread would.
pub(crate) struct Watcher {
    left: Option<usize>,
    by_flag: bool,
    flag: Arc<AtomicBool>,
}

impl Watcher {
    pub(crate) fn of(problem: &Problem) -> Self {
        Self {
            left: (problem.stop_after > 0).then_some(problem.stop_after),
            by_flag: problem.by_flag,
            flag: Arc::default(),
        }
    }

    /// What is raised to end a fit from outside.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    pub(crate) fn step(&mut self) -> ControlFlow<()> {
        let Some(left) = &mut self.left else {
            return ControlFlow::Continue(());
        };
        *left = left.saturating_sub(1);
        if *left > 0 {
            return ControlFlow::Continue(());
        }
        if self.by_flag {
            self.flag.store(true, Ordering::Relaxed);
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(())
    }
}
