//! Writes objects: whole, as metadata, or as rows of a `Table`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::resource::{Item, Resource};
use super::shape::Form;
use crate::api::view::View;

/// The version of what objects of every kind can be shown as.
const META: &str = "meta.k8s.io/v1";
/// The annotation on the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Appends a whole object.
pub(super) fn whole(of: &Resource, object: &dyn Item, version: u64, view: View, out: &mut Vec<u8>) {
    let head = format!(r#"{{"kind":"{}","apiVersion":"{}","metadata":"#, of.kind, of.api_version);
    out.extend_from_slice(head.as_bytes());
    write(out, &metadata(object, version, view));
    object.write_rest(of, out);
    out.push(b'}');
}

fn partial(object: &dyn Item, version: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    write(out, &metadata(object, version, View::ApiServer));
    out.push(b'}');
}

/// With the agent's own version.
fn metadata(object: &dyn Item, version: u64, view: View) -> ObjectMeta {
    let mut metadata = object.metadata().clone();
    if view == View::ApiServer {
        object.unmark(&mut metadata);
    }
    metadata.resource_version = Some(version.to_string());
    metadata
}

impl Form {
    /// Appends an object: as an item of a list, or, given `with_columns`, alone: the response to a get, or the object of an
    /// event. Then a table has its columns or not, which only the first event of a watch has.
    pub(super) fn write(
        self,
        of: &Resource,
        object: &dyn Item,
        version: u64,
        with_columns: Option<bool>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Object => whole(of, object, version, View::ApiServer, out),
            Self::KubeletObject => whole(of, object, version, View::Kubelet, out),
            Self::Metadata => partial(object, version, out),
            Self::Table | Self::FullTable | Self::KubeletTable => {
                if let Some(with_columns) = with_columns {
                    let columns = if with_columns { self.columns(of) } else { Value::Null };
                    out.extend_from_slice(table(version, &columns).as_bytes());
                }
                out.extend_from_slice(br#"{"cells":"#);
                let cells = match self {
                    Self::KubeletTable => object.kubelet_cells(),
                    _ => object.cells(Timestamp::now()),
                };
                write(out, &cells);
                out.extend_from_slice(br#","object":"#);
                match self {
                    Self::Table => partial(object, version, out),
                    Self::FullTable => whole(of, object, version, View::ApiServer, out),
                    _ => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(if with_columns.is_some() { b"}]}" } else { b"}" });
            }
        }
    }

    /// The start of a list, up to its first item. `]}` ends it.
    pub(super) fn list_head(self, of: &Resource, version: u64) -> Vec<u8> {
        let items = r#""items":["#;
        let head = match self {
            Self::Object | Self::KubeletObject => {
                list(&format!("{}List", of.kind), of.api_version, version, items)
            }
            Self::Metadata => list("PartialObjectMetadataList", META, version, items),
            Self::Table | Self::FullTable | Self::KubeletTable => table(version, &self.columns(of)),
        };
        head.into_bytes()
    }

    /// A bookmark: the event with the watch's version.
    pub(super) fn bookmark(self, of: &Resource, version: u64, ends_initial_events: bool) -> Vec<u8> {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if ends_initial_events {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let object = |kind: &str, version: &str, rest: &str| {
            format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}{rest}}}"#)
        };
        let object = match self {
            Self::Object | Self::KubeletObject => object(of.kind, of.api_version, of.empty),
            Self::Metadata => object("PartialObjectMetadata", META, ""),
            // Without a row: the table has the version as well.
            Self::Table | Self::FullTable | Self::KubeletTable => table(version, &Value::Null) + "]}",
        };
        format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into_bytes()
    }

    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::FullTable | Self::KubeletTable)
    }

    fn columns(self, of: &Resource) -> Value {
        let column = |name: &str, priority: u8| {
            let format = if name == "Name" { "name" } else { "" };
            json!({ "name": name, "type": "string", "format": format, "description": "", "priority": priority })
        };
        match self {
            Self::KubeletTable => of.kubelet_columns.iter().map(|name| column(name, 0)).collect(),
            _ => of.columns.iter().map(|(name, priority)| column(name, *priority)).collect(),
        }
    }
}

/// The start of a table, up to its first row.
fn table(version: u64, columns: &Value) -> String {
    list("Table", META, version, &format!(r#""columnDefinitions":{columns},"rows":["#))
}

/// The start of a list. `items`: the start of the field with its items.
fn list(kind: &str, group: &str, version: u64, items: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","apiVersion":"{group}","metadata":{{"resourceVersion":"{version}"}},{items}"#
    )
}

/// Appends the fields after `metadata` that are set.
pub(super) fn rest(out: &mut Vec<u8>, spec: Option<&impl Serialize>, status: Option<&impl Serialize>) {
    if let Some(spec) = spec {
        out.extend_from_slice(br#","spec":"#);
        write(out, spec);
    }
    if let Some(status) = status {
        out.extend_from_slice(br#","status":"#);
        write(out, status);
    }
}

/// Appends JSON. Serializing an object does not fail. If it did, the response would still be JSON.
pub(super) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}
