//! What a source's change means for the pods of the index.
//!
//! Each published pod is a function of what all sources report. This file decides which source is used for
//! which part.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{FullName, PodMeta, PodUid, is_mirror_pod, is_static_pod};

use super::known::{KnownPod, described};
use super::step::{Step, Touched};
use super::{Merge, Merged, Reading};
use crate::sources::pod::{node, set_annotation, with_status_of};
use crate::sources::static_pods::{
    CLAIMED_ANNOTATION, Claimed, MIRROR, OWNERS, Ownership, Stage, UNCONFIRMED_ANNOTATION, UNCONFIRMED_FOR,
    claim_of, derived,
};
use crate::sources::{Difference, Problem, ProblemKind, Source};

/// Sources of manifests, the preferred one first.
const MANIFESTS: [Source; 2] = [Source::File, Source::Http];

/// What is published under a UID.
enum Resolved {
    /// The pod of the only source that reports it.
    Plain(Option<Arc<Pod>>),
    /// A combination of several sources, or nothing although a source reports it.
    Composed(Option<Arc<Pod>>),
}

impl Merge {
    /// Applies the changes in one source.
    pub(super) fn resolve(&mut self, step: Step) -> Merged {
        let mut merged = Merged { problems: step.problems, ..Merged::default() };
        let mut uids = Vec::new();
        let touched = step.touched.iter().filter(|touched| touched.source == Source::Api);
        let gone: Vec<_> =
            touched.filter(|touched| !self.is_mirror(&touched.uid)).map(|touched| &touched.uid).collect();
        for mirror in gone {
            merged.claims_changed |= self.claims.judge(mirror, None);
            uids.extend(self.let_claim_go(mirror, &step.now, false));
        }
        for mirror in &step.mirrors {
            self.observe(mirror, &step.now, step.is_first, &mut uids, &mut merged);
        }
        if !step.mirrors.is_empty() {
            self.bind_manifests();
        }
        let mut names = Vec::new();
        if step.source == Source::Kubelet && self.kubelet_speaks() {
            let is_own = |claimed: &Claimed| self.derive.own() == Some(claimed.claim.node.as_str());
            for mirror in self.claims.leaving(is_own) {
                let (uid, name) = self.end(&mirror).unzip();
                uids.extend(uid);
                names.extend(name);
            }
        }
        self.settle(&step.touched, uids, names, &mut merged);
        merged.due = self.due(step.source, &step.touched);
        merged
    }

    /// The sources to read at once, because another one has reported a change that they do not have yet.
    fn due(&self, source: Source, touched: &[Touched]) -> Vec<Source> {
        let concerns_kubelet = |touched: &Touched| {
            let now = self.holder(touched.source, &touched.uid).map(|pod| &pod.object);
            let before = touched.before.as_ref().map(|pod| &pod.object);
            let is_own = now.or(before).is_some_and(|pod| {
                self.derive.own().is_none_or(|own| node(pod).is_none_or(|node| node == own))
            });
            // The kubelet itself reports an ordinary pod's status to the API server.
            is_own
                && now.zip(before).is_none_or(|(now, before)| {
                    is_mirror_pod(&**now) || Difference::between(before, now) == Difference::Semantic
                })
        };
        let kubelet = source != Source::Kubelet && touched.iter().any(concerns_kubelet);
        let awaits = |source| {
            let read = self.readings.get(&source).map(|reading| reading.began);
            self.own_claims().any(|claimed| read <= claimed.seen)
        };
        let is_due = |source: &Source| match source {
            Source::Kubelet => kubelet,
            Source::Api => false,
            manifests => awaits(*manifests),
        };
        self.configured.iter().copied().filter(is_due).collect()
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

    /// Ends the claim of a mirror pod that is gone or, if it `exists` still, is being deleted. If the static pod seems
    /// to be running, it stays for a while.
    fn let_claim_go(&mut self, mirror: &PodUid, now: &str, exists: bool) -> Option<PodUid> {
        let counted = self.counts(mirror);
        let mut claimed = self.claims.remove(mirror)?;
        let uid = claimed.claim.uid.clone();
        let is_told_by_kubelet =
            self.derive.own() == Some(claimed.claim.node.as_str()) && self.kubelet_speaks();
        if claimed.stage == Stage::Live {
            claimed.stage = Stage::Over;
            if counted && !claimed.claim.ended && !is_told_by_kubelet {
                set_annotation(&mut claimed.pod, UNCONFIRMED_ANNOTATION, now);
                claimed.stage = Stage::Leaving(Instant::now() + UNCONFIRMED_FOR);
            }
        }
        if exists || claimed.stage != Stage::Over {
            self.claims.insert(mirror.clone(), claimed);
        }
        Some(uid)
    }

    /// Ends the time of a claim whose mirror pod is gone or is being deleted.
    pub(super) fn end(&mut self, mirror: &PodUid) -> Option<(PodUid, FullName)> {
        let mut claimed = self.claims.remove(mirror)?;
        let keys = (claimed.claim.uid.clone(), claimed.name.clone());
        if self.is_mirror(mirror) {
            claimed.stage = Stage::Over;
            self.claims.insert(mirror.clone(), claimed);
        }
        Some(keys)
    }

    /// Records a mirror pod's claim. Adds the affected UIDs to `uids`.
    fn observe(
        &mut self,
        mirror: &Arc<Pod>,
        now: &str,
        is_first: bool,
        uids: &mut Vec<PodUid>,
        merged: &mut Merged,
    ) {
        let uid = PodUid::from(mirror.uid());
        let (Some(claim), Some(known)) = (claim_of(mirror), self.holder(Source::Api, &uid)) else {
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
                let problem = refused(mirror, refusal.field, refusal.message);
                merged.claims_changed |= self.claims.judge(&uid, Some(problem));
            }
            Ok(claim) => {
                uids.push(claim.uid.clone());
                let same = before
                    .filter(|before| before.claim.owner == claim.owner && before.claim.uid == claim.uid);
                let is_terminating = claim.is_terminating;
                let pod = Arc::new(derived(mirror));
                let claimed = match same {
                    // Its static pod stays as it was before the deletion, and for no longer.
                    Some(before) if is_terminating && before.stage != Stage::Live => {
                        Claimed { claim, ..before }
                    }
                    Some(before) => Claimed { claim, name: name.clone(), pod, stage: Stage::Live, ..before },
                    None => Claimed {
                        claim,
                        name: name.clone(),
                        pod,
                        seen: (!is_first).then(Instant::now),
                        refuted: false,
                        manifest: None,
                        stage: Stage::Live,
                    },
                };
                self.node.is_due |=
                    self.is_of_own_node(&claimed) && self.ownership(&claimed) == Ownership::Unread;
                let is_live = claimed.stage == Stage::Live;
                self.claims.insert(uid.clone(), claimed);
                if is_terminating && is_live {
                    self.let_claim_go(&uid, now, true);
                } else if is_live {
                    uids.extend(self.confirm(&name).into_iter().map(|(uid, _)| uid));
                }
            }
        }
    }

    /// Removes the claims of this name whose mirror pods are gone if the one that exists is not in doubt.
    pub(super) fn confirm(&mut self, name: &FullName) -> Vec<(PodUid, FullName)> {
        let claims = self.claims.named(name);
        let Some((_, claimed)) = claims.first().filter(|(_, claimed)| claimed.stage == Stage::Live) else {
            return Vec::new();
        };
        let ownership = self.ownership(claimed);
        if ownership == Ownership::Refuted || self.node.defers(ownership) {
            return Vec::new();
        }
        let others = claims.iter().filter(|(_, claimed)| matches!(claimed.stage, Stage::Leaving(_)));
        let others: Vec<_> = others.map(|(mirror, _)| (*mirror).clone()).collect();
        others.iter().filter_map(|mirror| self.end(mirror)).collect()
    }

    /// Records which manifest the own node's claims are about: the first one that was read after the claim was seen.
    pub(super) fn bind_manifests(&mut self) {
        let Some(own) = self.derive.own() else { return };
        let unbound = self.own_claims().filter(|claimed| claimed.manifest.is_none());
        let unbound = unbound.filter(|claimed| self.manifests_read(claimed, |reading| Some(reading.began)));
        let bound =
            unbound.filter_map(|claimed| Some((claimed.name.clone(), self.manifest(&claimed.name)?.clone())));
        let bound: HashMap<_, _> = bound.collect();
        for claimed in self.claims.of_node_mut(own).filter(|claimed| claimed.manifest.is_none()) {
            claimed.manifest = bound.get(&claimed.name).cloned();
        }
    }

    /// Whether there are sources of manifests, and these reads of all of them began after the claim was seen.
    fn manifests_read(&self, claimed: &Claimed, began: impl Fn(&Reading) -> Option<Instant>) -> bool {
        let mut configured = MANIFESTS.iter().filter(|source| self.configured.contains(source)).peekable();
        let is_later = |source| self.readings.get(source).and_then(&began) > claimed.seen;
        configured.peek().is_some() && configured.all(is_later)
    }

    /// The UID that the manifest of this name has in its source.
    fn manifest(&self, name: &FullName) -> Option<&PodUid> {
        MANIFESTS.into_iter().find_map(|source| self.named(source, name)).map(|(uid, _)| uid)
    }

    /// Whether the claim is about an earlier manifest than the present one.
    fn is_outdated(&self, claimed: &Claimed) -> bool {
        self.is_of_own_node(claimed)
            && claimed
                .manifest
                .as_ref()
                .zip(self.manifest(&claimed.name))
                .is_some_and(|(old, now)| old != now)
    }

    /// Why the own node's other sources contradict a claim.
    fn denial(&self, uid: &PodUid, claimed: &Claimed) -> Option<&'static str> {
        if !self.all_seen || !self.is_of_own_node(claimed) {
            return None;
        }
        let kubelet =
            self.readings.get(&Source::Kubelet).filter(|reading| Some(reading.began) > claimed.seen);
        // A kubelet that has just started lists no pod, and deletes no mirror pod.
        let decides = kubelet.is_some() && (self.kubelet_speaks() || claimed.claim.is_terminating);
        if self.holder(Source::Kubelet, uid).is_some() {
            None
        } else if decides {
            Some("the node's kubelet does not list its static pod")
        } else if self.manifests_read(claimed, |reading| reading.whole)
            && self.manifest(&claimed.name).is_none()
        {
            Some("no manifest describes its static pod")
        } else {
            None
        }
    }

    /// Whether a static pod of the own node may be derived from this mirror pod.
    fn is_of_own_node(&self, claimed: &Claimed) -> bool {
        let node = claimed.claim.node.as_str();
        self.derive.own() == Some(node) && self.derive.includes(node)
    }

    /// The claims of which static pods of the own node may be derived.
    pub(super) fn own_claims(&self) -> impl Iterator<Item = &Claimed> {
        self.claims.iter().map(|(_, claimed)| claimed).filter(|claimed| self.is_of_own_node(claimed))
    }

    pub(super) fn has_unread_claims(&self) -> bool {
        self.own_claims().any(|claimed| self.ownership(claimed) == Ownership::Unread)
    }

    /// Whether the Node object owns the mirror pod. Those of other nodes are not checked.
    fn ownership(&self, claimed: &Claimed) -> Ownership {
        if self.is_of_own_node(claimed) { self.node.ownership(claimed) } else { Ownership::Confirmed }
    }

    /// Publishes the changes: the touched pods, those under `uids`, and those that share a full name with
    /// them.
    pub(super) fn settle(
        &mut self,
        touched: &[Touched],
        uids: Vec<PodUid>,
        names: impl IntoIterator<Item = FullName>,
        merged: &mut Merged,
    ) {
        let mut before: HashMap<_, &Touched> = HashMap::with_capacity(touched.len());
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
        uids.extend(self.claims.named(name).into_iter().map(|(_, claimed)| claimed.claim.uid.clone()));
    }

    fn publish(&mut self, uid: &PodUid, touched: Option<&Touched>, merged: &mut Merged) {
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
    fn resolved(&self, uid: &PodUid) -> Resolved {
        let holders = Source::ALL.map(|source| self.holder(source, uid));
        let count = holders.iter().flatten().count();
        let is_named = holders.iter().flatten().any(|pod| !pod.leaving);
        let [file, http, kubelet, api] = holders.map(|pod| pod.filter(|pod| !(is_named && pod.leaving)));
        let claim = self.counting(uid);
        let is_own = |pod: &&KnownPod| self.uid_of(&pod.name).is_none_or(|known| known == uid);
        let own = file.filter(is_own).or_else(|| http.filter(is_own));
        let is_other = own.is_none() && file.or(http).is_some();

        let pod = if let Some(api) = api {
            kubelet
                .and_then(|kubelet| with_status_of(&api.object, &kubelet.object))
                .map_or_else(|| Some(Arc::clone(&api.object)), |pod| Some(Arc::new(pod)))
        } else if let Some(kubelet) = kubelet {
            Some(Arc::clone(&kubelet.object))
        } else if let Some(manifest) = own {
            let pod = claim.and_then(|(_, claimed)| with_status_of(&manifest.object, &claimed.pod));
            Some(pod.map_or_else(|| Arc::clone(&manifest.object), Arc::new))
        } else {
            claim.map(|(mirror, claimed)| self.derived(mirror, claimed))
        };
        if count <= 1 && claim.is_none() && !is_other {
            Resolved::Plain(pod)
        } else {
            Resolved::Composed(pod)
        }
    }

    /// The static pod of a claim. Spec, status and UID come from the mirror pod, never from several sources.
    fn derived(&self, mirror: &PodUid, claimed: &Claimed) -> Arc<Pod> {
        let mut pod = Arc::clone(&claimed.pod);
        let is_confirmed = self.is_of_own_node(claimed) && self.manifest(&claimed.name).is_some();
        if !is_confirmed {
            set_annotation(&mut pod, CLAIMED_ANNOTATION, &mirror.to_string());
        }
        pod
    }

    /// The UID under which the node knows the static pod of this name: the kubelet's, else its mirror pod's.
    fn uid_of(&self, name: &FullName) -> Option<&PodUid> {
        let claimed = || self.claims.named(name).into_iter().find(|(mirror, _)| self.counts(mirror));
        self.kubelets_uid(name).or_else(|| claimed().map(|(_, claimed)| &claimed.claim.uid))
    }

    /// The UID under which the kubelet lists a static pod of this name.
    fn kubelets_uid(&self, name: &FullName) -> Option<&PodUid> {
        let (uid, _) = self.named(Source::Kubelet, name).filter(|(_, pod)| is_static_pod(&*pod.object))?;
        Some(uid)
    }

    /// The mirror pod of the static pod `uid`, if one counts.
    fn counting(&self, uid: &PodUid) -> Option<(&PodUid, &Claimed)> {
        self.claims.on(uid).into_iter().find(|(_, claimed)| {
            self.derive.includes(&claimed.claim.node)
                && self.objection(uid, claimed).is_none()
                && !self.node.defers(self.ownership(claimed))
                && !self.is_outdated(claimed)
                // If the kubelet and the API server differ, the kubelet is used.
                && self.kubelets_uid(&claimed.name).is_none_or(|known| known == uid)
        })
    }

    /// Why a claim cannot be true: the field, and what is wrong with it.
    fn objection(&self, uid: &PodUid, claimed: &Claimed) -> Option<(&'static str, &'static str)> {
        let is_other = |pod: &KnownPod| pod.name != claimed.name;
        let is_leaving = |other: &Claimed| matches!(other.stage, Stage::Leaving(_));
        let message = if claimed.stage == Stage::Over {
            "it is being deleted, and no kubelet has replaced it"
        } else if self.ownership(claimed) == Ownership::Refuted {
            return Some((OWNERS, "must have the UID of the Node object"));
        } else if self.holder(Source::Api, uid).is_some() {
            "the API server has a pod with that UID"
        } else if self.holder(Source::Kubelet, uid).is_some_and(is_other) {
            "the kubelet has another pod with that UID"
        } else if MANIFESTS.into_iter().any(|source| self.holder(source, uid).is_some_and(is_other)) {
            "a manifest has another pod with that UID"
        } else if !is_leaving(claimed)
            && self.claims.on(uid).iter().any(|(_, other)| is_leaving(other) && other.name != claimed.name)
        {
            "another mirror pod with that UID was removed only recently"
        } else {
            self.denial(uid, claimed)?
        };
        Some((MIRROR, message))
    }

    /// Records which claims on a UID are refused, and why.
    fn judge(&mut self, uid: &PodUid, merged: &mut Merged) {
        let claims = self.claims.on(uid);
        // These are judged after the next read of the Node object.
        let is_deferred = |claimed: &Claimed| self.node.defers(self.ownership(claimed));
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

    fn holder(&self, source: Source, uid: &PodUid) -> Option<&KnownPod> {
        self.sources.get(&source)?.pods.get(uid)
    }

    /// The pod of this name in one source.
    fn named(&self, source: Source, name: &FullName) -> Option<(&PodUid, &KnownPod)> {
        self.sources.get(&source)?.named(name)
    }
}

fn refused(mirror: &Pod, field: &str, message: &str) -> Problem {
    let message = format!("no static pod is derived from the mirror pod {}: {message}", described(mirror));
    Problem::new(ProblemKind::Claim, Source::Api.as_str(), None, Some(field.to_owned()), message)
}
