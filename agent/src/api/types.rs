//! The agent's own response types.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use pod_index_kubelet::sources::{Source, SourceStatus};

/// The columns of a `Table` at `/pods`. New ones are added at the end. `Created` is a time; `Images` and `Labels` are
/// separated by commas.
#[rustfmt::skip]
pub(crate) const TABLE_COLUMNS: [&str; 15] = [
    "Namespace", "Name", "UID", "Source", "Kind", "Phase", "Node", "Ready", "Status", "Restarts", "Created", "IP",
    "Workload", "Images", "Labels",
];

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
    /// For how long it has failed, if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_failing: Option<u64>,
    /// When it reads or connects again. Absent while it does so.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_try: Option<Time>,
    /// What it waits for, until its pods are in the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
}

impl From<SourceStatus> for SourceLine {
    fn from(mut status: SourceStatus) -> Self {
        let last_check = status.last_check.take().and_then(time);
        let seconds_since_heard = status.silence().map(|silence| silence.as_secs());
        let seconds_failing = status.failing().map(|failing| failing.as_secs());
        let next_try = status.until_next_try().and_then(|pause| time(SystemTime::now() + pause));
        let waits_for = (!status.seen).then(|| waits_for(&status));
        Self { status, last_check, seconds_since_heard, seconds_failing, next_try, waits_for }
    }
}

/// What a source waits for whose pods are not in the index.
pub(crate) fn waits_for(status: &SourceStatus) -> String {
    if status.updates > 0 {
        return "the index, which is about to have its pods".to_owned();
    }
    match status.until_next_try() {
        // Rounded up: nobody should come back too early.
        Some(pause) => format!("its next try in {} s", pause.as_secs() + 1),
        None => match status.source {
            Source::File => "an answer of the file system".to_owned(),
            Source::Http | Source::Kubelet | Source::Api => "an answer of the server".to_owned(),
        },
    }
}

/// A time, which is written in whole seconds.
pub(super) fn time(time: SystemTime) -> Option<Time> {
    Timestamp::try_from(time).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pod_index_kubelet::sources::StatusWriter;

    use super::*;

    #[test]
    fn a_source_says_what_it_waits_for() {
        let waits = |source: Source, happened: fn(&StatusWriter)| {
            let status = StatusWriter::new(source, "origin");
            happened(&status);
            waits_for(&status.subscribe().borrow())
        };
        let nothing = |_: &StatusWriter| {};
        assert_eq!(waits(Source::File, nothing), "an answer of the file system");
        assert_eq!(waits(Source::Http, nothing), "an answer of the server");
        assert_eq!(waits(Source::Api, nothing), "an answer of the server");
        // Rounded up, and the test may be slow.
        let next_try = |status: &StatusWriter| {
            status.tries_again(Some(Instant::now() + Duration::from_secs(3599)));
        };
        let said = waits(Source::File, next_try);
        let seconds = said.strip_prefix("its next try in ").and_then(|rest| rest.strip_suffix(" s"));
        assert!((3000..=3600).contains(&seconds.unwrap().parse().unwrap()), "{said}");
        // It has said its pods: nothing waits for the source any more.
        let updated = |status: &StatusWriter| {
            status.tries_again(Some(Instant::now() + Duration::from_secs(9)));
            status.updated(1);
        };
        assert_eq!(waits(Source::Http, updated), "the index, which is about to have its pods");
    }
}
