//! The cache of the API server's answers: what is known of owners.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index::workload::{controller, is_often_controlled};

use super::Owner;
use super::id::OwnerId;
use super::interest::Interest;
use super::kind::OwnerKind;

/// What is known of the owners of pods. Clones share it. A [`Follower`](super::Follower) fills it.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// By namespace and UID: a pod may name the UID of an object in another namespace.
    known: Arc<RwLock<HashMap<InNamespace, Arc<Owner>>>>,
    interests: Arc<Interests>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InNamespace {
    namespace: Arc<str>,
    uid: Arc<str>,
}

/// Who asks for owners of each kind.
#[derive(Debug, Default)]
pub(super) struct Interests([Interest; OwnerKind::ALL.len()]);

impl Interests {
    pub(super) fn of(&self, kind: OwnerKind) -> &Interest {
        &self.0[kind as usize]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Interest> {
        self.0.iter()
    }

    /// Who asks for owners of the kind, or for those that they name.
    pub(super) fn for_kind(&self, kind: OwnerKind) -> impl Iterator<Item = &Interest> {
        let asked_for = move |other: &OwnerKind| *other == kind || other.owns() == Some(kind);
        OwnerKind::ALL.into_iter().filter(asked_for).map(|kind| self.of(kind))
    }
}

impl Owners {
    /// The pod's controller, if it is known and says more than the pod does.
    ///
    /// # Complexity
    /// A lock that is held for one lookup in a hash table, and one allocation. Records have the answer without either.
    #[must_use]
    pub fn of(&self, pod: &Pod) -> Option<Arc<Owner>> {
        let owner = controller(&pod.metadata).filter(|owner| is_often_controlled(owner))?;
        let key = InNamespace { namespace: pod.namespace().into(), uid: (&*owner.uid).into() };
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// As [`of`](Self::of), for somebody who asks: if it is not known yet, it is requested now.
    pub fn asked_of(&self, pod: &Pod) -> Option<Arc<Owner>> {
        let known = self.of(pod);
        if known.is_none()
            && let Some(kind) = controller(&pod.metadata).and_then(OwnerKind::of)
        {
            self.interests.of(kind).hurry();
        }
        known
    }

    /// Somebody asks for owners of this kind: those that are missing are requested now, and those that were read more than
    /// ten minutes ago are requested again.
    pub fn ask(&self, kind: OwnerKind) {
        self.interests.of(kind).ask();
    }

    pub(super) fn interests(&self) -> &Arc<Interests> {
        &self.interests
    }

    /// Keeps an owner.
    pub(super) fn keep(&self, id: &OwnerId, owner: Arc<Owner>) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key(id), owner);
    }

    /// Forgets an owner.
    pub(super) fn forget(&self, id: &OwnerId) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&key(id));
    }
}

fn key(id: &OwnerId) -> InNamespace {
    InNamespace { namespace: Arc::clone(&id.namespace), uid: Arc::clone(&id.uid) }
}
