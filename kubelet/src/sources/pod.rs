//! What the merge needs from a pod, implemented for the full Kubernetes object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::Source;
use pod_index::{CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta};

/// How much a pod has changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difference {
    /// Nothing relevant.
    None,
    /// The status only.
    Status,
    /// The spec, labels, deletion, or annotations other than the kubelet's own.
    Semantic,
}

/// The [`CONFIG_SOURCE_ANNOTATION`] that a pod has on the API server: a mirror pod has its static pod's.
pub const API_CONFIG_SOURCE_ANNOTATION: &str = "pod-index/api-server-config.source";

/// The [`CONFIG_SEEN_ANNOTATION`] that a pod has on the API server: a mirror pod has its static pod's.
pub const API_CONFIG_SEEN_ANNOTATION: &str = "pod-index/api-server-config.seen";

/// The annotations that the kubelet itself adds to a pod, and those that keep their former values. They do not count as
/// changes.
///
/// Kubelet: `localAnnotations` (`pkg/kubelet/config/config.go`).
const LOCAL_ANNOTATIONS: [&str; 5] = [
    CONFIG_SOURCE_ANNOTATION,
    CONFIG_MIRROR_ANNOTATION,
    CONFIG_SEEN_ANNOTATION,
    API_CONFIG_SOURCE_ANNOTATION,
    API_CONFIG_SEEN_ANNOTATION,
];

impl Difference {
    /// What has changed in `new`, a later version of the same pod.
    ///
    /// Kubelet: `podsDifferSemantically` (`pkg/kubelet/config/config.go`), which ignores owners and finalizers. Clients
    /// of the index need them: a controller that adopts a pod changes nothing else.
    #[must_use]
    pub fn between(old: &Pod, new: &Pod) -> Self {
        let before = &old.metadata;
        let now = &new.metadata;
        if old.spec != new.spec
            || !same_entries(before.labels.as_ref(), now.labels.as_ref())
            || before.deletion_timestamp != now.deletion_timestamp
            || before.deletion_grace_period_seconds != now.deletion_grace_period_seconds
            || before.owner_references != now.owner_references
            || before.finalizers != now.finalizers
            || !same_annotations(before.annotations.as_ref(), now.annotations.as_ref())
        {
            Self::Semantic
        } else if old.status != new.status {
            Self::Status
        } else {
            Self::None
        }
    }
}

/// Sets an annotation. Copies a shared pod only if the value differs.
pub(super) fn set_annotation(pod: &mut Arc<Pod>, key: &str, value: &str) {
    if pod.annotation(key) != Some(value) {
        let annotations = &mut Arc::make_mut(pod).metadata.annotations;
        annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }
}

/// Removes an annotation. Copies a shared pod only if it has it.
pub(super) fn remove_annotation(pod: &mut Arc<Pod>, key: &str) {
    if pod.annotation(key).is_some()
        && let Some(annotations) = &mut Arc::make_mut(pod).metadata.annotations
    {
        annotations.remove(key);
    }
}

/// Whether an annotation is one that sources set.
pub(super) fn is_mark(key: &str) -> bool {
    LOCAL_ANNOTATIONS.contains(&key) || key.starts_with("pod-index/")
}

/// Whether two versions of a pod differ in what a kubelet takes over from the API server while the pod runs.
///
/// Kubelet: `checkAndUpdatePod` (`pkg/kubelet/config/config.go`).
pub(super) fn differs_for_kubelet(one: &Pod, other: &Pod) -> bool {
    let a = &one.metadata;
    let b = &other.metadata;
    one.spec != other.spec
        || !same_entries(a.labels.as_ref(), b.labels.as_ref())
        || a.deletion_timestamp != b.deletion_timestamp
        || a.deletion_grace_period_seconds != b.deletion_grace_period_seconds
        || !others(one).eq(others(other))
}

/// The annotations that no source sets.
fn others(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    pod.metadata.annotations.iter().flatten().filter(|(key, _)| !is_mark(key))
}

/// The node that the pod is bound to.
pub(super) fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A pod that has its whole status. One that has a part, such as the addresses alone, is none: its status may be added to another one, and
/// never replace it.
#[derive(Clone, Copy)]
pub(super) struct WholeStatus<'a>(&'a Pod);

impl<'a> WholeStatus<'a> {
    /// `None`: pods of this role have no whole status.
    pub(super) fn of(role: Source, pod: &'a Pod) -> Option<Self> {
        role.has_whole_status().then_some(Self(pod))
    }
}

/// The pod with the status of another source's view of it, unless its own is at least as new. The kubelet holds API
/// server pods as it last received them, so their resource versions say which is newer. If one of the two has none, as a
/// manifest's pod, the other's status is used: nothing says that it is older.
pub(super) fn with_status_of(pod: &Arc<Pod>, other: Option<WholeStatus<'_>>) -> Arc<Pod> {
    let Some(WholeStatus(other)) = other else { return Arc::clone(pod) };
    let has_newer_status = match (version(pod), version(other)) {
        (Some(own), Some(other)) => own < other,
        (None, _) | (_, None) => true,
    };
    if has_newer_status && other.status != pod.status {
        Arc::new(Pod { status: other.status.clone(), ..Pod::clone(pod) })
    } else {
        Arc::clone(pod)
    }
}

fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_deref()?.parse().ok()
}

/// Now in UTC, as RFC 3339, with a fraction of a second if there is one.
///
/// Kubelet: `NewTimestamp().GetString()` (`pkg/kubelet/types/types.go`).
pub(super) fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
    let nanoseconds = i32::try_from(now.subsec_nanos()).unwrap_or_default();
    Timestamp::new(seconds, nanoseconds).unwrap_or_default().to_string()
}

type Entries = BTreeMap<String, String>;

/// No map and an empty map are equal.
fn same_entries(old: Option<&Entries>, new: Option<&Entries>) -> bool {
    old.into_iter().flatten().eq(new.into_iter().flatten())
}

fn same_annotations(old: Option<&Entries>, new: Option<&Entries>) -> bool {
    let foreign = |entry: &(&String, &String)| !LOCAL_ANNOTATIONS.contains(&entry.0.as_str());
    old.into_iter().flatten().filter(foreign).eq(new.into_iter().flatten().filter(foreign))
}
