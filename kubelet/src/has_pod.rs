//! What an index stores that has a whole pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

/// What an index stores, if it has the whole pod: a [`Pod`], a [`Record`](super::records::Record), or a type of your own.
/// The follower of owners (`owners`) works with each of them. Checkpoints and mirror pods need an index of [`Pod`]s.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index::{PodKeys, PodMeta};
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
/// }
///
/// impl HasPod for Priced {
///     fn pod(stored: &Arc<Self>) -> &Arc<Pod> { &stored.pod }
/// }
/// # let priced = Arc::new(Priced { pod: Arc::default(), cents_per_hour: 2 });
/// # assert_eq!((Priced::pod(&priced).uid(), priced.cents_per_hour), ("", 2));
/// ```
pub trait HasPod: PodMeta {
    /// The pod.
    fn pod(stored: &Arc<Self>) -> &Arc<Pod>;
}

impl HasPod for Pod {
    fn pod(stored: &Arc<Self>) -> &Arc<Pod> {
        stored
    }
}
