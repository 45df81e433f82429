//! The kubelet's full name of a pod: `name_namespace`.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use wide::u8x16;

use super::error::ParseIdError;

/// Separates name and namespace. Kubernetes' validation allows it in neither.
pub(crate) const SEPARATOR: char = '_';

/// A pod's full name, `name + "_" + namespace`, shared by a static pod and its mirror.
///
/// Always two non-empty parts around exactly one `_`.
///
/// # Complexity
/// Parsing is O(length) with one allocation; [`new`](Self::new) makes two; cloning is O(1) without
/// allocation. [`name`](Self::name) and [`namespace`](Self::namespace) search for the separator: O(length).
///
/// # Examples
/// ```
/// use pod_index::FullName;
///
/// let full_name: FullName = "etcd-node1_kube-system".parse()?;
/// assert_eq!(full_name.name(), "etcd-node1");
/// assert_eq!(full_name.namespace(), "kube-system");
/// assert_eq!(FullName::new("kube-system", "etcd-node1")?, full_name);
/// # Ok::<(), pod_index::ParseIdError>(())
/// ```
///
/// Kubelet: `GetPodFullName` (`pkg/kubelet/container/runtime.go`).
#[doc(alias = "GetPodFullName")]
#[doc(alias = "BuildPodFullName")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FullName(Arc<str>);

impl FullName {
    /// The full name of the pod `name` in `namespace`. The namespace comes first, as everywhere.
    ///
    /// # Errors
    /// If either part is empty or contains `_`.
    pub fn new(namespace: &str, name: &str) -> Result<Self, ParseIdError> {
        format!("{name}{SEPARATOR}{namespace}").parse()
    }

    /// The pod's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().name
    }

    /// The pod's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.parts().namespace
    }

    /// The whole name, `name_namespace`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> NameParts<'_> {
        let (name, namespace) = self.0.split_once(SEPARATOR).unwrap_or_default();
        NameParts { namespace, name }
    }
}

/// The two parts of a full name.
pub(crate) struct NameParts<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// The two parts of a full name; `None` if it is not one.
pub(crate) fn split(text: &str) -> Option<NameParts<'_>> {
    let at = only_separator(text.as_bytes())?;
    let name = text.get(..at)?;
    let namespace = text.get(at + 1..)?;
    (!name.is_empty() && !namespace.is_empty()).then_some(NameParts { namespace, name })
}

/// The position of the separator, if there is exactly one.
///
/// Every lookup by full name calls this, and the separator's position is unpredictable. So a name of at most
/// 79 bytes is scanned completely, vector by vector, with one bit per byte and no branch before the end.
#[inline]
fn only_separator(text: &[u8]) -> Option<usize> {
    const LANES: usize = 16;
    let (vectors, _) = text.as_chunks::<LANES>();
    let Some(last) = text.last_chunk::<LANES>().filter(|_| vectors.len() <= 4) else {
        let mut places = text.iter().enumerate().filter(|(_, byte)| **byte == SEPARATOR as u8);
        return places.next().filter(|_| places.next().is_none()).map(|(at, _)| at);
    };
    let separators = |vector: &[u8; LANES]| {
        let mask = u8x16::from(*vector).cmp_eq(u8x16::splat(SEPARATOR as u8)).move_mask();
        u128::from(mask.cast_unsigned())
    };
    // One bit per byte. The last vector may overlap the previous one.
    let mut all = separators(last) << (text.len() - LANES);
    for (number, vector) in vectors.iter().enumerate() {
        all |= separators(vector) << (number * LANES);
    }
    all.is_power_of_two().then(|| all.trailing_zeros() as usize)
}

/// # Errors
/// If the string is not two non-empty parts around exactly one `_`.
///
/// Kubelet: `ParsePodFullName` (`pkg/kubelet/container/runtime.go`).
impl FromStr for FullName {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match split(text) {
            Some(_) => Ok(Self(Arc::from(text))),
            None => Err(ParseIdError::FullName(crate::text::shorten(text))),
        }
    }
}

impl AsRef<str> for FullName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for FullName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for FullName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for FullName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl fmt::Display for FullName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::FullName;

    #[test]
    fn a_full_name_is_two_parts_around_one_underscore() {
        let full_name: FullName = "bar_foo".parse().expect("a full name");
        assert_eq!((full_name.name(), full_name.namespace()), ("bar", "foo"));
        assert_eq!(full_name, FullName::new("foo", "bar").expect("two good parts"));
    }

    /// The kubelet's own list of bad names (`TestParsePodFullName`).
    #[test]
    fn the_kubelets_bad_full_names_are_refused_by_name() {
        for bad in ["barfoo", "bar_foo_foo", "", "bar_", "_foo", "_", "__"] {
            let error = bad.parse::<FullName>().expect_err(bad);
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
    }

    /// All positions in texts of up to a few vectors, alone and with a second separator at every other
    /// position.
    #[test]
    fn a_text_is_split_exactly_at_its_only_separator() {
        for length in (0..100).chain([111, 112, 127, 128, 143, 144, 145, 200]) {
            let mut text = vec![b'a'; length];
            assert_eq!(super::only_separator(&text), None);
            for at in 0..length {
                text[at] = b'_';
                assert_eq!(super::only_separator(&text), Some(at), "{length} bytes");
                for other in 0..at {
                    text[other] = b'_';
                    assert_eq!(super::only_separator(&text), None, "{other} and {at} of {length} bytes");
                    text[other] = b'a';
                }
                text[at] = b'a';
            }
        }
    }

    #[test]
    fn parts_may_contain_any_letters() {
        let full_name: FullName = "wäb-ß_nämespace-ü".parse().expect("a full name");
        assert_eq!((full_name.name(), full_name.namespace()), ("wäb-ß", "nämespace-ü"));
    }

    #[test]
    fn parts_that_would_be_ambiguous_are_refused() {
        assert!(FullName::new("c", "a_b").is_err());
        assert!(FullName::new("b_c", "a").is_err());
        assert!(FullName::new("c", "").is_err());
    }
}
