//! Fitted models.

mod finite_checks;
mod outputs;
mod posterior;
mod to_predictor;

pub use crate::model::outputs::OutputPosterior;
pub use crate::model::posterior::Posterior;
