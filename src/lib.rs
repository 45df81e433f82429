//! The kubelet's pod manager as an embeddable, lock-free index: *which pod is this?*
//!
//! One [`Writer`] publishes immutable [`Snapshot`]s; any number of [`Reader`]s look pods up in them, from any thread,
//! without ever blocking.
//!
//! ```text
//!              makes the next snapshot            loads the current one
//! operations ─> Writer ─────> (one atomic cell) ─────> Reader ─> Guard           for one piece of work
//!                 │ ^                                       ├──> CachedReader    for a thread that always asks
//!                 v │ frees, when nobody                    └──> OwnedSnapshot   to keep
//!            retire queue  holds it any more
//! ```
//!
//! # Examples
//! ```
//! use pod_index::PodMeta;
//!
//! /// What this agent keeps of a pod. The full Kubernetes object would do as well.
//! struct Pod { uid: String, name: String, namespace: String }
//!
//! impl PodMeta for Pod {
//!     fn uid(&self) -> &str { &self.uid }
//!     fn name(&self) -> &str { &self.name }
//!     fn namespace(&self) -> &str { &self.namespace }
//!     fn annotation(&self, _key: &str) -> Option<&str> { None }
//! }
//!
//! let (mut writer, reader) = pod_index::new();
//! let web = Pod { uid: "u1".into(), name: "web-0".into(), namespace: "shop".into() };
//! writer.add_pod(web)?;
//!
//! let mut pods = reader.cached();
//! let pod = pods.pod_by_uid("u1").expect("it was published");
//! assert_eq!(pod.name, "web-0");
//! # Ok::<(), pod_index::Error>(())
//! ```
//!
//! # How it works
//! A snapshot holds all indices of one moment: pods and mirror pods by UID, pods and mirror pods by full name, and the
//! translation from a mirror's UID to its static pod's. They are persistent structures: the writer clones the current
//! snapshot in O(1), changes the clone, which copies the few small pages on the way to what changes and shares all
//! others, and publishes it by swapping one pointer. Hence
//!
//! * **a read sees one moment.** By-UID and by-name answers of one snapshot belong together; a mirror and the static pod
//!   it translates to share a full name in every snapshot there ever is;
//! * **a read costs what a hash table costs.** A look-up through a [`CachedReader`] or a [`Guard`] takes no lock, allocates
//!   nothing, counts no shared reference and writes to no memory that another reader uses; so readers on many threads do
//!   not slow each other down. (What gives you something to keep counts a shared reference: [`Reader::snapshot`] and the
//!   look-ups of [`Reader`] itself. A translation copies its answer if that is a UID in an unusual spelling);
//! * **a reader never frees**, the last handle of an index that has no writer any more apart. What was replaced waits in
//!   the writer's retire queue until no reader holds it, so replacing a hundred thousand pods makes no reader pay for
//!   freeing them;
//! * **whole-set reads are views.** [`Snapshot::pods`] and its like are O(1) to obtain and copy nothing.
//!
//! # Which handle?
//! | you want | use | it costs |
//! |---|---|---|
//! | answers for every event, on a thread of its own | [`Reader::cached`] | one relaxed atomic load a look-up |
//! | several answers of one moment, now and then | [`Reader::load`] | some ten nanoseconds a guard |
//! | a state to keep, or to hold across an `await` | [`Reader::snapshot`] | a shared reference count |
//! | to be told what has changed | [`Reader::changes`] | in proportion to the changes |
//! | what lies between two snapshots | [`Snapshot::changes_since`] | in proportion to the changes |
//! | a pod whose event came first | [`Reader::wait_for`] | a look-up for each publication |
//! | the kubelet's interface, shared by several writers | [`PodManager`] | a mutex for writers, nothing for readers |
//!
//! [`docs::embedders`] has the figures, and complete examples: threads, async, memory, writing, sources, testing.
//!
//! # Trade-offs
//! * **Stale reads.** This is a cache. What you read was true when its snapshot was published.
//! * **One writer.** [`Writer`] is not `Clone` and its methods take `&mut self`. Give it a thread and a channel, and
//!   publish what has gathered with one [`Writer::apply`].
//! * **Dear writes.** A write copies pages where a plain hash table would change a word. Batches share the copies.
//! * **Held snapshots cost memory.** An old snapshot keeps alive the pods and pages that only it holds. Keep guards short;
//!   an idle [`CachedReader`] wants [`refresh`](CachedReader::refresh). [`Writer::retired_snapshots`] shows a reader that
//!   holds on.
//!
//! # Progress
//! Reads are lock-free always and wait-free in practice: they rest on arc-swap's `load`, whose own documentation says
//! when not. A thread that holds more than eight guards at once takes a shared reference count for the ninth. The writer
//! never waits for a reader.
//!
//! # The kubelet's words
//! A *static pod* comes from a file or a URL, not from the API server. The kubelet shows it to the API server as a *mirror
//! pod*, a second object with a UID of its own and the same *full name* (`name_namespace`). So one pod has two UIDs, and
//! [`Snapshot::translate_pod_uid`] turns the API server's into the node's. A method that has an equivalent in the
//! kubelet names it, and carries it as a search alias: look for `GetPodByUID`.
//!
//! # Features
//! `k8s-openapi` (default) implements [`PodMeta`] for its `Pod`; `stream` makes [`Changes`] a `futures_core::Stream`. No
//! feature adds tokio or kube.
//!
//! Two more packages build on this one. `pod-index-kubelet` is a library that reads static pods as the kubelet does,
//! follows the API server, keeps mirror pods, Secrets and `ConfigMaps`, and stores pods on disk. `pod-index-agent` is a
//! node agent.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

pub mod docs;
mod error;
mod follow;
mod id;
pub mod identity;
mod manager;
mod map;
mod pod;
mod reader;
mod snapshot;
mod sync;
mod text;
mod update;
#[expect(unsafe_code, reason = "see the file's own account of it")]
mod versions;
mod wake;
mod writer;

/// The README's example is a test.
#[cfg(all(doctest, feature = "k8s-openapi"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::{Error, ErrorKind};
pub use follow::{Changes, PodKey, Step, WaitError};
pub use id::{
    FullName, MirrorPodUid, ParseFullNameError, ParseUidError, PodUid, ResolvedPodUid, UidRef, UidText,
};
pub use manager::PodManager;
pub use pod::{
    API_SERVER_SOURCE, CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION, PodMeta, is_mirror_pod, is_mirror_pod_of, is_static_pod,
};
pub use reader::{CachedReader, Guard, OwnedSnapshot, Reader};
pub use snapshot::{
    Change, FullNames, FullNamesIter, MirrorPods, MirrorPodsIter, MirrorToPodIter, PodAndMirror, Pods,
    PodsAndMirrorPods, PodsIter, Snapshot, StaticPods, StaticPodsIter, StaticPodsWithMirrors,
    StaticPodsWithMirrorsIter, UidTranslations,
};
#[cfg(any(loom, shuttle))]
#[doc(hidden)]
pub use sync::freed_by_this_thread;
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
    let versions = versions::Versions::new();
    let published = versions.published().clone();
    let wake = std::sync::Arc::new(wake::Wake::new());
    let herald = wake::Herald::new(std::sync::Arc::clone(&wake));
    (Writer::new(versions, herald), Reader::new(published, wake))
}
