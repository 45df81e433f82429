//! The claims of all mirror pods, by mirror pod, by static pod and by name.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{FullName, PodUid};

use super::{Ownership, StaticPodClaim, UNCONFIRMED_FOR};
use crate::sources::pod::WholeStatus;
use crate::sources::{Problem, Source};

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

impl Claimed {
    /// The status of the mirror pod, which the API server has.
    pub(in crate::sources) fn whole_status(&self) -> Option<WholeStatus<'_>> {
        WholeStatus::of(Source::Api, &self.pod)
    }
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
    /// By the UID of the static pod.
    by_uid: BTreeSet<ClaimOn<PodUid>>,
    /// By the name of the static pod.
    by_name: BTreeSet<ClaimOn<FullName>>,
    /// The mirror pods that are leaving or were, in the order of the time until which they may.
    leaving: VecDeque<Leaving>,
    /// By mirror pod.
    pub(in crate::sources) refused: BTreeMap<PodUid, Problem>,
}

/// A mirror pod claims the static pod with this UID or name. Ordered by what is claimed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ClaimOn<K> {
    claimed: K,
    mirror: PodUid,
}

/// A mirror pod that is gone or is being deleted.
#[derive(Debug)]
struct Leaving {
    until: Instant,
    mirror: PodUid,
}

impl Claimed {
    fn on_uid(&self, mirror: &PodUid) -> ClaimOn<PodUid> {
        ClaimOn { claimed: self.claim.uid.clone(), mirror: mirror.clone() }
    }

    fn on_name(&self, mirror: &PodUid) -> ClaimOn<FullName> {
        ClaimOn { claimed: self.name.clone(), mirror: mirror.clone() }
    }
}

impl Claims {
    /// The claim of a mirror pod of which none is known.
    pub(in crate::sources) fn insert(&mut self, mirror: PodUid, claimed: Claimed) {
        self.by_uid.insert(claimed.on_uid(&mirror));
        self.by_name.insert(claimed.on_name(&mirror));
        self.by_mirror.insert(mirror, claimed);
    }

    pub(in crate::sources) fn remove(&mut self, mirror: &PodUid) -> Option<Claimed> {
        let claimed = self.by_mirror.remove(mirror)?;
        self.by_uid.remove(&claimed.on_uid(mirror));
        self.by_name.remove(&claimed.on_name(mirror));
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

    fn found<K: Ord + Clone>(&self, by: &BTreeSet<ClaimOn<K>>, key: &K) -> Vec<(&PodUid, &Claimed)> {
        let first = ClaimOn { claimed: key.clone(), mirror: PodUid::from("") };
        let claims = by.range(first..).take_while(|claim| claim.claimed == *key);
        claims.filter_map(|claim| self.by_mirror.get_key_value(&claim.mirror)).collect()
    }

    /// The mirror pod is gone or is being deleted. Gives a new one the time to confirm the static pod.
    pub(in crate::sources) fn leave(&mut self, mirror: &PodUid) {
        if let Some(claimed) = self.by_mirror.get_mut(mirror) {
            let until = Instant::now() + UNCONFIRMED_FOR;
            claimed.stage = Stage::Leaving(until);
            self.leaving.push_back(Leaving { until, mirror: mirror.clone() });
        }
    }

    /// The mirror pods that are gone or are being deleted and whose time is not over, and until when, in this order.
    pub(in crate::sources) fn leaving(&self) -> impl Iterator<Item = (Instant, &PodUid, &Claimed)> {
        self.leaving.iter().filter_map(|Leaving { until, mirror }| {
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
        self.leaving.retain(|leaving| leaving.until > now);
        due
    }

    /// Records why a claim does not count, or that it is valid. Returns whether that is new.
    pub(in crate::sources) fn set_refusal(&mut self, mirror: &PodUid, problem: Option<Problem>) -> bool {
        let is_new = self.refused.remove(mirror) != problem;
        self.refused.extend(problem.map(|problem| (mirror.clone(), problem)));
        is_new
    }
}
