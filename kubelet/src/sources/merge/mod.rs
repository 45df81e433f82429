//! The merge: turns the updates of all sources into operations in the kubelet's order.
//!
//! It depends neither on how a source gets its pods nor on how the operations are applied.
//!
//! An update passes two steps. `step` finds out what has changed in the pods of its source. `resolve` decides
//! what that means for the index: each pod of the index is a function of what all sources report.

mod kept;
mod merged;
mod reported;
mod resolve;
mod step;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodUid;

use self::kept::KeptUids;
pub use self::merged::Merged;
use self::reported::Reported;
use self::step::{Keys, Step};
use super::static_pods::{Claims, NodeCheck, OwnNode, Ownership};
use super::{NodeName, Problem, Source, SourceUpdate, pod};

/// Merges the pods of several sources into one set.
///
/// Pass it the sources' updates; it returns the resulting changes. It keeps track of all pods of all sources,
/// marks each with its source and the time it was first seen, and detects what was added, changed and
/// removed.
///
/// # One pod from several sources is one pod
/// A pod is identified by its UID. Its metadata and spec come from the API server, else from the kubelet,
/// else from the manifest. Its status comes from the one of the kubelet and the API server that reports the pod. If both
/// do, the status of an ordinary pod is that of the newer version, by `resourceVersion`, and the kubelet's if one of them has
/// none; that of a static pod is the kubelet's. A pod is removed when no source reports it. Over its socket, the kubelet is
/// believed more than this: see [`trust_kubelet`](Self::trust_kubelet).
///
/// A static pod has one UID in the kubelet and may have another in a manifest read by this library. If the
/// kubelet, or a kubelet's mirror pod, has the manifest's full name under another UID, that pod is used. Spec and
/// UID always come from one source. A manifest whose UID was replaced so keeps the kubelet's when the kubelet no longer
/// lists the pod, until its file changes or goes. Meanwhile the pod is as the kubelet told of it last, with
/// [`ENDED_ANNOTATION`](pod_index::ENDED_ANNOTATION), and so holds no IP.
///
/// The result depends on the last report of each source, not on their order. The exceptions are kept UIDs, derived pods
/// whose mirror pod is gone, see below, and mirror pods that came after the last [`own_node`](Self::own_node).
///
/// # Static pods from mirror pods
/// With [`derive_static_pods`](Self::derive_static_pods), the merge derives a static pod from each mirror pod
/// of the API server; [`static_pods`](super::static_pods) says which mirror pods count. A mirror pod and its
/// static pod are added and removed in one [`Merged`]. When the deletion of a mirror pod begins while its containers run,
/// its static pod stays for [`UNCONFIRMED_FOR`](super::static_pods::UNCONFIRMED_FOR), marked as unconfirmed,
/// unless the kubelet is among the sources. Call [`expire`](Self::expire) at
/// [`next_deadline`](Self::next_deadline).
///
/// # Incomplete lists
/// A kubelet that has just started lists its pods before it has read its own sources. Its source then sends
/// [`Incomplete`](SourceUpdate::Incomplete) lists. What such a list has counts; a pod that it lacks, and that the source
/// reported before, stays, marked with [`UNCONFIRMED_ANNOTATION`](super::static_pods::UNCONFIRMED_ANNOTATION), unless another
/// source reports it. It goes
/// * when the source sends a [`Set`](SourceUpdate::Set) without it,
/// * when the API server had it and no longer has it,
/// * when the list has another pod of its name,
/// * when the source says that it is gone, by [`Remove`](SourceUpdate::Remove): a kubelet that lists the other static pods of its files
///   has read all of these.
///
/// # Before all sources are seen
/// Until all configured sources have been seen, nothing is removed: a node that does not know all its pods
/// yet must not conclude that one is gone (k/k#112814). Pods that a source stops reporting before that are
/// removed by the update that makes the last source seen.
///
/// # Complexity
/// O(1) expected for each pod. A pod that is the same object as in the last set is not compared. Each pod takes a
/// reference and its UID, and another reference and a name for each of its sources.
/// A pod that combines several sources, with another source's status or UID, is a separate copy.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate, manifest::{self, Origin}};
///
/// let (mut writer, reader) = pod_index::new();
/// let mut merge = Merge::new([Source::File]);
/// let text = b"{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}";
/// let pods = manifest::decode(text, Origin::File("/web.yaml".as_ref()), &NodeName::new("n1")).pods;
///
/// let merged = merge.update(Source::File, SourceUpdate::Set(pods.into_iter().map(Arc::new).collect()));
/// assert!(merge.all_sources_seen());
/// writer.apply(merged.into_operations());
/// assert!(reader.load().pod_by_full_name("web-n1_default").is_some());
///
/// let merged = merge.update(Source::File, SourceUpdate::Set(Vec::new()));
/// assert_eq!(merged.removed.len(), 1);
/// ```
///
/// Kubelet: `PodConfig`, `podStorage` (`pkg/kubelet/config/config.go`).
#[doc(alias = "PodConfig")]
#[derive(Debug)]
pub struct Merge {
    configured: BTreeSet<Source>,
    seen: BTreeSet<Source>,
    /// A latch: never reset.
    all_seen: bool,
    sources: HashMap<Source, Reported>,
    /// The node whose kubelet the source [`Kubelet`](Source::Kubelet) asks. `None`: no static pods are derived.
    own: Option<NodeName>,
    /// The kubelet's pods are what it itself knows.
    trusts_kubelet: bool,
    /// Another program than a kubelet manages the own node's mirror pods.
    manages_own: bool,
    claims: Claims,
    kept: KeptUids,
    last_reads: HashMap<Source, LastReads>,
    /// When the kubelet was first read of its last reads that all had pods. `None`: the last one had none.
    kubelet_spoke: Option<Instant>,
    node: NodeCheck,
    published: HashMap<PodUid, Arc<Pod>>,
    /// Published pods that no source reports any more, until all sources are seen.
    unreported: BTreeSet<PodUid>,
}

/// The last good reads of a source.
#[derive(Debug)]
struct LastReads {
    began: Instant,
    /// The start of the last one that found everything: a pod that it did not report did not exist.
    last_complete: Option<Instant>,
}

impl LastReads {
    /// Whether the last one found everything.
    fn is_complete(&self) -> bool {
        self.last_complete == Some(self.began)
    }
}

impl Merge {
    /// A merge of these sources, none of which has been seen. With no sources at all, all count as seen.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let configured: BTreeSet<_> = sources.into_iter().collect();
        Self {
            all_seen: configured.is_empty(),
            configured,
            seen: BTreeSet::new(),
            sources: HashMap::new(),
            own: None,
            trusts_kubelet: false,
            manages_own: false,
            claims: Claims::default(),
            kept: KeptUids::default(),
            last_reads: HashMap::new(),
            kubelet_spoke: None,
            node: NodeCheck::default(),
            published: HashMap::new(),
            unreported: BTreeSet::new(),
        }
    }

    /// Derives static pods from mirror pods of the API server, of all nodes. `own` is the node whose kubelet the source
    /// [`Kubelet`](Source::Kubelet) asks. Off by default.
    #[must_use]
    pub fn derive_static_pods(mut self, own: NodeName) -> Self {
        self.own = Some(own);
        self
    }

    /// The source [`Kubelet`](Source::Kubelet) is the kubelet's Pods API, [`kubelet_socket`](super::kubelet_socket). Its pods
    /// have the status that the kubelet itself knows, which no other client can write. So a pod that it lists has that status,
    /// whatever the API server says, and its spec, labels and annotations are those of the source that saw the later change.
    /// Once it has listed its pods, no static pods of its node are derived from mirror pods. Off by default.
    #[must_use]
    pub fn trust_kubelet(mut self) -> Self {
        self.trusts_kubelet = true;
        self
    }

    /// Tells the merge whether another program than a kubelet manages the own node's mirror pods. There, a mirror pod
    /// without a manifest is an orphan, so no static pods are derived from them. Of use only with
    /// [`derive_static_pods`](Self::derive_static_pods): `true` before the first update, `false` when a kubelet has taken over.
    pub fn manage_own_mirror_pods(&mut self, managed: bool) -> Merged {
        self.manages_own = managed;
        let names: BTreeSet<_> = self.claims.by_mirror.values().map(|claimed| claimed.name.clone()).collect();
        self.node.is_due = self.has_unread_claims();
        self.settled(Keys { uids: Vec::new(), names: names.into_iter().collect() })
    }

    /// Whether to read the own node's Node object and pass it to [`own_node`](Self::own_node): there are new
    /// mirror pods that it may not own.
    ///
    /// Check this after each update. Limit the rate of reads: anyone who may create pods can cause one.
    #[must_use]
    pub fn needs_own_node(&self) -> bool {
        self.node.is_due
    }

    /// Compares the owners of the own node's mirror pods with its Node object. Those that it does not own
    /// become [refused claims](Self::refused_claims).
    ///
    /// Pass `None` if it could not be read. Then only mirror pods that an earlier read has refuted stay refused.
    ///
    /// Before the first call, owners' UIDs are not compared. After a successful one, a mirror pod with another
    /// owner counts only after the next call: the node may have been deleted and created again.
    ///
    /// # Complexity
    /// O(mirror pods).
    pub fn own_node(&mut self, node: Option<OwnNode>) -> Merged {
        self.node.read(node);
        let own = self.own.as_ref().map(NodeName::as_str);
        for claimed in self.claims.by_mirror.values_mut() {
            if Some(&*claimed.claim.node) == own && claimed.ownership != Ownership::Refuted {
                claimed.ownership = self.node.ownership(&claimed.claim, claimed.seen);
            }
        }
        let mut keys = self.own_keys();
        for name in keys.names.clone() {
            self.confirm(&name, &mut keys);
        }
        self.node.is_due = self.has_unread_claims();
        self.settled(keys)
    }

    /// Tells the merge that a source was read: when the read began, and whether it is complete, so that a pod
    /// that it did not report does not exist. Call it after [`update`](Self::update), and also if nothing has changed:
    /// a read that does not confirm a mirror pod's claim ends it.
    ///
    /// # Complexity
    /// O(mirror pods).
    pub fn read(&mut self, source: Source, began: Instant, is_complete: bool) -> Merged {
        let before = self.last_reads.get(&source);
        let was_complete = before.is_some_and(LastReads::is_complete);
        let last_complete =
            if is_complete { Some(began) } else { before.and_then(|reads| reads.last_complete) };
        self.last_reads.insert(source, LastReads { began, last_complete });
        if source == Source::Kubelet {
            // After a complete list, an incomplete one is another process's first.
            let before = self.kubelet_spoke.filter(|_| is_complete || !was_complete);
            self.kubelet_spoke = self.kubelet_speaks().then(|| before.unwrap_or(began));
        }
        let keys = self.own_keys();
        self.settled(keys)
    }

    /// Records for the pods of other sources whether the API server has these too, or no longer has them. Of those that
    /// it no longer has, the unconfirmed ones are gone.
    fn compare_with_api(&mut self, changed: &[PodUid]) {
        let Some(api) = self.sources.remove(&Source::Api) else { return };
        for known in self.sources.values_mut() {
            for uid in changed {
                let Some(pod) = known.pods.get_mut(uid) else { continue };
                pod.is_gone_at_api = !api.pods.contains_key(uid);
                if pod.is_gone_at_api && pod.is_missing {
                    known.remove(uid);
                }
            }
        }
        self.sources.insert(Source::Api, api);
    }

    /// Publishes what has changed under these keys, although no source has reported a change.
    fn settled(&mut self, keys: Keys) -> Merged {
        let mut merged = Merged::default();
        self.settle(keys, &mut merged);
        merged
    }

    /// The UIDs and names of the own node's claims, in an order independent of the hasher.
    fn own_keys(&self) -> Keys {
        let own: BTreeSet<_> =
            self.own_claims().map(|(_, claimed)| (claimed.claim.uid.clone(), claimed.name.clone())).collect();
        let (uids, names) = own.into_iter().unzip();
        Keys { uids, names }
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.claims.leaving().next().map(|(until, ..)| until)
    }

    /// Removes derived pods that were not confirmed in time. [`update`](Self::update) does so as well: a caller that never calls
    /// this keeps such pods until the next update.
    pub fn expire(&mut self, now: Instant) -> Merged {
        let over = self.end_claims(now);
        self.settled(over)
    }

    /// Ends the claims of mirror pods that no new one has followed in time.
    fn end_claims(&mut self, now: Instant) -> Keys {
        let mut keys = Keys::default();
        for mirror in self.claims.due(now) {
            self.end(&mirror, &mut keys);
        }
        keys
    }

    /// The mirror pods from which no static pod is derived, and why.
    pub fn refused_claims(&self) -> impl Iterator<Item = &Problem> {
        self.claims.refused.values()
    }

    /// Whether each configured source has reported its pods. Once true, it stays true.
    ///
    /// A first list counts also if it is an [`Incomplete`](SourceUpdate::Incomplete) one: a kubelet that has just started may have
    /// more pods. Whoever must not act before the first whole list also asks
    /// [`has_reported_all`](super::SourceStatus::has_reported_all) of each source's status. Ask after the operations were
    /// written, so that the pods are in the index.
    ///
    /// Kubelet: `SeenAllSources`.
    #[doc(alias = "SeenAllSources")]
    #[must_use]
    pub fn all_sources_seen(&self) -> bool {
        self.all_seen
    }

    /// Applies a source's update and returns the resulting changes.
    ///
    /// In a set, the first of several pods with the same name or UID is used and the others are reported. In
    /// [`Upsert`](SourceUpdate::Upsert)s, the new pod of a name replaces the old one, as in the API server.
    /// The kubelet may list several pods of one name. An update never removes a pod that another source still
    /// reports.
    ///
    /// Kubelet: `Merge` (`pkg/kubelet/config/config.go`).
    pub fn update(&mut self, source: Source, update: SourceUpdate<Pod>) -> Merged {
        self.update_at(source, update, Instant::now())
    }

    fn update_at(&mut self, source: Source, update: SourceUpdate<Pod>, now: Instant) -> Merged {
        let over = self.end_claims(now);
        let mut step = Step {
            source,
            now: pod::now(),
            is_first: !self.seen.contains(&source),
            own: self.own.clone(),
            touched: over,
            mirrors: Vec::new(),
            problems: Vec::new(),
            concerns_kubelet: false,
        };
        let known = self.sources.entry(source).or_default();
        match update {
            SourceUpdate::Set(pods) => {
                self.seen.insert(source);
                step.list(known, pods, true);
            }
            SourceUpdate::Incomplete(pods) => {
                self.seen.insert(source);
                step.list(known, pods, false);
            }
            SourceUpdate::Upsert(pods) => step.upsert(known, pods),
            SourceUpdate::Remove(uids) => uids.into_iter().for_each(|uid| step.remove(known, uid)),
        }
        if source == Source::Api {
            self.compare_with_api(&step.touched.uids);
        }
        if self.trusts_kubelet && source == Source::Kubelet && step.is_first {
            // From now on, the kubelet tells of its static pods itself.
            let Keys { uids, names } = self.own_keys();
            step.touched.uids.extend(uids);
            step.touched.names.extend(names);
        }
        if !self.all_seen && self.configured.is_subset(&self.seen) {
            self.all_seen = true;
            // From now on, a claim is refused if neither the kubelet nor a manifest confirms it. So all claims of the node
            // are judged again. The pods that were held until now go.
            let Keys { uids, names } = self.own_keys();
            step.touched.uids.extend(uids.into_iter().chain(std::mem::take(&mut self.unreported)));
            step.touched.names.extend(names);
        }
        self.resolve(step)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::static_pods::UNCONFIRMED_FOR;
    use super::*;

    fn mirror(number: usize) -> Pod {
        let mirror = json!({
            "metadata": {
                "name": format!("web-{number}-n1"), "namespace": "shop", "uid": format!("mirror-{number}"),
                "annotations": {
                    "kubernetes.io/config.mirror": format!("static-{number}"),
                    "kubernetes.io/config.hash": format!("static-{number}"),
                    "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "seen",
                },
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true },
                ],
            },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "containerStatuses": [
                { "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": { "running": {} } },
            ] },
        });
        serde_json::from_value(mirror).unwrap()
    }

    #[test]
    fn a_mirror_pod_is_skipped_unless_its_source_lists_them() {
        for source in Source::ALL {
            let mut merge = Merge::new([source]);
            let merged = merge.update(source, SourceUpdate::Set(vec![Arc::new(mirror(0))]));
            let expected = if source.lists_mirror_pods() { (1, 0) } else { (0, 1) };
            assert_eq!((merged.added.len(), merged.problems.len()), expected, "{source}: {merged:?}");
        }
    }

    /// What `keeps_pods` says of each role, and of a new one, is so.
    #[test]
    fn a_report_alone_keeps_a_pod_if_its_role_says_so() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop", "uid": "u" },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }))
        .unwrap();
        for source in Source::ALL {
            let mut merge = Merge::new(Source::ALL);
            for reporting in Source::ALL {
                let _ = merge.update(reporting, SourceUpdate::Set(vec![Arc::new(pod.clone())]));
            }
            for other in Source::ALL.into_iter().filter(|other| *other != source) {
                let _ = merge.update(other, SourceUpdate::Set(Vec::new()));
            }
            assert_eq!(merge.published.contains_key(&PodUid::from("u")), source.keeps_pods(), "{source}");
        }
    }

    /// An embedder who only passes updates on, and never calls `expire`.
    #[test]
    fn without_expire_the_claims_of_mirror_pods_that_are_gone_do_not_add_up() {
        let mut merge = Merge::new([Source::Api]).derive_static_pods(NodeName::new("n1"));
        let began = Instant::now();
        let _ = merge.update_at(
            Source::Api,
            SourceUpdate::Set((0..100).map(mirror).map(Arc::new).collect()),
            began,
        );
        for number in 0..100 {
            let gone = SourceUpdate::Remove(vec![PodUid::from(&*format!("mirror-{number}"))]);
            let _ = merge.update_at(Source::Api, gone, began);
        }
        assert_eq!(merge.claims.leaving().count(), 100, "the static pods wait for new mirror pods");
        let later = Instant::now() + 2 * UNCONFIRMED_FOR;
        let removed = merge.update_at(Source::Api, SourceUpdate::Upsert(Vec::new()), later).removed;
        assert_eq!(removed.len(), 100, "{removed:?}");
        assert_eq!((merge.claims.leaving_entries(), merge.claims.by_mirror.len()), (0, 0));
    }

    /// What knows a pod by its names and its UID need not bound them once more, whatever source they come from.
    #[test]
    fn a_pod_with_a_name_or_uid_of_more_than_253_bytes_is_a_problem_of_every_source() {
        let named = |namespace: usize, name: usize, uid: usize| -> Arc<Pod> {
            let text = |length: usize| "a".repeat(length);
            let metadata = json!({ "namespace": text(namespace), "name": text(name), "uid": text(uid) });
            Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
        };
        for source in Source::ALL {
            let mut merge = Merge::new([source]);
            let pods = vec![named(253, 253, 253), named(254, 1, 1), named(1, 254, 2), named(1, 1, 254)];
            let merged = merge.update(source, SourceUpdate::Set(pods));
            assert_eq!(merged.added.len(), 1, "{source}: {merged:?}");
            let fields: Vec<_> =
                merged.problems.iter().filter_map(|problem| problem.field.as_deref()).collect();
            assert_eq!(fields, ["metadata.namespace", "metadata.name", "metadata.uid"], "{source}");
        }
    }
}
