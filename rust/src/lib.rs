//! Sparse Bayesian learning: the relevance vector machine and its family.
//!
//! The model is a weighted sum of basis functions, `eta(x) = sum_j w_j phi_j(x)`, with an independent Gaussian prior
//! on each weight, `w_j ~ Normal(0, 1/alpha_j)`, and a likelihood for the target given eta. The alphas (and the noise
//! level) are those that maximise the marginal likelihood; most of them come out infinite, which leaves a handful of
//! functions.
//!
//! ```
//! use sparsebayes::{DenseDesign, Likelihood, Observations, Settings, fit};
//! use std::ops::ControlFlow;
//!
//! // Three columns; the target is twice the second.
//! let phi = vec![1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 2.0, 3.0, 1.0, -1.0, 1.0, -1.0];
//! let target = vec![0.01, 2.01, 3.98, 6.0];
//! let design = DenseDesign::new(phi, 4, 3)?;
//! let mut observations = Observations::new(&design, Likelihood::Gaussian, target, None)?;
//! let posterior = fit(&mut observations, &Settings::default().check()?, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!(posterior.active, [1]);
//! assert!((posterior.mu[0] - 2.0).abs() < 0.02);
//! # Ok::<(), sparsebayes::Error>(())
//! ```
//!
//! * [`Statistics`]: all that a fit may ask of the data; [`Observations`] answers from rows in memory.
//! * [`RowProvider`]: the same in the units of the rows, for rows that somebody else holds; [`ProviderStatistics`] fits them, and a [`RowPart`] of
//!   the rows in memory answers for itself. [`CentredProvider`] subtracts the means of columns.
//! * [`SufficientStatistics`]: rows as sums that are updated and merged; [`SumStatistics`] answers from them.
//! * [`Design`]: the basis functions at those rows: [`DenseDesign`] stored, [`KernelDesign`] evaluated when asked,
//!   [`JoinedDesign`] two of these side by side.
//! * [`fit`]: the sequential scheme of Tipping & Faul (2003); [`Posterior`] is what it returns.
//! * [`fit_outputs`]: the same for several targets that share their functions; it asks [`OutputStatistics`].
//! * [`Probit`]: the multinomial probit likelihood, for models whose noisy scores compete for the class.
//! * [`Predictor`]: fitted models out of files, for services; [`predictor`] shows one.
//!
//! Features, all on by default: `fit` trains, `parallel` uses several threads, `save` writes model files. Without default
//! features the crate is [`Predictor`] alone and needs 22 crates, and 7 that only the compiler runs, where it otherwise needs
//! 52: `cargo tree --no-default-features --edges normal`.
#![forbid(unsafe_code)]

pub(crate) mod parallel;

#[cfg(feature = "fit")]
mod data;
mod error;
#[cfg(feature = "fit")]
mod fit;
mod kernel;
#[cfg(feature = "fit")]
mod likelihood;
pub mod linalg;
#[cfg(feature = "fit")]
mod model;
pub mod predictor;
mod special;

#[cfg(feature = "fit")]
pub use crate::data::{
    Block, BoundSample, CandidateProducts, CentredProvider, DenseDesign, Design, DictionaryPart,
    Family, JoinedDesign, KernelDesign, Observations, OutputObservations, OutputStatistics,
    ProviderStatistics, Residuals, RowMajorDesign, RowPart, RowProvider, ScreeningBounds,
    SoftmaxStatistics, Statistics, SufficientStatistics, SumStatistics, Sweep,
};
pub use crate::error::{Error, Result};
#[cfg(feature = "fit")]
pub use crate::fit::{
    Action, Ascent, BlockCheckpoint, Blocks, MStep, Noise, OutputNoise, RetargetedFit, Rules,
    SaveCheckpoint, Scheme, Search, Settings, Status, Step, TopDownFit, Watch, fit, fit_in_blocks,
    fit_outputs,
};
pub use crate::kernel::{Kernel, Points};
pub use crate::likelihood::probit::{Expectations, Probit};
#[cfg(feature = "fit")]
pub use crate::likelihood::{Likelihood, Working};
#[cfg(feature = "fit")]
pub use crate::model::{OutputPosterior, Posterior};
pub use crate::predictor::Predictor;

/// Compiles and runs what the README says of Rust.
#[cfg(all(doctest, feature = "fit"))]
#[doc = include_str!("../../README.md")]
struct ReadMe;
