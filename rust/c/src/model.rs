//! Models as handles: where they come from, what they are, where they go.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sparsebayes::Predictor;

use crate::borrow::{place, reference, room, slice};
use crate::status::{Failure, Status, answer};

/// A fitted model. It never changes.
#[derive(Debug)]
pub struct Model(pub(crate) Predictor);

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Model>();
};

/// Reads a model file, as `save` of a fitted estimator writes it.
///
/// `path` ends with a zero byte: the bytes that the system knows the file by, on Windows UTF-8.
/// `*model` becomes the model, to be given to `sb_free` in the end, or NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_load(path: *const c_char, model: *mut *mut Model) -> Status {
    answer(|| {
        // SAFETY: the caller says that it points to a pointer of its own.
        let model = unsafe { place("model", model) }?;
        *model = std::ptr::null_mut();
        // SAFETY: the caller says that a string is there if it is not NULL.
        let path = unsafe { reference("path", path).map(|path| CStr::from_ptr(path)) }?;
        *model = handle(Predictor::load(as_path(path)?)?);
        Ok(())
    })
}

/// Makes a model of the `n_bytes` bytes of a model file, which need not stay.
///
/// `*model` becomes the model, to be given to `sb_free` in the end, or NULL if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_load_bytes(
    bytes: *const u8,
    n_bytes: usize,
    model: *mut *mut Model,
) -> Status {
    answer(|| {
        // SAFETY: the caller says that it points to a pointer of its own.
        let model = unsafe { place("model", model) }?;
        *model = std::ptr::null_mut();
        // SAFETY: the caller says that so many bytes are there.
        let bytes = unsafe { slice("bytes", bytes, n_bytes) }?;
        *model = handle(Predictor::from_bytes(bytes)?);
        Ok(())
    })
}

/// Frees a model, once, when no thread uses it any more. NULL is no model, and nothing happens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_free(model: *mut Model) {
    if model.is_null() {
        return;
    }
    // SAFETY: it came from `handle`, and the caller says that it is not used any more.
    let model = unsafe { Box::from_raw(model) };
    // Nothing in it panics when dropped; if that should change, C is not the place to unwind to.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(model)));
}

/// Numbers in a row of x; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_features(model: *const Model) -> usize {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, Predictor::n_features) }
}

/// Outputs of a regression, linear predictors of a classifier; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_outputs(model: *const Model) -> usize {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, Predictor::n_outputs) }
}

/// Number of classes; 0 for a regression and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_classes(model: *const Model) -> usize {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, Predictor::n_classes) }
}

/// Numbers that `sb_predict` makes of a row: one for each output, or for each class; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_predicted(model: *const Model) -> usize {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, Predictor::n_predicted) }
}

/// Numbers that `sb_decision` makes of a row; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_decisions(model: *const Model) -> usize {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, Predictor::n_decisions) }
}

/// Whether the model predicts classes; false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_is_classifier(model: *const Model) -> bool {
    // SAFETY: as for `known`.
    unsafe { known(model, false, Predictor::is_classifier) }
}

/// Version of the form of the file that the model came from; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_format_version(model: *const Model) -> u32 {
    // SAFETY: as for `known`.
    unsafe { known(model, 0, |model| model.header().format_version) }
}

/// Version of the library, "1.2.3" for instance. The text is always there.
#[unsafe(no_mangle)]
pub extern "C" fn sb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Writes the label of a class, counted from 0, as UTF-8 text with a zero byte at the end into `size` bytes at `text`.
///
/// Labels that are strings are copied as they are, others written as JSON has them: `1`, `0.5`, `true`; dates as the
/// whole number that NumPy keeps for them. `*needed`, unless `needed` is NULL, becomes the number of bytes that it takes
/// with the zero byte. With `size` 0 nothing is written and `text` may be NULL, which is the way to ask for that number;
/// any other `size` that is too small is `SB_STATUS_BAD_LENGTH`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_class_label(
    model: *const Model,
    class_index: usize,
    text: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> Status {
    answer(|| {
        // SAFETY: the caller says that a model is there.
        let model = unsafe { reference("model", model) }?;
        let label = label(&model.0, class_index)?;
        let length = label.len() + 1;
        if !needed.is_null() {
            // SAFETY: the caller says that a number of its own is there.
            *unsafe { place("needed", needed) }? = length;
        }
        if size == 0 {
            return Ok(());
        }
        if size < length {
            let message = format!("the label takes {length} bytes, and there is room for {size}");
            return Err(Failure::new(Status::BadLength, message));
        }
        // SAFETY: the caller says that there is room for `size` bytes, and these are not more.
        let text = unsafe { room("text", text.cast::<u8>(), length) }?;
        text[..length - 1].copy_from_slice(label.as_bytes());
        text[length - 1] = 0;
        Ok(())
    })
}

fn label(model: &Predictor, class: usize) -> Result<String, Failure> {
    let labels = model.header().classes.as_ref();
    let labels = labels.map_or(&[][..], |classes| &classes.values);
    match labels.get(class) {
        Some(label) => Ok(label
            .as_str()
            .map_or_else(|| label.to_string(), str::to_owned)),
        None => Err(Failure::new(
            Status::Invalid,
            format!(
                "there are {} classes, counted from 0; got class {class}",
                labels.len()
            ),
        )),
    }
}

fn handle(model: Predictor) -> *mut Model {
    Box::into_raw(Box::new(Model(model)))
}

/// What is known of a model, or `otherwise` where there is none.
///
/// # Safety
/// `model` is NULL, or points to a model that is not freed meanwhile.
unsafe fn known<T>(model: *const Model, otherwise: T, ask: impl FnOnce(&Predictor) -> T) -> T {
    // SAFETY: the caller's promise.
    let model = unsafe { model.as_ref() };
    // These do no more than read a number.
    model.map_or(otherwise, |model| ask(&model.0))
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // on other systems it can fail
fn as_path(path: &CStr) -> Result<&Path, Failure> {
    use std::os::unix::ffi::OsStrExt;
    Ok(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

#[cfg(not(unix))]
fn as_path(path: &CStr) -> Result<&Path, Failure> {
    let path = path.to_str().map(Path::new);
    path.map_err(|_| Failure::new(Status::Invalid, "path must be UTF-8"))
}
