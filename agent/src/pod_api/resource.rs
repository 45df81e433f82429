//! What the API has to know about a kind of objects. Lists, watches, the history and the encoders know no kind by name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of objects that the API serves.
pub(super) trait Resource: Default + DeserializeOwned + Send + Sync + 'static {
    const KIND: &'static str;
    /// The fields of field selectors. The first two are `metadata.name` and `metadata.namespace`.
    const FIELDS: &'static [&'static str];
    /// The columns of a `Table`: name, description, priority. Priorities above 0 are for `-o wide`.
    const COLUMNS: &'static [(&'static str, &'static str, u8)];
    /// The columns of the agent's own tables.
    const OWN_COLUMNS: &'static [&'static str];

    fn metadata(&self) -> &ObjectMeta;

    fn metadata_mut(&mut self) -> &mut ObjectMeta;

    /// The value of a field, by its index in [`FIELDS`](Self::FIELDS). Empty if absent.
    fn field(&self, at: usize) -> &str;

    /// Appends the JSON of all fields after `metadata`, each after a comma.
    fn write_rest(&self, out: &mut Vec<u8>);

    /// The cells of its row, in the order of [`COLUMNS`](Self::COLUMNS).
    fn cells(&self, now: Timestamp) -> Vec<String>;

    /// The conditions of its row.
    fn conditions(&self) -> Vec<Value>;

    /// The cells of its row in the agent's own tables.
    fn own_cells(&self) -> Vec<&str>;
}

/// The index of `metadata.name` in [`Resource::FIELDS`].
pub(super) const NAME: usize = 0;
/// The index of `metadata.namespace`.
pub(super) const NAMESPACE: usize = 1;
