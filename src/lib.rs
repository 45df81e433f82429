//! The kubelet's pod manager as an embeddable, lock-free index: *which pod is this?*
//!
//! One [`Writer`] publishes immutable [`Snapshot`]s. Any number of [`Reader`]s look pods up in them, from any
//! thread, without ever blocking.
//!
//! ```text
//!              makes the next snapshot            loads the current one
//! operations ─> Writer ─────> (one atomic cell) ─────> Reader ─> Guard           for one piece of work
//!                 │ ^                                       ├──> CachedReader    for a thread that always asks
//!                 v │ frees what no reader holds            ├──> OwnedSnapshot   to keep
//!            retire queue                                   └──> Changes         for what changes, step by step
//! ```
//!
//! # Examples
//! ```
//! use std::net::IpAddr;
//!
//! use pod_index::{PodKeys, PodMeta};
//!
//! /// What this agent keeps of a pod. The full Kubernetes object would do as well, or the ready-made `SimplePod`.
//! struct Pod { uid: String, name: String, namespace: String, ip: IpAddr }
//!
//! impl PodMeta for Pod {
//!     fn uid(&self) -> &str { &self.uid }
//!     fn name(&self) -> &str { &self.name }
//!     fn namespace(&self) -> &str { &self.namespace }
//!     fn annotation(&self, _key: &str) -> Option<&str> { None }
//!     // By what else it is found: IPs, container IDs, custom keys.
//!     fn keys(&self, keys: &mut PodKeys<'_>) { keys.ip(self.ip); }
//! }
//!
//! let (mut writer, reader) = pod_index::new();
//! let ip = IpAddr::from([10, 0, 0, 7]);
//! let web = Pod { uid: "u1".into(), name: "web-0".into(), namespace: "shop".into(), ip };
//! writer.upsert_pod(web)?;
//!
//! // On any thread, as often as you like:
//! let mut pods = reader.cached();
//! let found = pods.get(ip).expect("it was published");
//! assert_eq!(found.pod.name, "web-0");
//! assert!(pods.get("u1").is_some() && pods.get(("shop", "web-0")).is_some());
//! # Ok::<(), pod_index::Error>(())
//! ```
//!
//! # Which lookup?
//! The index has the pods that you write to it; it reads no API server itself. What can you ask?
//!
//! | you have | ask |
//! |---|---|
//! | a UID, a namespace and name, an IP, a container ID, a [custom key](CustomKeyKind) | [`Snapshot::get`] |
//! | a log file's path, or any text that may be one of these | [`Identity::parse`](identity::Identity::parse), then [`resolve`](identity::Identity::resolve) |
//! | a cgroup's path, the content of `/proc/PID/cgroup` | the same, [if you trust who made the cgroup](identity::Cgroup#trust); a process of a stranger: the resolvers or `Roots::place` of `pod_index_kubelet::process` |
//! | many keys at once | [`Snapshot::get_many`] |
//! | a key that several pods share | [`Snapshot::claimants`], [`Snapshot::pods_by_custom_key`] |
//! | an event whose pod may be gone by now | [`Snapshot::removed`], or `resolve`; needs [`Options::keep_removed`] |
//! | an event and its time, when the IP or the name may be another pod's by now | [`Snapshot::at`]; needs [`Options::keep_times`] |
//! | a UID from the API server that may be a mirror pod's | [`Snapshot::translate_pod_uid`], [`Snapshot::pod_uid_of_mirror`] |
//! | a static pod's UID, and you want that of its mirror pod | [`Snapshot::mirror_uid_of_pod`] |
//! | nothing: you want all pods | [`Snapshot::pods`] |
//!
//! # Which handle?
//! | you want | use | it costs |
//! |---|---|---|
//! | a lookup for every event, on one thread | [`Reader::cached`] | one relaxed atomic load per lookup |
//! | several consistent lookups, occasionally | [`Reader::load`] | some ten nanoseconds per guard |
//! | a state to keep, or to hold across an `await` | [`Reader::snapshot`] | a shared reference count |
//! | notification of changes | [`Reader::changes`] | proportional to the changes |
//! | the difference between two snapshots | [`Snapshot::changes_since`] | proportional to the changes |
//! | a pod whose event arrived first | [`Reader::wait_for`] | one lookup per publication |
//! | the kubelet's interface, shared by several writers | [`PodManager`] | a mutex for writers, nothing for readers |
//!
//! Three chapters have the figures and complete examples. [`docs::embedders`]: how to begin, features, testing.
//! [`docs::lookups`]: keys, threads, async, batches, removed pods, lookups at a time. [`docs::writing`]: your own
//! type, changes, memory, the end.
//!
//! # Kubernetes terms
//! A *static pod* comes from a file or a URL, not from the API server. The kubelet shows it to the API server
//! as a *mirror pod*: a second object with its own UID and the same *full name* (`name_namespace`). So one
//! pod has two UIDs, and [`Snapshot::translate_pod_uid`] turns the API server's into the node's. Methods with
//! an equivalent in the kubelet name it and have it as a search alias: try `GetPodByUID`.
//!
//! # How it works
//! A snapshot holds all indices of one moment: pods and mirror pods by UID and by full name, pods by
//! container ID, IP and custom key, and the translation from a mirror pod's UID to its static pod's.
//! The writer clones the current snapshot in O(1) and changes the clone. This copies the few small pages on
//! the path to each change and shares all others. The writer publishes the clone by swapping one pointer.
//! Therefore:
//!
//! * **A read sees one moment.** Results by UID and by name from one snapshot belong together. In every
//!   snapshot, a mirror pod and the static pod that it translates to share a full name.
//! * **A read takes no lock.** A lookup through a [`CachedReader`] or a [`Guard`] allocates nothing, counts no
//!   shared reference and writes to no memory that another reader uses. So readers on many threads do not
//!   slow each other down. Exceptions: [`Reader::snapshot`] and [`Reader::pod`] return a value that you own,
//!   so they increment a shared reference count; so does the first lookup of a [`CachedReader`] after a
//!   publication. A translation allocates if its result is neither a lower-case UUID nor 32 lower-case hex
//!   digits. Listing the pods of a key that several pods claim, and [`Snapshot::is_contested`], may allocate once. So may
//!   the first time that a thread takes a snapshot: its first [`Reader::load`], or its first lookup after a publication
//!   by a [`CachedReader`] that another thread has made.
//! * **Readers never free memory.** Replaced snapshots wait in the writer's retire queue until no reader
//!   holds them. Then the writer frees them. Exceptions: without a writer, the last handle frees the index; and
//!   the last clone of a pod's `Arc` frees that pod, wherever it is dropped.
//! * **Whole-set reads are views.** [`Snapshot::pods`] and similar methods are O(1) and copy nothing.
//!
//! # Trade-offs
//! * **Stale reads.** This is a cache: results were true when their snapshot was published.
//! * **One writer.** [`Writer`] is not `Clone`, and its methods take `&mut self`. Give it a thread and a
//!   channel, and publish queued changes with one [`Writer::apply`].
//! * **Expensive writes.** A write copies pages where a plain hash table would change a word. Batches share
//!   the copies.
//! * **Held snapshots use memory.** An old snapshot keeps the pods and pages alive that only it holds. Keep
//!   guards short, and [`refresh`](CachedReader::refresh) an idle [`CachedReader`].
//!   [`Writer::retired_snapshots`] tells how many replaced snapshots are left, [`Writer::oldest_retired`] which one is the oldest.
//!
//! # Progress
//! Reads are always lock-free: they use arc-swap's `load`. By its documentation, they are also wait-free, except for at most one
//! of `usize::MAX / 4` loads, which may have to try again. A thread that holds eight guards takes a shared reference count for each further
//! one. The writer never waits for a reader; a publication wakes the followers that sleep.
//!
//! # Features
//! `k8s-openapi` (default) implements [`PodMeta`] for its `Pod`. That crate compiles only if your program chooses a version of
//! Kubernetes, for example with `k8s-openapi = { version = "0.29", features = ["latest"] }`. If you need none of its types,
//! set `default-features = false`. `serde` serializes UIDs and full names as strings. No feature adds tokio or kube.
//!
//! Two more packages build on this one. `pod-index-kubelet` is a library that reads pods from manifests, the kubelet and
//! the API server, joins them with their Namespaces and workloads, manages mirror pods, follows Secrets and
//! `ConfigMaps`, and stores pods on disk. `pod-index-agent` is a node agent.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

/// Makes types that consist of references copyable. A derive would require the same of `P`.
macro_rules! copied {
    ($($name:ident),*) => {$(
        impl<P> Clone for $name<'_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P> Copy for $name<'_, P> {}
    )*};
}

/// Prints these values of a type, and never a pod's content. A derive would require `Debug` of `P`, and print it.
macro_rules! shown {
    ($name:ident $(<$lifetime:lifetime>)?, |$it:ident| $($field:ident: $value:expr),*) => {
        impl<P: crate::pod::PodMeta> std::fmt::Debug for $name<$($lifetime,)? P> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut shown = f.debug_struct(stringify!($name));
                $(shown.field(stringify!($field), &$value);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}

mod at;
mod batch;
pub mod docs;
mod error;
mod follow;
mod id;
pub mod identity;
mod manager;
mod moment;
mod options;
mod pod;
mod pods;
mod reader;
mod resolve;
mod snapshot;
mod table;
mod text;
mod update;
mod writer;

pub use at::{AtTime, Bounds, Candidate, Holder, NotFound};
pub use batch::{Event, Tolerance};
pub use error::{Error, ErrorKind};
pub use follow::{Changes, Step, WaitError};
pub use id::{FullName, MirrorPodUid, ParseIdError, PodUid, ResolvedPodUid, UidRef};
pub use manager::PodManager;
pub use moment::{Coverage, Moment};
pub use options::Options;
pub use pod::{
    API_SERVER_SOURCE, CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION, CustomKeyKind, ENDED_ANNOTATION, Life, MAX_KEY_LENGTH, MAX_KEYS_PER_POD,
    PodKeys, PodMeta, SimpleContainer, SimplePod, Time, is_mirror_pod, is_mirror_pod_of, is_static_pod,
};
#[cfg(feature = "k8s-openapi")]
pub use pod::{claim_keys, workload};
pub use pods::{Found, FoundBy, Key};
pub use reader::{CachedReader, Guard, OwnedSnapshot, Reader};
pub use snapshot::kubelet;
pub use snapshot::{Change, KeyCounts, RemovedPods, Snapshot};
#[cfg(any(pod_index_loom, pod_index_shuttle))]
#[doc(hidden)]
pub use table::sync::freed_by_this_thread;
pub use update::Upserted;
pub use writer::{Applied, Operation, Refused, Writer};

/// An empty index: its writer and a first reader.
///
/// It keeps the current pods. [`with_options`] can keep removed ones, too.
///
/// # Complexity
/// O(1).
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// let (mut writer, reader) = pod_index::new();
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
/// assert!(reader.load().pod_by_uid("u1").is_some());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: `NewBasicPodManager` (`pkg/kubelet/pod/pod_manager.go`).
#[doc(alias = "NewBasicPodManager")]
#[must_use]
pub fn new<P: PodMeta>() -> (Writer<P>, Reader<P>) {
    with_options(Options::new())
}

/// As [`new`], with a choice of what is kept.
///
/// # Complexity
/// O(1).
///
/// # Examples
/// See [`Options`].
#[must_use]
pub fn with_options<P: PodMeta>(options: Options) -> (Writer<P>, Reader<P>) {
    let versions = table::versions::Versions::new(Snapshot::empty(options));
    let published = versions.published().clone();
    let wake = std::sync::Arc::new(table::wake::Wake::default());
    let announcer = table::wake::Announcer(std::sync::Arc::clone(&wake));
    (Writer { versions, announcer, steps: moment::StepDetector::default() }, Reader { published, wake })
}
