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
use std::{mem, ptr, thread};

use crate::options::Options;
use crate::pod::KeyRef;
use crate::snapshot::{
    Contender, EachTable, History, Removals, RemovedPod, RemovedSet, Snapshot, Tables, Times, set_of,
};
use crate::table::sync::{self, Published};
use crate::table::{DeadList, Hashing, Key, Memory, OrdSet, Table, TableMut, Value};

/// A published snapshot. All versions share `last`, which is empty until the writer is dropped.
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
}

struct Retired<P> {
    version: sync::Arc<Version<P>>,
    /// What this version has and the next newer one that remains does not.
    dead: DeadList<P>,
}

/// What is left when the writer is dropped. Every version holds it, so the last one frees it.
pub(crate) struct FinalDeadList<P>(OnceLock<DeadList<P>>);

/// The next version, while it is being written. Dropping it undoes the changes.
pub(crate) struct Draft<'w, P> {
    versions: &'w mut Versions<P>,
    next: Snapshot<P>,
}

/// A draft's tables of the current or of the removed pods, for writing.
pub(crate) struct TablesMut<'a, V: Value> {
    tables: &'a mut Tables<V>,
    memory: &'a mut Memory<V::Pod>,
    pub(crate) hashing: &'a Hashing,
}

/// What is done with each table, given with the same table of another version.
enum Work<'a, P> {
    /// Makes the table a draft of the other one.
    Share,
    /// Empties the table of a draft, and reserves pages for as many entries as it has, but at most so many.
    Clear(&'a mut Memory<P>, &'a Hashing, usize),
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
            // SAFETY: no version is left, and the writer, if it is the one that drops the last version, no longer uses them.
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
        Self { published, current, retired: VecDeque::new(), next: 0, memory: Memory::default() }
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

    /// Starts a draft of the next version, based on the current one.
    pub(crate) fn draft(&mut self) -> Draft<'_, P> {
        let mut next = self.current.next();
        next.each(&self.current, &mut Work::Share);
        // SAFETY: a draft borrows these versions, so there is no other one; the current version is the newest.
        unsafe { self.memory.begin(next.generation()) };
        Draft { versions: self, next }
    }

    /// Checks some of the retired versions, those first that were not checked for longest, and frees what it
    /// can. Drops the pods that no version has.
    ///
    /// # Panics
    /// If the `Drop` of a pod panics.
    pub(crate) fn reclaim_some(&mut self, count: usize) {
        self.memory.drop_freed();
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
        self.reclaim_some(usize::MAX);
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
        self.memory.drop_freed();
        true
    }
}

/// Drops the writer's side. Versions still in use move to the cell, so that no reader frees one by dropping
/// its guard.
impl<P> Drop for Versions<P> {
    fn drop(&mut self) {
        // A pod whose `Drop` panics must not prevent the following steps.
        let reclaimed = catch_unwind(AssertUnwindSafe(|| self.reclaim_all()));
        // No next version will have what the current one has. A draft that is cleared, and not published, lists all of it.
        let mut draft = self.draft();
        draft.clear();
        let mut dead = draft.memory().end();
        drop(draft);
        for retired in self.retired.drain(..) {
            // SAFETY: all lists of these versions belong to one index.
            unsafe { dead.append(retired.dead) };
            self.published.leave_behind([retired.version]);
        }
        // Only this line sets it.
        let _ = self.current.last.0.set(dead);
        match reclaimed {
            // Its `Drop` is foreign code, which may panic again.
            Err(panic) if thread::panicking() => mem::forget(panic),
            Err(panic) => resume_unwind(panic),
            Ok(()) => {}
        }
    }
}

impl<P> EachTable<P> for Work<'_, P> {
    fn table<K: Key, T: Value<Pod = P>>(&mut self, table: &mut Table<K, T>, other: &Table<K, T>) {
        match self {
            // SAFETY: only `Versions::draft` shares tables, and it starts one draft of a version at a time. The version
            // stays, because the draft borrows the versions, until the draft is dropped, or it is published and the version
            // is retired.
            Self::Share => *table = unsafe { other.draft() },
            Self::Clear(memory, hashing, most) => {
                let capacity = table.len().min(*most);
                // SAFETY: only a draft clears tables: its own ones, with the memory that works on it.
                unsafe { TableMut::new(table, memory, hashing) }.clear(capacity);
            }
        }
    }
}

impl<P> Snapshot<P> {
    /// Works on each table, given with the same table of another version.
    fn each(&mut self, other: &Self, work: &mut impl EachTable<P>) {
        self.live.each(&other.live, work);
        if let (Some(removed), Some(other)) = (&mut self.removed, &other.removed) {
            removed.tables.each(&other.tables, work);
        }
    }

    /// The next version, with empty tables.
    fn next(&self) -> Self {
        let next = |removed: &RemovedSet<P>| RemovedSet {
            tables: removed.tables.next(),
            queue: removed.queue.clone(),
        };
        Self {
            generation: self.generation + 1,
            pods_generation: self.generation + 1,
            hashing: self.hashing.clone(),
            live: self.live.next(),
            history: self.history.clone(),
            removed: self.removed.as_deref().map(next).map(Box::new),
            times: self.times.clone(),
        }
    }
}

impl<V: Value> TablesMut<'_, V> {
    /// One of the tables.
    #[inline]
    pub(crate) fn of<K: Key, T: Value<Pod = V::Pod>>(
        &mut self,
        table: impl FnOnce(&mut Tables<V>) -> &mut Table<K, T>,
    ) -> TableMut<'_, K, T> {
        // SAFETY: only a draft makes a `TablesMut`: of its own tables, and of the memory that works on it. It borrows both
        // from the draft, so the draft does not end meanwhile.
        unsafe { TableMut::new(table(self.tables), self.memory, self.hashing) }
    }

    /// Removes everything, and reserves pages for as many entries as now, but at most `capacity` in a table. With 1,000
    /// pods a set then takes a third of the time of one with pages that grow and split, with 100,000 five sixths.
    pub(crate) fn clear(&mut self, capacity: usize) {
        self.tables.each(&Tables::new(), &mut Work::Clear(self.memory, self.hashing, capacity));
        self.tables.contenders = Default::default();
    }

    pub(crate) fn contenders(&mut self, key: KeyRef<'_>) -> &mut OrdSet<Contender> {
        &mut self.tables.contenders[set_of(key)]
    }
}

impl<V: Value> Deref for TablesMut<'_, V> {
    type Target = Tables<V>;

    fn deref(&self) -> &Tables<V> {
        self.tables
    }
}

impl<'w, P> Draft<'w, P> {
    /// Makes the draft the current version. Call [`Versions::reclaim_some`] afterwards.
    pub(crate) fn publish(self) -> &'w mut Versions<P> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped afterwards.
        let (versions, snapshot) =
            unsafe { (ptr::read(&raw const this.versions), ptr::read(&raw const this.next)) };
        let last = Arc::clone(&versions.current.last);
        let next = sync::Arc::new(Version { snapshot, last });
        versions.current = sync::Arc::clone(&next);
        let version = versions.published.swap(next);
        let dead = versions.memory.end();
        versions.retired.push_back(Retired { version, dead });
        versions
    }

    /// Empties all tables.
    fn clear(&mut self) {
        let Versions { current, memory, .. } = &mut *self.versions;
        self.next.each(current, &mut Work::Clear(memory, &current.hashing, 0));
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

    pub(crate) fn times(&mut self) -> Option<&mut Times> {
        self.next.times.as_deref_mut()
    }

    pub(crate) fn queue(&mut self) -> Option<&mut Removals> {
        Some(&mut self.next.removed.as_mut()?.queue)
    }

    /// The tables of the current pods.
    #[inline]
    pub(crate) fn live_mut(&mut self) -> TablesMut<'_, Arc<P>> {
        let Snapshot { live: tables, hashing, .. } = &mut self.next;
        TablesMut { tables, memory: &mut self.versions.memory, hashing }
    }

    /// The tables of the removed pods, if the index keeps those.
    pub(crate) fn removed_mut(&mut self) -> Option<TablesMut<'_, RemovedPod<P>>> {
        let Snapshot { removed, hashing, .. } = &mut self.next;
        let tables = &mut removed.as_mut()?.tables;
        Some(TablesMut { tables, memory: &mut self.versions.memory, hashing })
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
        self.clear();
        self.versions.memory.cancel();
    }
}
