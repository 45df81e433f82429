//! A UID as the tables find it.

use std::num::NonZero;

use crate::id::{Form, Packed, UidRef};
use crate::pod::PodMeta;
use crate::table::{Hashing, Tags, Value, Words};

/// A UID as compared in the tables. The tag identifies the spelling: each has its own tags, so equal words of
/// two spellings never match.
#[derive(Clone, Copy)]
pub(crate) struct HashedUid<'u> {
    pub(crate) words: Words,
    pub(crate) tag: NonZero<u8>,
    pub(crate) hash: u64,
    pub(crate) uid: UidRef<'u>,
}

/// The tags of the spellings.
const UUID: Tags = Tags { first: NonZero::new(1).unwrap(), count: 120 };
const HEX: Tags = Tags { first: NonZero::new(121).unwrap(), count: 120 };
const OTHER: Tags = Tags { first: NonZero::new(241).unwrap(), count: 15 };

impl<'u> HashedUid<'u> {
    pub(crate) fn new(uid: UidRef<'u>, hashing: &Hashing) -> Self {
        match uid.usual {
            Some(packed) => Self::packed(packed, hashing),
            None => Self::text(uid, hashing),
        }
    }

    /// The key of a UID in a usual spelling, which is the UID itself.
    #[inline]
    pub(crate) fn packed(uid: Packed, hashing: &Hashing) -> Self {
        let tags = if uid.form == Form::Uuid { UUID } else { HEX };
        let words = Words(uid.first, uid.second);
        let hash = hashing.words(words);
        let tag = tags.of(hash);
        Self { words, tag, hash, uid: UidRef { usual: Some(uid), other: "" } }
    }

    /// The key of a UID in any other spelling; several UIDs may share it.
    #[cold]
    fn text(uid: UidRef<'u>, hashing: &Hashing) -> Self {
        let words = hashing.fingerprint(uid.other);
        let hash = hashing.words(words);
        Self { words, tag: OTHER.of(hash), hash, uid }
    }

    /// Whether this is the UID of an entry with this tag, these words and this value.
    #[inline]
    pub(crate) fn is<V: Value<Item: PodMeta>>(&self, words: Words, value: &V) -> bool {
        words == self.words && (self.uid.usual.is_some() || self.is_text(value))
    }

    #[cold]
    fn is_text<V: Value<Item: PodMeta>>(&self, value: &V) -> bool {
        PodMeta::uid(&**value.item()) == self.uid.other
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HashedUid, OTHER};
    use crate::pod::PodMeta;
    use crate::pods::Mirror;
    use crate::table::{Entry, Hashing, Words};

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
        let one = HashedUid::new("one".into(), &Hashing::new());
        let other = HashedUid { uid: "other".into(), ..one };
        let pod = Arc::new(Pod("one"));
        assert!(one.is(one.words, &pod) && !other.is(one.words, &pod));
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
            let tag = |uid: &str| HashedUid::new(uid.into(), &hashing).tag.get();
            assert!((1..=120).contains(&tag(&uuid)) && (121..=240).contains(&tag(&digits)));
            assert!(tag("any other") >= OTHER.first.get());
        }
    }

    #[test]
    fn a_page_holds_entries_of_three_six_and_seven_words() {
        assert_eq!(size_of::<Entry<Words, Arc<Pod>>>(), 24);
        assert_eq!(size_of::<Entry<crate::table::Text, Arc<Pod>>>(), 56);
        assert_eq!(size_of::<Entry<Words, Mirror<Arc<Pod>>>>(), 48);
    }
}
