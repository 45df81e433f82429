//! The memory of a [`Table`](super::Table): nodes that many versions share and that nobody counts.
//!
//! **All unsafe code that reads, writes or frees nodes and records is in this file**; `versions` has the rest, which is the
//! promise about which versions are left. Counting references to nodes is what makes a safe persistent table expensive: to
//! copy a page of `Arc`s is to write to everything that they point to. Here a node is copied by one `memcpy`, and is freed
//! once no version that is left can reach it. The scheme is that of ZFS's dead lists, a relative of interval-based
//! reclamation: see `docs::internals`.
//!
//! # The rules
//! Every node, value and record is *born* in the generation of the draft that made it, and *dies* in the first generation
//! that no longer has it. A node that a draft copies is born anew; an entry that moves keeps its birth.
//!
//! 1. A published version is never written to. A draft writes only to nodes that were born in it, which nobody else can
//!    reach.
//! 2. What dies in generation `d` goes to the [`DeadList`] of version `d - 1`, which still has it.
//! 3. When a version goes, each thing on its dead list goes to the dead list of the next older version that is left, if
//!    that one has it, which is to say if the thing was born no later. Otherwise it is freed: newer versions do not have
//!    it, and older ones that are left are older than its birth.
//! 4. A parent is never older than its children, because changing a child changes the link to it. So a version that has a
//!    node has everything below it.
//! 5. An entry may have several bitwise copies in nodes of several versions; exactly one of them dies.
//!
//! # What types keep
//! [`Array`], [`PageLink`], [`Slot`] and [`Record`] are not `Clone`, and the functions that end one take it by value. To
//! drop one leaks what it leads to and does no harm. A draft's links stand in nodes that it owns, and in a published node
//! there is only `&` access to them. So safe code can neither free a node twice nor write to a shared one, as long as it
//! uses the [`Memory`] of its own index: [`TableMut::new`](super::TableMut::new) is where that is promised.

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
use super::record::Record;
use super::{Entry, Key, Value};

/// The low bits of a link, which are free because nodes are aligned to lines.
const TAG: usize = size_of::<Line>() - 1;
/// The most entries of a page. Its sixteenth tag is always 0.
pub(super) const MAX_LEN: usize = 15;
const TAGS: usize = 16;

/// A link to an array of links, owned by whoever owns the link. A root is an array of chunks, a chunk is one of pages.
///
/// Its tag is 63 minus the binary logarithm of the length: what a hash has to be shifted by.
pub(super) struct Array<T> {
    at: NonNull<Line>,
    children: PhantomData<T>,
}

/// What stands behind the links of an array.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArrayFoot {
    born: u64,
    /// About how many entries are below a chunk: when the root grows, a chunk's two halves are taken to have half of it
    /// each. Only the shape of the table depends on it.
    count: u64,
}

/// An array that belongs to a draft.
pub(super) struct ArrayMut<'a, T> {
    pub(super) children: &'a mut [T],
    pub(super) count: &'a mut u64,
}

/// A link to a page. Its tag is one less than the page's number of lines.
///
/// A page is 16 tags, then entries, then their stamps; at its end stand its birth and the next page of a chain.
pub(super) struct PageLink<E> {
    at: NonNull<Line>,
    entries: PhantomData<E>,
}

/// The last bytes of a page.
#[repr(C)]
#[derive(Clone, Copy)]
struct PageFoot {
    born: u64,
    /// More entries of the same hash bits, if the page is full and a split would not help. Tagged as a link.
    next: Option<NonNull<Line>>,
}

/// A page, to read.
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

/// An entry on its way from one page to another. To drop it leaks the entry.
pub(super) struct Slot<E> {
    tag: NonZero<u8>,
    stamp: u64,
    entry: ManuallyDrop<E>,
}

/// Bits of a stamp below the birth of the value: the flags.
const FLAG_BITS: u32 = 8;

/// The statics that an empty table is made of. A draft copies them as it copies any node, and nobody frees them.
#[repr(C, align(64))]
struct EmptyArray {
    child: NonNull<Line>,
    foot: ArrayFoot,
}

// SAFETY: it is never written to, and what it points to is a static, too.
unsafe impl Sync for EmptyArray {}

static EMPTY_PAGE: Line = Line::ZERO;
static EMPTY_CHUNK: EmptyArray =
    EmptyArray { child: NonNull::from_ref(&EMPTY_PAGE), foot: ArrayFoot { born: 0, count: 0 } };
static EMPTY_ROOT: EmptyArray =
    EmptyArray { child: empty(&EMPTY_CHUNK), foot: ArrayFoot { born: 0, count: 0 } };

/// A link to an array of one.
const fn empty(array: &'static EmptyArray) -> NonNull<Line> {
    let at = ptr::from_ref(array).cast::<Line>().cast_mut().wrapping_byte_add(TAG);
    // SAFETY: it is within a static.
    unsafe { NonNull::new_unchecked(at) }
}

fn is_static(at: NonNull<Line>) -> bool {
    let at = untagged(at).as_ptr().cast_const();
    at == &raw const EMPTY_PAGE
        || at == (&raw const EMPTY_CHUNK).cast()
        || at == (&raw const EMPTY_ROOT).cast()
}

// SAFETY: a link is shared and sent with the entries that it leads to, and gives no other access to them than a reference
// or a box would.
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Array<T> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync> Send for PageLink<E> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync> Sync for PageLink<E> {}

#[inline]
fn untagged(at: NonNull<Line>) -> NonNull<Line> {
    // SAFETY: nodes are not at address 0, nor in the first 64 bytes.
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
    /// The draft is the only one that is published or dropped as a draft of this version, and the version is kept until
    /// then.
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
        // SAFETY: the memory is new and has room for the links and the foot. The links move: the vector keeps none of them.
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
        // SAFETY: by the rules the node is there and nobody writes to it; the tag tells its length.
        unsafe { slice::from_raw_parts(untagged(self.at).cast().as_ptr(), 1 << self.bits()) }
    }

    /// The child that the highest bits of `hash` lead to.
    #[expect(clippy::inline_always, reason = "one load, on the way of every look-up")]
    #[inline(always)]
    pub(super) fn child(&self, hash: u64) -> &T {
        self.check();
        // In two steps, because the length may be 1.
        let index = (hash >> 1 >> tag(self.at)) as usize;
        // SAFETY: as in `children`; the index has as many bits as the length.
        unsafe { &*untagged(self.at).cast::<T>().as_ptr().add(index) }
    }

    fn foot(&self) -> NonNull<ArrayFoot> {
        // SAFETY: the foot stands behind the links.
        unsafe { untagged(self.at).cast::<T>().add(1 << self.bits()).cast() }
    }

    fn born(&self) -> u64 {
        // SAFETY: by the rules the node is there and nobody writes to it.
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

    /// Where the node is; none for the statics of an empty table.
    #[cfg(test)]
    pub(super) fn address(&self) -> Option<usize> {
        (!is_static(self.at)).then(|| untagged(self.at).addr().get())
    }

    /// Takes the array apart.
    pub(super) fn take<P>(self, memory: &mut Memory<P>) -> Vec<T> {
        // SAFETY: the links are read once: nobody reads them from the node again, but versions that have the node.
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

/// The most entries of a page of `lines` lines.
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

    /// New pages with `slots`, which are moved out of the vector: one page, or a chain if there are too many.
    pub(super) fn new<P>(slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) -> Self {
        let mut link = Self::EMPTY;
        // From the last page of a chain, which alone may have room left, to the first.
        while !slots.is_empty() {
            let first = (slots.len() - 1) / MAX_LEN * MAX_LEN;
            let lines = page_lines::<E>(slots.len() - first);
            let at = memory.allocate(lines);
            let next = (link != Self::EMPTY).then_some(link.at);
            let mut page = PageMut { page: Page { at, lines, entries: PhantomData }, unique: PhantomData };
            // SAFETY: the memory is new and as large as its number of lines says.
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

    /// Loads the first three lines together: tags and, of most pages, all entries.
    #[cfg_attr(not(target_arch = "x86_64"), expect(clippy::unused_self, reason = "only x86-64 prefetches"))]
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..3 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it accesses nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(untagged(self.at).as_ptr().wrapping_add(line).cast()) };
        }
    }

    /// The page, to write to: none if it is empty or in a chain. If it is not the draft's yet, it becomes a copy.
    pub(super) fn own<P>(&mut self, memory: &mut Memory<P>) -> Option<PageMut<'_, E>> {
        let PageFoot { born, next } = self.page().read_foot();
        if next.is_some() || is_static(self.at) {
            return None;
        }
        if born != memory.generation {
            let lines = tag(self.at) + 1;
            let copy = memory.allocate(lines);
            // SAFETY: the page is there, by the rules; the copy is new and as large.
            unsafe {
                ptr::copy_nonoverlapping(untagged(self.at).as_ptr(), copy.as_ptr(), lines);
            }
            memory.retire_node(untagged(self.at), lines, born);
            self.at = copy.map_addr(|address| address | (lines - 1));
            // SAFETY: the copy is the draft's.
            unsafe { (*self.page().foot().as_ptr()).born = memory.generation };
        }
        // It was born in this draft, so that nobody else can reach it, and this link to it is borrowed.
        Some(PageMut { page: Page::at(self.at), unique: PhantomData })
    }

    /// The page, to add an entry to: none if it has [`MAX_LEN`] already. If it has no room or is not the draft's yet, it
    /// becomes a copy that has room for one more.
    pub(super) fn own_with_room<P>(&mut self, memory: &mut Memory<P>) -> Option<PageMut<'_, E>> {
        let (page, PageFoot { born, .. }) = (self.page(), self.page().read_foot());
        let len = page.len();
        if len == MAX_LEN {
            return None;
        }
        let lines = page_lines::<E>(len + 1);
        if lines != page.lines || born != memory.generation {
            let copy = Page { at: memory.allocate(lines), lines, entries: PhantomData };
            // SAFETY: the page is there, by the rules. The copy is new and has room for what is copied. A page that is not
            // full has none behind it.
            unsafe {
                let bytes = TAGS + len * size_of::<E>();
                ptr::copy_nonoverlapping(page.at.cast::<u8>().as_ptr(), copy.at.cast().as_ptr(), bytes);
                ptr::copy_nonoverlapping(page.stamps().as_ptr(), Page::<E>::stamps(copy).as_ptr(), len);
                copy.foot().write(PageFoot { born: memory.generation, next: None });
            }
            memory.retire_node(page.at, page.lines, born);
            self.at = copy.at.map_addr(|address| address | (lines - 1));
        }
        // It was born in this draft, so that nobody else can reach it, and this link to it is borrowed.
        Some(PageMut { page: Page::at(self.at), unique: PhantomData })
    }

    /// Moves all entries to `slots` and leaves the empty page.
    pub(super) fn take<P>(&mut self, slots: &mut Vec<Slot<E>>, memory: &mut Memory<P>) {
        let mut next = Some(mem::replace(self, Self::EMPTY).at);
        while let Some(at) = next {
            let page = Page::<E>::at(at);
            let foot = page.read_foot();
            // SAFETY: the copies of the slots go on in the draft; those in the page belong to earlier versions.
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
    /// Private, because `'a` can be anything: whoever calls this has the link from a node that is borrowed as long.
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
        // SAFETY: a page begins with its tags. By the rules it is there and nobody writes to it; so in what follows.
        u8x16::from(unsafe { self.at.cast::<[u8; TAGS]>().read() })
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        // Entries are packed, so that the first 0 ends the tags.
        self.tags().cmp_eq(u8x16::ZERO).move_mask().trailing_zeros() as usize
    }

    #[inline]
    fn first(self) -> NonNull<E> {
        // SAFETY: entries stand behind the tags.
        unsafe { self.at.byte_add(TAGS).cast() }
    }

    #[inline]
    pub(super) fn entries(self) -> &'a [E] {
        // SAFETY: by the rules; there are as many entries as tags.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len()) }
    }

    fn stamps(self) -> NonNull<u64> {
        // SAFETY: the stamps stand behind the entries that there is room for.
        unsafe { self.first().add(capacity::<E>(self.lines)).cast() }
    }

    fn stamp(self, index: usize) -> NonNull<u64> {
        assert!(index < capacity::<E>(self.lines));
        // SAFETY: there are as many stamps as there is room for entries.
        unsafe { self.stamps().add(index) }
    }

    /// The flags of the entry at `index`.
    pub(super) fn flags(self, index: usize) -> u8 {
        assert!(index < self.len());
        // SAFETY: an entry has a stamp.
        let [flags, ..] = unsafe { self.stamp(index).read() }.to_le_bytes();
        flags
    }

    fn foot(self) -> NonNull<PageFoot> {
        // SAFETY: the foot is the end of the page.
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

    /// The entry with this tag to which `is` says yes, and its index in the chain.
    #[expect(clippy::inline_always, reason = "a call would pass the key through memory")]
    #[inline(always)]
    pub(super) fn find(self, tag: NonZero<u8>, is: impl Fn(&'a E) -> bool) -> Option<(usize, &'a E)> {
        let (mut page, mut before) = (self, 0);
        loop {
            let tags = page.tags();
            let mut hits = tags.cmp_eq(u8x16::splat(tag.get())).move_mask();
            while hits != 0 {
                let index = hits.trailing_zeros() as usize;
                // SAFETY: by the rules; where there is a tag there is an entry.
                let entry = unsafe { &*page.first().as_ptr().add(index) };
                if is(entry) {
                    return Some((before + index, entry));
                }
                hits &= hits - 1;
            }
            // Only a full page may have another one behind it.
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
    /// There is such an entry. One of its copies dies, not more: rule 5.
    unsafe fn read(self, index: usize) -> Slot<E> {
        // SAFETY: the caller's. A tag of an entry is not 0.
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
    /// Puts `value` in the place of the one at `index`, which dies.
    pub(super) fn replace<P>(&mut self, index: usize, value: V, flags: u8, memory: &mut Memory<P>)
    where
        V: Value<Pod = P>,
    {
        assert!(index < self.page.len());
        let stamp = memory.stamp(flags);
        // SAFETY: there is such an entry, and the page is the draft's. The old value is moved out and dies: rule 5.
        let (old, born) = unsafe {
            let place = &raw mut (*self.page.first().as_ptr().add(index)).value;
            let old = ptr::replace(place, value);
            (old, self.page.stamp(index).replace(stamp) >> FLAG_BITS)
        };
        memory.retire_value(old, born);
    }
}

impl<E> PageMut<'_, E> {
    /// Adds an entry, for which there must be room.
    pub(super) fn push(&mut self, slot: Slot<E>) {
        self.write(self.page.len(), slot);
    }

    fn write(&mut self, index: usize, slot: Slot<E>) {
        assert!(index < capacity::<E>(self.page.lines));
        // SAFETY: there is room, and the page is the draft's. The slot moves there.
        unsafe {
            self.page.at.cast::<u8>().add(index).write(slot.tag.get());
            self.page.stamp(index).write(slot.stamp);
            self.page.first().add(index).cast().write(slot.entry);
        }
    }
}

/// What the writer of an index makes nodes from, and what its draft has let go of.
pub(crate) struct Memory<P> {
    /// The generation of the draft.
    generation: u64,
    pool: NodePool,
    /// What the version has that the draft is made from, and the draft has not.
    dead: DeadList<P>,
    /// Pods that came and went in the draft.
    unpublished: Vec<Arc<P>>,
    /// Older records of which the draft took another count.
    shared: Vec<Record>,
    labels: Labels,
    /// Empty lists to use again.
    spare: Vec<DeadList<P>>,
}

/// How many empty lists are kept.
const SPARE_LISTS: usize = 4;

/// What a version has and the next one has not. To drop it leaks all that is on it.
pub(crate) struct DeadList<P> {
    nodes: Vec<DeadNode>,
    pods: Vec<(u64, ManuallyDrop<Arc<P>>)>,
    texts: Vec<(u64, ManuallyDrop<Arc<str>>)>,
    records: Vec<Record>,
    /// Nodes with all below.
    trees: Vec<DeadTree<P>>,
}

struct DeadNode {
    at: NonNull<Line>,
    lines: usize,
    born: u64,
}

struct DeadTree<P> {
    link: NonNull<Line>,
    /// Takes the tree apart, whatever its entries are.
    sweep: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
}

/// Takes trees apart: what was born in generation `first` or later is freed, the rest goes to another list.
struct Sweep<'a, P> {
    first: u64,
    pool: &'a mut NodePool,
    older: &'a mut DeadList<P>,
    freed: &'a mut Vec<Arc<P>>,
}

// SAFETY: the list owns what is on it, nodes with their entries included.
unsafe impl<P: Send + Sync> Send for DeadList<P> {}
// SAFETY: a shared list gives access to nothing.
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
    /// Gives the memory of freed nodes back to the allocator.
    pub(crate) fn trim(&mut self) {
        self.pool = NodePool::default();
    }

    /// Begins a draft.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Ends the draft, which is published: returns what died in it. Follow it by [`drop_unpublished`](Self::drop_unpublished).
    pub(crate) fn end(&mut self) -> DeadList<P> {
        self.shared.clear();
        mem::replace(&mut self.dead, self.spare.pop().unwrap_or_default())
    }

    /// Drops the pods that came and went in the draft. Pods may run their owner's code, which may panic: the new version
    /// must be in its place before.
    pub(crate) fn drop_unpublished(&mut self) {
        drop_all(&mut self.unpublished);
    }

    /// Ends the draft, which is not published, and whose tables were given to [`abandon`](Self::abandon): what it let go
    /// of the published version still has.
    pub(crate) fn cancel(&mut self) {
        self.dead.forget();
        self.shared.drain(..).for_each(Record::release);
        self.drop_unpublished();
    }

    /// Frees what was born in the draft, which is not published.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(super) fn abandon<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let mut older = DeadList::default();
        // What is older the published version still has, so that list is dropped, which does nothing.
        let Self { generation, pool, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: &mut older, freed: unpublished };
        // SAFETY: what was born in the draft only the draft can reach, which gave its root away.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// The tree dies.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(super) fn retire_tree<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let Self { generation, pool, dead, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: dead, freed: unpublished };
        // SAFETY: as above; the rest goes to the dead list.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// An entry of the draft.
    pub(super) fn slot<E>(&self, tag: NonZero<u8>, flags: u8, entry: E) -> Slot<E> {
        Slot { tag, stamp: self.stamp(flags), entry: ManuallyDrop::new(entry) }
    }

    fn stamp(&self, flags: u8) -> u64 {
        self.generation << FLAG_BITS | u64::from(flags)
    }

    /// The entry dies.
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

    /// The entry with another value; the one it had dies.
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

    fn retire_parts(&mut self, (pod, text): Parts<P>, born: u64) {
        if born == self.generation {
            self.unpublished.push(pod);
        } else {
            self.dead.pods.push((born, ManuallyDrop::new(pod)));
            self.dead.texts.extend(text.map(|text| (born, ManuallyDrop::new(text))));
        }
    }

    /// A record with these strings: another count of the one that is `shared`, or a new one.
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
    pub(crate) fn label(&mut self, text: &str) -> Record {
        if let Some(known) = self.labels.get(text) {
            return self.record(Some(known), "", "");
        }
        let record = self.record(None, text, "");
        self.labels.keep(text, &record);
        record
    }

    /// Gives back what is kept of labels. Records are counted by one thread at a time: call this before readers can be the
    /// ones who free.
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
            // SAFETY: nobody but the draft has ever seen it, and the draft has no link to it any more.
            unsafe { free(at, lines, &mut self.pool) };
        } else {
            self.dead.nodes.push(DeadNode { at, lines, born });
        }
    }

    /// The version that `dead` is the list of is gone: frees what no version has any more. The rest goes to the dead list
    /// of the next older version that is left, which is given with its generation.
    ///
    /// # Panics
    /// If a pod panics when it is dropped; everything else is freed before.
    ///
    /// # Safety
    /// The version is gone, and no version between the two is left.
    pub(crate) unsafe fn reclaim(&mut self, mut dead: DeadList<P>, older: Option<(u64, &mut DeadList<P>)>) {
        let mut freed = Vec::new();
        // SAFETY: the caller's.
        unsafe { dead.reclaim_into(older, &mut self.pool, &mut freed) };
        if self.spare.len() < SPARE_LISTS {
            self.spare.push(dead);
        }
        drop_all(&mut freed);
    }
}

impl<P> DeadList<P> {
    /// Takes over what another version had.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.pods.append(&mut other.pods);
        self.texts.append(&mut other.texts);
        self.records.append(&mut other.records);
        self.trees.append(&mut other.trees);
    }

    /// Adds all that a table has.
    ///
    /// # Safety
    /// The table is that of the last version, and is added once.
    pub(super) unsafe fn add_tree<E: Holds<P>>(&mut self, root: &Array<Array<PageLink<E>>>) {
        self.trees.push(DeadTree { link: root.at, sweep: sweep_root::<E, P> });
    }

    /// How many nodes died.
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
    /// No version is left.
    pub(crate) unsafe fn free(mut self) {
        let mut freed = Vec::new();
        // SAFETY: the caller's.
        unsafe { self.reclaim_into(None, &mut NodePool::default(), &mut freed) };
        drop_all(&mut freed);
    }

    /// See [`Memory::reclaim`]; pods that nobody has are moved to `freed`.
    ///
    /// # Safety
    /// See there.
    unsafe fn reclaim_into(
        &mut self,
        older: Option<(u64, &mut Self)>,
        pool: &mut NodePool,
        freed: &mut Vec<Arc<P>>,
    ) {
        let mut nobodys = Self::default();
        // The first generation that the older version does not know.
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
/// The link leads to a root of a table of such entries, and nobody follows a link in it any more but those versions that
/// have what was born before the sweep's `first`; so of the two below.
unsafe fn sweep_root<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the caller's.
    unsafe { sweep_array::<Array<PageLink<E>>, P>(link, sweep, sweep_root::<E, P>, sweep_chunk::<E, P>) }
}

unsafe fn sweep_chunk<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the caller's.
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
        // SAFETY: a child is a link, which is a tagged pointer and nothing else; the rest is the caller's.
        unsafe { below(ptr::from_ref(child).cast::<NonNull<Line>>().read(), sweep) };
    }
    // SAFETY: the caller's.
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
        // SAFETY: the page goes and is not read again: rule 5.
        let slot = unsafe { page.read(index) };
        let ((pod, text), record) = ManuallyDrop::into_inner(slot.entry).into_parts();
        let born = slot.stamp >> FLAG_BITS;
        sweep.pod(born, pod);
        if let Some(text) = text {
            sweep.text(born, text);
        }
        if let Some(record) = record {
            sweep.record(record);
        }
    }
    if let Some(next) = next {
        // SAFETY: the caller's.
        unsafe { sweep_page::<E, P>(next, sweep) };
    }
    // SAFETY: the caller's.
    unsafe { free(page.at, page.lines, sweep.pool) };
}

/// What a value is made of, as far as it has to be freed.
type Parts<P> = (Arc<P>, Option<Arc<str>>);

/// An entry, whatever its key and value are.
pub(super) trait Holds<P> {
    fn into_parts(self) -> (Parts<P>, Option<Record>);
}

impl<K: Key, V: Value> Holds<V::Pod> for Entry<K, V> {
    fn into_parts(self) -> (Parts<V::Pod>, Option<Record>) {
        (self.value.into_parts(), self.key.into_record())
    }
}

/// Gives the memory of a node back, and nothing that it holds or leads to.
///
/// # Safety
/// It is a node of this size, and nobody follows a link to it any more.
unsafe fn free(at: NonNull<Line>, lines: usize, pool: &mut NodePool) {
    let memory = ptr::slice_from_raw_parts_mut(at.as_ptr().cast::<MaybeUninit<Line>>(), lines);
    // SAFETY: `allocate` leaked a box of this size.
    let memory = unsafe { Box::from_raw(memory) };
    #[cfg(any(loom, shuttle))]
    let memory = poisoned(memory);
    pool.put(memory);
}

/// Overwrites a freed node and keeps it for a while, so that under the models a read of it is seen and is no read of freed
/// memory. Gives back another one of that size.
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

/// The birth that a freed node shows under the models.
#[cfg(any(loom, shuttle))]
const POISON: u64 = u64::MAX;

/// Drops every pod, however many of them panic; the first panic goes on when all are dropped.
fn drop_all<P>(pods: &mut Vec<Arc<P>>) {
    let mut panic: Option<Box<dyn Any + Send>> = None;
    for pod in pods.drain(..) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(pod))) {
            panic.get_or_insert(payload);
        }
    }
    // While another panic unwinds, a second one would end the process.
    if let Some(panic) = panic.filter(|_| !std::thread::panicking()) {
        resume_unwind(panic);
    }
}
