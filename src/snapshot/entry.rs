//! What the maps of a snapshot hold: plain data that leads from a UID or a full name to a place in a slab.

use crate::id::{Form, Packed, Spelling, UidRef};
use crate::map::{Entry, Hashing};

/// The three kinds of pod, each in a slab of its own, so that a view over one kind never looks at the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// From the API server, or from nowhere in particular.
    Plain,
    /// From a file or a URL.
    Static,
    /// The API server's mirror of a static pod.
    Mirror,
}

/// Where a pod is: its kind and its number in that kind's slab, in one word. Zero is nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    pub(crate) const NOWHERE: Self = Self(0);
    const KIND_SHIFT: u32 = 28;

    pub(crate) fn new(kind: Kind, number: u32) -> Self {
        let kind = match kind {
            Kind::Plain => 1,
            Kind::Static => 2,
            Kind::Mirror => 3,
        };
        Self(kind << Self::KIND_SHIFT | number)
    }

    #[inline]
    pub(crate) fn kind(self) -> Option<Kind> {
        match self.0 >> Self::KIND_SHIFT {
            1 => Some(Kind::Plain),
            2 => Some(Kind::Static),
            3 => Some(Kind::Mirror),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 & ((1 << Self::KIND_SHIFT) - 1)
    }

    #[inline]
    pub(crate) fn is_nowhere(self) -> bool {
        self == Self::NOWHERE
    }
}

/// A UID as the map compares it: two words and which spelling they stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UidKey {
    words: [u64; 2],
    spelling: u32,
}

impl UidKey {
    const UUID: u32 = 0;
    const HEX: u32 = 1;
    /// The words are a fingerprint, so the string itself must be compared as well.
    const OTHER: u32 = 2;

    #[inline]
    pub(crate) fn new(uid: UidRef<'_>, hashing: &Hashing) -> Self {
        match uid.0 {
            Spelling::Usual(Packed { words, form: Form::Uuid }) => Self { words, spelling: Self::UUID },
            Spelling::Usual(Packed { words, form: Form::Hex }) => Self { words, spelling: Self::HEX },
            Spelling::Other(text) => Self { words: hashing.fingerprint(text), spelling: Self::OTHER },
        }
    }

    #[inline]
    pub(crate) fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words(self.words)
    }
}

/// Pods by UID and mirrors by UID are one map, because a UID lives in one world only: the place tells which.
#[derive(Clone, Copy)]
pub(crate) struct UidEntry {
    pub(crate) key: UidKey,
    pub(crate) place: Place,
}

impl Entry for UidEntry {
    const VACANT: Self =
        Self { key: UidKey { words: [0; 2], spelling: UidKey::UUID }, place: Place::NOWHERE };

    #[inline]
    fn is_vacant(&self) -> bool {
        self.place.is_nowhere()
    }

    fn hash(&self, hashing: &Hashing) -> u64 {
        self.key.hash(hashing)
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

/// The node's world and the API server's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum World {
    Pods,
    Mirrors,
}

impl From<Kind> for World {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Plain | Kind::Static => Self::Pods,
            Kind::Mirror => Self::Mirrors,
        }
    }
}
