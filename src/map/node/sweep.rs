//! The ends of entries and of whole trees: what of them is freed at once, and what moves to a dead list.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::{self, NonNull};

use super::super::pool::Line;
use super::super::{Entry, Key, Value};
use super::memory::{DeadList, DeadTree, FLAG_BITS, Memory, Parts, Sweep, free};
use super::record::Record;
use super::{Array, Page, PageFoot, PageLink, Slot, array_lines, is_static, untagged};

impl<P> Memory<P> {
    /// Frees what was born in the draft, which is not published.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(in super::super) fn abandon<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let mut older = DeadList::default();
        // The published version still has everything older, so that list is dropped without effect.
        let Self { generation, pool, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: &mut older, freed: unpublished };
        // SAFETY: only the draft can reach what was born in it, and it gave its root away.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// Marks the tree as dead.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(in super::super) fn retire_tree<E: Holds<P>>(&mut self, root: Array<Array<PageLink<E>>>) {
        let Self { generation, pool, dead, unpublished, .. } = self;
        let mut sweep = Sweep { first: *generation, pool, older: dead, freed: unpublished };
        // SAFETY: what was born in the draft, only the draft can reach, and it gave its root away. The rest goes to the dead
        // list.
        unsafe { sweep_root::<E, P>(root.at, &mut sweep) };
    }

    /// A new entry of the draft.
    pub(in super::super) fn slot<E>(&self, tag: NonZero<u8>, flags: u16, entry: E) -> Slot<E> {
        Slot { tag, stamp: self.stamp(flags), entry: ManuallyDrop::new(entry) }
    }

    /// Marks the entry as dead.
    pub(in super::super) fn retire<E: Holds<P>>(&mut self, slot: Slot<E>) {
        let (parts, record) = ManuallyDrop::into_inner(slot.entry).into_parts();
        self.retire_parts(parts, slot.stamp >> FLAG_BITS);
        if let Some(record) = record {
            if record.born() == self.generation {
                // SAFETY: the record was born in the draft, which no longer has it.
                unsafe { record.release() };
            } else {
                self.dead.records.push(record);
            }
        }
    }

    /// The entry with another value. The old value dies.
    pub(in super::super) fn replaced<K, V: Value<Pod = P>>(
        &mut self,
        slot: Slot<Entry<K, V>>,
        value: V,
        flags: u16,
    ) -> Slot<Entry<K, V>> {
        let Entry { key, value: old } = ManuallyDrop::into_inner(slot.entry);
        self.retire_value(old, slot.stamp >> FLAG_BITS);
        self.slot(slot.tag, flags, Entry { key, value })
    }
}

impl<P> DeadList<P> {
    /// Adds everything that a table has.
    ///
    /// # Safety
    /// The table must belong to the last version and be added only once.
    pub(in super::super) unsafe fn add_tree<E: Holds<P>>(&mut self, root: &Array<Array<PageLink<E>>>) {
        self.trees.push(DeadTree { link: root.at, sweep: sweep_root::<E, P> });
    }
}

/// An entry with any types of key and value.
pub(in super::super) trait Holds<P> {
    fn into_parts(self) -> (Parts<P>, Option<Record>);
}

impl<K: Key, V: Value> Holds<V::Pod> for Entry<K, V> {
    fn into_parts(self) -> (Parts<V::Pod>, Option<Record>) {
        (self.value.into_parts(), self.key.into_record())
    }
}

/// # Safety
/// The link leads to the root of a table of such entries. Nothing follows it, or a link below it, to what was born in the
/// sweep's `first` generation or later.
unsafe fn sweep_root<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the link leads to a root, whose children are chunks. Nothing follows it, or a link below it, to what is freed.
    unsafe { sweep_array::<Array<PageLink<E>>, P>(link, sweep, sweep_root::<E, P>, sweep_chunk::<E, P>) }
}

/// # Safety
/// As for [`sweep_root`], but the link leads to a chunk.
unsafe fn sweep_chunk<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    // SAFETY: the link leads to a chunk, whose children are pages. Nothing follows it, or a link below it, to what is freed.
    unsafe { sweep_array::<PageLink<E>, P>(link, sweep, sweep_chunk::<E, P>, sweep_page::<E, P>) }
}

/// # Safety
/// The link leads to an array of `T`, which are links that `below` may take apart. Nothing follows it, or a link below it, to
/// what was born in the sweep's `first` generation or later.
unsafe fn sweep_array<T, P>(
    link: NonNull<Line>,
    sweep: &mut Sweep<'_, P>,
    this: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
    below: unsafe fn(NonNull<Line>, &mut Sweep<'_, P>),
) {
    let array = Array::<T> { at: link, children: PhantomData };
    if is_static(link) {
        return;
    }
    if array.born() < sweep.first {
        // Rule 4.
        sweep.older.trees.push(DeadTree { link, sweep: this });
        return;
    }
    for child in array.children() {
        // SAFETY: a child is a link, which is only a tagged pointer. It is below this one, so nothing follows it either.
        unsafe { below(ptr::from_ref(child).cast::<NonNull<Line>>().read(), sweep) };
    }
    // SAFETY: the tag of the link gives the size. The array was born in `first` or later, so nothing follows a link to it.
    unsafe { free(untagged(link), array_lines(array.bits()), sweep.pool) };
}

/// # Safety
/// As for [`sweep_root`], but the link leads to a page.
unsafe fn sweep_page<E: Holds<P>, P>(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
    if is_static(link) {
        return;
    }
    // SAFETY: the link leads to a page of such entries, which exists until it is freed at the end of this function.
    let page = unsafe { Page::<E>::at(link) };
    let PageFoot { born, next } = page.read_foot();
    if born < sweep.first {
        sweep.older.trees.push(DeadTree { link, sweep: sweep_page::<E, P> });
        return;
    }
    for index in 0..page.len() {
        // SAFETY: the page is freed and not read again: rule 5.
        let slot = unsafe { page.read(index) };
        let ((pod, text), record) = ManuallyDrop::into_inner(slot.entry).into_parts();
        let born = slot.stamp >> FLAG_BITS;
        if let Some(pod) = pod {
            sweep.pod(born, pod);
        }
        if let Some(text) = text {
            sweep.text(born, text);
        }
        if let Some(record) = record {
            sweep.record(record);
        }
    }
    if let Some(next) = next {
        // SAFETY: `next` is the link of this page to the next page of its chain, and nothing follows a link of this page.
        unsafe { sweep_page::<E, P>(next, sweep) };
    }
    // SAFETY: the tag of the link gives the size. The page was born in `first` or later, so nothing follows a link to it.
    unsafe { free(page.at, page.lines, sweep.pool) };
}
