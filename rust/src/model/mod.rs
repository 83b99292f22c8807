//! What a fit leaves behind.

mod outputs;
mod posterior;

pub use outputs::OutputPosterior;
pub use posterior::Posterior;
