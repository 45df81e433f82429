//! Pods from the API server: of one node, or of all.
//!
//! # Rules
//! * The first list is one [`Set`](crate::sources::SourceUpdate::Set), emitted once it is complete. It comes from the
//!   server's watch cache, which does not load etcd.
//! * After that, only changes are emitted. If the pods have to be listed again, because the history was
//!   compacted (410 Gone) or the watch was out of order, the list is compared with what was emitted:
//!   unchanged pods are not emitted again, missing pods are removed, and no other pod disappears meanwhile.
//! * A broken watch continues from the last resource version. If a failure leaves doubt, the pods are listed
//!   again.
//! * Failures cause waits that grow, with jitter, so that a thousand agents do not return at once. Watches
//!   that the server closes immediately count as failures. `Retry-After` is obeyed, up to a
//!   minute.
//! * A pod that cannot be decoded is a problem of its own, named with its field
//!   ([`ProblemKind::Syntax`](crate::sources::ProblemKind::Syntax)); all other pods count. If an earlier version
//!   of it was emitted, that one stays until the pod is deleted or can be decoded again. A pod on which this program panics,
//!   or the function that transforms pods, is treated likewise ([`Defect`](crate::sources::ProblemKind::Defect)).
//! * A pod that would take more than 512 KiB of memory is a problem of its own, a warning. It is emitted without the fields
//!   that take most, which the annotation [`LEFT_OUT`](crate::memory::LEFT_OUT) names: see [`memory`](crate::memory).
//! * A watch without an event or a bookmark for 150 s is given up, and continued from the last resource version over another
//!   connection: what a proxy has swallowed comes then. A server that is silent because nothing changes (see
//!   [`Times::silence`]) is asked for watches of 90 to 120 s from then on, and their end shows that the connection works. If one does
//!   not end, that is a failure. The status says how long ago the server was heard
//!   ([`silence`](crate::sources::SourceStatus::silence)).
//! * The server is asked for protobuf, which takes it less than half the time. One that answers in JSON is understood as well.
//!   After an answer in protobuf that cannot be read, all are in JSON.
//! * During an outage the last state stays. The server is tried at least every 7.5 s.
//!
//! # Memory
//! The source keeps a UID and a number for each pod, never the pod itself. Each pod of a list is decoded and
//! transformed on arrival. So a cluster of 100,000 pods takes the memory of its transformed pods.
//!
//! # Assumptions
//! Kubernetes promises that two objects with the same UID and resource version are equal, and that a watch is
//! ordered by version. If a violation of the order is seen, the source lists again.
//!
//! A server may have been restored from a backup (etcd's versions went back). After each watch that was cut
//! off, the UIDs and versions held here are compared with a metadata list from the server. If the watch does
//! not resolve a difference within a few seconds, the source lists everything again, with a warning. A list
//! that shows a pod in an older version has the same effect.

mod connect;
mod source;

pub use crate::reflector::Times;
pub use connect::{authenticate, check_kubeconfig, connect, connect_with, load_config, server_url};
pub use source::ApiServer;
