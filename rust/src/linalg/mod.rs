//! Matrices and slices only: nothing here knows of alpha or beta.

pub mod blas;
mod cholesky;
pub(crate) mod lanes;
pub(crate) mod parallel;
pub(crate) mod product;
pub(crate) mod simd;

pub use cholesky::{Cholesky, NotPositiveDefinite};
pub use parallel::with_threads;
