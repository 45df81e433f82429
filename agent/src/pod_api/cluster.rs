//! Nodes and Namespaces as resources of the API.

use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::printed::{AGE, NAME, since};
use super::resource::{Item, Resource};
use super::write::rest;

pub(super) static NODES: Resource = Resource {
    is_namespaced: false,
    short_names: &["no"],
    fields: &["metadata.name", "spec.unschedulable"],
    columns: &[NAME, ("Status", 0), AGE, ("Version", 0)],
    ..Resource::of::<Node, Node>()
};

pub(super) static NAMESPACES: Resource = Resource {
    is_namespaced: false,
    short_names: &["ns"],
    fields: &["metadata.name", "status.phase"],
    columns: &[NAME, ("Status", 0), AGE],
    ..Resource::of::<Namespace, Namespace>()
};

impl Item for Node {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn field(&self, name: &str) -> &str {
        match name {
            "metadata.name" => self.metadata.name.as_deref().unwrap_or_default(),
            _ if self.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) => "true",
            _ => "false",
        }
    }

    fn write_rest(&self, _: &Resource, out: &mut Vec<u8>) {
        rest(out, self.spec.as_ref(), self.status.as_ref());
    }

    /// The API server's `printNode`, without roles, addresses and what `-o wide` adds.
    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.as_ref();
        let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = match conditions.find(|condition| condition.type_ == "Ready") {
            Some(ready) if ready.status == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        };
        let scheduling = if self.field("spec.unschedulable") == "true" { ",SchedulingDisabled" } else { "" };
        let info = status.and_then(|status| status.node_info.as_ref());
        vec![
            self.field("metadata.name").to_owned(),
            format!("{ready}{scheduling}"),
            since(self.metadata.creation_timestamp.as_ref(), now),
            info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        ]
    }
}

impl Item for Namespace {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn field(&self, name: &str) -> &str {
        let value = match name {
            "metadata.name" => self.metadata.name.as_deref(),
            _ => self.status.as_ref().and_then(|status| status.phase.as_deref()),
        };
        value.unwrap_or_default()
    }

    fn write_rest(&self, _: &Resource, out: &mut Vec<u8>) {
        rest(out, self.spec.as_ref(), self.status.as_ref());
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let [name, phase] = ["metadata.name", "status.phase"].map(|field| self.field(field).to_owned());
        vec![name, phase, since(self.metadata.creation_timestamp.as_ref(), now)]
    }
}
