//! The pods that a client selects: by namespace, labels and fields. A fast test rules out most events for most watches.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use super::fields::Fields;
use super::labels::Labels;

/// The selected pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) namespace: Option<String>,
    pub(super) labels: Labels,
    pub(super) fields: Fields,
}

impl Selection {
    pub(super) fn matches(&self, pod: &Pod) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| namespace == pod.namespace())
            && self.fields.matches(pod)
            && self.labels.matches(pod.metadata.labels.as_ref())
    }

    /// Whether it selects every pod, or every pod of a namespace.
    pub(super) fn has_no_selector(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// The marks that every selected pod has.
    pub(super) fn marks(&self) -> Marks {
        let namespaces = self.namespace.as_deref().into_iter().chain(self.fields.necessary_namespace());
        let marks = namespaces.map(|namespace| Marks::of(("namespace", namespace)));
        let marks = marks.chain(self.fields.necessary_name().map(|name| Marks::of(("name", name))));
        marks.chain(self.labels.necessary().map(|label| Marks::of(("label", label)))).collect()
    }
}

/// A Bloom filter of the values by which pods are selected. It may report an absent value as present.
///
/// The filter makes a thousand watches affordable. An event is fully matched only against the watches whose marks it
/// contains. Each other watch costs one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u128);

impl Marks {
    /// The marks of a pod: its namespace, its name, each label.
    pub(super) fn of_pod(pod: &Pod) -> Self {
        let labels = pod.metadata.labels.iter().flatten();
        let marks = labels.map(|(key, value)| Self::of(("label", (&**key, &**value))));
        let names = [Self::of(("namespace", pod.namespace())), Self::of(("name", pod.name()))];
        marks.chain(names).collect()
    }

    /// Two bits of 128. With a dozen labels, about 3 of 100 absent values seem present.
    fn of(element: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        element.hash(&mut hasher);
        let hash = hasher.finish();
        Self(1 << (hash & 127) | 1 << (hash >> 7 & 127))
    }

    /// Whether all of `other` may be present.
    pub(super) fn may_have(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl FromIterator<Marks> for Marks {
    fn from_iter<I: IntoIterator<Item = Marks>>(marks: I) -> Self {
        marks.into_iter().fold(Self::default(), Self::and)
    }
}

#[cfg(test)]
#[path = "../../../tests/support/seeded.rs"]
mod seeded;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn selection(namespace: Option<&str>, labels: &str, fields: &str) -> Selection {
        Selection {
            namespace: namespace.map(str::to_owned),
            labels: Labels::parse(labels).unwrap(),
            fields: Fields::parse(fields).unwrap(),
        }
    }

    fn pod(namespace: &str, name: &str, labels: &[(String, String)]) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.labels = Some(labels.iter().cloned().collect());
        pod
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
            prop_assert!(!selection.matches(&pod) || Marks::of_pod(&pod).may_have(selection.marks()));
        }
    }

    #[test]
    fn few_pods_have_marks_that_they_should_not_have() {
        let labels: Vec<_> =
            (0..10).map(|n| (format!("example.com/label-{n}"), format!("value-{n}"))).collect();
        let marks = Marks::of_pod(&pod("shop", "web-7d4b9c-x2x7p", &labels));
        let seem = (0..1000)
            .filter(|n| marks.may_have(selection(None, &format!("app=other-{n}"), "").marks()))
            .count();
        assert!(seem < 100, "{seem} of 1000");
        assert!(marks.may_have(Selection::default().marks()));
    }
}
