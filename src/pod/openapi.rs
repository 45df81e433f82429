//! [`PodMeta`] for the full Kubernetes object. The embedder chooses the Kubernetes version, never this crate.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as k8s_time;

use super::{Life, PodKeys, PodMeta, Time};

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
            containers(status).for_each(|container| name_ids(container, keys));
        }
        let uses_nodes_network = self.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if keys.wants_ips() && !uses_nodes_network {
            let ips = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
            // `podIP` repeats the first of `podIPs`, if the server sends those.
            let ip = status.pod_ip.as_deref().filter(|_| status.pod_ips.as_ref().is_none_or(Vec::is_empty));
            ips.chain(ip).for_each(|ip| keys.ip_text(ip));
        }
    }
    /// | fact | says |
    /// |---|---|
    /// | `creationTimestamp` | when the API server stored the pod |
    /// | `startTime` | the kubelet took the pod, before it had a sandbox and an IP |
    /// | `startedAt` of a running container | the present sandbox has had the IP since then; a second of rounding |
    /// | the same of an ended one | likewise if `restartPolicy` is `Never`: such a pod has one sandbox only |
    /// | phase `Succeeded` or `Failed`, or being deleted with all containers ended | the sandbox may be gone, and the IP another pod's |
    /// | `finishedAt` of the last container | the sandbox was there until then |
    fn life(&self) -> Life {
        let seconds =
            |time: &Option<k8s_time::Time>| time.as_ref().map(|time| Time::from_seconds(time.0.as_second()));
        let created = seconds(&self.metadata.creation_timestamp);
        let Some(status) = &self.status else { return Life { created, ..Life::default() } };
        let has_one_sandbox =
            self.spec.as_ref().is_some_and(|spec| spec.restart_policy.as_deref() == Some("Never"));
        let (mut ip_by, mut ip_until, mut all_ended) = (None, None, None);
        for state in containers(status).map(|container| container.state.as_ref()) {
            let running = state.and_then(|state| state.running.as_ref());
            // Of a container that the kubelet lost, it makes up an end.
            let ended = state.and_then(|state| state.terminated.as_ref());
            let ended = ended.filter(|ended| ended.reason.as_deref() != Some("ContainerStatusUnknown"));
            let started = running.map(|running| &running.started_at);
            let started = started.or(ended.filter(|_| has_one_sandbox).map(|ended| &ended.started_at));
            let started = started.and_then(seconds).map(|at| at.saturating_add(Duration::from_secs(1)));
            ip_by = [ip_by, started].into_iter().flatten().min();
            ip_until = ip_until.max(ended.and_then(|ended| seconds(&ended.finished_at)));
            all_ended =
                Some(all_ended.unwrap_or(true) && state.is_some_and(|state| state.terminated.is_some()));
        }
        let is_final = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let stopped = is_final || (self.metadata.deletion_timestamp.is_some() && all_ended == Some(true));
        Life { created, ip_not_before: seconds(&status.start_time), ip_by, stopped, ip_until }
    }
}

/// The statuses of all containers.
fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } = status;
    [container_statuses, init_container_statuses, ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
}

/// Names the ID of a container, and of its previous run.
fn name_ids(container: &ContainerStatus, keys: &mut PodKeys<'_>) {
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.and_then(|terminated| terminated.container_id.as_deref());
    for id in [container.container_id.as_deref(), last].into_iter().flatten() {
        keys.container_id(&container.name, id);
    }
}
