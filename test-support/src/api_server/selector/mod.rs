//! Field and label selectors. A selector that a real server refuses is refused.

mod fields;
mod labels;

use super::answer::Refusal;
use super::store::{Key, Object};

/// The objects that a request selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    pub(super) resource: String,
    /// Empty: all namespaces.
    pub(super) namespace: String,
    fields: Vec<fields::Term>,
    labels: Vec<labels::Requirement>,
}

impl Selector {
    pub(super) fn parse(
        resource: &str,
        namespace: &str,
        fields: &str,
        labels: &str,
    ) -> Result<Self, Refusal> {
        let bad = |why| Refusal::new(400, "BadRequest", why);
        Ok(Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            labels: labels::parse(labels).map_err(bad)?,
            fields: fields::parse(resource, fields).map_err(bad)?,
        })
    }

    pub(super) fn ignore_fields(&mut self) {
        self.fields.clear();
    }

    /// Whether it selects all objects of the kind and namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.fields.is_empty() && self.labels.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        object.key.resource == self.resource
            && (self.namespace.is_empty() || object.key.namespace == self.namespace)
            && self.fields.iter().all(|term| term.holds(&object.value))
            && self.labels.iter().all(|one| one.holds(object.value.pointer("/metadata/labels")))
    }

    /// The only object that can match; without a name if several can.
    pub(super) fn key(&self) -> Key {
        let name = self.fields.iter().find(|term| term.fixes("metadata.name"));
        Key::new(&self.resource, &self.namespace, name.map(|term| &*term.value).unwrap_or_default())
    }

    /// Whether only pods of this node can match.
    pub(super) fn is_for_node(&self, node: &str) -> bool {
        self.fields.iter().any(|term| term.fixes("spec.nodeName") && term.value == node)
    }
}
