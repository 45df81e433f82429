//! One attempt to set one mirror right.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::client::{MirrorClient, MirrorError, Mirrored};
use super::plan::Planned;
use pod_index::{FullName, MirrorPodUid, PodMeta};

/// What came of one attempt.
pub(super) struct Outcome {
    pub(super) full_name: FullName,
    /// The static pod as it was attempted; `None` for an orphan.
    pub(super) pod: Option<Arc<Pod>>,
    pub(super) deleted: bool,
    pub(super) created: bool,
    pub(super) expected: Option<Expected>,
    pub(super) error: Option<MirrorError>,
}

/// What the index has yet to show.
pub(super) enum Expected {
    Mirror(MirrorPodUid),
    Gone(MirrorPodUid),
}

impl Outcome {
    /// Whether something was done, and nothing failed.
    pub(super) fn is_success(&self) -> bool {
        self.error.is_none() && (self.deleted || self.created)
    }
}

/// Deletes the mirror, if there is one, and creates one, if there should be.
pub(super) async fn attempt(client: &impl MirrorClient, planned: Planned) -> Outcome {
    let to_mirror = planned.to_mirror().cloned();
    let Planned { full_name, pod, mirror, .. } = planned;
    let mut outcome = Outcome { full_name, pod, deleted: false, created: false, expected: None, error: None };
    if let Some(mirror) = &mirror {
        let uid = MirrorPodUid::from(mirror.uid());
        match client.delete_mirror_pod(outcome.full_name.as_str(), Some(&uid)).await {
            Ok(deleted) => outcome.deleted = deleted,
            Err(error) => {
                outcome.error = Some(error);
                return outcome;
            }
        }
        // Gone by another hand, or not the one that was seen: either way the index has yet to tell, and until it does,
        // there is nothing to be done.
        outcome.expected = Some(Expected::Gone(uid));
        if !outcome.deleted {
            return outcome;
        }
    }
    let Some(pod) = to_mirror else { return outcome };
    match client.create_mirror_pod(&pod).await {
        Ok(Mirrored::Created(uid)) => {
            outcome.created = true;
            outcome.expected = Some(Expected::Mirror(uid));
        }
        Ok(Mirrored::Existed(uid)) => outcome.expected = Some(Expected::Mirror(uid)),
        Ok(Mirrored::Nowhere) => {}
        Err(error) => outcome.error = Some(error),
    }
    outcome
}
