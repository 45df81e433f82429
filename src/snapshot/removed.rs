//! Removed pods that are kept for a time, and the reads that find them.
//!
//! They are in a second set of tables: a lookup of a current pod reads nothing of it. Of several removed pods with one
//! key, the one removed last holds it, and the others are contenders.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Snapshot;
use super::key::Mirror;
use super::tables::{Claimant, Tables};
use crate::id::{self, PodUid, UidRef};
use crate::identity::ContainerId;
use crate::map::{Hashing, OrdMap, PodValue, Value};
use crate::options::{KeepRemoved, Kinds};
use crate::pod::{KeyKind, KeyRef, PodKind, PodMeta, Strength, ip_number};

/// The removed pods of a snapshot. Only an index that keeps them has one.
pub(crate) struct RemovedSet<P> {
    pub(crate) tables: Tables<RemovedPod<P>>,
    pub(crate) queue: RemovalQueue,
}

/// The removals, by their number. Only the writer reads it.
#[derive(Clone)]
pub(crate) struct RemovalQueue {
    pub(crate) limits: KeepRemoved,
    pub(crate) removals: OrdMap<u64, Removal>,
    /// The number of the next removal.
    pub(crate) next: u64,
}

#[derive(Clone)]
pub(crate) struct Removal {
    pub(crate) at: Instant,
    pub(crate) uid: PodUid,
    pub(crate) kind: PodKind,
}

/// A removed pod or mirror.
pub(crate) struct RemovedPod<P> {
    pub(crate) pod: Arc<P>,
    pub(crate) at: Instant,
    /// The number of the removal. Each removal has its own.
    pub(crate) number: u64,
}

/// A pod that was removed. See [`RemovedPods`].
#[non_exhaustive]
pub struct Removed<'a, P> {
    /// The last state of the pod.
    pub pod: &'a Arc<P>,
    /// When the pod was removed: the last time that was passed to [`Writer::expire`](crate::Writer::expire) before the
    /// removal; without one, the clock's.
    pub removed_at: Instant,
    /// The container's name in the pod, if the pod was looked up by a container ID.
    pub container: Option<&'a str>,
}

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
/// O(1) expected, as for current pods. No allocation; readers free nothing.
///
/// # Examples
/// ```
/// # struct Slim(&'static str);
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { self.0 }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// use std::time::{Duration, Instant};
///
/// use pod_index::Options;
///
/// let (mut writer, reader) = pod_index::with_options(Options::all().keep_removed(Duration::from_secs(60), 10_000));
/// writer.add_pod(Slim("u1"))?;
///
/// let now = Instant::now();
/// writer.expire(now); // the time of the next removals
/// writer.remove_pod_by_uid("u1");
///
/// let pods = reader.load();
/// assert!(pods.pod_by_uid("u1").is_none());
/// let removed = pods.removed().pod_by_uid("u1").expect("it went just now");
/// assert_eq!((removed.pod.0, removed.removed_at), ("u1", now));
/// assert!(pods.removed().pod_by_name("default", "web").is_some());
///
/// // A minute later. The writer's loop waits no longer than until this deadline.
/// let deadline = writer.next_deadline().expect("a pod is kept");
/// assert_eq!(writer.expire(deadline), 1);
/// assert!(reader.load().removed().is_empty());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: none; its pod manager forgets a removed pod at once.
pub struct RemovedPods<'a, P> {
    set: Option<&'a RemovedSet<P>>,
    hashing: &'a Hashing,
}

impl<P> RemovedSet<P> {
    pub(crate) fn new(limits: KeepRemoved) -> Self {
        Self { tables: Tables::new(), queue: RemovalQueue { limits, removals: OrdMap::new(), next: 0 } }
    }
}

impl<P> Snapshot<P> {
    /// When the writer next has a removed pod to drop, or a key that a pod had.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let pod = self.removed.as_ref()?.queue.deadline();
        let hold = self.times.as_ref().and_then(|times| times.deadline());
        [pod, hold].into_iter().flatten().min()
    }
}

impl RemovalQueue {
    /// When the pod that was removed first must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.removals.get_min()?.1.at.checked_add(self.limits.max_age)
    }
}

impl<P> Value for RemovedPod<P> {
    type Pod = P;

    fn into_parts(self) -> (Option<Arc<P>>, Option<Arc<str>>) {
        (Some(self.pod), None)
    }
}

impl<P> PodValue for RemovedPod<P> {
    fn pod(&self) -> &Arc<P> {
        &self.pod
    }

    fn same(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.pod, &other.pod)
    }
}

impl<P: PodMeta> Claimant for RemovedPod<P> {
    const CLAIMS_NAME: bool = true;

    fn strength(&self, _: Kinds) -> Strength {
        Strength::of_removal(self.number)
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
        RemovedPods { set: self.removed.as_deref(), hashing: &self.hashing }
    }
}

impl<P> RemovedPod<P> {
    fn found<'a>(&'a self, container: Option<&'a str>) -> Removed<'a, P> {
        Removed { pod: &self.pod, removed_at: self.at, container }
    }
}

impl<'a, P> RemovedPods<'a, P> {
    fn tables(self) -> Option<&'a Tables<RemovedPod<P>>> {
        self.set.map(|set| &set.tables)
    }
}

impl<'a, P: PodMeta> RemovedPods<'a, P> {
    /// Number of removed pods and mirror pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables().map_or(0, |tables| tables.pods.len() + tables.mirrors.len())
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
    pub fn iter(&self) -> impl Iterator<Item = Removed<'a, P>> + Clone + use<'a, P> {
        let pods = self.tables().into_iter().flat_map(|tables| tables.pods.iter()).map(|entry| &entry.value);
        let mirrors = self.tables().into_iter().flat_map(|tables| tables.mirrors.iter());
        pods.chain(mirrors.map(|entry| &entry.value.pod)).map(|removed| removed.found(None))
    }

    /// The removed pod with this UID, without mirrors; a mirror's UID is not translated.
    #[must_use]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Removed<'a, P>> {
        Some(self.tables()?.pod(uid.into(), self.hashing)?.found(None))
    }

    /// The removed mirror pod with this UID.
    #[must_use]
    pub fn mirror_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Removed<'a, P>> {
        Some(self.mirror(uid.into())?.pod.found(None))
    }

    /// The removed mirror pod with this UID, and the UID to which it translated.
    pub(crate) fn mirror(self, uid: UidRef<'_>) -> Option<&'a Mirror<RemovedPod<P>>> {
        self.tables()?.mirror(uid, self.hashing)
    }

    fn by_name(self, kind: PodKind, name: &str, namespace: &str) -> Option<Removed<'a, P>> {
        Some(self.tables()?.by_name(kind, name, namespace, self.hashing)?.found(None))
    }

    /// The last removed pod with this full name (`name_namespace`), without mirrors.
    #[must_use]
    pub fn pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Removed<'a, P>> {
        let (name, namespace) = id::split(full_name.as_ref())?;
        self.pod_by_name(namespace, name)
    }

    /// The last removed pod of this namespace and name, without mirrors.
    #[must_use]
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<Removed<'a, P>> {
        self.by_name(PodKind::Pod, name, namespace)
    }

    /// The last removed mirror pod with this full name.
    #[must_use]
    pub fn mirror_pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Removed<'a, P>> {
        let (name, namespace) = id::split(full_name.as_ref())?;
        self.mirror_pod_by_name(namespace, name)
    }

    pub(crate) fn mirror_pod_by_name(self, namespace: &str, name: &str) -> Option<Removed<'a, P>> {
        self.by_name(PodKind::Mirror, name, namespace)
    }

    /// The last removed pod with this container, and the container's name; see [`Snapshot::pod_by_container_id`].
    #[must_use]
    pub fn pod_by_container_id(&self, id: impl TryInto<ContainerId>) -> Option<Removed<'a, P>> {
        let entry = self.tables()?.by_container_id(id.try_into().ok()?, self.hashing)?;
        Some(entry.value.found(Some(entry.key.label.as_str())))
    }

    /// The last removed pod with this IP; see [`Snapshot::pod_by_ip`].
    #[must_use]
    pub fn pod_by_ip(&self, ip: IpAddr) -> Option<Removed<'a, P>> {
        Some(self.tables()?.by_ip(ip_number(ip), self.hashing)?.found(None))
    }

    /// The removed pods that name this custom key, the one removed last first; see [`Snapshot::pods_by_key`].
    pub fn pods_by_key(
        &self,
        kind: KeyKind,
        key: &[u8],
    ) -> impl Iterator<Item = Removed<'a, P>> + Clone + use<'a, P> {
        let claimants = self.tables().map(|tables| tables.claimants(KeyRef::Own(kind, key), self.hashing));
        claimants.into_iter().flatten().map(|removed| removed.found(None))
    }
}

// None of these is derived: a derive would require the same of `P`.
impl<P> Clone for Removed<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Removed<'_, P> {}

impl<P> Clone for RemovedPods<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for RemovedPods<'_, P> {}

impl<P> Clone for RemovedPod<P> {
    fn clone(&self) -> Self {
        Self { pod: Arc::clone(&self.pod), ..*self }
    }
}

impl<P: PodMeta> fmt::Debug for Removed<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, removed_at, container } = self;
        f.debug_struct("Removed")
            .field("pod", &pod.uid())
            .field("removed_at", removed_at)
            .field("container", container)
            .finish()
    }
}

impl<P: PodMeta> fmt::Debug for RemovedPods<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemovedPods").field("len", &self.len()).finish_non_exhaustive()
    }
}
