//! A persistent hash table: a later version shares everything unchanged with the earlier one.
//!
//! ```text
//! hash:  | root bits | chunk bits | ...                  | 8 low bits |
//!   root array  ->  chunk array  ->  page: tags, entries       tag
//! ```
//!
//! A lookup loads one link from each of two small arrays, compares sixteen one-byte tags at once, and nearly
//! always one key. Both arrays are sized to the set. A full page doubles its chunk's number of pages; if the
//! chunk is already twice as long as the root, the root doubles first. A sparse chunk is halved. So growing
//! and shrinking change one chunk, except for steps of the root.
//!
//! Many hashes cannot be made to agree from outside, because hashing is seeded. If they do agree, growing a
//! chunk would not help; then another page is chained to the full page.
//!
//! This file searches and stores. `node` decides who owns a node's memory and when it is freed.

use std::num::NonZero;
use std::ops::ControlFlow;

use super::node::{Array, MAX_LEN, Memory, Page, PageLink, Root, Slot};
use super::{Entry, Hashing, TableKey, Value};

type Chunk<E> = Array<PageLink<E>>;

/// The table of one version, or of a draft, to which [`TableMut`] writes.
///
/// Everything below the root exists as long as the version is kept, which `versions` guarantees: it moves no table out of
/// its snapshot, and only a draft of the next version copies its root.
pub(crate) struct Table<K, V> {
    pub(super) root: Root<Entry<K, V>>,
    pub(super) len: usize,
}

/// A draft's table, for writing.
pub(crate) struct TableMut<'a, K, V: Value> {
    pub(super) table: &'a mut Table<K, V>,
    pub(super) memory: &'a mut Memory<V::Item>,
    pub(super) hashing: &'a Hashing,
}

/// The place of an entry. Invalid once the table is written to.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    hash: u64,
    /// Counts across the pages of a chain.
    index: usize,
}

/// Entries per page when pages are reserved: few enough that hardly any page overflows.
const PRESIZE_LOAD: usize = 8;

impl<K, V> Table<K, V> {
    /// The first version, which is empty.
    pub(crate) const fn new() -> Self {
        Self { root: Array::EMPTY, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entry with `hash` and `tag` for which `is` returns true, and its place.
    #[expect(clippy::inline_always, reason = "a call would pass the key through memory")]
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u64,
        tag: NonZero<u8>,
        is: impl Fn(&Entry<K, V>) -> bool,
    ) -> Option<(Place, &Entry<K, V>)> {
        let link = self.link(hash);
        link.prefetch();
        let (index, entry) = link.page().find(tag, is)?;
        Some((Place { hash, index }, entry))
    }

    /// All entries, in no particular order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Entry<K, V>> + Clone {
        let mut links = self.root.children().iter().flat_map(Array::children);
        let mut ahead = links.clone().skip(1);
        let mut page = None;
        let mut entries = None;
        (0..self.len).map(move |_| {
            loop {
                if let Some(entry) = entries.as_mut().and_then(Iterator::next) {
                    break entry;
                }
                page = page.and_then(Page::next).or_else(|| {
                    // By the time a page is done, the next one is loaded.
                    ahead.next().into_iter().for_each(PageLink::prefetch);
                    links.next().map(PageLink::page)
                });
                entries = page.map(Page::entries);
                assert!(page.is_some(), "as many entries as were counted");
            }
        })
    }

    #[inline]
    fn link(&self, hash: u64) -> &PageLink<Entry<K, V>> {
        self.root.child(hash).child(hash << self.root.bits())
    }

    /// Calls `differs` with entries of `old` and of this version until it stops: with all that differ, and with some that do
    /// not. Skips nodes that the two share.
    pub(crate) fn compare<'a>(
        &'a self,
        old: &'a Self,
        mut differs: impl FnMut(Side, &'a Entry<K, V>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut all = |side, links: &'a [PageLink<Entry<K, V>>]| {
            links.iter().flat_map(each_entry).try_for_each(|entry| differs(side, entry))
        };
        for pair in unlike(self.root.children(), old.root.children()) {
            if let ([new], [old]) = pair {
                for (new, old) in unlike(new.children(), old.children()) {
                    all(Side::New, new)?;
                    all(Side::Old, old)?;
                }
            } else {
                pair.0.iter().try_for_each(|chunk| all(Side::New, chunk.children()))?;
                pair.1.iter().try_for_each(|chunk| all(Side::Old, chunk.children()))?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The links in which two arrays differ, one by one. Arrays of different lengths differ as a whole.
fn unlike<'a, T: PartialEq>(new: &'a [T], old: &'a [T]) -> impl Iterator<Item = (&'a [T], &'a [T])> {
    let step = if new.len() == old.len() { 1 } else { usize::MAX };
    new.chunks(step).zip(old.chunks(step)).filter(|(new, old)| new != old)
}

fn each_page<E>(link: &PageLink<E>) -> impl Iterator<Item = Page<'_, E>> + Clone {
    std::iter::successors(Some(link.page()), |page| page.next())
}

fn each_entry<E>(link: &PageLink<E>) -> impl Iterator<Item = &E> {
    each_page(link).flat_map(Page::entries)
}

/// Number of entries of a chunk.
fn count<E>(chunk: &Chunk<E>) -> usize {
    chunk.children().iter().flat_map(each_page).map(Page::len).sum()
}

impl<K: TableKey, V: Value> TableMut<'_, K, V> {
    /// Replaces the value at `place`, which was just found.
    pub(crate) fn replace(&mut self, Place { hash, index }: Place, value: V) {
        let (chunk, rest) = chunk_mut(&mut self.table.root, hash, self.memory);
        child_mut(chunk, rest, self.memory).replace(index, value, self.memory);
    }

    /// Stores an entry that is not in the table yet, under the hash of its key.
    pub(crate) fn insert(&mut self, hash: u64, tag: NonZero<u8>, key: K, value: V) {
        let slot = self.memory.slot(tag, Entry { key, value });
        self.insert_slot(hash, slot);
    }

    fn insert_slot(&mut self, hash: u64, mut slot: Slot<Entry<K, V>>) {
        self.table.len += 1;
        loop {
            let root_bits = self.table.root.bits();
            let (chunk, rest) = chunk_mut(&mut self.table.root, hash, self.memory);
            match child_mut(chunk, rest, self.memory).push(slot, self.memory) {
                Ok(()) => return,
                Err(refused) => slot = refused,
            }
            if count(chunk) * 2 < chunk.children().len() {
                // Few entries for so many pages: their hashes agree in too many bits to be separated.
                let link = child_mut(chunk, rest, self.memory);
                let mut slots = Vec::with_capacity(MAX_LEN + 1);
                link.take(&mut slots, self.memory);
                slots.push(slot);
                *link = PageLink::new(&mut slots, self.memory);
                return;
            }
            if chunk.bits() > root_bits {
                self.double_root();
            } else {
                double_chunk(chunk, root_bits, self.memory, self.hashing);
            }
        }
    }

    /// Removes the entry at `place`, which was just found.
    pub(crate) fn remove(&mut self, Place { hash, index }: Place) {
        let (chunk, rest) = chunk_mut(&mut self.table.root, hash, self.memory);
        let link = child_mut(chunk, rest, self.memory);
        link.remove(index, self.memory);
        // A chunk of fewer entries than pages has empty pages.
        if *link == PageLink::EMPTY && chunk.bits() > 0 && count(chunk) < chunk.children().len() {
            halve_chunk(chunk, self.memory);
        }
        self.table.len -= 1;
        if self.table.len * 2 < 1 << self.table.root.bits() {
            self.rebuild();
        }
    }

    /// Removes everything, and reserves pages for `capacity` entries.
    pub(crate) fn clear(&mut self, capacity: usize) {
        let root = std::mem::replace(&mut self.table.root, Array::EMPTY);
        self.table.len = 0;
        self.memory.let_tree_die(root);
        self.presize(capacity);
    }

    /// Builds the arrays of an empty table.
    fn presize(&mut self, capacity: usize) {
        let bits = (capacity / PRESIZE_LOAD + 1).next_power_of_two().ilog2();
        let root_bits = bits / 2;
        let chunk_bits = bits - bits / 2;
        if bits == 0 {
            return;
        }
        let chunk = |memory: &mut Memory<V::Item>| {
            Array::new((0..1 << chunk_bits).map(|_| PageLink::EMPTY).collect(), memory)
        };
        let chunks = (0..1 << root_bits).map(|_| chunk(self.memory)).collect();
        self.table.root = Array::new(chunks, self.memory);
    }

    /// Rebuilds the arrays in the size of the set. The entries move.
    fn rebuild(&mut self) {
        let mut slots = Vec::with_capacity(self.table.len);
        let root = std::mem::replace(&mut self.table.root, Array::EMPTY);
        for chunk in root.take(self.memory) {
            for mut page in chunk.take(self.memory) {
                page.take(&mut slots, self.memory);
            }
        }
        self.presize(slots.len());
        self.table.len = 0;
        for slot in slots {
            self.insert_slot(slot.entry().key.hash(self.hashing), slot);
        }
    }

    /// Doubles the number of chunks. For a chunk of several pages, only links move.
    fn double_root(&mut self) {
        let root = std::mem::replace(&mut self.table.root, Array::EMPTY);
        let bits = root.bits();
        let mut chunks = Vec::with_capacity(2 << bits);
        for mut chunk in root.take(self.memory) {
            if chunk.bits() == 0 {
                double_chunk(&mut chunk, bits, self.memory, self.hashing);
            }
            let mut low = chunk.take(self.memory);
            let high = low.split_off(low.len() / 2);
            chunks.extend([low, high].map(|half| Array::new(half, self.memory)));
        }
        self.table.root = Array::new(chunks, self.memory);
    }
}

/// The chunk selected by `hash`, in a root that now belongs to the draft, and the rest of the hash.
fn chunk_mut<'a, E, P>(
    root: &'a mut Array<Chunk<E>>,
    hash: u64,
    memory: &mut Memory<P>,
) -> (&'a mut Chunk<E>, u64) {
    let bits = root.bits();
    (child_mut(root, hash, memory), hash << bits)
}

/// The child selected by the highest bits of `hash`, in an array that now belongs to the draft.
fn child_mut<'a, T, P>(array: &'a mut Array<T>, hash: u64, memory: &mut Memory<P>) -> &'a mut T {
    let bits = array.bits();
    &mut array.own(memory)[index(hash, bits)]
}

/// The `bits` highest bits of a hash.
fn index(hash: u64, bits: u32) -> usize {
    // Two shifts, because `bits` may be 0.
    (hash >> 1 >> (63 - bits)) as usize
}

/// Doubles the number of a chunk's pages: one more bit of the hash separates entries.
fn double_chunk<K: TableKey, V: Value>(
    chunk: &mut Chunk<Entry<K, V>>,
    root_bits: u32,
    memory: &mut Memory<V::Item>,
    hashing: &Hashing,
) {
    let bits = chunk.bits();
    let one = |slot: &Slot<Entry<K, V>>| slot.entry().key.hash(hashing) << (root_bits + bits) >> 63 == 1;
    let mut links = Vec::with_capacity(2 << bits);
    let mut zeros = Vec::new();
    let mut ones = Vec::new();
    for mut link in std::mem::replace(chunk, Array::EMPTY_CHUNK).take(memory) {
        link.take(&mut zeros, memory);
        ones.extend(zeros.extract_if(.., |slot| one(slot)));
        links.push(PageLink::new(&mut zeros, memory));
        links.push(PageLink::new(&mut ones, memory));
    }
    *chunk = Array::new(links, memory);
}

/// Halves the number of a chunk's pages.
fn halve_chunk<K: TableKey, V: Value>(chunk: &mut Chunk<Entry<K, V>>, memory: &mut Memory<V::Item>) {
    let mut slots = Vec::new();
    let mut links = Vec::with_capacity(chunk.children().len() / 2);
    let mut old = std::mem::replace(chunk, Array::EMPTY_CHUNK).take(memory).into_iter();
    while let (Some(mut one), Some(mut other)) = (old.next(), old.next()) {
        if other == PageLink::EMPTY || one == PageLink::EMPTY {
            links.push(if other == PageLink::EMPTY { one } else { other });
            continue;
        }
        one.take(&mut slots, memory);
        other.take(&mut slots, memory);
        links.push(PageLink::new(&mut slots, memory));
    }
    *chunk = Array::new(links, memory);
}

/// One of two versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Old,
    New,
}

#[cfg(all(test, not(any(pod_index_loom, pod_index_shuttle))))]
#[expect(unsafe_code, reason = "does what `versions` does")]
mod tests;
