//! The C interface: any file, and calls that keep the one promise C has to keep (that memory is there) and no other.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use crate::harness::Target;
use crate::loader::Files;
use crate::model::{
    Model, sb_class_label, sb_format_version, sb_free, sb_is_classifier, sb_load, sb_load_bytes,
    sb_n_classes, sb_n_decisions, sb_n_features, sb_n_outputs, sb_n_predicted,
};
use crate::predict::{
    sb_classify, sb_decision, sb_predict, sb_predict_one, sb_predict_proba, sb_predict_std,
};
use crate::random::Random;
use crate::status::{Status, sb_last_error};

/// Numbers before and after the room for an answer, which nobody may touch.
const FENCE: usize = 8;
/// What stands there: no arithmetic makes it.
const UNTOUCHED: f64 = f64::from_bits(0x7ff8_dead_beef_0001);

/// A file, and where the calls on it begin.
#[derive(Debug)]
pub(crate) struct Calls {
    file: Vec<u8>,
    seed: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Interface(Files);

impl Interface {
    pub(crate) fn new() -> Self {
        Self(Files::new())
    }
}

impl Target for Interface {
    type Input = Calls;

    fn make(&self, random: &mut Random) -> Calls {
        let seed = random.next();
        // Half of them sound, or there would be no model to ask.
        let file = if random.one_in(2) {
            self.0.sound(random)
        } else {
            self.0.make(random)
        };
        Calls { file, seed }
    }

    fn run(&self, input: &Calls) -> Result<&'static str, String> {
        let mut random = Random::of_case(input.seed, 0);
        let mut model: *mut Model = null_mut();
        let status = load(&input.file, &mut random, &mut model)?;
        if (status == Status::Ok) == model.is_null() {
            return Err(format!("{status:?} with model {model:?}"));
        }
        if model.is_null() {
            return expect_reason(status).map(|()| "refused");
        }
        let outcome = (0..6).try_for_each(|_| call(model, &mut random));
        // SAFETY: it came from sb_load, and is not used any more.
        unsafe { sb_free(model) };
        outcome.map(|()| "loaded")
    }

    fn to_bytes(&self, input: &Calls) -> Vec<u8> {
        let mut bytes = input.seed.to_le_bytes().to_vec();
        bytes.extend(&input.file);
        bytes
    }

    fn read(&self, bytes: &[u8]) -> Option<Calls> {
        let seed = u64::from_le_bytes(*bytes.first_chunk::<8>()?);
        let file = bytes[8..].to_vec();
        Some(Calls { file, seed })
    }
}

/// By way of memory, and now and then of the disk.
fn load(file: &[u8], random: &mut Random, model: &mut *mut Model) -> Result<Status, String> {
    if !random.one_in(64) {
        // SAFETY: the bytes are there, and so is the place for the model.
        return Ok(unsafe { sb_load_bytes(file.as_ptr(), file.len(), model) });
    }
    let path = std::env::temp_dir().join(format!("sparsebayes-fuzz-{}", std::process::id()));
    std::fs::write(&path, file).map_err(|error| error.to_string())?;
    let name =
        CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the text ends with a zero byte, and there is a place for the model.
    let status = unsafe { sb_load(name.as_ptr(), model) };
    std::fs::remove_file(&path).map_err(|error| error.to_string())?;
    Ok(status)
}

/// A refusal is none of the library's faults, and says why.
fn expect_reason(status: Status) -> Result<(), String> {
    // SAFETY: the text is never NULL and lasts until the next failure.
    let reason = unsafe { std::ffi::CStr::from_ptr(sb_last_error()) }.to_string_lossy();
    if status == Status::Internal || reason.is_empty() {
        return Err(format!("{status:?}: {reason}"));
    }
    Ok(())
}

/// Room for an answer between two fences.
struct Room(Vec<f64>);

impl Room {
    fn new(len: usize) -> Self {
        Self(vec![UNTOUCHED; len + 2 * FENCE])
    }

    fn place(&mut self) -> *mut f64 {
        self.0[FENCE..].as_mut_ptr()
    }

    fn check(&self) -> Result<(), String> {
        let untouched = |v: &f64| v.to_bits() == UNTOUCHED.to_bits();
        let end = self.0.len() - FENCE;
        if self.0[..FENCE].iter().chain(&self.0[end..]).all(untouched) {
            Ok(())
        } else {
            Err("something was written outside the room for the answer".into())
        }
    }
}

/// A length: mostly the right one, `n`, and never one that memory of `there` numbers does not hold unless it has to be refused.
fn length(n: usize, random: &mut Random) -> usize {
    match random.below(12) {
        0 => n.saturating_sub(1),
        1 => 0,
        2 => usize::MAX,
        3 => usize::MAX / 8 + 2,
        _ => n,
    }
}

/// Features of a row, and how many numbers predictions, error bars, linear predictors and classes of a row are.
fn facts(model: *const Model) -> (usize, [usize; 4]) {
    // SAFETY: the model is there, and NULL is allowed.
    unsafe {
        let _ = (sb_is_classifier(model), sb_format_version(model));
        assert_eq!(sb_n_features(null()), 0);
        let widths = [
            sb_n_predicted(model),
            sb_n_outputs(model),
            sb_n_decisions(model),
            sb_n_classes(model),
        ];
        (sb_n_features(model), widths)
    }
}

/// Rows, of which a few hold something wild.
fn numbers(n: usize, random: &mut Random) -> Vec<f64> {
    let mut all: Vec<f64> = (0..n).map(|_| random.normal()).collect();
    if n > 0 && random.one_in(4) {
        let at = random.below(n);
        all[at] = random.wild();
    }
    all
}

/// One call of one function.
fn call(model: *const Model, random: &mut Random) -> Result<(), String> {
    let (d, widths) = facts(model);
    if d > 1 << 16 {
        return Ok(());
    }
    let rows = random.below(20);
    let x = numbers(rows * d, random);
    let which = random.below(7);
    let width = match which {
        5 => return label(model, widths[3], random),
        6 => return one(model, &x, d, random),
        4 => 1,
        other => widths[other.min(3)],
    };
    let (mut out, mut std) = (Room::new(rows * width), Room::new(rows * width));
    // A length that is wrong is refused before memory is touched, for it fits neither the model nor the other length.
    let (n_rows, n_out) = if random.one_in(4) {
        (length(rows, random), length(rows * width, random))
    } else {
        (rows, rows * width)
    };
    let fits = n_rows == rows && n_out == rows * width || n_rows.checked_mul(width) != Some(n_out);
    let nowhere = random.one_in(30);
    let x_at = if nowhere { null() } else { x.as_ptr() };
    let (n_rows, n_out) = if fits {
        (n_rows, n_out)
    } else {
        (rows, rows * width)
    };
    let nowhere = random.one_in(30);
    let mut to = if nowhere { null_mut() } else { out.place() };
    if rows > 0 && random.one_in(30) {
        // Not where a number may lie.
        to = to.wrapping_byte_add(1);
    }
    // Answers may not share memory.
    let std_at = if random.one_in(30) { to } else { std.place() };
    // SAFETY: where lengths fit, x and the answers have room for them; where they do not, nothing is followed.
    let status = unsafe {
        match which {
            0 => sb_predict(model, x_at, n_rows, d, to, n_out),
            1 => sb_predict_std(model, x_at, n_rows, d, to, std_at, n_out),
            2 => sb_decision(model, x_at, n_rows, d, to, n_out),
            3 => sb_predict_proba(model, x_at, n_rows, d, to, n_out),
            _ => sb_classify(model, x_at, n_rows, d, to.cast(), n_out),
        }
    };
    out.check()?;
    std.check()?;
    if status == Status::Ok {
        Ok(())
    } else {
        expect_reason(status)
    }
}

fn label(model: *const Model, classes: usize, random: &mut Random) -> Result<(), String> {
    let (class, size) = (random.below(classes + 2), random.below(12));
    let mut text = vec![0x55_u8; size + FENCE];
    let mut needed = 0;
    // SAFETY: there is room for `size` bytes and for a number.
    let status = unsafe {
        sb_class_label(
            model,
            class,
            text.as_mut_ptr().cast(),
            size,
            &raw mut needed,
        )
    };
    if text[size..].iter().any(|&b| b != 0x55) {
        return Err("a label is longer than its room".into());
    }
    if status == Status::Ok {
        Ok(())
    } else {
        expect_reason(status)
    }
}

fn one(model: *const Model, x: &[f64], d: usize, random: &mut Random) -> Result<(), String> {
    let n = if random.one_in(4) {
        x.len().min(d + 1)
    } else {
        x.len().min(d)
    };
    let mut out = 0.0;
    // SAFETY: there are so many numbers, and there is a place for one.
    let status = unsafe { sb_predict_one(model, x.as_ptr(), n, &raw mut out) };
    if status == Status::Ok {
        Ok(())
    } else {
        expect_reason(status)
    }
}
