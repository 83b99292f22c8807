//! Models as handles: load, query, free.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use sparsebayes::Predictor;

use crate::borrow::{output, place, reference, slice};
use crate::status::{Failure, Status, guard};

/// A fitted model. It never changes.
#[derive(Debug)]
pub struct Model(pub(crate) Predictor);

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Model>();
};

/// Reads a model file, as `save` of a fitted estimator writes it.
///
/// `path` is a zero-terminated string in the encoding of the file system, on Windows UTF-8.
/// `*model` becomes the model, which `sb_free` frees, or NULL after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_load(path: *const c_char, model: *mut *mut Model) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees that it points to a pointer.
        let model = unsafe { place("model", model) }?;
        *model = std::ptr::null_mut();
        // SAFETY: the caller guarantees that it is NULL or a string.
        let path = unsafe { reference("path", path).map(|path| CStr::from_ptr(path)) }?;
        *model = handle(Predictor::load(as_path(path)?)?);
        Ok(())
    })
}

/// Reads a model from the `n_bytes` bytes of a model file, which are not needed afterwards.
///
/// `*model` becomes the model, which `sb_free` frees, or NULL after a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_load_bytes(
    bytes: *const u8,
    n_bytes: usize,
    model: *mut *mut Model,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees that it points to a pointer.
        let model = unsafe { place("model", model) }?;
        *model = std::ptr::null_mut();
        // SAFETY: the caller guarantees this number of bytes.
        let bytes = unsafe { slice("bytes", bytes, n_bytes) }?;
        *model = handle(Predictor::from_bytes(bytes)?);
        Ok(())
    })
}

/// Frees a model that no thread uses any more. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_free(model: *mut Model) {
    if model.is_null() {
        return;
    }
    // SAFETY: it came from `handle`, and the caller guarantees that it is not used any more.
    let model = unsafe { Box::from_raw(model) };
    // Dropping a model does not panic; if it did, the panic must not unwind into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(model)));
}

/// Number of features; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_features(model: *const Model) -> usize {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, Predictor::n_features) }
}

/// Number of outputs of a regression or linear predictors of a classifier; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_outputs(model: *const Model) -> usize {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, Predictor::n_outputs) }
}

/// Number of classes; 0 for a regression and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_classes(model: *const Model) -> usize {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, Predictor::n_classes) }
}

/// Numbers per row of `sb_predict`: one for each output or class; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_predicted(model: *const Model) -> usize {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, Predictor::n_predicted) }
}

/// Numbers per row of `sb_decision`; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_n_decisions(model: *const Model) -> usize {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, Predictor::n_decisions) }
}

/// Whether the model predicts classes; false for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_is_classifier(model: *const Model) -> bool {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, false, Predictor::is_classifier) }
}

/// Format version of the model file; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_format_version(model: *const Model) -> u32 {
    // SAFETY: the caller guarantees the conditions of `query`.
    unsafe { query(model, 0, |model| model.header().format_version) }
}

/// Version of the library, for example "1.2.3". The text is always valid.
#[unsafe(no_mangle)]
pub extern "C" fn sb_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Writes the label of a class, counted from 0, as zero-terminated UTF-8 text into `size` bytes at `text`.
///
/// Strings are copied unchanged, other labels are written as in JSON: `1`, `0.5`, `true`; dates as the integer that NumPy
/// stores. Unless `needed` is NULL, `*needed` becomes the number of bytes including the zero byte. With `size` 0 nothing is
/// written and `text` may be NULL, which is how to query that number; any other `size` that is too small gives
/// `SB_STATUS_BAD_LENGTH`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sb_class_label(
    model: *const Model,
    class_index: usize,
    text: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees that it is NULL or a model.
        let model = unsafe { reference("model", model) }?;
        let label = label(&model.0, class_index)?;
        let length = label.len() + 1;
        if !needed.is_null() {
            // SAFETY: the caller guarantees that it points to a number.
            *unsafe { place("needed", needed) }? = length;
        }
        if size == 0 {
            return Ok(());
        }
        if size < length {
            let message = format!("the label takes {length} bytes, and there is room for {size}");
            return Err(Failure::new(Status::BadLength, message));
        }
        // SAFETY: the caller guarantees `size` bytes, and `length` is not larger.
        let text = unsafe { output("text", text.cast::<u8>(), length) }?;
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

/// A property of a model, or `default` for NULL.
///
/// # Safety
/// `model` is NULL, or points to a model that is not freed meanwhile.
unsafe fn query<T>(model: *const Model, default: T, property: impl FnOnce(&Predictor) -> T) -> T {
    // SAFETY: the caller guarantees it.
    let model = unsafe { model.as_ref() };
    model.map_or(default, |model| property(&model.0))
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
