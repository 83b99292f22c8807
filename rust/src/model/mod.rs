//! What a fit leaves behind.

mod posterior;

pub use posterior::Posterior;
