//! The memory of a [`Table`](super::Table): nodes shared by many versions, without reference counts.
//!
//! **All unsafe code that reads, writes or frees nodes is in this module**: this file has the layout of nodes,
//! `memory` the lists of what dies and its end, `sweep` the end of whole trees, `owner` what `versions` has to promise.
//! The module `versions` contains the rest: it knows which versions exist. Reference counts would make a safe persistent table
//! expensive: copying a page of `Arc`s writes to everything they point to. Here a node is copied by one
//! `memcpy`, and freed once no live version can reach it. The scheme is that of ZFS's dead lists, related to
//! interval-based reclamation: see `docs::table`.
//!
//! # The rules
//! They are those of `docs::table`, with the same numbers. The generation of a version is its number. Every node and every entry is *born* in the generation of the draft that created it, and *dies* in the first
//! generation that no longer has it. A node copied by a draft is born again; an entry that moves keeps its birth.
//! An entry with another value is another entry.
//!
//! 1. The nodes of a published version are never written to. A draft writes only to nodes born in it, which nothing else
//!    can reach.
//! 2. What dies in draft `d` goes to the [`DeadList`] of version `d - 1`, which still has it.
//! 3. When a version is dropped, what is on its dead list moves to the dead list of the next older
//!    remaining version, if that one has it, that is, if it was born no later. Otherwise it is
//!    freed: newer versions do not have it, and the remaining older ones are older than its birth.
//! 4. A parent is never older than its children, because changing a child changes the link to it. So a
//!    version that has a node has everything below it.
//! 5. An entry may have several bitwise copies in nodes of several versions; exactly one of them dies.
//!
//! # Guarantees by types
//! [`Array`], [`PageLink`] and [`Slot`] are not `Clone`, and functions that end one take it by
//! value or leave an empty one. Dropping one leaks its target, which is safe. A draft's links are in nodes that it owns; links in
//! published nodes can only be borrowed with `&`. So safe code can neither free a node twice nor write to a
//! shared one, as long as it uses the [`Memory`] of its own index, which
//! [`TableMut::new`](super::TableMut::new) promises.

mod memory;
mod owner;
mod sweep;

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::slice;

use wide::u8x16;

use super::pool::Line;
use super::{Entry, TableKey, Value};
use memory::Dead;
pub(crate) use memory::{DeadList, Memory, OlderVersion};

/// The low bits of a link are free, because nodes are aligned to lines.
const TAG: usize = size_of::<Line>() - 1;
/// Maximum number of entries of a page. Its sixteenth tag is always 0.
pub(super) const MAX_LEN: usize = 15;
const TAGS: usize = 16;

// The birth of an array follows its links without padding, also in `EmptyArray`; and the tags of links have six bits.
const _: () = assert!(usize::BITS == 64 && size_of::<Line>() == 64, "nodes are laid out for 64-bit pointers");

/// A link to an array of links; its holder owns the array. A root is an array of chunks, a chunk an array of
/// pages.
///
/// Its tag is 63 minus the binary logarithm of the length: one less than a hash has to be shifted. Its birth follows
/// its links.
#[repr(transparent)]
pub(super) struct Array<T> {
    at: NonNull<Line>,
    children: PhantomData<T>,
}

/// The link to a whole tree.
pub(super) type Root<E> = Array<Array<PageLink<E>>>;

/// A link to a page. Its tag is the page's number of lines minus one.
///
/// A page consists of its head, up to 15 entries, and their births. Lookups do not read births, so these lie at the end of
/// the page, that of the first entry last. An entry of 40 to 56 bytes gets a line together with its birth; the head of such a
/// page has a line, too.
#[repr(transparent)]
pub(super) struct PageLink<E> {
    at: NonNull<Line>,
    entries: PhantomData<E>,
}

/// The first bytes of a page.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageHead {
    /// A byte of each entry's hash. Entries are packed, so the first 0 ends them.
    tags: [u8; TAGS],
    born: u64,
    /// The next page with entries of the same hash bits, if this one is full and a split would not help.
    /// Tagged like a link.
    next: Option<NonNull<Line>>,
}

/// A page.
pub(super) struct Page<'a, E> {
    at: NonNull<Line>,
    lines: usize,
    entries: PhantomData<&'a E>,
}

/// An entry that is moved between pages. Dropping it leaks the entry.
pub(super) struct Slot<E> {
    tag: NonZero<u8>,
    born: u64,
    entry: ManuallyDrop<E>,
}

/// The statics of an empty table. A draft copies them like any node. They are never freed: they are born in generation 0,
/// before every draft, and a dead list takes nothing of that generation.
#[repr(C, align(64))]
struct EmptyArray {
    child: NonNull<Line>,
    born: u64,
}

// SAFETY: it is never written to, and it points only to statics.
unsafe impl Sync for EmptyArray {}

static EMPTY_PAGE: Line = Line::ZERO;
static EMPTY_CHUNK: EmptyArray = EmptyArray { child: NonNull::from_ref(&EMPTY_PAGE), born: 0 };
static EMPTY_ROOT: EmptyArray = EmptyArray { child: empty(&EMPTY_CHUNK), born: 0 };

/// A link to an array of length one.
const fn empty(array: &'static EmptyArray) -> NonNull<Line> {
    let at = ptr::from_ref(array).cast::<Line>().cast_mut().wrapping_byte_add(TAG);
    // SAFETY: the address is within a static.
    unsafe { NonNull::new_unchecked(at) }
}

// SAFETY: sharing or sending a link shares or sends its entries, and gives the same access to them as a
// reference or a box.
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: a shared link gives only shared access to what is below it, which is `Sync`.
unsafe impl<T: Send + Sync> Sync for Array<T> {}
// SAFETY: a page has entries, which are `Send`; its other copies are on other threads, so they are also `Sync`.
unsafe impl<E: Send + Sync> Send for PageLink<E> {}
// SAFETY: a shared link gives only shared access to a page's entries, which are `Sync`.
unsafe impl<E: Send + Sync> Sync for PageLink<E> {}

#[inline]
fn untagged(at: NonNull<Line>) -> NonNull<Line> {
    // SAFETY: no node is in the first 64 bytes of memory.
    unsafe { NonNull::new_unchecked(at.as_ptr().map_addr(|address| address & !TAG)) }
}

#[inline]
fn tag(at: NonNull<Line>) -> usize {
    at.addr().get() & TAG
}

/// Two links are equal if they lead to the same node.
impl<T> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<E> PartialEq for PageLink<E> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<E> Root<E> {
    /// The root of an empty table.
    pub(super) const EMPTY: Self = Self { at: empty(&EMPTY_ROOT), children: PhantomData };
}

impl<E> Array<PageLink<E>> {
    /// A chunk of one empty page.
    pub(super) const EMPTY_CHUNK: Self = Self { at: empty(&EMPTY_CHUNK), children: PhantomData };
}

fn array_lines(bits: u32) -> usize {
    ((size_of::<usize>() << bits) + size_of::<u64>()).div_ceil(size_of::<Line>())
}

impl<T> Array<T> {
    /// A new array of these links, whose number is a power of two.
    pub(super) fn new<P>(mut children: Vec<T>, memory: &mut Memory<P>) -> Self {
        let bits = children.len().ilog2();
        assert_eq!((size_of::<T>(), children.len()), (size_of::<usize>(), 1 << bits));
        let at = memory.allocate(array_lines(bits));
        // SAFETY: the memory is new and large enough for the links and the birth. The vector's links are moved.
        unsafe {
            let first = at.cast::<T>();
            ptr::copy_nonoverlapping(children.as_ptr(), first.as_ptr(), children.len());
            first.add(children.len()).cast().write(memory.generation);
            children.set_len(0);
        }
        let tag = TAG - bits as usize;
        Self { at: at.map_addr(|address| address | tag), children: PhantomData }
    }

    /// The binary logarithm of the length.
    #[expect(clippy::cast_possible_truncation, reason = "less than 64")]
    #[inline]
    pub(super) fn bits(&self) -> u32 {
        (TAG - tag(self.at)) as u32
    }

    #[inline]
    pub(super) fn children(&self) -> &[T] {
        self.check();
        // SAFETY: by the rules the node exists and is not written to; the tag gives its length.
        unsafe { slice::from_raw_parts(untagged(self.at).cast().as_ptr(), 1 << self.bits()) }
    }

    /// The child selected by the highest bits of `hash`.
    #[expect(clippy::inline_always, reason = "one load, on the way of every lookup")]
    #[inline(always)]
    pub(super) fn child(&self, hash: u64) -> &T {
        self.check();
        // Two shifts, because the length may be 1.
        let index = (hash >> 1 >> tag(self.at)) as usize;
        // SAFETY: by the rules the node exists and is not written to. The index is less than the length.
        unsafe { &*untagged(self.at).cast::<T>().as_ptr().add(index) }
    }

    fn birth(&self) -> NonNull<u64> {
        // SAFETY: the birth follows the links.
        unsafe { untagged(self.at).cast::<T>().add(1 << self.bits()).cast() }
    }

    fn born(&self) -> u64 {
        // SAFETY: by the rules the node exists and is not written to.
        unsafe { self.birth().read() }
    }

    /// The links, to write to. If the array is not the draft's yet, it becomes a copy.
    #[inline]
    pub(super) fn own<P>(&mut self, memory: &mut Memory<P>) -> &mut [T] {
        if self.born() != memory.generation {
            self.copy(memory);
        }
        // SAFETY: it was born in this draft, so that nobody else can reach it, and this link to it is borrowed.
        unsafe { slice::from_raw_parts_mut(untagged(self.at).cast().as_ptr(), 1 << self.bits()) }
    }

    #[inline(never)]
    fn copy<P>(&mut self, memory: &mut Memory<P>) {
        let lines = array_lines(self.bits());
        let copy = memory.allocate(lines);
        // SAFETY: the array is there, by the rules; the copy is new and as large. This link, which is the draft's, is
        // replaced by one to the copy.
        unsafe {
            ptr::copy_nonoverlapping(untagged(self.at).as_ptr(), copy.as_ptr(), lines);
            memory.let_die(Dead::node(self.born(), untagged(self.at), lines));
        }
        let tag = tag(self.at);
        self.at = copy.map_addr(|address| address | tag);
        // SAFETY: the copy is the draft's.
        unsafe { self.birth().write(memory.generation) };
    }

    /// The node's address; `None` for the statics of an empty table.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<usize> {
        (self.born() > 0).then(|| untagged(self.at).addr().get())
    }

    /// Takes the array apart.
    pub(super) fn take<P>(self, memory: &mut Memory<P>) -> Vec<T> {
        // SAFETY: the links are read once; afterwards only versions that have the node read them from it.
        let children = self.children().iter().map(|child| unsafe { ptr::read(child) }).collect();
        // SAFETY: this link, which is the draft's, ends here.
        unsafe { memory.let_die(Dead::node(self.born(), untagged(self.at), array_lines(self.bits()))) };
        children
    }

    #[cfg_attr(
        not(any(pod_index_loom, pod_index_shuttle)),
        expect(clippy::unused_self, reason = "only the models look")
    )]
    #[inline]
    fn check(&self) {
        #[cfg(any(pod_index_loom, pod_index_shuttle))]
        assert_ne!(self.born(), POISON, "a node is read after it was freed");
    }
}

/// The sizes of a page's parts, which depend on the type of its entries.
impl<E> Page<'_, E> {
    const LINE: usize = size_of::<Line>();
    const BIRTH: usize = size_of::<u64>();
    /// An entry of more than half a line gets a whole one for itself and its birth, so that a lookup reads one line of it.
    const IS_LINE: bool = 2 * size_of::<E>() > Self::LINE && size_of::<E>() + Self::BIRTH <= Self::LINE;
    /// From one entry to the next.
    const STRIDE: usize = if Self::IS_LINE { Self::LINE } else { size_of::<E>() };
    /// Where the entries begin: behind the head.
    const FIRST: usize = if Self::IS_LINE { Self::LINE } else { size_of::<PageHead>() };

    /// Evaluated where pages are made, for each type of entries.
    const FITS: () = {
        assert!(size_of::<PageHead>() == 32 && align_of::<E>() == Self::BIRTH);
        // A link has room for the number of lines.
        assert!(Self::lines(MAX_LEN) <= TAG + 1);
    };

    const fn lines(len: usize) -> usize {
        let births = if Self::IS_LINE { 0 } else { len * Self::BIRTH };
        (Self::FIRST + len * Self::STRIDE + births).div_ceil(Self::LINE)
    }
}

impl<E> PageLink<E> {
    pub(super) const EMPTY: Self = Self { at: NonNull::from_ref(&EMPTY_PAGE), entries: PhantomData };

    /// Moves `slots` to new pages: one page, or a chain if there are too many.
    pub(super) fn new<P>(slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) -> Self {
        let mut next = None;
        // From the last page of a chain, the only one that may not be full, to the first.
        while !slots.is_empty() {
            let first = (slots.len() - 1) / MAX_LEN * MAX_LEN;
            let page = Page::new(slots.len() - first, next, memory);
            for (index, slot) in slots.drain(first..).enumerate() {
                // SAFETY: the page is new and has room for all of them.
                unsafe { page.write(index, slot) };
            }
            next = Some(page.link());
        }
        next.map_or(Self::EMPTY, |at| Self { at, entries: PhantomData })
    }

    #[inline]
    pub(super) fn page(&self) -> Page<'_, E> {
        // SAFETY: this link is borrowed from a node, which exists as long, and by the rules what it links to does too.
        unsafe { Page::at(self.at) }
    }

    /// Prefetches the first lines together: the head and about half of the entries of a full page, if an entry has three words.
    /// Four lines if each entry fills a line: each further one would cost more instructions than it saves.
    #[cfg_attr(not(target_arch = "x86_64"), expect(clippy::unused_self, reason = "only x86-64 prefetches"))]
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..Page::<E>::STRIDE.div_ceil(8).min(4) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it accesses nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(untagged(self.at).as_ptr().wrapping_add(line).cast()) };
        }
    }

    /// The page, to write to, with its first `len` entries, and room for `room`. It is copied if it has another size or is not the
    /// draft's yet. The tags are as before.
    ///
    /// # Safety
    /// The page has `len` entries or more, there is room for them, and the page is in no chain.
    unsafe fn own<P>(&mut self, len: usize, room: usize, memory: &mut Memory<P>) -> Page<'_, E> {
        let page = self.page();
        let born = page.read_head().born;
        if Page::<E>::lines(room) != page.lines || born != memory.generation {
            let copy = Page::new(room, None, memory);
            // SAFETY: by the rules the page exists, and it has so many entries. The copy is new and large enough. This link, which
            // is the draft's, is replaced by one to the copy.
            unsafe {
                copy.head().cast::<[u8; TAGS]>().write(page.read_head().tags);
                let from = page.entry(0).cast::<u8>();
                let to = Page::<E>::entry(copy, 0).cast();
                from.copy_to_nonoverlapping(to, len * Page::<E>::STRIDE);
                if !Page::<E>::IS_LINE {
                    page.births(len).copy_to_nonoverlapping(Page::<E>::births(copy, len), len);
                }
                memory.let_die(Dead::node(born, page.at, page.lines));
            }
            self.at = copy.link();
        }
        self.page()
    }

    /// Adds an entry. Returns it if the page is full.
    pub(super) fn push<P>(&mut self, slot: Slot<E>, memory: &mut Memory<P>) -> Result<(), Slot<E>> {
        let len = self.page().len();
        // As each page of a chain but the last.
        if len == MAX_LEN {
            return Err(slot);
        }
        // SAFETY: there is room for all entries and one more. Then the page is the draft's.
        unsafe { self.own(len, len + 1, memory).write(len, slot) };
        Ok(())
    }

    /// Moves all entries to `slots` and leaves an empty page.
    pub(super) fn take<P>(&mut self, slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) {
        let mut next = Some(mem::replace(self, Self::EMPTY).at);
        while let Some(at) = next {
            // SAFETY: the link was the draft's, or that of the page before in the chain, so the page exists; nothing uses
            // it after it dies below.
            let page = unsafe { Page::<E>::at(at) };
            let head = page.read_head();
            // SAFETY: the copies in `slots` continue in the draft; those in the page belong to earlier
            // versions.
            slots.extend((0..page.len()).map(|index| unsafe { page.read(index) }));
            // SAFETY: the draft's link to the page was taken from it above.
            unsafe { memory.let_die(Dead::node(head.born, page.at, page.lines)) };
            next = head.next;
        }
    }
}

impl<K: TableKey, V: Value> PageLink<Entry<K, V>> {
    /// Replaces the value at `index`, which counts across the pages of a chain: the old entry dies.
    pub(super) fn replace(&mut self, index: usize, value: V, memory: &mut Memory<V::Item>) {
        let replace = |old: &Slot<Entry<K, V>>, memory: &Memory<V::Item>| {
            memory.slot(old.tag, Entry { key: old.entry.key.clone(), value })
        };
        let page = self.page();
        let len = page.len();
        let old = if page.next().is_none() {
            assert!(index < len);
            // SAFETY: the entry exists, and the page belongs to the draft. The old entry is moved out and dies: rule 5.
            unsafe {
                let page = self.own(len, len, memory);
                let old = page.read(index);
                page.write(index, replace(&old, memory));
                old
            }
        } else {
            let mut slots = Vec::new();
            self.take(&mut slots, memory);
            let new = replace(&slots[index], memory);
            let old = mem::replace(&mut slots[index], new);
            *self = Self::new(&mut slots, memory);
            old
        };
        memory.let_entry_die(old);
    }

    /// Removes the entry at `index`, which counts across the pages of a chain: it dies, and the last entry gets its place.
    pub(super) fn remove(&mut self, index: usize, memory: &mut Memory<V::Item>) {
        let page = self.page();
        let len = page.len();
        let removed = if len > 1 && page.next().is_none() {
            assert!(index < len);
            let last = len - 1;
            // SAFETY: both entries exist, and the page then belongs to the draft. The removed entry is moved out and dies, and a
            // single copy of the last one goes on: rule 5.
            unsafe {
                let removed = page.read(index);
                let moved = page.read(last);
                let page = self.own(last, last, memory);
                if index < last {
                    page.write(index, moved);
                }
                page.clear_tag(last);
                removed
            }
        } else {
            let mut slots = Vec::new();
            self.take(&mut slots, memory);
            let removed = slots.swap_remove(index);
            *self = Self::new(&mut slots, memory);
            removed
        };
        memory.let_entry_die(removed);
    }
}

impl<E> Slot<E> {
    pub(super) fn entry(&self) -> &E {
        &self.entry
    }
}

impl<E> Clone for Page<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Page<'_, E> {}

impl<'a, E> Page<'a, E> {
    /// A page with room for so many entries, and without any.
    fn new<P>(capacity: usize, next: Option<NonNull<Line>>, memory: &mut Memory<P>) -> Self {
        let () = Page::<E>::FITS;
        let lines = Page::<E>::lines(capacity);
        let page = Self { at: memory.allocate(lines), lines, entries: PhantomData };
        // SAFETY: the memory is new.
        unsafe { page.head().write(PageHead { tags: [0; TAGS], born: memory.generation, next }) };
        page
    }

    /// A link to this page.
    fn link(self) -> NonNull<Line> {
        self.at.map_addr(|address| address | (self.lines - 1))
    }

    /// # Safety
    /// The link leads to a page of such entries, which exists for `'a`. It is written to only while nothing borrows an entry.
    #[inline]
    unsafe fn at(link: NonNull<Line>) -> Self {
        let page = Self { at: untagged(link), lines: tag(link) + 1, entries: PhantomData };
        #[cfg(any(pod_index_loom, pod_index_shuttle))]
        assert_ne!(page.read_head().born, POISON, "a node is read after it was freed");
        page
    }

    #[cfg(test)]
    pub(super) fn address(self) -> Option<usize> {
        (self.read_head().born > 0).then(|| self.at.addr().get())
    }

    /// Whether the page has no more lines than its entries need.
    #[cfg(test)]
    pub(super) fn fits(self) -> bool {
        self.lines == Page::<E>::lines(self.len())
    }

    fn head(self) -> NonNull<PageHead> {
        self.at.cast()
    }

    #[inline]
    fn read_head(self) -> PageHead {
        // SAFETY: by the rules the page exists and is not written to.
        unsafe { self.head().read() }
    }

    #[inline]
    fn tags(self) -> u8x16 {
        u8x16::from(self.read_head().tags)
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.tags().cmp_eq(u8x16::ZERO).move_mask().trailing_zeros() as usize
    }

    /// The place of an entry.
    #[inline]
    fn entry(self, index: usize) -> NonNull<E> {
        // SAFETY: no index is above the number of entries, so this is at most one past the end of the page.
        unsafe { self.at.byte_add(Page::<E>::FIRST + index * Page::<E>::STRIDE).cast() }
    }

    /// The births of the first `len` entries, that of the last one first, unless entries have lines.
    #[inline]
    fn births(self, len: usize) -> NonNull<u64> {
        // SAFETY: the page has room for `len` births.
        unsafe { self.at.add(self.lines).cast::<u64>().sub(len) }
    }

    /// The birth of an entry.
    #[inline]
    fn birth(self, index: usize) -> NonNull<u64> {
        if Page::<E>::IS_LINE {
            // SAFETY: an entry that has a line leaves room for its birth.
            unsafe { self.entry(index).add(1).cast() }
        } else {
            self.births(index + 1)
        }
    }

    #[inline]
    pub(super) fn entries(self) -> impl ExactSizeIterator<Item = &'a E> + Clone {
        // SAFETY: by the rules the page exists and is not written to. It has as many entries as tags.
        (0..self.len()).map(move |index| unsafe { self.entry(index).as_ref() })
    }

    /// The next page of a chain. Only a full page has one.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        // SAFETY: a page exists as long as the page before in its chain.
        self.read_head().next.map(|next| unsafe { Self::at(next) })
    }

    /// The entry with this tag for which `is` returns true, and its index in the chain.
    #[expect(clippy::inline_always, reason = "a call would pass the key through memory")]
    #[inline(always)]
    pub(super) fn find(self, tag: NonZero<u8>, is: impl Fn(&'a E) -> bool) -> Option<(usize, &'a E)> {
        let mut page = self;
        let mut before = 0;
        loop {
            let tags = page.tags();
            let mut hits = tags.cmp_eq(u8x16::splat(tag.get())).move_mask();
            while hits != 0 {
                let index = hits.trailing_zeros() as usize;
                // SAFETY: by the rules the page exists and is not written to. Each tag has an entry.
                let entry = unsafe { page.entry(index).as_ref() };
                if is(entry) {
                    return Some((before + index, entry));
                }
                hits &= hits - 1;
            }
            page = page.next()?;
            before += MAX_LEN;
        }
    }

    /// A bitwise copy of an entry.
    ///
    /// # Safety
    /// The entry must exist. Only one of its copies may die: rule 5.
    unsafe fn read(self, index: usize) -> Slot<E> {
        // SAFETY: the entry at `index` exists, so its tag, its birth and itself are written. The tag of an entry is not 0.
        unsafe {
            Slot {
                tag: NonZero::new_unchecked(self.at.cast::<u8>().add(index).read()),
                born: self.birth(index).read(),
                entry: self.entry(index).cast().read(),
            }
        }
    }

    /// Ends the entries at this index.
    ///
    /// # Safety
    /// The page belongs to the draft, and what was there was moved out.
    unsafe fn clear_tag(self, index: usize) {
        assert!(index < MAX_LEN);
        // SAFETY: there are more tags than entries, and the page belongs to the draft.
        unsafe { self.at.cast::<u8>().add(index).write(0) };
    }

    /// Stores an entry.
    ///
    /// # Safety
    /// The page belongs to the draft, and has room at `index`.
    unsafe fn write(self, index: usize, Slot { tag, born, entry }: Slot<E>) {
        assert!(index < MAX_LEN && Page::<E>::lines(index + 1) <= self.lines);
        // SAFETY: there is room, and the page belongs to the draft. The slot is moved there.
        unsafe {
            self.at.cast::<u8>().add(index).write(tag.get());
            self.birth(index).write(born);
            self.entry(index).cast().write(entry);
        }
    }
}

/// The birth of a freed node under the models.
#[cfg(any(pod_index_loom, pod_index_shuttle))]
const POISON: u64 = u64::MAX;
