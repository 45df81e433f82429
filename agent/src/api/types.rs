//! The agent's own response types: written by the server, read by the client.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use pod_index::PodMeta;
use pod_index_kubelet::mirror::{MirrorFailure, MirrorState, MirrorStatus, Planned, WaitsFor};
use pod_index_kubelet::sources::SourceStatus;

/// The response of `/translate/{uid}`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Translation {
    /// The UID in the request.
    pub(crate) uid: String,
    /// The UID under which the node knows the pod.
    #[serde(rename = "podUID")]
    pub(crate) pod_uid: String,
    /// Whether `uid` is a mirror pod's UID.
    pub(crate) is_mirror_pod: bool,
    /// The pod with `podUID`, if it is in the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<PodName>,
}

/// Identifies a pod.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl PodName {
    pub(crate) fn of(pod: &impl PodMeta) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() }
    }
}

/// The columns of a `Table` at `/pods`. New ones are added at the end. `Created` is a time; `Images` and `Labels` are
/// separated by commas.
#[rustfmt::skip]
pub(crate) const TABLE_COLUMNS: [&str; 15] = [
    "Namespace", "Name", "UID", "Source", "Kind", "Phase", "Node", "Ready", "Status", "Restarts", "Created", "IP",
    "Workload", "Images", "Labels",
];

/// The response of `/sources`.
#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "the list goes by the name of its path, as Kubernetes' do")]
pub(crate) struct Sources {
    /// The node whose pods are served.
    pub(crate) node: String,
    /// Whether the pods of every source are in the index.
    pub(crate) ready: bool,
    pub(crate) sources: Vec<SourceLine>,
    /// The state of the other resources that the agent follows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<SourceLine>,
}

/// The state of one source.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceLine {
    #[serde(flatten)]
    status: SourceStatus,
    /// Replaces the status's own field, in Kubernetes' time format.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_check: Option<Time>,
    /// Time since the source last responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_since_heard: Option<u64>,
}

impl From<SourceStatus> for SourceLine {
    fn from(mut status: SourceStatus) -> Self {
        let last_check = status.last_check.take().and_then(time);
        let seconds_since_heard = status.silence().map(|silence| silence.as_secs());
        Self { status, last_check, seconds_since_heard }
    }
}

/// The response of `/mirrors`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MirrorPods {
    /// Whether this agent manages mirror pods.
    pub(crate) managed: bool,
    /// Why it has not started to, why it has stopped, or why it would not notice a new kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// How often pods and mirrors were compared.
    pub(crate) passes: u64,
    pub(crate) created: u64,
    pub(crate) deleted: u64,
    /// Failed attempts to create or delete a mirror pod.
    pub(crate) failed: u64,
    /// All static pods.
    pub(crate) pods: Vec<MirrorLine>,
    /// Mirror pods of this node with no matching static pod.
    pub(crate) orphans: Vec<MirrorLine>,
}

/// A static pod and its mirror, or one of the two.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MirrorLine {
    namespace: String,
    name: String,
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    #[serde(rename = "mirrorUID", skip_serializing_if = "Option::is_none")]
    mirror_uid: Option<String>,
    /// The state of the pair, as far as this agent manages it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<MirrorState>,
    /// What this agent waits for before it acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<Waiting>,
    /// Time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<MirrorProblem>,
}

/// What has to happen before the agent changes mirror pods.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Waiting {
    /// Every source has to be read: any of them may have a static pod.
    Sources,
    /// The agent has to confirm that no kubelet runs on the node.
    KubeletCheck,
    #[serde(untagged)]
    Mirror(WaitsFor),
}

/// Why the last attempt failed.
#[derive(Debug, Serialize)]
struct MirrorProblem {
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Time>,
}

impl MirrorLine {
    /// A pair that another process manages. Its sync state is unknown, because the kubelet computes its own hashes.
    pub(crate) fn pair(planned: &Planned) -> Self {
        let uid = |pod: &Arc<Pod>| pod.uid().to_owned();
        Self {
            namespace: planned.full_name.namespace().to_owned(),
            name: planned.full_name.name().to_owned(),
            pod_uid: planned.pod.as_ref().map(uid),
            mirror_uid: planned.mirror.as_ref().map(uid),
            state: None,
            waits_for: None,
            next_try: None,
            last_error: None,
        }
    }

    /// A pair, with the result of the last comparison. Before the first one, with what that waits for.
    pub(crate) fn managed(
        planned: &Planned,
        known: Option<&MirrorStatus>,
        all_wait: Option<Waiting>,
    ) -> Self {
        let is_wrong = !matches!(planned.state, MirrorState::InSync | MirrorState::Finished);
        let waits_for = known.and_then(|known| known.waits_for).map(Waiting::Mirror).or(all_wait);
        let problem = |failure: MirrorFailure| MirrorProblem {
            kind: failure.kind.as_str(),
            message: failure.message,
            time: time(failure.time),
        };
        Self {
            state: Some(planned.state),
            waits_for: waits_for.filter(|_| is_wrong),
            next_try: known.and_then(|known| known.next_try).and_then(time),
            last_error: known.and_then(|known| known.last_failure.clone()).map(problem),
            ..Self::pair(planned)
        }
    }

    pub(crate) fn has_pod(&self) -> bool {
        self.pod_uid.is_some()
    }
}

/// A time, truncated to seconds.
fn time(time: SystemTime) -> Option<Time> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(since_epoch.as_secs()).ok()?).ok().map(Time)
}
