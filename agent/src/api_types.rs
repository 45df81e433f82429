//! What the agent answers besides pods, as it goes over the wire: written by the server, read by the client.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::table;
use pod_index::PodMeta;
use pod_index_kubelet::mirror::{MirrorFailure, MirrorState, MirrorStatus, Planned, WaitsFor};
use pod_index_kubelet::sources::SourceStatus;

/// The answer of `/translate/{uid}`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Translation {
    /// What was asked.
    pub(super) uid: String,
    /// The UID under which the node knows the pod.
    #[serde(rename = "podUID")]
    pub(super) pod_uid: String,
    /// Whether `uid` is a mirror pod's.
    pub(super) is_mirror_pod: bool,
    /// The pod with `podUID`, if the index has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<PodName>,
}

/// Which pod.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PodName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PodName {
    pub(super) fn of(pod: &impl PodMeta) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() }
    }
}

/// What a `Table` tells of each pod.
pub(super) const TABLE_COLUMNS: [&str; 7] = ["Namespace", "Name", "UID", "Source", "Kind", "Phase", "Node"];

/// One pod, as a row of a `Table`.
#[derive(Debug, Serialize)]
pub(super) struct TableRow<'a> {
    cells: [&'a str; 7],
    /// Nothing: whoever wants the pod itself asks for it.
    object: (),
}

impl<'a> TableRow<'a> {
    /// What there is to tell of this pod.
    pub(super) fn of(pod: &'a Pod) -> Self {
        let [namespace, name, uid, source, kind, phase] = table::row(pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        Self { cells: [namespace, name, uid, source, kind, phase, node], object: () }
    }
}

/// The answer of `/sources`.
#[derive(Debug, Serialize)]
#[allow(clippy::struct_field_names, reason = "the list goes by the name of its path, as Kubernetes' do")]
pub(super) struct Sources {
    /// The node whose pods these are.
    pub(super) node: String,
    /// Whether the pods of every source have reached the index.
    pub(super) ready: bool,
    pub(super) sources: Vec<SourceLine>,
}

/// How one source is doing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceLine {
    #[serde(flatten)]
    status: SourceStatus,
    /// In place of the status's own, as Kubernetes writes times.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_check: Option<Time>,
    /// How long ago the source's place was last heard.
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

/// The answer of `/mirrors`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MirrorPods {
    /// Whether this agent keeps them.
    pub(super) managed: bool,
    /// Why it has not begun to, or would not notice a kubelet that comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// How often pods and mirrors have been compared.
    pub(super) passes: u64,
    pub(super) created: u64,
    pub(super) deleted: u64,
    /// How many attempts to create or delete one have failed.
    pub(super) failed: u64,
    /// Every static pod.
    pub(super) pods: Vec<MirrorLine>,
    /// Every mirror pod of this node without a static pod.
    pub(super) orphans: Vec<MirrorLine>,
}

/// A static pod and its mirror, or one of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MirrorLine {
    namespace: String,
    name: String,
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    #[serde(rename = "mirrorUID", skip_serializing_if = "Option::is_none")]
    mirror_uid: Option<String>,
    /// How they stand to each other, as far as the agent has a say in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<MirrorState>,
    /// What has to happen before this agent does anything about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<Waiting>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<MirrorProblem>,
}

/// What has to happen before anything is done about mirror pods.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Waiting {
    /// Every source has to be read: a static pod may be in it.
    Sources,
    /// It has to be clear that no kubelet runs on the node.
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
    /// A pair that somebody else keeps. Whether it is as that one wants it cannot be said: a kubelet's hashes are its own.
    pub(super) fn pair(planned: &Planned) -> Self {
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

    /// A pair as it stands, and what the last look had to say about it; before the first look, what that one waits for.
    pub(super) fn managed(
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

    pub(super) fn has_pod(&self) -> bool {
        self.pod_uid.is_some()
    }
}

/// A time to the second.
fn time(time: SystemTime) -> Option<Time> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(since_epoch.as_secs()).ok()?).ok().map(Time)
}
