//! `pod-index watch`: changes as lines of JSON. Names the fields that have changed and prints no values.

use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;

use super::fields::Fields;
use super::follow::{Change, Follower};
use super::format;
use crate::config::failure::Failure;

/// One line of output.
#[derive(Debug, Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: String,
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

    fn keep(&mut self, pod: &Pod) -> Seen {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        Seen { phase, fields: Fields::of(pod) }
    }

    fn change(&mut self, change: Change<'_, Seen>) {
        let Change { key: (namespace, name), uid, before, after, is_initial } = change;
        let (kind, changed) = match (before, after) {
            (Some(before), Some(after)) => ("changed", before.fields.changed(&after.fields)),
            (None, _) => ("added", Vec::new()),
            (_, None) => ("removed", Vec::new()),
        };
        let Some(Seen { phase, .. }) = after.or(before) else { return };
        if kind == "changed" && changed.is_empty() {
            return;
        }
        let (uid, phase) = (uid.to_string(), phase.as_deref());
        let line = Line { kind, namespace, name, uid, phase, initial: is_initial, changed };
        // Serializing a line does not fail.
        self.0 += &(serde_json::to_string(&line).unwrap_or_default() + "\n");
    }

    fn flush(&mut self) -> Result<bool, Failure> {
        format::write(std::mem::take(&mut self.0).as_bytes())
    }
}
