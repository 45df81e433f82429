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
pub(crate) struct DeadList<P>(Vec<(u64, ManuallyDrop<Dead<P>>)>);

/// What can die.
pub(super) enum Dead<P> {
    /// The memory of a node, and its number of lines.
    Node(NonNull<Line>, usize),
    /// A node with everything below it, and what takes it apart.
    Tree(NonNull<Line>, unsafe fn(NonNull<Line>, &mut Sweep<'_, P>)),
    Item(Arc<P>),
    Text(Arc<[u8]>),
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
        Self(Vec::new())
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
        self.dead.0.clear();
        self.generation = generation;
    }

    /// Ends a draft and returns what died in it. Its base version still has that. Call [`drop_items`](Self::drop_items) afterwards.
    pub(crate) fn end(&mut self) -> DeadList<P> {
        mem::replace(&mut self.dead, mem::take(&mut self.spare))
    }

    /// Ends a draft that is not published and whose tables were cleared. The published version still has what the draft
    /// dropped.
    pub(crate) fn cancel(&mut self) {
        self.dead.0.clear();
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
    pub(super) unsafe fn let_die(&mut self, born: u64, dead: Dead<P>) {
        // SAFETY: what was born in the draft, only the draft has ever reached, and it does so no more.
        unsafe { self.sweep().free_or_list(born, dead) };
    }

    /// A sweep that frees what was born in the draft, and moves the rest to the draft's dead list.
    #[inline]
    pub(super) fn sweep(&mut self) -> Sweep<'_, P> {
        let Self { generation, pool, dead, to_drop, .. } = self;
        Sweep { first: *generation, pool, older: dead, to_drop }
    }

    /// The version of the dead list `dead` was dropped: frees what no version has any more. The rest moves to
    /// the dead list of the next older remaining version, `older`, given with its generation. Call
    /// [`drop_items`](Self::drop_items) afterwards.
    ///
    /// # Safety
    /// The version must have been dropped, and no version between the two may remain.
    pub(crate) unsafe fn distribute(
        &mut self,
        mut dead: DeadList<P>,
        older: Option<(u64, &mut DeadList<P>)>,
    ) {
        let mut nobodys = DeadList::default();
        let (generation, older) = older.unwrap_or((0, &mut nobodys));
        let mut sweep =
            Sweep { first: generation + 1, pool: &mut self.pool, older, to_drop: &mut self.to_drop };
        for (born, dead) in dead.0.drain(..) {
            // SAFETY: newer versions do not have it. Older ones have nothing that was born in `first` or later: rule 3.
            unsafe { sweep.free_or_list(born, ManuallyDrop::into_inner(dead)) };
        }
        if dead.0.capacity() <= SPARE_LEN {
            self.spare = dead;
        }
    }
}

impl<P> DeadList<P> {
    /// Appends another version's list.
    ///
    /// # Safety
    /// Both are lists of one index.
    pub(crate) unsafe fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn push(&mut self, born: u64, dead: Dead<P>) {
        // The statics of an empty table never die.
        if born > 0 {
            self.0.push((born, ManuallyDrop::new(dead)));
        }
    }

    /// Number of dead nodes.
    #[cfg(test)]
    pub(in super::super) fn nodes(&self) -> usize {
        self.0.iter().filter(|(_, dead)| matches!(**dead, Dead::Node(..))).count()
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
    pub(super) unsafe fn free_or_list(&mut self, born: u64, dead: Dead<P>) {
        if born < self.first {
            return self.older.push(born, dead);
        }
        match dead {
            // SAFETY: nothing follows a link to it, by this function's contract.
            Dead::Node(at, lines) => unsafe { self.free(at, lines) },
            // SAFETY: nothing follows a link to it, by this function's contract.
            Dead::Tree(link, take_apart) => unsafe { take_apart(link, self) },
            Dead::Item(item) => self.to_drop.push(item),
            Dead::Text(text) => drop(text),
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
