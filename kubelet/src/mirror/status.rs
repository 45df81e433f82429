//! How the mirrors are doing, for people and for metrics: plain data.

use std::time::SystemTime;

use serde::Serialize;

use super::client::MirrorErrorKind;
use super::plan::MirrorState;

/// How all mirrors of the node are doing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
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
    /// How many names have a request under way, or wait for the index to show what was done. Among them are names that
    /// `pods` does not list, because the static pod went while its mirror was being made.
    pub pending: usize,
    /// Every static pod and every orphaned mirror, in the order of their names.
    pub pods: Vec<MirrorStatus>,
}

/// How one static pod and its mirror are doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MirrorStatus {
    /// The name that they share.
    pub full_name: String,
    /// The static pod's UID, if there is one.
    pub pod_uid: Option<String>,
    /// The mirror's UID, if there is one.
    pub mirror_uid: Option<String>,
    /// How they stood to each other at the last look.
    pub state: MirrorState,
    /// What has to happen before anything (more) is done about that.
    pub waits_for: Option<WaitsFor>,
    /// When it is tried again, if it waits for that.
    pub next_try: Option<SystemTime>,
    /// How the last attempt to change that failed; or that somebody undoes what is done, which is told for a while even when
    /// the mirror is as it should be.
    pub last_failure: Option<MirrorFailure>,
}

/// What has to happen before anything (more) is done about a mirror.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum WaitsFor {
    /// A source was configured that has not been read: the static pod of this orphan may be in it.
    Sources,
    /// So many requests are under way that it is not its turn.
    Turn,
    /// A request about it is under way.
    Answer,
    /// It is done, and the index has to show it.
    Index,
    /// The wait after a failure has to end.
    BackOff,
    /// It was set right several times, and somebody undid it each time: a wait has to end, that doubles each time.
    Contention,
    /// The static pod is gone from its source, and still ending.
    EndOfPod,
}

/// How an attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MirrorFailure {
    /// What kind of failure it was.
    pub kind: MirrorErrorKind,
    /// What was wrong.
    pub message: String,
    /// When it was.
    pub time: SystemTime,
}
