//! Updates from sources: the common type of all sources.

use std::fmt;
use std::sync::Arc;

use pod_index::PodUid;
use serde::Serialize;
use tokio::sync::Notify;

/// A role that a source has in the [merge](super::Merge): it decides which of two sources counts if both have the same pod.
///
/// There are fewer roles than modules: a kubelet's port and its socket have the same role. A source of your own takes the one
/// whose rules suit it, such as [`Http`](Self::Http) for static pods that you manage yourself; see
/// [`StatusWriter`](super::StatusWriter).
///
/// **One role, one source.** Two sources with the same role replace each other's pods: the merge keeps one set of pods for each
/// role. If you have two places for static pods that you manage yourself, make one source of them.
///
/// **A role decides whether its pods are static.** The merge writes the role's name into the annotation
/// `kubernetes.io/config.source`, and every pod with a name there other than `api` [is a static
/// pod](pod_index::is_static_pod). [`Kubelet`](Self::Kubelet) is the exception: a kubelet lists pods of all kinds, so its pods
/// keep the annotation that they have.
///
/// # Examples
/// ```
/// use pod_index_kubelet::sources::Source;
///
/// assert_eq!(Source::ALL.map(Source::as_str), ["file", "http", "kubelet", "api"]);
/// ```
///
/// Kubelet: `FileSource`, `HTTPSource`, `ApiserverSource` (`pkg/kubelet/types/pod_update.go`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A manifest file, or a directory of manifests.
    File,
    /// A URL that serves manifests.
    Http,
    /// The kubelet of this node, which lists the pods it runs.
    Kubelet,
    /// The API server.
    Api,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 4] = [Self::File, Self::Http, Self::Kubelet, Self::Api];

    /// The source's name: the value of the annotation `kubernetes.io/config.source`, or `kubelet`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Kubelet => "kubelet",
            Self::Api => pod_index::API_SERVER_SOURCE,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An update from a source.
///
/// A source starts with a [`Set`](Self::Set), possibly an empty one, or with an [`Incomplete`](Self::Incomplete) one, and
/// then counts as seen. Files and URLs send nothing but sets. A kubelet sends incomplete sets as well, and the API server
/// single changes.
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
