//! One attempt to correct one mirror.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::client::{MirrorError, Mirrored};
use super::kube::KubeMirrorClient;
use super::plan::Planned;
use pod_index::{FullName, MirrorPodUid, PodMeta};

/// The result of one attempt.
pub(super) struct Outcome {
    pub(super) full_name: FullName,
    /// The static pod as attempted; `None` for an orphan.
    pub(super) pod: Option<Arc<Pod>>,
    pub(super) deleted: bool,
    pub(super) created: bool,
    pub(super) expected: Option<Expected>,
    pub(super) error: Option<MirrorError>,
}

/// The change that the index does not show yet.
pub(super) enum Expected {
    Mirror(MirrorPodUid),
    Gone(MirrorPodUid),
}

impl Outcome {
    /// Whether something was changed and nothing failed.
    pub(super) fn is_success(&self) -> bool {
        self.error.is_none() && (self.deleted || self.created)
    }
}

/// Deletes the old mirror, if any, and creates a new one, if wanted.
pub(super) async fn attempt(client: &KubeMirrorClient, planned: Planned) -> Outcome {
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
        // The mirror is gone or was replaced. Either way, wait until the index shows it.
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
        Err(error) => outcome.error = Some(error),
    }
    outcome
}
