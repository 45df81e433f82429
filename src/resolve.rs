//! Finds a pod by any key, and the pod of an identity: which of its keys to look up, and in which order.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::id::{FullName, PodUid, ResolvedPodUid, UidRef};
use crate::identity::{Cgroup, CgroupUid, ContainerId, ContainerLog, Identity, PodLog};
use crate::pod::{KeyKind, KeyRef, PodKind, PodMeta, ip_number};
use crate::snapshot::{CONTESTED, PodsByKey, Removed, Snapshot};

/// The result of [`Snapshot::get`] and [`Identity::resolve`]: a pod, and by what it was found.
#[non_exhaustive]
pub struct Found<'a, P> {
    /// The pod. This is a mirror pod only if its static pod is not in the index.
    pub pod: &'a Arc<P>,
    /// The container's name in the pod, if known.
    pub container: Option<&'a str>,
    /// The key by which the pod was found.
    pub by: FoundBy,
    /// When the pod was removed, if it is a [removed one](Snapshot::removed).
    pub removed_at: Option<Instant>,
}

/// The key by which a pod was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FoundBy {
    /// The pod's UID.
    Uid,
    /// The UID of its mirror pod.
    MirrorUid,
    /// The ID of one of its containers.
    ContainerId,
    /// Its IP.
    Ip,
    /// A custom key.
    Key,
    /// Its namespace and name.
    Name,
    /// Its namespace and name. The text also has a container ID, but no pod names that ID: either no status names the
    /// container yet, or the container belonged to an earlier pod with this name.
    NameOnly,
}

/// A key by which [`Snapshot::get`] finds a pod.
///
/// # Examples
/// ```
/// use pod_index::identity::ContainerId;
/// use pod_index::{FullName, Key, PodUid};
///
/// let _: Key = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".into(); // a string is a UID, as for the lookups
/// let _: Key = (&PodUid::from("u1")).into();
/// let _: Key = ("shop", "web-0").into(); // namespace and name
/// let _: Key = (&FullName::new("web-0", "shop")?).into();
/// let _: Key = std::net::IpAddr::from([10, 0, 0, 7]).into();
/// let _: Key = "3e5f0b1c".repeat(8).parse::<ContainerId>().expect("64 digits").into();
/// # Ok::<(), pod_index::ParseFullNameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// As for [`Snapshot::pod_by_uid`].
    Uid(UidRef<'a>),
    /// As for [`Snapshot::pod_by_name`].
    Name {
        /// The pod's namespace.
        namespace: &'a str,
        /// The pod's name.
        name: &'a str,
    },
    /// As for [`Snapshot::pod_by_container_id`].
    ContainerId(ContainerId),
    /// As for [`Snapshot::pod_by_ip`].
    Ip(IpAddr),
    /// As for [`Snapshot::pods_by_key`]; finds the pod with the strongest claim.
    Own(KeyKind, &'a [u8]),
}

impl<P: PodMeta> Snapshot<P> {
    /// The current pod with this key. Ignores mirror pods, and translates no UID.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// # Examples
    /// ```
    /// # struct Slim;
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "u1" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "shop" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// # writer.add_pod(Slim)?;
    /// let pods = reader.load();
    /// let found = pods.get(("shop", "web")).expect("it was published");
    /// assert_eq!((found.by, found.container), (pod_index::FoundBy::Name, None));
    /// assert!(pods.get("u1").is_some() && pods.get("u2").is_none());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn get<'k>(&self, key: impl Into<Key<'k>>) -> Option<Found<'_, P>> {
        match key.into() {
            Key::Uid(uid) => living(self.pod_by_uid(uid), FoundBy::Uid),
            Key::Name { namespace, name } => living(self.pod_by_name(namespace, name), FoundBy::Name),
            Key::ContainerId(id) => by_container_id(self, id),
            Key::Ip(ip) => living(self.pod_by_ip(ip), FoundBy::Ip),
            Key::Own(kind, key) => living(self.pods_by_key(kind, key).next(), FoundBy::Key),
        }
    }
}

/// The current pods that claim a key; see [`Snapshot::claim`].
#[non_exhaustive]
pub enum Claimed<'a, P> {
    /// One pod alone.
    Unique(Found<'a, P>),
    /// Several pods.
    Contested {
        /// The pod with the strongest claim, which [`Snapshot::get`] returns.
        winner: Found<'a, P>,
        /// The others, strongest claim first. Not empty.
        others: PodsByKey<'a, P>,
    },
}

impl<P: PodMeta> Snapshot<P> {
    /// Like [`get`](Self::get), and whether other current pods claim the key too: an IP of a pod that is being deleted may
    /// already be that of the next one. UIDs and names are unique.
    ///
    /// # Complexity
    /// That of [`get`](Self::get); O(log n) more if the key is contested.
    ///
    /// # Examples
    /// ```
    /// # struct Slim(&'static str);
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { self.0 }
    /// #     fn name(&self) -> &str { self.0 }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.ip([10, 0, 0, 7].into()); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// use std::net::IpAddr;
    ///
    /// use pod_index::Claimed;
    ///
    /// let ip = IpAddr::from([10, 0, 0, 7]);
    /// writer.add_pod(Slim("u1"))?;
    /// assert!(matches!(reader.load().claim(ip), Some(Claimed::Unique(_))));
    /// writer.add_pod(Slim("u2"))?;
    /// let pods = reader.load();
    /// let Some(Claimed::Contested { winner, others }) = pods.claim(ip) else { panic!("two have it") };
    /// assert_eq!((winner.pod.0, others.count()), ("u1", 1));
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn claim<'k>(&self, key: impl Into<Key<'k>>) -> Option<Claimed<'_, P>> {
        let key = key.into();
        let (claimed, by) = match key {
            Key::ContainerId(id) => (KeyRef::ContainerId(id), FoundBy::ContainerId),
            Key::Ip(ip) => (KeyRef::Ip(ip_number(ip)), FoundBy::Ip),
            Key::Own(kind, key) => (KeyRef::Own(kind, key), FoundBy::Key),
            Key::Uid(_) | Key::Name { .. } => return self.get(key).map(Claimed::Unique),
        };
        let (place, pod) = self.live.locate(claimed, &self.hashing)?;
        if place.flags() & CONTESTED == 0 {
            let found = if let Key::ContainerId(id) = key {
                by_container_id(self, id)
            } else {
                living(Some(pod), by)
            };
            return found.map(Claimed::Unique);
        }
        let mut others = PodsByKey(self.live.claimants(claimed, &self.hashing));
        others.next();
        let winner = self.get(key)?;
        // Contenders whose own UID changed are no pods.
        let is_alone = others.clone().next().is_none();
        Some(if is_alone { Claimed::Unique(winner) } else { Claimed::Contested { winner, others } })
    }
}

impl FoundBy {
    /// The key in words, such as `container ID`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::MirrorUid => "mirror pod's UID",
            Self::ContainerId => "container ID",
            Self::Ip => "IP",
            Self::Key => "key",
            Self::Name => "name",
            Self::NameOnly => "name; unknown container ID",
        }
    }
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<'a> Identity<'a> {
    /// The pod that this identity belongs to, in a snapshot.
    ///
    /// | identity | lookups, in this order |
    /// |---|---|
    /// | a UID | the pod with it; the static pod of the mirror with it; that mirror; the same in lower case |
    /// | a cgroup | the pod with its UID; the pod with its container ID |
    /// | a log file's path, a pod's directory | the pod with its UID |
    /// | a link to a log file | the pod with its container ID; the pod with its name, as [`FoundBy::NameOnly`] |
    /// | a container ID, an IP | the pod with it |
    /// | a name | the pod with it; the mirror pod with it |
    /// | a process ID | none: the index does not know processes |
    ///
    /// Cgroups and log paths contain the pod's UID on the node, which is known before any status names the container.
    /// The name in a log path is not looked up: another pod may have it by now.
    ///
    /// # Removed pods
    /// Each row is applied to the current pods first, and then to the [removed ones](Snapshot::removed). Exception: the
    /// name in a link to a log file is looked up only if neither a current nor a removed pod has the container ID. So
    /// the link of a removed pod does not find a newer pod with its name. The UID of a removed mirror pod finds its
    /// static pod, current or removed. [`Found::removed_at`] is `None` for a current pod.
    ///
    /// # Complexity
    /// A few lookups, each O(1) expected. If they find nothing, as many among the removed pods. No allocation for the usual
    /// UIDs.
    ///
    /// # Examples
    /// ```
    /// # struct Slim;
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "shop" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// # writer.add_pod(Slim)?;
    /// use pod_index::FoundBy;
    /// use pod_index::identity::Identity;
    ///
    /// let path = "/var/log/pods/shop_web_0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/nginx/0.log";
    /// let identity = Identity::parse(path).expect("a log file's path");
    /// let snapshot = reader.load();
    /// let found = identity.resolve(&snapshot).expect("the pod is there");
    /// assert_eq!((found.by, found.container), (FoundBy::Uid, Some("nginx")));
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn resolve<'s, P: PodMeta>(&self, snapshot: &'s Snapshot<P>) -> Option<Found<'s, P>>
    where
        'a: 's,
    {
        match *self {
            // Two spellings are two UIDs, so the exact one comes first.
            Self::Uid(uid) => by_any_uid(snapshot, uid)
                .or_else(|| by_any_uid(snapshot, PodUid::in_lower_case(uid)?.as_uid_ref())),
            Self::ContainerId(id) => {
                by_container_id(snapshot, id).or_else(|| removed_by_container_id(snapshot, id))
            }
            Self::Cgroup(cgroup) => by_cgroup(snapshot, cgroup, by_uid, by_container_id)
                .or_else(|| by_cgroup(snapshot, cgroup, removed_by_uid, removed_by_container_id)),
            Self::PodLog(PodLog { pod_uid, container, .. }) => {
                Some(Found { container: Some(container), ..by_any_uid(snapshot, pod_uid.into())? })
            }
            Self::PodDirectory { pod_uid, container } => {
                Some(Found { container, ..by_any_uid(snapshot, pod_uid)? })
            }
            Self::ContainerLog(log) => by_link(snapshot, log),
            Self::Ip(ip) => living(snapshot.pod_by_ip(ip), FoundBy::Ip)
                .or_else(|| removed(snapshot.removed().pod_by_ip(ip), FoundBy::Ip)),
            Self::Name { namespace, name } => by_name(snapshot, namespace, name),
            Self::Pid(_) => None,
        }
    }
}

fn living<P>(pod: Option<&Arc<P>>, by: FoundBy) -> Option<Found<'_, P>> {
    Some(Found { pod: pod?, container: None, by, removed_at: None })
}

fn removed<P>(removed: Option<Removed<'_, P>>, by: FoundBy) -> Option<Found<'_, P>> {
    let Removed { pod, removed_at, container } = removed?;
    Some(Found { pod, container, by, removed_at: Some(removed_at) })
}

fn by_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    living(snapshot.pod_by_uid(uid), FoundBy::Uid).or_else(|| {
        let mirror = snapshot.mirror_pod_by_uid(uid)?;
        let pod = snapshot.pod_by_uid(&snapshot.translate_pod_uid(uid)).unwrap_or(mirror);
        living(Some(pod), FoundBy::MirrorUid)
    })
}

/// The pod, or else the removed pod.
fn by_any_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    by_uid(snapshot, uid).or_else(|| removed_by_uid(snapshot, uid))
}

#[cold]
fn removed_by_uid<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, uid: UidRef<'_>) -> Option<Found<'s, P>> {
    let gone = snapshot.removed();
    if let Some(pod) = gone.pod_by_uid(uid) {
        return removed(Some(pod), FoundBy::Uid);
    }
    let mirror = gone.mirror(uid)?;
    let target = mirror.target.uid().map(PodUid::as_uid_ref);
    let pod = target.and_then(|uid| living(snapshot.pod_by_uid(uid), FoundBy::MirrorUid));
    pod.or_else(|| removed(gone.pod_by_uid(target?), FoundBy::MirrorUid))
        .or_else(|| removed(gone.mirror_pod_by_uid(uid), FoundBy::MirrorUid))
}

fn by_container_id<P: PodMeta>(snapshot: &Snapshot<P>, id: ContainerId) -> Option<Found<'_, P>> {
    let found = snapshot.pod_by_container_id(id)?;
    Some(Found { container: Some(found.container), ..living(Some(found.pod), FoundBy::ContainerId)? })
}

#[cold]
fn removed_by_container_id<P: PodMeta>(snapshot: &Snapshot<P>, id: ContainerId) -> Option<Found<'_, P>> {
    removed(snapshot.removed().pod_by_container_id(id), FoundBy::ContainerId)
}

/// Looks among the current or among the removed pods, depending on the given lookups.
fn by_cgroup<'s, P: PodMeta>(
    snapshot: &'s Snapshot<P>,
    cgroup: Cgroup<'_>,
    find_uid: impl Fn(&'s Snapshot<P>, UidRef<'_>) -> Option<Found<'s, P>>,
    find_container_id: impl Fn(&'s Snapshot<P>, ContainerId) -> Option<Found<'s, P>>,
) -> Option<Found<'s, P>> {
    let by_id = cgroup.container_id.and_then(|id| find_container_id(snapshot, id));
    let uid = cgroup.pod_uid.map(CgroupUid::to_pod_uid);
    let Some(found) = uid.and_then(|uid| find_uid(snapshot, uid.as_uid_ref())) else { return by_id };
    // Use the container's name only if it is this pod's: another pod may claim the ID.
    let container = by_id.filter(|by_id| Arc::ptr_eq(by_id.pod, found.pod)).and_then(|by_id| by_id.container);
    Some(Found { container, ..found })
}

fn by_link<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, log: ContainerLog<'s>) -> Option<Found<'s, P>> {
    let Some(id) = log.container_id else {
        return Some(Found { container: log.container, ..by_name(snapshot, log.namespace?, log.name)? });
    };
    let by_id = by_container_id(snapshot, id).or_else(|| removed_by_container_id(snapshot, id));
    by_id.or_else(|| {
        let found = by_name(snapshot, log.namespace?, log.name)?;
        Some(Found { container: log.container, by: FoundBy::NameOnly, ..found })
    })
}

fn by_name<'s, P: PodMeta>(snapshot: &'s Snapshot<P>, namespace: &str, name: &str) -> Option<Found<'s, P>> {
    let pod = snapshot.pod_by_name(namespace, name);
    let pod = pod.or_else(|| snapshot.by_name(PodKind::Mirror, name, namespace));
    living(pod, FoundBy::Name).or_else(|| {
        let gone = snapshot.removed().pod_by_name(namespace, name);
        let gone = gone.or_else(|| snapshot.removed().mirror_pod_by_name(namespace, name));
        removed(gone, FoundBy::Name)
    })
}

impl<'a> From<UidRef<'a>> for Key<'a> {
    fn from(uid: UidRef<'a>) -> Self {
        Self::Uid(uid)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(uid: &'a str) -> Self {
        Self::Uid(uid.into())
    }
}

impl<'a> From<&&'a str> for Key<'a> {
    fn from(uid: &&'a str) -> Self {
        Self::Uid((*uid).into())
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(uid: &'a String) -> Self {
        Self::Uid(uid.into())
    }
}

impl<'a> From<&'a PodUid> for Key<'a> {
    fn from(uid: &'a PodUid) -> Self {
        Self::Uid(uid.into())
    }
}

impl<'a> From<&'a ResolvedPodUid> for Key<'a> {
    fn from(uid: &'a ResolvedPodUid) -> Self {
        Self::Uid(uid.into())
    }
}

/// Namespace and name, as [`Snapshot::pod_by_name`] takes them.
impl<'a> From<(&'a str, &'a str)> for Key<'a> {
    fn from((namespace, name): (&'a str, &'a str)) -> Self {
        Self::Name { namespace, name }
    }
}

impl<'a> From<&'a FullName> for Key<'a> {
    fn from(full_name: &'a FullName) -> Self {
        Self::Name { namespace: full_name.namespace(), name: full_name.name() }
    }
}

impl From<ContainerId> for Key<'_> {
    fn from(id: ContainerId) -> Self {
        Self::ContainerId(id)
    }
}

impl From<IpAddr> for Key<'_> {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl<'a> From<(KeyKind, &'a [u8])> for Key<'a> {
    fn from((kind, key): (KeyKind, &'a [u8])) -> Self {
        Self::Own(kind, key)
    }
}

// None of these is derived: a derive would require the same of `P`.
impl<P> Clone for Found<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Found<'_, P> {}

impl<P> Clone for Claimed<'_, P> {
    fn clone(&self) -> Self {
        match self {
            Self::Unique(found) => Self::Unique(*found),
            Self::Contested { winner, others } => Self::Contested { winner: *winner, others: others.clone() },
        }
    }
}

impl<P: PodMeta> fmt::Debug for Claimed<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unique(found) => f.debug_tuple("Unique").field(found).finish(),
            Self::Contested { winner, others } => {
                f.debug_struct("Contested").field("winner", winner).field("others", others).finish()
            }
        }
    }
}

impl<P: PodMeta> fmt::Debug for Found<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, container, by, removed_at } = self;
        f.debug_struct("Found")
            .field("pod", &pod.uid())
            .field("container", container)
            .field("by", by)
            .field("removed_at", removed_at)
            .finish()
    }
}
