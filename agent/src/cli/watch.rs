//! `pod-index watch`: changes as lines of JSON. Names the fields that have changed and prints no values.

use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::follow::{Change, Follower, Key, Pod};
use super::format;
use crate::config::failure::Failure;

/// One line of output.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    /// Whether the pod existed before the watch began.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    initial: bool,
    /// The names of the changed fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
}

/// The lines that were not printed yet.
#[derive(Debug, Default)]
pub(super) struct Changes(String);

/// What is kept of a pod: hashes of its fields, no values.
#[derive(Debug)]
pub(super) struct Seen {
    phase: Option<String>,
    fields: Fields,
}

impl Follower for Changes {
    type Kept = Seen;

    fn keep(&mut self, pod: &Value) -> Option<(Key, String, Seen)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &pod["metadata"];
        let key = (text(&metadata["namespace"])?, text(&metadata["name"])?);
        let seen = Seen { phase: text(&pod["status"]["phase"]), fields: Fields::of(pod) };
        Some((key, text(&metadata["uid"]).unwrap_or_default(), seen))
    }

    fn change(&mut self, change: Change<'_, Seen>) {
        let Change { key: (namespace, name), before, after, is_initial, .. } = change;
        let (kind, changed) = match (before, after) {
            (Some(before), Some(after)) => ("changed", before.kept.fields.changed(&after.kept.fields)),
            (None, _) => ("added", Vec::new()),
            (_, None) => ("removed", Vec::new()),
        };
        let Some(Pod { uid, kept, .. }) = after.or(before) else { return };
        if kind == "changed" && changed.is_empty() {
            return;
        }
        let phase = kept.phase.as_deref();
        let line = Line { kind, namespace, name, uid, phase, initial: is_initial, changed };
        // Serializing a line does not fail.
        self.0 += &(serde_json::to_string(&line).unwrap_or_default() + "\n");
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        format::write(std::mem::take(&mut self.0).as_bytes())
    }
}
