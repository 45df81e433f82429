//! What the kubelet would refuse to run: the API server's validation of names and of required fields.
//!
//! Kubelet: `ValidatePodCreate` (`pkg/apis/core/validation/validation.go`).

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use super::field::Field;
use crate::names::{dns_label, dns_subdomain, label_value, qualified_name};
use crate::sources::ProblemKind;
use pod_index::{CONFIG_MIRROR_ANNOTATION, is_mirror_pod};

/// Limit of the total size of a pod's annotations in bytes.
const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// One reason to refuse a pod.
pub(super) struct Objection {
    pub(super) kind: ProblemKind,
    pub(super) field: Field,
    pub(super) message: String,
}

/// Checks that must run before the defaults are applied.
pub(super) fn before_defaults(pod: &Pod) -> Vec<Objection> {
    let mut found = Found(Vec::new());
    if pod.metadata.name.as_deref().unwrap_or_default().is_empty() {
        // With the node's suffix, an empty name would become a valid one.
        found.add(Field::new("metadata.name"), "must not be empty");
    }
    if pod.spec.is_none() {
        found.add(Field::new("spec"), "must be set");
    }
    if is_mirror_pod(pod) {
        let field = Field::new("metadata.annotations").key(CONFIG_MIRROR_ANNOTATION);
        found.add(field, "a manifest may not call itself a mirror pod");
    }
    found.0
}

/// All other checks.
pub(super) fn after_defaults(pod: &Pod) -> Vec<Objection> {
    let mut found = Found(Vec::new());
    let metadata = &pod.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    if let Some(problem) = dns_subdomain(name) {
        found.add(Field::new("metadata.name"), &format!("{:?}: {problem}", crate::text::shorten(name)));
    }
    found.check(dns_label(metadata.namespace.as_deref().unwrap_or_default()), || {
        Field::new("metadata.namespace")
    });
    found.labels(metadata.labels.as_ref());
    found.annotations(metadata.annotations.as_ref());
    if let Some(spec) = &pod.spec {
        found.spec(spec, &Field::new("spec"));
    }
    found.0
}

struct Found(Vec<Objection>);

impl Found {
    fn add(&mut self, field: Field, message: &str) {
        self.0.push(Objection { kind: ProblemKind::Invalid, field, message: message.to_owned() });
    }

    /// The field's path is built only for a problem: building it allocates, and nearly all pods are valid.
    fn check(&mut self, problem: Option<&str>, field: impl FnOnce() -> Field) {
        if let Some(problem) = problem {
            self.add(field(), problem);
        }
    }

    fn one_of(&mut self, value: Option<&str>, allowed: &[&str], field: impl FnOnce() -> Field) {
        if let Some(value) = value.filter(|value| !value.is_empty() && !allowed.contains(value)) {
            let message = format!("{:?} is not one of {}", crate::text::shorten(value), allowed.join(", "));
            self.add(field(), &message);
        }
    }

    fn labels(&mut self, labels: Option<&BTreeMap<String, String>>) {
        for (key, value) in labels.into_iter().flatten() {
            let field = || Field::new("metadata.labels").key(key);
            self.check(qualified_name(key), field);
            self.check(label_value(value), field);
        }
    }

    fn annotations(&mut self, annotations: Option<&BTreeMap<String, String>>) {
        let mut bytes = 0;
        for (key, value) in annotations.into_iter().flatten() {
            bytes += key.len() + value.len();
            // Unlike label keys, these are checked without regard to case.
            self.check(qualified_name(&key.to_ascii_lowercase()), || {
                Field::new("metadata.annotations").key(key)
            });
        }
        if bytes > MOST_ANNOTATION_BYTES {
            let message = format!("must have at most {MOST_ANNOTATION_BYTES} bytes together, not {bytes}");
            self.add(Field::new("metadata.annotations"), &message);
        }
    }

    fn spec(&mut self, spec: &PodSpec, field: &Field) {
        let volumes = self.volumes(spec.volumes.as_deref().unwrap_or_default(), field);
        if spec.containers.is_empty() {
            self.add(field.name("containers"), "must name at least one container");
        }
        let mut names = HashSet::new();
        for (index, container) in spec.init_containers.iter().flatten().enumerate() {
            self.container(container, &mut names, &volumes, || field.name("initContainers").index(index));
        }
        for (index, container) in spec.containers.iter().enumerate() {
            self.container(container, &mut names, &volumes, || field.name("containers").index(index));
        }
        if spec.ephemeral_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
            self.add(field.name("ephemeralContainers"), "cannot be set when a pod is created");
        }
        self.one_of(spec.restart_policy.as_deref(), &["Always", "OnFailure", "Never"], || {
            field.name("restartPolicy")
        });
        self.one_of(
            spec.dns_policy.as_deref(),
            &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
            || field.name("dnsPolicy"),
        );
        if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
            self.add(field.name("terminationGracePeriodSeconds"), "must not be negative");
        }
        if spec.active_deadline_seconds.is_some_and(|seconds| seconds < 1) {
            self.add(field.name("activeDeadlineSeconds"), "must be at least 1");
        }
    }

    /// Returns the volumes' names, to check the containers' mounts.
    fn volumes<'a>(&mut self, volumes: &'a [Volume], field: &Field) -> HashSet<&'a str> {
        let mut names = HashSet::new();
        for (index, volume) in volumes.iter().enumerate() {
            let field = || field.name("volumes").index(index).name("name");
            self.check(dns_label(&volume.name), field);
            if !names.insert(volume.name.as_str()) {
                self.add(field(), "another volume has the same name");
            }
        }
        names
    }

    fn container<'a>(
        &mut self,
        container: &'a Container,
        names: &mut HashSet<&'a str>,
        volumes: &HashSet<&str>,
        field: impl Fn() -> Field,
    ) {
        self.check(dns_label(&container.name), || field().name("name"));
        if !container.name.is_empty() && !names.insert(container.name.as_str()) {
            self.add(field().name("name"), "another container has the same name");
        }
        match container.image.as_deref().unwrap_or_default() {
            "" => self.add(field().name("image"), "must not be empty"),
            image if image.trim() != image => {
                self.add(field().name("image"), "must not have leading or trailing whitespace");
            }
            _ => {}
        }
        self.one_of(container.image_pull_policy.as_deref(), &["Always", "IfNotPresent", "Never"], || {
            field().name("imagePullPolicy")
        });
        for (index, variable) in container.env.iter().flatten().enumerate() {
            if variable.name.is_empty() {
                self.add(field().name("env").index(index).name("name"), "must not be empty");
            }
        }
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let field = || field().name("ports").index(index);
            if !(1..=65535).contains(&port.container_port) {
                self.add(field().name("containerPort"), "must be between 1 and 65535");
            }
            // 0 means none, as in the API.
            if port.host_port.is_some_and(|port| !(0..=65535).contains(&port)) {
                self.add(field().name("hostPort"), "must be between 1 and 65535");
            }
            self.one_of(port.protocol.as_deref(), &["TCP", "UDP", "SCTP"], || field().name("protocol"));
        }
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let field = || field().name("volumeMounts").index(index);
            if !volumes.contains(mount.name.as_str()) {
                self.add(field().name("name"), "no volume has this name");
            }
            if mount.mount_path.is_empty() {
                self.add(field().name("mountPath"), "must not be empty");
            }
        }
    }
}
