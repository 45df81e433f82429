//! The existing versions, the one being written, and what may be freed.
//!
//! `node` states what the memory of a version requires, and **this module guarantees it**: the unsafe
//! code here promises that a version is gone, or that it still exists. Every published version is held here
//! until no one else holds it. Only then does the writer free what belonged to it alone. A version that
//! outlives the writer keeps alive everything that existed when the writer was dropped, until the last
//! version is dropped.
//!
//! What is published is a type parameter, a [`State`]: its tables, and whatever else belongs to a version. This module does not
//! depend on the meaning of a write or on when it is published.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::{mem, ptr, thread};

use crate::table::sync::{self, Published};
use crate::table::{DeadList, Hashing, Memory, OlderVersion, Table, TableKey, TableMut, Value};

/// What a version consists of: any number of tables, and data that can be cloned.
///
/// The memory of the tables is safe only if an implementation does exactly what these methods say. It cannot make a
/// [`Sharing`] or a [`Clearing`] itself.
pub(crate) trait State: Sized {
    /// What the entries of its tables share.
    type Item;

    /// The number of the version: that of the next one is higher.
    fn generation(&self) -> u64;

    /// The seeds of all its tables. Those of the next version are the same.
    fn hashing(&self) -> &Hashing;

    /// The next version with the same content: each table is the one that `sharing` returns for the same table of this version.
    fn next(&self, sharing: &Sharing) -> Self;

    /// Clears each table once.
    fn clear(&mut self, clearing: &mut Clearing<'_, Self::Item>);
}

/// A set of tables; [`tables`](crate::table::tables) declares one.
pub(crate) trait TableSet {
    /// What the entries share.
    type Item;

    /// Clears each table once.
    fn clear(&mut self, clearing: &mut Clearing<'_, Self::Item>);
}

/// Makes tables of the next version. Only [`Versions`] has one.
pub(crate) struct Sharing(());

/// Empties tables of a draft. Only a [`Draft`] has one.
pub(crate) struct Clearing<'a, P> {
    memory: &'a mut Memory<P>,
    hashing: &'a Hashing,
    /// Pages are reserved for as many entries as a table has, but at most so many.
    capacity: usize,
}

/// A published state. All versions share `last`, which is empty until the writer is dropped.
pub(crate) struct Version<S: State> {
    state: S,
    last: Arc<FinalDeadList<S::Item>>,
}

/// All versions of an index that may still be in use, and their memory.
pub(crate) struct Versions<S: State> {
    published: Published<Version<S>>,
    current: sync::Arc<Version<S>>,
    /// Replaced versions, by ascending generation.
    retired: VecDeque<Retired<S>>,
    /// The retired version to check next.
    next: usize,
    memory: Memory<S::Item>,
}

struct Retired<S: State> {
    version: sync::Arc<Version<S>>,
    /// What this version has and the next newer one that remains does not.
    dead: DeadList<S::Item>,
}

/// What is left when the writer is dropped. Every version holds it, so the last one frees it.
pub(crate) struct FinalDeadList<P>(OnceLock<DeadList<P>>);

/// The next version, while it is being written. Dropping it undoes the changes.
pub(crate) struct Draft<'w, S: State> {
    versions: &'w mut Versions<S>,
    next: S,
}

/// A draft that ended: neither dropped nor published.
struct Ended<'w, S: State> {
    versions: &'w mut Versions<S>,
    next: S,
}

/// A set of tables of a draft, for writing.
pub(crate) struct TablesMut<'a, T: TableSet> {
    tables: &'a mut T,
    memory: &'a mut Memory<T::Item>,
    pub(crate) hashing: &'a Hashing,
}

impl Sharing {
    /// The same table, as one of the next version.
    #[expect(clippy::unused_self, reason = "who has it may do this, and nobody else")]
    pub(crate) fn table<K: TableKey, V: Value>(&self, table: &Table<K, V>) -> Table<K, V> {
        // SAFETY: only `Versions::draft` shares tables, and it starts one draft of a version at a time. The version stays,
        // because the draft borrows the versions, until the draft is dropped, or it is published and the version is retired.
        unsafe { table.draft() }
    }
}

impl<P> Clearing<'_, P> {
    pub(crate) fn table<K: TableKey, V: Value<Item = P>>(&mut self, table: &mut Table<K, V>) {
        let capacity = table.len().min(self.capacity);
        // SAFETY: only a draft clears tables: its own ones, with the memory that works on it.
        unsafe { TableMut::new(table, self.memory, self.hashing) }.clear(capacity);
    }
}

impl<S: State> Deref for Version<S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.state
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

impl<S: State> Versions<S> {
    /// The first version, whose tables are empty.
    pub(crate) fn new(state: S) -> Self {
        let last = Arc::new(FinalDeadList(OnceLock::new()));
        let current = sync::Arc::new(Version { state, last });
        let published = Published::new(sync::Arc::clone(&current));
        Self { published, current, retired: VecDeque::new(), next: 0, memory: Memory::default() }
    }

    /// The cell from which readers load.
    pub(crate) fn published(&self) -> &Published<Version<S>> {
        &self.published
    }

    pub(crate) fn current(&self) -> &S {
        &self.current
    }

    /// Number of replaced versions that are not freed yet.
    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// The oldest replaced version that is not freed yet.
    pub(crate) fn oldest_retired(&self) -> Option<&S> {
        self.retired.front().map(|oldest| &**oldest.version)
    }

    /// Starts a draft of the next version, based on the current one.
    pub(crate) fn draft(&mut self) -> Draft<'_, S> {
        let next = self.current.next(&Sharing(()));
        // SAFETY: a draft borrows these versions, so there is no other one; the current version is the newest.
        unsafe { self.memory.begin(next.generation()) };
        Draft { versions: self, next }
    }

    /// Checks some of the retired versions, those first that were not checked for longest, and frees what it
    /// can. Drops the items that no version has.
    ///
    /// # Panics
    /// If the `Drop` of an item panics.
    pub(crate) fn reclaim_some(&mut self, count: usize) {
        self.memory.drop_items();
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

    /// Frees a retired version, and what only that one had, unless it is in use.
    fn reclaim(&mut self, at: usize) -> bool {
        if !self.retired.get_mut(at).is_some_and(|retired| sync::is_sole_owner(&mut retired.version)) {
            return false;
        }
        let Some(Retired { version, dead }) = self.retired.remove(at) else { return false };
        drop(version);
        let older = at.checked_sub(1).and_then(|older| self.retired.get_mut(older));
        let older = older.map(|retired| OlderVersion {
            generation: retired.version.generation(),
            dead: &mut retired.dead,
        });
        // SAFETY: only this module held the version, and it is gone. Every remaining version is in the queue,
        // in order, or newer than the whole queue.
        unsafe { self.memory.distribute(dead, older) };
        self.memory.drop_items();
        true
    }
}

/// Drops the writer's side. Versions still in use move to the cell, so that no reader frees one by dropping
/// its guard.
impl<S: State> Drop for Versions<S> {
    fn drop(&mut self) {
        // An item whose `Drop` panics must not prevent the following steps.
        let reclaimed = catch_unwind(AssertUnwindSafe(|| self.reclaim_all()));
        // No next version will have what the current one has.
        let mut dead = self.draft().into_last_dead_list();
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

impl<T: TableSet> TablesMut<'_, T> {
    /// One of the tables.
    #[inline]
    pub(crate) fn of<K: TableKey, V: Value<Item = T::Item>>(
        &mut self,
        table: impl FnOnce(&mut T) -> &mut Table<K, V>,
    ) -> TableMut<'_, K, V> {
        // SAFETY: only a draft makes a `TablesMut`: of its own tables, and of the memory that works on it. It borrows both
        // from the draft, so the draft does not end meanwhile.
        unsafe { TableMut::new(table(self.tables), self.memory, self.hashing) }
    }

    /// What the set has beside its tables.
    #[inline]
    pub(crate) fn beside<D>(&mut self, data: impl FnOnce(&mut T) -> &mut D) -> &mut D {
        data(self.tables)
    }

    /// Removes everything, and reserves pages for as many entries as now, but at most `capacity` in a table. With 1,000
    /// pods a set then takes a third of the time of one with pages that grow and split, with 100,000 five sixths.
    pub(crate) fn clear(&mut self, capacity: usize) {
        self.tables.clear(&mut Clearing { memory: self.memory, hashing: self.hashing, capacity });
    }
}

impl<T: TableSet> Deref for TablesMut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.tables
    }
}

impl<'w, S: State> Draft<'w, S> {
    /// Makes the draft the current version. Call [`Versions::reclaim_some`] afterwards.
    pub(crate) fn publish(self) -> &'w mut Versions<S> {
        let Ended { versions, next } = self.end();
        let last = Arc::clone(&versions.current.last);
        let next = sync::Arc::new(Version { state: next, last });
        versions.current = sync::Arc::clone(&next);
        let version = versions.published.swap(next);
        let dead = versions.memory.end();
        versions.retired.push_back(Retired { version, dead });
        versions
    }

    /// Ends the draft of a version that nothing will follow: lists everything that the current version has.
    fn into_last_dead_list(mut self) -> DeadList<S::Item> {
        self.clear();
        let Ended { versions, .. } = self.end();
        versions.memory.end()
    }

    /// Ends the draft, without undoing its changes.
    fn end(self) -> Ended<'w, S> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used nor dropped afterwards.
        unsafe {
            Ended { versions: ptr::read(&raw const this.versions), next: ptr::read(&raw const this.next) }
        }
    }

    /// Empties all tables.
    fn clear(&mut self) {
        let Versions { current, memory, .. } = &mut *self.versions;
        self.next.clear(&mut Clearing { memory, hashing: current.hashing(), capacity: 0 });
    }

    /// The version on which the draft is based.
    pub(crate) fn base(&self) -> &S {
        &self.versions.current
    }

    /// What the draft has beside its tables. The tables themselves may be written to only by
    /// [`tables_mut`](Self::tables_mut).
    pub(crate) fn state_mut(&mut self) -> &mut S {
        &mut self.next
    }

    /// A set of its tables.
    #[inline]
    pub(crate) fn tables_mut<T: TableSet<Item = S::Item>>(
        &mut self,
        tables: impl FnOnce(&mut S) -> &mut T,
    ) -> TablesMut<'_, T> {
        let Versions { current, memory, .. } = &mut *self.versions;
        TablesMut { tables: tables(&mut self.next), memory, hashing: current.hashing() }
    }

    /// A set of its tables, if it has that.
    #[inline]
    pub(crate) fn optional_tables_mut<T: TableSet<Item = S::Item>>(
        &mut self,
        tables: impl FnOnce(&mut S) -> Option<&mut T>,
    ) -> Option<TablesMut<'_, T>> {
        let Versions { current, memory, .. } = &mut *self.versions;
        Some(TablesMut { tables: tables(&mut self.next)?, memory, hashing: current.hashing() })
    }

    /// Returns the memory of freed nodes to the allocator.
    pub(crate) fn trim(&mut self) {
        self.versions.memory.trim();
    }

    /// Keeps an item until the draft has ended.
    pub(crate) fn drop_later(&mut self, item: Arc<S::Item>) {
        self.versions.memory.drop_later(item);
    }
}

impl<S: State> Deref for Draft<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        &self.next
    }
}

impl<S: State> Drop for Draft<'_, S> {
    fn drop(&mut self) {
        self.clear();
        self.versions.memory.cancel();
    }
}
