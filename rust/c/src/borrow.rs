//! Pointers from C as references and slices: the only module that dereferences them.

use std::ops::Range;

use crate::status::{Failure, Status};

type Result<T> = std::result::Result<T, Failure>;

/// A shared reference.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that does not change during `'a`.
pub(crate) unsafe fn reference<'a, T>(what: &str, pointer: *const T) -> Result<&'a T> {
    check(what, pointer)?;
    // SAFETY: it is not NULL and aligned; the caller guarantees the rest.
    Ok(unsafe { &*pointer })
}

/// A mutable reference for a result.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that is not accessed otherwise during `'a`.
pub(crate) unsafe fn place<'a, T>(what: &str, pointer: *mut T) -> Result<&'a mut T> {
    check(what, pointer)?;
    // SAFETY: it is not NULL and aligned; the caller guarantees the rest.
    Ok(unsafe { &mut *pointer })
}

/// A slice of `len` elements.
///
/// # Safety
/// `pointer` is NULL, or points to `len` elements that do not change during `'a`.
pub(crate) unsafe fn slice<'a, T>(what: &str, pointer: *const T, len: usize) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(what, pointer)?;
    extent(what, pointer, len)?;
    // SAFETY: it is not NULL, aligned, and at most `isize::MAX` bytes; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// A mutable slice for `len` results. Old values are never read.
///
/// # Safety
/// `pointer` is NULL, or points to `len` numbers that are not accessed otherwise during `'a`.
pub(crate) unsafe fn output<'a, T: Copy>(
    what: &str,
    pointer: *mut T,
    len: usize,
) -> Result<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(what, pointer)?;
    extent(what, pointer, len)?;
    // SAFETY: it is not NULL, aligned, and at most `isize::MAX` bytes; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

/// Rejects arrays that share memory.
pub(crate) fn disjoint<T, U>(
    (first, a, n): (&str, *const T, usize),
    (second, b, m): (&str, *const U, usize),
) -> Result<()> {
    let (a, b) = (extent(first, a, n)?, extent(second, b, m)?);
    if a.start < b.end && b.start < a.end {
        let message = format!("{first} and {second} overlap; give them memory of their own");
        return Err(Failure::new(Status::Invalid, message));
    }
    Ok(())
}

/// `n_rows * n_columns`.
pub(crate) fn size(what: &str, n_rows: usize, n_columns: usize) -> Result<usize> {
    n_rows
        .checked_mul(n_columns)
        .ok_or_else(|| too_long(what, n_rows))
}

fn too_long(what: &str, n: usize) -> Failure {
    let message = format!("{what} cannot be so long, got a length of {n}");
    Failure::new(Status::BadLength, message)
}

fn check<T>(what: &str, pointer: *const T) -> Result<()> {
    if pointer.is_null() {
        return Err(Failure::new(
            Status::NullPointer,
            format!("{what} must not be NULL"),
        ));
    }
    if !pointer.is_aligned() {
        let message = format!("{what} must lie at a multiple of {} bytes", align_of::<T>());
        return Err(Failure::new(Status::Invalid, message));
    }
    Ok(())
}

/// The addresses of `len` elements, in bytes.
fn extent<T>(what: &str, pointer: *const T, len: usize) -> Result<Range<usize>> {
    let bytes = len.checked_mul(size_of::<T>());
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
    let end = bytes.and_then(|bytes| pointer.addr().checked_add(bytes));
    let end = end.ok_or_else(|| too_long(what, len))?;
    Ok(pointer.addr()..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status<T>(result: Result<T>) -> Status {
        let failed = crate::status::guard(|| result.map(|_| ()));
        assert_ne!(failed, Status::Ok);
        failed
    }

    #[test]
    fn invalid_pointers_are_rejected() {
        let values = [1.0, 2.0];
        let inside = values.as_ptr().wrapping_byte_add(1);
        let null = std::ptr::null::<f64>();
        // SAFETY: each pointer is NULL, or rejected before it is dereferenced, or points to two numbers.
        unsafe {
            assert_eq!(slice("x", values.as_ptr(), 2).unwrap(), values);
            assert!(slice("x", null, 0).unwrap().is_empty());
            assert_eq!(status(slice("x", null, 1)), Status::NullPointer);
            assert_eq!(status(slice("x", inside, 1)), Status::Invalid);
            assert_eq!(
                status(slice("x", values.as_ptr(), usize::MAX / 4)),
                Status::BadLength
            );
            assert_eq!(status(reference("x", null)), Status::NullPointer);
        }
    }

    #[test]
    fn overlapping_arrays_are_rejected() {
        let values = [1.0, 2.0, 3.0];
        let at = |i: usize, n: usize| ("part", values[i..].as_ptr(), n);
        assert!(disjoint(at(0, 2), at(2, 1)).is_ok());
        assert!(disjoint(at(1, 1), at(0, 1)).is_ok());
        assert!(disjoint(at(1, 0), at(1, 2)).is_ok());
        assert_eq!(status(disjoint(at(0, 2), at(1, 2))), Status::Invalid);
    }

    #[test]
    fn sizes_do_not_wrap_round() {
        assert_eq!(size("x", 3, 4).unwrap(), 12);
        assert_eq!(status(size("x", usize::MAX / 2 + 1, 2)), Status::BadLength);
    }
}
