//! Status codes and error messages.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sparsebayes::Error;

/// The result of a call.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A pointer must not be NULL.
    NullPointer = 1,
    /// A length does not match the model or another length.
    BadLength = 2,
    /// A number is NaN or infinite.
    NotFinite = 3,
    /// An argument is outside its domain, or the model does not support the call.
    Invalid = 4,
    /// The file or the bytes do not hold a valid model of a supported version.
    Format = 5,
    /// The file could not be read.
    Io = 6,
    /// A bug in the library; please report it.
    Internal = 7,
}

/// A status code and a one-sentence message.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Self::new(
            Status::Internal,
            format!("sparsebayes is at fault: {text}; please report it"),
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Shape { .. } => Status::BadLength,
            Error::NonFinite { .. } => Status::NotFinite,
            Error::Invalid { .. } => Status::Invalid,
            Error::Format { .. } => Status::Format,
            Error::Io(_) => Status::Io,
            _ => Status::Internal,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs `f`; a failure or a panic becomes a status code and this thread's last message.
pub(crate) fn guard(f: impl FnOnce() -> Result<(), Failure>) -> Status {
    // Unwind safe: `f` only modifies the caller's arrays, whose contents are unspecified after a failure.
    let failure = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let failure = Failure::of_panic(payload.as_ref());
            // Not dropped, because its destructor might panic.
            std::mem::forget(payload);
            failure
        }
    };
    let text: Vec<u8> = failure.message.bytes().filter(|&b| b != 0).collect();
    // Fails only while the thread ends.
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = CString::new(text).unwrap_or_default();
    });
    failure.status
}

/// Returns a one-sentence message about the last call that failed on this thread; "" if none has failed.
///
/// Never NULL. The text belongs to the library and is valid until the next failing call on this thread or the end of the
/// thread. Languages that move functions between threads, for example Go, must lock the thread from the call to the
/// message.
#[unsafe(no_mangle)]
pub extern "C" fn sb_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: `sb_last_error` returns a string that lasts until the next failure of this thread.
        let text = unsafe { CStr::from_ptr(sb_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn panics_become_codes() {
        let index = std::hint::black_box(3);
        assert_eq!(
            guard(|| {
                let _ = [0, 1][index];
                Ok(())
            }),
            Status::Internal
        );
        assert!(last().contains("index out of bounds"), "{}", last());
    }

    #[test]
    fn a_message_stays_until_the_next_failure_of_its_thread() {
        assert_eq!(last(), "");
        let fail = |message: &'static str| {
            guard(|| Err(Failure::new(Status::Invalid, message)));
        };
        fail("first");
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(last(), "first");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(last(), "");
                fail("other");
            });
        });
        assert_eq!(last(), "first");
        fail("with a\0zero");
        assert_eq!(last(), "with azero");
    }
}
