//! UIDs of pods, of mirror pods, and of "the pod that really runs", as three types that do not mix.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{Form, Packed};

/// The longest unusual UID that is kept without an allocation.
const SHORT: usize = 22;

/// What the three public types share. 24 bytes, whatever the spelling.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Uid {
    Uuid([u8; 16]),
    Hex([u8; 16]),
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

impl Uid {
    fn new(text: &str) -> Self {
        if let Some(packed) = Packed::parse(text) {
            return Self::packed(packed);
        }
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(head), Ok(len)) => {
                head.copy_from_slice(text.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(Arc::from(text)),
        }
    }

    fn packed(packed: Packed) -> Self {
        match packed.form {
            Form::Uuid => Self::Uuid(packed.to_bytes()),
            Form::Hex => Self::Hex(packed.to_bytes()),
        }
    }

    /// The UID as it was spelled; `buffer` is scratch space for the packed spellings.
    fn as_str<'a>(&'a self, buffer: &'a mut [u8; 36]) -> &'a str {
        match self {
            Self::Uuid(bytes) => Packed::from_bytes(Form::Uuid, *bytes).spell(buffer),
            Self::Hex(bytes) => Packed::from_bytes(Form::Hex, *bytes).spell(buffer),
            // Copied from a `&str` of that very length.
            Self::Short { len, bytes } => str::from_utf8(&bytes[..usize::from(*len)]).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }

    #[inline]
    fn as_ref(&self) -> UidRef<'_> {
        UidRef(match self {
            Self::Uuid(bytes) => Spelling::Usual(Packed::from_bytes(Form::Uuid, *bytes)),
            Self::Hex(bytes) => Spelling::Usual(Packed::from_bytes(Form::Hex, *bytes)),
            Self::Short { len, bytes } => {
                Spelling::Other(str::from_utf8(&bytes[..usize::from(*len)]).unwrap_or_default())
            }
            Self::Long(text) => Spelling::Other(text),
        })
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
/// halves the cost of a look-up. Keep the UID types, not strings, where you can.
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
pub struct UidRef<'a>(pub(crate) Spelling<'a>);

/// The inside of a [`UidRef`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spelling<'a> {
    Usual(Packed),
    Other(&'a str),
}

impl UidRef<'_> {
    /// Whether this is the empty UID, which no pod may have.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Spelling::Other(""))
    }

    /// The string of a UID that is in neither of the usual spellings.
    #[inline]
    pub(crate) fn unusual(&self) -> Option<&str> {
        match self.0 {
            Spelling::Usual(_) => None,
            Spelling::Other(text) => Some(text),
        }
    }

    fn to_uid(self) -> Uid {
        match self.0 {
            Spelling::Usual(packed) => Uid::packed(packed),
            Spelling::Other(text) => Uid::new(text),
        }
    }
}

impl<'a> From<&'a str> for UidRef<'a> {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn from(text: &'a str) -> Self {
        Self(Packed::parse(text).map_or(Spelling::Other(text), Spelling::Usual))
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
        match self.0 {
            Spelling::Usual(packed) => f.pad(packed.spell(&mut [0; 36])),
            Spelling::Other(text) => f.pad(text),
        }
    }
}

impl fmt::Debug for UidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

macro_rules! uid_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Any string is a UID of its own: two spellings of one UUID are two UIDs. 24 bytes; copying, hashing and
        /// comparing are O(1) and allocate nothing for the usual spellings (hyphenated lower-case UUID; 32 lower-case
        /// hex digits) and for anything of up to 22 bytes. Longer unusual ones are one shared allocation.
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
        "",
        "m1",
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
        "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "exactly-22-bytes-long.",
        "exactly-23-bytes-long..",
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
        }
    }

    #[test]
    fn uids_are_equal_and_ordered_as_their_strings_are() {
        for a in SPELLINGS {
            for b in SPELLINGS {
                let (left, right) = (PodUid::from(a), PodUid::from(b));
                assert_eq!(left == right, a == b, "{a} {b}");
                assert_eq!(left.cmp(&right), a.cmp(b), "{a} {b}");
            }
        }
    }
}
