//! Updates from sources: the common type of all sources.

use std::sync::Arc;

use pod_index::PodUid;
use tokio::sync::Notify;

/// An update from a source.
///
/// A source starts with a [`Set`](Self::Set), possibly an empty one, or with an [`Incomplete`](Self::Incomplete) one, and
/// then counts as seen. Files and URLs send nothing but sets. A kubelet sends incomplete sets as well, and after these what is gone
/// for certain. The API server sends single changes.
///
/// Kubelet: `PodUpdate` (`pkg/kubelet/types/pod_update.go`).
#[doc(alias = "PodUpdate")]
#[derive(Clone, Debug)]
pub enum SourceUpdate<P> {
    /// All pods of the source. Pods that it reported before and that are missing here are gone.
    ///
    /// The kubelet's `SET`.
    Set(Vec<Arc<P>>),
    /// All pods that the source lists now, although it may have more: a kubelet that has just started lists its pods
    /// before it has read its own sources. Pods that it reported before and that are missing here may still exist.
    ///
    /// None of the kubelet's operations.
    Incomplete(Vec<Arc<P>>),
    /// These pods are new, or have changed.
    ///
    /// The kubelet's `ADD`, `UPDATE` and `DELETE`. Its merge treats them alike, since it compares the pods
    /// themselves.
    Upsert(Vec<Arc<P>>),
    /// These pods are gone.
    ///
    /// The kubelet's `REMOVE`.
    Remove(Vec<PodUid>),
}

/// Makes a source read at once, because another source has reported a change: call [`Notify::notify_one`]. Clones nudge the
/// same source.
///
/// # Examples
/// An operator's signal lists the manifests now, not within 20 seconds:
/// ```
/// # #[cfg(all(unix, feature = "file"))]
/// # fn run() {
/// use std::sync::Arc;
/// use pod_index_kubelet::sources::{NodeName, Nudge, file};
///
/// let nudge = Nudge::default();
/// let path = "/etc/kubernetes/manifests";
/// let node = NodeName::new("node-1");
/// let source = file::follow_with(path, node, file::DEFAULT_PERIOD, |_| {}, Arc::clone(&nudge));
/// nudge.notify_one();
/// # drop(source);
/// # }
/// ```
///
/// A URL and a kubelet are read at most once a second, and again after 1, 2, 4 seconds and so on until their period:
/// they may not have the change yet.
pub type Nudge = Arc<Notify>;
