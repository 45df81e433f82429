//! The answer to one query: one line of JSON. Clients of other versions read it, so a field that is unknown or missing is
//! no error.

use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp, Unit};
use pod_index::{Bounds, FoundBy, PodMeta};
use pod_index_kubelet::records::Workload;
use serde::Serialize;
use serde_json::Value;

use super::query_text;

/// The start of a line whose pod was not found. The client looks for it instead of parsing each line.
pub(crate) const NOT_FOUND: &[u8] = br#"{"found":false"#;

/// The attributes of what has none.
pub(super) const NO_ATTRIBUTES: &[u8] = b"{}";

/// Whether another pod may later be found by what a removed pod was found by. So a query that waits goes on waiting.
///
/// `found_by`: the word in the answer. One that is not known here, of an agent of another version, counts as one that may: a
/// client that waits in vain is better off than one that takes a removed pod for the new one.
pub(crate) fn is_passed_on(found_by: &str) -> bool {
    let lasting = [FoundBy::Uid, FoundBy::MirrorUid, FoundBy::ContainerId];
    lasting.iter().all(|lasting| lasting.as_str() != found_by)
}

/// Whether asking again for the same key may bring another answer, if no pod was found: the field `retry`. Clients decide by it, and
/// not by the text of the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    /// The answer stays.
    Never,
    /// In a moment, the agent may know more.
    Later,
    /// The key was not looked up. Another request may ask for it at once.
    Now,
}

impl Retry {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Later => "later",
            Self::Now => "now",
        }
    }
}

/// Which parts of an answer are shown.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    /// What a table shows only on request.
    pub(super) details: bool,
    pub(super) attributes: bool,
}

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

/// A controller: that of the pod, or the Deployment, `CronJob` or other one that a person created.
#[derive(Serialize)]
pub(super) struct Controller<'a> {
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    /// Whether kind and name follow from names and labels alone. `None` for the pod's own controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) derived: Option<bool>,
}

impl<'a> Controller<'a> {
    pub(super) fn of_workload(workload: &'a Workload) -> Self {
        Self { kind: &workload.kind, name: &workload.name, derived: Some(workload.derived) }
    }
}

/// The name of a pod, for a message.
pub(super) fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

/// The range in which a time lies.
pub(super) fn range(Bounds { earliest, latest }: Bounds) -> Value {
    let ends = [("earliest", earliest), ("latest", latest)];
    ends.into_iter().filter_map(|(name, time)| Some((name, query_text::written(time?)))).collect()
}

/// The time of a removal, in whole seconds.
pub(super) fn time_of(removed_at: Instant) -> Timestamp {
    let age = SignedDuration::try_from(removed_at.elapsed()).unwrap_or_default();
    let time = Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::UNIX_EPOCH);
    time.round(Unit::Second).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_one_pods_for_ever_is_not_passed_on_and_an_unknown_word_may_be() {
        for (by, expected) in [
            ("uid", false),
            ("mirrorUid", false),
            ("containerId", false),
            ("ip", true),
            ("custom", true),
            ("name", true),
            ("nameOnly", true),
            ("a word of a later version", true),
        ] {
            assert_eq!(is_passed_on(by), expected, "{by}");
        }
    }
}
