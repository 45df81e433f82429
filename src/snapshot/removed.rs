//! The reads that find removed pods. A lookup of a current pod reads nothing of them.

use std::time::Instant;

use super::Snapshot;
use crate::id::UidRef;
use crate::pod::PodMeta;
use crate::pods::{Claimant, Found, FoundBy, Key, Mirror, RemovedPod, Tables};
use crate::table::Hashing;

/// The removed pods that are kept; see [`Snapshot::removed`].
///
/// Logs and spans arrive after their pod. An index made with [`Options::keep_removed`](crate::Options::keep_removed)
/// keeps removed pods for a time, with all their keys.
///
/// # Consistency
/// - They belong to the same moment as all other results of the snapshot. A pod is either current or removed: if it
///   is added again under its UID, it is no longer here. No lookup of current pods finds a removed pod, and no count
///   includes it.
/// - A current pod may have the name, the IP or the container ID of a removed pod. So look among the current pods
///   first. [`Identity::resolve`](crate::identity::Identity::resolve) does this, and shows which kind it found.
/// - If several removed pods have a key, the one removed last is found, regardless of the strength of their claims. If
///   one `set_pods` removes several, the one with the strongest claim counts as the last; see
///   [`PodMeta::keys`](crate::PodMeta::keys).
/// - A pod is removed when its UID is removed. If another pod takes its name, it is still current under its UID.
///
/// # Complexity
/// O(1) expected, as for current pods; readers free nothing. No allocation, except that
/// [`claimants`](Self::claimants) may allocate once.
///
/// # Examples
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use pod_index::{Moment, Operation, Options, SimplePod};
///
/// let (mut writer, reader) = pod_index::with_options(Options::new().keep_removed(Duration::from_secs(60), 10_000));
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
///
/// let now = Moment::now(); // without it, `remove_pod_by_uid` does the same
/// let _ = writer.apply_at(now, [Operation::Remove("u1".into())]);
///
/// let pods = reader.load();
/// assert!(pods.pod_by_uid("u1").is_none());
/// let removed = pods.removed().get("u1").expect("it went just now");
/// assert_eq!((removed.pod.uid.as_str(), removed.removed_at), ("u1", Some(now.instant)));
/// assert!(pods.removed().get(("default", "web")).is_some());
///
/// // A minute later. The writer's loop waits no longer than until this deadline.
/// let deadline = writer.next_deadline().expect("a pod is kept");
/// assert_eq!(writer.advance(Moment::new(deadline, SystemTime::now())), 1);
/// assert!(reader.load().removed().is_empty());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: none; its pod manager forgets a removed pod at once.
pub struct RemovedPods<'a, P> {
    tables: Option<&'a Tables<RemovedPod<P>>>,
    hashing: &'a Hashing,
}

impl<P> Snapshot<P> {
    /// When the writer next has a removed pod to drop. Keys that a pod had are dropped with the next publication.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.removed.as_ref()?.queue.deadline()
    }
}

impl<P: PodMeta> Snapshot<P> {
    /// The removed pods that are kept. None, unless the index was made with
    /// [`Options::keep_removed`](crate::Options::keep_removed).
    ///
    /// # Complexity
    /// O(1) to obtain; no copy. See [`RemovedPods`] for its lookups.
    #[must_use]
    pub fn removed(&self) -> RemovedPods<'_, P> {
        RemovedPods { tables: self.removed.as_deref().map(|set| &set.tables), hashing: &self.hashing }
    }
}

impl<'a, P: PodMeta> RemovedPods<'a, P> {
    /// Number of removed pods and mirror pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.map_or(0, |tables| tables.pods.len() + tables.mirrors.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All removed pods and mirror pods. In no particular order.
    ///
    /// # Complexity
    /// O(1) to obtain, O(n) to iterate; no allocation.
    pub fn iter(&self) -> impl Iterator<Item = Found<'a, P>> + Clone + use<'a, P> {
        let pods = self.tables.into_iter().flat_map(|tables| tables.pods.iter()).map(|entry| &entry.value);
        let mirrors = self.tables.into_iter().flat_map(|tables| tables.mirrors.iter());
        pods.chain(mirrors.map(|entry| &entry.value.pod)).map(|removed| removed.found(FoundBy::Uid))
    }

    /// The last removed pod with this key; if there is none, the last removed mirror pod with this UID or name.
    #[must_use]
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Option<Found<'a, P>> {
        let key = key.into();
        self.pod(key).or_else(|| self.tables?.get_mirror(key, self.hashing))
    }

    /// All removed pods with this key, without mirrors, the one removed last first. See [`Snapshot::claimants`].
    pub fn claimants(&self, key: impl Into<Key<'a>>) -> impl Iterator<Item = Found<'a, P>> {
        let key = key.into();
        let hashing = self.hashing;
        self.tables.into_iter().flat_map(move |tables| tables.all(key, hashing))
    }

    /// The last removed pod with this key, without mirrors.
    pub(crate) fn pod(self, key: Key<'_>) -> Option<Found<'a, P>> {
        self.tables?.get(key, self.hashing)
    }

    /// The removed mirror pod with this UID, and the UID to which it translated.
    pub(crate) fn mirror(self, uid: UidRef<'_>) -> Option<&'a Mirror<RemovedPod<P>>> {
        self.tables?.mirror(uid, self.hashing)
    }
}

copied!(RemovedPods);

shown!(RemovedPods<'_>, |removed| len: removed.len());
