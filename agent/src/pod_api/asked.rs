//! Tells the follower of owners that a client wants a kind of them.

use pod_index_kubelet::owners::{OwnerKind, Owners};

/// Told of each request for owners of a kind: only then are owners requested that no pod's workload needs.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) owners: Owners,
    pub(super) kind: OwnerKind,
}

impl Asked {
    pub(super) fn ask(&self) {
        self.owners.ask(self.kind);
    }
}
