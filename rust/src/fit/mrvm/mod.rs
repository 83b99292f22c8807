//! The multiclass relevance vector machines mRVM1 and mRVM2 (Psorakis et al. 2010) with a multinomial probit likelihood.

mod bound;
mod constructive;
mod top_down;
mod trust_region;

pub use constructive::{MStep, RetargetedFit};
pub use top_down::TopDownFit;
pub use trust_region::Ascent;
