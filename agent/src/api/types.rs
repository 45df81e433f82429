//! The agent's own response types: written by the server, read by the client.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use pod_index::PodMeta;
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
    /// The other resources that are known only from checkpoints, and the age of these in seconds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) restored: BTreeMap<String, u64>,
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

/// A time, truncated to seconds.
pub(super) fn time(time: SystemTime) -> Option<Time> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(since_epoch.as_secs()).ok()?).ok().map(Time)
}
