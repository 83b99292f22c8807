//! Searches beyond the greedy optimum.

pub(crate) mod at_mode;
pub(crate) mod backward_elimination;
pub(crate) mod exchange;
pub(crate) mod lns;
pub(crate) mod local;
pub(crate) mod moves;
pub(crate) mod removal;
pub(crate) mod restarts;
