//! The field selector of a request.

use std::collections::BTreeSet;

use super::resource::Resource;
use crate::api::fields;

/// Maximum number of terms.
const MOST: usize = 128;

/// Terms, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    /// The index in [`Resource::FIELDS`].
    field: usize,
    is_equal: bool,
    value: String,
}

impl Fields {
    /// Parses a selector such as `status.phase!=Running,spec.nodeName=node-1`.
    pub(super) fn parse<R: Resource>(text: &str) -> Result<Self, String> {
        let mut terms = BTreeSet::new();
        for term in fields::parse(text) {
            let fields::Term { field, is_equal, value } = term?;
            let known = R::FIELDS.iter().position(|known| *known == field);
            let field = known.ok_or_else(|| format!("field label not supported: {field}"))?;
            terms.insert(Term { field, is_equal, value });
            if terms.len() > MOST {
                return Err(format!("at most {MOST} terms are allowed"));
            }
        }
        Ok(Self(terms.into_iter().collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether an object with these fields matches.
    pub(super) fn matches<'a>(&self, field: impl Fn(usize) -> &'a str) -> bool {
        self.0.iter().all(|term| (field(term.field) == term.value) == term.is_equal)
    }

    /// The value that this field has in every selected object.
    pub(super) fn necessary(&self, field: usize) -> Option<&str> {
        self.0.iter().find(|term| term.field == field && term.is_equal).map(|term| &*term.value)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "nodeName": "node-1", "restartPolicy": "Always", "schedulerName": "s", "serviceAccountName": "sa",
                      "hostNetwork": true, "containers": [] },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                        "nominatedNodeName": "node-2" },
        }))
        .unwrap()
    }

    #[test]
    fn every_field_of_the_api_server_is_selectable() {
        let pod = pod();
        for (selector, selected) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.namespace=shop,metadata.name=other", false),
            ("spec.nodeName=node-1", true),
            ("spec.host=node-1", true),
            ("spec.restartPolicy=Always", true),
            ("spec.schedulerName=s", true),
            ("spec.serviceAccountName=sa", true),
            ("spec.hostNetwork=true", true),
            ("spec.hostNetwork!=true", false),
            ("status.phase!=Running", false),
            ("status.phase!=Failed,", true),
            ("status.podIP=10.0.0.1", true),
            ("status.podIP=fd00::1", false),
            ("status.podIPs=10.0.0.1", false),
            ("status.podIPs!=10.0.0.1", true),
            ("status.nominatedNodeName=node-2", true),
            ("metadata.name=w\\,eb", false),
        ] {
            assert_eq!(
                Fields::parse::<Pod>(selector).unwrap().matches(|at| pod.field(at)),
                selected,
                "{selector:?}"
            );
        }
        let nothing = Pod::default();
        assert!(
            Fields::parse::<Pod>("spec.nodeName=,spec.hostNetwork=false,status.podIP=")
                .unwrap()
                .matches(|at| nothing.field(at))
        );
    }

    #[test]
    fn invalid_field_selectors_and_unknown_fields_are_refused() {
        for selector in [
            "spec.image=x",
            "metadata.name",
            "=x",
            "metadata.name=a=b",
            "metadata.name=\\x",
            "metadata.name=\\",
            "metadata.labels.a=b",
            "a!b",
        ] {
            assert!(Fields::parse::<Pod>(selector).is_err(), "{selector:?}");
        }
    }
}
