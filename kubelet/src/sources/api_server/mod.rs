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
//! * While the server is away, what it said last stands.
//!
//! # Memory
//! The source keeps a UID and a number for each pod, never the pod. Lists are read in pages and each pod is transformed
//! as it comes, so a cluster of 100,000 pods costs what its slim pods cost, and one page.
//!
//! # What it relies on
//! Two objects of one UID and one resource version are the same, and a watch is in the order of its versions: Kubernetes
//! promises both. Where the order is seen to be broken, the source lists anew. A server whose versions went back (etcd
//! restored from a backup) is found out by any pod older than it was, and believed from scratch.

mod connect;
mod follow;
mod metadata;
mod pace;
mod source;

pub use connect::connect;

pub use metadata::PodMetadata;
pub use source::{ApiServer, ApiServerSource};
