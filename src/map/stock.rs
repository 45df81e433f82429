//! Memory for nodes: what was freed a moment ago is used again.
//!
//! A write to the index takes a handful of nodes and, a publication or two later, frees as many of the same sizes. A general
//! allocator takes longer over such large and aligned pieces than the whole rest of the write, so a thread that writes keeps
//! a few of each size at hand. They go when the thread ends.
//!
//! It knows sizes, not nodes. Built with `--cfg pod_index_no_stock`, as sanitizers and fuzzers want it, every piece
//! comes from the allocator and goes back to it, so that whoever uses what was freed is seen.

use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::ptr::NonNull;

/// A cache line: what sizes are multiples of, and what they are aligned to.
#[repr(align(64))]
pub(super) struct Line(#[expect(dead_code, reason = "only its place counts")] [u8; 64]);

const UNIT: usize = size_of::<Line>();
/// Pieces are kept that are smaller than this, in units.
const SHELVES: usize = 64;
/// How many bytes are kept in all. A write takes some thousands; a small index never has as much to keep.
const KEPT: usize = 1 << 19;

struct Stock {
    /// By size, in units.
    shelves: [Vec<NonNull<Line>>; SHELVES],
    bytes: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { shelves: [const { Vec::new() }; SHELVES], bytes: 0 }) };
}

impl Drop for Stock {
    fn drop(&mut self) {
        for (units, shelf) in self.shelves.iter_mut().enumerate() {
            for memory in shelf.drain(..) {
                // SAFETY: what is on the shelf is `units` large, and nobody's.
                unsafe { alloc::dealloc(memory.as_ptr().cast(), layout(units)) };
            }
        }
    }
}

/// Memory of `size` bytes or more, aligned to a cache line.
pub(super) fn allocate(size: usize) -> NonNull<Line> {
    let units = units(size);
    let memory = with_stock(|stock| stock.take(units)).flatten().unwrap_or_else(|| {
        let layout = layout(units);
        // SAFETY: there is one unit at least.
        let memory = unsafe { alloc::alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout)).cast()
    });
    #[cfg(test)]
    audit::allocated(memory);
    memory
}

/// Gives memory back.
///
/// # Safety
/// It was allocated here with the same size, and nobody uses it any more.
pub(super) unsafe fn free(memory: NonNull<Line>, size: usize) {
    #[cfg(test)]
    audit::freed(memory);
    let units = units(size);
    if with_stock(|stock| stock.put(units, memory)) != Some(true) {
        // SAFETY: the caller's.
        unsafe { alloc::dealloc(memory.as_ptr().cast(), layout(units)) };
    }
}

impl Stock {
    fn take(&mut self, units: usize) -> Option<NonNull<Line>> {
        let memory = self.shelves.get_mut(units)?.pop()?;
        self.bytes -= units * UNIT;
        Some(memory)
    }

    /// Says whether the memory was put on its shelf, or there is no room for it.
    fn put(&mut self, units: usize, memory: NonNull<Line>) -> bool {
        let bytes = self.bytes + units * UNIT;
        let Some(row) = self.shelves.get_mut(units).filter(|_| bytes <= KEPT) else { return false };
        row.push(memory);
        self.bytes = bytes;
        true
    }
}

/// Calls `f` with the stock of this thread; a thread that is ending has none.
fn with_stock<R>(f: impl FnOnce(&mut Stock) -> R) -> Option<R> {
    if cfg!(any(pod_index_no_stock, fuzzing)) {
        return None;
    }
    STOCK.try_with(|stock| f(&mut stock.borrow_mut())).ok()
}

/// How many units a piece of `size` bytes has: one at least.
fn units(size: usize) -> usize {
    size.div_ceil(UNIT).max(1)
}

fn layout(units: usize) -> Layout {
    // More than there is to address: as if the allocator had none.
    Layout::array::<Line>(units).unwrap_or_else(|_| alloc::handle_alloc_error(Layout::new::<Line>()))
}

/// What tests ask: which pieces are somebody's, of those that this thread allocated.
#[cfg(test)]
pub(super) mod audit {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::ptr::NonNull;

    thread_local! {
        static OUT: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn allocated(memory: NonNull<super::Line>) {
        let new = OUT.with_borrow_mut(|out| out.insert(memory.addr().get()));
        assert!(new, "memory was handed out twice");
    }

    pub(super) fn freed(memory: NonNull<super::Line>) {
        let known = OUT.with_borrow_mut(|out| out.remove(&memory.addr().get()));
        assert!(known, "memory was given back twice");
    }

    /// The addresses of all that was handed out and not given back.
    pub(crate) fn handed_out() -> BTreeSet<usize> {
        OUT.with_borrow(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;
    use std::num::NonZero;
    use std::ptr::NonNull;

    use super::{KEPT, Line, SHELVES, Stock, UNIT, with_stock};

    /// Pieces that are told from each other, and that nobody may look into.
    fn piece(number: usize) -> NonNull<Line> {
        NonNull::without_provenance(NonZero::new((number + 1) * UNIT).expect("more than none"))
    }

    /// Whoever uses this must empty it before it is dropped; a test that fails must not.
    fn empty() -> ManuallyDrop<Stock> {
        ManuallyDrop::new(Stock { shelves: [const { Vec::new() }; SHELVES], bytes: 0 })
    }

    #[test]
    fn a_piece_is_handed_out_once_and_to_who_asks_for_its_size() {
        let mut stock = empty();
        assert!(stock.put(3, piece(3)) && stock.put(5, piece(5)));
        assert_eq!(stock.take(4), None);
        assert_eq!(stock.take(5), Some(piece(5)));
        assert_eq!(stock.take(5), None);
        assert_eq!(stock.take(3), Some(piece(3)));
        drop(ManuallyDrop::into_inner(stock));
    }

    /// However often it was filled and emptied before, and whatever of: what is kept is bounded in bytes.
    #[test]
    fn as_much_is_kept_as_is_said_and_no_more() {
        let mut stock = empty();
        for units in [1, 7, 32, SHELVES - 1] {
            let most = KEPT / (units * UNIT);
            assert!(most > 0, "none of {units} units");
            for number in 0..most {
                assert!(stock.put(units, piece(number)), "{number} of {units} units");
            }
            assert!(!stock.put(units, piece(most)), "{most} of {units} units fill it");
            assert!(stock.take(units).is_some());
            assert!(stock.put(units, piece(most)), "there is room for another again");
            assert!(!stock.put(units, piece(most + 1)), "but for no more");
            assert!((0..most).all(|_| stock.take(units).is_some()));
            assert_eq!(stock.take(units), None);
        }
        drop(ManuallyDrop::into_inner(stock));
    }

    #[test]
    fn what_is_larger_than_any_shelf_is_not_kept() {
        let mut stock = empty();
        assert!(!stock.put(SHELVES, piece(0)));
        assert_eq!(stock.take(SHELVES), None);
    }

    #[test]
    fn a_thread_has_a_stock_unless_it_is_built_without() {
        let wanted = if cfg!(any(pod_index_no_stock, fuzzing)) { None } else { Some(7) };
        assert_eq!(with_stock(|_| 7), wanted);
    }
}
