//! The answer to one query: one line of JSON. `docs/reference.md` describes its fields. Clients of other versions read it,
//! so a field that is unknown or missing is no error.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index::workload;
use serde::Serialize;

use crate::pod_api::owners::Owners;

/// The start of a line whose pod was not found. The client looks for it instead of parsing each line.
pub(crate) const NOT_FOUND: &[u8] = br#"{"found":false"#;

/// A line that is being written.
pub(super) struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    pub(super) fn new(found: bool, query: &str, to: &'a mut Vec<u8>) -> Self {
        to.extend_from_slice(if found { br#"{"found":true"# } else { NOT_FOUND });
        let mut line = Self(to);
        line.put("query", Some(query));
        line
    }

    /// Appends a field, unless it is `None`, as most fields of most answers are.
    pub(super) fn put(&mut self, name: &str, value: Option<impl Serialize>) {
        let (Self(to), Some(value)) = (self, value) else { return };
        to.extend_from_slice(b",\"");
        to.extend_from_slice(name.as_bytes());
        to.extend_from_slice(b"\":");
        // Writing text to memory does not fail.
        let _ = serde_json::to_writer(&mut **to, &value);
    }

    pub(super) fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }
}

/// Bounds of a time, in RFC 3339. `None`: there is none.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Between {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) earliest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latest: Option<String>,
}

/// A pod that may have had a key.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CandidatePod {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(rename = "podUID")]
    pub(super) pod_uid: String,
    pub(super) from: Between,
    pub(super) until: Between,
}

/// A controller: that of the pod, or the Deployment, `CronJob` or other one that a person created.
#[derive(Debug, Serialize)]
pub(crate) struct Workload<'a> {
    pub(crate) kind: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    /// Whether kind and name follow from names and labels alone. `None` for the pod's own controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) derived: Option<bool>,
}

impl Workload<'_> {
    pub(crate) fn of(pod: &Pod, owners: &Owners) -> Option<Self> {
        let owner = owners.of(pod);
        let owner = owner.as_ref().map(|owner| &owner.metadata);
        let workload = workload::Workload::of::<ObjectMeta>(&pod.metadata, owner)?;
        let (kind, name) = (workload.kind.to_owned().into(), workload.name.to_owned().into());
        Some(Self { kind, name, derived: Some(workload.derived) })
    }
}

/// The kinds of identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    Uid,
    ContainerId,
    Cgroup,
    LogPath,
    LogLink,
    Ip,
    Pid,
    Name,
    Workload,
}

/// The keys of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Key {
    #[default]
    Uid,
    MirrorUid,
    ContainerId,
    Ip,
    Name,
    Workload,
    /// The name, although the query has a container ID too, which no pod has.
    NameOnly,
}
