//! The merge: what all sources say, turned into operations in the kubelet's order.
//!
//! This module knows sets and differences. It must not know how any source comes by its pods, nor who applies the
//! operations.
//!
//! An update passes two steps. `step` finds out what has changed in the pods of its source. `resolve` decides what that
//! means for the pods that the index is to hold, each a function of what all sources name.

mod edit;
mod known;
mod merged;
mod resolve;
mod step;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use pod_index::PodUid;

use self::known::{Known, KnownPod};
pub use self::merged::Merged;
use self::step::{Step, Touched};
use super::static_pods::{Claims, Derive};
use super::{Problem, Source, SourcePod, SourceUpdate, clock};

/// Merges the pods of several sources into one set.
///
/// Feed it with what the sources say; it answers with what is to be done. It knows every pod that each source names,
/// marks it with its source and the time it was first seen, and finds out by itself what was added, what has changed
/// and what is gone.
///
/// # One pod from several sources is one pod
/// A pod is known by its UID. Its metadata and spec are those of the API server, else of the kubelet, else of the manifest. Its
/// status is the kubelet's, else the API server's; of two versions of an API server's pod, the newer one has the status. A pod
/// leaves when no source names it.
///
/// A static pod has one UID in a kubelet and may have another one in a manifest that this library read. If the kubelet, or a
/// kubelet's mirror pod, knows a manifest's full name under another UID, then that UID is the pod's, and so is that status.
///
/// The result depends on what each source said last, not on the order in which the sources spoke. The one exception are derived
/// pods whose mirror pod has gone, see below.
///
/// # Static pods from mirror pods
/// [`derive_static_pods`](Self::derive_static_pods) makes the merge derive a static pod from each mirror pod of the API server;
/// [`static_pods`](super::static_pods) says which mirror pods count. A mirror pod and its static pod enter and leave in one
/// [`Merged`]. A mirror pod that is deleted while its containers run leaves its static pod behind for
/// [`UNCONFIRMED_FOR`](super::static_pods::UNCONFIRMED_FOR), marked as unconfirmed, unless the kubelet is among the sources.
/// Call [`expire`](Self::expire) at [`next_deadline`](Self::next_deadline).
///
/// # Before all sources are seen
/// Until all configured sources have been seen, nothing is removed: a node that has not yet heard of all its pods must
/// not conclude that one is gone (k/k#112814). What a source stops naming before that is removed in the very step in
/// which the last source is first seen.
///
/// # Complexity
/// O(1) for each pod, expected. In a set, those that are the very objects of the last set cost a comparison of pointers, as
/// long as they stand together at its beginning or its end. Two references and one name are kept for each pod of each source.
/// A pod that several sources name, with a status or a UID of another source, is a copy of its own.
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
pub struct Merge<P> {
    configured: BTreeSet<Source>,
    seen: BTreeSet<Source>,
    /// A latch: never unset.
    all_seen: bool,
    sources: HashMap<Source, Known<P>>,
    derive: Derive,
    claims: Claims<P>,
    /// What is published under a UID. A UID that is not here is published as the only source that names it has it.
    composed: HashMap<PodUid, Option<Arc<P>>>,
}

impl<P: SourcePod> Merge<P> {
    /// A merge of these sources, of which none has been seen. Of no sources at all, all are seen.
    #[must_use]
    pub fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let configured: BTreeSet<_> = sources.into_iter().collect();
        Self {
            all_seen: configured.is_empty(),
            configured,
            seen: BTreeSet::new(),
            sources: HashMap::new(),
            derive: Derive::Never,
            claims: Claims::default(),
            composed: HashMap::new(),
        }
    }

    /// Derives static pods from mirror pods of the API server. Without this, none is derived.
    #[must_use]
    pub fn derive_static_pods(mut self, derive: Derive) -> Self {
        self.derive = derive;
        self
    }

    /// Whether somebody other than a kubelet manages the mirror pods of the own node. While that is so, nothing is derived from
    /// them. Without effect if nothing is derived at all.
    pub fn manage_own_mirror_pods(&mut self, managed: bool) -> Merged<P> {
        self.derive = match std::mem::take(&mut self.derive) {
            Derive::AllNodes { own } if managed => Derive::OtherNodes { own },
            Derive::OtherNodes { own } if !managed => Derive::AllNodes { own },
            same => same,
        };
        let names = self.claims.names();
        let mut merged = Merged::default();
        self.settle(&[], Vec::new(), names, &mut merged);
        merged
    }

    /// When [`expire`](Self::expire) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.claims.next_deadline()
    }

    /// Removes the derived pods that nobody has confirmed in time.
    pub fn expire(&mut self, now: Instant) -> Merged<P> {
        let mut merged = Merged::default();
        let (names, uids) = self.claims.forget(|pod| pod.until <= now).into_iter().unzip::<_, _, Vec<_>, _>();
        self.settle(&[], uids, names, &mut merged);
        merged
    }

    /// The mirror pods from which nothing is derived, and why.
    pub fn refused_claims(&self) -> impl Iterator<Item = &Problem> {
        self.claims.refused()
    }

    /// Whether each configured source has said what its pods are. Once true, it stays true.
    ///
    /// Kubelet: `SeenAllSources`.
    #[doc(alias = "SeenAllSources")]
    #[must_use]
    pub fn all_sources_seen(&self) -> bool {
        self.all_seen
    }

    /// The configured sources that have yet to say what their pods are.
    pub fn unseen_sources(&self) -> impl Iterator<Item = Source> {
        self.configured.difference(&self.seen).copied()
    }

    /// How many pods a source names.
    ///
    /// # Complexity
    /// O(pods of the source).
    #[must_use]
    pub fn pod_count(&self, source: Source) -> usize {
        let known = self.sources.get(&source);
        known.map_or(0, |known| known.pods.values().filter(|pod| !pod.leaving).count())
    }

    /// Takes in what a source says, and answers with what is to be done.
    ///
    /// In a set, the first of several pods of one name or UID counts and the others are reported. In
    /// [`Upsert`](SourceUpdate::Upsert)s, the new pod of a name replaces the old one, as in the API server. The kubelet may
    /// list several pods of one name. What one source says never removes what another one still names.
    ///
    /// Kubelet: `Merge` (`pkg/kubelet/config/config.go`).
    pub fn update(&mut self, source: Source, update: SourceUpdate<P>) -> Merged<P> {
        let mut step = Step {
            source,
            now: clock::now(),
            touched: Vec::new(),
            mirrors: Vec::new(),
            problems: Vec::new(),
        };
        let mut known = self.sources.remove(&source).unwrap_or_default();
        if !matches!(update, SourceUpdate::Set(_)) {
            known.said = Vec::new();
        }
        let mut gone = Vec::new();
        match update {
            SourceUpdate::Set(pods) => {
                self.seen.insert(source);
                known = step.set(known, pods, &mut gone);
            }
            SourceUpdate::Upsert(pods) => step.upsert(&mut known, pods, &mut gone),
            SourceUpdate::Remove(uids) => {
                gone.extend(uids.into_iter().filter_map(|uid| known.remove(&uid)));
            }
        }
        let left = |source, pod: KnownPod<P>| {
            let uid = PodUid::from(pod.object.uid());
            Touched { source, uid, before: Some(pod) }
        };
        let all_seen = self.all_seen || self.configured.is_subset(&self.seen);
        for pod in gone {
            if !all_seen {
                known.hold_back(pod.clone());
            }
            step.touched.push(left(source, pod));
        }
        self.sources.insert(source, known);
        if all_seen && !self.all_seen {
            self.all_seen = true;
            // In an order that does not depend on the hasher.
            for name in Source::ALL {
                let gone = self.sources.get_mut(&name).map(Known::let_go).unwrap_or_default();
                step.touched.extend(gone.into_iter().map(|pod| left(name, pod)));
            }
        }
        self.resolve(step)
    }
}
