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
//! Data:
//!
//! * [`Observations`]: rows and targets in memory, with a [`Likelihood`].
//! * [`Design`]: the basis functions at those rows: [`DenseDesign`] is a stored matrix, [`KernelDesign`] evaluates a
//!   [`Kernel`] when its values are needed.
//! * [`SufficientStatistics`]: sums over rows that can be updated and merged, for rows that do not fit into memory;
//!   [`SumStatistics`] fits them.
//! * [`Statistics`]: the trait behind these, for data that are stored elsewhere.
//!
//! Fits:
//!
//! * [`fit`] runs the [`Scheme`] that the [`Settings`] name, by default the sequential one of Tipping & Faul (2003), and
//!   calls a [`StepCallback`] function after each [`Step`].
//! * [`Posterior`] is the result, and its [`Status`] tells how the fit ended.
//! * [`Predictor`] predicts: from a posterior or a file, without any of the training code. See [`predictor`].
//!
//! Features, all on by default: `fit` trains, `parallel` uses several threads, `save` writes model files. Without default
//! features the crate is [`Predictor`] alone and has 22 dependencies, and 7 more at build time, instead of 52:
//! `cargo tree --no-default-features --edges normal`.
#![forbid(unsafe_code)]

#[cfg(feature = "fit")]
mod data;
mod error;
#[cfg(feature = "fit")]
mod fit;
mod kernel;
mod likelihood;
mod linalg;
#[cfg(feature = "fit")]
mod model;
mod parallel;
pub mod predictor;
mod special;

pub use crate::error::{Error, Result};
pub use crate::kernel::{Kernel, Points};
pub use crate::parallel::with_threads;
pub use crate::predictor::Predictor;
#[cfg(feature = "fit")]
pub use crate::{
    data::{
        DenseDesign, Design, Facts, GramAndGradient, KernelDesign, Observations, Statistics,
        SufficientStatistics, SumStatistics, Sweep,
    },
    error::NotPositiveDefinite,
    fit::{
        Action, Complexity, Noise, Rules, Scheme, Search, Settings, Status, Step, StepCallback,
        fit, fit_rows,
    },
    likelihood::Likelihood,
    linalg::Matrix,
    model::Posterior,
};

/// What the Python extension, the tests and the benchmarks need besides. It may change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::likelihood::probit::{Expectations, Probit};
    #[cfg(feature = "parallel")]
    pub use crate::parallel::run_alongside;
    #[cfg(feature = "fit")]
    pub use crate::{
        data::{
            Block, CandidateProducts, CentredProvider, Family, JoinedDesign, ProviderStatistics,
            RowPart, RowProvider, SoftmaxStatistics,
        },
        fit::{
            Ascent, BlockCheckpoint, Blocks, FirstStage, GroupPosterior, GroupProblem, MStep,
            OutputNoise, RetargetedFit, SaveCheckpoint, TopDownFit, fit_from, fit_groups,
            fit_in_blocks, fit_outputs,
        },
        likelihood::Working,
        linalg::Cholesky,
        model::OutputPosterior,
    };
}

/// Compiles and runs the Rust example of the documentation.
#[cfg(all(doctest, feature = "fit"))]
#[doc = include_str!("../../docs/rust-and-c.md")]
struct RustAndC;
