//! The namespace and name of an object, valid for the API server.

use crate::names::dns_subdomain;

/// The namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ObjectKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    /// `None` if no object can have this namespace and name. Others are safe in a path and in a field selector without
    /// escaping.
    pub(super) fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_name = |name| dns_subdomain(name).is_none();
        (is_name(namespace) && is_name(name)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }
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
