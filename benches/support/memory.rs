//! How many bytes are allocated: an allocator that counts.
//!
//! Counts this thread's allocations alone, so that it costs nothing that could be measured and no bench thread slows
//! another. Measure memory in one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub struct Counting;

fn count(bytes: usize, sign: isize) {
    // A thread that is going away may free after its counter is gone: nobody asks it any more.
    let _ = ALLOCATED.try_with(|sum| sum.set(sum.get().wrapping_add(sign.wrapping_mul(bytes.cast_signed()))));
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The bytes this thread has allocated and not freed, less those of other threads that it has freed.
#[must_use]
pub fn allocated() -> isize {
    ALLOCATED.with(Cell::get)
}
