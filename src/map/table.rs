//! A persistent hash table of plain data.
//!
//! A hash trie pays a cache miss for each of its many narrow levels, and copying its nodes counts references scattered
//! over memory. Here the levels are few and wide, and everything below them is one page: an open-addressed table of
//! `Copy` entries, found by one hash, copied by one `memcpy`. A page consists of buckets of one cache line each, whose
//! entries are compared all at once: a look-up costs one line below the branches, and no branch that the processor
//! cannot foresee.
//!
//! ```text
//! hash:  | 5 bits | 5 bits | ...            | low bits        |
//!          branch   branch                    bucket of the page
//! ```

use std::iter;
use std::sync::Arc;

use super::Hashing;

/// Hash bits that one branch uses, from the top.
const FAN_BITS: u32 = 5;
const FAN: usize = 1 << FAN_BITS;
/// The buckets of the smallest page.
const MIN_PAGE: usize = 2;
/// The buckets of the largest page; one that would outgrow it becomes a branch.
const MAX_PAGE: usize = 128;
/// At this depth the branches have used up the hash: what shares all of it can only be told apart in one page.
const MAX_DEPTH: u32 = u64::BITS / FAN_BITS;

/// What a [`Table`] stores.
pub(crate) trait Entry: Copy {
    /// A free place.
    const VACANT: Self;
    /// Whether this is a free place.
    fn is_vacant(&self) -> bool;
    /// The hash under which the entry is filed.
    fn hash(&self, hashing: &Hashing) -> u64;
}

/// A table of entries of which `LINE` fit into a cache line.
#[derive(Clone)]
pub(crate) struct Table<E, const LINE: usize> {
    root: Node<E, LINE>,
    len: usize,
    /// The most entries since the tree was last built afresh.
    peak: usize,
}

enum Node<E, const LINE: usize> {
    Branch(Arc<[Node<E, LINE>; FAN]>),
    Page(Page<E, LINE>),
}

/// A cache line of entries; taken places come first.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket<E, const LINE: usize>([E; LINE]);

/// An entry is in the bucket that its hash names or, if that was full, in the next one with room. At most two
/// thirds of the places are taken: with more, too many searches would go on to a second bucket, which a processor cannot
/// foresee; with less, the table would not stay in its caches.
struct Page<E, const LINE: usize> {
    /// As many as a power of two.
    buckets: Arc<[Bucket<E, LINE>]>,
    taken: usize,
}

// Not derived, because a derive would ask for `E: Clone`, which `Arc` does not need.
impl<E, const LINE: usize> Clone for Node<E, LINE> {
    fn clone(&self) -> Self {
        match self {
            Self::Branch(children) => Self::Branch(Arc::clone(children)),
            Self::Page(Page { buckets, taken }) => {
                Self::Page(Page { buckets: Arc::clone(buckets), taken: *taken })
            }
        }
    }
}

impl<E: Entry, const LINE: usize> Table<E, LINE> {
    pub(crate) fn new() -> Self {
        Self { root: Node::Page(Page::new(0)), len: 0, peak: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entry filed under `hash` to which `matches` and `is` say yes.
    ///
    /// `matches` is asked of all entries of a bucket, vacant ones included, to which it must say no; it should be a plain
    /// comparison. `is` is asked of those that match and settles it.
    #[expect(
        clippy::inline_always,
        reason = "a call would pass the key through memory and cost more than the search"
    )]
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        is: impl FnMut(&E) -> bool,
    ) -> Option<&E> {
        let mut node = &self.root;
        let mut bits = hash;
        loop {
            match node {
                Node::Branch(children) => {
                    node = &children[(bits >> (u64::BITS - FAN_BITS)) as usize];
                    bits <<= FAN_BITS;
                }
                Node::Page(page) => {
                    let (bucket, at) = page.find(hash, matches, is)?;
                    return Some(&page.buckets[bucket].0[at]);
                }
            }
        }
    }

    /// The same entry, to change; whatever is changed, its hash must stay.
    pub(crate) fn find_mut(
        &mut self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&E) -> bool,
    ) -> Option<&mut E> {
        // A miss must not copy the path.
        self.find(hash, &matches, &mut is)?;
        let page = self.root.page_mut(hash);
        let (bucket, at) = page.find(hash, matches, is)?;
        Some(&mut Arc::make_mut(&mut page.buckets)[bucket].0[at])
    }

    /// Files an entry that is not in the table yet.
    pub(crate) fn insert(&mut self, entry: E, hashing: &Hashing) {
        self.root.insert(0, entry.hash(hashing), entry, hashing);
        self.len += 1;
        self.peak = self.peak.max(self.len);
    }

    /// Takes out the entry filed under `hash` to which `matches` and `is` say yes.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&E) -> bool,
        hashing: &Hashing,
    ) {
        // A miss must not copy the path.
        if self.find(hash, &matches, &mut is).is_none() {
            return;
        }
        let page = self.root.page_mut(hash);
        let Some((bucket, at)) = page.find(hash, matches, is) else { return };
        page.remove(bucket, at, hashing);
        self.len -= 1;
        if self.len < self.peak / 8 {
            self.rebuild(hashing);
        }
    }

    /// Gives back the memory of a set that was once much larger: branches and pages never shrink by themselves.
    /// Happens at most once in `peak * 7 / 8` removals, so a removal still costs O(1) of it.
    fn rebuild(&mut self, hashing: &Hashing) {
        let mut new = Self::new();
        self.root.for_each(&mut |entry| new.insert(entry, hashing));
        *self = new;
    }
}

impl<E: Entry, const LINE: usize> Node<E, LINE> {
    fn insert(&mut self, depth: u32, hash: u64, entry: E, hashing: &Hashing) {
        match self {
            Self::Branch(children) => {
                Arc::make_mut(children)[child(hash, depth)].insert(depth + 1, hash, entry, hashing);
            }
            Self::Page(page) if page.is_full() => {
                *self = page.grown(depth, hashing);
                self.insert(depth, hash, entry, hashing);
            }
            Self::Page(page) => page.insert(hash, entry),
        }
    }

    /// The page for `hash`; the branches above it are made this tree's own.
    fn page_mut(&mut self, hash: u64) -> &mut Page<E, LINE> {
        let mut node = self;
        let mut depth = 0;
        loop {
            match node {
                Self::Branch(children) => {
                    node = &mut Arc::make_mut(children)[child(hash, depth)];
                    depth += 1;
                }
                Self::Page(page) => return page,
            }
        }
    }

    fn for_each(&self, f: &mut impl FnMut(E)) {
        match self {
            Self::Branch(children) => children.iter().for_each(|child| child.for_each(f)),
            Self::Page(page) => page.entries().for_each(f),
        }
    }
}

/// Which child of a branch at `depth` leads to `hash`.
#[inline]
fn child(hash: u64, depth: u32) -> usize {
    ((hash << (depth * FAN_BITS)) >> (u64::BITS - FAN_BITS)) as usize
}

impl<E: Entry, const LINE: usize> Bucket<E, LINE> {
    /// Whether every place is taken.
    #[inline]
    fn is_full(&self) -> bool {
        !self.0[LINE - 1].is_vacant()
    }
}

impl<E: Entry, const LINE: usize> Page<E, LINE> {
    /// An empty page for `entries` entries.
    fn new(entries: usize) -> Self {
        let buckets = (entries * 3).div_ceil(LINE * 2).max(MIN_PAGE).next_power_of_two();
        Self { buckets: iter::repeat_n(Bucket([E::VACANT; LINE]), buckets).collect(), taken: 0 }
    }

    /// The bucket where a search for `hash` starts.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let hash = hash as usize;
        hash & (self.buckets.len() - 1)
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// The bucket and the place in it of the entry to which `matches` and `is` say yes.
    #[expect(clippy::inline_always, reason = "see `Table::find`")]
    #[inline(always)]
    fn find(
        &self,
        hash: u64,
        matches: impl Fn(&E) -> bool,
        mut is: impl FnMut(&E) -> bool,
    ) -> Option<(usize, usize)> {
        let mut bucket = self.home(hash);
        loop {
            let places = &self.buckets[bucket].0;
            let mut matching = 0u32;
            for (at, entry) in places.iter().enumerate() {
                matching |= u32::from(matches(entry)) << at;
            }
            while matching != 0 {
                let at = matching.trailing_zeros() as usize;
                if is(&places[at]) {
                    return Some((bucket, at));
                }
                matching &= matching - 1;
            }
            if !self.buckets[bucket].is_full() {
                return None;
            }
            bucket = self.next(bucket);
        }
    }

    /// Whether one more entry would leave too few free places.
    fn is_full(&self) -> bool {
        self.taken * 3 >= self.buckets.len() * LINE * 2
    }

    fn entries(&self) -> impl Iterator<Item = E> {
        self.buckets.iter().flat_map(|bucket| bucket.0).filter(|entry| !entry.is_vacant())
    }

    fn insert(&mut self, hash: u64, entry: E) {
        let mut bucket = self.home(hash);
        while self.buckets[bucket].is_full() {
            bucket = self.next(bucket);
        }
        let places = &mut Arc::make_mut(&mut self.buckets)[bucket].0;
        if let Some(place) = places.iter_mut().find(|place| place.is_vacant()) {
            *place = entry;
            self.taken += 1;
        }
    }

    /// Takes out one entry. If its bucket was full, later ones may hold entries that belong here and could not be found
    /// across a gap: those are filed anew.
    fn remove(&mut self, bucket: usize, at: usize, hashing: &Hashing) {
        let was_full = self.buckets[bucket].is_full();
        let buckets = Arc::make_mut(&mut self.buckets);
        close_gap(&mut buckets[bucket].0, at);
        self.taken -= 1;
        if !was_full {
            return;
        }
        let mut displaced = Vec::new();
        let mut next = bucket;
        loop {
            next = self.next(next);
            let full = self.buckets[next].is_full();
            let places = &mut Arc::make_mut(&mut self.buckets)[next].0;
            displaced.extend(places.iter().copied().filter(|entry| !entry.is_vacant()));
            *places = [E::VACANT; LINE];
            if !full {
                break;
            }
        }
        self.taken -= displaced.len();
        for entry in displaced {
            self.insert(entry.hash(hashing), entry);
        }
    }

    /// What takes the place of this page, which is full: one twice as large, or a branch.
    fn grown(&self, depth: u32, hashing: &Hashing) -> Node<E, LINE> {
        if self.buckets.len() < MAX_PAGE || depth >= MAX_DEPTH {
            let mut page = Self::new(self.taken + 1);
            for entry in self.entries() {
                page.insert(entry.hash(hashing), entry);
            }
            return Node::Page(page);
        }
        let mut shares = [0; FAN];
        for entry in self.entries() {
            shares[child(entry.hash(hashing), depth)] += 1;
        }
        let mut pages = shares.map(|share| Page::new(share + 1));
        for entry in self.entries() {
            let hash = entry.hash(hashing);
            pages[child(hash, depth)].insert(hash, entry);
        }
        Node::Branch(Arc::new(pages.map(Node::Page)))
    }
}

/// Moves the last taken place of a bucket to `gap`.
fn close_gap<E: Entry, const LINE: usize>(places: &mut [E; LINE], gap: usize) {
    let last = places.iter().rposition(|entry| !entry.is_vacant()).unwrap_or(gap);
    places[gap] = places[last];
    places[last] = E::VACANT;
}
