//! Status of the mirrors, for people and metrics. Plain data.

use serde::Serialize;

use super::client::MirrorFailure;
use super::plan::MirrorState;

/// Status of all mirrors of the node.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct MirrorsStatus {
    /// How often actual and desired state have been compared.
    pub passes: u64,
    /// Number of mirrors created.
    pub created: u64,
    /// Number of mirrors deleted.
    pub deleted: u64,
    /// Number of failed attempts.
    pub failed: u64,
    /// Number of names with a request under way, or with a change that the index does not show yet. Includes
    /// names that `pods` does not list because the static pod was removed while its mirror was created.
    pub pending: usize,
    /// All static pods and orphaned mirrors, sorted by name.
    pub pods: Vec<MirrorStatus>,
}

/// Status of one static pod and its mirror.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MirrorStatus {
    /// Their common full name.
    pub full_name: String,
    /// The static pod's UID, if there is one.
    pub pod_uid: Option<String>,
    /// The mirror's UID, if there is one.
    pub mirror_uid: Option<String>,
    /// How they related at the last look.
    pub state: MirrorState,
    /// What has to happen before the next change.
    pub waits_for: Option<WaitsFor>,
    /// The last failed attempt, or the report that another client keeps undoing the change. The report stays
    /// for a while even if the mirror is correct.
    pub last_failure: Option<MirrorFailure>,
}

/// What has to happen before a mirror is changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum WaitsFor {
    /// A configured source has not been read, and may contain this orphan's static pod.
    Sources,
    /// Too many requests are under way.
    Turn,
    /// A request about it is under way.
    Answer,
    /// The change is done, but the index does not show it yet.
    Index,
    /// The wait after a failure.
    BackOff,
    /// It was corrected several times and undone each time. The wait doubles each time.
    Contention,
}
