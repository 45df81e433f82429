//! The pods whose latest version cannot be decoded, and their problems.

use std::collections::BTreeMap;

use pod_index::PodUid;

use crate::sources::{Problem, undecodable};

#[derive(Default)]
pub(super) struct Undecoded(BTreeMap<PodUid, Pod>);

struct Pod {
    problem: Problem,
    /// An earlier version was emitted, and stays.
    is_held: bool,
}

impl Undecoded {
    pub(super) fn insert(&mut self, uid: PodUid, problem: Problem, is_held: bool) {
        self.0.insert(uid, Pod { problem, is_held });
    }

    /// Returns whether the pod was present.
    pub(super) fn remove(&mut self, uid: &PodUid) -> bool {
        self.0.remove(uid).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a version of this pod was emitted. `true` for any other pod.
    pub(super) fn is_held(&self, uid: &PodUid) -> bool {
        self.0.get(uid).is_none_or(|pod| pod.is_held)
    }

    /// Number of pods of which no version was emitted.
    pub(super) fn unheld(&self) -> usize {
        self.0.values().filter(|pod| !pod.is_held).count()
    }

    /// The problem of each pod, within limits.
    pub(super) fn problems(&self) -> Vec<Problem> {
        undecodable::limited(self.0.values().map(|pod| &pod.problem))
    }
}
