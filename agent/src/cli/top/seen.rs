//! The agent's responses, as far as `top` shows them. Ignores unknown content.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::seen::{Mirrors, Sources, value};

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
        let value = |name: &str| value(metrics, name);
        Some(Self {
            generation: value("pod_index_generation")?,
            publications: value("pod_index_publications_total")?,
            changes: value("pod_index_operations_total")?,
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
