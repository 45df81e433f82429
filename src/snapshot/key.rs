//! The keys and values of a snapshot's tables.

use std::marker::PhantomData;
use std::num::NonZero;
use std::sync::Arc;

use crate::id::{Form, Packed, PodUid, UidRef};
use crate::map::{Entry, Hashing, PodValue, Table, Text, Value, Words, tag};
use crate::pod::{PodMeta, is_mirror_pod};

/// Pods by UID.
pub(crate) type UidTable<P> = Table<Words, Arc<P>>;
/// Mirror pods by UID, with the UID's translation.
pub(crate) type MirrorTable<P> = Table<Words, Mirror<P>>;
/// Pods, or mirror pods, by full name.
pub(crate) type NameTable<P> = Table<Text, Arc<P>>;

/// Which of the kubelet's two sets a pod belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PodKind {
    /// The pods that run on the node.
    Pod,
    /// The API server's mirrors of static pods.
    Mirror,
}

impl PodKind {
    pub(crate) fn of<P: PodMeta>(pod: &P) -> Self {
        if is_mirror_pod(pod) { Self::Mirror } else { Self::Pod }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Pod => Self::Mirror,
            Self::Mirror => Self::Pod,
        }
    }
}

/// A flag of a pod in the table by UID: it is static.
pub(crate) const STATIC: u8 = 1;
/// A flag of a pod in the table by UID: it has ephemeral containers.
pub(crate) const EPHEMERAL: u8 = 2;

/// The pod that holds a key, by UID: an update of the pod does not change the entry.
pub(crate) struct Holder<P> {
    pub(crate) uid: PodUid,
    pods: PhantomData<P>,
}

/// A mirror pod, and its UID's translation.
pub(crate) struct Mirror<P> {
    pub(crate) pod: Arc<P>,
    pub(crate) target: Translation,
}

/// The translation of a mirror's UID.
#[derive(Clone, PartialEq)]
pub(crate) enum Translation {
    /// To itself: it never coexisted with a pod of its full name.
    Identity,
    /// To the translation of the mirror that holds its full name.
    ViaHolder,
    /// To the pod that holds its full name, or held it last.
    Pod(PodUid),
}

impl Translation {
    /// The UID of the pod, if there is one.
    #[inline]
    pub(crate) fn uid(&self) -> Option<&PodUid> {
        if let Self::Pod(uid) = self { Some(uid) } else { None }
    }
}

impl<P> Holder<P> {
    pub(crate) fn new(uid: PodUid) -> Self {
        Self { uid, pods: PhantomData }
    }
}

impl<P> Value for Holder<P> {
    type Pod = P;

    fn into_parts(self) -> (Option<Arc<P>>, Option<Arc<str>>) {
        (None, self.uid.into_text())
    }
}

impl<P> Value for Mirror<P> {
    type Pod = P;

    fn into_parts(self) -> (Option<Arc<P>>, Option<Arc<str>>) {
        (Some(self.pod), if let Translation::Pod(uid) = self.target { uid.into_text() } else { None })
    }
}

impl<P> PodValue for Mirror<P> {
    #[inline]
    fn pod(&self) -> &Arc<P> {
        &self.pod
    }

    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pod, &other.pod) && self.target == other.target
    }
}

/// A UID as compared in the tables. The tag identifies the spelling: each has its own tags, so equal words of
/// two spellings never match.
#[derive(Clone, Copy)]
pub(crate) struct UidKey<'u> {
    pub(crate) words: Words,
    pub(crate) tag: NonZero<u8>,
    pub(crate) hash: u64,
    /// The UID itself, if the words are only its fingerprint; otherwise empty.
    text: &'u str,
}

/// The tags of the spellings: the first one, and their number.
const UUID: (NonZero<u8>, u8) = (NonZero::new(1).unwrap(), 120);
const HEX: (NonZero<u8>, u8) = (NonZero::new(121).unwrap(), 120);
const OTHER: (NonZero<u8>, u8) = (NonZero::new(241).unwrap(), 15);

impl<'u> UidKey<'u> {
    pub(crate) fn new(uid: UidRef<'u>, hashing: &Hashing) -> Self {
        match uid.usual() {
            Some(packed) => Self::packed(packed, hashing),
            None => Self::text(uid.other(), hashing),
        }
    }

    /// The key of a UID in a usual spelling, which is the UID itself.
    #[inline]
    pub(crate) fn packed(uid: Packed, hashing: &Hashing) -> Self {
        let (first, count) = if uid.form == Form::Uuid { UUID } else { HEX };
        let hash = hashing.words(uid.words);
        Self { words: Words(uid.words.0, uid.words.1), tag: tag(hash, first, count), hash, text: "" }
    }

    /// The key of a UID in any other spelling; several UIDs may share it.
    #[cold]
    pub(crate) fn text(text: &'u str, hashing: &Hashing) -> Self {
        let words = hashing.fingerprint(text);
        let hash = hashing.words(words);
        Self { words: Words(words.0, words.1), tag: tag(hash, OTHER.0, OTHER.1), hash, text }
    }

    /// The UID.
    pub(crate) fn uid(&self) -> UidRef<'u> {
        let form = if self.tag < HEX.0 { Form::Uuid } else { Form::Hex };
        let packed = Packed { words: (self.words.0, self.words.1), form };
        UidRef::new((self.tag < OTHER.0).then_some(packed), self.text)
    }

    /// Whether an entry with this key's tag has this UID.
    #[inline]
    pub(crate) fn is<V: PodValue<Pod: PodMeta>>(&self, entry: &Entry<Words, V>) -> bool {
        entry.key == self.words && (self.tag < OTHER.0 || self.is_text(entry))
    }

    #[cold]
    fn is_text<V: PodValue<Pod: PodMeta>>(&self, entry: &Entry<Words, V>) -> bool {
        PodMeta::uid(&**entry.value.pod()) == self.text
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Mirror, OTHER, UidKey};
    use crate::map::{Entry, Hashing, Words};
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

    /// Not reachable from outside: fingerprints use a random seed.
    #[test]
    fn two_uids_with_one_fingerprint_are_distinguished() {
        let one = UidKey::text("one", &Hashing::new());
        let other = UidKey { text: "other", ..one };
        let entry = Entry { key: one.words, value: Arc::new(Pod("one")) };
        assert!(one.is(&entry) && !other.is(&entry));
    }

    /// The two spellings can have equal words; only the tag distinguishes them.
    #[test]
    fn no_two_spellings_share_a_tag() {
        let hashing = Hashing::new();
        for seed in 0..1000u64 {
            let digits = format!("{:016x}{:016x}", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), seed);
            let uuid = format!(
                "{}-{}-{}-{}-{}",
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..]
            );
            let tag = |uid: &str| UidKey::new(uid.into(), &hashing).tag.get();
            assert!((1..=120).contains(&tag(&uuid)) && (121..=240).contains(&tag(&digits)));
            assert!(tag("any other") >= OTHER.0.get());
        }
    }

    #[test]
    fn a_page_holds_entries_of_three_words_and_of_six() {
        assert_eq!(size_of::<Entry<Words, Arc<Pod>>>(), 24);
        assert_eq!(size_of::<Entry<crate::map::Text, Arc<Pod>>>(), 24);
        assert_eq!(size_of::<Entry<Words, Mirror<Pod>>>(), 48);
    }
}
