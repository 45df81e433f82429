//! Nodes as a resource of the API.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;

use super::printed::{AGE, NAME, since};
use super::resource::Resource;
use super::write::part;

impl Resource for Node {
    const IS_NAMESPACED: bool = false;
    const SHORT_NAMES: &'static [&'static str] = &["no"];
    const FIELDS: &'static [&'static str] = &["metadata.name", "spec.unschedulable"];
    const COLUMNS: &'static [(&'static str, &'static str, u8)] = &[
        NAME,
        ("Status", "The status of the node", 0),
        AGE,
        ("Version", "Kubelet Version reported by the node.", 0),
    ];
    const EMPTY: &'static str = r#","spec":{},"status":{}"#;

    fn field(&self, at: usize) -> &str {
        match Self::FIELDS[at] {
            "metadata.name" => self.metadata.name.as_deref().unwrap_or_default(),
            _ if is_unschedulable(self) => "true",
            _ => "false",
        }
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
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
