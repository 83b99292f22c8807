//! Counts what this program takes from the heap, thread by thread.
#![allow(dead_code)] // the latency bench and a fuzz target include this file too, each for one of the functions

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

/// Adds a change of the bytes held; nothing is counted in a thread that is about to end.
fn note(bytes: isize) {
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        PEAK.try_with(|peak| peak.set(peak.get().max(held.get())))
    });
}

// SAFETY: everything is handed on to the system's allocator; the counts are kept in cells that take no memory themselves.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        note(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread takes memory while `f` runs.
pub(crate) fn allocations(f: impl FnOnce()) -> usize {
    let before = TAKEN.get();
    f();
    TAKEN.get() - before
}

/// The value of `f`, and the largest number of bytes that this thread held for it at a time.
pub(crate) fn peak_bytes<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = f();
    (value, (PEAK.get() - before).unsigned_abs())
}

#[test]
fn the_count_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1, 2, 3]))), 1);
    assert_eq!(allocations(|| ()), 0);
    let thrice = || (0..3).for_each(|_| drop(std::hint::black_box(vec![0_u8; 1000])));
    assert_eq!(peak_bytes(thrice).1, 1000);
}
