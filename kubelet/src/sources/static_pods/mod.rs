//! Static pods derived from their mirror pods, for an agent that follows the API server beside a kubelet.
//!
//! A kubelet publishes each static pod as a mirror pod at the API server. The mirror has its own UID. Its
//! annotations `config.hash` and `config.mirror` hold the UID under which the node knows the static pod: the
//! UID in cgroups and log paths. So the static pod can be derived from its mirror.
//!
//! This module interprets mirror pods. The [`Merge`](super::Merge) combines them with the other sources.
//!
//! # A claim, not a proof
//! Anyone who may create pods can write these annotations. A mirror pod counts only if
//! * its `config.hash` equals its `config.mirror`, and is not empty,
//! * its spec names a node,
//! * its controller is that Node,
//! * on the own node, the owner's UID is that of the Node object, if the embedder passes the object to
//!   [`Merge::own_node`](super::Merge::own_node).
//!
//! A mirror pod that is older than the Node object belonged to an earlier Node object of that name. It counts:
//! its static pod may still run. UIDs of other nodes are not checked.
//!
//! A derived pod never displaces a UID that another source reports. Anyone who may create pods with owner
//! references can still invent a static pod with a new UID. Where that matters, use the kubelet as a source
//! (the module `kubelet`).

mod claim;
mod claims;
mod own_node;

pub(super) use claim::{OWNERS, claim_of, derived, set_uid};
pub use claim::{Refusal, StaticPodClaim};
pub(super) use claims::{Claimed, Claims, Unconfirmed};
pub use own_node::OwnNode;
pub(super) use own_node::{NodeCheck, Ownership};

use pod_index::{PodMeta, is_static_pod};

use super::NodeName;

/// How long a derived pod stays after its mirror pod is gone. The kubelet creates a new mirror within
/// seconds.
pub const UNCONFIRMED_FOR: std::time::Duration = std::time::Duration::from_secs(60);

/// Marks a derived pod whose mirror pod is gone, for at most [`UNCONFIRMED_FOR`].
pub const UNCONFIRMED_ANNOTATION: &str = "pod-index/unconfirmed";

/// Whether the pod was derived from a mirror pod that is gone: a static pod with [`UNCONFIRMED_ANNOTATION`].
#[must_use]
pub fn is_unconfirmed<P: PodMeta + ?Sized>(pod: &P) -> bool {
    is_static_pod(pod) && pod.annotation(UNCONFIRMED_ANNOTATION).is_some()
}

/// Which static pods a [`Merge`](super::Merge) derives from mirror pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Derive {
    /// None.
    #[default]
    Never,
    /// Static pods of all nodes. `own` is the node whose kubelet the source
    /// [`Kubelet`](super::Source::Kubelet) asks.
    AllNodes {
        /// The node that the agent runs on.
        own: NodeName,
    },
    /// Static pods of all nodes except this one. For programs that manage this node's mirror pods: there, a
    /// mirror pod without a manifest is an orphan.
    OtherNodes {
        /// The node that the agent runs on.
        own: NodeName,
    },
}

impl Derive {
    pub(super) fn includes(&self, node: &str) -> bool {
        match self {
            Self::Never => false,
            Self::AllNodes { .. } => true,
            Self::OtherNodes { own } => own.as_str() != node,
        }
    }

    pub(super) fn own(&self) -> Option<&str> {
        match self {
            Self::Never => None,
            Self::AllNodes { own } | Self::OtherNodes { own } => Some(own.as_str()),
        }
    }
}
