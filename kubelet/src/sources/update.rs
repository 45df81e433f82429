//! What a source says: the common language of the file, http and API-server sources.

use std::fmt;
use std::sync::Arc;

use pod_index::PodUid;

/// The places a pod can come from. All but [`Kubelet`](Self::Kubelet) have the names that `kubernetes.io/config.source` gives
/// them.
///
/// Kubelet: `FileSource`, `HTTPSource`, `ApiserverSource` (`pkg/kubelet/types/pod_update.go`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// A manifest file, or a directory of them.
    File,
    /// A URL that serves manifests.
    Http,
    /// The kubelet of this node, asked for the pods that it runs.
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

/// One thing that a source says about its pods.
///
/// A source starts with a [`Set`](Self::Set), possibly an empty one: with it, the source counts as seen.
/// File and http sources only ever say `Set`; the API server also says what changed.
///
/// Kubelet: `PodUpdate` (`pkg/kubelet/types/pod_update.go`).
#[doc(alias = "PodUpdate")]
#[derive(Debug)]
pub enum SourceUpdate<P> {
    /// These are all of the source's pods; whatever it named before and is not among them is gone.
    ///
    /// The kubelet's `SET`.
    Set(Vec<Arc<P>>),
    /// These pods are new, or have changed.
    ///
    /// The kubelet's `ADD`, `UPDATE` and `DELETE`, which its merge treats alike: it looks at the pods themselves.
    Upsert(Vec<Arc<P>>),
    /// These pods are gone.
    ///
    /// The kubelet's `REMOVE`.
    Remove(Vec<PodUid>),
}

// By hand: a derive would ask for `P: Clone`, and only the references are cloned.
impl<P> Clone for SourceUpdate<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Set(pods) => Self::Set(pods.clone()),
            Self::Upsert(pods) => Self::Upsert(pods.clone()),
            Self::Remove(uids) => Self::Remove(uids.clone()),
        }
    }
}
