//! The index's persistent data structures: a new version costs O(1), and writing to it does not change the
//! previous one.
//!
//! - [`Table`] finds an entry by hash, for keys of sixteen bytes ([`Words`]), of 32 bytes, or of any length
//!   ([`Text`]).
//! - imbl's ordered map and set hold rare data, for which their constant factor does not matter.
//!
//! Only this module names the map crate and the hasher. It does not know what a pod is: `docs::table` is its front page.

mod declare;
mod hash;
mod hash_table;
#[expect(unsafe_code, reason = "see the file's own account of it")]
mod node;
mod pool;
pub(crate) mod sync;
#[cfg(all(test, not(any(pod_index_loom, pod_index_shuttle))))]
mod tests;
#[expect(unsafe_code, reason = "see the file's own account of it")]
pub(crate) mod versions;
pub(crate) mod wake;

use std::num::NonZero;
use std::sync::Arc;

pub(crate) use declare::tables;
pub(crate) use hash::Hashing;
pub(crate) use hash_table::{Place, Side, Table, TableMut};
pub(crate) use im::{OrdMap, OrdSet};
pub(crate) use node::{DeadList, Memory, OlderVersion};
pub(crate) use sync::AtomicI64;

/// An entry of a page: a key and its value.
pub(crate) struct Entry<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
}

/// A key as stored in a page. Pages are copied bitwise, so it owns nothing except what `into_text` returns.
pub(crate) trait TableKey: Clone {
    /// The hash of the key.
    fn hash(&self, hashing: &Hashing) -> u64;
    /// What the key owns.
    fn into_text(self) -> Option<Arc<[u8]>> {
        None
    }
}

/// The value of a key: an item, which versions share, perhaps with more. As a key, it owns nothing except what `into_parts`
/// returns.
pub(crate) trait Value {
    /// What versions share.
    type Item;
    fn item(&self) -> &Arc<Self::Item>;
    /// What the value owns.
    fn into_parts(self) -> (Arc<Self::Item>, Option<Arc<str>>);
}

/// A key of sixteen bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) u64, pub(crate) u64);

/// A key of two texts of any bytes, one after the other, with the length of the first. Most names and keys are short enough to
/// be in the entry itself: a lookup then reads nothing else.
///
/// A key of one text has an empty second one, wherever there are two: `Text::new(text, b"")`, `Text::is(text, b"")`, and
/// `Hashing::pair(text, "")` for its hash.
#[derive(Clone)]
pub(crate) enum Text {
    Here { first: u8, len: u8, bytes: [u8; TEXT_HERE] },
    Elsewhere { first: usize, bytes: Arc<[u8]> },
}

/// Maximum length of a text in an entry: with the item and its birth, the entry fills a line.
const TEXT_HERE: usize = 45;

impl TableKey for [Words; 2] {
    fn hash(&self, hashing: &Hashing) -> u64 {
        let [Words(a, b), Words(c, d)] = *self;
        hashing.four_words([a, b, c, d])
    }
}

impl TableKey for Words {
    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words(*self)
    }
}

impl TableKey for Text {
    fn hash(&self, hashing: &Hashing) -> u64 {
        let (first, texts) = self.parts();
        let (first, second) = texts.split_at(first);
        hashing.pair(first, second)
    }

    fn into_text(self) -> Option<Arc<[u8]>> {
        if let Self::Elsewhere { bytes, .. } = self { Some(bytes) } else { None }
    }
}

impl Text {
    pub(crate) fn new(first: &[u8], second: &[u8]) -> Self {
        let len = first.len() + second.len();
        if len > TEXT_HERE {
            return Self::Elsewhere { first: first.len(), bytes: [first, second].concat().into() };
        }
        let mut bytes = [0; TEXT_HERE];
        bytes[..first.len()].copy_from_slice(first);
        bytes[first.len()..len].copy_from_slice(second);
        #[expect(clippy::cast_possible_truncation, reason = "compared before")]
        let [first, len] = [first.len() as u8, len as u8];
        Self::Here { first, len, bytes }
    }

    /// The length of the first text, and both.
    #[inline]
    fn parts(&self) -> (usize, &[u8]) {
        match self {
            Self::Here { first, len, bytes } => {
                (usize::from(*first), bytes.get(..usize::from(*len)).unwrap_or_default())
            }
            Self::Elsewhere { first, bytes } => (*first, bytes),
        }
    }

    /// Whether these are the two texts.
    #[expect(clippy::inline_always, reason = "on the way of every lookup by name")]
    #[inline(always)]
    pub(crate) fn is(&self, first: &[u8], second: &[u8]) -> bool {
        let (length, texts) = self.parts();
        if length != first.len() || texts.len() != first.len() + second.len() {
            return false;
        }
        let (one, other) = texts.split_at_checked(length).unwrap_or_default();
        same(one, first) && same(other, second)
    }
}

/// The first and the last bytes, which may overlap.
#[inline]
fn ends<const N: usize>(bytes: &[u8]) -> Option<([u8; N], [u8; N])> {
    Some((*bytes.first_chunk()?, *bytes.last_chunk()?))
}

/// Whether two texts of the same length are equal. Names are short: two overlapping loads are cheaper than a call.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    match one.len() {
        16..=32 => ends::<16>(one) == ends::<16>(other),
        8..16 => ends::<8>(one) == ends::<8>(other),
        4..8 => ends::<4>(one) == ends::<4>(other),
        _ => one == other,
    }
}

impl<P> Value for Arc<P> {
    type Item = P;

    #[inline]
    fn item(&self) -> &Self {
        self
    }

    #[inline]
    fn into_parts(self) -> (Self, Option<Arc<str>>) {
        (self, None)
    }
}

/// The tags of a kind of key. Different kinds in one table have different tags, so equal words of two kinds never match.
#[derive(Clone, Copy)]
pub(crate) struct Tags {
    pub(crate) first: NonZero<u8>,
    pub(crate) count: u8,
}

impl Tags {
    /// The tag of a hash.
    #[inline]
    pub(crate) fn of(self, hash: u64) -> NonZero<u8> {
        #[expect(clippy::cast_possible_truncation, reason = "less than `count`")]
        let nth = (((hash & 0xff) * u64::from(self.count)) >> 8) as u8;
        self.first.saturating_add(nth)
    }
}

/// The tag of a hash in a table with one kind of key.
#[inline]
pub(crate) fn any_tag(hash: u64) -> NonZero<u8> {
    Tags { first: NonZero::<u8>::MIN, count: u8::MAX }.of(hash)
}

#[cfg(test)]
mod texts {
    use super::{Hashing, TEXT_HERE, TableKey, Text, same};

    #[test]
    fn a_text_equals_only_its_two_strings() {
        let hashing = Hashing::new();
        let long = "x".repeat(1000);
        let fits = &long[..TEXT_HERE - 7];
        let is_too_long = &long[..TEXT_HERE - 6];
        let texts = [("", ""), ("web", ""), ("", "web"), ("web-0", "default"), (&*long, "ä")];
        for (first, second) in texts.into_iter().chain([(fits, "default"), (is_too_long, "default")]) {
            let text = Text::new(first.as_bytes(), second.as_bytes());
            assert!(text.is(first.as_bytes(), second.as_bytes()));
            assert_eq!(text.hash(&hashing), hashing.pair(first, second));
            for (other, another) in [("web", "0default"), ("web-", "0default"), ("webb", ""), ("a", "b")] {
                assert!(!text.is(other.as_bytes(), another.as_bytes()));
            }
        }
    }

    #[test]
    fn texts_of_any_length_that_differ_in_one_byte_are_distinguished() {
        for length in 0..70 {
            let text = "x".repeat(length);
            assert!(same(text.as_bytes(), text.as_bytes()));
            for at in 0..length {
                let mut other = text.clone().into_bytes();
                other[at] = b'y';
                assert!(!same(text.as_bytes(), &other), "{at} of {length}");
            }
        }
    }
}
