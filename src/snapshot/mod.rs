//! One immutable state of the index: all indices and all reads.
//!
//! | the kubelet's index | here |
//! |---|---|
//! | pods by UID · mirrors by UID | two tables; no UID is in both |
//! | pods by full name · mirrors by full name | one table |
//! | mirror UID → static UID | stored with each mirror |
//!
//! More tables are by additional keys, one for each kind. `pods` declares all of them, and has a second set of them for removed
//! pods. A snapshot is read-only data: `update` creates one from another. This module does not depend on threads.

mod by_key;
mod changes;
pub mod kubelet;
mod removed;
mod translations;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use by_key::KeyCounts;
pub use changes::Change;
pub(crate) use changes::between;
pub use removed::RemovedPods;

use crate::id::{self, NameParts, PodUid, ResolvedPodUid, UidRef};
use crate::options::Options;
use crate::pod::{ClaimedKeyRef, PodKind, PodMeta, is_static_pod};
use crate::pods::{Found, History, Key, Mirror, RemovedSet, Tables, Times, Translation};
use crate::table::Hashing;
use crate::table::versions::{Clearing, Sharing, State, TableSet};

/// One complete, immutable state of the index.
///
/// All reads are methods of this type and borrow from it. Get one from a [`Reader`](crate::Reader),
/// a [`CachedReader`](crate::CachedReader) or the [`Writer`](crate::Writer).
///
/// # Consistency
/// A snapshot never changes. Results from one snapshot belong together: a mirror and the static pod that it
/// translates to always share a full name, and both directions of the translation agree. It is a cache and
/// may be stale: later publications appear in later snapshots.
///
/// Exception: if the index [keeps times](crate::Options::keep_times), [`Writer::advance`](crate::Writer::advance) moves the end of
/// the [coverage](crate::Coverage) on in the current snapshot, without a publication. So a lookup [at a time](Self::at) that was
/// too late for an answer may become certain. [`AtTime::fixed`](crate::AtTime::fixed) holds it still.
///
/// # Complexity
/// Point lookups are O(1) expected: one link from each of two arrays, and one page. They allocate nothing and write to no
/// memory, except that a translation copies a result that is a UID in an unusual spelling. Whole-set reads are views: O(1)
/// to obtain, no copy.
///
/// # Examples
/// ```
/// # struct Slim;
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { "u1" }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// let (mut writer, reader) = pod_index::new();
/// writer.upsert_pod(Slim)?;
///
/// let snapshot = reader.load();
/// assert!(snapshot.pod_by_uid("u1").is_some());
/// assert!(snapshot.pod_by_full_name("web_default").is_some());
/// assert_eq!(snapshot.generation(), 1);
/// # Ok::<(), pod_index::Error>(())
/// ```
pub struct Snapshot<P> {
    pub(crate) generation: u64,
    pub(crate) pods_generation: u64,
    pub(crate) hashing: Hashing,
    pub(crate) live: Tables<Arc<P>>,
    pub(crate) history: History,
    /// Boxed, because most indices keep none.
    pub(crate) removed: Option<Box<RemovedSet<P>>>,
    /// Only if the index keeps times.
    pub(crate) times: Option<Box<Times>>,
}

impl<P> Snapshot<P> {
    pub(crate) fn empty(options: Options) -> Self {
        Self {
            generation: 0,
            pods_generation: 0,
            hashing: Hashing::new(),
            live: Tables::new(),
            history: History::default(),
            removed: options.removed.map(|limits| Box::new(RemovedSet::new(limits))),
            times: options.removed.filter(|_| options.times).map(|limits| Box::new(Times::new(limits))),
        }
    }

    /// Number of publications that led to this snapshot: 0 for the empty one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The [`generation`](Self::generation) that last changed the pods or the mirror pods.
    ///
    /// It is smaller than the generation if the last publications only dropped [removed pods](Self::removed). Two
    /// snapshots of one index with the same value have the same pods and mirror pods.
    ///
    /// # Complexity
    /// O(1).
    ///
    /// Kubelet: none.
    #[must_use]
    pub fn pods_generation(&self) -> u64 {
        self.pods_generation
    }
}

impl<P> State for Snapshot<P> {
    type Item = P;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn next(&self, sharing: &Sharing) -> Self {
        Self {
            generation: self.generation + 1,
            pods_generation: self.generation + 1,
            hashing: self.hashing.clone(),
            live: self.live.next(sharing),
            history: self.history.clone(),
            removed: self.removed.as_deref().map(|removed| Box::new(removed.next(sharing))),
            times: self.times.clone(),
        }
    }

    fn clear(&mut self, clearing: &mut Clearing<'_, P>) {
        self.live.clear(clearing);
        if let Some(removed) = &mut self.removed {
            removed.tables.clear(clearing);
        }
    }
}

impl<P: PodMeta> Snapshot<P> {
    /// The pod with this UID, without mirrors; a mirror's UID is not translated.
    ///
    /// # Complexity
    /// O(1) expected; no allocation. A UID type takes two fifths less work than a string.
    ///
    /// # Examples
    /// ```
    /// # fn f<P: pod_index::PodMeta>(snapshot: &pod_index::Snapshot<P>) {
    /// if let Some(pod) = snapshot.pod_by_uid("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0") {
    ///     println!("{}/{}", pod.namespace(), pod.name());
    /// }
    /// # }
    /// ```
    ///
    /// Kubelet: `GetPodByUID` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPodByUID")]
    #[inline]
    #[must_use]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<&Arc<P>> {
        self.live.pod(uid.into(), &self.hashing)
    }

    /// The mirror pod with this UID.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// Kubelet: the index `mirrorPodByUID` (`pkg/kubelet/pod/pod_manager.go`), which has no getter there.
    #[must_use]
    pub fn mirror_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<&Arc<P>> {
        Some(&self.live.mirror(uid.into(), &self.hashing)?.pod)
    }

    /// The pod that holds this full name (`name_namespace`), without mirrors.
    ///
    /// If several pods have the name, the one that was added or updated last holds it. When that one is
    /// removed, the one with the smallest UID takes over.
    ///
    /// # Complexity
    /// O(1) expected; no allocation. A string that is not a full name finds nothing.
    ///
    /// Kubelet: `GetPodByFullName` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPodByFullName")]
    #[inline]
    #[must_use]
    pub fn pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<&Arc<P>> {
        let NameParts { namespace, name } = id::split(full_name.as_ref())?;
        self.pod_by_name(namespace, name)
    }

    /// The pod of this namespace and name, without mirrors; otherwise like
    /// [`pod_by_full_name`](Self::pod_by_full_name).
    ///
    /// # Complexity
    /// O(1) expected; no allocation: the full name is not built.
    ///
    /// Kubelet: `GetPodByName` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPodByName")]
    #[inline]
    #[must_use]
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<&Arc<P>> {
        self.by_name(PodKind::Pod, namespace, name)
    }

    /// The mirror pod that holds this full name.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// Kubelet: the index `mirrorPodByFullName` (`pkg/kubelet/pod/pod_manager.go`).
    #[must_use]
    pub fn mirror_pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<&Arc<P>> {
        let NameParts { namespace, name } = id::split(full_name.as_ref())?;
        self.by_name(PodKind::Mirror, namespace, name)
    }

    /// The UID under which the node knows the pod: a mirror's UID becomes its static pod's, any other stays.
    ///
    /// A mirror still translates to a removed static pod, until the last mirror of that full name is removed
    /// or another pod takes the name. So the last status of a terminating static pod can be reported.
    ///
    /// Difference from the kubelet: a mirror that is added under the full name meanwhile also translates to
    /// the removed pod. In the kubelet it translates to its own UID, so one pod has two identities if its
    /// mirror is created again.
    ///
    /// # Complexity
    /// O(1) expected; no allocation for UIDs in one of the usual spellings (hyphenated lower-case UUID; 32 lower-case hex
    /// digits).
    ///
    /// # Examples
    /// ```
    /// # fn f<P: pod_index::PodMeta>(snapshot: &pod_index::Snapshot<P>) {
    /// assert_eq!(snapshot.translate_pod_uid("nobody-has-this"), "nobody-has-this");
    /// assert_eq!(snapshot.translate_pod_uid(""), "");
    /// # }
    /// ```
    ///
    /// Kubelet: `TranslatePodUID` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "TranslatePodUID")]
    #[expect(clippy::inline_always, reason = "a call would pass the UID and the result through memory")]
    #[inline(always)]
    #[must_use]
    pub fn translate_pod_uid<'u, U>(&self, uid: U) -> ResolvedPodUid
    where
        UidRef<'u>: From<U>,
    {
        // Not `Into::into`, which the compiler may call.
        let uid = UidRef::from(uid);
        match self.live.mirror(uid, &self.hashing).and_then(|mirror| self.target_of(mirror)) {
            Some(target) => target.clone().into(),
            None => uid.into(),
        }
    }

    /// All pods, including terminated and terminating ones, without mirrors. In no particular order.
    ///
    /// # Complexity
    /// O(1) to obtain, O(n) to iterate; no allocation.
    ///
    /// Kubelet: `GetPods` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "GetPods")]
    #[must_use]
    pub fn pods(&self) -> impl ExactSizeIterator<Item = &Arc<P>> + Clone {
        self.live.pods.iter().map(|entry| &entry.value)
    }

    /// All static pods. In no particular order.
    ///
    /// # Complexity
    /// O(1) to obtain, O(pods) to iterate; no allocation.
    pub fn static_pods(&self) -> impl Iterator<Item = &Arc<P>> + Clone {
        self.pods().filter(|pod| is_static_pod(&***pod))
    }

    /// All mirror pods. In no particular order.
    ///
    /// # Complexity
    /// O(1) to obtain, O(mirror pods) to iterate; no allocation.
    #[must_use]
    pub fn mirror_pods(&self) -> impl ExactSizeIterator<Item = &Arc<P>> + Clone {
        self.live.mirrors.iter().map(|entry| &entry.value.pod)
    }

    /// The differences from an `old` snapshot of the same index: added, replaced and removed pods and
    /// mirrors.
    ///
    /// However many publications lie between the two, each pod is reported once, with its old and new state.
    /// So an agent that keeps its last snapshot can follow the index at its own pace without missing a state;
    /// [`Reader::changes`](crate::Reader::changes) does that and wakes the agent. Removals come first;
    /// otherwise in no particular order. Any two snapshots can be compared; those of two different indices
    /// share nothing.
    ///
    /// # Complexity
    /// O(√n) for each change, at most O(n): parts that the two snapshots share are skipped. After `set_pods` they share
    /// nothing, and it is O(n); likewise after a table has outgrown its arrays. Allocates two vectors.
    ///
    /// # Examples
    /// ```
    /// # struct Slim;
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "u1" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// # }
    /// use pod_index::Change;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let before = reader.snapshot();
    /// writer.upsert_pod(Slim)?;
    /// let after = reader.snapshot();
    /// assert!(matches!(after.changes_since(&before)[..], [Change::Added(_)]));
    /// assert!(matches!(before.changes_since(&after)[..], [Change::Removed(_)]));
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn changes_since<'a>(&'a self, old: &'a Self) -> Vec<Change<'a, P>> {
        let mut removals = Vec::new();
        let mut others = Vec::new();
        let _ = changes::between(old, self, |change| {
            if let Change::Removed(_) = change { &mut removals } else { &mut others }.push(change);
            ControlFlow::Continue(())
        });
        removals.append(&mut others);
        removals
    }
}

/// How entries are found; used by the reads above and by `update`.
impl<P: PodMeta> Snapshot<P> {
    /// The pod or mirror with this UID.
    pub(crate) fn any_by_uid(&self, uid: UidRef<'_>) -> Option<&Arc<P>> {
        self.pod_by_uid(uid).or_else(|| self.mirror_pod_by_uid(uid))
    }

    /// A current pod, a current mirror pod or a removed pod with this key, in this order.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Found<'_, P>> {
        self.get(key).or_else(|| self.find_mirror(key)).or_else(|| self.removed().get(key))
    }

    /// The current mirror pod with this UID or name.
    pub(crate) fn find_mirror(&self, key: Key<'_>) -> Option<Found<'_, P>> {
        self.live.get_mirror(key, &self.hashing)
    }

    /// The holder of a full name.
    #[expect(clippy::inline_always, reason = "a call would pass the key through memory")]
    #[inline(always)]
    pub(crate) fn by_name(&self, kind: PodKind, namespace: &str, name: &str) -> Option<&Arc<P>> {
        Some(self.live.find(ClaimedKeyRef::Name { kind, namespace, name }, &self.hashing)?.1)
    }

    /// The translation of a mirror, if not to itself.
    #[inline]
    pub(crate) fn target_of<'a>(&'a self, mirror: &'a Mirror<Arc<P>>) -> Option<&'a PodUid> {
        if let Translation::ViaHolder = mirror.target {
            return self.target_of_holder(&mirror.pod);
        }
        mirror.target.uid()
    }

    /// Separate, to keep the usual path short: otherwise a translation calls the parser of its UID.
    #[cold]
    fn target_of_holder(&self, mirror: &P) -> Option<&PodUid> {
        let holder = self.mirror_pod_by_pod(mirror)?;
        self.live.mirror(holder.uid().into(), &self.hashing)?.target.uid()
    }
}

// Counts: a snapshot may have a hundred thousand pods.
shown!(Snapshot, |it| generation: it.generation, pods: it.pods().len(), mirror_pods: it.mirror_pods().len());
