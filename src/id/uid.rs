//! UIDs of pods, of mirror pods, and resolved UIDs, as three types that do not mix.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::error::ParseIdError;
use super::{Form, Packed};

/// The representation shared by the three public types. 24 bytes for any spelling. It consists of whole
/// words: a copy assembled from bytes would stall the processor.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Uid {
    Uuid(u64, u64),
    Hex(u64, u64),
    Other(Arc<str>),
}

impl Uid {
    /// A UID in another than the usual spellings; cold, to keep the usual path short.
    #[cold]
    fn other(text: &str) -> Self {
        Self::Other(Arc::from(text))
    }

    #[inline]
    fn packed(packed: Packed) -> Self {
        let Packed { first, second, form } = packed;
        match form {
            Form::Uuid => Self::Uuid(first, second),
            Form::Hex => Self::Hex(first, second),
        }
    }

    #[inline]
    fn as_ref(&self) -> UidRef<'_> {
        let usual = |first, second, form| UidRef { usual: Some(Packed { first, second, form }), other: "" };
        match self {
            Self::Uuid(first, second) => usual(*first, *second, Form::Uuid),
            Self::Hex(first, second) => usual(*first, *second, Form::Hex),
            Self::Other(text) => UidRef { usual: None, other: text },
        }
    }
}

/// By spelling, so that "the smallest UID" means the same as in a sorted list of strings.
impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        let one = self.as_ref();
        let other = other.as_ref();
        // Nearly always these differ, and no text needs to be written.
        let by_first_digits = match (one.usual, other.usual) {
            (Some(one), Some(other)) => one.first_digits().cmp(&other.first_digits()),
            _ => Ordering::Equal,
        };
        by_first_digits.then_with(|| one.text(&mut [0; 36]).cmp(other.text(&mut [0; 36])))
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A borrowed UID, the parameter of lookups: from a string, or from any of the UID types.
///
/// A string is parsed; a [`PodUid`], [`MirrorPodUid`] or [`ResolvedPodUid`] is not, which saves two fifths of
/// a lookup's instructions. Store UID types instead of strings where you can.
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
    // Not an enum: its variants would share memory, so that a lookup would pass the value through memory.
    /// The packed form, if the UID is in one of the usual spellings.
    pub(crate) usual: Option<Packed>,
    /// Otherwise the string.
    pub(crate) other: &'a str,
}

impl<'a> UidRef<'a> {
    /// The text of the UID, which is perhaps written to this buffer.
    fn text<'t>(self, buffer: &'t mut [u8; 36]) -> &'t str
    where
        'a: 't,
    {
        self.usual.map_or(self.other, |packed| packed.spell(buffer))
    }

    /// Whether this is a UUID with hyphens or 32 hex digits, in upper or lower case.
    pub(crate) fn is_usual_in_any_case(self) -> bool {
        self.usual.is_some() || self.in_lower_case().is_some()
    }

    /// This UID in lower case, if it is a usual spelling in upper case. No allocation.
    pub(crate) fn in_lower_case(self) -> Option<PodUid> {
        PodUid::usual(self.other, |byte| byte.to_ascii_lowercase())
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

/// Not for every `AsRef<str>`: a full name is one, but not a UID.
macro_rules! from_texts {
    ($($text:ty),*) => {$(
        impl<'a> From<&'a $text> for UidRef<'a> {
            // As for `&str`.
            #[inline(always)]
            fn from(text: &'a $text) -> Self {
                Self::from(&**text)
            }
        }
    )*};
}

from_texts!(&str, String, Box<str>, Arc<str>, Cow<'_, str>);

impl PartialEq<str> for UidRef<'_> {
    fn eq(&self, other: &str) -> bool {
        self.text(&mut [0; 36]) == other
    }
}

impl PartialEq<&str> for UidRef<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.text(&mut [0; 36]) == *other
    }
}

impl fmt::Display for UidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text(&mut [0; 36]))
    }
}

impl fmt::Debug for UidRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.text(&mut [0; 36]), f)
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
            /// The UID in the borrowed form that lookups take.
            #[must_use]
            #[inline]
            pub fn as_uid_ref(&self) -> UidRef<'_> {
                self.0.as_ref()
            }
        }

        /// # Errors
        /// If the string is empty.
        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                if text.is_empty() { Err(ParseIdError::EmptyUid) } else { Ok(Self::from(text)) }
            }
        }

        impl From<UidRef<'_>> for $name {
            #[inline]
            fn from(uid: UidRef<'_>) -> Self {
                Self(uid.usual.map_or_else(|| Uid::other(uid.other), Uid::packed))
            }
        }

        /// Accepts the empty string too, as the kubelet's translation does. To refuse it, use [`FromStr`].
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                UidRef::from(text).into()
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
                self.as_uid_ref().text(&mut [0; 36]) == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_uid_ref().text(&mut [0; 36]) == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.as_uid_ref(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.as_uid_ref())
            }
        }
    };
}

uid_type! {
    /// The UID of a pod that runs on the node: an ordinary pod's UID, or a static pod's own. Never a
    /// mirror's.
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
    /// The UID that the API server gave to a mirror pod.
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
    /// A UID after translation: a mirror's UID was replaced by its static pod's.
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

impl PodUid {
    /// The UID that this text is with other bytes, if it is a usual spelling then. No allocation.
    pub(crate) fn usual(text: &str, other: impl Fn(u8) -> u8) -> Option<Self> {
        let mut buffer = [0; 36];
        let changed = buffer.get_mut(..text.len())?;
        changed.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = other(from));
        Packed::parse(str::from_utf8(changed).ok()?).map(|packed| Self(Uid::packed(packed)))
    }

    /// The text, if the UID has another than the usual spellings.
    pub(crate) fn into_text(self) -> Option<Arc<str>> {
        if let Uid::Other(text) = self.0 { Some(text) } else { None }
    }
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
    use super::{MirrorPodUid, ParseIdError, PodUid, ResolvedPodUid, UidRef};

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
    fn a_uid_takes_three_words() {
        assert_eq!(size_of::<PodUid>(), 24);
    }

    #[test]
    fn every_spelling_survives_the_round_trip() {
        for text in SPELLINGS {
            let uid = PodUid::from(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(uid, text);
            assert!(uid == *text && uid.as_uid_ref() == *text && uid.as_uid_ref() == text);
            assert_eq!(UidRef::from(&uid), UidRef::from(text));
            assert_eq!(PodUid::from(UidRef::from(text)), uid);
            assert_eq!(format!("{:?}", UidRef::from(text)), format!("{text:?}"));
        }
    }

    /// Two equal errors must not cancel out, in either half.
    #[test]
    fn two_wrong_characters_do_not_cancel_out() {
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

    /// A wrong separator and a wrong digit packed beside it set the same bits here.
    #[test]
    fn a_wrong_separator_does_not_cancel_out_a_wrong_digit() {
        for (separator, digit) in [(8, 24), (13, 29), (18, 2), (23, 7)] {
            let mut text = *b"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
            text[separator] = b',';
            text[digit] = b'g';
            let text = str::from_utf8(&text).expect("ASCII");
            assert_eq!(PodUid::from(text), text);
        }
    }

    /// These two pack to the same sixteen bytes, because a UUID's digits are packed in another order.
    const SAME_WORDS: [&str; 2] =
        ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0f1e2d3ce4b5a16978f87960a5b4c3d2"];

    /// The packed form of a usual spelling.
    fn words_of(uid: &PodUid) -> [u64; 2] {
        let packed = uid.as_uid_ref().usual.expect("a usual spelling");
        [packed.first, packed.second]
    }

    #[test]
    fn two_spellings_with_equal_packed_words_are_two_uids() {
        let [uuid, hex] = SAME_WORDS.map(PodUid::from);
        let words = [&uuid, &hex].map(words_of);
        assert_eq!(words[0], words[1], "otherwise this shows nothing");
        assert_ne!(uuid, hex);
        assert_ne!(UidRef::from(&uuid), UidRef::from(&hex));
        assert_eq!(SAME_WORDS.map(PodUid::from).map(|uid| uid.to_string()), SAME_WORDS);
    }

    /// Digits that differ in each position, in both spellings: the order is that of the text, however they
    /// are packed.
    #[test]
    fn uids_of_the_usual_spellings_are_ordered_like_their_strings() {
        let mut texts = Vec::new();
        for good in SAME_WORDS {
            for at in (0..good.len()).filter(|at| good.as_bytes()[*at] != b'-') {
                for digit in ["0", "9", "a", "f"] {
                    let mut text = good.to_owned();
                    text.replace_range(at..=at, digit);
                    texts.push(text);
                }
            }
        }
        let mut against = 0;
        for a in &texts {
            for b in &texts {
                let left = PodUid::from(a.as_str());
                let right = PodUid::from(b.as_str());
                assert_eq!(left.cmp(&right), a.cmp(b), "{a} {b}");
                let words = [&left, &right].map(words_of);
                against += usize::from(words[0].cmp(&words[1]) != a.cmp(b));
            }
        }
        assert!(against > 1000, "by its words, another order would come out: {against}");
    }

    #[test]
    fn a_uid_is_padded_like_its_string() {
        for text in SPELLINGS {
            let padded = format!("{:>40}|{:?}", MirrorPodUid::from(text), UidRef::from(text));
            assert_eq!(padded, format!("{text:>40}|{text:?}"));
        }
    }

    #[test]
    fn any_non_empty_string_is_parsed_as_a_uid() {
        for text in SPELLINGS {
            let wanted = if text.is_empty() { Err(ParseIdError::EmptyUid) } else { Ok(text.to_owned()) };
            assert_eq!(text.parse().map(|uid: PodUid| uid.to_string()), wanted);
            assert_eq!(text.parse().map(|uid: MirrorPodUid| uid.to_string()), wanted);
            assert_eq!(text.parse().map(|uid: ResolvedPodUid| uid.to_string()), wanted);
        }
        assert_eq!(ParseIdError::EmptyUid.to_string(), "failed to parse the pod UID: it is empty");
    }

    #[test]
    fn uids_are_equal_and_ordered_like_their_strings() {
        for a in SPELLINGS {
            for b in SPELLINGS {
                let left = PodUid::from(a);
                let right = PodUid::from(b);
                assert_eq!(left == right, a == b, "{a} {b}");
                assert_eq!(left.cmp(&right), a.cmp(b), "{a} {b}");
                assert_eq!(left < right, a < b, "{a} {b}");
            }
        }
    }
}
