//! Owners of pods as resources of the API. Only their metadata is known, so that is all that is served; the spec and the
//! status are there for clients that cannot do without, and say nothing.

use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::{Metadata, NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::printed::{AGE, NAME, since};
use super::resource::Resource;

/// A kind that owns pods, or owns what owns them.
pub(super) trait Kind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Metadata<Ty = ObjectMeta>
    + Clone
    + Default
    + DeserializeOwned
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    const SHORT_NAMES: &'static [&'static str];
    /// The JSON of an empty spec. It has what clients require, and what `kubectl describe` takes for granted.
    const SPEC: &'static str = r#","spec":{"replicas":0,"selector":{},"template":{}},"status":{}"#;
}

impl Kind for ReplicaSet {
    const SHORT_NAMES: &'static [&'static str] = &["rs"];
}
impl Kind for Deployment {
    const SHORT_NAMES: &'static [&'static str] = &["deploy"];
}
impl Kind for StatefulSet {
    const SHORT_NAMES: &'static [&'static str] = &["sts"];
}
impl Kind for DaemonSet {
    const SHORT_NAMES: &'static [&'static str] = &["ds"];
    const SPEC: &'static str = r#","spec":{"selector":{},"template":{}},"status":{}"#;
}
impl Kind for Job {
    const SHORT_NAMES: &'static [&'static str] = &[];
    const SPEC: &'static str = r#","spec":{"selector":{},"template":{}},"status":{}"#;
}
impl Kind for CronJob {
    const SHORT_NAMES: &'static [&'static str] = &["cj"];
    const SPEC: &'static str = r#","spec":{"schedule":"","jobTemplate":{}},"status":{}"#;
}

impl<K: Kind> Resource for K {
    const IS_NAMESPACED: bool = true;
    const SHORT_NAMES: &'static [&'static str] = <K as Kind>::SHORT_NAMES;
    const IS_IN_ALL: bool = true;
    const FIELDS: &'static [&'static str] = &["metadata.name", "metadata.namespace"];
    const COLUMNS: &'static [(&'static str, &'static str, u8)] = &[NAME, AGE];
    const EMPTY: &'static str = K::SPEC;

    fn field(&self, at: usize) -> &str {
        let metadata = self.metadata();
        let value = if at == 0 { &metadata.name } else { &metadata.namespace };
        value.as_deref().unwrap_or_default()
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(Self::EMPTY.as_bytes());
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![self.field(0).to_owned(), since(self.metadata().creation_timestamp.as_ref(), now)]
    }
}
