//! Where the binding has its memory from.

#[cfg(not(feature = "system-allocator"))]
pub(crate) use own::{keep, return_soon};

#[cfg(not(feature = "system-allocator"))]
mod own {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::ffi::{c_int, c_long};
    use std::ptr::copy_nonoverlapping;
    use std::sync::Once;

    use mimalloc::MiMalloc;

    #[global_allocator]
    static ALLOCATOR: BySize = BySize;

    /// What is large comes from the system, all else from mimalloc.
    ///
    /// The system's allocator hands memory back after each fit, and taking it anew costs a small fit a fifth of its time. But
    /// mimalloc maps whatever it is asked for, terabytes too, without the system weighing that against the memory there is: a
    /// process that then writes there is killed, where the system's allocator says that there is not so much.
    struct BySize;

    /// Bytes from which on an allocation is large: writing there costs more than having the pages back from the system.
    const LARGE: usize = 1 << 30;

    fn is_large(layout: Layout) -> bool {
        layout.size() >= LARGE
    }

    #[inline]
    fn allocator_of(layout: Layout) -> &'static dyn GlobalAlloc {
        if is_large(layout) { &System } else { &MiMalloc }
    }

    // SAFETY: each layout has one allocator, which is one itself, and a block goes back with the layout it was asked for with.
    // What changes sides is copied as far as both reach.
    unsafe impl GlobalAlloc for BySize {
        #[inline]
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            unsafe { allocator_of(layout).alloc(layout) }
        }

        #[inline]
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            unsafe { allocator_of(layout).alloc_zeroed(layout) }
        }

        #[inline]
        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            unsafe { allocator_of(layout).dealloc(block, layout) }
        }

        #[inline]
        unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            unsafe {
                // The caller warrants that the new size, rounded up to the alignment, is no more than a layout can be.
                let new = Layout::from_size_align_unchecked(new_size, layout.align());
                if is_large(layout) == is_large(new) {
                    return allocator_of(layout).realloc(block, layout, new_size);
                }
                let moved = self.alloc(new);
                if !moved.is_null() {
                    copy_nonoverlapping(block, moved, layout.size().min(new_size));
                    self.dealloc(block, layout);
                }
                moved
            }
        }
    }

    /// Number of `mi_option_purge_delay` in mimalloc.h, and what it is unless somebody set it.
    const PURGE_DELAY: c_int = 15;
    const USUAL: c_long = 1000;
    /// For how many milliseconds memory is kept that nobody uses.
    const KEPT: c_long = 10_000;
    /// The same where memory is short. With a second a fit held to 64 MB had 54 to 65 at times, with this 47; a tenth of it takes 15
    /// per cent more time, this 4.
    const SHORT: c_long = 100;

    // The crate has these only beside a dependency that nothing else needs.
    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
        fn mi_option_set_default(option: c_int, value: c_long);
    }

    /// Keeps memory from one fit to the next, if that comes within ten seconds; unless `MIMALLOC_PURGE_DELAY` says otherwise.
    pub(crate) fn keep() {
        change(USUAL, KEPT);
    }

    /// From now on memory goes back at once, or nearly: fits of parts are for those who have little.
    pub(crate) fn return_soon() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| change(KEPT, SHORT));
    }

    fn change(from: c_long, to: c_long) {
        // SAFETY: both are functions of the mimalloc linked in, declared as in its header. The second is not for several threads
        // at a time: a module is made once, by one, before all else, and then there is one call more. Whoever looks meanwhile
        // finds one number or the other. One that has come to mean something else has another value.
        unsafe {
            if mi_option_get(PURGE_DELAY) == from {
                mi_option_set_default(PURGE_DELAY, to);
            }
        }
    }
}

/// The system's allocator keeps nothing.
#[cfg(feature = "system-allocator")]
pub(crate) fn keep() {}

/// Nor is there anything to return.
#[cfg(feature = "system-allocator")]
pub(crate) fn return_soon() {}
