//! What the kubelet would refuse to run: the API server's validation of names and of required fields.
//!
//! Kubelet: `ValidatePodCreate` (`pkg/apis/core/validation/validation.go`).

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::field::{Field, each};
use crate::names::{dns_label, dns_subdomain, label_value, qualified_name};
use crate::sources::{NodeName, ProblemKind};
use pod_index::{CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, is_mirror_pod};

/// Limit of the total size of a pod's annotations in bytes.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

const LABELS: Field<'_> = Field::Path("metadata.labels");
const ANNOTATIONS: Field<'_> = Field::Path("metadata.annotations");
const SPEC: Field<'_> = Field::Path("spec");

/// What a value must be.
enum Rule {
    Label,
    Image,
    NotEmpty,
    OneOf(&'static [&'static str]),
    Number(i64, i64),
}

/// The rules of fields of `spec`. `[]` is each item of a list.
const RULES: [(&str, Rule); 5] = [
    ("volumes[].name", Rule::Label),
    ("restartPolicy", Rule::OneOf(&["Always", "OnFailure", "Never"])),
    ("dnsPolicy", Rule::OneOf(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"])),
    ("terminationGracePeriodSeconds", Rule::Number(0, i64::MAX)),
    ("activeDeadlineSeconds", Rule::Number(1, i64::MAX)),
];

/// The rules of fields of a container.
const RULES_OF_CONTAINERS: [(&str, Rule); 8] = [
    ("name", Rule::Label),
    ("image", Rule::Image),
    ("imagePullPolicy", Rule::OneOf(&["Always", "IfNotPresent", "Never"])),
    ("env[].name", Rule::NotEmpty),
    ("ports[].containerPort", Rule::Number(1, 65535)),
    // 0 means none, as in the API.
    ("ports[].hostPort", Rule::Number(0, 65535)),
    ("ports[].protocol", Rule::OneOf(&["TCP", "UDP", "SCTP"])),
    ("volumeMounts[].mountPath", Rule::NotEmpty),
];

impl Rule {
    /// What is wrong with the value, which may be missing.
    fn problem(&self, value: &Value) -> Option<String> {
        let text = value.as_str().unwrap_or_default();
        Some(match *self {
            Self::Label => dns_label(text)?.to_owned(),
            Self::Image if text.trim() != text => "must not have leading or trailing whitespace".to_owned(),
            Self::Image | Self::NotEmpty if text.is_empty() => "must not be empty".to_owned(),
            Self::OneOf(allowed) if !text.is_empty() && !allowed.contains(&text) => {
                format!("{:?} is not one of {}", crate::text::shorten(text), allowed.join(", "))
            }
            Self::Number(least, i64::MAX) if value.as_i64()? < least => format!("must be at least {least}"),
            Self::Number(least, most) if !(least..=most).contains(&value.as_i64()?) => {
                format!("must be between {least} and {most}")
            }
            _ => return None,
        })
    }
}

/// One reason to refuse a pod.
pub(super) struct Objection {
    pub(super) kind: ProblemKind,
    pub(super) field: String,
    pub(super) message: String,
}

/// Why the pod, as written, is refused on this node. `spec`: the pod's, as JSON.
pub(super) fn find(pod: &Pod, spec: &Value, node: &NodeName) -> Vec<Objection> {
    let mut found = Objections(Vec::new());
    let metadata = &pod.metadata;
    // With the node's suffix, an empty name would become a valid one.
    match metadata.name.as_deref().unwrap_or_default() {
        "" => found.add(&Field::Path("metadata.name"), "must not be empty"),
        name => {
            let name = node.pod_name(name);
            let problem = dns_subdomain(&name);
            let problem = problem.map(|problem| format!("{:?}: {problem}", crate::text::shorten(&name)));
            found.check(problem.as_deref(), &Field::Path("metadata.name"));
        }
    }
    if let Some(namespace) = metadata.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
        found.check(dns_label(namespace), &Field::Path("metadata.namespace"));
    }
    if is_mirror_pod(pod) {
        let field = Field::Entry(&ANNOTATIONS, CONFIG_MIRROR_ANNOTATION);
        found.add(&field, "a manifest may not call itself a mirror pod");
    }
    for (key, value) in metadata.labels.iter().flatten() {
        let field = Field::Entry(&LABELS, key);
        found.check(qualified_name(key), &field);
        found.check(label_value(value), &field);
    }
    // As it will be: 32 digits, unless the pod has a UID.
    let hash = metadata.uid.as_deref().filter(|uid| !uid.is_empty()).map_or(32, str::len);
    found.annotations(metadata.annotations.iter().flatten(), hash);
    match &pod.spec {
        Some(_) => found.spec(spec),
        None => found.add(&SPEC, "must be set"),
    }
    found.0
}

struct Objections(Vec<Objection>);

impl Objections {
    fn add(&mut self, field: &Field<'_>, message: &str) {
        let field = field.to_string();
        let message = message.to_owned();
        self.0.push(Objection { kind: ProblemKind::Invalid, field, message });
    }

    fn check(&mut self, problem: Option<&str>, field: &Field<'_>) {
        if let Some(problem) = problem {
            self.add(field, problem);
        }
    }

    /// `hash`: the length of the hash that the kubelet adds before it counts.
    fn annotations<'a>(&mut self, annotations: impl Iterator<Item = (&'a String, &'a String)>, hash: usize) {
        let mut bytes = CONFIG_HASH_ANNOTATION.len() + hash;
        for (key, value) in annotations {
            if key != CONFIG_HASH_ANNOTATION {
                bytes += key.len() + value.len();
            }
            // Unlike label keys, these are checked without regard to case.
            self.check(qualified_name(&key.to_ascii_lowercase()), &Field::Entry(&ANNOTATIONS, key));
        }
        if bytes > MOST_ANNOTATION_BYTES {
            let message = format!("must have at most {MOST_ANNOTATION_BYTES} bytes together, not {bytes}");
            self.add(&ANNOTATIONS, &message);
        }
    }

    fn spec(&mut self, spec: &Value) {
        let is_empty = |list: &str| spec[list].as_array().is_none_or(Vec::is_empty);
        if is_empty("containers") {
            self.add(&Field::Name(&SPEC, "containers"), "must name at least one container");
        }
        if !is_empty("ephemeralContainers") {
            let field = Field::Name(&SPEC, "ephemeralContainers");
            self.add(&field, "cannot be set when a pod is created");
        }
        let mut volumes = HashSet::new();
        each(spec, "volumes[].name", &SPEC, &mut |name, field| {
            if !volumes.insert(name) {
                self.add(field, "another volume has the same name");
            }
        });
        let mut names = HashSet::new();
        for containers in ["initContainers[]", "containers[]"] {
            each(spec, containers, &SPEC, &mut |container, field| {
                self.container(container, field, &mut names, &volumes);
            });
        }
        self.rules(spec, &SPEC, &RULES);
    }

    /// `names`: of the containers so far. `volumes`: the names of the pod's volumes.
    fn container<'v>(
        &mut self,
        container: &'v Value,
        field: &Field<'_>,
        names: &mut HashSet<&'v Value>,
        volumes: &HashSet<&Value>,
    ) {
        each(container, "name", field, &mut |name, field| {
            if name != "" && !names.insert(name) {
                self.add(field, "another container has the same name");
            }
        });
        each(container, "volumeMounts[].name", field, &mut |name, field| {
            if !volumes.contains(name) {
                self.add(field, "no volume has this name");
            }
        });
        self.rules(container, field, &RULES_OF_CONTAINERS);
    }

    fn rules(&mut self, value: &Value, field: &Field<'_>, rules: &[(&str, Rule)]) {
        for (path, rule) in rules {
            each(value, path, field, &mut |value, field| self.check(rule.problem(value).as_deref(), field));
        }
    }
}
