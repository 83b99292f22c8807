//! The core crate from outside: problems of known structure, fitted and compared with dense formulas.
#![allow(clippy::unwrap_used)] // a panic names its line

mod alloc;
#[cfg(feature = "fit")]
mod blocks;
mod cases;
mod damaged;
#[cfg(feature = "fit")]
mod dense;
#[cfg(feature = "fit")]
#[path = "../../rust/fuzz/extreme.rs"]
mod extreme;
#[cfg(feature = "fit")]
mod extremes;
#[cfg(feature = "fit")]
mod fits;
mod golden;
#[cfg(feature = "fit")]
mod indefinite;
#[cfg(feature = "fit")]
mod invariants;
#[cfg(feature = "fit")]
mod mrvm;
#[cfg(feature = "fit")]
mod outputs;
mod predictor;
#[cfg(feature = "fit")]
mod problems;
#[cfg(feature = "fit")]
mod providers;
#[cfg(feature = "fit")]
mod refusals;
#[cfg(feature = "fit")]
mod row_sums;
#[cfg(feature = "fit")]
mod threads;
