//! Memory that a thread keeps from one prediction to the next.

use std::cell::Cell;

use crate::kernel::Points;
use crate::likelihood::probit::Workspace;

/// Workspace for numbers, points and integrals.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Of no particular value.
    pub(crate) values: Vec<f64>,
    pub(crate) points: Points,
    pub(crate) room: Workspace,
}

/// Numbers that a thread keeps; what a larger model needs is given back.
const KEPT: usize = 1 << 18;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Calls `f` with room for `len` numbers at least.
pub(crate) fn with_scratch<T>(len: usize, f: impl FnOnce(&mut Scratch) -> T) -> T {
    // Taken out, so that a call within a call has its own.
    let mut scratch = SCRATCH.take().unwrap_or_default();
    if scratch.values.len() < len {
        scratch.values.resize(len, 0.0);
    }
    let result = f(&mut scratch);
    if scratch.values.len() <= KEPT {
        SCRATCH.set(Some(scratch));
    }
    result
}
