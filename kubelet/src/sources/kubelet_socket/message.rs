//! The messages of the Pods API, `v1alpha1`, of which only the fields that hold pods are read.

use pod_index::PodUid;

use crate::protobuf;
use crate::protobuf::wire::{Fields, WireError};

pub(super) const LIST_PODS: &str = "/v1alpha1.Pods/ListPods";
pub(super) const WATCH_PODS: &str = "/v1alpha1.Pods/WatchPods";

/// What an event of the watch says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EventKind {
    /// The pod is this now. `ADDED` and `MODIFIED` are no different: a pod that ends may be added again.
    Changed,
    /// `DELETED`: the pod's containers have ended, and what it used is released. The kubelet may still list it.
    Ended,
    /// Each pod was sent once. A kubelet that has just started says so before it knows them.
    Synced,
    /// Something newer than this program.
    Unknown,
}

/// The kind of an event, and the bytes of its pod.
pub(super) fn event(message: &[u8]) -> Result<(EventKind, &[u8]), WireError> {
    let mut kind = EventKind::Unknown;
    let mut pod = &[][..];
    for field in Fields(message) {
        match field? {
            (1, value) => {
                kind = match value.varint()? {
                    1 | 2 => EventKind::Changed,
                    3 => EventKind::Ended,
                    4 => EventKind::Synced,
                    _ => EventKind::Unknown,
                }
            }
            (2, value) => pod = value.bytes()?,
            _ => {}
        }
    }
    Ok((kind, pod))
}

/// The bytes of each pod of a list.
pub(super) fn list(message: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let mut pods = Vec::new();
    for field in Fields(message) {
        if let (1, value) = field? {
            pods.push(value.bytes()?);
        }
    }
    Ok(pods)
}

/// The identity of a pod, read without decoding it.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: PodUid,
}

/// The identity in these bytes of a pod. What cannot be read of it is empty.
pub(super) fn identity(pod: &[u8]) -> Identity {
    let protobuf::Identity { name, namespace, uid, .. } = protobuf::identity(pod);
    Identity { name, namespace, uid: PodUid::from(&*uid) }
}
