//! Likelihoods other than the Gaussian, through the Laplace approximation.

pub(crate) mod complementarity;
pub(crate) mod fixed_point;
pub(crate) mod mode;
pub(crate) mod rprop;
pub(crate) mod schedule;
pub(crate) mod working_sets;
