//! What the maps of a snapshot hold: plain data that leads from a UID or a full name to a place in a slab.

use crate::id::{Form, Packed, UidRef};
use crate::map::{Entry, Hashing};

/// The node's world and the API server's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum World {
    /// The pods that run on the node.
    Pods,
    /// The API server's mirrors of static pods.
    Mirrors,
}

impl World {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Pods => Self::Mirrors,
            Self::Mirrors => Self::Pods,
        }
    }
}

/// Where a pod is: its world and its number in that world's slab, in one word. Zero is nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    pub(crate) const NOWHERE: Self = Self(0);
    const PODS: u32 = 1 << 28;
    const MIRRORS: u32 = 2 << 28;
    /// The bits that a place uses.
    const BITS: u32 = (1 << 30) - 1;

    pub(crate) fn new(world: World, number: u32) -> Self {
        match world {
            World::Pods => Self(Self::PODS | number),
            World::Mirrors => Self(Self::MIRRORS | number),
        }
    }

    /// The number of a pod, if this is the place of one.
    #[inline]
    pub(crate) fn pod(self) -> Option<u32> {
        (self.0 & Self::PODS != 0).then_some(self.number())
    }

    /// The number of a mirror, if this is the place of one.
    #[inline]
    pub(crate) fn mirror(self) -> Option<u32> {
        (self.0 & Self::MIRRORS != 0).then_some(self.number())
    }

    #[inline]
    pub(crate) fn world(self) -> World {
        if self.0 & Self::MIRRORS == 0 { World::Pods } else { World::Mirrors }
    }

    #[inline]
    fn number(self) -> u32 {
        self.0 & (Self::PODS - 1)
    }

    #[inline]
    pub(crate) fn is_nowhere(self) -> bool {
        self == Self::NOWHERE
    }
}

/// A UID as the map compares it: sixteen bytes, and which spelling they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UidKey {
    words: (u64, u64),
    spelling: u32,
}

impl UidKey {
    const UUID: u32 = 1 << 30;
    const HEX: u32 = 2 << 30;
    /// The words are a fingerprint, so the string itself must be compared as well.
    const OTHER: u32 = 3 << 30;

    pub(crate) fn new(uid: UidRef<'_>, hashing: &Hashing) -> Self {
        uid.usual().map_or_else(|| Self::fingerprint(uid.other(), hashing), Self::usual)
    }

    /// The key of a UID in one of the usual spellings, which is the UID itself.
    #[inline]
    pub(crate) fn usual(uid: Packed) -> Self {
        let spelling = if uid.form == Form::Uuid { Self::UUID } else { Self::HEX };
        Self { words: uid.words, spelling }
    }

    /// The key of a UID in any other spelling, which others may share.
    pub(crate) fn fingerprint(uid: &str, hashing: &Hashing) -> Self {
        Self { words: hashing.fingerprint(uid), spelling: Self::OTHER }
    }

    #[inline]
    pub(crate) fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words(self.words)
    }
}

/// Pods by UID and mirrors by UID are one map, because a UID lives in one world only: the place tells which.
///
/// Twenty bytes with the alignment of four, so that three of them share a cache line.
#[derive(Clone, Copy)]
pub(crate) struct UidEntry {
    words: [u32; 4],
    /// The spelling in the two highest bits, the place below; 0 if vacant.
    rest: u32,
}

impl UidEntry {
    pub(crate) fn new(key: UidKey, place: Place) -> Self {
        Self { words: quarters(key.words), rest: key.spelling | place.0 }
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place(self.rest & Place::BITS)
    }

    /// Whether this may be the entry for `key`: half of the comparison, for all entries of a bucket.
    #[inline]
    pub(crate) fn may_have(&self, key: UidKey) -> bool {
        let [first, second, ..] = self.words;
        u64::from(second) << 32 | u64::from(first) == key.words.0
    }

    /// Whether this is the entry for `key`. If the key is a fingerprint, the strings must be compared still.
    #[inline]
    pub(crate) fn has(&self, key: UidKey) -> bool {
        let [.., third, fourth] = self.words;
        let same_end = u64::from(fourth) << 32 | u64::from(third) == key.words.1;
        same_end && self.may_have(key) && self.rest & !Place::BITS == key.spelling
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "all four quarters are used")]
fn quarters(words: (u64, u64)) -> [u32; 4] {
    [words.0 as u32, (words.0 >> 32) as u32, words.1 as u32, (words.1 >> 32) as u32]
}

impl Entry for UidEntry {
    const VACANT: Self = Self { words: [0; 4], rest: 0 };

    #[inline]
    fn is_vacant(&self) -> bool {
        self.rest == 0
    }

    fn hash(&self, hashing: &Hashing) -> u64 {
        let [a, b, c, d] = self.words.map(u64::from);
        hashing.words((b << 32 | a, d << 32 | c))
    }
}

/// Pods by full name and mirrors by full name are one map as well: a static pod and its mirror share the name, and so
/// they share the entry.
#[derive(Clone, Copy)]
pub(crate) struct NameEntry {
    pub(crate) hash: u64,
    /// The pod that holds the name: the last one that was added or updated under it.
    pub(crate) pod: Place,
    /// The mirror that holds the name.
    pub(crate) mirror: Place,
}

impl NameEntry {
    /// The holder of the name in the given world.
    pub(crate) fn holder(&mut self, world: World) -> &mut Place {
        match world {
            World::Pods => &mut self.pod,
            World::Mirrors => &mut self.mirror,
        }
    }

    /// Somebody who bears the name.
    #[inline]
    pub(crate) fn any(&self) -> Place {
        if self.pod.is_nowhere() { self.mirror } else { self.pod }
    }
}

impl Entry for NameEntry {
    const VACANT: Self = Self { hash: 0, pod: Place::NOWHERE, mirror: Place::NOWHERE };

    #[inline]
    fn is_vacant(&self) -> bool {
        self.pod.is_nowhere() && self.mirror.is_nowhere()
    }

    fn hash(&self, _: &Hashing) -> u64 {
        self.hash
    }
}
