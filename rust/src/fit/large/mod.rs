//! Dictionaries of up to millions of candidates: a working set, and passes that price the rest.

mod pricing;
pub(crate) mod working_set;
