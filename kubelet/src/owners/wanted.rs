//! Which owners the pods of an index need: their controllers, and the controllers of those.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pod_index::workload::controller;
use pod_index::{PodMeta, Reader};

use super::kind::OwnerKind;
use super::known::Owners;
use crate::HasPod;
use crate::names::dns_subdomain;

/// The name of an owner, of one life: a later object with the same name has another UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "Kubernetes' names")]
pub struct OwnerId {
    pub kind: OwnerKind,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

impl OwnerId {
    /// The owner that a reference in this namespace names. `None` for a kind that is not followed, and for a name that no
    /// object can have: it would become part of the path of a request, and whoever creates pods chooses it.
    pub(super) fn new(namespace: &str, owner: &OwnerReference) -> Option<Self> {
        let kind = OwnerKind::of(owner)?;
        let is_valid = dns_subdomain(&owner.name).is_none() && dns_subdomain(namespace).is_none();
        is_valid.then(|| Self {
            kind,
            namespace: namespace.into(),
            name: (&*owner.name).into(),
            uid: (&*owner.uid).into(),
        })
    }
}

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
