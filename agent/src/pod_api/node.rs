//! Nodes as a resource of the API.

use std::collections::BTreeSet;

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
        ("Roles", "The roles of the node", 0),
        AGE,
        ("Version", "Kubelet Version reported by the node.", 0),
        ("Internal-IP", "List of addresses reachable to the node.", 1),
        ("External-IP", "List of addresses reachable to the node.", 1),
        (
            "OS-Image",
            "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).",
            1,
        ),
        (
            "Kernel-Version",
            "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).",
            1,
        ),
        (
            "Container-Runtime",
            "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).",
            1,
        ),
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

    /// The API server's `printNode`.
    fn cells(&self, now: Timestamp) -> Vec<String> {
        let status = self.status.clone().unwrap_or_default();
        let info = status.node_info.unwrap_or_default();
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let mut words = vec![match ready {
            Some(ready) if ready.status == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }];
        words.extend(is_unschedulable(self).then_some("SchedulingDisabled"));
        let address = |kind: &str| {
            let mut addresses = status.addresses.iter().flatten();
            let found = addresses.find(|address| address.type_ == kind);
            found.map_or("<none>", |address| &address.address).to_owned()
        };
        let or_unknown = |text: String| if text.is_empty() { "<unknown>".to_owned() } else { text };
        vec![
            self.field(0).to_owned(),
            words.join(","),
            roles(self),
            since(self.metadata.creation_timestamp.as_ref(), now),
            info.kubelet_version,
            address("InternalIP"),
            address("ExternalIP"),
            or_unknown(info.os_image),
            or_unknown(info.kernel_version),
            or_unknown(info.container_runtime_version),
        ]
    }
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// The API server's `findNodeRoles`.
fn roles(node: &Node) -> String {
    let role = |(key, value): (&'_ String, &'_ String)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None => (key == "kubernetes.io/role").then(|| value.clone()),
    };
    let labels = node.metadata.labels.iter().flatten();
    let roles: BTreeSet<_> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}
