//! What the merge asks of a pod, and the answers of the full Kubernetes object.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::static_pods::{self, Refusal, StaticPodClaim};

use pod_index::{CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, PodMeta};

/// A pod that sources can tell of and that the [`Merge`](super::Merge) can tell apart from an older version.
///
/// Implemented for k8s-openapi's `Pod`. Implement it for a slim pod of your own to merge those.
pub trait SourcePod: PodMeta + Clone {
    /// Sets one annotation: the merge marks every pod with its source and with the time it was first seen. A pod
    /// that keeps no such thing may ignore it.
    fn set_annotation(&mut self, key: &str, value: &str);

    /// What is new in `newer`, a later version of the same pod.
    fn difference(&self, newer: &Self) -> Difference;

    /// Whether the pod is being deleted: it has a deletion timestamp.
    fn is_terminating(&self) -> bool;

    /// What a mirror pod says about its static pod. `None` for every other pod, and for a kind of pod that keeps too little to
    /// tell: nothing is derived from those.
    fn static_pod_claim(&self) -> Option<Result<StaticPodClaim, Refusal>> {
        None
    }

    /// The static pod of this mirror pod. Called only if [`static_pod_claim`](Self::static_pod_claim) has a good claim.
    #[must_use]
    fn static_pod(&self) -> Self {
        self.clone()
    }

    /// The same static pod under the UID that its node gives it. Called only for pods with claims.
    #[must_use]
    fn with_uid(&self, _uid: &str) -> Self {
        self.clone()
    }

    /// The same pod with the status of `newer`, a view of it that another source has. `None` if the pod keeps no status, or
    /// its own is at least as new.
    fn with_status_of(&self, _newer: &Self) -> Option<Self> {
        None
    }
}

/// How much a pod has changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difference {
    /// In nothing that matters here.
    None,
    /// In its status alone.
    Status,
    /// In its spec, its labels, its deletion, or annotations that are not the kubelet's own.
    Semantic,
}

/// The annotations that the kubelet itself puts on a pod, and that therefore are no news.
///
/// Kubelet: `localAnnotations` (`pkg/kubelet/config/config.go`).
const LOCAL_ANNOTATIONS: [&str; 3] =
    [CONFIG_SOURCE_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION];

impl SourcePod for Pod {
    fn set_annotation(&mut self, key: &str, value: &str) {
        self.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }

    /// Kubelet: `podsDifferSemantically` (`pkg/kubelet/config/config.go`).
    fn difference(&self, newer: &Self) -> Difference {
        let (old, new) = (&self.metadata, &newer.metadata);
        if self.spec != newer.spec
            || !same_entries(old.labels.as_ref(), new.labels.as_ref())
            || old.deletion_timestamp != new.deletion_timestamp
            || old.deletion_grace_period_seconds != new.deletion_grace_period_seconds
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

    fn with_uid(&self, uid: &str) -> Self {
        let mut pod = self.clone();
        static_pods::set_uid(&mut pod, uid);
        pod
    }

    /// The kubelet has the pods of the API server as it last received them. The resource version tells if that is older.
    fn with_status_of(&self, newer: &Self) -> Option<Self> {
        let version = |pod: &Self| pod.metadata.resource_version.as_deref()?.parse::<u64>().ok();
        let is_older = version(self).zip(version(newer)).is_some_and(|(own, other)| other <= own);
        if is_older || self.status == newer.status {
            return None;
        }
        Some(Self { status: newer.status.clone(), ..self.clone() })
    }
}

/// Pods that were seen before keep the time of it; where nothing else is new either, it is the same [`Arc`].
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

/// Whether two sets are the very same pods in the same order.
pub(super) fn same(before: &[Arc<Pod>], now: &[Arc<Pod>]) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(before, now)| Arc::ptr_eq(before, now))
}

type Entries = BTreeMap<String, String>;

/// No map and an empty map are the same.
fn same_entries(old: Option<&Entries>, new: Option<&Entries>) -> bool {
    old.into_iter().flatten().eq(new.into_iter().flatten())
}

fn same_annotations(old: Option<&Entries>, new: Option<&Entries>) -> bool {
    let foreign = |entry: &(&String, &String)| !LOCAL_ANNOTATIONS.contains(&entry.0.as_str());
    old.into_iter().flatten().filter(foreign).eq(new.into_iter().flatten().filter(foreign))
}
