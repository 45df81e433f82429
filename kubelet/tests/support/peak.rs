//! An allocator that knows how much memory a thread has at most while it does something.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

/// What glibc takes for an allocation: its size and a word, in steps of 16 bytes, at least 32.
fn chunk(layout: Layout) -> isize {
    (layout.size() + 8).next_multiple_of(16).max(32).cast_signed()
}

fn count(bytes: isize) {
    // An ending thread may free after its counters are gone; they are no longer needed then.
    let _ = ALLOCATED.try_with(|allocated| {
        let now = allocated.get().wrapping_add(bytes);
        allocated.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(chunk(layout));
        // SAFETY: the caller guarantees the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-chunk(layout));
        // SAFETY: the caller guarantees the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a task took.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Bytes that were allocated at the same time, at most.
    pub peak: usize,
    /// Bytes of what it returned.
    pub kept: usize,
}

/// Does something in this thread, and says what memory that took.
pub fn memory_of<T>(task: impl FnOnce() -> T) -> (T, Taken) {
    let before = ALLOCATED.get();
    PEAK.set(before);
    let result = task();
    let [peak, kept] =
        [PEAK.get(), ALLOCATED.get()].map(|bytes| usize::try_from(bytes - before).unwrap_or(0));
    (result, Taken { peak, kept })
}
