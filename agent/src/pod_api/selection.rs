//! The objects that a client selects: by namespace, labels and fields. A fast test rules out most events for most
//! watches.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::object::{Content, Object};
use super::resource::{MARKED, NAMESPACE};
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

    /// The marks that every selected object has.
    pub(super) fn marks(&self) -> Marks {
        let namespace = self.namespace.as_deref().map(|namespace| (NAMESPACE, namespace));
        let fields = (0..MARKED).filter_map(|at| Some((at, self.fields.necessary(at)?)));
        let marks = namespace.into_iter().chain(fields).map(|(at, value)| Marks::mark(("field", at, value)));
        marks.chain(self.labels.necessary().map(|label| Marks::mark(("label", label)))).collect()
    }
}

/// A Bloom filter of the values by which objects are selected. It may report an absent value as present.
///
/// The filter makes a thousand watches affordable. An event is fully matched only by the watches whose marks it contains.
/// Each other watch costs one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u128);

impl Marks {
    /// The marks of an object: its first fields, each label.
    pub(super) fn of(object: &Content) -> Self {
        let labels = object.labels().into_iter().flatten();
        let marks = labels.map(|(key, value)| Self::mark(("label", (&**key, &**value))));
        marks.chain((0..MARKED).map(|at| Self::mark(("field", at, object.field(at))))).collect()
    }

    /// Two bits of 128. With a dozen labels, about 3 of 100 absent values seem present.
    fn mark(element: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        element.hash(&mut hasher);
        let hash = hasher.finish();
        Self(1 << (hash & 127) | 1 << (hash >> 7 & 127))
    }

    /// Whether all of `other` may be present.
    pub(super) fn may_have(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl FromIterator<Marks> for Marks {
    fn from_iter<I: IntoIterator<Item = Marks>>(marks: I) -> Self {
        Self(marks.into_iter().fold(0, |all, Self(marks)| all | marks))
    }
}

#[cfg(test)]
#[path = "../../../tests/support/seeded.rs"]
mod seeded;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;

    use super::*;

    fn selection(namespace: Option<&str>, labels: &str, fields: &str) -> Selection {
        Selection {
            namespace: namespace.map(str::to_owned),
            labels: Labels::parse(labels).unwrap(),
            fields: Fields::parse(fields, |field| crate::pod_api::pod::PODS.index(field)).unwrap(),
            only_listed: false,
        }
    }

    fn pod(namespace: &str, name: &str, labels: &[(String, String)]) -> Content {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.labels = Some(labels.iter().cloned().collect());
        Content::Live(Arc::new(pod))
    }

    proptest! {
        #![proptest_config(seeded::seeded(256))]

        #[test]
        fn every_selected_pod_has_the_marks_of_the_selection(
            namespace in "[a-c]", name in "[a-c]",
            labels in proptest::collection::vec(("[a-c]", "[a-c]"), 0..4),
            wanted in (proptest::option::of("[a-c]"), "([a-c]=[a-c]|[a-c]|[a-c] in \\([a-c]\\)|)", "(metadata\\.name=[a-c]|metadata\\.namespace=[a-c]|)"),
        ) {
            let pod = pod(&namespace, &name, &labels);
            let selection = selection(wanted.0.as_deref(), &wanted.1, &wanted.2);
            prop_assert!(!selection.selects(&pod) || Marks::of(&pod).may_have(selection.marks()));
        }
    }

    #[test]
    fn few_pods_have_marks_that_they_should_not_have() {
        let labels: Vec<_> =
            (0..10).map(|n| (format!("example.com/label-{n}"), format!("value-{n}"))).collect();
        let marks = Marks::of(&pod("shop", "web-7d4b9c-x2x7p", &labels));
        let seem = (0..1000)
            .filter(|n| marks.may_have(selection(None, &format!("app=other-{n}"), "").marks()))
            .count();
        assert!(seem < 100, "{seem} of 1000");
        assert!(marks.may_have(Selection::default().marks()));
    }
}
