//! Mirror pods: what tells the API server of static pods.
//!
//! For agents that *are* the kubelet of their node: custom kubelets, virtual nodes, edge agents. On a node that has a
//! kubelet this must not run: two of them take each other's mirrors for wrong ones.
//!
//! This module knows what mirrors there should be and how to make and delete them. It must not know where pods come from.
//!
//! # How
//! [`Mirrors`] compares snapshots with what should be, and does what is missing; it follows no events. A missed event, a
//! restart or an outage of the API server heals by itself with the next look. One request about a pod is under way at
//! most, and a slow one holds back no other pod. What fails is tried again after a while, a new version of the pod at once.
//!
//! # Safety
//! * Nothing is done before all sources have been seen: a static pod that has not been read yet has no wrong mirror. If a
//!   source is added later, orphans wait for it too.
//! * Only mirrors of the agent's own node are ever deleted, and only with their UID as the precondition: what took a
//!   mirror's name meanwhile stays.
//! * A pod that is no mirror is never touched. One that bears a static pod's name is reported.
//! * Two that keep the mirrors of one node by mistake do not write without end: what had to be set right three times is
//!   waited with, longer each time, and reported ([`WaitsFor::Contention`]).
//!
//! # Rights
//! What a node has by itself, and no more. For other credentials, what `deploy/kubernetes/mirror-pods.yaml` grants is
//! exactly what is asked for: pods `create`, `delete` and `get`; nodes `get`; leases in `kube-node-lease` `get`. To see the
//! mirrors, the API-server source needs pods `list` and `watch` besides.

mod attempt;
mod client;
mod kube;
mod lease;
mod plan;
mod reconcile;
mod status;
mod tries;

pub use client::{MirrorClient, MirrorError, MirrorErrorKind, Mirrored, NoMirrorClient};
pub use kube::KubeMirrorClient;
pub use lease::{Kubelet, KubeletWatch};
pub use plan::{MirrorState, Planned, plan};
pub use reconcile::Mirrors;
pub use status::{MirrorFailure, MirrorStatus, MirrorsStatus, WaitsFor};
