//! Writes pods: whole, as metadata, or as rows of a `Table`.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::object::Object;
use super::printed;
use super::shape::{Form, Include};
use crate::api_types::{TABLE_COLUMNS, TableRow};

/// The annotation on the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

#[derive(Serialize)]
struct Row<T> {
    cells: [String; printed::COLUMNS.len()],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Value>,
    object: T,
}

impl Form {
    /// A pod as an item of a list.
    pub(super) fn write_item(self, object: &Object, out: &mut Vec<u8>) {
        match self {
            Self::Object => write(out, &object.whole()),
            Self::Metadata => write(out, &object.partial()),
            Self::Table(include) => {
                let cells = printed::cells(&object.pod, Timestamp::now());
                let conditions = printed::conditions(&object.pod);
                match include {
                    Include::Nothing => write(out, &Row { cells, conditions, object: () }),
                    Include::Metadata => write(out, &Row { cells, conditions, object: object.partial() }),
                    Include::Object => write(out, &Row { cells, conditions, object: object.whole() }),
                }
            }
            Self::Rows => write(out, &TableRow::of(&object.pod)),
        }
    }

    /// A single pod: the response to a get, or the object of an event. `with_columns` includes a table's columns, which
    /// only the first event of a watch has.
    pub(super) fn write_one(self, object: &Object, with_columns: bool, out: &mut Vec<u8>) {
        if matches!(self, Self::Table(_) | Self::Rows) {
            let columns = if with_columns { self.columns() } else { Value::Null };
            let head = format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{}"}},"columnDefinitions":{columns},"rows":["#,
                object.version
            );
            out.extend_from_slice(head.as_bytes());
            self.write_item(object, out);
            out.extend_from_slice(b"]}");
        } else {
            self.write_item(object, out);
        }
    }

    /// The start of a list, up to its first item. `]}` ends it.
    pub(super) fn list_head(
        self,
        version: u64,
        continuation: Option<&str>,
        remaining: Option<usize>,
    ) -> Vec<u8> {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let Some(token) = continuation {
            metadata["continue"] = token.into();
        }
        if let Some(remaining) = remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let (kind, group) = match self {
            Self::Object => ("PodList", "v1"),
            Self::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            Self::Table(_) | Self::Rows => ("Table", "meta.k8s.io/v1"),
        };
        let items = match self {
            Self::Object | Self::Metadata => r#""items":["#.to_owned(),
            Self::Table(_) | Self::Rows => format!(r#""columnDefinitions":{},"rows":["#, self.columns()),
        };
        format!(r#"{{"kind":"{kind}","apiVersion":"{group}","metadata":{metadata},{items}"#).into_bytes()
    }

    /// A bookmark: the event with the watch's version.
    pub(super) fn bookmark(self, version: u64, ends_initial_events: bool) -> Vec<u8> {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if ends_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let partial = || json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata });
        let whole = || json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": { "containers": [] }, "status": {} });
        let row = |cells: usize, object: Value| {
            json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": { "resourceVersion": version.to_string() },
                "columnDefinitions": null, "rows": [{ "cells": vec![""; cells], "object": object }],
            })
        };
        let object = match self {
            Self::Object => whole(),
            Self::Metadata => partial(),
            Self::Table(Include::Object) => row(printed::COLUMNS.len(), whole()),
            Self::Table(Include::Metadata) => row(printed::COLUMNS.len(), partial()),
            Self::Table(Include::Nothing) => row(printed::COLUMNS.len(), Value::Null),
            Self::Rows => row(TABLE_COLUMNS.len(), Value::Null),
        };
        let mut event = json!({ "type": "BOOKMARK", "object": object }).to_string().into_bytes();
        event.push(b'\n');
        event
    }

    fn columns(self) -> Value {
        let column = |name: &str, format: &str, description: &str, priority: u8| json!({ "name": name, "type": "string", "format": format, "description": description, "priority": priority });
        match self {
            Self::Rows => TABLE_COLUMNS.iter().map(|name| column(name, "", "", 0)).collect(),
            _ => printed::COLUMNS
                .iter()
                .map(|(name, description, priority)| {
                    column(name, if *name == "Name" { "name" } else { "" }, description, *priority)
                })
                .collect(),
        }
    }
}

/// Appends JSON. Serializing a pod does not fail. If it did, the response would still be JSON.
pub(super) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}
