//! An allocator that counts bytes and allocations.
//!
//! Counts only the current thread's allocations, so that it is cheap and bench threads do not slow each other
//! down. Measure memory on one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub struct Counting;

fn count(bytes: usize, sign: isize) {
    // An ending thread may free after its counter is gone; the count is no longer needed then.
    let _ = ALLOCATED.try_with(|sum| sum.set(sum.get().wrapping_add(sign.wrapping_mul(bytes.cast_signed()))));
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        let _ = ALLOCATIONS.try_with(|sum| sum.set(sum.get() + 1));
        // SAFETY: the caller guarantees the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller guarantees the same.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that this thread allocated minus bytes that it freed, including those of other threads.
#[must_use]
pub fn allocated() -> isize {
    ALLOCATED.with(Cell::get)
}

/// How often this thread has allocated.
#[must_use]
pub fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}
