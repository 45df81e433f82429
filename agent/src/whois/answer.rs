//! The answer to one query: one line of JSON, written by the server and read by the client.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The start of a line whose pod was not found. The client looks for it instead of parsing each line.
pub(super) const NOT_FOUND: &[u8] = br#"{"found":false"#;

/// One answer. All fields of the pod are `None` if it was not found.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    /// Must be the first field; see [`NOT_FOUND`].
    pub(super) found: bool,
    #[serde(borrow)]
    pub(super) query: Cow<'a, str>,
    /// `None` if the query is not an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<Kind>,
    /// Why no pod was found.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Cow<'a, str>>,
    /// The key that found the pod. For a cgroup, for example, the pod's UID or the container's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) found_by: Option<Key>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Cow<'a, str>>,
    /// The UID under which the node knows the pod. `None` for a mirror pod without a static pod.
    #[serde(borrow, default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub(super) pod_uid: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "mirrorUID", skip_serializing_if = "Option::is_none")]
    pub(super) mirror_uid: Option<Cow<'a, str>>,
    /// The container, if the query identifies one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<Owner<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) labels: Option<Cow<'a, BTreeMap<String, String>>>,
}

/// The controller that created the pod.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Owner<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
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
    /// All kinds.
    pub(crate) const ALL: [Self; 8] = [
        Self::Uid,
        Self::ContainerId,
        Self::Cgroup,
        Self::LogPath,
        Self::LogLink,
        Self::Ip,
        Self::Pid,
        Self::Name,
    ];

    /// The value of the metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::ContainerId => "container_id",
            Self::Cgroup => "cgroup",
            Self::LogPath => "log_path",
            Self::LogLink => "log_link",
            Self::Ip => "ip",
            Self::Pid => "pid",
            Self::Name => "name",
        }
    }

    /// The name to show to users.
    pub(super) fn words(self) -> &'static str {
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
pub(super) enum Key {
    Uid,
    MirrorUid,
    ContainerId,
    Ip,
    Name,
}

impl Key {
    /// The name to show to users.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::MirrorUid => "mirror UID",
            Self::ContainerId => "container ID",
            Self::Ip => "IP",
            Self::Name => "name",
        }
    }
}
