//! Linear algebra on slices and dense matrices. It knows no model.

#[cfg(feature = "fit")]
pub(crate) mod batched_triangular;
#[cfg(feature = "fit")]
mod cholesky;
#[cfg(feature = "fit")]
pub(crate) mod columns;
#[cfg(feature = "fit")]
pub(crate) mod double_double;
#[cfg(feature = "fit")]
pub(crate) mod gemm;
pub(crate) mod simd;
#[cfg(feature = "fit")]
pub(crate) mod vector;

#[cfg(feature = "fit")]
pub use crate::linalg::cholesky::Cholesky;

/// A dense matrix, column after column.
#[cfg(feature = "fit")]
pub type Matrix = nalgebra::DMatrix<f64>;
