//! The existing versions, the one being written, and what may be freed.
//!
//! `map::node` states what the memory of a version requires, and **this module guarantees it**: the unsafe
//! code here promises that a version is gone, or that it still exists. Every published version is held here
//! until no one else holds it. Only then does the writer free what belonged to it alone. A version that
//! outlives the writer keeps alive everything that existed when the writer was dropped, until the last
//! version is dropped.
//!
//! It does not depend on the meaning of a write or on when it is published.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use std::{ptr, thread};

use crate::map::{DeadList, Labelled, Memory, Ordered, TableMut, Text, Words};
use crate::options::Options;
use crate::pod::Claims;
use crate::snapshot::{
    ByKey, Contender, Departed, History, Holder, Mirror, PodKind, RemovedBook, RemovedSet, Snapshot,
};
use crate::sync::{self, Published};

/// A published snapshot, and the memory that the last snapshot frees.
pub(crate) struct Version<P> {
    snapshot: Snapshot<P>,
    last: Arc<FinalDeadList<P>>,
}

/// All versions of an index that may still be in use, and their memory.
pub(crate) struct Versions<P> {
    published: Published<Version<P>>,
    current: sync::Arc<Version<P>>,
    /// Replaced versions, by ascending generation.
    retired: VecDeque<Retired<P>>,
    /// The retired version to check next.
    next: usize,
    memory: Memory<P>,
    /// The writer's, so that an update allocates nothing to compare what two objects claim.
    scratch: Option<Box<[Claims; 2]>>,
    /// The last time that was passed to the writer.
    now: Option<Instant>,
}

struct Retired<P> {
    version: sync::Arc<Version<P>>,
    /// What this version has and the next one does not.
    dead: DeadList<P>,
}

/// What is left when the writer is dropped. Every version holds it, so the last one frees it.
pub(crate) struct FinalDeadList<P>(OnceLock<DeadList<P>>);

/// The next version, while it is being written. Dropping it undoes the changes.
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
            // SAFETY: neither a version nor the writer is left.
            unsafe { dead.free() };
        }
    }
}

impl<P> Versions<P> {
    /// The empty version.
    pub(crate) fn new(options: Options) -> Self {
        let last = Arc::new(FinalDeadList(OnceLock::new()));
        let current = sync::Arc::new(Version { snapshot: Snapshot::empty(options), last });
        let published = Published::new(sync::Arc::clone(&current));
        Self {
            published,
            current,
            retired: VecDeque::new(),
            next: 0,
            memory: Memory::default(),
            scratch: None,
            now: None,
        }
    }

    /// The cell from which readers load.
    pub(crate) fn published(&self) -> &Published<Version<P>> {
        &self.published
    }

    pub(crate) fn current(&self) -> &Snapshot<P> {
        &self.current
    }

    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Sets the time for the next drafts. It never goes back.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = self.now.max(Some(now));
    }

    pub(crate) fn now(&self) -> Option<Instant> {
        self.now
    }

    /// Starts a draft of the next version, based on the current one.
    pub(crate) fn draft(&mut self) -> Draft<'_, P> {
        // SAFETY: the draft borrows these versions, so the current one stays. Then the draft is either
        // published, which keeps the current version until no one holds it, or abandoned.
        let next = unsafe { self.current.draft() };
        self.memory.begin(next.generation());
        Draft { versions: self, next }
    }

    /// Checks some of the retired versions, those first that were not checked for longest, and frees what it
    /// can.
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

    /// Frees all retired versions that it can.
    pub(crate) fn reclaim_all(&mut self) {
        let mut at = 0;
        while at < self.retired.len() {
            if !self.reclaim(at) {
                at += 1;
            }
        }
    }

    /// Frees a retired version, unless it is in use.
    fn reclaim(&mut self, at: usize) -> bool {
        if !self.retired.get_mut(at).is_some_and(|retired| sync::is_sole_owner(&mut retired.version)) {
            return false;
        }
        let Some(Retired { version, dead }) = self.retired.remove(at) else { return false };
        drop(version);
        let older = at.checked_sub(1).and_then(|older| self.retired.get_mut(older));
        let older = older.map(|older| (older.version.generation(), &mut older.dead));
        // SAFETY: only this module held the version, and it is gone. Every remaining version is in the queue,
        // in order, or newer than the whole queue.
        unsafe { self.memory.reclaim(dead, older) };
        true
    }
}

/// Drops the writer's side. Versions still in use move to the cell, so that no reader frees one by dropping
/// its guard.
impl<P> Drop for Versions<P> {
    fn drop(&mut self) {
        // A pod whose `Drop` panics must not prevent the following steps.
        let reclaimed = catch_unwind(AssertUnwindSafe(|| self.reclaim_all()));
        // Before another handle can free the last version.
        self.memory.forget_labels();
        let mut dead = DeadList::default();
        // SAFETY: the current version is the last one, and the writer is dropped only once.
        unsafe { self.current.retire_into(&mut dead) };
        for retired in self.retired.drain(..) {
            dead.append(retired.dead);
            self.published.leave_behind([retired.version]);
        }
        // Only this line sets it.
        let _ = self.current.last.0.set(dead);
        if let Err(panic) = reclaimed
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// The tables of a snapshot start and end together.
impl<P> Snapshot<P> {
    /// # Safety
    /// See [`Table::draft`](crate::map::Table::draft).
    unsafe fn draft(&self) -> Self {
        // SAFETY: the caller guarantees it.
        let (pods, static_pods, mirrors, names, mirror_names) = unsafe {
            (
                self.pods.draft(),
                self.static_pods.draft(),
                self.mirrors.draft(),
                self.names.draft(),
                self.mirror_names.draft(),
            )
        };
        // SAFETY: the caller's.
        let by_key = unsafe { self.by_key.draft() };
        // SAFETY: the caller's.
        let removed = self.removed.as_ref().map(|removed| Box::new(unsafe { removed.draft() }));
        Self {
            generation: self.generation + 1,
            pods_generation: self.generation + 1,
            hashing: self.hashing.clone(),
            pods,
            static_pods,
            mirrors,
            names,
            mirror_names,
            by_key,
            history: self.history.clone(),
            removed,
        }
    }

    /// # Safety
    /// See [`Table::retire_into`](crate::map::Table::retire_into).
    unsafe fn retire_into(&self, dead: &mut DeadList<P>) {
        // SAFETY: the caller guarantees it.
        unsafe {
            self.pods.retire_into(dead);
            self.static_pods.retire_into(dead);
            self.mirrors.retire_into(dead);
            self.names.retire_into(dead);
            self.mirror_names.retire_into(dead);
            self.by_key.container_ids.retire_into(dead);
            self.by_key.ips.retire_into(dead);
            self.by_key.keys.retire_into(dead);
            if let Some(removed) = &self.removed {
                removed.pods.retire_into(dead);
            }
        }
    }

    /// # Safety
    /// See [`Table::abandon`](crate::map::Table::abandon).
    unsafe fn abandon(&mut self, memory: &mut Memory<P>) {
        // SAFETY: the caller guarantees it.
        unsafe {
            self.pods.abandon(memory);
            self.static_pods.abandon(memory);
            self.mirrors.abandon(memory);
            self.names.abandon(memory);
            self.mirror_names.abandon(memory);
            self.by_key.container_ids.abandon(memory);
            self.by_key.ips.abandon(memory);
            self.by_key.keys.abandon(memory);
            if let Some(removed) = &mut self.removed {
                removed.pods.abandon(memory);
            }
        }
    }
}

impl<P> ByKey<P> {
    /// # Safety
    /// See [`Table::draft`](crate::map::Table::draft).
    unsafe fn draft(&self) -> Self {
        // SAFETY: the caller's.
        let (container_ids, ips, keys) =
            unsafe { (self.container_ids.draft(), self.ips.draft(), self.keys.draft()) };
        Self { kept: self.kept, container_ids, ips, keys, contenders: self.contenders.clone() }
    }
}

impl<P> RemovedSet<P> {
    /// # Safety
    /// See [`Table::draft`](crate::map::Table::draft).
    unsafe fn draft(&self) -> Self {
        // SAFETY: the caller's.
        Self { pods: unsafe { self.pods.draft() }, book: self.book.clone() }
    }
}

impl<P> Draft<'_, P> {
    /// Makes the draft the current version. Drops the pods that were both added and removed in it.
    pub(crate) fn publish(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped afterwards.
        let (versions, snapshot) =
            unsafe { (ptr::read(&raw const this.versions), ptr::read(&raw const this.next)) };
        let last = Arc::clone(&versions.current.last);
        let next = sync::Arc::new(Version { snapshot, last });
        versions.current = sync::Arc::clone(&next);
        let version = versions.published.swap(next);
        let dead = versions.memory.end();
        #[cfg(any(loom, shuttle))]
        let dead = if sync::planted("frees-nodes-at-once") {
            // SAFETY: none; this is the planted bug.
            unsafe { versions.memory.reclaim(dead, None) };
            DeadList::default()
        } else {
            dead
        };
        versions.retired.push_back(Retired { version, dead });
        versions.memory.drop_unpublished();
    }

    /// The version on which the draft is based.
    pub(crate) fn base(&self) -> &Snapshot<P> {
        &self.versions.current
    }

    /// Marks the draft as one that changes no pods and no mirror pods.
    pub(crate) fn keeps_pods(&mut self) {
        self.next.pods_generation = self.base().pods_generation;
    }

    pub(crate) fn memory(&mut self) -> &mut Memory<P> {
        &mut self.versions.memory
    }

    pub(crate) fn history(&mut self) -> &mut History {
        &mut self.next.history
    }

    pub(crate) fn scratch(&mut self) -> &mut Option<Box<[Claims; 2]>> {
        &mut self.versions.scratch
    }

    /// The last time that was passed to the writer.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.versions.now
    }

    pub(crate) fn removed_book(&mut self) -> Option<&mut RemovedBook> {
        Some(&mut self.next.removed.as_mut()?.book)
    }

    pub(crate) fn contenders_mut(&mut self) -> &mut Ordered<Contender> {
        &mut self.next.by_key.contenders
    }

    pub(crate) fn pods_mut(&mut self) -> TableMut<'_, Words, Arc<P>> {
        // SAFETY: the table belongs to the draft, and the memory works on this draft until it ends; likewise
        // below.
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

    pub(crate) fn container_ids_mut(&mut self) -> TableMut<'_, Labelled, Holder<P>> {
        // SAFETY: as above.
        unsafe {
            TableMut::new(&mut self.next.by_key.container_ids, &mut self.versions.memory, &self.next.hashing)
        }
    }

    pub(crate) fn ips_mut(&mut self) -> TableMut<'_, Words, Holder<P>> {
        // SAFETY: as above.
        unsafe { TableMut::new(&mut self.next.by_key.ips, &mut self.versions.memory, &self.next.hashing) }
    }

    pub(crate) fn keys_mut(&mut self) -> TableMut<'_, Text, Holder<P>> {
        // SAFETY: as above.
        unsafe { TableMut::new(&mut self.next.by_key.keys, &mut self.versions.memory, &self.next.hashing) }
    }

    pub(crate) fn removed_pods_mut(&mut self) -> Option<TableMut<'_, Words, Departed<P>>> {
        let removed = self.next.removed.as_mut()?;
        // SAFETY: as above.
        Some(unsafe { TableMut::new(&mut removed.pods, &mut self.versions.memory, &self.next.hashing) })
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
        // SAFETY: the tables belong to this draft, which ends here.
        unsafe { self.next.abandon(&mut self.versions.memory) };
        self.versions.memory.cancel();
    }
}
