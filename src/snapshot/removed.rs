//! Removed pods that are kept for a time, and the reads that find them.
//!
//! They are stored separately from the current pods: a lookup of a current pod reads nothing of this. The pods are in a
//! table by UID, whose memory only the writer frees. Two ordered sets contain only UIDs: one is sorted by key, the
//! other by age.

use std::cmp::{Ordering, Reverse};
use std::fmt;
use std::iter::FusedIterator;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::by_key::{OwnedKey, container_key, ip_key, own_key};
use super::{PodKind, Snapshot};
use crate::id::{self, FullName, PodUid, UidRef};
use crate::identity::ContainerId;
use crate::map::{Hashing, Ordered, PodValue, Table, Value, Words};
use crate::options::KeepRemoved;
use crate::pod::{KeyKind, KeyRef, PodMeta, ip_number};

/// The removed pods of a snapshot. Only an index that keeps them has one.
pub(crate) struct RemovedSet<P> {
    pub(crate) pods: Table<Words, Departed<P>>,
    pub(crate) book: RemovedBook,
}

/// Everything about removed pods except the pods.
#[derive(Clone)]
pub(crate) struct RemovedBook {
    pub(crate) limits: KeepRemoved,
    pub(crate) by_key: Ordered<RemovedKey>,
    pub(crate) by_age: Ordered<Departure>,
    /// The number of the next removal.
    pub(crate) next: u64,
}

/// A removed pod or mirror.
pub(crate) struct Departed<P> {
    pub(crate) pod: Arc<P>,
    pub(crate) kind: PodKind,
    pub(crate) at: Instant,
    /// The number of the removal. Each removal has its own.
    pub(crate) number: u64,
    /// For a mirror: the UID to which its UID translated.
    pub(crate) target: Option<PodUid>,
}

/// A removal. Ordered by its number.
#[derive(Clone)]
pub(crate) struct Departure {
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) uid: PodUid,
}

/// A key of a removed pod. Ordered by key, then by removal, the last one first. The hash decides nearly every
/// comparison.
#[derive(Clone)]
pub(crate) struct RemovedKey {
    pub(crate) hash: u64,
    pub(crate) key: LateKey,
    pub(crate) number: Reverse<u64>,
    pub(crate) uid: PodUid,
    /// The container's name, if the key is a container ID.
    pub(crate) container: Option<Arc<str>>,
}

/// A key of a removed pod, besides its UID.
#[derive(Clone)]
pub(crate) enum LateKey {
    Name(PodKind, FullName),
    Key(OwnedKey),
}

/// A [`LateKey`] that borrows, with its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LateKeyRef<'a> {
    Name(PodKind, &'a str, &'a str),
    Key(KeyRef<'a>),
}

/// A pod that was removed. See [`RemovedPods`].
#[non_exhaustive]
pub struct Removed<'a, P> {
    /// The last state of the pod.
    pub pod: &'a Arc<P>,
    /// When the pod was removed: the last time that was passed to [`Writer::expire`](crate::Writer::expire) before the
    /// removal.
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
/// O(1) expected by UID. O(log n) by any other key, n being the number of removed pods. No allocation; readers free
/// nothing.
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
    pub(super) snapshot: &'a Snapshot<P>,
}

/// An iterator over removed pods. See [`RemovedPods::iter`] and [`RemovedPods::pods_by_key`].
pub struct RemovedIter<'a, P> {
    set: Option<&'a RemovedSet<P>>,
    snapshot: &'a Snapshot<P>,
    next: Next<'a>,
}

#[derive(Clone, Copy)]
enum Next<'a> {
    /// After this removal; at first, the earliest one.
    Removal(Option<u64>),
    /// This one, and then those of the same key.
    Key(&'a RemovedKey),
    End,
}

impl<P> RemovedSet<P> {
    pub(crate) const fn new(limits: KeepRemoved) -> Self {
        let book = RemovedBook { limits, by_key: Ordered::new(), by_age: Ordered::new(), next: 0 };
        Self { pods: Table::new(), book }
    }
}

impl<P> Snapshot<P> {
    /// When the writer next has a removed pod to drop.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.removed.as_ref()?.book.deadline()
    }
}

impl RemovedBook {
    /// The first removal after the one with this number. Without a number, the first of all.
    pub(crate) fn after(&self, last: Option<u64>) -> Option<&Departure> {
        self.by_age.first_not(|departure| last.is_some_and(|last| departure.number <= last))
    }

    /// When the pod that was removed first must be dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.after(None)?.at.checked_add(self.limits.max_age)
    }

    /// The entry of the last removed pod with this key.
    fn last(&self, hash: u64, key: LateKeyRef<'_>) -> Option<&RemovedKey> {
        let first = self.by_key.first_not(|stored| stored.order((hash, key)).is_lt())?;
        first.order((hash, key)).is_eq().then_some(first)
    }

    /// The entry of the same key for the pod removed before this one.
    fn before(&self, last: &RemovedKey) -> Option<&RemovedKey> {
        let next = self.by_key.first_not(|stored| stored <= last)?;
        next.order((last.hash, last.key.as_ref())).is_eq().then_some(next)
    }

    /// The entry of this key for the removal with this number.
    pub(crate) fn stored(&self, key: LateKeyRef<'_>, number: u64, hashing: &Hashing) -> Option<&RemovedKey> {
        let hash = key.hash(hashing);
        let order =
            |stored: &RemovedKey| stored.order((hash, key)).then_with(|| stored.number.cmp(&Reverse(number)));
        let first = self.by_key.first_not(|stored| order(stored).is_lt())?;
        order(first).is_eq().then_some(first)
    }
}

impl LateKeyRef<'_> {
    pub(crate) fn hash(self, hashing: &Hashing) -> u64 {
        match self {
            Self::Name(_, namespace, name) => hashing.pair(name, namespace),
            Self::Key(KeyRef::ContainerId(id)) => container_key(id, hashing).1,
            Self::Key(KeyRef::Ip(ip)) => ip_key(ip, hashing).1,
            Self::Key(KeyRef::Own(kind, key)) => own_key(kind, key, hashing).1,
        }
    }
}

impl LateKey {
    pub(crate) fn as_ref(&self) -> LateKeyRef<'_> {
        match self {
            Self::Name(kind, name) => LateKeyRef::Name(*kind, name.namespace(), name.name()),
            Self::Key(key) => LateKeyRef::Key(key.as_ref()),
        }
    }
}

impl RemovedKey {
    fn order(&self, (hash, key): (u64, LateKeyRef<'_>)) -> Ordering {
        self.hash.cmp(&hash).then_with(|| self.key.as_ref().cmp(&key))
    }
}

impl Ord for RemovedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order((other.hash, other.key.as_ref())).then_with(|| self.number.cmp(&other.number))
    }
}

impl Ord for Departure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

/// Equality that agrees with the order.
macro_rules! equal_by_order {
    ($($name:ident),*) => {$(
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $name {}
    )*};
}

equal_by_order!(RemovedKey, Departure);

impl<P> Value for Departed<P> {
    type Pod = P;

    fn into_parts(self) -> (Option<Arc<P>>, Option<Arc<str>>) {
        (Some(self.pod), self.target.and_then(PodUid::into_text))
    }
}

impl<P> PodValue for Departed<P> {
    fn pod(&self) -> &Arc<P> {
        &self.pod
    }

    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pod, &other.pod) && self.number == other.number
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
        RemovedPods { snapshot: self }
    }

    /// The removed pod or mirror with this UID.
    pub(crate) fn departed(&self, uid: UidRef<'_>) -> Option<&Departed<P>> {
        Some(&self.by_uid(&self.removed.as_ref()?.pods, uid)?.value)
    }

    fn departed_by_key(&self, key: LateKeyRef<'_>) -> Option<Removed<'_, P>> {
        let book = &self.removed.as_ref()?.book;
        let mut stored = book.last(key.hash(&self.hashing), key);
        while let Some(found) = stored {
            // If a pod's keys changed after its removal, an entry of it may be left.
            if let Some(removed) = self.at(found) {
                return Some(removed);
            }
            stored = book.before(found);
        }
        None
    }

    /// The removed pod that is stored under this key.
    fn at<'a>(&'a self, stored: &'a RemovedKey) -> Option<Removed<'a, P>> {
        let departed = self.departed(stored.uid.as_uid_ref())?;
        let removed = Removed { container: stored.container.as_deref(), ..departed.removed() };
        (departed.number == stored.number.0).then_some(removed)
    }
}

impl<P> Departed<P> {
    pub(crate) fn removed(&self) -> Removed<'_, P> {
        Removed { pod: &self.pod, removed_at: self.at, container: None }
    }
}

impl<'a, P: PodMeta> RemovedPods<'a, P> {
    /// Number of removed pods and mirror pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.removed.as_ref().map_or(0, |removed| removed.pods.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All removed pods and mirror pods, in the order in which they were removed.
    ///
    /// # Complexity
    /// O(log n) for each; no allocation.
    #[must_use]
    pub fn iter(&self) -> RemovedIter<'a, P> {
        RemovedIter {
            set: self.snapshot.removed.as_deref(),
            snapshot: self.snapshot,
            next: Next::Removal(None),
        }
    }

    /// The removed pod with this UID, without mirrors; a mirror's UID is not translated.
    #[must_use]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Removed<'a, P>> {
        self.by_uid(PodKind::Pod, uid.into())
    }

    /// The removed mirror pod with this UID.
    #[must_use]
    pub fn mirror_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Removed<'a, P>> {
        self.by_uid(PodKind::Mirror, uid.into())
    }

    fn by_uid(self, kind: PodKind, uid: UidRef<'_>) -> Option<Removed<'a, P>> {
        Some(self.snapshot.departed(uid).filter(|departed| departed.kind == kind)?.removed())
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
        self.snapshot.departed_by_key(LateKeyRef::Name(PodKind::Pod, namespace, name))
    }

    /// The last removed mirror pod with this full name.
    #[must_use]
    pub fn mirror_pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Removed<'a, P>> {
        let (name, namespace) = id::split(full_name.as_ref())?;
        self.mirror_pod_by_name(namespace, name)
    }

    pub(crate) fn mirror_pod_by_name(self, namespace: &str, name: &str) -> Option<Removed<'a, P>> {
        self.snapshot.departed_by_key(LateKeyRef::Name(PodKind::Mirror, namespace, name))
    }

    /// The last removed pod with this container, and the container's name; see [`Snapshot::pod_by_container_id`].
    #[must_use]
    pub fn pod_by_container_id(&self, id: impl TryInto<ContainerId>) -> Option<Removed<'a, P>> {
        self.snapshot.departed_by_key(LateKeyRef::Key(KeyRef::ContainerId(id.try_into().ok()?)))
    }

    /// The last removed pod with this IP; see [`Snapshot::pod_by_ip`].
    #[must_use]
    pub fn pod_by_ip(&self, ip: IpAddr) -> Option<Removed<'a, P>> {
        self.snapshot.departed_by_key(LateKeyRef::Key(KeyRef::Ip(ip_number(ip))))
    }

    /// The removed pods that name this custom key, the one removed last first; see [`Snapshot::pods_by_key`].
    #[must_use]
    pub fn pods_by_key(&self, kind: KeyKind, key: &[u8]) -> RemovedIter<'a, P> {
        let (set, key) = (self.snapshot.removed.as_deref(), LateKeyRef::Key(KeyRef::Own(kind, key)));
        let first = set.and_then(|set| set.book.last(key.hash(&self.snapshot.hashing), key));
        RemovedIter { set, snapshot: self.snapshot, next: first.map_or(Next::End, Next::Key) }
    }
}

impl<'a, P: PodMeta> Iterator for RemovedIter<'a, P> {
    type Item = Removed<'a, P>;

    fn next(&mut self) -> Option<Removed<'a, P>> {
        let book = &self.set?.book;
        loop {
            let removed = match self.next {
                Next::Removal(last) => {
                    let Departure { number, uid, .. } = book.after(last)?;
                    self.next = Next::Removal(Some(*number));
                    self.snapshot.departed(uid.as_uid_ref()).map(Departed::removed)
                }
                Next::Key(stored) => {
                    self.next = book.before(stored).map_or(Next::End, Next::Key);
                    self.snapshot.at(stored)
                }
                Next::End => return None,
            };
            if removed.is_some() {
                return removed;
            }
        }
    }
}

impl<P: PodMeta> FusedIterator for RemovedIter<'_, P> {}

impl<'a, P: PodMeta> IntoIterator for RemovedPods<'a, P> {
    type Item = Removed<'a, P>;
    type IntoIter = RemovedIter<'a, P>;

    fn into_iter(self) -> RemovedIter<'a, P> {
        self.iter()
    }
}

impl<'a, P: PodMeta> IntoIterator for &RemovedPods<'a, P> {
    type Item = Removed<'a, P>;
    type IntoIter = RemovedIter<'a, P>;

    fn into_iter(self) -> RemovedIter<'a, P> {
        self.iter()
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

impl<P> Clone for RemovedIter<'_, P> {
    fn clone(&self) -> Self {
        Self { set: self.set, snapshot: self.snapshot, next: self.next }
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

impl<P: PodMeta> fmt::Debug for RemovedIter<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone().map(|removed| removed.pod.uid())).finish()
    }
}
