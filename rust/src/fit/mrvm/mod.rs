//! The multinomial probit machines mRVM1 and mRVM2 (Psorakis et al. 2010).

pub(crate) mod bound;
pub(crate) mod constructive;
pub(crate) mod top_down;
pub(crate) mod trust_region;
