//! Mirror pods: what tells the API server of static pods.
//!
//! For agents that *are* the kubelet of their node: custom kubelets, virtual nodes, edge agents. On a node that has a
//! kubelet this must not run: two of them take each other's mirrors for wrong ones.
//!
//! This room knows what mirrors there should be and how to make and delete them. It must not know where pods come from.
//!
//! # How
//! [`Mirrors`] compares snapshots with what should be, and does what is missing; it follows no events. A missed event, a
//! restart or an outage of the API server heals by itself with the next look.
//!
//! # Safety
//! * Nothing is done before all sources have been seen: a static pod that has not been read yet has no wrong mirror.
//! * Only mirrors of the agent's own node are ever deleted, and only with their UID as the precondition: what took a
//!   mirror's name meanwhile stays.
//! * A pod that is no mirror is never touched. One that bears a static pod's name is reported.
//!
//! # Rights
//! What a node has by itself, and no more. For other credentials, this and nothing else:
//!
//! ```yaml
//! apiVersion: rbac.authorization.k8s.io/v1
//! kind: ClusterRole
//! metadata: {name: pod-index-mirrors}
//! rules:
//! - {apiGroups: [""], resources: [pods], verbs: [get, list, watch, create, delete]}
//! - {apiGroups: [""], resources: [nodes], verbs: [get]}
//! # To see whether a kubelet runs on the node, see `has_live_kubelet`.
//! - {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get]}
//! ```

mod client;
mod kube;
mod lease;
mod plan;
mod reconcile;
mod status;

pub use client::{MirrorClient, MirrorError, MirrorErrorKind, Mirrored, NoMirrorClient};
pub use kube::KubeMirrorClient;
pub use lease::has_live_kubelet;
pub use plan::{MirrorState, Planned, plan};
pub use reconcile::Mirrors;
pub use status::{MirrorStatus, MirrorsStatus};
