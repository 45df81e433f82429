//! The objects that a client selects: by namespace, labels and fields.

use super::object::Object;
use crate::api::selectors::Selector;

/// The selected objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) namespace: Option<String>,
    pub(super) labels: Selector,
    pub(super) fields: Selector,
    /// Only what `/pods` has.
    pub(super) only_listed: bool,
}

impl Selection {
    pub(super) fn matches(&self, object: &Object) -> bool {
        let content = object.content();
        (object.is_listed || !self.only_listed)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| namespace == content.field("metadata.namespace"))
            && self.fields.matches(|field| Some(content.field(field)))
            && self.labels.matches(|label| content.labels()?.get(label).map(String::as_str))
    }

    /// The number of terms: the work to match one object.
    pub(super) fn terms(&self) -> usize {
        1 + self.labels.len() + self.fields.len()
    }
}
