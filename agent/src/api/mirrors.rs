//! Static pods and their mirror pods: the response of `/mirrors`, which the commands read. They ignore unknown content,
//! because the agent may be newer.
#![allow(clippy::struct_field_names, reason = "the fields have the names of the response")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::mirror::{MirrorFailure, MirrorStatus, Planned};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::types::time;

/// The response of `/mirrors`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Mirrors {
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
    pub(crate) pods: Vec<Pair>,
    /// Mirror pods of this node with no matching static pod.
    pub(crate) orphans: Vec<Pair>,
}

/// A static pod and its mirror, or one of the two.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pair {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub(crate) pod_uid: Option<String>,
    #[serde(rename = "mirrorUID", skip_serializing_if = "Option::is_none")]
    pub(crate) mirror_uid: Option<String>,
    /// The state of the pair, as far as this agent manages it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// Why the last attempt failed.
    last_error: Option<Value>,
}

impl Pair {
    /// A pair that another process manages. Its sync state is unknown, because the kubelet computes its own hashes.
    pub(crate) fn of(planned: &Planned) -> Self {
        let uid = |pod: &Arc<Pod>| pod.uid().to_owned();
        Self {
            namespace: planned.full_name.namespace().to_owned(),
            name: planned.full_name.name().to_owned(),
            pod_uid: planned.pod.as_ref().map(uid),
            mirror_uid: planned.mirror.as_ref().map(uid),
            ..Self::default()
        }
    }

    /// A pair that this agent manages, with the result of the last comparison.
    pub(crate) fn managed(planned: &Planned, known: Option<&MirrorStatus>) -> Self {
        let error = |MirrorFailure { kind, message, time: at, .. }: &MirrorFailure| json!({ "kind": kind.as_str(), "message": message, "time": time(*at) });
        let state = serde_json::to_value(planned.state).unwrap_or_default();
        Self {
            state: state.as_str().map(str::to_owned),
            last_error: known.and_then(|known| known.last_failure.as_ref()).map(error),
            ..Self::of(planned)
        }
    }
}
