//! What the owner of the versions does with a table, and what `node` asks of it.

use std::marker::PhantomData;

use super::super::hash_table::{Table, TableMut};
use super::super::{Hashing, TableKey, Value};
use super::{Array, Memory};

impl<K: TableKey, V: Value> Table<K, V> {
    /// A draft of the next version.
    ///
    /// # Safety
    /// This version must be kept until the draft is cleared or, once it is published, as long as the dead
    /// lists of both versions require. At most one draft of a version may be published.
    pub(crate) unsafe fn draft(&self) -> Self {
        Self { root: Array { at: self.root.at, children: PhantomData }, len: self.len }
    }
}

impl<'a, K: TableKey, V: Value> TableMut<'a, K, V> {
    /// # Safety
    /// The table must belong to the current draft of `memory`.
    pub(crate) unsafe fn new(
        table: &'a mut Table<K, V>,
        memory: &'a mut Memory<V::Item>,
        hashing: &'a Hashing,
    ) -> Self {
        Self { table, memory, hashing }
    }
}
