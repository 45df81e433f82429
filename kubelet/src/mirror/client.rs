//! The results of creating and deleting mirror pods.

use std::fmt;
use std::time::SystemTime;

use pod_index::MirrorPodUid;

use crate::text::shorten_to;

/// The result of a creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mirrored {
    /// It was created with this UID.
    Created(MirrorPodUid),
    /// It already existed with this UID.
    Existed(MirrorPodUid),
}

/// Why a mirror pod could not be created or deleted, or that another client keeps undoing the change.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MirrorFailure {
    /// The kind of failure.
    pub kind: MirrorErrorKind,
    /// The error message. A server's answer may repeat the whole request, so it is cut after 1,024 bytes.
    pub message: String,
    /// When it happened.
    pub time: SystemTime,
}

impl MirrorFailure {
    pub(super) fn new(kind: MirrorErrorKind, message: impl AsRef<str>) -> Self {
        Self { kind, message: shorten_to(message.as_ref(), 1_024), time: SystemTime::now() }
    }
}

impl fmt::Display for MirrorFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MirrorFailure {}

kinds! {
/// The kinds of [`MirrorFailure`]s.
pub enum MirrorErrorKind {
    /// The node is unknown, has no UID, is being deleted, or cannot be looked up.
    Node = "node",
    /// The pod's name is in use: by a pod that is not a mirror, by a mirror of another node or of another
    /// version of the pod, by a pod that the client may not read (a node may not read other nodes' pods), or
    /// by a mirror whose deletion waits for a finalizer.
    Taken = "taken",
    /// The API server refuses the request (4xx): authentication or authorization failed, the namespace does
    /// not exist, or the pod is invalid. Or the pod has no full name.
    Refused = "refused",
    /// The API server cannot be reached, has an internal problem (5xx), or asks the client to wait (408,
    /// 429).
    Request = "request",
    /// Nothing failed, but another client keeps undoing the change.
    Contended = "contended",
}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_any_length_makes_a_readable_message() {
        for (said, length) in
            [("x".repeat(1_024), 1_024), ("x".repeat(1_025), 1_024), ("é".repeat(9_999), 1_024)]
        {
            let shortened = MirrorFailure::new(MirrorErrorKind::Refused, &said).to_string();
            assert_eq!(shortened.ends_with('…'), said.len() > length);
            assert_eq!(shortened.trim_end_matches('…').len(), length);
        }
        let odd = MirrorFailure::new(MirrorErrorKind::Refused, "x".to_owned() + &"é".repeat(9_999));
        assert_eq!(odd.message.trim_end_matches('…').len(), 1_023, "no character is cut in two");
    }
}
