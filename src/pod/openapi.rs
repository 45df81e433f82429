//! [`PodMeta`] for the full Kubernetes object. The embedder chooses the Kubernetes version, never this crate.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as k8s_time, ObjectMeta};

use super::workload::{WORKLOAD, Workload};
use super::{ENDED_ANNOTATION, Life, PodKeys, PodMeta, Time, is_static_pod};

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
    /// The IDs of all containers, including the last terminated ones, the IPs, unless the pod uses its node's or has given them
    /// back ([`ENDED_ANNOTATION`]), and the [workload](WORKLOAD).
    fn keys(&self, keys: &mut PodKeys<'_>) {
        claim_keys(self, Workload::of(&self.metadata, None::<&ObjectMeta>), keys);
    }
    /// | fact | says |
    /// |---|---|
    /// | `creationTimestamp`, unless the pod is static | when the API server stored the pod; a manifest may have any |
    /// | `startTime` | the kubelet took the pod, before it had a sandbox and an IP |
    /// | `startedAt` of a running container | the present sandbox has had the IP since then; a second of rounding |
    /// | the same of an ended one | likewise if `restartPolicy` is `Never`, and no container has its own: such a pod has one sandbox only |
    /// | `startedAt` before `startTime` | nothing: a container that could not start has 1970 |
    /// | phase `Succeeded` or `Failed` | the sandbox may be gone, and the IP another pod's |
    /// | no container runs, and the pod is being deleted, or the condition `PodReadyToStartContainers` is not true or, without that condition, one has run | likewise: the kubelet keeps the IP in the status until the pod has another sandbox |
    /// | `finishedAt` of the last container | the sandbox was there until then |
    fn life(&self) -> Life {
        let created = self.metadata.creation_timestamp.as_ref().map(seconds);
        let created = created.filter(|_| !is_static_pod(self));
        let Some(status) = &self.status else { return Life { created, ..Life::default() } };
        let ip_not_before = status.start_time.as_ref().map(seconds);
        let runs = Runs::of(self, status, ip_not_before.unwrap_or(Time::from_seconds(1)));
        Life {
            created,
            ip_not_before,
            ip_by: runs.started_by,
            may_lack_sandbox: is_finished(status)
                || runs.are_over && may_end(self, status, runs.has_ended_one),
            ip_until: runs.last_end,
        }
    }
}

/// What the statuses of a pod's containers say about its sandbox, which is there as long as one of them runs.
#[derive(Default)]
struct Runs {
    /// The first start in the present sandbox, a second later because of the rounding.
    started_by: Option<Time>,
    /// The last end of a present run.
    last_end: Option<Time>,
    /// There are containers, and none of them runs.
    are_over: bool,
    /// A present run, or one before it, has ended.
    has_ended_one: bool,
}

impl Runs {
    /// A start before `not_before` says nothing.
    fn of(pod: &Pod, status: &PodStatus, not_before: Time) -> Self {
        let has_one_sandbox = has_one_sandbox(pod);
        let mut runs = Self::default();
        let mut is_any = false;
        let mut is_running = false;
        for container in containers(status) {
            let state = container.state.as_ref();
            let running = state.and_then(|state| state.running.as_ref());
            let terminated = state.and_then(|state| state.terminated.as_ref());
            // Of a container that the kubelet lost, it makes up an end.
            let ended = terminated.filter(|ended| ended.reason.as_deref() != Some("ContainerStatusUnknown"));
            let started = match (running, ended) {
                (Some(running), _) => running.started_at.as_ref(),
                (None, Some(ended)) if has_one_sandbox => ended.started_at.as_ref(),
                (None, _) => None,
            };
            let started = started.map(seconds).filter(|at| *at >= not_before);
            let started_by = started.map(|at| at.saturating_add(Duration::from_secs(1)));
            runs.started_by = [runs.started_by, started_by].into_iter().flatten().min();
            runs.last_end =
                runs.last_end.max(ended.and_then(|ended| ended.finished_at.as_ref()).map(seconds));
            runs.has_ended_one |= terminated.or_else(|| last_run(container)).is_some();
            is_any = true;
            is_running |= running.is_some();
        }
        runs.are_over = is_any && !is_running;
        runs
    }
}

/// Whether the kubelet never gives the pod another sandbox: it starts no container again.
fn has_one_sandbox(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.restart_policy.as_deref() == Some("Never")
            && spec.containers.iter().all(|container| container.restart_policy.is_none())
    })
}

/// Whether a pod of which no container runs may have lost its sandbox: it is being deleted, or the kubelet does not say that the
/// sandbox is there. A kubelet without that condition says nothing; then a container has run.
fn may_end(pod: &Pod, status: &PodStatus, has_run: bool) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let sandbox = conditions.find(|condition| condition.type_ == "PodReadyToStartContainers");
    let may_be_gone = sandbox.map_or(has_run, |condition| condition.status != "True");
    pod.metadata.deletion_timestamp.is_some() || may_be_gone
}

fn seconds(time: &k8s_time::Time) -> Time {
    Time::from_seconds(time.0.as_second())
}

/// Claims a pod's additional keys, as [`PodMeta::keys`] does for a `Pod`, with this workload. For a type that has a pod in it,
/// and knows more of its owner.
///
/// # Complexity
/// Linear in the number of containers and IPs.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index::workload::Workload;
/// use pod_index::{PodKeys, PodMeta, claim_keys};
///
/// struct OfTeam { pod: Pod, team: String }
///
/// impl PodMeta for OfTeam {
///     fn uid(&self) -> &str { self.pod.uid() }
///     fn name(&self) -> &str { self.pod.name() }
///     fn namespace(&self) -> &str { self.pod.namespace() }
///     fn annotation(&self, key: &str) -> Option<&str> { self.pod.annotation(key) }
///     fn keys(&self, keys: &mut PodKeys<'_>) {
///         claim_keys(&self.pod, Some(Workload { kind: "Team", name: &self.team, derived: false }), keys);
///     }
/// }
/// # let mut pod = Pod::default();
/// # (pod.metadata.uid, pod.metadata.name) = (Some("u".into()), Some("web".into()));
/// # pod.metadata.namespace = Some("shop".into());
/// # let (mut writer, reader) = pod_index::new();
/// # writer.upsert_pod(OfTeam { pod, team: "a".into() }).unwrap();
/// # assert_eq!(reader.load().pods_by_custom_key(pod_index::workload::WORKLOAD, b"shop/Team/a").count(), 1);
/// ```
pub fn claim_keys(pod: &Pod, workload: Option<Workload<'_>>, keys: &mut PodKeys<'_>) {
    claim_keys_of_object(pod, workload, keys);
    // A pod that no kubelet has seen yet has none.
    if let Some(status) = &pod.status {
        claim_keys_of_status(pod, status, keys);
    }
}

/// What the pod's metadata and spec say, from its creation on.
fn claim_keys_of_object(pod: &Pod, workload: Option<Workload<'_>>, keys: &mut PodKeys<'_>) {
    if let Some(created) = &pod.metadata.creation_timestamp {
        keys.created(created.0.as_second());
    }
    keys.terminating(pod.metadata.deletion_timestamp.is_some());
    if let Some(workload) = workload {
        keys.custom_key(WORKLOAD, workload.key(pod.namespace()));
    }
}

/// What the kubelet says.
fn claim_keys_of_status(pod: &Pod, status: &PodStatus, keys: &mut PodKeys<'_>) {
    keys.finished(is_finished(status));
    containers(status).for_each(|container| claim_container_ids(container, keys));
    let uses_nodes_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    if !uses_nodes_network && pod.annotation(ENDED_ANNOTATION).is_none() {
        let ips = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
        // `podIP` repeats the first of `podIPs`, if the server sends those.
        let ip = status.pod_ip.as_deref().filter(|_| status.pod_ips.as_ref().is_none_or(Vec::is_empty));
        ips.chain(ip).for_each(|ip| keys.ip_text(ip));
    }
}

fn is_finished(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The statuses of all containers.
fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } = status;
    [container_statuses, init_container_statuses, ephemeral_container_statuses]
        .into_iter()
        .flatten()
        .flatten()
}

/// Claims the ID of a container, and of its previous run.
fn claim_container_ids(container: &ContainerStatus, keys: &mut PodKeys<'_>) {
    let last = last_run(container).and_then(|terminated| terminated.container_id.as_deref());
    for id in [container.container_id.as_deref(), last].into_iter().flatten() {
        keys.container_id(&container.name, id);
    }
}

/// The end of a container's previous run.
fn last_run(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.last_state.as_ref()?.terminated.as_ref()
}
