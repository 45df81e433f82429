//! What the API has to know about a kind of objects. Lists, watches, the history and the encoders know no kind by name.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::printed::{AGE, NAME, since};

/// A kind of objects that the API serves.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    /// As in paths.
    pub(super) name: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) short_names: &'static [&'static str],
    /// `all`: `kubectl get all` requests it.
    pub(super) categories: &'static [&'static str],
    /// The fields of field selectors.
    pub(super) fields: &'static [&'static str],
    /// The columns of a `Table`: name and priority. Priorities above 0 are for `-o wide`.
    pub(super) columns: &'static [(&'static str, u8)],
    /// The columns of a `Table` in the kubelet's view.
    pub(super) kubelet_columns: &'static [&'static str],
    /// The JSON of all fields after `metadata` in a bookmark: those without which clients cannot decode the object.
    pub(super) empty: &'static str,
    pub(super) decode: fn(&[u8]) -> serde_json::Result<Arc<dyn Item>>,
}

impl Resource {
    /// The names of `K`, whose objects are decoded as `I`. A kind with namespaces.
    pub(super) const fn of<K: k8s_openapi::Resource, I: Item + DeserializeOwned>() -> Self {
        Self {
            group: K::GROUP,
            api_version: K::API_VERSION,
            kind: K::KIND,
            name: K::URL_PATH_SEGMENT,
            is_namespaced: true,
            short_names: &[],
            categories: &[],
            fields: &["metadata.name", "metadata.namespace"],
            columns: &[NAME, AGE],
            kubelet_columns: &[],
            empty: r#","spec":{},"status":{}"#,
            // As a string, as objects are decoded everywhere: a decoder of pods from bytes takes half a megabyte more.
            decode: |json| Ok(Arc::new(serde_json::from_str::<I>(&String::from_utf8_lossy(json))?)),
        }
    }

    /// The path of its group and version.
    pub(super) fn base(&self) -> String {
        let folder = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{folder}/{}", self.api_version)
    }

    /// Its name, and its group if it has one, as in the API server's messages.
    pub(super) fn qualified(&self) -> String {
        let Self { name, group, .. } = self;
        if group.is_empty() { (*name).to_owned() } else { format!("{name}.{group}") }
    }

    /// An entry of discovery.
    pub(super) fn described(&self) -> Value {
        let mut entry = json!({
            "name": self.name, "singularName": self.kind.to_lowercase(), "namespaced": self.is_namespaced,
            "kind": self.kind, "verbs": ["get", "list", "watch"], "shortNames": self.short_names,
        });
        // As the API server, which leaves out an empty list.
        if !self.categories.is_empty() {
            entry["categories"] = self.categories.into();
        }
        entry
    }
}

/// An object of any kind.
pub(super) trait Item: Any + fmt::Debug + Send + Sync {
    fn metadata(&self) -> &ObjectMeta;

    /// Takes away what the agent added to the source's object.
    fn unmark(&self, _: &mut ObjectMeta) {}

    /// The value of one of [`Resource::fields`]. Empty if absent.
    fn field(&self, name: &str) -> &str {
        let ObjectMeta { name: own, namespace, .. } = self.metadata();
        let value = if name == "metadata.name" { own } else { namespace };
        value.as_deref().unwrap_or_default()
    }

    /// Appends the JSON of all fields after `metadata`, each after a comma.
    fn write_rest(&self, of: &Resource, out: &mut Vec<u8>) {
        out.extend_from_slice(of.empty.as_bytes());
    }

    /// The cells of its row, in the order of [`Resource::columns`].
    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![self.field("metadata.name").to_owned(), since(self.metadata().creation_timestamp.as_ref(), now)]
    }

    /// The cells of its row in the kubelet's view, in the order of [`Resource::kubelet_columns`].
    fn kubelet_cells(&self) -> Vec<String> {
        Vec::new()
    }
}
