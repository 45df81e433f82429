//! A persistent hash table: of two versions, the later one shares with the earlier one whatever it did not change.
//!
//! A hash trie pays a cache miss for each of its many narrow levels. Here the levels are few and wide, and everything below
//! them is one page: an open-addressed table, found by the same hash, copied by one `memcpy`. A page consists of
//! buckets of a cache line each, whose slots are compared all at once: a look-up costs one line below the branches,
//! and no branch that the processor cannot foresee.
//!
//! ```text
//! hash:  | 6 bits | 6 bits | ...            | 32 low bits     |
//!          branch   branch                    bucket of the page
//! ```
//!
//! A page that is full grows, up to a size; then it is split in two by the next bit of the hash, under the same branch.
//!
//! This file searches and files. Whose memory a node is, and when it is freed, is `node`'s.

use std::{mem, slice};

use super::Hashing;
use super::node::{
    BUCKET, Branch, Bucket, Draft, Entry, FAN, FAN_BITS, Fresh, Garbage, MAX_BUCKETS, Node, Page, PageMut,
    Root, Slot,
};

/// At this depth the branches have used up the hash.
const MAX_DEPTH: u32 = u64::BITS / FAN_BITS - 1;

/// A version of the table: a published one, which is only read, or a draft of the next one.
///
/// What is below the root is there as long as the version is kept, which is `versions`' business: a table is never
/// copied, and never leaves the snapshot it is in.
pub(crate) struct Table<E: Entry> {
    root: Root<E>,
    len: usize,
    /// The most entries since the tree was last built afresh.
    peak: usize,
    /// What only a draft has.
    draft: Option<Draft<E>>,
}

impl<E: Entry> Table<E> {
    /// The first version, which is empty.
    pub(crate) fn new() -> Self {
        Self { root: Root::new(0), len: 0, peak: 0, draft: None }
    }

    /// A draft of the version that follows this one, which is the newest: `generation` is greater than that of any.
    ///
    /// # Safety
    /// This version is kept until the draft is dropped; or it is published, and what [`publish`](Self::publish) returns is
    /// freed by the rules of `node`. No other draft of this version is ever published.
    pub(crate) unsafe fn draft(&self, generation: u64) -> Self {
        let draft = Some(Draft::new(generation, self.root.link()));
        Self { root: self.root.share(), len: self.len, peak: self.peak, draft }
    }

    /// An empty draft in place of this one, with room for `entries` entries: to grow page by page costs more than to file
    /// them.
    pub(crate) fn instead(&self, entries: usize) -> Self {
        let Some(draft) = &self.draft else { return Self::new() };
        let mut draft = draft.instead();
        let mut root = draft.root();
        make_room(draft.own_root(&mut root), &mut draft, entries);
        Self { root, len: 0, peak: entries, draft: Some(draft) }
    }

    /// Ends the draft: this is a version now. Returns what the version before had and this one has not.
    pub(crate) fn publish(&mut self) -> Garbage<E> {
        self.draft.take().map(Draft::publish).unwrap_or_default()
    }

    /// All there is, as garbage of the last version.
    pub(crate) fn remains(&self) -> Garbage<E> {
        let mut garbage = Garbage::default();
        garbage.add_tree(self.root.link());
        garbage
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot filed under `hash` to which `matches` and `is` say yes.
    ///
    /// `matches` is asked of all slots of a bucket, vacant ones included; it should be a plain comparison. `is` is asked
    /// of those that match and settles it; to a vacant one it must say no.
    #[expect(
        clippy::inline_always,
        reason = "a call would pass the key through memory and cost more than the search"
    )]
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        is: impl FnMut(&Slot<E>) -> bool,
    ) -> Option<&Slot<E>> {
        let page = self.root.page(hash);
        let (bucket, at) = page.find(hash, matches, is)?;
        Some(&page.buckets[bucket].0[at])
    }

    /// Puts `entry` in the place of the one filed under `hash` to which `matches` and `is` say yes; both have one hash.
    /// Says whether there was one.
    pub(crate) fn replace(
        &mut self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&Slot<E>) -> bool,
        entry: E,
        tag: u64,
    ) -> bool {
        // A miss must not copy the path.
        if self.find(hash, &matches, &mut is).is_none() {
            return false;
        }
        let Some(draft) = &mut self.draft else { return false };
        let (branch, at) = descend(&mut self.root, draft, hash);
        let page = branch.own_page(at, draft);
        let Some((bucket, at)) = page.as_page().find(hash, matches, is) else { return false };
        let old = mem::replace(&mut page.buckets[bucket].0[at], draft.slot(entry, tag));
        draft.discard(old);
        true
    }

    /// Files an entry that is not in the table yet.
    pub(crate) fn insert(&mut self, entry: E, tag: u64, hashing: &Hashing) {
        let Some(draft) = &mut self.draft else { return };
        let hash = entry.hash(hashing);
        let slot = draft.slot(entry, tag);
        insert(&mut self.root, draft, hash, slot, hashing);
        self.len += 1;
        self.peak = self.peak.max(self.len);
    }

    /// Takes out the entry filed under `hash` to which `matches` and `is` say yes.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&Slot<E>) -> bool,
        hashing: &Hashing,
    ) {
        // A miss must not copy the path.
        if self.find(hash, &matches, &mut is).is_none() {
            return;
        }
        let Some(draft) = &mut self.draft else { return };
        let (branch, at) = descend(&mut self.root, draft, hash);
        let mut page = branch.own_page(at, draft);
        let Some((bucket, at)) = page.as_page().find(hash, matches, is) else { return };
        let old = page.remove(bucket, at, hashing);
        draft.discard(old);
        self.len -= 1;
        if self.len < self.peak / 8 {
            self.rebuild(hashing);
        }
    }

    /// Gives back the memory of a set that was once much larger: branches and pages never shrink by themselves.
    /// Happens at most once in `peak * 7 / 8` removals, so a removal still costs O(1) of it.
    fn rebuild(&mut self, hashing: &Hashing) {
        let Some(draft) = &mut self.draft else { return };
        let old = mem::replace(&mut self.root, draft.root());
        draft.dissolve(old, &mut |draft, slot| {
            insert(&mut self.root, draft, slot.entry().hash(hashing), slot, hashing);
        });
        self.peak = self.len;
    }

    /// All slots, in no order that means anything.
    pub(crate) fn iter(&self) -> Iter<'_, E> {
        Iter::new(self)
    }

    /// Calls `differs` with slots of `old` and of this version: with all that are in one but not, as they are, in the
    /// other, and with some that are in both. Nodes that the two share are skipped.
    pub(crate) fn compare<'a>(&'a self, old: &'a Self, differs: &mut impl FnMut(Side<&'a Slot<E>>)) {
        compare(old.root.branch(), self.root.branch(), differs);
    }
}

/// What one of two versions has.
pub(crate) enum Side<T> {
    Old(T),
    New(T),
}

impl<E: Entry> Drop for Table<E> {
    fn drop(&mut self) {
        if let Some(draft) = self.draft.take() {
            // SAFETY: a draft belongs to this table alone, which goes.
            unsafe { draft.abandon(self.root.link()) };
        }
    }
}

/// Which child of a branch at `depth` leads to `hash`.
#[inline]
fn child(hash: u64, depth: u32) -> usize {
    ((hash << (depth * FAN_BITS)) >> (u64::BITS - FAN_BITS)) as usize
}

/// The branch right above the page for `hash`, to write to, and which of its children the page is.
fn descend<'a, E: Entry>(
    root: &'a mut Root<E>,
    draft: &mut Draft<E>,
    hash: u64,
) -> (&'a mut Branch<E>, usize) {
    let mut branch = draft.own_root(root);
    let mut depth = 0;
    loop {
        let at = child(hash, depth);
        if !branch.is_branch_at(at) {
            return (branch, at);
        }
        branch = branch.own_branch(at, draft);
        depth += 1;
    }
}

fn insert<E: Entry>(root: &mut Root<E>, draft: &mut Draft<E>, hash: u64, slot: Slot<E>, hashing: &Hashing) {
    let mut branch = draft.own_root(root);
    let mut depth = 0;
    loop {
        let at = child(hash, depth);
        let Node::Page(page) = branch.child(at) else {
            branch = branch.own_branch(at, draft);
            depth += 1;
            continue;
        };
        if !page.is_full() {
            branch.own_page(at, draft).insert(hash, slot);
            return;
        }
        let (span, taken) = (page.span(), page.taken());
        // Below the last branch no bit is left to split by.
        let last = depth == MAX_DEPTH && span == FAN_BITS;
        if page.buckets.len() < MAX_BUCKETS || last {
            let grown = branch.own_page(at, draft).grown(taken, span, draft, hashing);
            let old = branch.replace(at, span, grown);
            draft.let_go(old);
        } else if span < FAN_BITS {
            let bit = u64::BITS - 1 - depth * FAN_BITS - span;
            let halves = branch.own_page(at, draft).split(bit, span + 1, draft, hashing);
            let old = branch.replace_by_two(at, span, halves);
            draft.let_go(old);
        } else {
            branch.push_down(at, draft);
        }
    }
}

/// Gives `branch`, which has but one empty page, pages for `entries` entries: as many as those will take, but with room for
/// two thirds of them. A page that turns out too small grows; one that turns out too large would stay so.
fn make_room<E: Entry>(branch: &mut Branch<E>, draft: &mut Draft<E>, entries: usize) {
    let span = FAN_BITS.min(entries.div_ceil(ROOMY).next_power_of_two().ilog2());
    let share = entries >> span;
    let deeper = share > ROOMY;
    let buckets = if deeper { 1 } else { share / BUCKET + 1 };
    let old = branch.replace_all(span, || draft.page(span, buckets));
    draft.let_go(old);
    if deeper {
        for at in 0..FAN {
            branch.push_down(at, draft);
            make_room(branch.own_branch(at, draft), draft, share);
        }
    }
}

/// The entries that a page has room for that is made before it is known which entries will come: so many fewer than can be
/// in a page that few of the pages get too many.
const ROOMY: usize = MAX_BUCKETS;

/// The bucket where a search for `hash` starts.
#[inline]
fn home(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

#[inline]
fn next(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

impl<E> Bucket<E> {
    /// Whether every slot is taken.
    #[inline]
    fn is_full(&self) -> bool {
        !self.0[BUCKET - 1].is_vacant()
    }
}

impl<E> Page<'_, E> {
    #[expect(clippy::inline_always, reason = "see `Table::find`")]
    #[inline(always)]
    fn find(
        &self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&Slot<E>) -> bool,
    ) -> Option<(usize, usize)> {
        let mut bucket = home(hash, self.buckets.len());
        loop {
            let slots = &self.buckets[bucket].0;
            let mut matching = 0u32;
            for (at, slot) in slots.iter().enumerate() {
                matching |= u32::from(matches(slot.entry())) << at;
            }
            while matching != 0 {
                let at = matching.trailing_zeros() as usize;
                if is(&slots[at]) {
                    return Some((bucket, at));
                }
                matching &= matching - 1;
            }
            if !self.buckets[bucket].is_full() {
                return None;
            }
            bucket = next(bucket, self.buckets.len());
        }
    }

    /// Whether more than two thirds of the slots would be taken with one more entry. With more, too many searches would
    /// go on to a second bucket, which a processor cannot foresee; and none would end if there were not a vacant slot.
    fn is_full(&self) -> bool {
        (self.taken() + 1) * 3 > self.buckets.len() * BUCKET * 2
    }
}

/// How many buckets a page for `entries` entries gets: with room for an eighth more, but not for more than a page holds
/// that can be split.
fn buckets_for(entries: usize) -> usize {
    let roomy = (entries * 9 / 8 + 1) * 3 / (2 * BUCKET) + 1;
    let least = entries * 3 / (2 * BUCKET) + 1;
    roomy.min(MAX_BUCKETS).max(least)
}

impl<E: Entry> PageMut<'_, E> {
    /// Files an entry; there must be a vacant slot.
    fn insert(&mut self, hash: u64, slot: Slot<E>) {
        let mut bucket = home(hash, self.buckets.len());
        while self.buckets[bucket].is_full() {
            bucket = next(bucket, self.buckets.len());
        }
        if let Some(place) = self.buckets[bucket].0.iter_mut().find(|place| place.is_vacant()) {
            *place = slot;
            self.head.taken += 1;
        }
    }

    /// Takes out one entry. If its bucket was full, later ones may hold entries that belong here and could not be found
    /// across a gap: those are filed anew.
    fn remove(&mut self, bucket: usize, at: usize, hashing: &Hashing) -> Slot<E> {
        let was_full = self.buckets[bucket].is_full();
        let slots = &mut self.buckets[bucket].0;
        let last = slots.iter().rposition(|slot| !slot.is_vacant()).unwrap_or(at);
        slots.swap(at, last);
        let removed = mem::replace(&mut slots[last], Slot::VACANT);
        self.head.taken -= 1;
        if !was_full {
            return removed;
        }
        let mut displaced = Vec::new();
        let mut bucket = bucket;
        for _ in 1..self.buckets.len() {
            bucket = next(bucket, self.buckets.len());
            let full = self.buckets[bucket].is_full();
            displaced.extend(take(&mut self.buckets[bucket]));
            if !full {
                break;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "a page has few slots")]
        let count = displaced.len() as u32;
        self.head.taken -= count;
        for slot in displaced {
            self.insert(slot.entry().hash(hashing), slot);
        }
        removed
    }

    /// A larger page with all that is in this one.
    fn grown(mut self, taken: usize, span: u32, draft: &Draft<E>, hashing: &Hashing) -> Fresh<E> {
        let mut fresh = draft.page(span, buckets_for(taken + 1));
        let mut page = fresh.page_mut();
        for slot in self.drain() {
            page.insert(slot.entry().hash(hashing), slot);
        }
        fresh
    }

    /// Two pages, one for those hashes in which `bit` is 0 and one for the others.
    fn split(mut self, bit: u32, span: u32, draft: &Draft<E>, hashing: &Hashing) -> [Fresh<E>; 2] {
        let slots: Vec<_> = self.drain().map(|slot| (slot.entry().hash(hashing), slot)).collect();
        let ones = slots.iter().filter(|(hash, _)| hash >> bit & 1 == 1).count();
        let mut halves = [slots.len() - ones, ones].map(|share| draft.page(span, buckets_for(share + 1)));
        for (hash, slot) in slots {
            halves[(hash >> bit & 1) as usize].page_mut().insert(hash, slot);
        }
        halves
    }

    /// Takes everything out.
    fn drain(&mut self) -> impl Iterator<Item = Slot<E>> {
        self.head.taken = 0;
        self.buckets.iter_mut().flat_map(take)
    }
}

/// Takes everything out of a bucket.
fn take<E: Entry>(bucket: &mut Bucket<E>) -> impl Iterator<Item = Slot<E>> + use<E> {
    let slots = mem::replace(&mut bucket.0, [const { Slot::VACANT }; BUCKET]);
    slots.into_iter().filter(|slot| !slot.is_vacant())
}

fn compare<'a, E: Entry>(
    old: &'a Branch<E>,
    new: &'a Branch<E>,
    differs: &mut impl FnMut(Side<&'a Slot<E>>),
) {
    let mut at = 0;
    while at < FAN {
        // One page may be several children, as many as a power of two: of what begins here, one side has all that the
        // other has.
        let end = old.after(at).max(new.after(at));
        match (old.child(at), new.child(at)) {
            _ if old.shares(new, at) => {}
            (Node::Branch(old), Node::Branch(new)) => compare(old, new, differs),
            _ => {
                for_each(old, at, end, &mut |slot| differs(Side::Old(slot)));
                for_each(new, at, end, &mut |slot| differs(Side::New(slot)));
            }
        }
        at = end;
    }
}

/// Calls `f` with every slot below the children from `at` to `end`.
fn for_each<'a, E: Entry>(branch: &'a Branch<E>, mut at: usize, end: usize, f: &mut impl FnMut(&'a Slot<E>)) {
    while at < end {
        match branch.child(at) {
            Node::Branch(below) => for_each(below, 0, FAN, f),
            Node::Page(page) => {
                page.buckets
                    .iter()
                    .flat_map(|bucket| &bucket.0)
                    .filter(|slot| !slot.is_vacant())
                    .for_each(&mut *f);
            }
        }
        at = branch.after(at);
    }
}

/// All slots of a table.
pub(crate) struct Iter<'a, E> {
    /// The branches on the way down to the page, of which the first `depth` count, and which child is next. An array, so
    /// that walking over a snapshot allocates nothing.
    path: [(&'a Branch<E>, usize); DEPTHS],
    depth: usize,
    buckets: slice::Iter<'a, Bucket<E>>,
    slots: slice::Iter<'a, Slot<E>>,
    left: usize,
}

/// The most branches on the way to a page.
const DEPTHS: usize = MAX_DEPTH as usize + 1;

impl<'a, E: Entry> Iter<'a, E> {
    fn new(table: &'a Table<E>) -> Self {
        let path = [(table.root.branch(), 0); DEPTHS];
        Self { path, depth: 1, buckets: [].iter(), slots: [].iter(), left: table.len }
    }

    /// On to the next page.
    fn turn(&mut self) -> Option<()> {
        loop {
            let (branch, at) = &mut self.path[self.depth.checked_sub(1)?];
            if *at == FAN {
                self.depth -= 1;
                continue;
            }
            let child = branch.child(*at);
            *at = branch.after(*at);
            match child {
                Node::Branch(below) => {
                    *self.path.get_mut(self.depth)? = (below, 0);
                    self.depth += 1;
                }
                Node::Page(page) => {
                    self.buckets = page.buckets.iter();
                    return Some(());
                }
            }
        }
    }
}

impl<'a, E: Entry> Iterator for Iter<'a, E> {
    type Item = &'a Slot<E>;

    #[inline]
    fn next(&mut self) -> Option<&'a Slot<E>> {
        loop {
            // Taken slots come first in a bucket.
            if let Some(slot) = self.slots.next().filter(|slot| !slot.is_vacant()) {
                self.left = self.left.saturating_sub(1);
                return Some(slot);
            }
            match self.buckets.next() {
                Some(bucket) => self.slots = bucket.0.iter(),
                None => self.turn()?,
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<E: Entry> ExactSizeIterator for Iter<'_, E> {}

// Not derived, because a derive would ask for `E: Clone`.
impl<E> Clone for Iter<'_, E> {
    fn clone(&self) -> Self {
        let Self { path, depth, buckets, slots, left } = self;
        Self { path: *path, depth: *depth, buckets: buckets.clone(), slots: slots.clone(), left: *left }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
