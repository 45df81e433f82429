//! What the agent answers besides pods, as it goes over the wire: written by the server, read by the client.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::PodMeta;
use crate::sources::SourceStatus;

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

/// The answer of `/sources`.
#[derive(Debug, Serialize)]
pub(super) struct Sources {
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
}

impl From<SourceStatus> for SourceLine {
    fn from(mut status: SourceStatus) -> Self {
        let last_check = status.last_check.take().and_then(time);
        Self { status, last_check }
    }
}

/// A time to the second.
fn time(time: SystemTime) -> Option<Time> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(since_epoch.as_secs()).ok()?).ok().map(Time)
}
