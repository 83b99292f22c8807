//! The core crate from outside: problems of known structure, fitted and held to the formulas written out densely.
#![allow(clippy::unwrap_used)] // a test that cannot go on had better say where

mod alloc;
mod dense;
mod fits;
mod invariants;
mod outputs;
mod predictor;
mod problems;
mod providers;
mod refusals;
