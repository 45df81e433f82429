//! What the merge needs from a pod, implemented for the full Kubernetes object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::static_pods::{self, Refusal, StaticPodClaim};

use pod_index::{CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta};

/// A pod that sources can emit and that the [`Merge`](super::Merge) can compare with an older version.
///
/// Implemented for k8s-openapi's `Pod`. Implement it for your own pod type to merge such pods.
pub trait SourcePod: PodMeta + Clone {
    /// Sets one annotation: the merge marks every pod with its source and the time it was first seen. A pod
    /// type without annotations may ignore it.
    fn set_annotation(&mut self, key: &str, value: &str);

    /// What has changed in `newer`, a later version of the same pod.
    fn difference(&self, newer: &Self) -> Difference;

    /// Whether the pod is being deleted: it has a deletion timestamp.
    fn is_terminating(&self) -> bool;

    /// What a mirror pod says about its static pod. `None` for every other pod, and for pod types that keep
    /// too little information: no static pods are derived from those.
    fn static_pod_claim(&self) -> Option<Result<StaticPodClaim, Refusal>> {
        None
    }

    /// The static pod of this mirror pod. Called only if [`static_pod_claim`](Self::static_pod_claim)
    /// returned a valid claim.
    #[must_use]
    fn static_pod(&self) -> Self {
        self.clone()
    }

    /// The node that the pod is bound to. `None` if it is bound to none, or if the pod type does not keep it.
    fn node(&self) -> Option<&str> {
        None
    }

    /// The same pod with the status of `newer`, another source's view of it. `None` if the pod keeps no
    /// status, or if its own is at least as new.
    fn with_status_of(&self, _newer: &Self) -> Option<Self> {
        None
    }
}

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

impl SourcePod for Pod {
    fn set_annotation(&mut self, key: &str, value: &str) {
        self.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }

    /// Kubelet: `podsDifferSemantically` (`pkg/kubelet/config/config.go`), which ignores owners and finalizers. Clients of
    /// the index need them: a controller that adopts a pod changes nothing else.
    fn difference(&self, newer: &Self) -> Difference {
        let (old, new) = (&self.metadata, &newer.metadata);
        if self.spec != newer.spec
            || !same_entries(old.labels.as_ref(), new.labels.as_ref())
            || old.deletion_timestamp != new.deletion_timestamp
            || old.deletion_grace_period_seconds != new.deletion_grace_period_seconds
            || old.owner_references != new.owner_references
            || old.finalizers != new.finalizers
            || !same_annotations(old.annotations.as_ref(), new.annotations.as_ref())
        {
            Difference::Semantic
        } else if self.status != newer.status {
            Difference::Status
        } else {
            Difference::None
        }
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn static_pod_claim(&self) -> Option<Result<StaticPodClaim, Refusal>> {
        static_pods::claim_of(self)
    }

    fn static_pod(&self) -> Self {
        static_pods::derived(self)
    }

    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    /// The kubelet holds API server pods as it last received them. Compare resource versions to see which is
    /// newer.
    fn with_status_of(&self, newer: &Self) -> Option<Self> {
        let version = |pod: &Self| pod.metadata.resource_version.as_deref()?.parse::<u64>().ok();
        let is_older = version(self).zip(version(newer)).is_some_and(|(own, other)| other <= own);
        if is_older || self.status == newer.status {
            return None;
        }
        Some(Self { status: newer.status.clone(), ..self.clone() })
    }
}

/// Known pods keep the time they were first seen. If nothing else has changed either, they keep their
/// [`Arc`].
pub(super) fn as_first_seen(pods: Vec<Pod>, before: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
    let before: HashMap<_, _> = before.iter().map(|pod| (pod.uid(), pod)).collect();
    let as_first_seen = |mut pod: Pod| {
        let Some(before) = before.get(pod.uid()) else { return Arc::new(pod) };
        if let Some(seen) = before.annotation(CONFIG_SEEN_ANNOTATION) {
            pod.set_annotation(CONFIG_SEEN_ANNOTATION, seen);
        }
        if ***before == pod { Arc::clone(before) } else { Arc::new(pod) }
    };
    pods.into_iter().map(as_first_seen).collect()
}

/// Whether both sets are the same objects in the same order.
pub(super) fn same(before: &[Arc<Pod>], now: &[Arc<Pod>]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(before, now)| Arc::ptr_eq(before, now))
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
