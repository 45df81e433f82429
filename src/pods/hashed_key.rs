//! Claimed keys as the tables find them: the form in the entry, the hash, and the tag. For UIDs see `hashed_uid`.

use std::num::NonZero;

use crate::identity::ContainerId;
use crate::pod::{CustomKeyKind, PodKind};
use crate::table::{Hashing, Tags, Words, any_tag};

/// A key as it is looked up in the table of its kind.
#[derive(Clone, Copy)]
pub(crate) struct HashedKey<K> {
    pub(crate) key: K,
    pub(crate) tag: NonZero<u8>,
    pub(crate) hash: u64,
}

/// The tag and the hash of a full name, whose texts are compared as they are.
#[derive(Clone, Copy)]
pub(crate) struct HashedName {
    pub(crate) tag: NonZero<u8>,
    pub(crate) hash: u64,
}

/// The number of a custom key's kind, which is stored in front of the key's bytes.
pub(crate) type KindBytes = [u8; 2];

impl HashedKey<[Words; 2]> {
    #[inline]
    pub(crate) fn container_id(id: ContainerId, hashing: &Hashing) -> Self {
        let words @ [a, b, c, d] = id.words();
        let hash = hashing.four_words(words);
        Self { key: [Words(a, b), Words(c, d)], tag: any_tag(hash), hash }
    }
}

impl HashedKey<Words> {
    /// Of an IP as a number.
    #[inline]
    pub(crate) fn ip(ip: u128, hashing: &Hashing) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let [high, low] = [(ip >> 64) as u64, ip as u64];
        let key = Words(high, low);
        let hash = hashing.words(key);
        Self { key, tag: any_tag(hash), hash }
    }
}

impl HashedKey<KindBytes> {
    #[inline]
    pub(crate) fn custom(kind: CustomKeyKind, key: &[u8], hashing: &Hashing) -> Self {
        let kind = kind.0.to_ne_bytes();
        let hash = hashing.pair(kind, key);
        Self { key: kind, tag: any_tag(hash), hash }
    }
}

/// Names of pods have the lower half of the tags, those of mirror pods the upper.
const OF_PODS: Tags = Tags { first: NonZero::new(1).unwrap(), count: 128 };
const OF_MIRRORS: Tags = Tags { first: NonZero::new(129).unwrap(), count: 127 };

impl HashedName {
    #[expect(clippy::inline_always, reason = "a call would pass the texts through memory")]
    #[inline(always)]
    pub(crate) fn new(kind: PodKind, namespace: &str, name: &str, hashing: &Hashing) -> Self {
        let hash = hashing.pair(name, namespace);
        let tags = match kind {
            PodKind::Pod => OF_PODS,
            PodKind::Mirror => OF_MIRRORS,
        };
        Self { tag: tags.of(hash), hash }
    }
}
