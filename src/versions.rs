//! Which versions there are, what is being written, and what may be freed.
//!
//! `map::node` says what the memory of a version rests on, and **this module keeps its side of it**: the unsafe code here is
//! the promise that a version is gone, or that it is not. Every version that was ever published is held here until nobody
//! else holds it, and only then is what it alone has freed, by the writer. A version that outlives the writer keeps
//! everything that was there when the writer went, until the last one goes.
//!
//! It must not know what a write means, nor when it is time to publish.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::{ptr, thread};

use crate::map::{DeadList, Memory, TableMut, Text, Words};
use crate::snapshot::{History, Mirror, PodKind, Snapshot};
use crate::sync::{self, Published};

/// A published snapshot, and what goes with the last of them.
pub(crate) struct Version<P> {
    snapshot: Snapshot<P>,
    last: Arc<FinalDeadList<P>>,
}

/// Every version of an index that somebody may look at, and the memory that they are made of.
pub(crate) struct Versions<P> {
    published: Published<Version<P>>,
    current: sync::Arc<Version<P>>,
    /// Those that were published before, by ascending generation.
    retired: VecDeque<Retired<P>>,
    /// Which of the retired is to be looked at next.
    next: usize,
    memory: Memory<P>,
}

struct Retired<P> {
    version: sync::Arc<Version<P>>,
    /// What it has and the next version has not.
    dead: DeadList<P>,
}

/// What is left when the writer goes. Every version holds it, so it is freed with the last of them.
pub(crate) struct FinalDeadList<P>(OnceLock<DeadList<P>>);

/// The next version, while it is written. To drop it undoes what was written.
pub(crate) struct Draft<'w, P> {
    versions: &'w mut Versions<P>,
    next: Snapshot<P>,
}

impl<P> Deref for Version<P> {
    type Target = Snapshot<P>;

    #[inline]
    fn deref(&self) -> &Snapshot<P> {
        &self.snapshot
    }
}

impl<P> Drop for FinalDeadList<P> {
    fn drop(&mut self) {
        if let Some(dead) = self.0.take() {
            // SAFETY: no version is left, nor the writer.
            unsafe { dead.free() };
        }
    }
}

impl<P> Versions<P> {
    /// The empty version.
    pub(crate) fn new() -> Self {
        let last = Arc::new(FinalDeadList(OnceLock::new()));
        let current = sync::Arc::new(Version { snapshot: Snapshot::empty(), last });
        let published = Published::new(sync::Arc::clone(&current));
        Self { published, current, retired: VecDeque::new(), next: 0, memory: Memory::default() }
    }

    /// The cell that readers read.
    pub(crate) fn published(&self) -> &Published<Version<P>> {
        &self.published
    }

    pub(crate) fn current(&self) -> &Snapshot<P> {
        &self.current
    }

    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Begins a draft of the next version, from the current one.
    pub(crate) fn draft(&mut self) -> Draft<'_, P> {
        // SAFETY: the draft borrows these versions, so that the current one stays; it is published, which keeps the
        // current one until nobody holds it, or abandoned.
        let next = unsafe { self.current.draft() };
        self.memory.begin(next.generation());
        Draft { versions: self, next }
    }

    /// Looks at a few of the retired versions, those first that were not looked at for longest, and frees what can be.
    pub(crate) fn reclaim_some(&mut self, count: usize) {
        for _ in 0..count.min(self.retired.len()) {
            if self.next >= self.retired.len() {
                self.next = 0;
            }
            if !self.reclaim(self.next) {
                self.next += 1;
            }
        }
    }

    /// Frees of the retired versions whatever can be.
    pub(crate) fn reclaim_all(&mut self) {
        let mut at = 0;
        while at < self.retired.len() {
            if !self.reclaim(at) {
                at += 1;
            }
        }
    }

    /// Frees one of the retired versions, unless somebody holds it.
    fn reclaim(&mut self, at: usize) -> bool {
        if !self.retired.get_mut(at).is_some_and(|retired| sync::is_sole_owner(&mut retired.version)) {
            return false;
        }
        let Some(Retired { version, dead }) = self.retired.remove(at) else { return false };
        drop(version);
        let older = at.checked_sub(1).and_then(|older| self.retired.get_mut(older));
        let older = older.map(|older| (older.version.generation(), &mut older.dead));
        // SAFETY: nobody held the version but this module, and it is gone. Every other one that is left is in the queue, in
        // order, or newer than all of it.
        unsafe { self.memory.reclaim(dead, older) };
        true
    }
}

/// The writer goes. What somebody still holds waits in the cell, so that no reader frees one by dropping its guard.
impl<P> Drop for Versions<P> {
    fn drop(&mut self) {
        // A pod that panics when it is dropped must not keep the rest from what follows.
        let reclaimed = catch_unwind(AssertUnwindSafe(|| self.reclaim_all()));
        let mut dead = DeadList::default();
        // SAFETY: the current version is the last one, and a writer goes once.
        unsafe { self.current.retire_into(&mut dead) };
        for retired in self.retired.drain(..) {
            dead.append(retired.dead);
            self.published.leave_behind([retired.version]);
        }
        // Nobody else sets it.
        let _ = self.current.last.0.set(dead);
        if let Err(panic) = reclaimed
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// The tables of a snapshot begin and end together.
impl<P> Snapshot<P> {
    /// # Safety
    /// See [`Table::draft`](crate::map::Table::draft).
    unsafe fn draft(&self) -> Self {
        // SAFETY: the caller's.
        let (pods, static_pods, mirrors, names, mirror_names) = unsafe {
            (
                self.pods.draft(),
                self.static_pods.draft(),
                self.mirrors.draft(),
                self.names.draft(),
                self.mirror_names.draft(),
            )
        };
        Self {
            generation: self.generation + 1,
            hashing: self.hashing.clone(),
            pods,
            static_pods,
            mirrors,
            names,
            mirror_names,
            history: self.history.clone(),
        }
    }

    /// # Safety
    /// See [`Table::retire_into`](crate::map::Table::retire_into).
    unsafe fn retire_into(&self, dead: &mut DeadList<P>) {
        // SAFETY: the caller's.
        unsafe {
            self.pods.retire_into(dead);
            self.static_pods.retire_into(dead);
            self.mirrors.retire_into(dead);
            self.names.retire_into(dead);
            self.mirror_names.retire_into(dead);
        }
    }

    /// # Safety
    /// See [`Table::abandon`](crate::map::Table::abandon).
    unsafe fn abandon(&mut self, memory: &mut Memory<P>) {
        // SAFETY: the caller's.
        unsafe {
            self.pods.abandon(memory);
            self.static_pods.abandon(memory);
            self.mirrors.abandon(memory);
            self.names.abandon(memory);
            self.mirror_names.abandon(memory);
        }
    }
}

impl<P> Draft<'_, P> {
    /// Makes the draft the current version. Drops the pods that came and went in it.
    pub(crate) fn publish(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped any more.
        let (versions, snapshot) =
            unsafe { (ptr::read(&raw const this.versions), ptr::read(&raw const this.next)) };
        let last = Arc::clone(&versions.current.last);
        let next = sync::Arc::new(Version { snapshot, last });
        versions.current = sync::Arc::clone(&next);
        let version = versions.published.swap(next);
        let dead = versions.memory.end();
        #[cfg(any(loom, shuttle))]
        let dead = if sync::planted("frees-nodes-at-once") {
            // SAFETY: none: that is the bug.
            unsafe { versions.memory.reclaim(dead, None) };
            DeadList::default()
        } else {
            dead
        };
        versions.retired.push_back(Retired { version, dead });
        versions.memory.drop_unpublished();
    }

    /// The version that the draft was made from.
    pub(crate) fn base(&self) -> &Snapshot<P> {
        &self.versions.current
    }

    pub(crate) fn memory(&mut self) -> &mut Memory<P> {
        &mut self.versions.memory
    }

    pub(crate) fn history(&mut self) -> &mut History {
        &mut self.next.history
    }

    pub(crate) fn pods_mut(&mut self) -> TableMut<'_, Words, Arc<P>> {
        // SAFETY: the table is the draft's, as the memory is, which is at this draft until it ends; so in what follows.
        unsafe { TableMut::new(&mut self.next.pods, &mut self.versions.memory, &self.next.hashing) }
    }

    pub(crate) fn static_pods_mut(&mut self) -> TableMut<'_, Words, Arc<P>> {
        // SAFETY: as above.
        unsafe { TableMut::new(&mut self.next.static_pods, &mut self.versions.memory, &self.next.hashing) }
    }

    pub(crate) fn mirrors_mut(&mut self) -> TableMut<'_, Words, Mirror<P>> {
        // SAFETY: as above.
        unsafe { TableMut::new(&mut self.next.mirrors, &mut self.versions.memory, &self.next.hashing) }
    }

    pub(crate) fn names_mut(&mut self, kind: PodKind) -> TableMut<'_, Text, Arc<P>> {
        let table = match kind {
            PodKind::Pod => &mut self.next.names,
            PodKind::Mirror => &mut self.next.mirror_names,
        };
        // SAFETY: as above.
        unsafe { TableMut::new(table, &mut self.versions.memory, &self.next.hashing) }
    }
}

impl<P> Deref for Draft<'_, P> {
    type Target = Snapshot<P>;

    #[inline]
    fn deref(&self) -> &Snapshot<P> {
        &self.next
    }
}

impl<P> Drop for Draft<'_, P> {
    fn drop(&mut self) {
        // SAFETY: the tables are this draft's, which goes.
        unsafe { self.next.abandon(&mut self.versions.memory) };
        self.versions.memory.cancel();
    }
}
