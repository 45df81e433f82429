//! UIDs of pods, of mirror pods, and of "the pod that really runs", as three types that do not mix.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{Form, Packed};

/// What the three public types share. 24 bytes, whatever the spelling; whole words, because a copy that was put together
/// from bytes would make the processor wait.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Uid {
    Uuid(u64, u64),
    Hex(u64, u64),
    Other(Arc<str>),
}

impl Uid {
    fn new(text: &str) -> Self {
        Packed::parse(text).map_or_else(|| Self::other(text), Self::packed)
    }

    /// A UID in neither of the usual spellings; out of the way of those that are.
    #[cold]
    fn other(text: &str) -> Self {
        Self::Other(Arc::from(text))
    }

    #[inline]
    fn packed(packed: Packed) -> Self {
        let (first, second) = packed.words;
        match packed.form {
            Form::Uuid => Self::Uuid(first, second),
            Form::Hex => Self::Hex(first, second),
        }
    }

    /// The UID as it was spelled; `buffer` is scratch space for the usual spellings.
    fn as_str<'a>(&'a self, buffer: &'a mut [u8; 36]) -> &'a str {
        let UidRef { usual, other } = self.as_ref();
        usual.map_or(other, |packed| packed.spell(buffer))
    }

    #[inline]
    fn as_ref(&self) -> UidRef<'_> {
        match self {
            &Self::Uuid(first, second) => {
                UidRef { usual: Some(Packed { words: (first, second), form: Form::Uuid }), other: "" }
            }
            &Self::Hex(first, second) => {
                UidRef { usual: Some(Packed { words: (first, second), form: Form::Hex }), other: "" }
            }
            Self::Other(text) => UidRef { usual: None, other: text },
        }
    }
}

/// By spelling, so that "the smallest UID" means the same as in a sorted list of strings.
impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str(&mut [0; 36]).cmp(other.as_str(&mut [0; 36]))
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A borrowed UID, as the look-ups take it: from a string, or from any of the UID types.
///
/// Made from a string it is parsed; made from a [`PodUid`], [`MirrorPodUid`] or [`ResolvedPodUid`] it is not, which
/// saves two fifths of a look-up's instructions. Keep the UID types, not strings, where you can.
///
/// # Complexity
/// O(1) for the usual spellings (hyphenated lower-case UUID; 32 lower-case hex digits); no allocation.
///
/// # Examples
/// ```
/// use pod_index::{PodUid, UidRef};
///
/// let uid = PodUid::from("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
/// assert_eq!(UidRef::from(&uid), UidRef::from("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UidRef<'a> {
    // Not an enum of the two: its variants would share memory, and a look-up would pay for the way there and back.
    usual: Option<Packed>,
    /// The string, if the spelling is not a usual one.
    other: &'a str,
}

impl<'a> UidRef<'a> {
    /// Whether this is the empty UID, which no pod may have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usual.is_none() && self.other.is_empty()
    }

    /// The packed form, if the UID is in one of the usual spellings.
    #[inline]
    pub(crate) fn usual(&self) -> Option<Packed> {
        self.usual
    }

    /// The string, if the UID is not in one of the usual spellings; otherwise empty.
    #[inline]
    pub(crate) fn other(&self) -> &'a str {
        self.other
    }

    #[inline]
    fn to_uid(self) -> Uid {
        self.usual.map_or_else(|| Uid::other(self.other), Uid::packed)
    }
}

impl<'a> From<&'a str> for UidRef<'a> {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn from(text: &'a str) -> Self {
        let usual = Packed::parse(text);
        Self { usual, other: if usual.is_some() { "" } else { text } }
    }
}

impl<'a> From<&'a String> for UidRef<'a> {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn from(text: &'a String) -> Self {
        Self::from(text.as_str())
    }
}

impl fmt::Display for UidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.usual {
            Some(packed) => f.pad(packed.spell(&mut [0; 36])),
            None => f.pad(self.other),
        }
    }
}

impl fmt::Debug for UidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.usual {
            Some(packed) => fmt::Debug::fmt(packed.spell(&mut [0; 36]), f),
            None => fmt::Debug::fmt(self.other, f),
        }
    }
}

macro_rules! uid_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Any string is a UID of its own: two spellings of one UUID are two UIDs. 24 bytes; copying, hashing and
        /// comparing are O(1) and allocate nothing for the usual spellings (hyphenated lower-case UUID; 32 lower-case
        /// hex digits). Any other is one shared allocation.
        ///
        /// Ordered as the strings are.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uid);

        impl $name {
            /// Whether this is the empty UID, which no pod may have.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.as_uid_ref().is_empty()
            }

            /// The UID in the borrowed form that look-ups take.
            #[must_use]
            #[inline]
            pub fn as_uid_ref(&self) -> UidRef<'_> {
                self.0.as_ref()
            }
        }

        impl From<UidRef<'_>> for $name {
            #[inline]
            fn from(uid: UidRef<'_>) -> Self {
                Self(uid.to_uid())
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Uid::new(text))
            }
        }

        impl<'a> From<&'a $name> for UidRef<'a> {
            #[inline]
            fn from(uid: &'a $name) -> Self {
                uid.as_uid_ref()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0.as_str(&mut [0; 36]) == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                *self == **other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.0.as_str(&mut [0; 36]))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0.as_str(&mut [0; 36]))
            }
        }
    };
}

uid_type! {
    /// The UID of a pod that runs on the node: a static pod's own, or an ordinary pod's. Never a mirror's.
    ///
    /// # Examples
    /// ```
    /// let uid = pod_index::PodUid::from("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    /// assert_eq!(uid, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    /// assert_eq!(uid.to_string(), "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    /// ```
    ///
    /// Kubelet: `types.UID` (`k8s.io/apimachinery/pkg/types`).
    PodUid
}

uid_type! {
    /// The UID the API server gave to a mirror pod.
    ///
    /// # Examples
    /// ```
    /// let uid = pod_index::MirrorPodUid::from("9a8b7c6d-1111-2222-3333-444455556666");
    /// assert_eq!(uid, "9a8b7c6d-1111-2222-3333-444455556666");
    /// ```
    ///
    /// Kubelet: `MirrorPodUID` (`pkg/kubelet/types/types.go`).
    #[doc(alias = "MirrorPodUID")]
    MirrorPodUid
}

uid_type! {
    /// A UID after translation: what was a mirror's UID has become its static pod's.
    ///
    /// # Examples
    /// ```
    /// use pod_index::{PodUid, ResolvedPodUid};
    ///
    /// let resolved = ResolvedPodUid::from("0f1e2d3c4b5a69788796a5b4c3d2e1f0");
    /// assert_eq!(PodUid::from(resolved), "0f1e2d3c4b5a69788796a5b4c3d2e1f0");
    /// ```
    ///
    /// Kubelet: `ResolvedPodUID` (`pkg/kubelet/types/types.go`).
    #[doc(alias = "ResolvedPodUID")]
    ResolvedPodUid
}

/// A resolved UID is that of the pod itself.
impl From<ResolvedPodUid> for PodUid {
    fn from(uid: ResolvedPodUid) -> Self {
        Self(uid.0)
    }
}

/// A pod's own UID is already resolved.
impl From<PodUid> for ResolvedPodUid {
    fn from(uid: PodUid) -> Self {
        Self(uid.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{PodUid, UidRef};

    const SPELLINGS: [&str; 7] = [
        "two\nlines",
        "",
        "m1",
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
        "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 and more",
    ];

    #[test]
    fn a_uid_is_as_small_as_three_words() {
        assert_eq!(size_of::<PodUid>(), 24);
    }

    #[test]
    fn every_spelling_survives_the_round_trip() {
        for text in SPELLINGS {
            let uid = PodUid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(uid, text);
            assert_eq!(UidRef::from(&uid), UidRef::from(text));
            assert_eq!(PodUid::from(UidRef::from(text)), uid);
            assert_eq!(uid.is_empty(), text.is_empty());
            assert_eq!(format!("{:?}", UidRef::from(text)), format!("{text:?}"));
        }
    }

    /// Alike ones least of all, and whichever of the two is in the first half.
    #[test]
    fn two_wrong_characters_do_not_make_up_for_each_other() {
        for good in ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"] {
            for first in 0..good.len() {
                for second in first + 1..good.len() {
                    for wrong in [b'_', b'g', b'A', 0] {
                        let mut text = good.as_bytes().to_vec();
                        (text[first], text[second]) = (wrong, wrong);
                        let text = String::from_utf8(text).expect("ASCII");
                        assert_eq!(PodUid::from(text.as_str()), text.as_str());
                    }
                }
            }
        }
    }

    /// What is wrong about the separator and what is wrong about the digit that is packed beside it are the same bits here.
    #[test]
    fn a_wrong_separator_does_not_make_up_for_a_wrong_digit() {
        for (separator, digit) in [(8, 24), (13, 29), (18, 2), (23, 7)] {
            let mut text = *b"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
            text[separator] = b',';
            text[digit] = b'g';
            let text = str::from_utf8(&text).expect("ASCII");
            assert_eq!(PodUid::from(text), *text);
        }
    }

    #[test]
    fn uids_are_equal_and_ordered_as_their_strings_are() {
        for a in SPELLINGS {
            for b in SPELLINGS {
                let (left, right) = (PodUid::from(a), PodUid::from(b));
                assert_eq!(left == right, a == b, "{a} {b}");
                assert_eq!(left.cmp(&right), a.cmp(b), "{a} {b}");
                assert_eq!(left < right, a < b, "{a} {b}");
            }
        }
    }
}
