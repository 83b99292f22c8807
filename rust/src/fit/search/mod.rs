//! Searches for a better model than the greedy optimum.

pub(crate) mod exchange;
pub(crate) mod lns;
mod moves;
