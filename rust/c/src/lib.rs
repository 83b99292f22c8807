//! The C interface of sparsebayes: load a fitted model and predict, from any language that can call C.
//!
//! What users read is `include/sparsebayes.h`, written from the comments here. All pointers from outside go through
//! `borrow`, and all that can fail through `status::answer`, so that nothing unwinds into C.
#![allow(clippy::missing_safety_doc)] // the conditions are the same everywhere; the header's first comment says them once
#![allow(unreachable_pub)] // C reaches what Rust does not

mod borrow;
mod model;
mod predict;
mod status;
