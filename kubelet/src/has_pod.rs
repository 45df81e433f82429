//! What an index stores that has a whole pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{Change, PodMeta};

/// What an index stores, if it has the whole pod: a [`Pod`], a [`Record`](super::records::Record), or a type of your own.
/// Checkpoints, mirror pods and the follower of owners work with an index of each of them, so that one index is enough.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index::{Life, PodKeys, PodMeta};
/// use pod_index_kubelet::HasPod;
///
/// struct Priced { pod: Arc<Pod>, cents_per_hour: u32 }
///
/// impl PodMeta for Priced {
///     fn uid(&self) -> &str { self.pod.uid() }
///     fn name(&self) -> &str { self.pod.name() }
///     fn namespace(&self) -> &str { self.pod.namespace() }
///     fn annotation(&self, key: &str) -> Option<&str> { self.pod.annotation(key) }
///     fn keys(&self, keys: &mut PodKeys<'_>) { self.pod.keys(keys) }
///     // For answers about a time: without it, less of the pod's time is certain.
///     fn life(&self) -> Life { self.pod.life() }
/// }
///
/// impl HasPod for Priced {
///     fn pod(stored: &Arc<Self>) -> &Arc<Pod> { &stored.pod }
/// }
/// # let priced = Arc::new(Priced { pod: Arc::default(), cents_per_hour: 2 });
/// # assert_eq!((Priced::pod(&priced).uid(), priced.cents_per_hour), ("", 2));
/// ```
pub trait HasPod: PodMeta {
    /// The pod. It has the UID, the name and the namespace of what is stored.
    fn pod(stored: &Arc<Self>) -> &Arc<Pod>;

    /// Whether a change is one of the pod: it was added, removed, or replaced by another version. If only something else
    /// differs that is stored with it, such as the labels of its Namespace, then not: its checkpoint stays as it is.
    #[must_use]
    fn is_of_pod(change: &Change<'_, Self>) -> bool
    where
        Self: Sized,
    {
        match (change.before(), change.after()) {
            (Some(before), Some(after)) => !Arc::ptr_eq(Self::pod(before), Self::pod(after)),
            _ => true,
        }
    }
}

impl HasPod for Pod {
    fn pod(stored: &Arc<Self>) -> &Arc<Pod> {
        stored
    }
}
