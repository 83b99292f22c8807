//! How much memory a thread holds at most while something runs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Measuring;

/// Notes a change of what this thread holds; a thread that is about to end is not measured any more.
fn note(change: isize) {
    let held = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(change));
        held.get()
    });
    if let Ok(held) = held {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held)));
    }
}

// SAFETY: everything is handed on to the system's allocator; the counts are kept in cells that take no memory themselves.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

/// What `f` returns, and the most bytes that this thread took for it at a time.
pub(crate) fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = f();
    let taken = PEAK.get() - before;
    (value, usize::try_from(taken).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_what_was_held_at_a_time() {
        let ((), taken) = peak_of(|| {
            for _ in 0..3 {
                drop(std::hint::black_box(vec![0_u8; 1000]));
            }
        });
        assert!((1000..2000).contains(&taken), "{taken}");
    }
}
