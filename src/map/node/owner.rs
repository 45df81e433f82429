//! What the owner of the versions does with a table, and what `node` asks of it.

use std::marker::PhantomData;

use super::super::table::{Table, TableMut};
use super::super::{Hashing, Key, Value};
use super::sweep::Tree;
use super::{Array, DeadList, Memory};

impl<K: Key, V: Value> Table<K, V> {
    /// A draft of the next version.
    ///
    /// # Safety
    /// This version must be kept until the draft is abandoned or, once it is published, as long as the dead
    /// lists of both versions require. At most one draft of a version may be published.
    pub(crate) unsafe fn draft(&self) -> Self {
        Self { root: Array { at: self.root.at, children: PhantomData }, len: self.len }
    }

    /// Adds everything to a dead list.
    ///
    /// # Safety
    /// This must be the last version, and it must be added only once.
    pub(crate) unsafe fn retire_into(&self, dead: &mut DeadList<V::Pod>) {
        let (born, tree) = self.root.dead();
        dead.push(born, tree);
    }

    /// Frees what a draft has, without publishing it.
    ///
    /// # Safety
    /// The table must belong to the current draft of `memory`, whose dead list is not used.
    pub(crate) unsafe fn abandon(&mut self, memory: &mut Memory<V::Pod>) {
        memory.retire_tree(std::mem::replace(&mut self.root, Array::EMPTY));
    }
}

impl<'a, K: Key, V: Value> TableMut<'a, K, V> {
    /// # Safety
    /// The table must belong to the current draft of `memory`.
    pub(crate) unsafe fn new(
        table: &'a mut Table<K, V>,
        memory: &'a mut Memory<V::Pod>,
        hashing: &'a Hashing,
    ) -> Self {
        Self { table, memory, hashing }
    }
}
