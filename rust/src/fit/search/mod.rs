//! Searches for a better model than the greedy optimum.

pub(crate) mod lns;
pub(crate) mod moves;
