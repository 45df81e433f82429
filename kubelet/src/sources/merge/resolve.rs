//! What a source's change means for the pods of the index.
//!
//! Each published pod is a function of what all sources report. This file decides which source is used for
//! which part.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use pod_index::{FullName, PodUid, is_mirror_pod, is_static_pod};

use super::known::KnownPod;
use super::step::{Step, Touched};
use super::{Merge, Merged};
use crate::sources::static_pods::{
    Claimed, OWNERS, Ownership, UNCONFIRMED_ANNOTATION, UNCONFIRMED_FOR, Unconfirmed,
};
use crate::sources::{Problem, ProblemKind, Source, SourcePod};
use crate::text::shorten;

/// Sources of manifests, the preferred one first.
const MANIFESTS: [Source; 2] = [Source::File, Source::Http];

const MIRROR: &str = "metadata.annotations[kubernetes.io/config.mirror]";

/// What is published under a UID.
enum Resolved<P> {
    /// The pod of the only source that reports it.
    Plain(Option<Arc<P>>),
    /// A combination of several sources, or nothing although a source reports it.
    Composed(Option<Arc<P>>),
}

impl<P: SourcePod> Merge<P> {
    /// Applies the changes in one source.
    pub(super) fn resolve(&mut self, step: Step<P>) -> Merged<P> {
        let mut merged = Merged { problems: step.problems, ..Merged::default() };
        let mut uids = Vec::new();
        let mut names = Vec::new();
        let touched = step.touched.iter().filter(|touched| touched.source == Source::Api);
        let gone: Vec<_> = touched
            .filter(|touched| !self.is_mirror(&touched.uid))
            .map(|touched| (&touched.uid, self.counts(&touched.uid)))
            .collect();
        for (mirror, counted) in gone {
            uids.extend(self.let_claim_go(mirror, counted, &step.now, &mut merged));
        }
        for mirror in &step.mirrors {
            self.observe(mirror, &mut uids, &mut merged);
        }
        if step.source == Source::Kubelet && self.kubelet_speaks() {
            let own = self.derive.own().map(str::to_owned);
            for (name, uid) in self.claims.forget(|pod| Some(&pod.node) == own.as_ref()) {
                names.push(name);
                uids.push(uid);
            }
        }
        self.settle(&step.touched, uids, names, &mut merged);
        merged
    }

    /// Whether the kubelet has reported the own node's static pods.
    fn kubelet_speaks(&self) -> bool {
        self.sources.get(&Source::Kubelet).is_some_and(|kubelet| !kubelet.pods.is_empty())
    }

    fn is_mirror(&self, uid: &PodUid) -> bool {
        self.holder(Source::Api, uid).is_some_and(|pod| is_mirror_pod(&*pod.object))
    }

    /// Whether a mirror pod's claim counts.
    fn counts(&self, mirror: &PodUid) -> bool {
        let claimed = self.claims.of_mirror(mirror);
        let counting = claimed.and_then(|claimed| self.counting(&claimed.claim.uid));
        counting.is_some_and(|(counting, _)| counting == mirror)
    }

    /// Removes the claim of a mirror pod that is gone. If the static pod seems to be running, it stays for a
    /// while.
    fn let_claim_go(
        &mut self,
        mirror: &PodUid,
        counted: bool,
        now: &str,
        merged: &mut Merged<P>,
    ) -> Option<PodUid> {
        merged.claims_changed |= self.claims.judge(mirror, None);
        let Claimed { claim, name, pod, .. } = self.claims.remove(mirror)?;
        let is_told_by_kubelet = self.derive.own() == Some(claim.node.as_str()) && self.kubelet_speaks();
        if counted && !claim.ended && !is_told_by_kubelet {
            let mut pod = pod;
            Arc::make_mut(&mut pod).set_annotation(UNCONFIRMED_ANNOTATION, now);
            let until = Instant::now() + UNCONFIRMED_FOR;
            self.claims.outlive(claim.uid.clone(), Unconfirmed { name, node: claim.node, pod, until });
        }
        Some(claim.uid)
    }

    /// Records a mirror pod's claim. Adds the affected UIDs to `uids`.
    fn observe(&mut self, mirror: &Arc<P>, uids: &mut Vec<PodUid>, merged: &mut Merged<P>) {
        let uid = PodUid::from(mirror.uid());
        let (Some(claim), Some(known)) = (mirror.static_pod_claim(), self.holder(Source::Api, &uid)) else {
            return;
        };
        if self.derive.own().is_none() {
            return;
        }
        let name = known.name.clone();
        let before = self.claims.remove(&uid);
        uids.extend(before.as_ref().map(|before| before.claim.uid.clone()));
        match claim {
            Err(refusal) => {
                let problem = refused(&**mirror, refusal.field, refusal.message);
                merged.claims_changed |= self.claims.judge(&uid, Some(problem));
            }
            Ok(claim) => {
                uids.push(claim.uid.clone());
                let same_owner = before.filter(|before| before.claim.owner == claim.owner);
                let (seen, refuted) = same_owner
                    .map_or_else(|| (Instant::now(), false), |before| (before.seen, before.refuted));
                let pod = Arc::new(mirror.static_pod());
                let claimed = Claimed { claim, name: name.clone(), pod, seen, refuted };
                self.node.is_due |=
                    self.is_of_own_node(&claimed) && self.ownership(&claimed) == Ownership::Unread;
                self.claims.insert(uid, claimed);
                uids.extend(self.confirm(&name));
            }
        }
    }

    /// Removes the unconfirmed pod of this name if the name's mirror pod is not in doubt.
    pub(super) fn confirm(&mut self, name: &FullName) -> Option<PodUid> {
        let (_, claimed) = self.claim_named(name)?;
        let ownership = self.ownership(claimed);
        let is_in_doubt = ownership == Ownership::Refuted || self.node.defers(ownership);
        if is_in_doubt { None } else { self.claims.confirm(name) }
    }

    /// Whether a static pod of the own node may be derived from this mirror pod.
    fn is_of_own_node(&self, claimed: &Claimed<P>) -> bool {
        let node = claimed.claim.node.as_str();
        self.derive.own() == Some(node) && self.derive.includes(node)
    }

    /// The claims of which static pods of the own node may be derived.
    pub(super) fn own_claims(&self) -> impl Iterator<Item = &Claimed<P>> {
        let own = self.derive.own().filter(|own| self.derive.includes(own));
        own.into_iter().flat_map(|own| self.claims.of_node(own))
    }

    pub(super) fn has_unread_claims(&self) -> bool {
        self.own_claims().any(|claimed| self.ownership(claimed) == Ownership::Unread)
    }

    /// Whether the Node object owns the mirror pod. Those of other nodes are not checked.
    fn ownership(&self, claimed: &Claimed<P>) -> Ownership {
        if self.is_of_own_node(claimed) { self.node.ownership(claimed) } else { Ownership::Confirmed }
    }

    /// Publishes the changes: the touched pods, those under `uids`, and those that share a full name with
    /// them.
    pub(super) fn settle(
        &mut self,
        touched: &[Touched<P>],
        uids: Vec<PodUid>,
        names: impl IntoIterator<Item = FullName>,
        merged: &mut Merged<P>,
    ) {
        let mut before: HashMap<_, &Touched<P>> = HashMap::with_capacity(touched.len());
        let mut order = Vec::with_capacity(touched.len() + uids.len());
        for touched in touched {
            order.push(touched.uid.clone());
            let first = before.entry(touched.uid.clone()).or_insert(touched);
            // Of two sources, the one that reported it.
            if first.before.is_none() {
                *first = touched;
            }
        }
        order.extend(uids);
        if self.has_relatives() {
            let mut relatives = Vec::new();
            for name in names {
                self.relatives(&name, &mut relatives);
            }
            for touched in touched {
                let now = self.holder(touched.source, &touched.uid);
                for pod in touched.before.iter().chain(now) {
                    self.relatives(&pod.name, &mut relatives);
                }
            }
            order.append(&mut relatives);
            // Which claim on a UID counts determines the manifests of its name.
            let claims = order.iter().flat_map(|uid| self.claims.on(uid));
            for name in claims.map(|(_, claimed)| &claimed.name) {
                self.relatives(name, &mut relatives);
            }
            order.append(&mut relatives);
        }
        let mut seen = HashSet::with_capacity(order.len());
        for uid in order {
            if seen.insert(uid.clone()) {
                self.publish(&uid, before.get(&uid).copied(), merged);
            }
        }
    }

    /// Whether a pod may affect one of another UID. Pods already affected are composed.
    fn has_relatives(&self) -> bool {
        let speaking = self.sources.values().filter(|known| !known.pods.is_empty()).count();
        speaking > 1 || !self.claims.is_empty() || !self.composed.is_empty()
    }

    /// The UIDs under which static pods of this name are known.
    fn relatives(&self, name: &FullName, uids: &mut Vec<PodUid>) {
        for source in [Source::File, Source::Http, Source::Kubelet] {
            uids.extend(self.named(source, name).map(|(uid, _)| uid.clone()));
        }
        uids.extend(self.claim_named(name).map(|(_, claimed)| claimed.claim.uid.clone()));
        uids.extend(self.claims.unconfirmed_named(name).cloned());
    }

    fn publish(&mut self, uid: &PodUid, touched: Option<&Touched<P>>, merged: &mut Merged<P>) {
        self.judge(uid, merged);
        let old = match (self.composed.get(uid), touched) {
            (Some(composed), _) => composed.clone(),
            (None, Some(Touched { before: Some(before), .. })) => Some(Arc::clone(&before.object)),
            // The only source that reported it before did not change it.
            (None, touched) => Source::ALL
                .into_iter()
                .filter(|source| touched.is_none_or(|touched| touched.source != *source))
                .find_map(|source| self.holder(source, uid))
                .map(|pod| Arc::clone(&pod.object)),
        };
        match self.resolved(uid) {
            Resolved::Plain(new) => {
                merged.file(old.as_ref(), new.as_ref());
                self.composed.remove(uid);
            }
            Resolved::Composed(new) => {
                // The index and this map share one object while it is unchanged.
                let published = if merged.file(old.as_ref(), new.as_ref()) { new } else { old };
                self.composed.insert(uid.clone(), published);
            }
        }
    }

    /// Decides which source is used for which part.
    fn resolved(&self, uid: &PodUid) -> Resolved<P> {
        let holders = Source::ALL.map(|source| self.holder(source, uid));
        let count = holders.iter().flatten().count();
        let is_named = holders.iter().flatten().any(|pod| !pod.leaving);
        let [file, http, kubelet, api] = holders.map(|pod| pod.filter(|pod| !(is_named && pod.leaving)));
        let claim = self.counting(uid).map(|(_, claimed)| claimed);
        let unconfirmed = self.claims.unconfirmed(uid);
        let is_own = |pod: &&KnownPod<P>| self.uid_of(&pod.name).is_none_or(|known| known == uid);
        let own = file.filter(is_own).or_else(|| http.filter(is_own));
        let is_other = own.is_none() && file.or(http).is_some();

        let of_name = |name: &FullName| self.manifest_of(uid, name);
        let name = kubelet.map(|pod| &pod.name).or(claim.map(|claim| &claim.name));
        let manifest = own.map(|pod| Arc::clone(&pod.object));
        let manifest =
            || manifest.or_else(|| of_name(name.or(unconfirmed.map(|unconfirmed| &unconfirmed.name))?));
        let derived = claim.map(|claim| &claim.pod).or(unconfirmed.map(|unconfirmed| &unconfirmed.pod));

        let pod = if let Some(api) = api {
            kubelet
                .and_then(|kubelet| api.object.with_status_of(&kubelet.object))
                .map_or_else(|| Some(Arc::clone(&api.object)), |pod| Some(Arc::new(pod)))
        } else if let Some(kubelet) = kubelet {
            Some(Arc::clone(&kubelet.object))
        } else if let Some(manifest) = manifest() {
            let pod = derived.and_then(|derived| manifest.with_status_of(derived));
            Some(pod.map_or(manifest, Arc::new))
        } else {
            derived.map(Arc::clone)
        };
        if count <= 1 && claim.is_none() && unconfirmed.is_none() && !is_other {
            Resolved::Plain(pod)
        } else {
            Resolved::Composed(pod)
        }
    }

    /// The manifest of this name, if `uid` is the UID under which the node knows its pod.
    fn manifest_of(&self, uid: &PodUid, name: &FullName) -> Option<Arc<P>> {
        let (own, pod) = MANIFESTS.into_iter().find_map(|source| self.named(source, name))?;
        let is_known = own != uid && self.uid_of(name) == Some(uid);
        is_known.then(|| Arc::new(pod.object.with_uid(&uid.to_string())))
    }

    /// The UID under which the node knows the static pod of this name: the kubelet's, else its mirror pod's.
    fn uid_of(&self, name: &FullName) -> Option<&PodUid> {
        let kubelet = self.kubelets_uid(name);
        let claimed = || self.claim_named(name).filter(|(mirror, _)| self.counts(mirror));
        kubelet
            .or_else(|| claimed().map(|(_, claimed)| &claimed.claim.uid))
            .or_else(|| self.claims.unconfirmed_named(name))
    }

    /// The UID under which the kubelet lists a static pod of this name.
    fn kubelets_uid(&self, name: &FullName) -> Option<&PodUid> {
        let (uid, _) = self.named(Source::Kubelet, name).filter(|(_, pod)| is_static_pod(&*pod.object))?;
        Some(uid)
    }

    fn claim_named(&self, name: &FullName) -> Option<(&PodUid, &Claimed<P>)> {
        let (mirror, _) = self.sources.get(&Source::Api)?.named(name)?;
        Some((mirror, self.claims.of_mirror(mirror)?))
    }

    /// The mirror pod of the static pod `uid`, if one counts.
    fn counting(&self, uid: &PodUid) -> Option<(&PodUid, &Claimed<P>)> {
        self.claims.on(uid).into_iter().find(|(_, claimed)| {
            self.derive.includes(&claimed.claim.node)
                && self.objection(uid, claimed).is_none()
                && !self.node.defers(self.ownership(claimed))
                // If the kubelet and the API server differ, the kubelet is used.
                && self.kubelets_uid(&claimed.name).is_none_or(|known| known == uid)
        })
    }

    /// Why a claim cannot be true: the field, and what is wrong with it.
    fn objection(&self, uid: &PodUid, claimed: &Claimed<P>) -> Option<(&'static str, &'static str)> {
        let is_other = |pod: &KnownPod<P>| pod.name != claimed.name;
        let message = if self.ownership(claimed) == Ownership::Refuted {
            return Some((OWNERS, "must have the UID of the Node object"));
        } else if self.holder(Source::Api, uid).is_some() {
            "the API server has a pod with that UID"
        } else if self.holder(Source::Kubelet, uid).is_some_and(is_other) {
            "the kubelet has another pod with that UID"
        } else if MANIFESTS.into_iter().any(|source| self.holder(source, uid).is_some_and(is_other)) {
            "a manifest has another pod with that UID"
        } else if self.claims.unconfirmed(uid).is_some_and(|pod| pod.name != claimed.name) {
            "another mirror pod with that UID was removed only recently"
        } else {
            return None;
        };
        Some((MIRROR, message))
    }

    /// Records which claims on a UID are refused, and why.
    fn judge(&mut self, uid: &PodUid, merged: &mut Merged<P>) {
        let claims = self.claims.on(uid);
        // These are judged after the next read of the Node object.
        let is_deferred = |claimed: &Claimed<P>| self.node.defers(self.ownership(claimed));
        let counting = claims
            .iter()
            .find(|(_, claimed)| self.objection(uid, claimed).is_none() && !is_deferred(claimed));
        let counting = counting.map(|(mirror, _)| (*mirror).clone());
        let judged: Vec<_> = claims
            .into_iter()
            .map(|(mirror, claimed)| {
                let objection = self
                    .objection(uid, claimed)
                    .or_else(|| {
                        (counting.as_ref() != Some(mirror))
                            .then_some((MIRROR, "an older mirror pod has the same claim"))
                    })
                    .filter(|_| self.derive.includes(&claimed.claim.node) && !is_deferred(claimed));
                let pod = self.holder(Source::Api, mirror).map(|pod| &*pod.object);
                let problem = objection.zip(pod).map(|((field, message), pod)| refused(pod, field, message));
                (mirror.clone(), problem)
            })
            .collect();
        for (mirror, problem) in judged {
            merged.claims_changed |= self.claims.judge(&mirror, problem);
        }
    }

    fn holder(&self, source: Source, uid: &PodUid) -> Option<&KnownPod<P>> {
        self.sources.get(&source)?.pods.get(uid)
    }

    /// The pod of this name in one source.
    fn named(&self, source: Source, name: &FullName) -> Option<(&PodUid, &KnownPod<P>)> {
        self.sources.get(&source)?.named(name)
    }
}

fn refused<P: SourcePod>(mirror: &P, field: &str, message: &str) -> Problem {
    let message = format!(
        "no static pod is derived from the mirror pod {}/{} (UID {:?}): {message}",
        shorten(mirror.namespace()),
        shorten(mirror.name()),
        shorten(mirror.uid()),
    );
    Problem::new(ProblemKind::Claim, Source::Api.as_str(), None, Some(field.to_owned()), message)
}
