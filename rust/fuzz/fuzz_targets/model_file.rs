//! Loads bytes as a model file and predicts with what loads. Sound files to begin with are in tests/golden.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../tests/core/alloc.rs"]
mod alloc;
#[path = "../../../tests/core/damaged.rs"]
mod damaged;

fuzz_target!(|bytes: &[u8]| {
    damaged::load(bytes);
    // The same with the length of the header right, which most mutations leave wrong.
    if let Some(end) = bytes.iter().rposition(|&b| b == b'}')
        && end >= 8
    {
        let mut file = bytes.to_vec();
        file[..8].copy_from_slice(&(end as u64 - 7).to_le_bytes());
        damaged::load(&file);
    }
});
