//! The answer to one query: one line of JSON, written by the server and read by the client.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::workload;
use serde::{Deserialize, Serialize};

use crate::pod_api::owners::Owners;

/// The start of a line whose pod was not found. The client looks for it instead of parsing each line.
pub(crate) const NOT_FOUND: &[u8] = br#"{"found":false"#;

/// One answer. All fields of the pod are `None` if it was not found.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Answer<'a> {
    /// Must be the first field; see [`NOT_FOUND`].
    pub(crate) found: bool,
    pub(crate) query: Cow<'a, str>,
    /// `None` if the query is not an identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<Kind>,
    /// Why no pod was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Cow<'a, str>>,
    /// The key that found the pod. For a cgroup, for example, the pod's UID or the container's ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found_by: Option<Key>,
    /// How the query contradicts the pod that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) contradiction: Option<String>,
    /// The time of the event, in RFC 3339, if the query has one. Then the answer is of that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<String>,
    /// Bounds of when the pod got the key, and lost it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Between>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Between>,
    /// The pods that may have had the key at the time, the likeliest one first, if none is certain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<CandidatePod>,
    /// The times between which the agent knows of all pods that had a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) known: Option<Between>,
    /// Other pods that claim the key now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) contested: Vec<String>,
    /// When the pod was removed, in RFC 3339. `None` if it still exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<Cow<'a, str>>,
    /// The UID under which the node knows the pod. `None` for a mirror pod without a static pod.
    #[serde(rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub(crate) pod_uid: Option<Cow<'a, str>>,
    #[serde(rename = "mirrorUID", skip_serializing_if = "Option::is_none")]
    pub(crate) mirror_uid: Option<Cow<'a, str>>,
    /// The container, if the query identifies one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Owner<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<Workload<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<Cow<'a, BTreeMap<String, String>>>,
    /// These four only with `details=true`.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub(crate) pod_ip: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<Cow<'a, str>>,
    /// That of the container, or those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<Cow<'a, BTreeMap<String, String>>>,
}

/// Bounds of a time, in RFC 3339. `None`: there is none.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Between {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) earliest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latest: Option<String>,
}

/// A pod that may have had a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CandidatePod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "podUID")]
    pub(crate) pod_uid: String,
    pub(crate) from: Between,
    pub(crate) until: Between,
}

/// The controller that created the pod.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Owner<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
}

/// The Deployment, `CronJob` or other controller that a person created.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Workload<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    /// Whether kind and name follow from names and labels alone.
    pub(crate) derived: bool,
}

impl<'a> Workload<'a> {
    pub(crate) fn of(pod: &'a Pod, owners: &Owners) -> Option<Self> {
        let Some(read) = owners.of(pod) else {
            let workload = workload::Workload::of::<ObjectMeta>(&pod.metadata, None)?;
            let (kind, name) = (workload.kind.into(), workload.name.into());
            return Some(Self { kind, name, derived: workload.derived });
        };
        let workload = workload::Workload::of(&pod.metadata, Some(&*read))?;
        let (kind, name) = (workload.kind.to_owned().into(), workload.name.to_owned().into());
        Some(Self { kind, name, derived: workload.derived })
    }
}

/// The kinds of identities.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Uid,
    ContainerId,
    Cgroup,
    LogPath,
    LogLink,
    Ip,
    Pid,
    Name,
}

impl Kind {
    /// The name to show to users.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::ContainerId => "container ID",
            Self::Cgroup => "cgroup",
            Self::LogPath => "log path",
            Self::LogLink => "log link",
            Self::Ip => "IP",
            Self::Pid => "PID",
            Self::Name => "name",
        }
    }
}

/// The keys of the index.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Key {
    Uid,
    MirrorUid,
    ContainerId,
    Ip,
    Name,
    /// The name, although the query has a container ID too, which no pod has.
    NameOnly,
}

impl Key {
    /// The name to show to users.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::MirrorUid => "mirror UID",
            Self::ContainerId => "container ID",
            Self::Ip => "IP",
            Self::Name => "name",
            Self::NameOnly => "name only",
        }
    }
}
