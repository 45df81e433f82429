//! [`PodMeta`] for the full Kubernetes object. The embedder chooses the Kubernetes version, never this crate.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::{PodKeys, PodMeta};

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
    fn ephemeral_container_count(&self) -> usize {
        self.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref()).map_or(0, Vec::len)
    }
    /// The IDs of all containers, including the last terminated ones, and the IPs, unless the pod uses its
    /// node's.
    fn keys(&self, keys: &mut PodKeys<'_>) {
        if let Some(created) = &self.metadata.creation_timestamp {
            keys.created(created.0.as_second());
        }
        keys.terminating(self.metadata.deletion_timestamp.is_some());
        let Some(status) = &self.status else { return };
        keys.finished(matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")));
        if keys.wants_container_ids() {
            let lists = [
                &status.container_statuses,
                &status.init_container_statuses,
                &status.ephemeral_container_statuses,
            ];
            lists.into_iter().flatten().flatten().for_each(|container| name_ids(container, keys));
        }
        let uses_nodes_network = self.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if keys.wants_ips() && !uses_nodes_network {
            let ips = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
            // `podIP` repeats the first of `podIPs`, if the server sends those.
            let ip = status.pod_ip.as_deref().filter(|_| status.pod_ips.as_ref().is_none_or(Vec::is_empty));
            ips.chain(ip).for_each(|ip| keys.ip_text(ip));
        }
    }
}

/// Names the ID of a container, and of its previous run.
fn name_ids(container: &ContainerStatus, keys: &mut PodKeys<'_>) {
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.and_then(|terminated| terminated.container_id.as_deref());
    for id in [container.container_id.as_deref(), last].into_iter().flatten() {
        keys.container_id(&container.name, id);
    }
}
