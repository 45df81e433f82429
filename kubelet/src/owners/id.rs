//! Which owner: its kind, namespace, name and UID.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::kind::OwnerKind;
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
