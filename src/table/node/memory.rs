//! The writer's memory for nodes, and the lists of what may be freed.
//!
//! This file does not know what a node looks like; `node` does. See there for the rules.

use std::any::Any;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::super::pool::{Line, NodePool};

/// The writer's memory for nodes, and what its draft has dropped.
pub(crate) struct Memory<P> {
    /// The generation of the draft.
    pub(super) generation: u64,
    pool: NodePool,
    /// What the draft's base version has and the draft does not.
    dead: DeadList<P>,
    /// Items to drop: those that no version has, and refused ones.
    to_drop: Vec<Arc<P>>,
    /// An empty list, to reuse its memory.
    spare: DeadList<P>,
}

/// Maximum length for which an empty list keeps its memory.
const SPARE_LEN: usize = 1 << 12;

/// What a version has and the next newer one that remains does not, each with its birth. Dropping the list leaks its content.
pub(crate) struct DeadList<P> {
    list: Vec<ManuallyDrop<Dead<P>>>,
}

/// A part of a tree that died, and the generation in which it was born.
pub(super) struct Dead<P> {
    pub(super) born: u64,
    pub(super) what: Part<P>,
}

/// What of a tree can die.
pub(super) enum Part<P> {
    /// The memory of a node.
    Node {
        at: NonNull<Line>,
        lines: usize,
    },
    /// A node with everything below it, and what takes it apart.
    Tree {
        at: NonNull<Line>,
        take_apart: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
    },
    Item(Arc<P>),
    Text(Arc<[u8]>),
}

/// The dead list of the next older version that remains, and that version's generation.
pub(crate) struct OlderVersion<'a, P> {
    pub(crate) generation: u64,
    pub(crate) dead: &'a mut DeadList<P>,
}

/// Frees what was born in generation `first` or later, and moves the rest to another list.
pub(super) struct Sweep<'a, P> {
    first: u64,
    pool: &'a mut NodePool,
    older: &'a mut DeadList<P>,
    to_drop: &'a mut Vec<Arc<P>>,
}

// SAFETY: the list owns its content, including the entries of nodes.
unsafe impl<P: Send + Sync> Send for DeadList<P> {}
// SAFETY: a shared list gives no access to its content.
unsafe impl<P: Send + Sync> Sync for DeadList<P> {}

impl<P> Default for DeadList<P> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<P> Default for Memory<P> {
    fn default() -> Self {
        let dead = DeadList::default();
        let spare = DeadList::default();
        Self { generation: 0, pool: NodePool::default(), dead, to_drop: Vec::new(), spare }
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
        self.dead.list.clear();
        self.generation = generation;
    }

    /// Ends a draft and returns what died in it. Its base version still has that. Call [`drop_items`](Self::drop_items) afterwards.
    pub(crate) fn end(&mut self) -> DeadList<P> {
        mem::replace(&mut self.dead, mem::take(&mut self.spare))
    }

    /// Ends a draft that is not published and whose tables were cleared. The published version still has what the draft
    /// dropped.
    pub(crate) fn cancel(&mut self) {
        self.dead.list.clear();
        self.drop_items();
    }

    /// Drops the items that no version has, and the refused ones. Their `Drop` is foreign code and may panic, so a new version
    /// must be published first.
    ///
    /// # Panics
    /// If the `Drop` of an item panics, after all are dropped.
    pub(crate) fn drop_items(&mut self) {
        let mut panic: Option<Box<dyn Any + Send>> = None;
        for item in self.to_drop.drain(..) {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(item))) {
                match panic {
                    None => panic = Some(payload),
                    Some(_) => discard(payload),
                }
            }
        }
        self.to_drop.shrink_to(SPARE_LEN);
        // During another panic, a second one would abort the process.
        match panic {
            Some(panic) if std::thread::panicking() => discard(panic),
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }

    /// Keeps an item until [`drop_items`](Self::drop_items).
    pub(crate) fn drop_later(&mut self, item: Arc<P>) {
        self.to_drop.push(item);
    }

    pub(super) fn allocate(&mut self, lines: usize) -> NonNull<Line> {
        NonNull::from(Box::leak(self.pool.take(lines))).cast()
    }

    /// Something dies in the draft: what the draft made is freed, and all else goes to the draft's dead list.
    ///
    /// # Safety
    /// It has this birth. The draft had the only link to it that is not in a published node, and no longer follows it.
    #[inline]
    pub(super) unsafe fn let_die(&mut self, dead: Dead<P>) {
        // SAFETY: what was born in the draft, only the draft has ever reached, and it does so no more.
        unsafe { self.sweep().free_or_list(dead) };
    }

    /// A sweep that frees what was born in the draft, and moves the rest to the draft's dead list.
    #[inline]
    pub(super) fn sweep(&mut self) -> Sweep<'_, P> {
        let Self { generation, pool, dead, to_drop, .. } = self;
        Sweep { first: *generation, pool, older: dead, to_drop }
    }

    /// The version of the dead list `dead` was dropped: frees what no version has any more. The rest moves to
    /// the dead list of the next older remaining version, `older`. Call [`drop_items`](Self::drop_items) afterwards.
    ///
    /// # Safety
    /// The version must have been dropped, and no version between the two may remain.
    pub(crate) unsafe fn distribute(&mut self, mut dead: DeadList<P>, older: Option<OlderVersion<'_, P>>) {
        let mut nobodys = DeadList::default();
        let older = older.unwrap_or(OlderVersion { generation: 0, dead: &mut nobodys });
        let mut sweep = Sweep {
            first: older.generation + 1,
            pool: &mut self.pool,
            older: older.dead,
            to_drop: &mut self.to_drop,
        };
        for died in dead.list.drain(..) {
            // SAFETY: newer versions do not have it. Older ones have nothing that was born in `first` or later: rule 3.
            unsafe { sweep.free_or_list(ManuallyDrop::into_inner(died)) };
        }
        if dead.list.capacity() <= SPARE_LEN {
            self.spare = dead;
        }
    }
}

impl<P> Dead<P> {
    /// The memory of a node, without what the node holds or links to.
    pub(super) fn node(born: u64, at: NonNull<Line>, lines: usize) -> Self {
        Self { born, what: Part::Node { at, lines } }
    }
}

impl<P> DeadList<P> {
    /// Appends another version's list.
    ///
    /// # Safety
    /// Both are lists of one index.
    pub(crate) unsafe fn append(&mut self, mut other: Self) {
        self.list.append(&mut other.list);
    }

    pub(super) fn push(&mut self, dead: Dead<P>) {
        // The statics of an empty table never die.
        if dead.born > 0 {
            self.list.push(ManuallyDrop::new(dead));
        }
    }

    /// Number of dead nodes.
    #[cfg(test)]
    pub(in super::super) fn nodes(&self) -> usize {
        self.list.iter().filter(|dead| matches!(dead.what, Part::Node { .. })).count()
    }

    /// Frees everything.
    ///
    /// # Safety
    /// No version may be left.
    pub(crate) unsafe fn free(self) {
        let mut memory = Memory::default();
        // SAFETY: no version is left, neither the list's nor an older one.
        unsafe { memory.distribute(self, None) };
        memory.drop_items();
    }
}

impl<P> Sweep<'_, P> {
    /// Frees what died or, if an older version has it, puts it on that version's dead list.
    ///
    /// # Safety
    /// It has this birth. If it was born in `first` or later, no version and no draft reaches it any more.
    #[inline]
    pub(super) unsafe fn free_or_list(&mut self, dead: Dead<P>) {
        if dead.born < self.first {
            return self.older.push(dead);
        }
        match dead.what {
            // SAFETY: nothing follows a link to it, by this function's contract.
            Part::Node { at, lines } => unsafe { self.free(at, lines) },
            // SAFETY: nothing follows a link to it, by this function's contract.
            Part::Tree { at, take_apart } => unsafe { take_apart(at, self) },
            Part::Item(item) => self.to_drop.push(item),
            Part::Text(text) => drop(text),
        }
    }

    /// Frees the memory of a node, but not what it holds or links to.
    ///
    /// # Safety
    /// [`Memory::allocate`] returned it in this size, and no link to it may be followed any more.
    pub(super) unsafe fn free(&mut self, at: NonNull<Line>, lines: usize) {
        let memory = ptr::slice_from_raw_parts_mut(at.as_ptr().cast::<MaybeUninit<Line>>(), lines);
        // SAFETY: `allocate` leaked a box of this size.
        let memory = unsafe { Box::from_raw(memory) };
        #[cfg(any(pod_index_loom, pod_index_shuttle))]
        let memory = poisoned(memory);
        self.pool.put(memory);
    }
}

/// Overwrites a freed node and keeps it for a while, so that the models detect a read of it without reading
/// freed memory. Returns new memory of the same size.
#[cfg(any(pod_index_loom, pod_index_shuttle))]
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

/// Drops the payload of a panic. Its `Drop` is foreign code, too: if it panics, what that panic carries is leaked, because
/// dropping it might never end.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
}
