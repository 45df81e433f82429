//! Nodes as a resource of the API.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::printed::{AGE, NAME, since};
use super::resource::{Item, Resource};
use super::write::part;

pub(super) static NODES: Resource = Resource {
    is_namespaced: false,
    short_names: &["no"],
    fields: &["metadata.name", "spec.unschedulable"],
    columns: &[NAME, ("Status", 0), AGE, ("Version", 0)],
    ..Resource::of::<Node, Node>()
};

impl Item for Node {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn field(&self, at: usize) -> &str {
        match NODES.fields[at] {
            "metadata.name" => self.metadata.name.as_deref().unwrap_or_default(),
            _ if is_unschedulable(self) => "true",
            _ => "false",
        }
    }

    fn write_rest(&self, _: &Resource, out: &mut Vec<u8>) {
        part(out, "spec", self.spec.as_ref());
        part(out, "status", self.status.as_ref());
    }

    /// The API server's `printNode`, without roles, addresses and what `-o wide` adds.
    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let ready = match ready {
            Some(ready) if ready.status == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        };
        let scheduling = if is_unschedulable(self) { ",SchedulingDisabled" } else { "" };
        let info = status.and_then(|status| status.node_info.as_ref());
        vec![
            self.field(0).to_owned(),
            format!("{ready}{scheduling}"),
            since(self.metadata.creation_timestamp.as_ref(), now),
            info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
        ]
    }
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}
