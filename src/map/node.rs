//! The memory of a [`Table`](super::Table): nodes shared by many versions, without reference counts.
//!
//! **All unsafe code that reads, writes or frees nodes and records is in this file**; `versions` contains the
//! rest, the promise about which versions exist. Reference counts would make a safe persistent table
//! expensive: copying a page of `Arc`s writes to everything they point to. Here a node is copied by one
//! `memcpy`, and freed once no live version can reach it. The scheme is that of ZFS's dead lists, related to
//! interval-based reclamation: see `docs::internals`.
//!
//! # The rules
//! Every node, value and record is *born* in the generation of the draft that created it, and *dies* in the
//! first generation that no longer has it. A node copied by a draft is born again; an entry that moves keeps
//! its birth.
//!
//! 1. A published version is never written to. A draft writes only to nodes born in it, which nothing else
//!    can reach.
//! 2. What dies in generation `d` goes to the [`DeadList`] of version `d - 1`, which still has it.
//! 3. When a version is dropped, each item on its dead list moves to the dead list of the next older
//!    remaining version, if that one has it, that is, if the item was born no later. Otherwise the item is
//!    freed: newer versions do not have it, and the remaining older ones are older than its birth.
//! 4. A parent is never older than its children, because changing a child changes the link to it. So a
//!    version that has a node has everything below it.
//! 5. An entry may have several bitwise copies in nodes of several versions; exactly one of them dies.
//!
//! # Guarantees by types
//! [`Array`], [`PageLink`], [`Slot`] and [`Record`] are not `Clone`, and functions that end one take it by
//! value. Dropping one leaks its target, which is safe. A draft's links are in nodes that it owns; links in
//! published nodes can only be borrowed with `&`. So safe code can neither free a node twice nor write to a
//! shared one, as long as it uses the [`Memory`] of its own index, which
//! [`TableMut::new`](super::TableMut::new) promises.

use std::any::Any;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use wide::u8x16;

use super::labels::Labels;
use super::pool::{Line, NodePool};
use super::record::{Label, Record};
use super::{Entry, Key, Value};

/// The low bits of a link are free, because nodes are aligned to lines.
const TAG: usize = size_of::<Line>() - 1;
/// Maximum number of entries of a page. Its sixteenth tag is always 0.
pub(super) const MAX_LEN: usize = 15;
const TAGS: usize = 16;

/// A link to an array of links; its holder owns the array. A root is an array of chunks, a chunk an array of
/// pages.
///
/// Its tag is 63 minus the binary logarithm of the length: the distance by which a hash has to be shifted.
pub(super) struct Array<T> {
    at: NonNull<Line>,
    children: PhantomData<T>,
}

/// Stored after the links of an array.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayFoot {
    born: u64,
    /// Approximate number of entries below a chunk: when the root grows, each half of a chunk is assumed to
    /// have half of them. Only the table's shape depends on it.
    count: u64,
}

/// An array that belongs to a draft.
pub(super) struct ArrayMut<'a, T> {
    pub(super) children: &'a mut [T],
    pub(super) count: &'a mut u64,
}

/// A link to a page. Its tag is the page's number of lines minus one.
///
/// A page consists of 16 tags, the entries, their stamps, and at its end its birth and the next page of a
/// chain.
pub(super) struct PageLink<E> {
    at: NonNull<Line>,
    entries: PhantomData<E>,
}

/// The last bytes of a page.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageFoot {
    born: u64,
    /// The next page with entries of the same hash bits, if this one is full and a split would not help.
    /// Tagged like a link.
    next: Option<NonNull<Line>>,
}

/// A page for reading.
pub(super) struct Page<'a, E> {
    at: NonNull<Line>,
    lines: usize,
    entries: PhantomData<&'a E>,
}

/// A page that belongs to a draft.
pub(super) struct PageMut<'a, E> {
    page: Page<'a, E>,
    unique: PhantomData<&'a mut E>,
}

/// An entry that is moved between pages. Dropping it leaks the entry.
pub(super) struct Slot<E> {
    tag: NonZero<u8>,
    stamp: u64,
    entry: ManuallyDrop<E>,
}

/// Number of low bits of a stamp that hold flags. The others hold the value's birth.
const FLAG_BITS: u32 = 8;

/// The statics of an empty table. A draft copies them like any node; they are never freed.
#[repr(C, align(64))]
struct EmptyArray {
    child: NonNull<Line>,
    foot: ArrayFoot,
}

// SAFETY: it is never written to, and it points only to statics.
unsafe impl Sync for EmptyArray {}

static EMPTY_PAGE: Line = Line::ZERO;
static EMPTY_CHUNK: EmptyArray =
    EmptyArray { child: NonNull::from_ref(&EMPTY_PAGE), foot: ArrayFoot { born: 0, count: 0 } };
static EMPTY_ROOT: EmptyArray =
    EmptyArray { child: empty(&EMPTY_CHUNK), foot: ArrayFoot { born: 0, count: 0 } };

/// A link to an array of length one.
const fn empty(array: &'static EmptyArray) -> NonNull<Line> {
    let at = ptr::from_ref(array).cast::<Line>().cast_mut().wrapping_byte_add(TAG);
    // SAFETY: the address is within a static.
    unsafe { NonNull::new_unchecked(at) }
}

fn is_static(at: NonNull<Line>) -> bool {
    let at = untagged(at).as_ptr().cast_const();
    at == &raw const EMPTY_PAGE
        || at == (&raw const EMPTY_CHUNK).cast()
        || at == (&raw const EMPTY_ROOT).cast()
}

// SAFETY: sharing or sending a link shares or sends its entries, and gives the same access to them as a
// reference or a box.
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Array<T> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync> Send for PageLink<E> {}
// SAFETY: as above.
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

impl<E> Array<Array<PageLink<E>>> {
    /// The root of an empty table.
    pub(super) const EMPTY: Self = Self { at: empty(&EMPTY_ROOT), children: PhantomData };

    /// The same root, for a draft.
    ///
    /// # Safety
    /// Of all drafts of this version, only this one may be published or dropped as its draft, and the version
    /// must be kept until then.
    pub(super) unsafe fn share(&self) -> Self {
        Self { at: self.at, children: PhantomData }
    }
}

impl<E> Array<PageLink<E>> {
    /// A chunk of one empty page.
    pub(super) const EMPTY_CHUNK: Self = Self { at: empty(&EMPTY_CHUNK), children: PhantomData };
}

fn array_lines(bits: u32) -> usize {
    ((size_of::<usize>() << bits) + size_of::<ArrayFoot>()).div_ceil(size_of::<Line>())
}

impl<T> Array<T> {
    /// A new array of `2^bits` links.
    pub(super) fn new<P>(bits: u32, count: u64, mut children: Vec<T>, memory: &mut Memory<P>) -> Self {
        assert_eq!((size_of::<T>(), children.len()), (size_of::<usize>(), 1 << bits));
        let at = memory.allocate(array_lines(bits));
        // SAFETY: the memory is new and large enough for the links and the foot. The vector's links are
        // moved.
        unsafe {
            let first = at.cast::<T>();
            ptr::copy_nonoverlapping(children.as_ptr(), first.as_ptr(), children.len());
            first.add(children.len()).cast().write(ArrayFoot { born: memory.generation, count });
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
        // SAFETY: as in `children`; the index has as many bits as the length.
        unsafe { &*untagged(self.at).cast::<T>().as_ptr().add(index) }
    }

    fn foot(&self) -> NonNull<ArrayFoot> {
        // SAFETY: the foot follows the links.
        unsafe { untagged(self.at).cast::<T>().add(1 << self.bits()).cast() }
    }

    fn born(&self) -> u64 {
        // SAFETY: by the rules the node exists and is not written to.
        unsafe { (*self.foot().as_ptr()).born }
    }

    pub(super) fn count(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.foot().as_ptr()).count }
    }

    /// The array, to write to. If it is not the draft's yet, it becomes a copy.
    #[inline]
    pub(super) fn own<P>(&mut self, memory: &mut Memory<P>) -> ArrayMut<'_, T> {
        if self.born() != memory.generation {
            self.copy(memory);
        }
        // SAFETY: it was born in this draft, so that nobody else can reach it, and this link to it is borrowed.
        unsafe {
            let children = slice::from_raw_parts_mut(untagged(self.at).cast().as_ptr(), 1 << self.bits());
            ArrayMut { children, count: &mut (*self.foot().as_ptr()).count }
        }
    }

    #[inline(never)]
    fn copy<P>(&mut self, memory: &mut Memory<P>) {
        let lines = array_lines(self.bits());
        let copy = memory.allocate(lines);
        // SAFETY: the array is there, by the rules; the copy is new and as large.
        unsafe { ptr::copy_nonoverlapping(untagged(self.at).as_ptr(), copy.as_ptr(), lines) };
        memory.retire_node(untagged(self.at), lines, self.born());
        let tag = tag(self.at);
        self.at = copy.map_addr(|address| address | tag);
        // SAFETY: the copy is the draft's.
        unsafe { (*self.foot().as_ptr()).born = memory.generation };
    }

    /// The node's address; `None` for the statics of an empty table.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<usize> {
        (!is_static(self.at)).then(|| untagged(self.at).addr().get())
    }

    /// Takes the array apart.
    pub(super) fn take<P>(self, memory: &mut Memory<P>) -> Vec<T> {
        // SAFETY: the links are read once; afterwards only versions that have the node read them from it.
        let children = self.children().iter().map(|child| unsafe { ptr::read(child) }).collect();
        memory.retire_node(untagged(self.at), array_lines(self.bits()), self.born());
        children
    }

    #[cfg_attr(not(any(loom, shuttle)), expect(clippy::unused_self, reason = "only the models look"))]
    #[inline]
    fn check(&self) {
        #[cfg(any(loom, shuttle))]
        assert_ne!(self.born(), POISON, "a node is read after it was freed");
    }
}

/// Maximum number of entries of a page with `lines` lines.
const fn capacity<E>(lines: usize) -> usize {
    let room = lines * size_of::<Line>() - TAGS - size_of::<PageFoot>();
    let room = room / (size_of::<E>() + size_of::<u64>());
    if room < MAX_LEN { room } else { MAX_LEN }
}

fn page_lines<E>(len: usize) -> usize {
    let bytes = TAGS + size_of::<PageFoot>() + len * (size_of::<E>() + size_of::<u64>());
    bytes.div_ceil(size_of::<Line>())
}

impl<E> PageLink<E> {
    pub(super) const EMPTY: Self = Self { at: NonNull::from_ref(&EMPTY_PAGE), entries: PhantomData };

    /// Moves `slots` to new pages: one page, or a chain if there are too many.
    pub(super) fn new<P>(slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) -> Self {
        let mut link = Self::EMPTY;
        // From the last page of a chain, the only one that may not be full, to the first.
        while !slots.is_empty() {
            let first = (slots.len() - 1) / MAX_LEN * MAX_LEN;
            let lines = page_lines::<E>(slots.len() - first);
            let at = memory.allocate(lines);
            let next = (link != Self::EMPTY).then_some(link.at);
            let mut page = PageMut { page: Page { at, lines, entries: PhantomData }, unique: PhantomData };
            // SAFETY: the memory is new and has that many lines.
            unsafe {
                at.cast().write([0u8; TAGS]);
                page.page.foot().write(PageFoot { born: memory.generation, next });
            }
            for (index, slot) in slots.drain(first..).enumerate() {
                page.write(index, slot);
            }
            link = Self { at: at.map_addr(|address| address | (lines - 1)), entries: PhantomData };
        }
        link
    }

    #[inline]
    pub(super) fn page(&self) -> Page<'_, E> {
        Page::at(self.at)
    }

    /// Prefetches the first lines together: the tags and half of the entries of a full page. Three lines if an
    /// entry has three words.
    #[cfg_attr(not(target_arch = "x86_64"), expect(clippy::unused_self, reason = "only x86-64 prefetches"))]
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..size_of::<E>().div_ceil(8) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it accesses nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(untagged(self.at).as_ptr().wrapping_add(line).cast()) };
        }
    }

    /// The page for writing, copied unless the draft already owns it. `None` if the page is empty or in a
    /// chain.
    pub(super) fn own<P>(&mut self, memory: &mut Memory<P>) -> Option<PageMut<'_, E>> {
        let PageFoot { born, next } = self.page().read_foot();
        if next.is_some() || is_static(self.at) {
            return None;
        }
        if born != memory.generation {
            let lines = tag(self.at) + 1;
            let copy = memory.allocate(lines);
            // SAFETY: by the rules the page exists; the copy is new and has the same size.
            unsafe {
                ptr::copy_nonoverlapping(untagged(self.at).as_ptr(), copy.as_ptr(), lines);
            }
            memory.retire_node(untagged(self.at), lines, born);
            self.at = copy.map_addr(|address| address | (lines - 1));
            // SAFETY: the copy belongs to the draft.
            unsafe { (*self.page().foot().as_ptr()).born = memory.generation };
        }
        // It was born in this draft, so nothing else can reach it, and its link is borrowed.
        Some(PageMut { page: Page::at(self.at), unique: PhantomData })
    }

    /// The page for adding an entry. `None` if it already has [`MAX_LEN`] entries. If it has no space or does
    /// not belong to the draft, it is copied with space for one more entry.
    pub(super) fn own_with_room<P>(&mut self, memory: &mut Memory<P>) -> Option<PageMut<'_, E>> {
        let (page, PageFoot { born, .. }) = (self.page(), self.page().read_foot());
        let len = page.len();
        if len == MAX_LEN {
            return None;
        }
        let lines = page_lines::<E>(len + 1);
        if lines != page.lines || born != memory.generation {
            let copy = Page { at: memory.allocate(lines), lines, entries: PhantomData };
            // SAFETY: by the rules the page exists. The copy is new and large enough. A page that is not full
            // has no next page.
            unsafe {
                let bytes = TAGS + len * size_of::<E>();
                ptr::copy_nonoverlapping(page.at.cast::<u8>().as_ptr(), copy.at.cast().as_ptr(), bytes);
                ptr::copy_nonoverlapping(page.stamps().as_ptr(), Page::<E>::stamps(copy).as_ptr(), len);
                copy.foot().write(PageFoot { born: memory.generation, next: None });
            }
            memory.retire_node(page.at, page.lines, born);
            self.at = copy.at.map_addr(|address| address | (lines - 1));
        }
        // It was born in this draft, so nothing else can reach it, and its link is borrowed.
        Some(PageMut { page: Page::at(self.at), unique: PhantomData })
    }

    /// Moves all entries to `slots` and leaves an empty page.
    pub(super) fn take<P>(&mut self, slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) {
        let mut next = Some(mem::replace(self, Self::EMPTY).at);
        while let Some(at) = next {
            let page = Page::<E>::at(at);
            let foot = page.read_foot();
            // SAFETY: the copies in `slots` continue in the draft; those in the page belong to earlier
            // versions.
            slots.extend((0..page.len()).map(|index| unsafe { page.read(index) }));
            memory.retire_node(page.at, page.lines, foot.born);
            next = foot.next;
        }
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
    /// Private, because `'a` is unconstrained: callers must have borrowed the link from a node for as long.
    #[inline]
    fn at(link: NonNull<Line>) -> Self {
        let page = Self { at: untagged(link), lines: tag(link) + 1, entries: PhantomData };
        #[cfg(any(loom, shuttle))]
        assert_ne!(page.read_foot().born, POISON, "a node is read after it was freed");
        page
    }

    #[cfg(test)]
    pub(super) fn address(self) -> Option<usize> {
        (!is_static(self.at)).then(|| self.at.addr().get())
    }

    /// Whether the page has no more lines than its entries need.
    #[cfg(test)]
    pub(super) fn fits(self) -> bool {
        self.lines == page_lines::<E>(self.len())
    }

    #[inline]
    fn tags(self) -> u8x16 {
        // SAFETY: a page starts with its tags. By the rules it exists and is not written to; likewise below.
        u8x16::from(unsafe { self.at.cast::<[u8; TAGS]>().read() })
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        // Entries are packed, so the first 0 ends the tags.
        self.tags().cmp_eq(u8x16::ZERO).move_mask().trailing_zeros() as usize
    }

    #[inline]
    fn first(self) -> NonNull<E> {
        // SAFETY: the entries follow the tags.
        unsafe { self.at.byte_add(TAGS).cast() }
    }

    #[inline]
    pub(super) fn entries(self) -> &'a [E] {
        // SAFETY: by the rules; there are as many entries as tags.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len()) }
    }

    fn stamps(self) -> NonNull<u64> {
        // SAFETY: the stamps follow the space for entries.
        unsafe { self.first().add(capacity::<E>(self.lines)).cast() }
    }

    fn stamp(self, index: usize) -> NonNull<u64> {
        assert!(index < capacity::<E>(self.lines));
        // SAFETY: there are as many stamps as spaces for entries.
        unsafe { self.stamps().add(index) }
    }

    /// The flags of the entry at `index`.
    pub(super) fn flags(self, index: usize) -> u8 {
        assert!(index < self.len());
        // SAFETY: every entry has a stamp.
        let [flags, ..] = unsafe { self.stamp(index).read() }.to_le_bytes();
        flags
    }

    fn foot(self) -> NonNull<PageFoot> {
        // SAFETY: the foot is at the end of the page.
        unsafe { self.at.add(self.lines).cast::<PageFoot>().sub(1) }
    }

    fn read_foot(self) -> PageFoot {
        // SAFETY: by the rules.
        unsafe { self.foot().read() }
    }

    /// The next page of a chain.
    pub(super) fn next(self) -> Option<Self> {
        self.read_foot().next.map(Self::at)
    }

    /// The entry with this tag for which `is` returns true, and its index in the chain.
    #[expect(clippy::inline_always, reason = "a call would pass the key through memory")]
    #[inline(always)]
    pub(super) fn find(self, tag: NonZero<u8>, is: impl Fn(&'a E) -> bool) -> Option<(usize, &'a E)> {
        let (mut page, mut before) = (self, 0);
        loop {
            let tags = page.tags();
            let mut hits = tags.cmp_eq(u8x16::splat(tag.get())).move_mask();
            while hits != 0 {
                let index = hits.trailing_zeros() as usize;
                // SAFETY: by the rules; each tag has an entry.
                let entry = unsafe { &*page.first().as_ptr().add(index) };
                if is(entry) {
                    return Some((before + index, entry));
                }
                hits &= hits - 1;
            }
            // Only a full page may have a next page.
            if tags.as_array_ref()[MAX_LEN - 1] == 0 {
                return None;
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
        // SAFETY: the caller guarantees it. The tag of an entry is not 0.
        unsafe {
            Slot {
                tag: NonZero::new_unchecked(self.at.cast::<u8>().add(index).read()),
                stamp: self.stamp(index).read(),
                entry: self.first().add(index).cast().read(),
            }
        }
    }
}

impl<K, V> PageMut<'_, Entry<K, V>> {
    /// Replaces the value at `index`. The old value dies.
    pub(super) fn replace<P>(&mut self, index: usize, value: V, flags: u8, memory: &mut Memory<P>)
    where
        V: Value<Pod = P>,
    {
        assert!(index < self.page.len());
        let stamp = memory.stamp(flags);
        // SAFETY: the entry exists, and the page belongs to the draft. The old value is moved out and dies:
        // rule 5.
        let (old, born) = unsafe {
            let place = &raw mut (*self.page.first().as_ptr().add(index)).value;
            let old = ptr::replace(place, value);
            (old, self.page.stamp(index).replace(stamp) >> FLAG_BITS)
        };
        memory.retire_value(old, born);
    }
}

impl<E> PageMut<'_, E> {
    /// Adds an entry. There must be space for it.
    pub(super) fn push(&mut self, slot: Slot<E>) {
        self.write(self.page.len(), slot);
    }

    fn write(&mut self, index: usize, slot: Slot<E>) {
        assert!(index < capacity::<E>(self.page.lines));
        // SAFETY: there is space, and the page belongs to the draft. The slot is moved there.
        unsafe {
            self.page.at.cast::<u8>().add(index).write(slot.tag.get());
            self.page.stamp(index).write(slot.stamp);
            self.page.first().add(index).cast().write(slot.entry);
        }
    }
}

/// The writer's memory for nodes, and what its draft has dropped.
pub(crate) struct Memory<P> {
    /// The generation of the draft.
    generation: u64,
    pool: NodePool,
    /// What the draft's base version has and the draft does not.
    dead: DeadList<P>,
    /// Pods that were both added and removed in the draft.
    unpublished: Vec<Arc<P>>,
    /// Older records of which the draft took another count.
    shared: Vec<Record>,
    labels: Labels,
    /// Empty lists for reuse.
    spare: Vec<DeadList<P>>,
}

/// Maximum number of empty lists kept.
const SPARE_LISTS: usize = 4;

/// What a version has and the next one does not. Dropping the list leaks its content.
pub(crate) struct DeadList<P> {
    nodes: Vec<DeadNode>,
    pods: Vec<(u64, ManuallyDrop<Arc<P>>)>,
    texts: Vec<(u64, ManuallyDrop<Arc<str>>)>,
    records: Vec<Record>,
    /// Nodes with everything below them.
    trees: Vec<DeadTree<P>>,
}

struct DeadNode {
    at: NonNull<Line>,
    lines: usize,
    born: u64,
}

struct DeadTree<P> {
    link: NonNull<Line>,
    /// Takes the tree apart, for its type of entries.
    sweep: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
}

/// Takes trees apart: frees what was born in generation `first` or later, and moves the rest to another list.
struct Sweep<'a, P> {
    first: u64,
    pool: &'a mut NodePool,
    older: &'a mut DeadList<P>,
    freed: &'a mut Vec<Arc<P>>,
}

// SAFETY: the list owns its content, including the entries of nodes.
unsafe impl<P: Send + Sync> Send for DeadList<P> {}
// SAFETY: a shared list gives no access to its content.
unsafe impl<P: Send + Sync> Sync for DeadList<P> {}

impl<P> Default for DeadList<P> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            pods: Vec::new(),
            texts: Vec::new(),
            records: Vec::new(),
            trees: Vec::new(),
        }
    }
}

impl<P> Default for Memory<P> {
    fn default() -> Self {
        Self {
            generation: 0,
            pool: NodePool::default(),
            dead: DeadList::default(),
            unpublished: Vec::new(),
            shared: Vec::new(),
            labels: Labels::default(),
            spare: Vec::new(),
        }
    }
}

impl<P> Memory<P> {
    /// Returns the memory of freed nodes to the allocator.
    pub(crate) fn trim(&mut self) {
        self.pool = NodePool::default();
    }

    /// Starts a draft.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Ends a published draft. Returns what died in it. Call [`drop_unpublished`](Self::drop_unpublished)
    /// afterwards.
    pub(crate) fn end(&mut self) -> DeadList<P> {
        self.shared.clear();
        mem::replace(&mut self.dead, self.spare.pop().unwrap_or_default())
    }

    /// Drops the pods that were both added and removed in the draft. Their `Drop` is foreign code and may
    /// panic, so the new version must be published first.
    pub(crate) fn drop_unpublished(&mut self) {
        drop_all(&mut self.unpublished);
    }

    /// Ends a draft that is not published and whose tables were passed to [`abandon`](Self::abandon). The
    /// published version still has what the draft dropped.
    pub(crate) fn cancel(&mut self) {
        self.dead.forget();
        self.shared.drain(..).for_each(Record::release);
        self.drop_unpublished();
    }

    /// Frees what was born in the draft, which is not published.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(super) fn abandon<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let mut older = DeadList::default();
        // The published version still has everything older, so that list is dropped without effect.
        let Self { generation, pool, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: &mut older, freed: unpublished };
        // SAFETY: only the draft can reach what was born in it, and it gave its root away.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// Marks the tree as dead.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(super) fn retire_tree<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let Self { generation, pool, dead, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: dead, freed: unpublished };
        // SAFETY: as above; the rest goes to the dead list.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// A new entry of the draft.
    pub(super) fn slot<E>(&self, tag: NonZero<u8>, flags: u8, entry: E) -> Slot<E> {
        Slot { tag, stamp: self.stamp(flags), entry: ManuallyDrop::new(entry) }
    }

    fn stamp(&self, flags: u8) -> u64 {
        self.generation << FLAG_BITS | u64::from(flags)
    }

    /// Marks the entry as dead.
    pub(super) fn retire<E: Holds<P>>(&mut self, slot: Slot<E>) {
        let (parts, record) = ManuallyDrop::into_inner(slot.entry).into_parts();
        self.retire_parts(parts, slot.stamp >> FLAG_BITS);
        if let Some(record) = record {
            if record.born() == self.generation {
                record.release();
            } else {
                self.dead.records.push(record);
            }
        }
    }

    /// The entry with another value. The old value dies.
    pub(super) fn replaced<K, V: Value<Pod = P>>(
        &mut self,
        slot: Slot<Entry<K, V>>,
        value: V,
        flags: u8,
    ) -> Slot<Entry<K, V>> {
        let Entry { key, value: old } = ManuallyDrop::into_inner(slot.entry);
        self.retire_value(old, slot.stamp >> FLAG_BITS);
        self.slot(slot.tag, flags, Entry { key, value })
    }

    fn retire_value<V: Value<Pod = P>>(&mut self, value: V, born: u64) {
        self.retire_parts(value.into_parts(), born);
    }

    #[inline]
    fn retire_parts(&mut self, (pod, text): Parts<P>, born: u64) {
        if born == self.generation {
            if let Some(pod) = pod {
                self.unpublished.push(pod);
            }
            return;
        }
        if let Some(pod) = pod {
            self.dead.pods.push((born, ManuallyDrop::new(pod)));
        }
        if let Some(text) = text {
            self.dead.texts.push((born, ManuallyDrop::new(text)));
        }
    }

    /// A record of these strings: another count of `shared`, or a new record.
    pub(crate) fn record(
        &mut self,
        shared: Option<Record>,
        first: impl AsRef<[u8]>,
        second: impl AsRef<[u8]>,
    ) -> Record {
        let Some(record) = shared else {
            return Record::new(self.generation, first.as_ref(), second.as_ref());
        };
        if record.born() != self.generation {
            self.shared.push(record.copy());
        }
        record
    }

    /// A record of a short text that many entries repeat.
    pub(crate) fn label(&mut self, text: &str) -> Label {
        if let Some(known) = self.labels.get(text) {
            if known.record().born() != self.generation {
                self.shared.push(known.record().copy());
            }
            return known;
        }
        let label = Label::new(self.generation, text);
        self.labels.keep(&label);
        label
    }

    /// Releases the cached labels. Only one thread at a time may change counts of records, so call this
    /// before readers may free memory.
    pub(crate) fn forget_labels(&mut self) {
        self.labels.clear();
    }

    fn allocate(&mut self, lines: usize) -> NonNull<Line> {
        NonNull::from(Box::leak(self.pool.take(lines))).cast()
    }

    fn retire_node(&mut self, at: NonNull<Line>, lines: usize, born: u64) {
        if is_static(at) {
            return;
        }
        if born == self.generation {
            // SAFETY: only the draft has ever used it, and no longer links to it.
            unsafe { free(at, lines, &mut self.pool) };
        } else {
            self.dead.nodes.push(DeadNode { at, lines, born });
        }
    }

    /// The version of the dead list `dead` was dropped: frees what no version has any more. The rest moves to
    /// the dead list of the next older remaining version, `older`, given with its generation.
    ///
    /// # Panics
    /// If a pod's `Drop` panics. Everything else is freed before.
    ///
    /// # Safety
    /// The version must have been dropped, and no version between the two may remain.
    pub(crate) unsafe fn reclaim(&mut self, mut dead: DeadList<P>, older: Option<(u64, &mut DeadList<P>)>) {
        let mut freed = Vec::new();
        // SAFETY: the caller guarantees it.
        unsafe { dead.reclaim_into(older, &mut self.pool, &mut freed) };
        if self.spare.len() < SPARE_LISTS {
            self.spare.push(dead);
        }
        drop_all(&mut freed);
    }
}

impl<P> DeadList<P> {
    /// Appends another version's list.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.pods.append(&mut other.pods);
        self.texts.append(&mut other.texts);
        self.records.append(&mut other.records);
        self.trees.append(&mut other.trees);
    }

    /// Adds everything that a table has.
    ///
    /// # Safety
    /// The table must belong to the last version and be added only once.
    pub(super) unsafe fn add_tree<E: Holds<P>>(&mut self, root: &Array<Array<PageLink<E>>>) {
        self.trees.push(DeadTree { link: root.at, sweep: sweep_root::<E, P> });
    }

    /// Number of dead nodes.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn forget(&mut self) {
        self.nodes.clear();
        self.pods.clear();
        self.texts.clear();
        self.records.clear();
        self.trees.clear();
    }

    /// Frees everything.
    ///
    /// # Safety
    /// No version may be left.
    pub(crate) unsafe fn free(mut self) {
        let mut freed = Vec::new();
        // SAFETY: the caller guarantees it.
        unsafe { self.reclaim_into(None, &mut NodePool::default(), &mut freed) };
        drop_all(&mut freed);
    }

    /// See [`Memory::reclaim`]. Pods without a version are moved to `freed`.
    ///
    /// # Safety
    /// Those of [`Memory::reclaim`].
    unsafe fn reclaim_into(
        &mut self,
        older: Option<(u64, &mut Self)>,
        pool: &mut NodePool,
        freed: &mut Vec<Arc<P>>,
    ) {
        let mut nobodys = Self::default();
        // The first generation that the older version does not have.
        let (first, older) = older.map_or((0, &mut nobodys), |(generation, older)| (generation + 1, older));
        for node in self.nodes.drain(..) {
            if node.born < first {
                older.nodes.push(node);
            } else {
                // SAFETY: rule 3.
                unsafe { free(node.at, node.lines, pool) };
            }
        }
        let mut sweep = Sweep { first, pool, older, freed };
        for tree in self.trees.drain(..) {
            // SAFETY: rule 3, for each node.
            unsafe { (tree.sweep)(tree.link, &mut sweep) };
        }
        self.pods.drain(..).for_each(|(born, pod)| sweep.pod(born, ManuallyDrop::into_inner(pod)));
        self.texts.drain(..).for_each(|(born, text)| sweep.text(born, ManuallyDrop::into_inner(text)));
        self.records.drain(..).for_each(|record| sweep.record(record));
    }
}

impl<P> Sweep<'_, P> {
    fn pod(&mut self, born: u64, pod: Arc<P>) {
        if born < self.first {
            self.older.pods.push((born, ManuallyDrop::new(pod)));
        } else {
            self.freed.push(pod);
        }
    }

    fn text(&mut self, born: u64, text: Arc<str>) {
        if born < self.first {
            self.older.texts.push((born, ManuallyDrop::new(text)));
        }
    }

    fn record(&mut self, record: Record) {
        if record.born() < self.first {
            self.older.records.push(record);
        } else {
            record.release();
        }
    }
}

/// # Safety
/// The link must lead to the root of a table of such entries, and only versions that have what was born
/// before the sweep's `first` may follow a link in it; likewise for the two functions below.
unsafe fn sweep_root<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the caller guarantees it.
    unsafe { sweep_array::<Array<PageLink<E>>, P>(link, sweep, sweep_root::<E, P>, sweep_chunk::<E, P>) }
}

unsafe fn sweep_chunk<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the caller guarantees it.
    unsafe { sweep_array::<PageLink<E>, P>(link, sweep, sweep_chunk::<E, P>, sweep_page::<E, P>) }
}

unsafe fn sweep_array<T, P>(
    link: NonNull<Line>,
    sweep: &mut Sweep<'_, P>,
    this: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
    below: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
) {
    let array = Array::<T> { at: link, children: PhantomData };
    if is_static(link) {
        return;
    }
    if array.born() < sweep.first {
        // Rule 4.
        sweep.older.trees.push(DeadTree { link, sweep: this });
        return;
    }
    for child in array.children() {
        // SAFETY: a child is a link, which is only a tagged pointer; the caller guarantees the rest.
        unsafe { below(ptr::from_ref(child).cast::<NonNull<Line>>().read(), sweep) };
    }
    // SAFETY: the caller guarantees it.
    unsafe { free(untagged(link), array_lines(array.bits()), sweep.pool) };
}

unsafe fn sweep_page<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    if is_static(link) {
        return;
    }
    let page = Page::<E>::at(link);
    let PageFoot { born, next } = page.read_foot();
    if born < sweep.first {
        sweep.older.trees.push(DeadTree { link, sweep: sweep_page::<E, P> });
        return;
    }
    for index in 0..page.len() {
        // SAFETY: the page is freed and not read again: rule 5.
        let slot = unsafe { page.read(index) };
        let ((pod, text), record) = ManuallyDrop::into_inner(slot.entry).into_parts();
        let born = slot.stamp >> FLAG_BITS;
        if let Some(pod) = pod {
            sweep.pod(born, pod);
        }
        if let Some(text) = text {
            sweep.text(born, text);
        }
        if let Some(record) = record {
            sweep.record(record);
        }
    }
    if let Some(next) = next {
        // SAFETY: the caller guarantees it.
        unsafe { sweep_page::<E, P>(next, sweep) };
    }
    // SAFETY: the caller guarantees it.
    unsafe { free(page.at, page.lines, sweep.pool) };
}

/// The parts of a value that have to be freed.
type Parts<P> = (Option<Arc<P>>, Option<Arc<str>>);

/// An entry with any types of key and value.
pub(super) trait Holds<P> {
    fn into_parts(self) -> (Parts<P>, Option<Record>);
}

impl<K: Key, V: Value> Holds<V::Pod> for Entry<K, V> {
    fn into_parts(self) -> (Parts<V::Pod>, Option<Record>) {
        (self.value.into_parts(), self.key.into_record())
    }
}

/// Frees the memory of a node, but not what it holds or links to.
///
/// # Safety
/// The node must have this size, and no link to it may be followed any more.
unsafe fn free(at: NonNull<Line>, lines: usize, pool: &mut NodePool) {
    let memory = ptr::slice_from_raw_parts_mut(at.as_ptr().cast::<MaybeUninit<Line>>(), lines);
    // SAFETY: `allocate` leaked a box of this size.
    let memory = unsafe { Box::from_raw(memory) };
    #[cfg(any(loom, shuttle))]
    let memory = poisoned(memory);
    pool.put(memory);
}

/// Overwrites a freed node and keeps it for a while, so that the models detect a read of it without reading
/// freed memory. Returns an older one of the same size.
#[cfg(any(loom, shuttle))]
fn poisoned(mut memory: super::pool::NodeMemory) -> super::pool::NodeMemory {
    use std::collections::VecDeque;
    use std::sync::{Mutex, PoisonError};

    static FREED: Mutex<VecDeque<super::pool::NodeMemory>> = Mutex::new(VecDeque::new());
    const KEPT: usize = 4096;
    memory.fill(MaybeUninit::new(Line::POISON));
    let other = Box::new_uninit_slice(memory.len());
    let mut freed = FREED.lock().unwrap_or_else(PoisonError::into_inner);
    freed.push_back(memory);
    if freed.len() > KEPT {
        freed.pop_front();
    }
    other
}

/// The birth of a freed node under the models.
#[cfg(any(loom, shuttle))]
const POISON: u64 = u64::MAX;

/// Drops every pod, even if some panic. The first panic continues after all are dropped.
fn drop_all<P>(pods: &mut Vec<Arc<P>>) {
    let mut panic: Option<Box<dyn Any + Send>> = None;
    for pod in pods.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(pod))) {
            panic.get_or_insert(payload);
        }
    }
    // During another panic, a second one would abort the process.
    if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
        resume_unwind(panic);
    }
}
