//! The claims of all mirror pods, by mirror pod, by static pod and by name.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{FullName, PodUid};

use super::{Ownership, StaticPodClaim, UNCONFIRMED_FOR};
use crate::sources::Problem;

/// A mirror pod with a well-formed claim.
#[derive(Debug)]
pub(in crate::sources) struct Claimed {
    pub(in crate::sources) claim: StaticPodClaim,
    pub(in crate::sources) name: FullName,
    /// The static pod, derived from the mirror pod.
    pub(in crate::sources) pod: Arc<Pod>,
    /// When it was first seen with this owner. `None`: in the API server's first list.
    pub(in crate::sources) seen: Option<Instant>,
    /// Whether the Node object owns the mirror pod. Those of other nodes are not checked.
    pub(in crate::sources) ownership: Ownership,
    pub(in crate::sources) stage: Stage,
}

/// The life of a mirror pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sources) enum Stage {
    /// It exists.
    Live,
    /// It is gone or is being deleted. A new one must confirm the static pod by then.
    Leaving(Instant),
    /// It is being deleted, and the time for a new one is over.
    Over,
}

/// What all mirror pods of the API server claim about static pods.
#[derive(Debug, Default)]
pub(in crate::sources) struct Claims {
    /// What a claim says itself does not change.
    pub(in crate::sources) by_mirror: HashMap<PodUid, Claimed>,
    /// Pairs of static pod and mirror pod.
    by_uid: BTreeSet<(PodUid, PodUid)>,
    /// Pairs of name and mirror pod.
    by_name: BTreeSet<(FullName, PodUid)>,
    /// The mirror pods that are leaving or were, and until when, in this order.
    leaving: VecDeque<(Instant, PodUid)>,
    /// By mirror pod.
    pub(in crate::sources) refused: BTreeMap<PodUid, Problem>,
}

impl Claims {
    /// The claim of a mirror pod of which none is known.
    pub(in crate::sources) fn insert(&mut self, mirror: PodUid, claimed: Claimed) {
        self.by_uid.insert((claimed.claim.uid.clone(), mirror.clone()));
        self.by_name.insert((claimed.name.clone(), mirror.clone()));
        self.by_mirror.insert(mirror, claimed);
    }

    pub(in crate::sources) fn remove(&mut self, mirror: &PodUid) -> Option<Claimed> {
        let claimed = self.by_mirror.remove(mirror)?;
        self.by_uid.remove(&(claimed.claim.uid.clone(), mirror.clone()));
        self.by_name.remove(&(claimed.name.clone(), mirror.clone()));
        Some(claimed)
    }

    /// All mirror pods that claim `uid`, oldest first. The oldest claim counts.
    pub(in crate::sources) fn on(&self, uid: &PodUid) -> Vec<(&PodUid, &Claimed)> {
        let mut claims = self.found(&self.by_uid, uid);
        claims.sort_by(|a, b| (a.1.claim.created, a.0).cmp(&(b.1.claim.created, b.0)));
        claims
    }

    /// The claims of all mirror pods of this name, the one that exists first.
    pub(in crate::sources) fn named(&self, name: &FullName) -> Vec<(&PodUid, &Claimed)> {
        let mut claims = self.found(&self.by_name, name);
        claims.sort_by_key(|(_, claimed)| claimed.stage != Stage::Live);
        claims
    }

    fn found<K: Ord + Clone>(&self, by: &BTreeSet<(K, PodUid)>, key: &K) -> Vec<(&PodUid, &Claimed)> {
        let mirrors = by.range((key.clone(), PodUid::from(""))..).take_while(|(of, _)| of == key);
        mirrors.filter_map(|(_, mirror)| self.by_mirror.get_key_value(mirror)).collect()
    }

    /// The mirror pod is gone or is being deleted. Gives a new one the time to confirm the static pod.
    pub(in crate::sources) fn leave(&mut self, mirror: &PodUid) {
        if let Some(claimed) = self.by_mirror.get_mut(mirror) {
            let until = Instant::now() + UNCONFIRMED_FOR;
            claimed.stage = Stage::Leaving(until);
            self.leaving.push_back((until, mirror.clone()));
        }
    }

    /// The mirror pods that are gone or are being deleted and whose time is not over, and until when, in this order.
    pub(in crate::sources) fn leaving(&self) -> impl Iterator<Item = (Instant, &PodUid, &Claimed)> {
        self.leaving.iter().filter_map(|(until, mirror)| {
            let claimed = self.by_mirror.get(mirror)?;
            (claimed.stage == Stage::Leaving(*until)).then_some((*until, mirror, claimed))
        })
    }

    /// How many entries of the queue are in memory, also those that no longer matter.
    #[cfg(test)]
    pub(in crate::sources) fn leaving_entries(&self) -> usize {
        self.leaving.len()
    }

    /// The mirror pods whose time is over. They are no longer in [`leaving`](Self::leaving).
    pub(in crate::sources) fn due(&mut self, now: Instant) -> Vec<PodUid> {
        let due = self.leaving().take_while(|(until, ..)| *until <= now);
        let due = due.map(|(_, mirror, _)| mirror.clone()).collect();
        self.leaving.retain(|(until, _)| *until > now);
        due
    }

    /// Records why a claim does not count, or that it is valid. Returns whether that is new.
    pub(in crate::sources) fn judge(&mut self, mirror: &PodUid, problem: Option<Problem>) -> bool {
        let is_new = self.refused.remove(mirror) != problem;
        self.refused.extend(problem.map(|problem| (mirror.clone(), problem)));
        is_new
    }
}
