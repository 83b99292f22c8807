//! Dictionaries of up to millions of candidates: a working set, priced and screened against the rest.

pub(crate) mod pricing;
pub(crate) mod screening;
pub(crate) mod working_set;
