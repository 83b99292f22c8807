//! Likelihoods: the distribution of a target given its linear predictors. They know eta and t, never Phi.

pub(crate) mod link;
pub(crate) mod probit;
#[cfg(feature = "fit")]
mod univariate;

#[cfg(feature = "fit")]
pub(crate) use crate::likelihood::univariate::WorkingRows;
#[cfg(feature = "fit")]
pub use crate::likelihood::univariate::{Likelihood, Working};
