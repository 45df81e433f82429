//! Nodes and Namespaces as resources of the API.

use std::collections::BTreeSet;

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
    columns: &[
        NAME,
        ("Status", 0),
        ("Roles", 0),
        AGE,
        ("Version", 0),
        ("Internal-IP", 1),
        ("External-IP", 1),
        ("OS-Image", 1),
        ("Kernel-Version", 1),
        ("Container-Runtime", 1),
    ],
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

    /// The API server's `printNode`.
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
        let or_unknown = |text: Option<&String>| {
            text.filter(|text| !text.is_empty()).cloned().unwrap_or_else(|| "<unknown>".to_owned())
        };
        let mut kernel = or_unknown(info.map(|info| &info.kernel_version));
        if let Some(info) = info.filter(|info| !info.architecture.is_empty()) {
            kernel = format!("{kernel} ({})", info.architecture);
        }
        let address = |kind: &str| {
            let mut addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
            let found = addresses.find(|address| address.type_ == kind);
            found.map_or_else(|| "<none>".to_owned(), |found| found.address.clone())
        };
        vec![
            self.field("metadata.name").to_owned(),
            format!("{ready}{scheduling}"),
            roles(&self.metadata),
            since(self.metadata.creation_timestamp.as_ref(), now),
            info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
            address("InternalIP"),
            address("ExternalIP"),
            or_unknown(info.map(|info| &info.os_image)),
            kernel,
            or_unknown(info.map(|info| &info.container_runtime_version)),
        ]
    }
}

/// The roles that the labels of a Node give it, in order.
///
/// API server: `findNodeRoles` (`pkg/printers/internalversion/printers.go`).
fn roles(metadata: &ObjectMeta) -> String {
    let labels = metadata.labels.iter().flatten();
    let role = |(key, value): (&'_ String, &'_ String)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None => (key == "kubernetes.io/role").then(|| value.clone()),
    };
    let roles: BTreeSet<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() {
        return "<none>".to_owned();
    }
    roles.into_iter().collect::<Vec<_>>().join(",")
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cells(node: Value) -> Vec<String> {
        let node: Node = serde_json::from_value(node).unwrap();
        let cells = node.cells("2026-01-02T00:00:00Z".parse().unwrap());
        assert_eq!(cells.len(), NODES.columns.len());
        cells
    }

    #[test]
    fn a_node_is_printed_as_by_the_api_server() {
        let node = json!({
            "metadata": {
                "name": "node-1", "creationTimestamp": "2026-01-01T23:00:00Z",
                "labels": {
                    "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "",
                    "node-role.kubernetes.io/": "", "kubernetes.io/role": "storage", "kubernetes.io/os": "linux",
                },
            },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "addresses": [
                    { "type": "Hostname", "address": "node-1" }, { "type": "InternalIP", "address": "10.0.0.1" },
                    { "type": "InternalIP", "address": "fd00::1" }, { "type": "ExternalIP", "address": "192.0.2.1" },
                ],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "machineID": "", "operatingSystem": "", "systemUUID": "",
                    "kubeProxyVersion": "", "kubeletVersion": "v1.36.2", "osImage": "Debian GNU/Linux 12",
                    "kernelVersion": "6.1.0", "containerRuntimeVersion": "containerd://2.1.4",
                },
            },
        });
        assert_eq!(
            cells(node),
            [
                "node-1",
                "Ready",
                "control-plane,storage,worker",
                "60m",
                "v1.36.2",
                "10.0.0.1",
                "192.0.2.1",
                "Debian GNU/Linux 12",
                "6.1.0 (amd64)",
                "containerd://2.1.4",
            ]
        );
        assert_eq!(
            cells(json!({ "metadata": { "name": "new" } })),
            [
                "new",
                "Unknown",
                "<none>",
                "<unknown>",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>",
            ]
        );
    }
}
