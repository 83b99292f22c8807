//! Where the binding has its memory from.

#[cfg(not(feature = "system-allocator"))]
pub(crate) use own::{keep, return_soon};

#[cfg(not(feature = "system-allocator"))]
mod own {
    use std::ffi::{c_int, c_long};
    use std::sync::Once;

    /// The system's allocator hands memory back after each fit, and taking it anew costs a small fit a fifth of its time.
    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
