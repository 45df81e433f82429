//! Mirror pods: they make static pods visible on the API server.
//!
//! For agents that *are* the kubelet of their node: custom kubelets, virtual nodes, edge agents. Do not run
//! this on a node that has a kubelet: the two would delete each other's mirrors.
//!
//! This module knows which mirrors should exist and how to create and delete them. It does not depend on the
//! sources.
//!
//! # How
//! [`Mirrors`] compares snapshots with the desired state and applies the difference; it does not follow
//! events. So the next look repairs whatever a missed event, a restart or an outage of the API server left
//! behind. At most one request per pod is under way, and a slow request does not delay other pods. Failed
//! requests are retried after a wait, a new version of the pod at once.
//!
//! # Safety
//! * Nothing is changed before all sources have been read: the static pod of a supposed orphan may not have
//!   been read yet. If a source is added later, orphans wait for it too.
//! * Only mirrors of the agent's own node are deleted, and only with their UID as the precondition: a new pod
//!   of the same name stays.
//! * A pod that is not a mirror is never touched. If it has a static pod's name, that is reported.
//! * Two agents that manage the mirrors of one node by mistake do not write endlessly: after three corrections
//!   of the same mirror, each further one waits longer, and is reported ([`WaitsFor::Contention`]).
//!
//! # Rights
//! The rights of a node are enough. Other credentials need exactly what `deploy/kubernetes/components/mirror-pods`
//! grants: `create`, `delete` and `get` for pods; `get` for nodes; `get` for leases in `kube-node-lease`. To see the
//! mirrors, the API server source also needs `list` and `watch` for pods.

mod attempt;
mod client;
mod kube;
mod lease;
mod plan;
mod reconcile;
mod status;
mod tries;

pub use client::{MirrorErrorKind, MirrorFailure, Mirrored};
pub use kube::KubeMirrorClient;
pub use lease::{Kubelet, KubeletWatch};
pub use plan::{MirrorState, Planned, plan};
pub use reconcile::Mirrors;
pub use status::{MirrorStatus, MirrorsStatus, WaitsFor};
