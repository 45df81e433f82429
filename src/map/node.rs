//! The memory of a [`Table`](super::Table): branches and pages that many versions of it share, and that nobody counts.
//!
//! **All unsafe code that reads or frees nodes is in this file.** `stock` lends it raw memory, and `versions` keeps the
//! one promise that is made to it from outside. Counting references to nodes is what made the safe table dear: to copy a
//! page of `Arc`s is to write to each thing they point to, all over memory, one waiting for the other. Here a node is
//! copied by one `memcpy`, and is freed when it is known from the versions that are left that nobody can come to it any
//! more.
//!
//! # The rules
//! Every node and every entry is *born* in the generation of the draft that made it, and *dies* in the first generation
//! that no longer has it. A node copied in a draft is born anew; an entry that moves keeps its birth. So:
//!
//! 1. A published version is never written to. A draft writes to nothing but nodes that were born in it, which only it
//!    can reach.
//! 2. What dies in generation `d` is put into the [`Garbage`] of version `d - 1`, which still has it.
//! 3. A version that is gone hands on its garbage: to the nearest older version that is left, if that one has the thing,
//!    which is to say if the thing was born no later; and else to the allocator. There is nobody else to ask: newer
//!    versions do not have it, and older ones that are left are older than its birth.
//! 4. A parent is never older than its children, because whoever changes a child changes the pointer to it. So a
//!    node that an older version has, it has with all below.
//! 5. Of the bitwise copies of an entry, all say the same, and one dies for all of them.
//!
//! What is left to the rest of the crate, and is `versions`' to keep: a [`Link`] is only followed on behalf of a version
//! that is still there, or of a draft of the newest one. It is all that the comments called "the rules" refer to.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::NonNull;
use std::{ptr, slice};

use super::stock::{self, Line};

/// Hash bits that one branch uses.
pub(super) const FAN_BITS: u32 = 6;
pub(super) const FAN: usize = 1 << FAN_BITS;
/// The slots of a bucket.
pub(super) const BUCKET: usize = 2;
/// The buckets of the largest page, but for one of which a split leaves all entries on one side.
pub(super) const MAX_BUCKETS: usize = 31;

/// A tagged pointer to a branch or a page: nodes are aligned to cache lines, so six bits are free.
///
/// Bit 0 says that it is a branch; the others hold one less than the number of a page's buckets, so that a search goes
/// to its bucket without a look at the page's head. If they are all set, the head must be looked at.
pub(super) struct Link<E>(NonNull<Line>, PhantomData<E>);

/// The bits of a pointer that are the tag.
const TAG: usize = 63;

/// What a [`Link`] leads to.
pub(super) enum Node<'a, E> {
    Branch(&'a Branch<E>),
    Page(Page<'a, E>),
}

/// Where the ways part. Neighbouring children may be one and the same page.
#[repr(C, align(64))]
pub(super) struct Branch<E> {
    children: [Link<E>; FAN],
    born: u64,
}

/// A page: an open-addressed table of its own.
pub(super) struct Page<'a, E> {
    head: &'a Head<E>,
    pub(super) buckets: &'a [Bucket<E>],
}

/// A page that a draft may write to.
pub(super) struct PageMut<'a, E> {
    pub(super) head: &'a mut Head<E>,
    pub(super) buckets: &'a mut [Bucket<E>],
}

/// What stands before the buckets of a page.
#[repr(C, align(64))]
pub(super) struct Head<E> {
    born: u64,
    /// How many slots are taken.
    pub(super) taken: u32,
    /// How many of the bits by which the branch above tells its children apart are the same for all of this page; the
    /// page is child `2 ^ (FAN_BITS - span)` times.
    pub(super) span: u32,
    buckets: usize,
    entries: PhantomData<E>,
}

/// A cache line of slots, or two; taken ones come first.
#[repr(C, align(64))]
pub(super) struct Bucket<E>(pub(super) [Slot<E>; BUCKET]);

/// Room for an entry.
pub(crate) struct Slot<E> {
    /// Shared by every copy of the slot; see rule 5.
    entry: ManuallyDrop<E>,
    /// The generation of its birth, and below it the tag; 0 if the slot is vacant.
    stamp: u64,
}

/// Bits of a stamp that hold the tag.
const TAG_BITS: u32 = 3;

/// What a [`Table`](super::Table) stores.
pub(crate) trait Entry: Sized {
    /// What a vacant slot holds.
    const VACANT: Self;
    /// The hash under which the entry is filed.
    fn hash(&self, hashing: &super::Hashing) -> u64;
}

// SAFETY: a link is shared and sent with the entries that it leads to, and gives no other access to them than a
// reference or a box would.
unsafe impl<E: Send + Sync> Send for Link<E> {}
// SAFETY: as above.
unsafe impl<E: Send + Sync> Sync for Link<E> {}

impl<E> Clone for Link<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Link<E> {}

impl<E> PartialEq for Link<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<E> Link<E> {
    #[inline]
    fn is_branch(self) -> bool {
        self.0.addr().get() & 1 != 0
    }

    /// How many buckets the page has that this leads to.
    #[inline]
    fn buckets(self) -> usize {
        let buckets = (self.0.addr().get() & TAG) / 2 + 1;
        if buckets > MAX_BUCKETS { self.huge() } else { buckets }
    }

    #[cold]
    fn huge(self) -> usize {
        // SAFETY: by the rules the node is there and nobody writes to it; only pages have this tag.
        unsafe { (*self.untagged().cast::<Head<E>>()).buckets }
    }

    #[inline]
    fn untagged(self) -> *mut Line {
        self.0.as_ptr().map_addr(|address| address & !TAG)
    }

    /// What this leads to.
    ///
    /// Private, because `'a` can be anything: whoever calls this has the link from a root or from a node that is borrowed
    /// as long, and by the rules what is below that is there as long.
    #[inline]
    fn node<'a>(self) -> Node<'a, E> {
        if self.is_branch() { Node::Branch(self.branch()) } else { Node::Page(self.page()) }
    }

    /// The branch that this leads to; private, as [`node`](Self::node) is.
    #[inline]
    fn branch<'a>(self) -> &'a Branch<E> {
        assert!(self.is_branch());
        // SAFETY: by the rules the node is there and nobody writes to it; the tag says that it is a branch.
        unsafe { &*self.untagged().cast::<Branch<E>>() }
    }

    /// The page that this leads to; private, as [`node`](Self::node) is.
    #[inline]
    fn page<'a>(self) -> Page<'a, E> {
        assert!(!self.is_branch());
        let head = self.untagged().cast::<Head<E>>();
        // SAFETY: by the rules the node is there and nobody writes to it, and the tag says that it is a page; `new_page` puts
        // as many buckets behind the head as the tag says.
        let (head, buckets) =
            unsafe { (&*head, slice::from_raw_parts(head.add(1).cast::<Bucket<E>>(), self.buckets())) };
        Page { head, buckets }
    }

    fn born(self) -> u64 {
        match self.node() {
            Node::Branch(branch) => branch.born,
            Node::Page(page) => page.head.born,
        }
    }
}

/// The root of a version, which is always a branch.
pub(super) struct Root<E>(Link<E>);

impl<E: Entry> Root<E> {
    /// An empty tree.
    pub(super) fn new(generation: u64) -> Self {
        Self(new_branch(generation, new_page(generation, 0, 1)))
    }
}

impl<E> Root<E> {
    /// The same root, for a draft.
    pub(super) fn share(&self) -> Self {
        Self(self.0)
    }

    #[inline]
    pub(super) fn branch(&self) -> &Branch<E> {
        // SAFETY: by the rules the node is there as long as the version is, and nobody writes to it.
        unsafe { &*self.0.untagged().cast() }
    }

    /// The page for `hash`.
    #[inline]
    pub(super) fn page(&self, hash: u64) -> Page<'_, E> {
        let (mut link, mut bits) = (self.branch().children[(hash >> (u64::BITS - FAN_BITS)) as usize], hash);
        while link.is_branch() {
            bits <<= FAN_BITS;
            link = link.branch().children[(bits >> (u64::BITS - FAN_BITS)) as usize];
        }
        link.page()
    }

    pub(super) fn link(&self) -> Link<E> {
        self.0
    }
}

impl<E: Entry> Branch<E> {
    #[inline]
    pub(super) fn child(&self, at: usize) -> Node<'_, E> {
        self.children[at].node()
    }

    pub(super) fn is_branch_at(&self, at: usize) -> bool {
        self.children[at].is_branch()
    }

    /// Whether one node is child `at` of both.
    pub(super) fn shares(&self, other: &Self, at: usize) -> bool {
        self.children[at] == other.children[at]
    }

    /// Where the next child begins that is another node than child `at`, which is the first that is that node.
    pub(super) fn after(&self, at: usize) -> usize {
        match self.child(at) {
            Node::Branch(_) => at + 1,
            Node::Page(page) => at + page.copies(),
        }
    }

    /// Puts `page` in the place of the page at `at`, which has the same `span`.
    pub(super) fn replace(&mut self, at: usize, span: u32, Fresh(page): Fresh<E>) -> Unlinked<E> {
        let old = Unlinked(self.children[at]);
        self.set(at, span, page);
        old
    }

    /// Puts two pages in the place of the page at `at`, whose span is `span`: one bit more tells them apart.
    pub(super) fn replace_by_two(&mut self, at: usize, span: u32, [zero, one]: [Fresh<E>; 2]) -> Unlinked<E> {
        let old = Unlinked(self.children[at]);
        let half = (FAN / 2) >> span;
        self.set(at & !half, span + 1, zero.0);
        self.set(at | half, span + 1, one.0);
        old
    }

    /// Puts pages of this `span` in the place of the one page that is every child.
    pub(super) fn replace_all(&mut self, span: u32, mut page: impl FnMut() -> Fresh<E>) -> Unlinked<E> {
        debug_assert!(self.children.iter().all(|child| *child == self.children[0]));
        let old = Unlinked(self.children[0]);
        for at in (0..FAN).step_by(FAN >> span) {
            self.set(at, span, page().0);
        }
        old
    }

    /// Makes `link` every child that has `span` bits in common with child `at`.
    fn set(&mut self, at: usize, span: u32, link: Link<E>) {
        let copies = FAN >> span;
        let first = at & !(copies - 1);
        self.children[first..first + copies].fill(link);
    }

    /// Puts a branch between this one and the page at `at`, which is a child of this one once, and of the new one as
    /// often as can be.
    pub(super) fn push_down(&mut self, at: usize, draft: &mut Draft<E>) {
        self.own_page(at, draft).head.span = 0;
        self.children[at] = new_branch(draft.generation, self.children[at]);
    }

    /// The page at `at`, to write to.
    pub(super) fn own_page(&mut self, at: usize, draft: &mut Draft<E>) -> PageMut<'_, E> {
        let mut link = self.children[at];
        if draft.own_page(&mut link) {
            let span = match link.node() {
                Node::Page(page) => page.span(),
                Node::Branch(_) => FAN_BITS,
            };
            self.set(at, span, link);
        }
        // SAFETY: it was born in this draft, so nobody else can reach it, and the draft itself follows one link at a time:
        // the one page that is several children is borrowed with the branch.
        unsafe { page_mut(&mut self.children[at]) }
    }

    /// The branch at `at`, to write to.
    pub(super) fn own_branch(&mut self, at: usize, draft: &mut Draft<E>) -> &mut Self {
        draft.own_branch(&mut self.children[at])
    }
}

impl<E> Page<'_, E> {
    /// How many children of the branch above the page is.
    fn copies(&self) -> usize {
        FAN >> self.head.span
    }

    pub(super) fn taken(&self) -> usize {
        self.head.taken as usize
    }

    pub(super) fn span(&self) -> u32 {
        self.head.span
    }
}

impl<E> PageMut<'_, E> {
    pub(super) fn as_page(&self) -> Page<'_, E> {
        Page { head: self.head, buckets: self.buckets }
    }
}

impl<E: Entry> Slot<E> {
    pub(super) const VACANT: Self = Self { entry: ManuallyDrop::new(E::VACANT), stamp: 0 };
}

impl<E> Slot<E> {
    #[inline]
    pub(crate) fn entry(&self) -> &E {
        &self.entry
    }

    /// What was stored beside the entry: not 0, unless the slot is vacant.
    #[inline]
    pub(crate) fn tag(&self) -> u64 {
        self.stamp % (1 << TAG_BITS)
    }

    #[inline]
    pub(super) fn is_vacant(&self) -> bool {
        self.stamp == 0
    }

    fn born(&self) -> u64 {
        self.stamp >> TAG_BITS
    }
}

/// What makes a new version out of the newest one.
pub(super) struct Draft<E> {
    generation: u64,
    /// The root of the published version that this started from.
    base: Link<E>,
    garbage: Garbage<E>,
}

/// A page that a draft has made and that is in no tree yet. To drop it is to leak it.
pub(super) struct Fresh<E>(Link<E>);

impl<E> Fresh<E> {
    pub(super) fn page_mut(&mut self) -> PageMut<'_, E> {
        // SAFETY: it was born in this draft and is in no tree, and there is one `Fresh` of it.
        unsafe { page_mut(&mut self.0) }
    }
}

/// A page that was in the draft's tree and is not any more; see [`Draft::let_go`]. There is one for a page.
pub(super) struct Unlinked<E>(Link<E>);

/// What a version has and the next one has not. To drop it is to leak it; see [`Garbage::hand_on`].
pub(crate) struct Garbage<E> {
    nodes: Vec<Link<E>>,
    entries: Vec<Slot<E>>,
    /// Nodes with all below.
    trees: Vec<Link<E>>,
    /// Entries that came and went while the next version was a draft: nobody has them.
    scrap: Vec<E>,
}

impl<E> Default for Garbage<E> {
    fn default() -> Self {
        Self { nodes: Vec::new(), entries: Vec::new(), trees: Vec::new(), scrap: Vec::new() }
    }
}

impl<E: Entry> Draft<E> {
    /// A draft of generation `generation`, which starts from `base`.
    pub(super) fn new(generation: u64, base: Link<E>) -> Self {
        Self { generation, base, garbage: Garbage::default() }
    }

    /// A draft that makes no use of what this one started from, which dies.
    pub(super) fn instead(&self) -> Self {
        let mut draft = Self::new(self.generation, self.base);
        draft.garbage.trees.push(self.base);
        draft
    }

    /// A slot that holds `entry`, born in this draft.
    pub(super) fn slot(&self, entry: E, tag: u64) -> Slot<E> {
        Slot { entry: ManuallyDrop::new(entry), stamp: self.generation << TAG_BITS | tag }
    }

    /// An empty page of this draft.
    pub(super) fn page(&self, span: u32, buckets: usize) -> Fresh<E> {
        Fresh(new_page(self.generation, span, buckets))
    }

    /// An empty tree of this draft.
    pub(super) fn root(&self) -> Root<E> {
        Root::new(self.generation)
    }

    /// The root, to write to.
    pub(super) fn own_root<'a>(&mut self, root: &'a mut Root<E>) -> &'a mut Branch<E> {
        self.own_branch(&mut root.0)
    }

    /// The branch at `link`, to write to.
    fn own_branch<'a>(&mut self, link: &'a mut Link<E>) -> &'a mut Branch<E> {
        debug_assert!(link.is_branch());
        if link.born() != self.generation {
            let copy = stock::allocate(size_of::<Branch<E>>());
            // SAFETY: the branch is there, by the rules; the copy is new and as large.
            unsafe {
                let copy = copy.as_ptr().cast::<Branch<E>>();
                ptr::copy_nonoverlapping(link.untagged().cast(), copy, 1);
                (*copy).born = self.generation;
            }
            self.garbage.nodes.push(*link);
            *link = Link(copy.map_addr(|address| address | 1), PhantomData);
        }
        // SAFETY: it was born in this draft, so nobody else can reach it.
        unsafe { &mut *link.untagged().cast() }
    }

    /// Makes `link` lead to a page of this draft, and says whether it did not before.
    fn own_page(&mut self, link: &mut Link<E>) -> bool {
        if link.born() == self.generation {
            return false;
        }
        let size = page_size::<E>(link.buckets());
        let copy = stock::allocate(size);
        // SAFETY: the page is there, by the rules; the copy is new and as large.
        unsafe {
            ptr::copy_nonoverlapping(link.untagged(), copy.as_ptr(), size / size_of::<Line>());
            (*copy.as_ptr().cast::<Head<E>>()).born = self.generation;
        }
        self.garbage.nodes.push(*link);
        *link = page_link(copy, link.buckets());
        true
    }

    /// Takes a tree apart: `each` is given every slot, and the nodes are let go.
    pub(super) fn dissolve(&mut self, Root(root): Root<E>, each: &mut impl FnMut(&mut Self, Slot<E>)) {
        self.dissolve_below(root, each);
    }

    fn dissolve_below(&mut self, link: Link<E>, each: &mut impl FnMut(&mut Self, Slot<E>)) {
        match link.node() {
            Node::Branch(branch) => {
                let mut last = None;
                for child in branch.children {
                    if last.replace(child) != Some(child) {
                        self.dissolve_below(child, each);
                    }
                }
            }
            Node::Page(page) => {
                for slot in page.buckets.iter().flat_map(|bucket| &bucket.0).filter(|slot| !slot.is_vacant())
                {
                    // SAFETY: the copy of the slot goes on in this draft; the others are of earlier versions.
                    each(self, unsafe { ptr::read(slot) });
                }
            }
        }
        self.let_go(Unlinked(link));
    }

    /// A node that this draft has no use for any more; what is below it and in it lives on elsewhere.
    pub(super) fn let_go(&mut self, Unlinked(link): Unlinked<E>) {
        if link.born() == self.generation {
            // SAFETY: nobody else has ever seen it.
            unsafe { free_node(link) };
        } else {
            self.garbage.nodes.push(link);
        }
    }

    /// An entry that this draft has no use for any more.
    pub(super) fn discard(&mut self, slot: Slot<E>) {
        if slot.born() == self.generation {
            self.garbage.scrap.push(ManuallyDrop::into_inner(slot.entry));
        } else {
            self.garbage.entries.push(slot);
        }
    }

    /// Ends the draft: it is a version from now on. What the one before has and this one has not is returned.
    pub(super) fn publish(self) -> Garbage<E> {
        self.garbage
    }

    /// Ends a draft that was never published, and whose tree is at `root`.
    ///
    /// # Safety
    /// Nobody follows `root` any more.
    pub(super) unsafe fn abandon(self, root: Link<E>) {
        if root.born() < self.generation {
            return;
        }
        // What it took from its base, its base still has: that garbage is none.
        // SAFETY: what was born in the draft only the draft could reach, and it ends here.
        unsafe { free_tree(root, self.generation, &mut Garbage::default()) };
    }
}

impl<E> Garbage<E> {
    /// Adds a tree, all of it.
    pub(super) fn add_tree(&mut self, root: Link<E>) {
        self.trees.push(root);
    }

    /// Takes over what another version had.
    pub(crate) fn append(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.entries.append(&mut other.entries);
        self.trees.append(&mut other.trees);
        self.scrap.append(&mut other.scrap);
    }

    /// Drops what nobody has. Not done by [`Draft::publish`], because entries may run their owners' code, which may panic:
    /// the version must be in its place before.
    pub(crate) fn drop_scrap(&mut self) {
        self.scrap = Vec::new();
    }

    /// Frees what the nearest `older` version that is left has not, and gives that one the rest. The older version is
    /// given by its generation and its garbage.
    ///
    /// # Safety
    /// The version that this is the garbage of is gone, and no version between the two is left.
    pub(crate) unsafe fn hand_on(mut self, older: Option<(u64, &mut Self)>) {
        let mut nobodys = Self::default();
        // The first generation that the older version does not know.
        let (first, older) = older.map_or((0, &mut nobodys), |(generation, older)| (generation + 1, older));
        for node in self.nodes.drain(..) {
            if node.born() < first {
                older.nodes.push(node);
            } else {
                // SAFETY: rule 3.
                unsafe { free_node(node) };
            }
        }
        // Entries of trees are dropped on the way; one that panics there leaks what is left of its tree.
        for tree in self.trees.drain(..) {
            // SAFETY: rule 3, for each node.
            unsafe { free_tree(tree, first, older) };
        }
        // After the nodes, because entries may run their owners' code, which may panic.
        for slot in self.entries.drain(..) {
            if slot.born() < first {
                older.entries.push(slot);
            } else {
                // Rule 3.
                drop(ManuallyDrop::into_inner(slot.entry));
            }
        }
    }
}

/// The page at `link`, to write to.
///
/// # Safety
/// It is a page, it was born in a draft, and for `'a` nobody comes to it but by what is returned.
unsafe fn page_mut<E>(link: &mut Link<E>) -> PageMut<'_, E> {
    debug_assert!(!link.is_branch());
    let head = link.untagged().cast::<Head<E>>();
    // SAFETY: the caller's; `new_page` puts as many buckets behind the head as the tag says.
    let (head, buckets) =
        unsafe { (&mut *head, slice::from_raw_parts_mut(head.add(1).cast::<Bucket<E>>(), link.buckets())) };
    PageMut { head, buckets }
}

/// Frees of a tree what was born in `first` or later; the rest goes to `older`.
///
/// # Safety
/// Nobody but those who have what was born before `first` follows a link into the tree any more.
unsafe fn free_tree<E>(root: Link<E>, first: u64, older: &mut Garbage<E>) {
    if root.born() < first {
        // Rule 4. A draft that is abandoned leaves it where it is.
        older.trees.push(root);
        return;
    }
    match root.node() {
        Node::Branch(branch) => {
            let mut last = None;
            for child in branch.children {
                // One page may be several children, all neighbours.
                if last.replace(child) != Some(child) {
                    // SAFETY: the caller's.
                    unsafe { free_tree(child, first, older) };
                }
            }
        }
        Node::Page(page) => {
            for slot in page.buckets.iter().flat_map(|bucket| &bucket.0) {
                if slot.is_vacant() {
                    continue;
                }
                // SAFETY: the page goes, and is not read again: this is the one copy of the slot that is left, or one
                // that dies for all (rule 5).
                let slot = unsafe { ptr::read(slot) };
                if slot.born() < first {
                    older.entries.push(slot);
                } else {
                    drop(ManuallyDrop::into_inner(slot.entry));
                }
            }
        }
    }
    // SAFETY: the caller's.
    unsafe { free_node(root) };
}

/// Gives the memory of a node back, and nothing that it holds or leads to.
///
/// # Safety
/// Nobody follows the link any more.
unsafe fn free_node<E>(link: Link<E>) {
    let size = if link.is_branch() { size_of::<Branch<E>>() } else { page_size::<E>(link.buckets()) };
    let memory = link.0.map_addr(|address| NonZero::new(address.get() & !TAG).unwrap_or(address));
    // SAFETY: the caller's; a node was allocated with the size that its link tells.
    unsafe { stock::free(memory, size) };
}

fn new_branch<E>(generation: u64, child: Link<E>) -> Link<E> {
    let memory = stock::allocate(size_of::<Branch<E>>());
    // SAFETY: it is new, and large enough.
    unsafe { memory.cast().write(Branch { children: [child; FAN], born: generation }) };
    Link(memory.map_addr(|address| address | 1), PhantomData)
}

fn new_page<E: Entry>(generation: u64, span: u32, buckets: usize) -> Link<E> {
    let memory = stock::allocate(page_size::<E>(buckets));
    let head = memory.cast::<Head<E>>();
    // SAFETY: it is new, and large enough.
    unsafe {
        head.write(Head { born: generation, taken: 0, span, buckets, entries: PhantomData });
        let first = head.add(1).cast::<Bucket<E>>();
        for at in 0..buckets {
            first.add(at).write(Bucket([const { Slot::VACANT }; BUCKET]));
        }
    }
    page_link(memory, buckets)
}

fn page_link<E>(memory: NonNull<Line>, buckets: usize) -> Link<E> {
    let tag = (buckets - 1).min(MAX_BUCKETS) * 2;
    Link(memory.map_addr(|address| address | tag), PhantomData)
}

/// The head, and the buckets right behind it.
fn page_size<E>(buckets: usize) -> usize {
    size_of::<Head<E>>() + buckets * size_of::<Bucket<E>>()
}
