//! The C interface of sparsebayes: load a fitted model and predict, from any language that can call C.
//!
//! The header `include/sparsebayes.h` is generated from the comments here. Module `borrow` checks all pointers from C, and
//! `status::guard` runs everything that can fail, so that no panic unwinds into C.
#![allow(clippy::missing_safety_doc)] // the first comment of the header states the conditions for all functions
#![allow(unreachable_pub)] // C uses them

mod borrow;
mod model;
mod predict;
mod status;
