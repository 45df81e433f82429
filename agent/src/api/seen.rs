//! The agent's responses as far as commands read them. Unknown content is ignored: the agent may be newer.
#![allow(clippy::struct_field_names, reason = "the fields have the names of the response")]

use serde::Deserialize;

/// The response of `/sources`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Sources {
    #[serde(default)]
    pub(crate) node: String,
    pub(crate) ready: bool,
    pub(crate) sources: Vec<Source>,
}

/// The state of one source.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Source {
    pub(crate) source: String,
    pub(crate) origin: String,
    pub(crate) seen: bool,
    pub(crate) pods: u64,
    pub(crate) checks: u64,
    pub(crate) failed_checks: u64,
    pub(crate) updates: u64,
    pub(crate) last_check: Option<String>,
    pub(crate) seconds_since_heard: Option<u64>,
    pub(crate) problems: Vec<Problem>,
}

/// A problem of the source.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    pub(crate) kind: String,
    pub(crate) origin: String,
    pub(crate) line: Option<u64>,
    pub(crate) field: Option<String>,
    pub(crate) message: String,
}

impl Problem {
    /// Whether the problem may hide a pod and needs attention.
    pub(crate) fn is_grave(&self) -> bool {
        !["skipped", "warning", "unhinted"].contains(&&*self.kind)
    }

    /// Leaves out the place if it is only `source`, the origin of the source.
    pub(crate) fn words(&self, source: &str) -> String {
        let place = match self.line {
            Some(line) => format!("{}:{line}: ", self.origin),
            None if self.origin == source => String::new(),
            None => format!("{}: ", self.origin),
        };
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        format!("{place}{field}{}", self.message)
    }
}

/// The response of `/mirrors`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Mirrors {
    #[serde(default)]
    pub(crate) managed: bool,
    pub(crate) problem: Option<String>,
    pub(crate) pods: Vec<Pair>,
    pub(crate) orphans: Vec<Pair>,
}

/// A static pod and its mirror, or one of the two.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pair {
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(rename = "podUID")]
    pub(crate) pod_uid: Option<String>,
    #[serde(rename = "mirrorUID")]
    pub(crate) mirror_uid: Option<String>,
    pub(crate) state: Option<String>,
    waits_for: Option<String>,
    last_error: Option<PairError>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct PairError {
    kind: String,
    message: String,
}

impl Pair {
    /// The UIDs under which the agent may show the static pod.
    pub(crate) fn uids(&self) -> impl Iterator<Item = &str> {
        [&self.pod_uid, &self.mirror_uid].into_iter().flatten().map(String::as_str)
    }

    /// The state of the pair, in words.
    pub(crate) fn state(&self) -> &str {
        match (self.state.as_deref(), &self.pod_uid, &self.mirror_uid) {
            (Some("inSync"), ..) => "in sync",
            (Some("wrongHash"), ..) => "other version",
            (Some("finished"), ..) => "not needed",
            (Some(state), ..) => state,
            (None, None, _) => "orphaned",
            // This agent does not manage mirrors, so the expected state is unknown.
            (None, Some(_), Some(_)) => "has one",
            (None, Some(_), None) => "none",
        }
    }

    /// Whether the state is as expected. `None` if unknown.
    pub(crate) fn is_good(&self) -> Option<bool> {
        match self.state() {
            "in sync" | "not needed" | "has one" => Some(true),
            "none" => None,
            _ => Some(false),
        }
    }

    /// What the pair waits for, and the last error.
    pub(crate) fn doing(&self) -> String {
        let waits = self.waits_for.as_deref().map(|waits| match waits {
            "sources" => "waits for the sources",
            "kubeletCheck" => "waits: is there a kubelet?",
            "turn" => "waits for other requests",
            "answer" => "waits for the answer",
            "backOff" => "waits after a failure",
            "contention" => "waits: another client undoes it",
            "index" => "done; the index does not show it yet",
            "endOfPod" => "waits for the pod's end",
            other => other,
        });
        let failed = self.last_error.as_ref().map(|error| format!("{}: {}", error.kind, error.message));
        waits.map(str::to_owned).into_iter().chain(failed).collect::<Vec<_>>().join("; ")
    }
}

/// The value of a metric without labels.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split(' ').next()?.parse().ok()
}
