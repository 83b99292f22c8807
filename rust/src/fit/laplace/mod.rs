//! Likelihoods other than the Gaussian, by the Laplace approximation.

mod complementarity;
mod fixed_point;
pub(crate) mod mode;
mod residual;
pub(crate) mod schedule;
mod working_sets;
