//! The results of creating and deleting mirror pods.

use pod_index::MirrorPodUid;

/// The result of a creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mirrored {
    /// It was created with this UID.
    Created(MirrorPodUid),
    /// It already existed with this UID.
    Existed(MirrorPodUid),
}

error_type! {
/// Why a mirror pod could not be created or deleted.
MirrorError, MirrorErrorKind,
/// The full name of the pod.
pod, "mirror of {:?}: {}"
}

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
