//! The writer's memory for nodes, and the lists of what may be freed.
//!
//! This file does not know what a node looks like; `node` does. See there for the rules.

use std::any::Any;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::super::Value;
use super::super::pool::{Line, NodePool};
use super::record::{Label, Record};

/// The writer's memory for nodes, and what its draft has dropped.
pub(crate) struct Memory<P> {
    /// The generation of the draft.
    pub(super) generation: u64,
    pub(super) pool: NodePool,
    /// What the draft's base version has and the draft does not.
    pub(super) dead: DeadList<P>,
    /// Pods that were both added and removed in the draft, and refused ones.
    pub(super) unpublished: Vec<Arc<P>>,
    /// Empty lists for reuse.
    spare: Vec<DeadList<P>>,
}

/// Number of low bits of a stamp that hold flags. The others hold the value's birth.
pub(super) const FLAG_BITS: u32 = 16;

/// Maximum number of empty lists kept.
const SPARE_LISTS: usize = 4;
/// Maximum number of items for which an empty list keeps its memory: more than a batch of a thousand needs.
const SPARE_ITEMS: usize = 1 << 14;

/// What a version has and the next one does not. Dropping the list leaks its content.
pub(crate) struct DeadList<P> {
    nodes: Vec<DeadNode>,
    pods: Vec<(u64, ManuallyDrop<Arc<P>>)>,
    texts: Vec<(u64, ManuallyDrop<Arc<str>>)>,
    pub(super) records: Vec<Record>,
    /// Nodes with everything below them.
    pub(super) trees: Vec<DeadTree<P>>,
}

struct DeadNode {
    at: NonNull<Line>,
    lines: usize,
    born: u64,
}

pub(super) struct DeadTree<P> {
    pub(super) link: NonNull<Line>,
    /// Takes the tree apart, for its type of entries.
    pub(super) sweep: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
}

/// Takes trees apart: frees what was born in generation `first` or later, and moves the rest to another list.
pub(super) struct Sweep<'a, P> {
    pub(super) first: u64,
    pub(super) pool: &'a mut NodePool,
    pub(super) older: &'a mut DeadList<P>,
    pub(super) freed: &'a mut Vec<Arc<P>>,
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
    ///
    /// # Safety
    /// No draft is going on. The generation is higher than that of every version.
    pub(crate) unsafe fn begin(&mut self, generation: u64) {
        // A draft that was forgotten (`mem::forget`) leaks what it has. What it dropped is still in the current version.
        self.dead.clear();
        self.generation = generation;
    }

    /// Ends a published draft. Returns what died in it. Call [`drop_unpublished`](Self::drop_unpublished)
    /// afterwards.
    pub(crate) fn end(&mut self) -> DeadList<P> {
        mem::replace(&mut self.dead, self.spare.pop().unwrap_or_default())
    }

    /// Drops the pods that were both added and removed in the draft, and the refused ones. Their `Drop` is foreign code
    /// and may panic, so the new version must be published first.
    pub(crate) fn drop_unpublished(&mut self) {
        let mut pods = mem::take(&mut self.unpublished);
        drop_all(&mut pods);
        if pods.capacity() <= SPARE_ITEMS {
            self.unpublished = pods;
        }
    }

    /// Keeps a pod until [`drop_unpublished`](Self::drop_unpublished).
    pub(crate) fn drop_later(&mut self, pod: Arc<P>) {
        self.unpublished.push(pod);
    }

    /// Ends a draft that is not published and whose tables were passed to [`abandon`](Self::abandon). The
    /// published version still has what the draft dropped.
    pub(crate) fn cancel(&mut self) {
        self.dead.clear();
        self.drop_unpublished();
    }

    pub(super) fn stamp(&self, flags: u16) -> u64 {
        self.generation << FLAG_BITS | u64::from(flags)
    }

    pub(super) fn retire_value<V: Value<Pod = P>>(&mut self, value: V, born: u64) {
        self.retire_parts(value.into_parts(), born);
    }

    #[inline]
    pub(super) fn retire_parts(&mut self, (pod, text): Parts<P>, born: u64) {
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

    /// A new record of these strings.
    pub(crate) fn record(&self, first: impl AsRef<[u8]>, second: impl AsRef<[u8]>) -> Record {
        Record::new(self.generation, first.as_ref(), second.as_ref())
    }

    /// A new record of a container's name.
    pub(crate) fn label(&self, text: &str) -> Label {
        Label::new(self.generation, text)
    }

    pub(super) fn allocate(&mut self, lines: usize) -> NonNull<Line> {
        NonNull::from(Box::leak(self.pool.take(lines))).cast()
    }

    /// # Safety
    /// [`allocate`](Self::allocate) returned this node, of this size, and it has this birth. The draft had the only link
    /// to it that is not in a published node, and no longer follows it.
    pub(super) unsafe fn retire_node(&mut self, at: NonNull<Line>, lines: usize, born: u64) {
        if born == self.generation {
            // SAFETY: it was born in the draft, so that only the draft has ever linked to it, and does so no more.
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
        // SAFETY: the list's version is gone, and `older` is that of the next older version that remains.
        unsafe { dead.reclaim_into(older, &mut self.pool, &mut freed) };
        if self.spare.len() < SPARE_LISTS && dead.capacity() <= SPARE_ITEMS {
            self.spare.push(dead);
        }
        drop_all(&mut freed);
    }
}

impl<P> DeadList<P> {
    /// Appends another version's list.
    ///
    /// # Safety
    /// Both are lists of one index.
    pub(crate) unsafe fn append(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.pods.append(&mut other.pods);
        self.texts.append(&mut other.texts);
        self.records.append(&mut other.records);
        self.trees.append(&mut other.trees);
    }

    /// Number of dead nodes.
    #[cfg(test)]
    pub(in super::super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The largest number of items that one of the lists has memory for.
    fn capacity(&self) -> usize {
        let Self { nodes, pods, texts, records, trees } = self;
        let all = [nodes.capacity(), pods.capacity(), texts.capacity(), records.capacity(), trees.capacity()];
        all.into_iter().max().unwrap_or_default()
    }

    fn clear(&mut self) {
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
        // SAFETY: no version is left, neither the list's nor an older one.
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
                // SAFETY: newer versions do not have it, and older ones are older than its birth: rule 3.
                unsafe { free(node.at, node.lines, pool) };
            }
        }
        let mut sweep = Sweep { first, pool, older, freed };
        for tree in self.trees.drain(..) {
            // SAFETY: newer versions have no node of the tree, and older ones none that was born in `first` or later: rule 3.
            unsafe { (tree.sweep)(tree.link, &mut sweep) };
        }
        self.pods.drain(..).for_each(|(born, pod)| sweep.pod(born, ManuallyDrop::into_inner(pod)));
        self.texts.drain(..).for_each(|(born, text)| sweep.text(born, ManuallyDrop::into_inner(text)));
        self.records.drain(..).for_each(|record| sweep.record(record));
    }
}

impl<P> Sweep<'_, P> {
    pub(super) fn pod(&mut self, born: u64, pod: Arc<P>) {
        if born < self.first {
            self.older.pods.push((born, ManuallyDrop::new(pod)));
        } else {
            self.freed.push(pod);
        }
    }

    pub(super) fn text(&mut self, born: u64, text: Arc<str>) {
        if born < self.first {
            self.older.texts.push((born, ManuallyDrop::new(text)));
        }
    }

    pub(super) fn record(&mut self, record: Record) {
        if record.born() < self.first {
            self.older.records.push(record);
        } else {
            // SAFETY: the record was born after every version that remains, so none of those has it.
            unsafe { record.release() };
        }
    }
}

/// The parts of a value that have to be freed.
pub(super) type Parts<P> = (Option<Arc<P>>, Option<Arc<str>>);

/// Frees the memory of a node, but not what it holds or links to.
///
/// # Safety
/// The node must have this size, and no link to it may be followed any more.
pub(super) unsafe fn free(at: NonNull<Line>, lines: usize, pool: &mut NodePool) {
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
fn poisoned(mut memory: super::super::pool::NodeMemory) -> super::super::pool::NodeMemory {
    use std::collections::VecDeque;
    use std::sync::{Mutex, PoisonError};

    static FREED: Mutex<VecDeque<super::super::pool::NodeMemory>> = Mutex::new(VecDeque::new());
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
