//! Calls the C interface with sound and damaged files, with at most one wrong argument a call. AddressSanitizer sees what is
//! read or written outside the arrays.
#![no_main]
#![allow(unreachable_pub, dead_code)] // of the included modules

use std::ffi::CStr;
use std::ptr::null_mut;

use libfuzzer_sys::{arbitrary, arbitrary::Arbitrary, fuzz_target};

// The library of rust/c is for C alone, so its sources are compiled once more.
#[path = "../../c/src/borrow.rs"]
mod borrow;
#[path = "../../c/src/model.rs"]
mod model;
#[path = "../../c/src/predict.rs"]
mod predict;
#[path = "../../c/src/status.rs"]
mod status;

use model::*;
use predict::*;
use status::{Status, sb_last_error};

macro_rules! golden {
    ($($name:literal),*) => {
        [$(include_bytes!(concat!("../../../tests/golden/format-1/", $name, ".safetensors"))),*]
    };
}

static FILES: [&[u8]; 6] = golden![
    "regression",
    "outputs",
    "one_input",
    "two_classes",
    "softmax",
    "probit"
];

#[derive(Arbitrary, Debug)]
struct Input {
    file: u8,
    /// Bytes written over others of the file.
    damage: Vec<(u16, u8)>,
    calls: Vec<Call>,
}

#[derive(Arbitrary, Debug)]
struct Call {
    function: u8,
    n_rows: u8,
    x: Vec<f64>,
    /// Which argument is wrong, and its value if it is a length.
    wrong: Option<(u8, usize)>,
}

/// A refusal has a reason, which is no fault of the library.
fn check(status: Status) {
    // SAFETY: the text is never NULL and lasts until the next failure.
    let reason = unsafe { CStr::from_ptr(sb_last_error()) };
    assert_ne!(status, Status::Internal, "{reason:?}");
    assert!(status == Status::Ok || !reason.is_empty());
}

/// # Safety
/// The model is there.
unsafe fn call(model: *const Model, call: &Call) {
    // SAFETY: the caller's promise.
    let (d, widths) = unsafe {
        let (mean, each) = (sb_n_predicted(model), sb_n_outputs(model));
        (
            sb_n_features(model),
            [mean, mean, sb_n_decisions(model), each, 1, 1, 1],
        )
    };
    let which = usize::from(call.function) % widths.len();
    let rows = if which == 5 {
        1
    } else {
        usize::from(call.n_rows % 16)
    };
    if d > 1 << 12 {
        return;
    }
    let given = call.x.iter().copied().chain(std::iter::repeat(0.5));
    let mut x: Vec<f64> = given.take(rows * d).collect();
    let (mut n_rows, mut n_features, mut n_out) = (rows, d, rows * widths[which]);
    let (mut out, mut std) = (vec![0.0; n_out], vec![0.0; n_out]);
    let (mut x_at, mut to, mut std_at) = (x.as_mut_ptr(), out.as_mut_ptr(), std.as_mut_ptr());
    match call.wrong {
        _ if rows == 0 => {}
        Some((0, _)) => x_at = null_mut(),
        Some((1, _)) => to = null_mut(),
        Some((2, _)) => to = to.wrapping_byte_add(1),
        Some((3, _)) => std_at = to,
        Some((4, _)) => to = x_at,
        Some((5, length)) => n_rows = length,
        Some((6, length)) => n_out = length,
        Some((7, length)) if which != 5 || length < d => n_features = length,
        _ => {}
    }
    // SAFETY: the arrays are as long as the lengths say. A wrong length does not fit the others, and is refused.
    check(unsafe {
        match which {
            0 => sb_predict(model, x_at, n_rows, n_features, to, n_out),
            1 => sb_predict_proba(model, x_at, n_rows, n_features, to, n_out),
            2 => sb_decision(model, x_at, n_rows, n_features, to, n_out),
            3 => sb_predict_std(model, x_at, n_rows, n_features, to, std_at, n_out),
            4 => sb_classify(model, x_at, n_rows, n_features, to.cast(), n_out),
            5 => sb_predict_one(model, x_at, n_features, to),
            _ => {
                let mut text = vec![0_u8; call.x.len()];
                let (at, mut needed) = (text.as_mut_ptr().cast(), 0);
                sb_class_label(model, rows, at, text.len(), &raw mut needed)
            }
        }
    });
}

fuzz_target!(|input: Input| {
    let mut file = FILES[usize::from(input.file) % FILES.len()].to_vec();
    for &(at, byte) in &input.damage {
        let at = usize::from(at) % file.len();
        file[at] = byte;
    }
    let mut model = null_mut();
    // SAFETY: the bytes are there, and so is the place for the model.
    let status = unsafe { sb_load_bytes(file.as_ptr(), file.len(), &raw mut model) };
    check(status);
    assert_eq!(status == Status::Ok, !model.is_null());
    if status == Status::Ok {
        // SAFETY: the model is there.
        (input.calls.iter().take(16)).for_each(|one| unsafe { call(model, one) });
    }
    // SAFETY: it came from sb_load_bytes or is NULL, and is not used any more.
    unsafe { sb_free(model) };
});
