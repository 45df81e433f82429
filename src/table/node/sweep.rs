//! How entries and whole trees die: what of them is freed at once, and what moves to a dead list.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::NonNull;

use super::super::pool::Line;
use super::super::{Entry, TableKey, Value};
use super::memory::{Dead, Memory, Part, Sweep};
use super::{Array, Page, PageHead, PageLink, Root, Slot, array_lines, untagged};

/// A link to a node with everything below it.
pub(super) trait Tree<P>: Sized {
    fn born(&self) -> u64;

    /// The tagged link itself.
    fn at(&self) -> NonNull<Line>;

    /// # Safety
    /// `link` is such a link. Nothing follows it, or a link below it, to what was born in the sweep's `first` generation or
    /// later. The node itself was.
    unsafe fn take_apart(link: NonNull<Line>, sweep: &mut Sweep<'_, P>);

    /// The tree as something that died. A parent is never older than its children: rule 4.
    fn dead(&self) -> Dead<P> {
        let what = Part::Tree { at: self.at(), take_apart: Self::take_apart };
        Dead { born: self.born(), what }
    }
}

impl<T: Tree<P>, P> Tree<P> for Array<T> {
    fn born(&self) -> u64 {
        self.born()
    }

    fn at(&self) -> NonNull<Line> {
        self.at
    }

    unsafe fn take_apart(link: NonNull<Line>, sweep: &mut Sweep<'_, P>) {
        let array = Self { at: link, children: PhantomData };
        for child in array.children() {
            // SAFETY: the child is below this link, so of the versions that remain, only those follow it that are older than
            // `first`; a child that they have was born before, and is moved to their list.
            unsafe { sweep.free_or_list(child.dead()) };
        }
        // SAFETY: the tag of the link gives the size, and nothing follows the link.
        unsafe { sweep.free(untagged(link), array_lines(array.bits())) };
    }
}

impl<K: TableKey, V: Value> Tree<V::Item> for PageLink<Entry<K, V>> {
    fn born(&self) -> u64 {
        self.page().read_head().born
    }

    fn at(&self) -> NonNull<Line> {
        self.at
    }

    unsafe fn take_apart(link: NonNull<Line>, sweep: &mut Sweep<'_, V::Item>) {
        // SAFETY: the link leads to a page of such entries, which exists until it is freed at the end of this function.
        let page = unsafe { Page::<Entry<K, V>>::at(link) };
        for index in 0..page.len() {
            // SAFETY: the page is freed and not read again: rule 5.
            unsafe { page.read(index) }.free_or_list(sweep);
        }
        if let PageHead { next: Some(next), .. } = page.read_head() {
            let next = Self { at: next, entries: PhantomData };
            // SAFETY: `next` is the link of this page to the next page of its chain, and nothing follows a link of this page.
            unsafe { sweep.free_or_list(next.dead()) };
        }
        // SAFETY: the tag of the link gives the size, and nothing follows the link.
        unsafe { sweep.free(page.at, page.lines) };
    }
}

impl<K: TableKey, V: Value> Slot<Entry<K, V>> {
    /// What the entry owns is freed, or moves to the older dead list.
    fn free_or_list(self, sweep: &mut Sweep<'_, V::Item>) {
        let Entry { key, value } = ManuallyDrop::into_inner(self.entry);
        let (item, text) = value.into_parts();
        // SAFETY: items and texts are owned, and of the copies of an entry only this one dies: rule 5.
        let mut free_or_list = |what| unsafe { sweep.free_or_list(Dead { born: self.born, what }) };
        free_or_list(Part::Item(item));
        if let Some(text) = key.into_text() {
            free_or_list(Part::Text(text));
        }
        if let Some(text) = text {
            free_or_list(Part::Text(text.into()));
        }
    }
}

impl<P> Memory<P> {
    /// The tree dies in the draft.
    #[expect(clippy::needless_pass_by_value, reason = "the link ends here")]
    pub(in super::super) fn let_tree_die<K: TableKey, V: Value<Item = P>>(
        &mut self,
        root: Root<Entry<K, V>>,
    ) {
        // SAFETY: the draft gave its root away.
        unsafe { self.let_die(root.dead()) };
    }

    /// A new entry of the draft.
    pub(in super::super) fn slot<E>(&self, tag: NonZero<u8>, entry: E) -> Slot<E> {
        Slot { tag, born: self.generation, entry: ManuallyDrop::new(entry) }
    }

    /// The entry dies in the draft.
    pub(in super::super) fn let_entry_die<K: TableKey, V: Value<Item = P>>(
        &mut self,
        slot: Slot<Entry<K, V>>,
    ) {
        slot.free_or_list(&mut self.sweep());
    }
}
