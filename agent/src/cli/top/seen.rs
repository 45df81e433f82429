//! The agent's responses, as far as `top` shows them. Ignores unknown content.
#![allow(clippy::struct_field_names, reason = "the fields have the names of the response")]

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Pods, in the API server's `Table` format.
#[derive(Debug, Deserialize)]
pub(super) struct Table {
    pub(super) metadata: TableMeta,
    pub(super) rows: Vec<Row>,
}

/// One pod of the table.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    #[serde(deserialize_with = "known_cells")]
    pub(super) cells: Cells,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TableMeta {
    pub(super) resource_version: String,
}

/// The cells of a pod, in the order of [`TABLE_COLUMNS`](crate::api::types::TABLE_COLUMNS).
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Cells {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) source: String,
    pub(super) kind: String,
    pub(super) phase: String,
    pub(super) node: String,
}

/// The known columns; a newer agent may have more.
fn known_cells<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cells, D::Error> {
    struct Known;
    impl<'de> Visitor<'de> for Known {
        type Value = Cells;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the cells of a row")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<Cells, A::Error> {
            let known = Cells::deserialize(SeqAccessDeserializer::new(&mut cells))?;
            while cells.next_element::<IgnoredAny>()?.is_some() {}
            Ok(known)
        }
    }
    deserializer.deserialize_seq(Known)
}

/// The response of `/mirrors`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Mirrors {
    pub(super) problem: Option<String>,
    pub(super) pods: Vec<Pair>,
    pub(super) orphans: Vec<Pair>,
}

/// A static pod and its mirror, or one of the two.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pair {
    pub(super) namespace: String,
    pub(super) name: String,
    #[serde(rename = "podUID")]
    pub(super) pod_uid: Option<String>,
    #[serde(rename = "mirrorUID")]
    pub(super) mirror_uid: Option<String>,
    state: Option<String>,
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
    pub(super) fn uids(&self) -> impl Iterator<Item = &str> {
        [&self.pod_uid, &self.mirror_uid].into_iter().flatten().map(String::as_str)
    }

    /// The state of the pair, in words.
    pub(super) fn state(&self) -> &str {
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
    pub(super) fn is_good(&self) -> Option<bool> {
        match self.state() {
            "in sync" | "not needed" | "has one" => Some(true),
            "none" => None,
            _ => Some(false),
        }
    }

    /// What the pair waits for, and the last error.
    pub(super) fn doing(&self) -> String {
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

/// The response of `/whois`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Identified {
    #[serde(rename = "podUID")]
    pod_uid: Option<String>,
    #[serde(rename = "mirrorUID")]
    mirror_uid: Option<String>,
}

impl Identified {
    /// The UID of the pod, or of the mirror pod without a static pod. `None` if none was found.
    pub(super) fn uid(&self) -> Option<&str> {
        self.pod_uid.as_deref().or(self.mirror_uid.as_deref())
    }
}

/// The response of `/sources`.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Sources {
    #[serde(default)]
    pub(super) node: String,
    pub(super) ready: bool,
    pub(super) sources: Vec<Source>,
}

/// The state of one source.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Source {
    pub(super) source: String,
    pub(super) origin: String,
    pub(super) seen: bool,
    pub(super) pods: u64,
    pub(super) checks: u64,
    pub(super) failed_checks: u64,
    pub(super) updates: u64,
    pub(super) last_check: Option<String>,
    pub(super) seconds_since_heard: Option<u64>,
    pub(super) problems: Vec<Problem>,
}

/// A problem of the source.
#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) kind: String,
    pub(super) origin: String,
    pub(super) line: Option<u64>,
    pub(super) field: Option<String>,
    pub(super) message: String,
}

impl Problem {
    /// Whether the problem may hide a pod and needs attention.
    pub(super) fn is_grave(&self) -> bool {
        !["skipped", "warning", "unhinted"].contains(&&*self.kind)
    }
}

/// The generation of the index, and the counters for the rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) generation: f64,
    /// Published snapshots.
    pub(super) publications: f64,
    /// Operations on pods.
    pub(super) changes: f64,
    /// Open watches, also this one.
    pub(super) watchers: f64,
}

impl Counts {
    pub(super) fn read(metrics: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.split(' ').next()?.parse().ok()
        };
        Some(Self {
            generation: value("pod_index_generation")?,
            publications: value("pod_index_publications_total")?,
            changes: value("pod_index_batch_operations_sum")?,
            watchers: value("pod_index_watches").unwrap_or_default(),
        })
    }
}

/// One round of responses.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// `None` if the pods have not changed.
    pub(super) pods: Option<Vec<Cells>>,
    pub(super) mirrors: Mirrors,
    pub(super) sources: Sources,
    pub(super) counts: Option<Counts>,
}
