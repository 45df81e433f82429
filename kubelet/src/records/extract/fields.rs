//! The `metadata` list: fields of the pod, its containers and its owners.

use std::collections::BTreeSet;

use super::{Conventions, RulesError};
use crate::text::shorten;

/// Every field, and whether it is of a container.
const FIELDS: [(&str, bool); 31] = [
    ("container.id", true),
    ("container.image.name", true),
    ("container.image.repo_digests", true),
    ("container.image.tag", true),
    ("container.image.tags", true),
    ("k8s.cluster.uid", false),
    ("k8s.container.name", true),
    ("k8s.cronjob.name", false),
    ("k8s.cronjob.uid", false),
    ("k8s.daemonset.name", false),
    ("k8s.daemonset.uid", false),
    ("k8s.deployment.name", false),
    ("k8s.deployment.uid", false),
    ("k8s.job.name", false),
    ("k8s.job.uid", false),
    ("k8s.namespace.name", false),
    ("k8s.node.name", false),
    ("k8s.node.uid", false),
    ("k8s.pod.hostname", false),
    ("k8s.pod.ip", false),
    ("k8s.pod.name", false),
    ("k8s.pod.start_time", false),
    ("k8s.pod.uid", false),
    ("k8s.replicaset.name", false),
    ("k8s.replicaset.uid", false),
    ("k8s.statefulset.name", false),
    ("k8s.statefulset.uid", false),
    ("service.instance.id", true),
    ("service.name", false),
    ("service.namespace", false),
    ("service.version", true),
];

/// What is extracted without a list.
const DEFAULT: [&str; 7] = [
    "container.image.name",
    "k8s.deployment.name",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.pod.name",
    "k8s.pod.start_time",
    "k8s.pod.uid",
];

/// The chosen fields.
#[derive(Debug, Default)]
pub(in super::super) struct Fields(BTreeSet<&'static str>);

impl Fields {
    pub(super) fn new(list: Option<Vec<String>>, conventions: Conventions) -> Result<Self, RulesError> {
        let Some(list) = list else {
            let tag = match conventions {
                Conventions::V0 => "container.image.tag",
                Conventions::V1 => "container.image.tags",
            };
            return Ok(Self(DEFAULT.into_iter().chain([tag]).collect()));
        };
        let known = |(number, name): (usize, &String)| {
            let field = FIELDS.iter().find(|(field, _)| field == name);
            field.map(|(field, _)| *field).ok_or_else(|| {
                let message = format!("{:?} is not supported", shorten(name));
                RulesError::new(format!("extract.metadata[{number}]"), message)
            })
        };
        Ok(Self(list.iter().enumerate().map(known).collect::<Result<_, _>>()?))
    }

    pub(in super::super) fn has(&self, field: &str) -> bool {
        self.0.contains(field)
    }

    /// Whether it is a chosen field of containers.
    pub(super) fn is_of_container(&self, name: &str) -> bool {
        self.has(name) && FIELDS.iter().any(|(field, of_container)| *field == name && *of_container)
    }
}
