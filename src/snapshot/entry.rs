//! What the tables of a snapshot hold: the key that is compared, and the pods it leads to.

use std::sync::Arc;

use crate::id::{Form, Packed, PodUid, UidRef};
use crate::map::{Entry, Hashing, Slot};
use crate::pod::PodMeta;

/// The node's world and the API server's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum World {
    /// The pods that run on the node.
    Pods,
    /// The API server's mirrors of static pods.
    Mirrors,
}

/// A pod or static pod, by UID. With what the table adds, two of them fill a cache line.
pub(crate) struct PodEntry<P> {
    words: (u64, u64),
    pod: Option<Arc<P>>,
}

/// A mirror pod, by UID, and what its UID translates to.
pub(crate) struct MirrorEntry<P> {
    words: (u64, u64),
    pod: Option<Arc<P>>,
    pub(crate) target: Target,
}

/// What the UID of a mirror translates to.
#[derive(Clone, PartialEq)]
pub(crate) enum Target {
    /// To itself: no pod of its full name was ever seen beside it.
    Itself,
    /// To the pod that holds its full name, or held it last.
    Pod(PodUid),
    /// To what the mirror that holds its full name translates to.
    AsHolder,
}

/// Who holds a full name. A static pod and its mirror share the name, and so they share the entry.
pub(crate) struct NameEntry<P> {
    pub(crate) hash: u64,
    /// The pod that holds the name: the last one that was added or updated under it.
    pub(crate) pod: Option<Arc<P>>,
    /// The mirror that holds the name.
    pub(crate) mirror: Option<Arc<P>>,
}

/// A UID as the tables compare it: sixteen bytes, and which spelling they stand for.
#[derive(Clone, Copy)]
pub(crate) struct UidKey<'u> {
    words: (u64, u64),
    spelling: u64,
    pub(crate) hash: u64,
    /// The UID itself, if the words are but a fingerprint.
    other: &'u str,
}

/// Tags: the spelling in the two low bits, and whether a pod is static.
const UUID: u64 = 1;
const HEX: u64 = 2;
const OTHER: u64 = 3;
const SPELLING: u64 = 3;
pub(crate) const STATIC: u64 = 4;

impl World {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Pods => Self::Mirrors,
            Self::Mirrors => Self::Pods,
        }
    }
}

impl<'u> UidKey<'u> {
    pub(crate) fn new(uid: UidRef<'u>, hashing: &Hashing) -> Self {
        match uid.usual() {
            Some(packed) => Self::usual(packed, hashing),
            None => Self::fingerprint(uid.other(), hashing),
        }
    }

    /// The key of a UID in one of the usual spellings, which is the UID itself.
    #[inline]
    pub(crate) fn usual(uid: Packed, hashing: &Hashing) -> Self {
        let spelling = if uid.form == Form::Uuid { UUID } else { HEX };
        Self { words: uid.words, spelling, hash: hashing.words(uid.words), other: "" }
    }

    /// The key of a UID in any other spelling, which others may share.
    #[cold]
    pub(crate) fn fingerprint(other: &'u str, hashing: &Hashing) -> Self {
        let words = hashing.fingerprint(other);
        Self { words, spelling: OTHER, hash: hashing.words(words), other }
    }

    /// The tag under which a pod with this UID is filed.
    pub(crate) fn tag(self, is_static: bool) -> u64 {
        if is_static { self.spelling | STATIC } else { self.spelling }
    }

    /// Whether `entry` may have this UID: a plain comparison.
    #[inline]
    pub(crate) fn matches<E: ByUid>(self, entry: &E) -> bool {
        let (first, second) = entry.words();
        (first ^ self.words.0) | (second ^ self.words.1) == 0
    }

    /// Whether what matched has this UID indeed.
    #[inline]
    pub(crate) fn is<E: ByUid>(self, slot: &Slot<E>) -> bool {
        slot.tag() & SPELLING == self.spelling && (self.spelling != OTHER || self.is_other(slot.entry()))
    }

    #[cold]
    fn is_other<E: ByUid>(self, entry: &E) -> bool {
        entry.pod().is_some_and(|pod| pod.uid() == self.other)
    }
}

/// What is filed by UID.
pub(crate) trait ByUid: Entry {
    type Pod: PodMeta;

    fn words(&self) -> (u64, u64);

    /// The pod; none if the entry is vacant.
    fn pod(&self) -> Option<&Arc<Self::Pod>>;
}

impl<P> PodEntry<P> {
    pub(crate) fn new(key: UidKey<'_>, pod: Arc<P>) -> Self {
        Self { words: key.words, pod: Some(pod) }
    }
}

impl<P> MirrorEntry<P> {
    pub(crate) fn new(key: UidKey<'_>, pod: Arc<P>, target: Target) -> Self {
        Self { words: key.words, pod: Some(pod), target }
    }
}

impl<P: PodMeta> ByUid for PodEntry<P> {
    type Pod = P;

    #[inline]
    fn words(&self) -> (u64, u64) {
        self.words
    }

    #[inline]
    fn pod(&self) -> Option<&Arc<P>> {
        self.pod.as_ref()
    }
}

impl<P: PodMeta> ByUid for MirrorEntry<P> {
    type Pod = P;

    #[inline]
    fn words(&self) -> (u64, u64) {
        self.words
    }

    #[inline]
    fn pod(&self) -> Option<&Arc<P>> {
        self.pod.as_ref()
    }
}

impl<P> NameEntry<P> {
    /// The holder of the name in the given world.
    pub(crate) fn holder(&self, world: World) -> Option<&Arc<P>> {
        match world {
            World::Pods => self.pod.as_ref(),
            World::Mirrors => self.mirror.as_ref(),
        }
    }

    /// Whether `pod` holds the name in the given world.
    pub(crate) fn is_held_by(&self, world: World, pod: &Arc<P>) -> bool {
        self.holder(world).is_some_and(|holder| Arc::ptr_eq(holder, pod))
    }

    /// The same name, held by `holder` in the given world.
    pub(crate) fn with_holder(&self, world: World, holder: Option<Arc<P>>) -> Self {
        match world {
            World::Pods => Self { hash: self.hash, pod: holder, mirror: self.mirror.clone() },
            World::Mirrors => Self { hash: self.hash, pod: self.pod.clone(), mirror: holder },
        }
    }
}

impl<P: PodMeta> NameEntry<P> {
    /// Whether those who hold the name, whose hash is that of the full name, bear this very full name.
    #[inline]
    pub(crate) fn is(&self, name: &str, namespace: &str) -> bool {
        let any = self.pod.as_ref().or(self.mirror.as_ref());
        any.is_some_and(|pod| pod.name() == name && pod.namespace() == namespace)
    }
}

impl<P> Entry for PodEntry<P> {
    const VACANT: Self = Self { words: (0, 0), pod: None };

    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words(self.words)
    }
}

impl<P> Entry for MirrorEntry<P> {
    const VACANT: Self = Self { words: (0, 0), pod: None, target: Target::Itself };

    fn hash(&self, hashing: &Hashing) -> u64 {
        hashing.words(self.words)
    }
}

impl<P> Entry for NameEntry<P> {
    const VACANT: Self = Self { hash: 0, pod: None, mirror: None };

    fn hash(&self, _: &Hashing) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{PodEntry, UidKey};
    use crate::map::Hashing;
    use crate::pod::PodMeta;

    struct Pod(&'static str);

    impl PodMeta for Pod {
        fn uid(&self) -> &str {
            self.0
        }
        fn name(&self) -> &'static str {
            "web"
        }
        fn namespace(&self) -> &'static str {
            "default"
        }
        fn annotation(&self, _: &str) -> Option<&str> {
            None
        }
    }

    /// Nothing outside can bring it about, since fingerprints are seeded.
    #[test]
    fn two_uids_with_one_fingerprint_are_told_apart() {
        let one = UidKey::fingerprint("one", &Hashing::new());
        let other = UidKey { other: "other", ..one };
        let entry = PodEntry::new(one, Arc::new(Pod("one")));
        assert!(one.matches(&entry) && other.matches(&entry));
        assert!(one.is_other(&entry) && !other.is_other(&entry));
    }
}
