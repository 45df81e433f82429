//! One attempt to correct one mirror.

use std::sync::Arc;

use super::client::{MirrorFailure, Mirrored};
use super::kube::KubeMirrorClient;
use super::plan::{MirrorState, Planned};
use pod_index::{MirrorPodUid, PodMeta};

/// The result of one attempt.
pub(super) struct Outcome {
    /// What was attempted.
    pub(super) planned: Planned,
    pub(super) deleted: bool,
    pub(super) created: bool,
    pub(super) expected: Option<Expected>,
    pub(super) failure: Option<MirrorFailure>,
}

/// The change that the index does not show yet.
pub(super) enum Expected {
    Mirror(MirrorPodUid),
    Gone(MirrorPodUid),
}

/// Deletes the old mirror, if any, and creates a new one, if wanted.
pub(super) async fn attempt(client: Arc<KubeMirrorClient>, planned: Planned) -> Outcome {
    let mut outcome = Outcome { planned, deleted: false, created: false, expected: None, failure: None };
    outcome.failure = outcome.correct(&client).await.err();
    outcome
}

impl Outcome {
    async fn correct(&mut self, client: &KubeMirrorClient) -> Result<(), MirrorFailure> {
        // First, because it asks for the node: if that fails, the mirror of another version stays.
        let new = match self.planned.to_mirror() {
            Some(pod) => Some(client.mirror_of(pod).await),
            None => None,
        };
        if let (MirrorState::WrongHash, Some(Err(failure))) = (self.planned.state, &new) {
            return Err(failure.clone());
        }
        if let Some(mirror) = &self.planned.mirror {
            let uid = MirrorPodUid::from(mirror.uid());
            self.deleted = client.delete_mirror_pod(&self.planned.full_name, Some(&uid)).await?;
            // The mirror is gone or was replaced. Either way, wait until the index shows it.
            self.expected = Some(Expected::Gone(uid));
            if !self.deleted {
                return Ok(());
            }
        }
        if let Some(new) = new {
            let created = client.create(&new?).await?;
            self.created = matches!(created, Mirrored::Created(_));
            let (Mirrored::Created(uid) | Mirrored::Existed(uid)) = created;
            self.expected = Some(Expected::Mirror(uid));
        }
        Ok(())
    }
}
