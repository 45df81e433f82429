//! Which owners the pods of an index need: their controllers, and the controllers of those.

use std::collections::HashSet;

use pod_index::workload::controller;
use pod_index::{PodMeta, Reader};

use super::id::OwnerId;
use super::kind::OwnerKind;
use super::known::Owners;
use crate::HasPod;

/// The owners that the pods of one snapshot need.
pub(super) struct Wanted {
    pub(super) owners: HashSet<OwnerId>,
    /// The generation of the pods.
    pub(super) generation: u64,
}

impl Wanted {
    /// The owners that the pods need now, as far as is known: a `ReplicaSet` has to be read before its Deployment is named.
    pub(super) fn of<P: HasPod>(reader: &Reader<P>, known: &Owners) -> Self {
        let snapshot = reader.load();
        let mut owners = HashSet::new();
        for pod in snapshot.pods().map(P::pod) {
            let direct = known.of(pod);
            let above = direct.as_ref().and_then(|direct| controller(&direct.metadata));
            let references = controller(&pod.metadata).into_iter().chain(above);
            owners.extend(references.filter_map(|owner| OwnerId::new(pod.namespace(), owner)));
        }
        Self { owners, generation: snapshot.pods_generation() }
    }

    /// Those of a kind.
    pub(super) fn of_kind(&self, kind: OwnerKind) -> impl Iterator<Item = &OwnerId> {
        self.owners.iter().filter(move |id| id.kind == kind)
    }

    /// Those of a kind, and those that may name others of the kind.
    pub(super) fn for_kind(&self, kind: OwnerKind) -> impl Iterator<Item = &OwnerId> {
        self.owners.iter().filter(move |id| id.kind == kind || Some(id.kind) == kind.owns())
    }
}
