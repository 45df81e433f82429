//! RBAC, read from the shipped files.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Refusal;
use super::request::{Request, Verb};

/// A kind of request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Right {
    pub group: String,
    pub resource: String,
    pub verb: String,
    /// Empty: all namespaces.
    pub namespace: String,
}

impl Right {
    pub(super) fn asked(request: &Request) -> Self {
        let verb = match request.verb {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Replace => "update",
            Verb::Delete => "delete",
        };
        Self {
            group: request.group.clone(),
            resource: request.selector.resource.clone(),
            verb: verb.to_owned(),
            namespace: request.selector.namespace.clone(),
        }
    }

    /// Whether this right allows that request.
    pub fn covers(&self, asked: &Self) -> bool {
        let everywhere = self.namespace.is_empty();
        let of_kind = |right: &Self| (right.group.clone(), right.resource.clone(), right.verb.clone());
        of_kind(self) == of_kind(asked) && (everywhere || self.namespace == asked.namespace)
    }
}

/// The granted rights, and the requests so far.
#[derive(Default)]
pub(super) struct Rights {
    granted: Option<BTreeSet<Right>>,
    pub(super) asked: BTreeSet<Right>,
    pub(super) refused: BTreeSet<Right>,
}

impl Rights {
    pub(super) fn grant(&mut self, rights: BTreeSet<Right>) {
        self.granted = Some(rights);
    }

    /// Whether this is allowed; everything is, unless rights were granted.
    pub(super) fn allow(&self, asked: &Right) -> bool {
        self.granted.as_ref().is_none_or(|granted| granted.iter().any(|right| right.covers(asked)))
    }

    /// Whether this request is allowed.
    pub(super) fn check(&mut self, request: &Request) -> Result<(), Refusal> {
        let asked = Right::asked(request);
        self.asked.insert(asked.clone());
        if self.allow(&asked) {
            return Ok(());
        }
        let Right { group, resource, verb, namespace } = &asked;
        let message = format!(
            "{resource} is forbidden: User \"test\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"{namespace}\""
        );
        self.refused.insert(asked);
        Err(Refusal::new(403, "Forbidden", message))
    }
}

/// The rights of this service account according to the bindings in these folders of `deploy/kubernetes`.
pub fn shipped(account: &str, parts: &[&str]) -> BTreeSet<Right> {
    let objects: Vec<Value> = parts.iter().flat_map(|part| objects(part)).collect();
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let holds = |subjects: Option<Vec<Subject>>| {
        subjects
            .unwrap_or_default()
            .iter()
            .any(|subject| subject.kind == "ServiceAccount" && subject.name == account)
    };
    let mut rights = BTreeSet::new();
    for binding in of_kind("ClusterRoleBinding").map(typed::<ClusterRoleBinding>) {
        if holds(binding.subjects) {
            let mut roles = of_kind("ClusterRole").map(typed::<ClusterRole>);
            let role = roles.find(|role| role.metadata.name.as_ref() == Some(&binding.role_ref.name));
            rights.extend(flatten(role.expect("a role that is bound").rules, ""));
        }
    }
    for binding in of_kind("RoleBinding").map(typed::<RoleBinding>) {
        if holds(binding.subjects) {
            let namespace = binding.metadata.namespace;
            let mut roles = of_kind("Role").map(typed::<Role>);
            let role = roles.find(|role| {
                role.metadata.name.as_ref() == Some(&binding.role_ref.name)
                    && role.metadata.namespace == namespace
            });
            rights.extend(flatten(role.expect("a role that is bound").rules, namespace.as_deref().unwrap()));
        }
    }
    rights
}

fn flatten(rules: Option<Vec<PolicyRule>>, namespace: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in rules.unwrap_or_default() {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| Right {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                    namespace: namespace.to_owned(),
                }));
            }
        }
    }
    rights
}

fn objects(part: &str) -> Vec<Value> {
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/kubernetes")).join(part).join("rbac.yaml");
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}
