//! The kubelet's pod manager as an embeddable, lock-free index: *which pod is this?*
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(feature = "agent")]
pub mod agent;
mod error;
mod id;
mod manager;
mod map;
mod pod;
mod reader;
mod snapshot;
#[cfg(feature = "sources")]
pub mod sources;
mod sync;
mod update;
mod writer;

/// The README's example is a test.
#[cfg(all(doctest, feature = "k8s-openapi"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::{Error, ErrorKind};
pub use id::{FullName, MirrorPodUid, ParseFullNameError, PodUid, ResolvedPodUid, UidRef};
pub use manager::PodManager;
pub use pod::{
    API_SERVER_SOURCE, CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION, PodMeta, is_mirror_pod, is_mirror_pod_of, is_static_pod,
};
pub use reader::{CachedReader, Guard, Reader};
pub use snapshot::{
    Change, FullNames, MirrorPods, MirrorPodsIter, PodAndMirror, Pods, PodsAndMirrorPods, PodsIter, Snapshot,
    StaticPods, StaticPodsIter, StaticPodsWithMirrors, UidTranslations,
};
pub use update::Upserted;
pub use writer::{Applied, Operation, Refused, Writer};

/// An empty index: the one that writes to it, and a first one that reads it.
///
/// # Complexity
/// O(1).
///
/// # Examples
/// ```
/// # struct Slim;
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { "u1" }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// let (mut writer, reader) = pod_index::new();
/// writer.add_pod(Slim)?;
/// assert!(reader.load().pod_by_uid("u1").is_some());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: `NewBasicPodManager` (`pkg/kubelet/pod/pod_manager.go`).
#[doc(alias = "NewBasicPodManager")]
#[must_use]
pub fn new<P: PodMeta>() -> (Writer<P>, Reader<P>) {
    let published = sync::Published::new(sync::Arc::new(Snapshot::empty()));
    (Writer::new(published.clone()), Reader::new(published))
}
