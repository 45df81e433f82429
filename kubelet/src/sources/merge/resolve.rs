//! What a source's change means for the pods of the index.
//!
//! Each published pod is a function of what all sources report. This file decides which source is used for
//! which part. It has the private methods of [`Merge`]; the public ones, in `mod`, call them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use pod_index::{ENDED_ANNOTATION, FullName, PodMeta, PodUid, is_mirror_pod, is_static_pod};

use super::kept::KeptPod;
use super::reported::{ReportedPod, described};
use super::step::{Keys, Step};
use super::{Merge, Merged};
use crate::sources::completeness::SETTLED_AFTER;
use crate::sources::pod::{differs_for_kubelet, is_mark, set_annotation, with_status_of};
use crate::sources::static_pods::{
    CLAIMED_ANNOTATION, Claimed, MIRROR, OWNERS, Ownership, Stage, StaticPodClaim, UNCONFIRMED_ANNOTATION,
    claim, derived,
};
use crate::sources::{Problem, ProblemKind, Source};

/// If the deletion of a mirror pod begins this soon after it was first seen, a kubelet has not created it: its static pod
/// does not stay. A kubelet needs 1.1 to 1.4 s to refuse one.
const DELETED_BY_KUBELET_WITHIN: Duration = Duration::from_secs(10);

/// A mirror pod that was created this long ago, by another machine's clock, is not new.
const OLD: Duration = Duration::from_secs(60);

/// Sources of manifests, the preferred one first.
fn manifest_sources() -> impl Iterator<Item = Source> {
    Source::ALL.into_iter().filter(|source| source.has_manifests())
}

/// What each source reports under one UID. Without a `..`, so that the compiler names the places that do not know a new role.
#[derive(Clone, Copy, Default)]
struct Reports<'a> {
    file: Option<&'a ReportedPod>,
    http: Option<&'a ReportedPod>,
    kubelet: Option<&'a ReportedPod>,
    api: Option<&'a ReportedPod>,
}

/// Why a claim cannot be true.
struct Objection {
    field: &'static str,
    message: &'static str,
}

impl Objection {
    /// To the annotation that makes a pod a mirror pod.
    fn to_mirror(message: &'static str) -> Self {
        Self { field: MIRROR, message }
    }
}

impl Merge {
    /// Applies the changes in one source.
    pub(super) fn resolve(&mut self, step: Step) -> Merged {
        let Step { source, now, is_first, touched: mut keys, mirrors, problems, concerns_kubelet, .. } = step;
        let mut merged = Merged { problems, ..Merged::default() };
        self.release_claims_of_gone(&now, &mut keys, &mut merged);
        for mirror in &mirrors {
            self.observe(mirror, &now, is_first, &mut keys, &mut merged);
        }
        if source == Source::Kubelet && self.kubelet_speaks() {
            self.end_claims_that_the_kubelet_judges(&mut keys);
        }
        self.settle(keys, &mut merged);
        merged.due = self.sources_to_read(concerns_kubelet);
        merged
    }

    /// Releases the claims of the mirror pods among the changed ones that are gone.
    fn release_claims_of_gone(&mut self, now: &str, keys: &mut Keys, merged: &mut Merged) {
        let gone: Vec<_> = keys.uids.iter().filter(|uid| !self.is_mirror(uid)).cloned().collect();
        for mirror in gone {
            merged.claims_changed |= self.claims.set_refusal(&mirror, None);
            self.release_claim(&mirror, now, keys);
        }
    }

    /// Ends the claims of the kubelet's own mirror pods that are gone: its list has the static pods themselves.
    fn end_claims_that_the_kubelet_judges(&mut self, keys: &mut Keys) {
        let own = self.claims.leaving().filter(|(_, _, claimed)| self.is_kubelets(&claimed.claim));
        let own: Vec<_> = own.map(|(_, mirror, _)| mirror.clone()).collect();
        for mirror in &own {
            self.end(mirror, keys);
        }
    }

    /// The sources that should be read at once.
    fn sources_to_read(&self, concerns_kubelet: bool) -> Vec<Source> {
        let has_newer_claim = |source| {
            let read = self.last_reads.get(&source).map(|reads| reads.began);
            self.own_claims().any(|(_, claimed)| read <= claimed.seen)
        };
        let is_to_read = |source: &Source| match source {
            Source::Kubelet => concerns_kubelet,
            Source::Api => false,
            Source::File | Source::Http => has_newer_claim(*source),
        };
        self.configured.iter().copied().filter(is_to_read).collect()
    }

    /// Whether the kubelet's last list has pods, so that it has read its manifests.
    pub(super) fn kubelet_speaks(&self) -> bool {
        let is_listed = |pod: &ReportedPod| !pod.is_missing;
        self.sources.get(&Source::Kubelet).is_some_and(|kubelet| kubelet.pods.values().any(is_listed))
    }

    /// Whether the kubelet's last list has all pods of its files. One that has just started lists no pod, and then one after the other.
    fn kubelet_has_its_files(&self) -> bool {
        let reads = self.last_reads.get(&Source::Kubelet).zip(self.kubelet_spoke);
        reads.is_some_and(|(reads, spoke)| {
            reads.is_complete() || reads.began.saturating_duration_since(spoke) >= SETTLED_AFTER
        })
    }

    fn is_mirror(&self, uid: &PodUid) -> bool {
        self.reported(Source::Api, uid).is_some_and(|pod| is_mirror_pod(&*pod.object))
    }

    /// Whether a mirror pod's claim counts.
    fn counts(&self, mirror: &PodUid) -> bool {
        let counting =
            self.claims.by_mirror.get(mirror).and_then(|claimed| self.counting_claim(&claimed.claim.uid));
        counting.is_some_and(|(counting, _)| counting == mirror)
    }

    /// Whether the kubelet that is asked knows the static pod of this claim, if it exists.
    fn is_kubelets(&self, claim: &StaticPodClaim) -> bool {
        self.own.as_ref().is_some_and(|own| own.as_str() == claim.node)
    }

    /// A mirror pod is gone or is being deleted. Its claim ends; or it leaves, if the static pod seems to be running: a new mirror pod
    /// may confirm it for a while.
    fn release_claim(&mut self, mirror: &PodUid, now: &str, keys: &mut Keys) {
        let Some(claimed) = self.claims.by_mirror.get(mirror) else { return };
        match claimed.stage {
            Stage::Live if self.seems_to_run(mirror, claimed) => self.leave(mirror, now, keys),
            Stage::Live | Stage::Over => self.end(mirror, keys),
            Stage::Leaving(_) => {}
        }
    }

    /// Whether the static pod of a claim seems to be running, although its mirror pod goes. Not if nothing but the mirror pod tells of
    /// it, and a kubelet would have deleted that at once.
    fn seems_to_run(&self, mirror: &PodUid, claimed: &Claimed) -> bool {
        // The claim may begin to count only now, because the same update removed what it contradicted: then it has no static pod.
        let is_shown = self.published.get(&claimed.claim.uid).is_some_and(|pod| is_named(pod, &claimed.name));
        let is_told_by_kubelet = self.is_kubelets(&claimed.claim) && self.kubelet_speaks();
        let may_run = is_by_kubelet(claimed) && !claimed.claim.ended;
        is_shown && may_run && !is_told_by_kubelet && self.counts(mirror)
    }

    /// Marks the static pod of a claim as unconfirmed, until a new mirror pod follows or the time is over.
    fn leave(&mut self, mirror: &PodUid, now: &str, keys: &mut Keys) {
        if let Some(claimed) = self.claims.by_mirror.get_mut(mirror) {
            keys.uids.push(claimed.claim.uid.clone());
            set_annotation(&mut claimed.pod, UNCONFIRMED_ANNOTATION, now);
        }
        self.claims.leave(mirror);
    }

    /// Ends the time of a claim whose mirror pod is gone or is being deleted.
    pub(super) fn end(&mut self, mirror: &PodUid, keys: &mut Keys) {
        let exists = self.is_mirror(mirror);
        let Some(claimed) = self.claims.by_mirror.get_mut(mirror) else { return };
        claimed.stage = Stage::Over;
        keys.add(claimed.claim.uid.clone(), claimed.name.clone());
        if !exists {
            self.claims.remove(mirror);
        }
    }

    /// Records a mirror pod's claim.
    fn observe(
        &mut self,
        mirror: &Arc<Pod>,
        now: &str,
        is_first: bool,
        keys: &mut Keys,
        merged: &mut Merged,
    ) {
        let uid = PodUid::from(mirror.uid());
        // A later pod of the update may have replaced it.
        let known = self.reported(Source::Api, &uid).filter(|known| is_mirror_pod(&*known.object));
        let Some(name) = known.map(|known| known.name.clone()).filter(|_| self.own.is_some()) else {
            return;
        };
        let before = self.claims.remove(&uid);
        if let Some(before) = &before {
            keys.add(before.claim.uid.clone(), before.name.clone());
        }
        let claim = match claim(mirror) {
            Ok(claim) => claim,
            Err((field, message)) => {
                merged.claims_changed |= self.claims.set_refusal(&uid, Some(refused(mirror, field, message)));
                return;
            }
        };
        keys.uids.push(claim.uid.clone());
        let identity = |claim: &StaticPodClaim| (claim.owner.clone(), claim.uid.clone(), claim.node.clone());
        let same = before.filter(|before| identity(&before.claim) == identity(&claim));
        let is_terminating = claim.is_terminating;
        let claimed = match same {
            // Its static pod stays as it was before the deletion, and for no longer.
            Some(before) if is_terminating && before.stage != Stage::Live => Claimed { claim, ..before },
            same => {
                let seen = same.as_ref().map_or_else(|| (!is_first).then(Instant::now), |same| same.seen);
                let ownership = match &same {
                    Some(same) => same.ownership,
                    None if self.is_kubelets(&claim) => self.node.ownership(&claim, seen),
                    None => Ownership::Confirmed,
                };
                let pod = Arc::new(derived(mirror));
                Claimed { claim, name: name.clone(), pod, seen, ownership, stage: Stage::Live }
            }
        };
        self.node.is_due |= self.is_of_own_node(&claimed) && claimed.ownership == Ownership::Unread;
        let is_live = claimed.stage == Stage::Live;
        self.claims.insert(uid.clone(), claimed);
        if is_terminating && is_live {
            self.release_claim(&uid, now, keys);
        } else if is_live {
            self.confirm(&name, keys);
        }
    }

    /// Removes the claims of this name whose mirror pods are gone if the one that exists is not in doubt.
    pub(super) fn confirm(&mut self, name: &FullName, keys: &mut Keys) {
        let claims = self.claims.named(name);
        let Some((_, claimed)) = claims.first().filter(|(_, claimed)| claimed.stage == Stage::Live) else {
            return;
        };
        if claimed.ownership == Ownership::Refuted || self.node.defers(claimed.ownership) {
            return;
        }
        let others = claims.iter().filter(|(_, claimed)| matches!(claimed.stage, Stage::Leaving(_)));
        let others: Vec<_> = others.map(|(mirror, _)| (*mirror).clone()).collect();
        for mirror in &others {
            self.end(mirror, keys);
        }
    }

    /// Whether there are sources of manifests, and all of them were read as a whole after the claim was seen.
    fn manifests_read(&self, claimed: &Claimed) -> bool {
        let mut configured = manifest_sources().filter(|source| self.configured.contains(source)).peekable();
        let is_later =
            |source| self.last_reads.get(&source).and_then(|reads| reads.last_complete) > claimed.seen;
        configured.peek().is_some() && configured.all(is_later)
    }

    /// Whether a manifest has this name.
    fn has_manifest(&self, name: &FullName) -> bool {
        self.manifest(name).is_some()
    }

    /// The manifest of this name that is used.
    fn manifest(&self, name: &FullName) -> Option<&ReportedPod> {
        manifest_sources().find_map(|source| self.named(source, name)).map(|(_, manifest)| manifest)
    }

    /// Whether a static pod of the own node may be derived from this mirror pod.
    fn is_of_own_node(&self, claimed: &Claimed) -> bool {
        self.is_kubelets(&claimed.claim) && !self.manages_own
    }

    /// The claims of which static pods of the own node may be derived.
    pub(super) fn own_claims(&self) -> impl Iterator<Item = (&PodUid, &Claimed)> {
        self.claims.by_mirror.iter().filter(|(_, claimed)| self.is_of_own_node(claimed))
    }

    pub(super) fn has_unread_claims(&self) -> bool {
        self.own_claims().any(|(_, claimed)| claimed.ownership == Ownership::Unread)
    }

    /// Publishes the changes under these keys.
    pub(super) fn settle(&mut self, keys: Keys, merged: &mut Merged) {
        for uid in self.affected_uids(keys) {
            self.refuse_false_claims(&uid, merged);
            let pod = self.resolved(&uid);
            if pod.is_none() && self.stays_unreported(&uid) {
                self.unreported.insert(uid);
            } else {
                merged.publish(&mut self.published, uid, pod);
            }
        }
    }

    /// The UIDs whose pods may be others, because something has changed under these keys. Each is there once.
    fn affected_uids(&mut self, keys: Keys) -> Vec<PodUid> {
        let Keys { mut uids, names } = keys;
        for name in &names {
            self.add_relatives(name, &mut uids);
        }
        // Which claim on a UID counts determines the manifests of its name. So does whether a UID can be kept.
        let claimed = uids.iter().flat_map(|uid| self.claims.on(uid)).map(|(_, claimed)| &claimed.name);
        let kept = uids.iter().filter_map(|uid| self.kept.name_of(uid));
        let others: BTreeSet<_> = claimed.chain(kept).cloned().collect();
        for name in &others {
            self.add_relatives(name, &mut uids);
        }
        let mut seen = HashSet::with_capacity(uids.len());
        uids.retain(|uid| seen.insert(uid.clone()));
        uids
    }

    /// Whether a published pod stays although no source describes it any more, because not all sources are seen. Three pods
    /// do not stay: an unconfirmed one, whose time is over; one that a source reports, but that is published under another
    /// UID; and a derived one whose mirror pod is there, but is refused.
    fn stays_unreported(&self, uid: &PodUid) -> bool {
        if self.all_seen {
            return false;
        }
        let is_unconfirmed = |pod: &Arc<Pod>| pod.annotation(UNCONFIRMED_ANNOTATION).is_some();
        let is_over = self.published.get(uid).is_some_and(is_unconfirmed);
        let is_under_another_uid = self.is_kept_by_a_report(uid);
        let is_refused = !self.unreported.contains(uid) && !self.claims.on(uid).is_empty();
        !is_over && !is_under_another_uid && !is_refused
    }

    /// Whether a source reports this pod whose report alone keeps it.
    fn is_kept_by_a_report(&self, uid: &PodUid) -> bool {
        let mut keeping = Source::ALL.into_iter().filter(|source| source.keeps_pods());
        keeping.any(|source| self.reported(source, uid).is_some())
    }

    /// Adds the UIDs under which static pods of this name were and are known, after an update of the one that its manifest keeps.
    fn add_relatives(&mut self, name: &FullName, uids: &mut Vec<PodUid>) {
        uids.extend(self.kept.named(name).map(|kept| kept.uid.clone()));
        if let Some(other) = self.update_kept(name) {
            self.add_known_uids(&other, uids);
        }
        self.add_known_uids(name, uids);
    }

    /// Notes which UID the manifest of this name keeps now. Returns the other name whose manifest kept this UID until now.
    fn update_kept(&mut self, name: &FullName) -> Option<FullName> {
        let manifest = self.manifest(name).map(|manifest| Arc::clone(&manifest.object));
        self.kept.forget_unless(name, manifest.as_ref());
        let manifest = manifest?;
        let Some(told) = self.as_kubelet_tells(name) else {
            self.kept.end(name);
            return None;
        };
        self.kept.keep(name, manifest, told)
    }

    /// Adds the UIDs under which static pods of this name are known.
    fn add_known_uids(&self, name: &FullName, uids: &mut Vec<PodUid>) {
        for source in Source::ALL.into_iter().filter(|source| source.lists_static_pods()) {
            uids.extend(self.named(source, name).map(|(uid, _)| uid.clone()));
        }
        uids.extend(self.claims.named(name).into_iter().map(|(_, claimed)| claimed.claim.uid.clone()));
        uids.extend(self.kept.named(name).map(|kept| kept.uid.clone()));
    }

    /// The pod to publish under a UID: decides which source is used for which part.
    fn resolved(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        let Reports { file, http, kubelet, api } = self.reports(uid);
        match (api, kubelet) {
            (Some(api), Some(kubelet)) if self.trusts_kubelet => Some(as_kubelet_knows(api, kubelet)),
            (Some(api), Some(kubelet)) => Some(with_status_of(&api.object, kubelet.whole_status())),
            (Some(only), None) | (None, Some(only)) => Some(Arc::clone(&only.object)),
            (None, None) => self.resolved_static_pod(uid, file, http),
        }
    }

    /// The same of a static pod that the kubelet does not list: from its manifest and its mirror pod, the manifest alone, the
    /// mirror pod alone, or as the kubelet listed it last.
    fn resolved_static_pod(
        &self,
        uid: &PodUid,
        file: Option<&ReportedPod>,
        http: Option<&ReportedPod>,
    ) -> Option<Arc<Pod>> {
        let claim = self.counting_claim(uid);
        // Not if the node knows the manifest's pod under another UID.
        let is_under_this_uid = |manifest: &&ReportedPod| match self.uid_of(&manifest.name) {
            None => true,
            Some(known) => known == uid,
        };
        if let Some(manifest) = file.filter(is_under_this_uid).or_else(|| http.filter(is_under_this_uid)) {
            return Some(with_status_of(
                &manifest.object,
                claim.and_then(|(_, claimed)| claimed.whole_status()),
            ));
        }
        if let Some((mirror, claimed)) = claim {
            return Some(self.derived(mirror, claimed));
        }
        let name = self.kept.name_of(uid).filter(|name| self.uid_of(name) == Some(uid))?;
        self.kept_pod(name).map(|kept| Arc::clone(&kept.object))
    }

    /// The static pod of a claim. Spec, status and UID come from the mirror pod, never from several sources.
    fn derived(&self, mirror: &PodUid, claimed: &Claimed) -> Arc<Pod> {
        let mut pod = Arc::clone(&claimed.pod);
        let is_confirmed = self.is_of_own_node(claimed) && self.has_manifest(&claimed.name);
        if !is_confirmed {
            set_annotation(&mut pod, CLAIMED_ANNOTATION, &mirror.to_string());
        }
        pod
    }

    /// The UID under which the node knows the static pod of this name: the kubelet's, else its mirror pod's, else the one that
    /// the manifest keeps.
    fn uid_of(&self, name: &FullName) -> Option<&PodUid> {
        let claimed = || self.counting_claim_of_name(name).map(|claimed| &claimed.claim.uid);
        let kept = || self.kept_pod(name).map(|kept| &kept.uid);
        self.uid_on_node(name).or_else(claimed).or_else(kept)
    }

    /// The claim of this name that counts.
    fn counting_claim_of_name(&self, name: &FullName) -> Option<&Claimed> {
        let claims = self.claims.named(name).into_iter();
        claims.filter(|(mirror, _)| self.counts(mirror)).map(|(_, claimed)| claimed).next()
    }

    /// The static pod of this name as the kubelet tells of it, itself or by a mirror pod that is certainly a kubelet's.
    fn as_kubelet_tells(&self, name: &FullName) -> Option<KeptPod> {
        if let Some((uid, pod)) = self.on_node(name) {
            return Some(KeptPod { uid: uid.clone(), object: Arc::clone(&pod.object) });
        }
        let claimed = self.counting_claim_of_name(name).filter(|claimed| is_by_kubelet(claimed))?;
        Some(KeptPod { uid: claimed.claim.uid.clone(), object: Arc::clone(&claimed.pod) })
    }

    /// The pod that the manifest of this name keeps, unless its UID is another pod's.
    fn kept_pod(&self, name: &FullName) -> Option<&KeptPod> {
        let kept = self.kept.named(name)?;
        let is_other = |pod: &ReportedPod| pod.name != *name;
        let is_taken = Source::ALL.into_iter().any(|source| {
            let holder = self.reported(source, &kept.uid);
            holder.is_some_and(|pod| source.knows_uids_of_node() || is_other(pod))
        });
        (!is_taken).then_some(kept)
    }

    /// The static pod of this name as a source of the pods on the node lists it.
    fn on_node(&self, name: &FullName) -> Option<(&PodUid, &ReportedPod)> {
        let mut sources = Source::ALL.into_iter().filter(|source| source.lists_pods_of_node());
        let static_pod = |source| self.named(source, name).filter(|(_, pod)| is_static_pod(&*pod.object));
        sources.find_map(static_pod)
    }

    /// The UID that the static pod of this name has on the node, as the node itself says.
    fn uid_on_node(&self, name: &FullName) -> Option<&PodUid> {
        self.on_node(name).map(|(uid, _)| uid)
    }

    /// Whether a claim can be judged now. Others wait for the next read of the Node object, or are about static pods that
    /// are not derived.
    fn is_judged(&self, claimed: &Claimed) -> bool {
        let tells_itself = self.trusts_kubelet && self.seen.contains(&Source::Kubelet);
        let is_managed = (self.manages_own || tells_itself) && self.is_kubelets(&claimed.claim);
        !is_managed && !self.node.defers(claimed.ownership)
    }

    /// The mirror pod of the static pod `uid`, if one counts.
    fn counting_claim(&self, uid: &PodUid) -> Option<(&PodUid, &Claimed)> {
        self.claims.on(uid).into_iter().find(|(_, claimed)| {
            self.is_judged(claimed)
                && self.objection(uid, claimed).is_none()
                // If the kubelet and the API server differ, the kubelet is used.
                && self.uid_on_node(&claimed.name).is_none_or(|known| known == uid)
        })
    }

    /// Why a claim cannot be true. The first reason of these counts.
    fn objection(&self, uid: &PodUid, claimed: &Claimed) -> Option<Objection> {
        if claimed.stage == Stage::Over {
            return Some(Objection::to_mirror("it is being deleted, and no kubelet has replaced it"));
        }
        if claimed.ownership == Ownership::Refuted {
            return Some(Objection { field: OWNERS, message: "must have the UID of the Node object" });
        }
        let taken = self.taken_by(uid, claimed);
        taken.or_else(|| self.unconfirmed_by_node(uid, claimed)).map(Objection::to_mirror)
    }

    /// Which other pod has the UID of a claim's static pod, or had it until recently.
    fn taken_by(&self, uid: &PodUid, claimed: &Claimed) -> Option<&'static str> {
        let is_other = |pod: &ReportedPod| pod.name != claimed.name;
        let Reports { file, http, kubelet, api } = self.reports(uid);
        // The API server has the mirror pod itself, but never its static pod.
        if api.is_some() {
            return Some("the API server has a pod with that UID");
        }
        if kubelet.is_some_and(is_other) {
            return Some("the kubelet has another pod with that UID");
        }
        if http.is_some_and(is_other) || file.is_some_and(is_other) {
            return Some("a manifest has another pod with that UID");
        }
        let other_keeper = self.kept.name_of(uid).filter(|name| **name != claimed.name);
        if other_keeper.is_some_and(|name| self.kept_pod(name).is_some()) {
            return Some("the pod of another manifest had that UID");
        }
        let is_leaving = |claim: &Claimed| matches!(claim.stage, Stage::Leaving(_));
        let is_other_leaving =
            |(_, other): (&PodUid, &Claimed)| is_leaving(other) && other.name != claimed.name;
        if !is_leaving(claimed) && self.claims.on(uid).into_iter().any(is_other_leaving) {
            return Some("another mirror pod with that UID was removed only recently");
        }
        None
    }

    /// What of the own node, its kubelet or its manifests, should know the claim's static pod, and does not.
    fn unconfirmed_by_node(&self, uid: &PodUid, claimed: &Claimed) -> Option<&'static str> {
        let is_judged_by_node = self.all_seen && self.is_of_own_node(claimed);
        if !is_judged_by_node || self.reported(Source::Kubelet, uid).is_some() {
            return None;
        }
        let kubelet = self.last_reads.get(&Source::Kubelet);
        let is_kubelet_read = kubelet.is_some_and(|reads| Some(reads.began) > claimed.seen);
        // A kubelet that has just started deletes no mirror pod.
        if is_kubelet_read && (self.kubelet_has_its_files() || claimed.claim.is_terminating) {
            return Some("the node's kubelet does not list its static pod");
        }
        if self.manifests_read(claimed) && !self.has_manifest(&claimed.name) {
            return Some("no manifest describes its static pod");
        }
        None
    }

    /// Records which claims on a UID are refused, and why.
    fn refuse_false_claims(&mut self, uid: &PodUid, merged: &mut Merged) {
        let mut has_older = false;
        let mut refusals = Vec::new();
        for (mirror, claimed) in self.claims.on(uid) {
            let objection = if !self.is_judged(claimed) {
                None
            } else if let Some(objection) = self.objection(uid, claimed) {
                Some(objection)
            } else if has_older {
                Some(Objection::to_mirror("an older mirror pod has the same claim"))
            } else {
                has_older = true;
                None
            };
            let pod = self.reported(Source::Api, mirror);
            let refusal = objection
                .zip(pod)
                .map(|(Objection { field, message }, pod)| refused(&pod.object, field, message));
            refusals.push((mirror.clone(), refusal));
        }
        for (mirror, refusal) in refusals {
            merged.claims_changed |= self.claims.set_refusal(&mirror, refusal);
        }
    }

    /// What each source reports under this UID.
    fn reports(&self, uid: &PodUid) -> Reports<'_> {
        let mut reports = Reports::default();
        for source in Source::ALL {
            // Of a new role, `resolved` and `taken_by` decide.
            let reported = match source {
                Source::File => &mut reports.file,
                Source::Http => &mut reports.http,
                Source::Kubelet => &mut reports.kubelet,
                Source::Api => &mut reports.api,
            };
            *reported = self.reported(source, uid);
        }
        reports
    }

    /// The pod that a source reports under this UID.
    fn reported(&self, source: Source, uid: &PodUid) -> Option<&ReportedPod> {
        self.sources.get(&source)?.pods.get(uid)
    }

    /// The pod of this name in one source.
    fn named(&self, source: Source, name: &FullName) -> Option<(&PodUid, &ReportedPod)> {
        self.sources.get(&source)?.named(name)
    }
}

fn is_named(pod: &Pod, name: &FullName) -> bool {
    FullName::new(pod.namespace(), pod.name()).is_ok_and(|own| own == *name)
}

/// Whether a kubelet has created the mirror pod. It deletes others within two seconds, and never reports their status.
fn is_by_kubelet(claimed: &Claimed) -> bool {
    claimed.claim.has_status && !is_young(claimed)
}

/// Whether the mirror pod was created and seen only just now. An old one may be seen only now as well, after a gap in what
/// the API server told. Its creation is by the API server's clock, so only a long time counts.
fn is_young(claimed: &Claimed) -> bool {
    let is_old = claimed.claim.created.is_some_and(|created| {
        let created = u64::try_from(created.as_second()).unwrap_or_default();
        let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + Duration::from_secs(created));
        age.is_ok_and(|age| age > OLD)
    });
    !is_old && claimed.seen.is_some_and(|seen| seen.elapsed() < DELETED_BY_KUBELET_WITHIN)
}

fn refused(mirror: &Pod, field: &str, message: &str) -> Problem {
    let message = format!("no static pod is derived from the mirror pod {}: {message}", described(mirror));
    Problem::new(ProblemKind::Claim, Source::Api.as_str(), None, Some(field.to_owned()), message)
}

/// The API server's pod with the status that the kubelet itself knows. Spec, labels, annotations and deletion are those of the
/// source that saw the later change; the kubelet does not follow owners and finalizers.
fn as_kubelet_knows(api: &ReportedPod, kubelet: &ReportedPod) -> Arc<Pod> {
    let base = &*api.object;
    let known = &*kubelet.object;
    let is_later = kubelet.changed > api.changed && differs_for_kubelet(base, known);
    let has_ended = known.annotation(ENDED_ANNOTATION);
    if !is_later && base.status == known.status && has_ended.is_none() {
        return Arc::clone(&api.object);
    }
    let mut pod = Pod { status: known.status.clone(), ..base.clone() };
    if is_later {
        let metadata = &mut pod.metadata;
        metadata.labels.clone_from(&known.metadata.labels);
        metadata.deletion_timestamp.clone_from(&known.metadata.deletion_timestamp);
        metadata.deletion_grace_period_seconds = known.metadata.deletion_grace_period_seconds;
        let own_marks = metadata.annotations.take().unwrap_or_default().into_iter();
        let own_marks = own_marks.filter(|(key, _)| is_mark(key));
        let foreign = known.metadata.annotations.clone().unwrap_or_default().into_iter();
        metadata.annotations = Some(foreign.filter(|(key, _)| !is_mark(key)).chain(own_marks).collect());
        pod.spec.clone_from(&known.spec);
    }
    let mut pod = Arc::new(pod);
    if let Some(since) = has_ended {
        set_annotation(&mut pod, ENDED_ANNOTATION, since);
    }
    pod
}
