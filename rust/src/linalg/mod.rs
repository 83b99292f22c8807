//! Matrices and slices only: nothing here knows of alpha or beta.

#[cfg(feature = "fit")]
pub(crate) mod aligned;
#[cfg(feature = "fit")]
pub mod blas;
#[cfg(feature = "fit")]
mod cholesky;
#[cfg(feature = "fit")]
pub(crate) mod combination;
#[cfg(feature = "fit")]
pub(crate) mod gram;
#[cfg(feature = "fit")]
pub(crate) mod lanes;
#[cfg(feature = "fit")]
mod lower;
pub(crate) mod parallel;
#[cfg(feature = "fit")]
pub(crate) mod product;
pub(crate) mod simd;
#[cfg(feature = "fit")]
pub(crate) mod symmetric;
#[cfg(feature = "fit")]
pub(crate) mod transpose;
#[cfg(feature = "fit")]
pub(crate) mod twofold;

#[cfg(feature = "fit")]
pub use cholesky::{Cholesky, NotPositiveDefinite};
#[cfg(feature = "fit")]
pub use lower::Lower;
pub use parallel::{beside, with_threads};
