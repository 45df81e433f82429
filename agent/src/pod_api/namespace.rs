//! Namespaces as a resource of the API.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::printed::{AGE, NAME, since};
use super::resource::{Item, Resource};
use super::write::part;

pub(super) static NAMESPACES: Resource = Resource {
    is_namespaced: false,
    short_names: &["ns"],
    fields: &["metadata.name", "status.phase"],
    columns: &[NAME, ("Status", 0), AGE],
    ..Resource::of::<Namespace, Namespace>()
};

impl Item for Namespace {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn field(&self, at: usize) -> &str {
        let value = match NAMESPACES.fields[at] {
            "metadata.name" => self.metadata.name.as_deref(),
            _ => self.status.as_ref().and_then(|status| status.phase.as_deref()),
        };
        value.unwrap_or_default()
    }

    fn write_rest(&self, _: &Resource, out: &mut Vec<u8>) {
        part(out, "spec", self.spec.as_ref());
        part(out, "status", self.status.as_ref());
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let [name, phase] = [0, 1].map(|at| self.field(at).to_owned());
        vec![name, phase, since(self.metadata.creation_timestamp.as_ref(), now)]
    }
}
