//! A persistent hash table of plain data.
//!
//! A hash trie pays a cache miss for each of its many narrow levels, and copying its nodes counts references scattered
//! over memory. Here the levels are few and wide, and everything below them is one page: a small open-addressed table
//! of `Copy` entries, found by one hash, copied by one `memcpy`.
//!
//! ```text
//! hash:  | 5 bits | 5 bits | ...            | low bits        |
//!          branch   branch                    place in the page
//! ```

use std::iter;
use std::sync::Arc;

use super::Hashing;

/// Hash bits that one branch uses, from the top.
const FAN_BITS: u32 = 5;
const FAN: usize = 1 << FAN_BITS;
/// The smallest page.
const MIN_PAGE: usize = 8;
/// The largest page; one that would outgrow it becomes a branch.
const MAX_PAGE: usize = 256;
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

#[derive(Clone)]
pub(crate) struct Table<E> {
    root: Node<E>,
    len: usize,
    /// The most entries since the tree was last built afresh.
    peak: usize,
}

enum Node<E> {
    Branch(Arc<[Node<E>; FAN]>),
    Page(Page<E>),
}

/// An open-addressed table with linear probing, at most three quarters full, so that every search ends at a free place.
struct Page<E> {
    /// As many as a power of two.
    places: Arc<[E]>,
    taken: usize,
}

// Not derived, because a derive would ask for more than `Arc` does.
impl<E> Clone for Node<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Branch(children) => Self::Branch(Arc::clone(children)),
            Self::Page(Page { places, taken }) => {
                Self::Page(Page { places: Arc::clone(places), taken: *taken })
            }
        }
    }
}

impl<E: Entry> Table<E> {
    pub(crate) fn new() -> Self {
        Self { root: Node::Page(Page::new(MIN_PAGE)), len: 0, peak: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entry filed under `hash` that `is` says yes to. `is` must say no to a vacant one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl FnMut(&E) -> bool) -> Option<&E> {
        let mut node = &self.root;
        let mut bits = hash;
        loop {
            match node {
                Node::Branch(children) => {
                    node = &children[(bits >> (u64::BITS - FAN_BITS)) as usize];
                    bits <<= FAN_BITS;
                }
                Node::Page(page) => return page.find(hash, is).map(|at| &page.places[at]),
            }
        }
    }

    /// The same entry, to change; whatever is changed, its hash must stay.
    pub(crate) fn find_mut(&mut self, hash: u64, mut is: impl FnMut(&E) -> bool) -> Option<&mut E> {
        // A miss must not copy the path.
        self.find(hash, &mut is)?;
        let page = self.root.page_mut(hash);
        let at = page.find(hash, is)?;
        Arc::make_mut(&mut page.places).get_mut(at)
    }

    /// Files an entry that is not in the table yet.
    pub(crate) fn insert(&mut self, entry: E, hashing: &Hashing) {
        self.root.insert(0, entry.hash(hashing), entry, hashing);
        self.len += 1;
        self.peak = self.peak.max(self.len);
    }

    /// Takes out the entry filed under `hash` that `is` says yes to.
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        mut is: impl FnMut(&E) -> bool,
        hashing: &Hashing,
    ) -> Option<E> {
        // A miss must not copy the path.
        let entry = *self.find(hash, &mut is)?;
        let page = self.root.page_mut(hash);
        let at = page.find(hash, is)?;
        page.remove(at, hashing);
        self.len -= 1;
        if self.len < self.peak / 8 {
            self.rebuild(hashing);
        }
        Some(entry)
    }

    /// Gives back the memory of a set that was once much larger: branches and pages never shrink by themselves.
    /// Happens once in `peak * 7 / 8` removals at least, so a removal still costs O(1) of it.
    fn rebuild(&mut self, hashing: &Hashing) {
        let mut new = Self::new();
        self.root.for_each(&mut |entry| new.insert(entry, hashing));
        *self = new;
    }
}

impl<E: Entry> Node<E> {
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
    fn page_mut(&mut self, hash: u64) -> &mut Page<E> {
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

impl<E: Entry> Page<E> {
    /// An empty page with `places` places, rounded up to a power of two.
    fn new(places: usize) -> Self {
        let places = places.max(MIN_PAGE).next_power_of_two();
        Self { places: iter::repeat_n(E::VACANT, places).collect(), taken: 0 }
    }

    /// Where a search for `hash` starts.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
        let hash = hash as usize;
        hash & (self.places.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    #[inline]
    fn find(&self, hash: u64, mut is: impl FnMut(&E) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let entry = &self.places[at];
            if is(entry) {
                return Some(at);
            }
            if entry.is_vacant() {
                return None;
            }
            at = self.next(at);
        }
    }

    /// Whether one more entry would leave too few free places.
    fn is_full(&self) -> bool {
        self.taken * 4 >= self.places.len() * 3
    }

    fn entries(&self) -> impl Iterator<Item = E> {
        self.places.iter().copied().filter(|entry| !entry.is_vacant())
    }

    fn insert(&mut self, hash: u64, entry: E) {
        let mut at = self.home(hash);
        while !self.places[at].is_vacant() {
            at = self.next(at);
        }
        Arc::make_mut(&mut self.places)[at] = entry;
        self.taken += 1;
    }

    /// Takes the entry at `hole` out, and moves back those behind it that stand there only because it stood here.
    fn remove(&mut self, mut hole: usize, hashing: &Hashing) {
        let mask = self.places.len() - 1;
        let distance = |from: usize, to: usize| to.wrapping_sub(from) & mask;
        let mut at = self.next(hole);
        while !self.places[at].is_vacant() {
            let entry = self.places[at];
            if distance(self.home(entry.hash(hashing)), at) >= distance(hole, at) {
                Arc::make_mut(&mut self.places)[hole] = entry;
                hole = at;
            }
            at = self.next(at);
        }
        Arc::make_mut(&mut self.places)[hole] = E::VACANT;
        self.taken -= 1;
    }

    /// What takes the place of this page, which is full: one twice as large, or a branch.
    fn grown(&self, depth: u32, hashing: &Hashing) -> Node<E> {
        if self.places.len() < MAX_PAGE || depth >= MAX_DEPTH {
            let mut page = Self::new(self.places.len() * 2);
            for entry in self.entries() {
                page.insert(entry.hash(hashing), entry);
            }
            return Node::Page(page);
        }
        let mut shares = [0; FAN];
        for entry in self.entries() {
            shares[child(entry.hash(hashing), depth)] += 1;
        }
        // Room for each child's share and a little more, so that a split is not followed by as many growths.
        let mut pages = shares.map(|share| Page::new(share * 4 / 3 + 1));
        for entry in self.entries() {
            let hash = entry.hash(hashing);
            pages[child(hash, depth)].insert(hash, entry);
        }
        Node::Branch(Arc::new(pages.map(Node::Page)))
    }
}
