//! Field and label selectors, as far as clients here use them: `=`, `==` and `!=`, joined by commas, and a
//! bare key in a label selector.

use serde_json::Value;

use super::answer::Refusal;
use super::store::{Key, Object, text};

/// Selectable fields of pods.
const POD_FIELDS: [&str; 11] = [
    "metadata.name",
    "metadata.namespace",
    "spec.host",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
];

/// Selectable fields of all objects.
const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// The objects that a request selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    pub(super) resource: String,
    /// Empty: all namespaces.
    pub(super) namespace: String,
    pub(super) fields: Vec<Term>,
    pub(super) labels: Vec<Term>,
}

#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) key: String,
    pub(super) wanted: Wanted,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Wanted {
    Is(String),
    IsNot(String),
    Present,
}

/// The terms of a selector, as written in a query.
pub(super) fn parse(selector: &str) -> Vec<Term> {
    let terms = selector.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (key, wanted) = if let Some((key, value)) = term.split_once("!=") {
                (key, Wanted::IsNot(value.to_owned()))
            } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (key, Wanted::Is(value.to_owned()))
            } else {
                (term, Wanted::Present)
            };
            Term { key: key.to_owned(), wanted }
        })
        .collect()
}

/// Refuses fields that this kind does not support.
pub(super) fn check_fields(resource: &str, terms: &[Term]) -> Result<(), Refusal> {
    let known = if resource == "pods" { &POD_FIELDS[..] } else { &FIELDS };
    match terms.iter().find(|term| !known.contains(&term.key.as_str())) {
        None => Ok(()),
        Some(Term { key, .. }) => {
            let message = format!(
                "Unable to find \"/v1, Resource={resource}\" that match the field selector: field label not supported: {key}"
            );
            Err(Refusal::new(400, "BadRequest", message))
        }
    }
}

/// A field's value, for a selector.
fn field<'v>(value: &'v Value, key: &str) -> &'v str {
    match key {
        "spec.host" => text(value, "/spec/nodeName"),
        "spec.hostNetwork" if value.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) => "true",
        "spec.hostNetwork" => "false",
        key => text(value, &format!("/{}", key.replace('.', "/"))),
    }
}

impl Selector {
    pub(super) fn matches(&self, object: &Object) -> bool {
        let of_kind = object.key.resource == self.resource;
        let in_namespace = self.namespace.is_empty() || object.key.namespace == self.namespace;
        of_kind
            && in_namespace
            && self.fields.iter().all(|term| term.holds(Some(field(&object.value, &term.key))))
            && self.labels.iter().all(|term| {
                let labels = object.value.pointer("/metadata/labels");
                term.holds(labels.and_then(|labels| labels.get(&term.key)).and_then(Value::as_str))
            })
    }

    /// The only object that can match; without a name if several can.
    pub(super) fn key(&self) -> Key {
        let name = self.fields.iter().find(|term| term.key == "metadata.name");
        let name = match name.map(|term| &term.wanted) {
            Some(Wanted::Is(name)) => name,
            _ => "",
        };
        Key::new(&self.resource, &self.namespace, name)
    }

    /// Whether only pods of this node can match.
    pub(super) fn is_for_node(&self, node: &str) -> bool {
        let is_node = Wanted::Is(node.to_owned());
        self.fields.iter().any(|term| term.key == "spec.nodeName" && term.wanted == is_node)
    }
}

impl Term {
    fn holds(&self, found: Option<&str>) -> bool {
        match &self.wanted {
            Wanted::Is(value) => found == Some(value),
            Wanted::IsNot(value) => found != Some(value),
            Wanted::Present => found.is_some(),
        }
    }
}
