//! Creating and deleting mirror pods: the trait and its errors.

use std::error::Error;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use crate::text::{kinds, shorten_to};
use pod_index::MirrorPodUid;

/// Creates and deletes mirror pods.
///
/// Kubelet: `MirrorClient` (`pkg/kubelet/pod/mirror_client.go`).
pub trait MirrorClient: Send + Sync {
    /// Creates the mirror of a static pod.
    ///
    /// If the mirror of this version of the pod already exists, that is not an error.
    ///
    /// # Errors
    /// If the node is unknown, has no UID or is being deleted; if another pod, which is not this pod's
    /// mirror, has the name; if the API server refuses or cannot be reached.
    ///
    /// Kubelet: `CreateMirrorPod`.
    #[doc(alias = "CreateMirrorPod")]
    fn create_mirror_pod(&self, pod: &Pod) -> impl Future<Output = Result<Mirrored, MirrorError>> + Send;

    /// Deletes a mirror pod immediately. Returns whether it did. With a UID, deletes the pod only if it has
    /// that UID.
    ///
    /// A missing pod or another UID is not an error: nothing is deleted.
    ///
    /// # Errors
    /// If the full name is invalid; if the API server refuses or cannot be reached.
    ///
    /// Kubelet: `DeleteMirrorPod`.
    #[doc(alias = "DeleteMirrorPod")]
    fn delete_mirror_pod(
        &self,
        full_name: &str,
        uid: Option<&MirrorPodUid>,
    ) -> impl Future<Output = Result<bool, MirrorError>> + Send;
}

/// The result of a creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mirrored {
    /// It was created with this UID.
    Created(MirrorPodUid),
    /// It already existed with this UID.
    Existed(MirrorPodUid),
}

/// Why a mirror pod could not be created or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorError {
    kind: MirrorErrorKind,
    pod: String,
    message: String,
}

/// Size limit of an error message in bytes. An API server's answer may contain the whole request, and the
/// message is logged and stored for each pod.
const MESSAGE: usize = 1_024;

kinds! {
/// The kinds of [`MirrorError`]s.
pub enum MirrorErrorKind {
    /// The full name is not `name_namespace`, or the pod has no full name.
    Name = "name",
    /// The node is unknown, has no UID, is being deleted, or cannot be looked up.
    Node = "node",
    /// The pod's name is in use: by a pod that is not a mirror, by a mirror of another node or of another
    /// version of the pod, by a pod that the client may not read (a node may not read other nodes' pods), or
    /// by a mirror whose deletion waits for a finalizer.
    Taken = "taken",
    /// The API server refuses the request (4xx): authentication or authorization failed, the namespace does
    /// not exist, or the pod is invalid.
    Refused = "refused",
    /// The API server cannot be reached, has an internal problem (5xx), or asks the client to wait (408,
    /// 429).
    Request = "request",
    /// Nothing failed, but another client keeps undoing the change.
    Contended = "contended",
}
}

impl MirrorError {
    /// An error of a [`MirrorClient`]: its kind, the pod's full name, and a message, of which the first 1,024
    /// bytes are kept.
    pub fn new(kind: MirrorErrorKind, pod: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, pod: pod.into(), message: shorten_to(&message.into(), MESSAGE) }
    }

    /// The kind of error.
    #[must_use]
    pub fn kind(&self) -> MirrorErrorKind {
        self.kind
    }

    /// The full name of the pod.
    #[must_use]
    pub fn pod(&self) -> &str {
        &self.pod
    }
}

impl fmt::Display for MirrorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mirror of {:?}: {}", self.pod, self.message)
    }
}

impl Error for MirrorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_length_makes_a_readable_message() {
        for (said, length) in
            [("x".repeat(1_024), 1_024), ("x".repeat(1_025), 1_024), ("é".repeat(9_999), 1_024)]
        {
            let error = MirrorError::new(MirrorErrorKind::Refused, "web_default", said.clone());
            let shortened = error.to_string();
            let shortened = shortened.strip_prefix("mirror of \"web_default\": ").expect("the pod's name");
            assert_eq!(shortened.ends_with('…'), said.len() > length);
            assert_eq!(shortened.trim_end_matches('…').len(), length);
        }
        let odd =
            MirrorError::new(MirrorErrorKind::Refused, "web_default", "x".to_owned() + &"é".repeat(9_999));
        assert_eq!(odd.message.trim_end_matches('…').len(), 1_023, "no character is cut in two");
    }
}
