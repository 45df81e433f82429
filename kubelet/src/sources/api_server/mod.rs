//! Pods from the API server: of one node, or of all.
//!
//! This module knows list, watch and what goes wrong with them. It must not know what else feeds the index.
//!
//! # Rules
//! * The first list is one [`Set`](crate::sources::SourceUpdate::Set), however many pages it came in, and nothing is said
//!   before it is complete.
//! * After that only changes are said. A list that has to be fetched anew, because the history was compacted (410 Gone) or
//!   the watch proved to be out of order, is compared with what was said: what is the same is not said again, what is gone
//!   is removed, and nothing else is missing for a moment.
//! * A broken watch goes on from the last resource version. What a failure made doubtful is listed anew.
//! * Failures wait, longer each time, with jitter, so that a thousand agents do not come back as one. That goes for watches
//!   that the server closes as soon as they are open, too. `Retry-After` is obeyed, up to the
//!   [`patience`](ApiServer::patience).
//! * A watch without an event or a bookmark for 150 s counts as dead: the pods are listed anew. The status says how long ago
//!   the server was heard ([`silence`](crate::sources::SourceStatus::silence)).
//! * While the server is away, what it said last stands. It is asked again at least every 8 s.
//!
//! # Memory
//! The source keeps a UID and a number for each pod, never the pod. Lists are read in pages and each pod is transformed
//! as it comes, so a cluster of 100,000 pods costs what its slim pods cost, and one page.
//!
//! # What it relies on
//! Two objects of one UID and one resource version are the same, and a watch is in the order of its versions: Kubernetes
//! promises both. Where the order is seen to be broken, the source lists anew.
//!
//! A server may have been restored from a backup (etcd's versions went back). After each watch that was cut off, the UIDs and
//! versions that are held are compared with a list of the server's, of metadata alone. Any difference that the watch does not
//! tell within a few seconds makes the source list anew, from scratch; a warning says so. A list that shows a pod older than
//! it was does the same.

mod compare;
mod connect;
#[cfg(feature = "tls")]
mod expiry;
mod follow;
mod kubeconfig;
mod metadata;
mod pace;
mod source;
mod wire;

pub use connect::{connect, connect_as};
pub use kubeconfig::check_kubeconfig;

pub use metadata::PodMetadata;
pub use source::{ApiServer, ApiServerSource};
