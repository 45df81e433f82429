//! Which restored pods stay, and which pods of manifests wait for them, until the sources have reported.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{
    CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, FullName, Operation, PodMeta, PodUid, Snapshot,
    is_mirror_pod, is_static_pod,
};

use super::{Restored, is_restored};
use crate::HasPod;
use crate::sources::Source;

/// The restored pods of a program that merges its sources, until each source has reported all its pods. With the features
/// `checkpoint` and `sources`.
///
/// Suppose that the API server is away when your program restarts. Its pods come from checkpoints, and those of the API server have to
/// stay. The manifest directory answers at once, so a restored pod whose manifest is gone can go. But the pods of the directory are not
/// all to be believed: a manifest does not say which UID the kubelet has given to its pod, and a log path has the kubelet's.
///
/// So this holds three rules:
///
/// * **A restored pod goes once its source has reported all its pods**, and did not name it. Its source is the one in its annotation
///   `kubernetes.io/config.source`; if that is none of your sources, it goes after the last of them.
/// * **A restored pod goes at once when a source names another pod of its name**: no two exist at a time.
/// * **A restored static pod keeps the kubelet's UID** while no source [knows the node's UIDs](Source::knows_uids_of_node) that is
///   still expected to: the API server or the kubelet. Meanwhile, the pod of its manifest, which has another UID, is not published.
///
/// Make these calls with each write:
///
/// | call | when | otherwise |
/// |---|---|---|
/// | [`reported_all`](Self::reported_all) | for each source that has reported all its pods, after its update has passed the merge | the pods stay, although they are gone |
/// | [`hold_back`](Self::hold_back) | before the write, with all operations of the merge | a static pod changes its UID, and events with the kubelet's find nobody |
/// | [`gone`](Self::gone) | after the write | the pods stay, although they are gone |
///
/// Drop it when [`is_over`](Self::is_over).
///
/// # Consistency
/// It believes what the snapshot says that you pass. So pass the writer's own, [`Writer::current`](pod_index::Writer::current).
///
/// # Complexity
/// [`hold_back`](Self::hold_back) takes O(1) for each operation, [`gone`](Self::gone) O(restored pods).
///
/// # Errors
/// None: what cannot be stored is refused by the write, as without it.
///
/// # Examples
/// The last run knew the static pod `web` by the kubelet's UID. Now the manifest is read, and the API server is away.
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index::{Operation, PodUid};
/// use pod_index_kubelet::checkpoint::{RESTORED_ANNOTATION, Restored, Unclaimed};
/// use pod_index_kubelet::sources::{Merge, Source, SourceUpdate};
///
/// let web = |uid: &str, annotations: &[(&str, &str)]| {
///     let mut pod = Pod::default();
///     pod.metadata.uid = Some(uid.to_owned());
///     pod.metadata.name = Some("web-node-1".to_owned());
///     pod.metadata.namespace = Some("shop".to_owned());
///     let annotations = annotations.iter().map(|(name, value)| (name.to_string(), value.to_string()));
///     pod.metadata.annotations = Some(annotations.collect());
///     Arc::new(pod)
/// };
/// // As `Checkpoints::open` returns them.
/// let restored = [(RESTORED_ANNOTATION, "true"), ("kubernetes.io/config.source", "file")];
/// let mirror = [(RESTORED_ANNOTATION, "true"), ("kubernetes.io/config.mirror", "of-kubelet")];
/// let pods = vec![web("of-kubelet", &restored), web("of-mirror", &mirror)];
/// let restored = Restored { pods, ..Restored::default() };
///
/// let (mut writer, reader) = pod_index::new::<Pod>();
/// let mut merge = Merge::new([Source::File, Source::Api]);
/// let mut unclaimed = Unclaimed::new(restored, [Source::File, Source::Api]);
/// let _ = writer.apply(unclaimed.operations());
///
/// // What your loop does with each update.
/// let mut write = |source: Source, pods: Vec<Arc<Pod>>| {
///     let merged = merge.update(source, SourceUpdate::Set(pods));
///     unclaimed.reported_all(source); // once `SourceStatus::has_reported_all` says so
///     let operations = unclaimed.hold_back(merged.into_operations(), writer.current());
///     let _ = writer.apply(operations);
///     let gone = unclaimed.gone(writer.current());
///     let _ = writer.apply(gone.into_iter().map(Operation::Remove));
///     unclaimed.is_over()
/// };
/// let uids = || reader.load().pods().map(|pod| pod.metadata.uid.clone().unwrap()).collect::<Vec<_>>();
///
/// assert!(!write(Source::File, vec![web("of-manifest", &[])]));
/// assert_eq!(uids(), ["of-kubelet"]);
/// // The API server has the mirror pod no more: a kubelet no longer runs that pod.
/// assert!(write(Source::Api, Vec::new()));
/// assert_eq!(uids(), ["of-manifest"]);
/// ```
///
/// Kubelet: none. It restores no pod (its checkpoints, until 1.19, were read by a source of their own), and cleans up after its start
/// only once `SeenAllSources` is true.
#[derive(Debug)]
pub struct Unclaimed {
    restored: Restored,
    /// The sources that have reported all their pods.
    reported: BTreeSet<Source>,
    /// The sources that have not. The last one decides all restored pods that remain.
    awaited: BTreeSet<Source>,
    /// The static pods of manifests that are not published yet, by the UIDs of the restored pods that stay instead.
    held_back: BTreeMap<PodUid, Arc<Pod>>,
}

impl Unclaimed {
    /// The restored pods of a program that follows these sources, none of which has reported yet.
    #[must_use]
    pub fn new(restored: Restored, sources: impl IntoIterator<Item = Source>) -> Self {
        Self {
            restored,
            reported: BTreeSet::new(),
            awaited: sources.into_iter().collect(),
            held_back: BTreeMap::new(),
        }
    }

    /// The operations that put all of them into the index, before any source is read.
    pub fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.restored.operations()
    }

    /// Records that this source has reported all its pods, so that a pod that it did not name does not exist: its
    /// [`SourceStatus::has_reported_all`](crate::sources::SourceStatus::has_reported_all). Repeat it as often as you like. A source
    /// that was not passed to [`new`](Self::new) changes nothing.
    pub fn reported_all(&mut self, source: Source) {
        if self.awaited.remove(&source) {
            self.reported.insert(source);
        }
    }

    /// What of these operations is to be written now, and what was held back until now and no longer has to be.
    ///
    /// A static pod of a manifest is held back while a restored pod stays in its place: the one whose UID its restored mirror pod
    /// names. If no mirror pod was restored, it is the one of its name, if a kubelet has started it.
    pub fn hold_back<P: HasPod>(
        &mut self,
        operations: impl IntoIterator<Item = Operation<Pod>>,
        snapshot: &Snapshot<P>,
    ) -> Vec<Operation<Pod>> {
        let operations = operations.into_iter();
        if self.waits_for_uids() {
            return operations.filter(|operation| !self.holds_back(operation, snapshot)).collect();
        }
        let released = mem::take(&mut self.held_back).into_values().map(Operation::Upsert);
        released.chain(operations).collect()
    }

    /// Whether nobody has said the UIDs of the node yet, and a source that has not reported yet will.
    fn waits_for_uids(&self) -> bool {
        let is_said = self.reported.iter().copied().any(Source::knows_uids_of_node);
        let will_be_said = self.awaited.iter().copied().any(Source::knows_uids_of_node);
        !is_said && will_be_said
    }

    /// Whether this operation is held back. If it removes a pod that is held back, forgets that one.
    fn holds_back<P: HasPod>(&mut self, operation: &Operation<Pod>, snapshot: &Snapshot<P>) -> bool {
        match operation {
            Operation::Upsert(pod) => {
                let uid = restored_uid(pod, snapshot);
                let is_held_back = uid.is_some();
                self.held_back.extend(uid.map(|uid| (uid, Arc::clone(pod))));
                is_held_back
            }
            Operation::Remove(uid) => {
                self.held_back.retain(|_, pod| *uid != pod.uid());
                false
            }
            Operation::Set(_) => false,
        }
    }

    /// The restored pods to remove now: those that the sources that have reported did not name; those in whose place a source names another
    /// pod, because no two pods of a name exist at a time; and, after the last source, also those of sources that your program no
    /// longer follows.
    #[must_use]
    pub fn gone<P: HasPod>(&self, snapshot: &Snapshot<P>) -> Vec<PodUid> {
        let unclaimed = self.restored.unclaimed(None, snapshot);
        if self.is_over() {
            return unclaimed;
        }
        unclaimed.into_iter().filter(|uid| self.is_gone(uid, snapshot)).collect()
    }

    /// Whether this restored pod, which no source has named, does not exist any more.
    fn is_gone<P: HasPod>(&self, uid: &PodUid, snapshot: &Snapshot<P>) -> bool {
        let stored = snapshot.pod_by_uid(uid).or_else(|| snapshot.mirror_pod_by_uid(uid));
        let Some(stored) = stored.filter(|_| !self.held_back.contains_key(uid)) else { return false };
        let source = stored.annotation(CONFIG_SOURCE_ANNOTATION);
        self.reported.iter().any(|reported| Some(reported.as_str()) == source)
            || has_successor(stored, snapshot)
    }

    /// Whether every source has reported all its pods. After one more [`hold_back`](Self::hold_back) and [`gone`](Self::gone),
    /// nothing remains to be done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.awaited.is_empty()
    }
}

/// The kubelet's UID of the static pod that a manifest describes, if it is known from the last run alone and differs from
/// the manifest's.
fn restored_uid<P: HasPod>(pod: &Pod, snapshot: &Snapshot<P>) -> Option<PodUid> {
    let name = FullName::new(pod.namespace(), pod.name()).ok()?;
    let of_kubelet = match snapshot.mirror_pod_by_full_name(name.as_str()) {
        Some(mirror) => snapshot.pod_by_uid(mirror.annotation(CONFIG_MIRROR_ANNOTATION)?)?,
        // An index of a kubelet's pods alone has no mirror pods.
        None => snapshot.pod_by_full_name(name.as_str()).filter(|named| is_of_kubelet(P::pod(named)))?,
    };
    let is_known_so = of_kubelet.uid() != pod.uid() && is_static_pod(pod) && is_restored(&**of_kubelet);
    is_known_so.then(|| of_kubelet.uid().into())
}

/// Whether a source names another pod in the place of this one: of the same name, and of the same kind, so that nobody ends a static
/// pod by an ordinary one of its name.
fn has_successor<P: HasPod>(stored: &Arc<P>, snapshot: &Snapshot<P>) -> bool {
    let name = FullName::new(stored.namespace(), stored.name()).ok();
    let bearer = name.and_then(|name| snapshot.pod_by_full_name(name.as_str()));
    let is_other = |bearer: &&Arc<P>| bearer.uid() != stored.uid() && !is_restored(&***bearer);
    !is_mirror_pod(&**stored)
        && bearer.filter(is_other).is_some_and(|bearer| is_static_pod(&**bearer) == is_static_pod(&**stored))
}

/// Whether a kubelet has reported this static pod, and so has said its UID. A manifest says nothing of when it started.
fn is_of_kubelet(pod: &Pod) -> bool {
    is_static_pod(pod) && pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}
