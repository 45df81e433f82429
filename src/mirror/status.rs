//! How the mirrors are doing, for people and for metrics: plain data.

use serde::Serialize;

use super::plan::MirrorState;

/// How all mirrors of the node are doing.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MirrorsStatus {
    /// How often snapshot and desire have been compared.
    pub passes: u64,
    /// How many mirrors have been created.
    pub created: u64,
    /// How many mirrors have been deleted.
    pub deleted: u64,
    /// How many attempts have failed.
    pub failed: u64,
    /// Every static pod and every orphaned mirror, in the order of their names.
    pub pods: Vec<MirrorStatus>,
}

/// How one static pod and its mirror are doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct MirrorStatus {
    /// The name that they share.
    pub full_name: String,
    /// The static pod's UID, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The mirror's UID, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_uid: Option<String>,
    /// How they stand to each other.
    pub state: MirrorState,
    /// Why the last attempt to change that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}
