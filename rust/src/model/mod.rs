//! What a fit leaves behind.

mod in_range;
mod outputs;
mod posterior;
mod served;

pub use outputs::OutputPosterior;
pub use posterior::Posterior;
