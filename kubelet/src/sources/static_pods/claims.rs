//! The claims of all mirror pods, and the derived pods whose mirror pods are gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use pod_index::{FullName, PodUid};

use super::StaticPodClaim;
use crate::sources::Problem;

/// A mirror pod with a well-formed claim.
#[derive(Debug)]
pub(in crate::sources) struct Claimed<P> {
    pub(in crate::sources) claim: StaticPodClaim,
    pub(in crate::sources) name: FullName,
    /// The static pod, derived from the mirror pod.
    pub(in crate::sources) pod: Arc<P>,
    /// When it was first seen with this owner.
    pub(in crate::sources) seen: Instant,
    /// Whether a read of the Node object has refuted the owner. This is final: a Node object created later does not own
    /// older mirror pods.
    pub(in crate::sources) refuted: bool,
}

/// A derived pod whose mirror pod is gone.
#[derive(Debug)]
pub(in crate::sources) struct Unconfirmed<P> {
    pub(in crate::sources) name: FullName,
    pub(in crate::sources) node: String,
    pub(in crate::sources) pod: Arc<P>,
    pub(in crate::sources) until: Instant,
}

/// What all mirror pods of the API server claim about static pods.
#[derive(Debug)]
pub(in crate::sources) struct Claims<P> {
    by_mirror: HashMap<PodUid, Claimed<P>>,
    /// Pairs of static pod and mirror pod.
    by_uid: BTreeSet<(PodUid, PodUid)>,
    unconfirmed: HashMap<PodUid, Unconfirmed<P>>,
    unconfirmed_names: HashMap<FullName, PodUid>,
    /// By mirror pod.
    refused: BTreeMap<PodUid, Problem>,
}

// By hand: a derive would require `P: Default`.
impl<P> Default for Claims<P> {
    fn default() -> Self {
        Self {
            by_mirror: HashMap::new(),
            by_uid: BTreeSet::new(),
            unconfirmed: HashMap::new(),
            unconfirmed_names: HashMap::new(),
            refused: BTreeMap::new(),
        }
    }
}

impl<P> Claims<P> {
    pub(in crate::sources) fn is_empty(&self) -> bool {
        self.by_mirror.is_empty() && self.unconfirmed.is_empty()
    }

    pub(in crate::sources) fn insert(&mut self, mirror: PodUid, claimed: Claimed<P>) {
        self.by_uid.insert((claimed.claim.uid.clone(), mirror.clone()));
        self.by_mirror.insert(mirror, claimed);
    }

    pub(in crate::sources) fn remove(&mut self, mirror: &PodUid) -> Option<Claimed<P>> {
        let claimed = self.by_mirror.remove(mirror)?;
        self.by_uid.remove(&(claimed.claim.uid.clone(), mirror.clone()));
        Some(claimed)
    }

    pub(in crate::sources) fn of_mirror(&self, mirror: &PodUid) -> Option<&Claimed<P>> {
        self.by_mirror.get(mirror)
    }

    /// All mirror pods that claim `uid`, oldest first. The oldest claim counts.
    pub(in crate::sources) fn on(&self, uid: &PodUid) -> Vec<(&PodUid, &Claimed<P>)> {
        let from = (uid.clone(), PodUid::from(""));
        let claims = self.by_uid.range(from..).take_while(|(claimed, _)| claimed == uid);
        let mut claims: Vec<_> =
            claims.filter_map(|(_, mirror)| Some((mirror, self.by_mirror.get(mirror)?))).collect();
        claims.sort_by(|a, b| (a.1.claim.created, a.0).cmp(&(b.1.claim.created, b.0)));
        claims
    }

    /// All claims of a node's mirror pods, in any order.
    pub(in crate::sources) fn of_node(&self, node: &str) -> impl Iterator<Item = &Claimed<P>> {
        self.by_mirror.values().filter(move |claimed| claimed.claim.node == node)
    }

    /// Marks the claims of a node's mirror pods whose owner is refuted.
    pub(in crate::sources) fn refute(&mut self, node: &str, is_refuted: impl Fn(&Claimed<P>) -> bool) {
        for claimed in self.by_mirror.values_mut().filter(|claimed| claimed.claim.node == node) {
            claimed.refuted = is_refuted(claimed);
        }
    }

    /// The names of all claimed or unconfirmed static pods, sorted.
    pub(in crate::sources) fn names(&self) -> BTreeSet<FullName> {
        let claimed = self.by_mirror.values().map(|claimed| &claimed.name);
        claimed.chain(self.unconfirmed_names.keys()).cloned().collect()
    }

    /// Keeps a pod whose mirror pod is gone.
    pub(in crate::sources) fn outlive(&mut self, uid: PodUid, pod: Unconfirmed<P>) {
        if let Some(older) = self.unconfirmed_names.insert(pod.name.clone(), uid.clone()) {
            self.unconfirmed.remove(&older);
        }
        let name = pod.name.clone();
        if let Some(older) = self.unconfirmed.insert(uid, pod)
            && older.name != name
        {
            self.unconfirmed_names.remove(&older.name);
        }
    }

    pub(in crate::sources) fn unconfirmed(&self, uid: &PodUid) -> Option<&Unconfirmed<P>> {
        self.unconfirmed.get(uid)
    }

    pub(in crate::sources) fn unconfirmed_named(&self, name: &FullName) -> Option<&PodUid> {
        self.unconfirmed_names.get(name)
    }

    /// Removes the unconfirmed pod of this name, because another mirror pod now represents it.
    pub(in crate::sources) fn confirm(&mut self, name: &FullName) -> Option<PodUid> {
        let uid = self.unconfirmed_names.remove(name)?;
        self.unconfirmed.remove(&uid);
        Some(uid)
    }

    /// Removes the unconfirmed pods that match, and returns them.
    pub(in crate::sources) fn forget(
        &mut self,
        mut which: impl FnMut(&Unconfirmed<P>) -> bool,
    ) -> Vec<(FullName, PodUid)> {
        let gone = self.unconfirmed.extract_if(|_, pod| which(pod));
        let mut gone: Vec<_> = gone.map(|(uid, pod)| (pod.name, uid)).collect();
        gone.sort_unstable();
        for (name, _) in &gone {
            self.unconfirmed_names.remove(name);
        }
        gone
    }

    pub(in crate::sources) fn next_deadline(&self) -> Option<Instant> {
        self.unconfirmed.values().map(|pod| pod.until).min()
    }

    /// Records why a claim does not count, or that it is valid. Returns whether that is new.
    pub(in crate::sources) fn judge(&mut self, mirror: &PodUid, problem: Option<Problem>) -> bool {
        match problem {
            Some(problem) if self.refused.get(mirror) == Some(&problem) => false,
            Some(problem) => {
                self.refused.insert(mirror.clone(), problem);
                true
            }
            None => self.refused.remove(mirror).is_some(),
        }
    }

    pub(in crate::sources) fn refused(&self) -> impl Iterator<Item = &Problem> {
        self.refused.values()
    }
}
