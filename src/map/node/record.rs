//! The text of a key that is longer than two words, in one allocation behind a thin pointer. Text means any
//! bytes here.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::slice;

/// Two strings, owned by an entry. Dropping a record leaks it; see [`release`](Self::release).
pub(crate) struct Record(NonNull<Head>);

#[repr(C)]
struct Head {
    born: u64,
    first: u32,
    second: u32,
}

/// Offset of the strings' bytes: directly after the head.
const TEXT: usize = size_of::<Head>();

// SAFETY: it consists of strings, which are never written to.
unsafe impl Send for Record {}
// SAFETY: shared access reads the strings, which are never written to.
unsafe impl Sync for Record {}

/// The layout of a record of two strings of these lengths.
fn layout(first: u32, second: u32) -> Option<Layout> {
    let size = TEXT.checked_add(first as usize)?.checked_add(second as usize)?;
    Layout::from_size_align(size, align_of::<Head>()).ok()
}

/// Whether two slices of the same length are equal. Names are short: two overlapping loads are cheaper than a
/// call.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    fn ends<const N: usize>(bytes: &[u8]) -> Option<([u8; N], [u8; N])> {
        Some((*bytes.first_chunk()?, *bytes.last_chunk()?))
    }
    match one.len() {
        16..=32 => ends::<16>(one) == ends::<16>(other),
        8..16 => ends::<8>(one) == ends::<8>(other),
        4..8 => ends::<4>(one) == ends::<4>(other),
        _ => one == other,
    }
}

impl Record {
    /// A new record, born in `generation`.
    pub(crate) fn new(generation: u64, first: &[u8], second: &[u8]) -> Self {
        // A text of 4 GiB is handled like an allocation failure.
        fn too_long() -> ! {
            alloc::handle_alloc_error(Layout::new::<Head>())
        }
        let length = |text: &[u8]| u32::try_from(text.len()).unwrap_or_else(|_| too_long());
        let head = Head { born: generation, first: length(first), second: length(second) };
        let layout = layout(head.first, head.second).unwrap_or_else(|| too_long());
        // SAFETY: the size is not 0.
        let at = unsafe { alloc::alloc(layout) };
        let Some(at) = NonNull::new(at) else { alloc::handle_alloc_error(layout) };
        // SAFETY: the memory is new and large enough for the head and both strings.
        unsafe {
            at.cast().write(head);
            at.add(TEXT).copy_from_nonoverlapping(NonNull::from_ref(first).cast(), first.len());
            at.add(TEXT + first.len())
                .copy_from_nonoverlapping(NonNull::from_ref(second).cast(), second.len());
        }
        #[cfg(test)]
        audit::LIVE.set(audit::LIVE.get() + 1);
        Self(at.cast())
    }

    fn head(&self) -> &Head {
        // SAFETY: a record exists until it is released.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn born(&self) -> u64 {
        self.head().born
    }

    /// The lengths of the strings.
    #[inline]
    fn lengths(&self) -> (usize, usize) {
        let Head { first, second, .. } = self.head();
        (*first as usize, *second as usize)
    }

    /// The first byte of the strings.
    #[inline]
    fn start(&self) -> *const u8 {
        self.0.as_ptr().cast::<u8>().wrapping_add(TEXT)
    }

    #[inline]
    fn text(&self) -> &[u8] {
        let (first, second) = self.lengths();
        // SAFETY: that many bytes follow the head.
        unsafe { slice::from_raw_parts(self.start(), first + second) }
    }

    /// Whether these are its strings.
    #[inline]
    pub(crate) fn is(&self, first: &[u8], second: &[u8]) -> bool {
        if self.lengths() != (first.len(), second.len()) {
            return false;
        }
        let (one, other) = self.text().split_at(first.len());
        same(one, first) && same(other, second)
    }

    /// The two strings.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&str, &str) {
        let (first, second) = self.text().split_at(self.lengths().0);
        (str::from_utf8(first).expect("text"), str::from_utf8(second).expect("text"))
    }

    /// Frees the record.
    ///
    /// # Safety
    /// No copy of this record is used any more.
    pub(super) unsafe fn release(self) {
        let Head { first, second, .. } = self.head();
        if let Some(layout) = layout(*first, *second) {
            #[cfg(test)]
            audit::LIVE.set(audit::LIVE.get() - 1);
            // SAFETY: the record is not used again, and `new` allocated it with this layout.
            unsafe { alloc::dealloc(self.0.cast().as_ptr(), layout) };
        }
    }
}

/// A record of one text, with its length: a lookup that returns the text touches no memory of the record.
pub(crate) struct Label {
    record: Record,
    length: usize,
}

impl Label {
    /// A new record of this text; the second of its strings is empty.
    pub(super) fn new(generation: u64, text: &str) -> Self {
        Self { record: Record::new(generation, text.as_bytes(), b""), length: text.len() }
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        // SAFETY: the record was made from a `&str` of this length, and is never written to.
        unsafe { str::from_utf8_unchecked(slice::from_raw_parts(self.record.start(), self.length)) }
    }

    pub(in super::super) fn into_record(self) -> Record {
        self.record
    }
}

#[cfg(test)]
pub(in super::super) mod audit {
    use std::cell::Cell;

    thread_local! {
        /// Number of live records created by this thread.
        pub(crate) static LIVE: Cell<usize> = const { Cell::new(0) };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{Record, audit, same};

    #[test]
    fn a_record_equals_only_its_two_strings() {
        let long = "x".repeat(1000);
        for (first, second) in [("", ""), ("web", ""), ("", "web"), ("web-0", "default"), (&long, "ä")] {
            let record = Record::new(7, first.as_bytes(), second.as_bytes());
            assert_eq!((record.parts(), record.born()), ((first, second), 7));
            assert!(record.is(first.as_bytes(), second.as_bytes()));
            for (other, another) in [("web", "0default"), ("web-", "0default"), ("webb", ""), ("a", "b")] {
                assert!(!record.is(other.as_bytes(), another.as_bytes()));
            }
            // SAFETY: the record is not used again.
            unsafe { record.release() };
        }
    }

    #[test]
    fn texts_of_any_length_that_differ_in_one_byte_are_distinguished() {
        for length in 0..70 {
            let text = "x".repeat(length);
            assert!(same(text.as_bytes(), text.as_bytes()));
            for at in 0..length {
                let mut other = text.clone().into_bytes();
                other[at] = b'y';
                assert!(!same(text.as_bytes(), &other), "{at} of {length}");
            }
        }
    }

    #[test]
    fn a_record_is_freed_when_it_is_released() {
        let before = audit::LIVE.get();
        let one = Record::new(1, b"web", b"default");
        assert_eq!(audit::LIVE.get(), before + 1);
        // SAFETY: the record is not used again.
        unsafe { one.release() };
        assert_eq!(audit::LIVE.get(), before);
    }
}
