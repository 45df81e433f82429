//! The namespace and name of an object, valid for the API server.

/// The namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ObjectKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    /// `None` if no object can have this namespace and name.
    pub(super) fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_subdomain(namespace) && is_subdomain(name))
            .then(|| Self { namespace: namespace.into(), name: name.into() })
    }
}

/// Whether `name` is a DNS-1123 subdomain, as names of Secrets and `ConfigMaps` are. Such a name is safe in a
/// path and in a field selector without escaping.
fn is_subdomain(name: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| is_end(*byte) || *byte == b'-')
            && bytes.first().is_some_and(|byte| is_end(*byte))
            && bytes.last().is_some_and(|byte| is_end(*byte))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_object_names_become_keys() {
        for good in ["a", "db-password", "ca.example.com", "1", &"a".repeat(253)] {
            assert!(ObjectKey::new("default", good).is_some(), "{good}");
        }
        let bad =
            ["", ".", "..", "../nodes", "a/b", "a?b", "a,b=c", "a b", "A", "a_b", "-a", "a-", "ä", "a\0"];
        for bad in bad.into_iter().chain([&*"a".repeat(254)]) {
            assert!(ObjectKey::new("default", bad).is_none(), "{bad}");
            assert!(ObjectKey::new(bad, "a").is_none(), "{bad}");
        }
    }
}
