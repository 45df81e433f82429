//! The index's persistent data structures: a new version costs O(1), and writing to it does not change the
//! previous one.
//!
//! - [`Table`] finds an entry by hash, for keys of sixteen bytes ([`Words`]), of 32 bytes with a label
//!   ([`Labelled`]), or of any length ([`Text`]).
//! - imbl's ordered map and set hold rare data, for which their constant factor does not matter.
//!
//! Only this module names the map crate and the hasher. It does not depend on pods.

mod hash;
#[expect(unsafe_code, reason = "see the file's own account of it")]
mod node;
mod pool;
mod table;

use std::num::NonZero;
use std::sync::Arc;

pub(crate) use hash::Hashing;
pub(crate) use im::{OrdMap, OrdSet};
pub(crate) use node::record::{Label, Record};
pub(crate) use node::{DeadList, Memory};
pub(crate) use table::{Place, Side, Table, TableMut};

/// An entry of a page: a key and its value.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// A key as stored in a page.
pub(crate) trait Key {
    /// The hash of the key.
    fn hash(&self, hashing: &Hashing) -> u64;
    /// The record that the key owns.
    fn into_record(self) -> Option<Record>;
}

/// The value of a key: a pod, perhaps with more.
pub(crate) trait Value {
    /// The pods of the index.
    type Pod;
    fn pod(&self) -> &Arc<Self::Pod>;
    /// What the value owns.
    fn into_parts(self) -> (Arc<Self::Pod>, Option<Arc<str>>);
}

/// A key of sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) u64, pub(crate) u64);

/// A key of any text: its hash and its record.
pub(crate) struct Text {
    pub(crate) hash: u64,
    pub(crate) record: Record,
}

/// A key of 32 bytes, with a short text that is stored but not searched for.
pub(crate) struct Labelled {
    pub(crate) words: [u64; 4],
    pub(crate) label: Label,
}

impl Key for Labelled {
    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.four_words(self.words)
    }

    fn into_record(self) -> Option<Record> {
        Some(self.label.into_record())
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

    #[inline]
    fn into_parts(self) -> (Self, Option<Arc<str>>) {
        (self, None)
    }
}

/// The tag of a hash, in the range that starts at `first`. Different kinds of keys in one table have
/// different tags, so equal words of two kinds never match.
#[inline]
pub(crate) fn tag(hash: u64, first: NonZero<u8>, count: u8) -> NonZero<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "less than `count`")]
    let nth = (((hash & 0xff) * u64::from(count)) >> 8) as u8;
    first.saturating_add(nth)
}

/// The tag of a hash in a table with one kind of key.
#[inline]
pub(crate) fn any_tag(hash: u64) -> NonZero<u8> {
    tag(hash, NonZero::<u8>::MIN, u8::MAX)
}

impl<V> Table<Text, V> {
    /// The entry with this text, whose tag and hash are given, and its place.
    #[expect(clippy::inline_always, reason = "a call would pass the place through memory")]
    #[inline(always)]
    pub(crate) fn find_text(
        &self,
        tag: NonZero<u8>,
        hash: u64,
        first: impl AsRef<[u8]>,
        second: impl AsRef<[u8]>,
    ) -> Option<(Place, &Entry<Text, V>)> {
        let (first, second) = (first.as_ref(), second.as_ref());
        self.find(hash, tag, |entry| entry.key.hash == hash && entry.key.record.is(first, second))
    }
}
