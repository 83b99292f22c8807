//! Low-rank features of smooth kernels: a pivoted Cholesky factor of the dictionary, and bounds on what it leaves out.

pub(crate) mod basis;
pub(crate) mod bounds;
pub(crate) mod features;
pub(crate) mod pivoted_cholesky;
pub(crate) mod policy;
pub(crate) mod statistics;
