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
//! * that is a UID, and its `config.source` is `file` or `http`,
//! * its spec names a node,
//! * its controller is that Node,
//! * on the own node, the owner's UID is that of the Node object, if the embedder passes the object to
//!   [`Merge::own_node`](super::Merge::own_node).
//!
//! A mirror pod that is older than the Node object belonged to an earlier Node object of that name. It counts:
//! its static pod may still run. UIDs of other nodes are not checked.
//!
//! A derived pod never displaces a UID that another source reports. Anyone who may create pods with owner
//! references can still invent a static pod with a new UID. So what else is known of the own node decides:
//! * If the kubelet is among the sources, a claim lasts until the kubelet was read and does not list that UID.
//!   A kubelet that has just started lists no pod, and then one after the other: before it has listed any for a second, it decides only
//!   about mirror pods that are being deleted.
//! * If manifests are among the sources, and no problem hides one, a claim lasts until they were read and none has
//!   that name. After an edit of the manifest, it is about the earlier one, until the kubelet replaces the mirror pod.
//! * Where nothing confirms a claim, its static pod has [`CLAIMED_ANNOTATION`].
//! * If the mirror pod is deleted, even if a finalizer holds it, a new one must appear within [`UNCONFIRMED_FOR`]. A mirror
//!   pod whose deletion begins within ten seconds, or that has no status of a container, was not a kubelet's: a kubelet
//!   deletes a forged one after a second. Its static pod goes at once.
//!
//! For this, call [`Merge::read`](super::Merge::read) after each read of a source.

mod claim;
mod claims;
mod own_node;

pub(super) use claim::{MIRROR, OWNERS, StaticPodClaim, claim, derived};
pub(super) use claims::{Claimed, Claims, Stage};
pub use own_node::OwnNode;
pub(super) use own_node::{NodeCheck, Ownership};

/// How long a derived pod stays after the deletion of its mirror pod. The kubelet creates a new mirror within
/// seconds.
pub const UNCONFIRMED_FOR: std::time::Duration = std::time::Duration::from_secs(30);

/// Marks a pod that may be gone, and says since when: a derived pod whose mirror pod is gone or is being deleted, for at most
/// [`UNCONFIRMED_FOR`]; or a pod that a kubelet listed before it was restarted, and does not list yet (see
/// [`Merge`](super::Merge)).
pub const UNCONFIRMED_ANNOTATION: &str = "pod-index/unconfirmed";

/// Marks a static pod that only a mirror pod claims, and names that mirror pod's UID.
pub const CLAIMED_ANNOTATION: &str = "pod-index/claimed-by";
