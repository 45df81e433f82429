//! The persistent structures the index is made of: a new version costs O(1), and writing to it leaves the one before as
//! it was.
//!
//! - [`Table`] finds an entry by hash, whatever its key is: sixteen bytes ([`Words`]), 32 bytes with a label ([`Labelled`]),
//!   or a text of any length ([`Text`]).
//! - [`Ordered`] finds the next larger item without allocating, which `im`'s set does not.
//! - `im`'s ordered map and set hold what is rare, where the constant factor does not matter.
//!
//! The only module that names the map crate and the hasher. It must not know what a pod is.

mod hash;
mod labels;
#[expect(unsafe_code, reason = "see the file's own account of it")]
mod node;
mod ordered;
mod pool;
#[expect(unsafe_code, reason = "a thin pointer to text; see the file's own account of it")]
mod record;
#[expect(unsafe_code, reason = "hands on what `node` asks of the owner of the versions")]
mod table;

use std::num::NonZero;
use std::sync::Arc;

pub(crate) use hash::Hashing;
pub(crate) use im::{OrdMap, OrdSet};
pub(crate) use node::{DeadList, Memory};
pub(crate) use ordered::Ordered;
pub(crate) use record::Record;
pub(crate) use table::{Iter, Place, Side, Table, TableMut};

/// What a page holds: a key of two words, and what is filed under it.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// A key as a page holds it.
pub(crate) trait Key {
    /// The hash under which it is filed.
    fn hash(&self, hashing: &Hashing) -> u64;
    /// What the key owns.
    fn into_record(self) -> Option<Record>;
}

/// What is filed under a key: a pod, and what belongs to it.
pub(crate) trait Value {
    type Pod;
    fn pod(&self) -> &Arc<Self::Pod>;
    /// What the value owns.
    fn into_parts(self) -> (Arc<Self::Pod>, Option<Arc<str>>);
    /// Whether the other value holds the same.
    fn same(&self, other: &Self) -> bool;
}

/// A key of sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) u64, pub(crate) u64);

/// A key that is text: its hash, and a record of it.
pub(crate) struct Text {
    pub(crate) hash: u64,
    pub(crate) record: Record,
}

/// A key of 32 bytes, and a short text that belongs to it without being looked up.
pub(crate) struct Labelled {
    pub(crate) words: [u64; 4],
    pub(crate) label: Record,
}

impl Key for Labelled {
    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.four_words(self.words)
    }

    fn into_record(self) -> Option<Record> {
        Some(self.label)
    }
}

impl Key for Words {
    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words((self.0, self.1))
    }

    fn into_record(self) -> Option<Record> {
        None
    }
}

impl Key for Text {
    fn hash(&self, _: &Hashing) -> u64 {
        self.hash
    }

    fn into_record(self) -> Option<Record> {
        Some(self.record)
    }
}

impl<P> Value for Arc<P> {
    type Pod = P;

    #[inline]
    fn pod(&self) -> &Self {
        self
    }

    fn into_parts(self) -> (Self, Option<Arc<str>>) {
        (self, None)
    }

    fn same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

/// The tag of a hash, one of those from `first` on. Keys of different kinds in one table have tags of their own, so that
/// equal words of two kinds never match.
#[inline]
pub(crate) fn tag(hash: u64, first: NonZero<u8>, count: u8) -> NonZero<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "less than `count`")]
    let nth = (((hash & 0xff) * u64::from(count)) >> 8) as u8;
    first.saturating_add(nth)
}

/// The tag of a hash where all keys are of one kind.
#[inline]
pub(crate) fn any_tag(hash: u64) -> NonZero<u8> {
    tag(hash, NonZero::<u8>::MIN, u8::MAX)
}

impl<V> Table<Text, V> {
    /// The entry filed under this text, whose hash is given.
    #[inline]
    pub(crate) fn find_text(
        &self,
        hash: u64,
        first: impl AsRef<[u8]>,
        second: impl AsRef<[u8]>,
    ) -> Option<&Entry<Text, V>> {
        let (first, second) = (first.as_ref(), second.as_ref());
        self.find(hash, any_tag(hash), |entry| entry.key.hash == hash && entry.key.record.is(first, second))
    }

    /// As [`find_text`](Self::find_text), with where it was found.
    pub(crate) fn locate_text(
        &self,
        hash: u64,
        first: impl AsRef<[u8]>,
        second: impl AsRef<[u8]>,
    ) -> Option<(Place, &Entry<Text, V>)> {
        let (first, second) = (first.as_ref(), second.as_ref());
        self.locate(hash, any_tag(hash), |entry| entry.key.hash == hash && entry.key.record.is(first, second))
    }
}
