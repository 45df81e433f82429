//! The objects that a client selects: by namespace, labels and fields.

use super::object::{Content, Object};
use super::resource::NAMESPACE;
use crate::api::fields::Fields;
use crate::api::labels::Labels;

/// The selected objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) namespace: Option<String>,
    pub(super) labels: Labels,
    pub(super) fields: Fields,
    /// Only what `/pods` has.
    pub(super) only_listed: bool,
}

impl Selection {
    pub(super) fn matches(&self, object: &Object) -> bool {
        (object.is_listed || !self.only_listed) && self.selects(&object.content())
    }

    fn selects(&self, object: &Content) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| namespace == object.field(NAMESPACE))
            && self.fields.matches(|at| object.field(at))
            && self.labels.matches(object.labels())
    }

    /// The number of terms: the work to match one object.
    pub(super) fn terms(&self) -> usize {
        1 + self.labels.len() + self.fields.len()
    }
}
