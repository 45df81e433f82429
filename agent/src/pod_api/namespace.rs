//! Namespaces as a resource of the API.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;

use super::printed::{AGE, NAME, since};
use super::resource::Resource;
use super::write::part;

impl Resource for Namespace {
    const IS_NAMESPACED: bool = false;
    const SHORT_NAMES: &'static [&'static str] = &["ns"];
    const FIELDS: &'static [&'static str] = &["metadata.name", "status.phase"];
    const COLUMNS: &'static [(&'static str, &'static str, u8)] =
        &[NAME, ("Status", "The status of the namespace", 0), AGE];
    const EMPTY: &'static str = r#","spec":{},"status":{}"#;

    fn field(&self, at: usize) -> &str {
        let value = match Self::FIELDS[at] {
            "metadata.name" => self.metadata.name.as_deref(),
            _ => self.status.as_ref().and_then(|status| status.phase.as_deref()),
        };
        value.unwrap_or_default()
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        part(out, "spec", self.spec.as_ref());
        part(out, "status", self.status.as_ref());
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let [name, phase] = [0, 1].map(|at| self.field(at).to_owned());
        vec![name, phase, since(self.metadata.creation_timestamp.as_ref(), now)]
    }
}
