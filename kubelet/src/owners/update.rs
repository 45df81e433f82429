//! What a follower tells.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Owner;
use super::id::OwnerId;
use super::kind::OwnerKind;
use crate::records::Change;
use crate::sources::SourceUpdate;

/// What a [`Follower`](super::Follower) tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OwnerUpdate {
    /// An owner was read, for the first time or again.
    Read {
        /// Its name.
        id: OwnerId,
        /// Its metadata, without managed fields and without the annotation of `kubectl apply`.
        owner: Arc<Owner>,
    },
    /// There is no such owner any more, or no pod needs it.
    Gone {
        /// Its name.
        id: OwnerId,
    },
    /// Whether all owners of a kind are known that pods need. Told after each pass, also if it has not changed.
    State {
        /// The kind.
        kind: OwnerKind,
        /// The state.
        state: OwnersState,
    },
}

/// Whether all owners of one kind are known that pods need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnersState {
    /// Some have not been requested yet.
    Waiting,
    /// Each was read in this run.
    Read,
    /// At least one could not be read yet: the reason. If the kind was read before, a refresh failed, or a new owner did.
    Failed(String),
    /// The right to read this kind is missing: the API server's words.
    Denied(String),
}

impl OwnerUpdate {
    /// The update as input of a [`Join`](crate::records::Join). `None` for a [`State`](Self::State).
    #[must_use]
    pub fn change(&self) -> Option<Change> {
        let update = match self {
            Self::Read { id, owner } => {
                let namespace = Some(id.namespace.to_string());
                let metadata = ObjectMeta { namespace, ..owner.metadata.clone() };
                SourceUpdate::Upsert(vec![Arc::new(metadata)])
            }
            Self::Gone { id } => SourceUpdate::Remove(vec![(&*id.uid).into()]),
            Self::State { .. } => return None,
        };
        Some(Change::Owners(update))
    }
}
