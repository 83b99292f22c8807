//! Fits small problems at the ends of arithmetic, and holds each fit to what must be true of all.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../extreme.rs"]
mod extreme;

fuzz_target!(|recipe: extreme::Recipe| {
    extreme::Extreme::from(recipe).run();
});
