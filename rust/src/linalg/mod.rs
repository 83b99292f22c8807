//! Linear algebra on slices and dense matrices. It knows no model.

#[cfg(feature = "fit")]
pub(crate) mod aligned_columns;
#[cfg(feature = "fit")]
pub(crate) mod batched_triangular;
#[cfg(feature = "fit")]
mod cholesky;
#[cfg(feature = "fit")]
pub(crate) mod column_combination;
#[cfg(feature = "fit")]
pub(crate) mod column_table;
#[cfg(feature = "fit")]
pub(crate) mod double_double;
#[cfg(feature = "fit")]
pub(crate) mod extended_gram;
#[cfg(feature = "fit")]
pub(crate) mod gemm;
#[cfg(feature = "fit")]
mod lower_triangle;
pub(crate) mod simd;
#[cfg(feature = "fit")]
pub(crate) mod symmetric;
#[cfg(feature = "fit")]
pub(crate) mod transpose;
#[cfg(feature = "fit")]
pub(crate) mod vector;

#[cfg(feature = "fit")]
pub use crate::linalg::cholesky::{Cholesky, FactorizationError, NotPositiveDefinite};
#[cfg(feature = "fit")]
pub use crate::linalg::lower_triangle::LowerTriangle;
