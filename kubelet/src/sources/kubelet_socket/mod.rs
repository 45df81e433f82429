//! Pods from the kubelet of this node, over its Pods API: a gRPC service on a Unix socket (KEP-4188).
//!
//! Kubernetes serves it since 1.36 behind the feature gate `PodsAPI`, since 1.37 by default. It shows what the kubelet itself
//! knows: a container's ID and a pod's IP before the API server has them, the right status even if another client has written a
//! wrong one there, and all of that while the API server is away. It needs no token, only the right to use the socket.
//!
//! # Rules
//! * **The watch for speed, lists for the truth.** The watch sends only changes of a pod's status. It may drop events, and it may
//!   send two of them in the wrong order. So the pods are listed after each connection, a second after the last event of a
//!   burst, and every period (20 seconds). When containers of a pod have ended, they are listed at once and after 1, 2, 4
//!   seconds and so on: the removal of a pod is no event. At most one list a second is requested.
//! * **`DELETED` ends a pod's hold of its IPs**, marked by [`ENDED_ANNOTATION`](pod_index::ENDED_ANNOTATION): its containers have
//!   ended, and its sandbox is gone. The pod stays until the kubelet no longer lists it.
//! * **A kubelet that is not ready** is waited for: one that answers `FAILED_PRECONDITION`, a missing socket, and a stale socket
//!   file. The last pods stay. The socket is tried again every second.
//! * **Limits.** An answer may take 10 seconds and 64 MiB, and an event 4 MiB. A pod that cannot be decoded is a problem of its
//!   own, and all other pods count, as in [`kubelet`](super::kubelet). Mirror pods are never listed; a list with one is refused.
//! * **Lists of a new kubelet may be incomplete**, as those of [`kubelet`](super::kubelet): one of 1.36 lists no pods, or only its
//!   static ones, until it has read its own sources. So does its watch, which calls them complete. After
//!   `FAILED_PRECONDITION`, the first list is complete.

mod follow;
mod grpc;
mod message;
mod pods;

pub use follow::{DEFAULT_SOCKET, KubeletSocket, follow};
