//! What the API has to know about a kind of objects. Lists, watches, the history and the encoders know no kind by name.

use k8s_openapi::Metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A kind of objects that the API serves. Its names are those of [`k8s_openapi::Resource`].
pub(super) trait Resource:
    Metadata<Ty = ObjectMeta> + Default + DeserializeOwned + Send + Sync + 'static
{
    const IS_NAMESPACED: bool;
    const SHORT_NAMES: &'static [&'static str];
    /// Whether `kubectl get all` requests it.
    const IS_IN_ALL: bool = false;
    /// The fields of field selectors. The first is `metadata.name`; the second, of a kind with namespaces,
    /// `metadata.namespace`.
    const FIELDS: &'static [&'static str];
    /// The columns of a `Table`: name, description, priority. Priorities above 0 are for `-o wide`.
    const COLUMNS: &'static [(&'static str, &'static str, u8)];
    /// The columns of the agent's own tables.
    const OWN_COLUMNS: &'static [&'static str] = &[];
    /// The JSON of all fields after `metadata` in a bookmark: those without which clients cannot decode the object.
    const EMPTY: &'static str = "";

    /// Takes away what the agent added to the source's object.
    fn unmark(_: &mut ObjectMeta) {}

    /// The value of a field, by its index in [`FIELDS`](Self::FIELDS). Empty if absent.
    fn field(&self, at: usize) -> &str;

    /// Appends the JSON of all fields after `metadata`, each after a comma.
    fn write_rest(&self, out: &mut Vec<u8>);

    /// The cells of its row, in the order of [`COLUMNS`](Self::COLUMNS).
    fn cells(&self, now: Timestamp) -> Vec<String>;

    /// The conditions of its row.
    fn conditions(&self) -> Vec<Value> {
        Vec::new()
    }

    /// The cells of its row in the agent's own tables.
    fn own_cells(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The index of `metadata.namespace` in [`Resource::FIELDS`].
pub(super) const NAMESPACE: usize = 1;
/// Fields before this one are marked: an event is matched only by the watches that select their values.
pub(super) const MARKED: usize = 2;

/// The index of a field in [`Resource::FIELDS`].
pub(super) fn index<R: Resource>(field: &str) -> Option<usize> {
    R::FIELDS.iter().position(|known| *known == field)
}

/// The path of the group and version of a kind.
pub(super) fn base<R: Resource>() -> String {
    if R::GROUP.is_empty() { format!("/api/{}", R::VERSION) } else { format!("/apis/{}", R::API_VERSION) }
}

/// The resource, and its group if it has one, as in the API server's messages.
pub(super) fn qualified<R: Resource>() -> String {
    let (name, group) = (R::URL_PATH_SEGMENT, R::GROUP);
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// An entry of discovery.
pub(super) fn described<R: Resource>() -> Value {
    let mut described = json!({
        "name": R::URL_PATH_SEGMENT, "singularName": R::KIND.to_lowercase(), "namespaced": R::IS_NAMESPACED,
        "kind": R::KIND, "verbs": ["get", "list", "watch"], "shortNames": R::SHORT_NAMES,
    });
    if R::IS_IN_ALL {
        described["categories"] = json!(["all"]);
    }
    described
}
