//! The result of one update.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION, Operation, PodMeta, PodUid};

use crate::sources::{Difference, Problem};

/// The changes caused by one update, to be applied in the order of the fields.
///
/// Each list is in the order of the update. A pod is in at most one list.
#[derive(Debug, Default)]
#[must_use = "what is to be done has not been done yet"]
#[non_exhaustive]
pub struct Merged {
    /// Removed: the kubelet's `REMOVE`.
    pub removed: Vec<Arc<Pod>>,
    /// New: the kubelet's `ADD`.
    pub added: Vec<Arc<Pod>>,
    /// Changed: the kubelet's `UPDATE`.
    pub updated: Vec<Arc<Pod>>,
    /// Changed and being deleted: the kubelet's `DELETE`.
    pub deleted: Vec<Arc<Pod>>,
    /// Only the status has changed: the kubelet's `RECONCILE`.
    pub reconciled: Vec<Arc<Pod>>,
    /// Rejected pods: an invalid or missing name, no UID, a name or UID of more than 253 bytes, or the same name or UID as another pod of the set.
    pub problems: Vec<Problem>,
    /// Whether [`Merge::refused_claims`](super::Merge::refused_claims) has changed.
    pub claims_changed: bool,
    /// The sources to read at once, because another one has reported a change that they do not have yet. See
    /// [`Nudge`](crate::sources::Nudge).
    pub due: Vec<super::Source>,
}

impl Merged {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = [&self.removed, &self.added, &self.updated, &self.deleted, &self.reconciled];
        lists.iter().all(|list| list.is_empty())
    }

    /// The changes as operations for a [`Writer`](pod_index::Writer), in order. A pod that is being deleted
    /// still exists, so `DELETE` and `RECONCILE` are upserts, as updates are in the kubelet.
    pub fn into_operations(self) -> impl Iterator<Item = Operation<Pod>> {
        let removed = self.removed.into_iter().map(|pod| Operation::Remove(PodUid::from(pod.uid())));
        let added = self.added.into_iter().map(Operation::Upsert);
        let updated = self.updated.into_iter().chain(self.deleted).chain(self.reconciled);
        removed.chain(added).chain(updated.map(Operation::Upsert))
    }

    /// Publishes this pod under the UID, and files the change under one of the lists. While nothing changes, the published
    /// object stays.
    pub(super) fn publish(
        &mut self,
        published: &mut HashMap<PodUid, Arc<Pod>>,
        uid: PodUid,
        new: Option<Arc<Pod>>,
    ) {
        let list = match (published.get(&uid), &new) {
            (None, None) => return,
            (None, Some(_)) => &mut self.added,
            (Some(_), None) => &mut self.removed,
            (Some(old), Some(new)) => match difference(old, new) {
                Difference::None => return,
                Difference::Status => &mut self.reconciled,
                Difference::Semantic if new.metadata.deletion_timestamp.is_some() => &mut self.deleted,
                Difference::Semantic => &mut self.updated,
            },
        };
        if let Some(new) = new {
            list.push(Arc::clone(&new));
            published.insert(uid, new);
        } else {
            list.extend(published.remove(&uid));
        }
    }
}

/// The difference between two published versions. The kubelet ignores a new name under the same UID, and its
/// own annotations; readers of the index need both.
fn difference(old: &Arc<Pod>, new: &Arc<Pod>) -> Difference {
    if Arc::ptr_eq(old, new) {
        return Difference::None;
    }
    let same = |key| old.annotation(key) == new.annotation(key);
    let is_same_pod = old.name() == new.name() && old.namespace() == new.namespace();
    if is_same_pod && same(CONFIG_SOURCE_ANNOTATION) && same(CONFIG_SEEN_ANNOTATION) {
        Difference::between(old, new)
    } else {
        Difference::Semantic
    }
}
