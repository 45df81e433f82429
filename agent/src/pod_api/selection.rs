//! The objects that a client selects: by namespace, labels and fields.

use super::object::Object;
use crate::api::selectors::Selector;
use crate::api::view::View;

/// The selected objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) namespace: Option<String>,
    pub(super) labels: Selector,
    pub(super) fields: Selector,
    pub(super) view: View,
}

impl Selection {
    pub(super) fn matches(&self, object: &Object) -> bool {
        let content = object.content();
        self.is_in_view(object)
            && self
                .namespace
                .as_ref()
                .is_none_or(|namespace| namespace == content.field("metadata.namespace"))
            && self.fields.matches(|field| Some(content.field(field)))
            && self.labels.matches(|label| content.labels()?.get(label).map(String::as_str))
    }

    fn is_in_view(&self, object: &Object) -> bool {
        match self.view {
            View::Kubelet => object.is_in_kubelet_view,
            View::ApiServer => true,
        }
    }

    /// The number of terms: the work to match one object.
    pub(super) fn terms(&self) -> usize {
        1 + self.labels.len() + self.fields.len()
    }
}
