//! The keys by which pods are looked up, and the result of a lookup.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::id::{FullName, MirrorPodUid, PodUid, ResolvedPodUid, UidRef};
use crate::identity::{ContainerId, Identity};
use crate::pod::{ClaimedKeyRef, CustomKeyKind, PodKind, ip_number};

/// The result of a lookup: a pod, and by what it was found.
///
/// # Examples
/// ```
/// use pod_index::{FoundBy, SimpleContainer, SimplePod};
///
/// let (mut writer, reader) = pod_index::new();
/// let id = "3e5f0b1c".repeat(8);
/// let containers = vec![SimpleContainer { name: "nginx".into(), id: format!("containerd://{id}") }];
/// writer.upsert_pod(SimplePod { containers, ..SimplePod::new("u1", "shop", "web-0") })?;
///
/// let pods = reader.load();
/// let found = pods.get(&*id).expect("a pod names this container");
/// assert_eq!((&*found.pod.name, found.container), ("web-0", Some("nginx")));
/// assert_eq!((found.by, found.removed_at), (FoundBy::ContainerId, None));
/// # Ok::<(), pod_index::Error>(())
/// ```
#[non_exhaustive]
pub struct Found<'a, P> {
    /// The pod. [`Identity::resolve`](crate::identity::Identity::resolve) and the
    /// [removed pods](crate::Snapshot::removed) return a mirror pod if they find no other.
    pub pod: &'a Arc<P>,
    /// The container's name in the pod, if known.
    pub container: Option<&'a str>,
    /// The key by which the pod was found.
    pub by: FoundBy,
    /// When the pod was removed, if it is a [removed one](crate::Snapshot::removed): the
    /// [instant](crate::Moment::instant) of the write.
    pub removed_at: Option<Instant>,
}

/// The key by which a pod was found.
///
/// # Examples
/// See [`Found`].
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
    Custom,
    /// Its namespace and name.
    Name,
    /// Its namespace and name. The text also has a container ID, but no pod names that ID: either no status names the
    /// container yet, or the container belonged to an earlier pod with this name.
    NameOnly,
}

impl FoundBy {
    /// The word for it, such as `containerId`: for a log, or a field of an answer.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(pod_index::FoundBy::MirrorUid.as_str(), "mirrorUid");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::MirrorUid => "mirrorUid",
            Self::ContainerId => "containerId",
            Self::Ip => "ip",
            Self::Custom => "custom",
            Self::Name => "name",
            Self::NameOnly => "nameOnly",
        }
    }
}

/// A key by which [`Snapshot::get`](crate::Snapshot::get) finds a pod.
///
/// If you know the kind of your key, use its type: it is not parsed. Text is a UID, or else what
/// [`Identity::parse`](crate::identity::Identity::parse) makes of it, so that it does not miss in silence.
///
/// | from | is |
/// |---|---|
/// | [`PodUid`](crate::PodUid), [`UidRef`] and the other types of UIDs | a UID |
/// | a pair of strings | namespace and name |
/// | [`FullName`] | a name |
/// | [`IpAddr`], [`Ipv4Addr`], [`Ipv6Addr`] | an IP |
/// | [`SocketAddr`] | its IP |
/// | [`ContainerId`] | a container's ID |
/// | [`CustomKeyKind`] and bytes | a custom key |
/// | a string | a UID if a pod has it; else an IP, with or without a port, a container ID, `namespace/name`, a full name, or the path of a pod's log or directory |
///
/// Any other string is no key and finds nothing. The path of a cgroup and a link to a container's log are among them, because
/// each may lead to several keys: [`Identity::resolve`](crate::identity::Identity::resolve) tries them in order.
///
/// # Examples
/// ```
/// use pod_index::identity::ContainerId;
/// use pod_index::{FullName, Key, PodUid, SimplePod};
///
/// let _: Key = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".into();
/// let _: Key = (&PodUid::from("u1")).into();
/// let _: Key = ("shop", "web-0").into(); // namespace and name
/// let _: Key = (&FullName::new("shop", "web-0")?).into();
/// let _: Key = std::net::Ipv4Addr::new(10, 0, 0, 7).into();
/// let _: Key = "3e5f0b1c".repeat(8).parse::<ContainerId>().expect("64 digits").into();
///
/// let (mut writer, reader) = pod_index::new();
/// writer.upsert_pod(SimplePod { ips: vec![[10, 0, 0, 7].into()], ..SimplePod::new("u1", "shop", "web-0") })?;
/// let pods = reader.load();
/// for text in ["u1", "10.0.0.7", "10.0.0.7:443", "shop/web-0", "web-0_shop"] {
///     assert!(pods.get(text).is_some(), "{text}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Key<'a> {
    /// As for [`Snapshot::pod_by_uid`](crate::Snapshot::pod_by_uid).
    Uid(UidRef<'a>),
    /// As for [`Snapshot::pod_by_name`](crate::Snapshot::pod_by_name).
    Name {
        /// The pod's namespace.
        namespace: &'a str,
        /// The pod's name.
        name: &'a str,
    },
    /// As for [`Snapshot::pod_by_container_id`](crate::Snapshot::pod_by_container_id).
    ContainerId(ContainerId),
    /// As for [`Snapshot::pod_by_ip`](crate::Snapshot::pod_by_ip).
    Ip(IpAddr),
    /// As for [`Snapshot::pods_by_custom_key`](crate::Snapshot::pods_by_custom_key).
    Custom(CustomKeyKind, &'a [u8]),
    /// Text that is not a UID in one of the usual spellings: any other UID if a pod has it, else what it is parsed as.
    Text(&'a str),
}

impl<'a> Key<'a> {
    #[inline]
    pub(crate) fn found_by(self) -> FoundBy {
        match self {
            Self::Uid(_) | Self::Text(_) => FoundBy::Uid,
            Self::Name { .. } => FoundBy::Name,
            Self::ContainerId(_) => FoundBy::ContainerId,
            Self::Ip(_) => FoundBy::Ip,
            Self::Custom(..) => FoundBy::Custom,
        }
    }

    /// The key in the form in which pods claim it. `None` if they do not: a UID has only one pod, and for text the caller first
    /// finds out [what it means](Self::parse). Parsing it here would cost a look-up by IP half of its instructions again,
    /// because the compiler would no longer put this function in its place.
    #[inline]
    pub(crate) fn claimed_by_pods(self) -> Option<ClaimedKeyRef<'a>> {
        match self {
            Self::Uid(_) | Self::Text(_) => None,
            Self::Name { namespace, name } => {
                Some(ClaimedKeyRef::Name { kind: PodKind::Pod, namespace, name })
            }
            Self::ContainerId(id) => Some(ClaimedKeyRef::ContainerId(id)),
            Self::Ip(ip) => Some(ClaimedKeyRef::Ip(ip_number(ip))),
            Self::Custom(kind, key) => Some(ClaimedKeyRef::Custom(kind, key)),
        }
    }

    /// The key in the form in which mirror pods claim it. They claim only names.
    #[inline]
    pub(crate) fn claimed_by_mirrors(self) -> Option<ClaimedKeyRef<'a>> {
        match self {
            Self::Name { namespace, name } => {
                Some(ClaimedKeyRef::Name { kind: PodKind::Mirror, namespace, name })
            }
            Self::Uid(_) | Self::Text(_) | Self::ContainerId(_) | Self::Ip(_) | Self::Custom(..) => None,
        }
    }

    /// Whether this may be the key of a pod. Of text that is no pod's UID, see [`parse`](Self::parse).
    pub(crate) fn is_key(self) -> bool {
        match self {
            Self::Text(text) => Self::parse(text).is_some(),
            Self::Uid(_) | Self::Name { .. } | Self::ContainerId(_) | Self::Ip(_) | Self::Custom(..) => true,
        }
    }

    /// What text is if it is no pod's UID. Never text again. `None`: it is no key, or stands for several.
    #[cold]
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Some(address.into());
        }
        match Identity::parse(text).ok()? {
            // In one of the usual spellings, if there is white space around it or it is in upper case.
            Identity::Uid(uid) => Some(uid.into()),
            Identity::ContainerId(id) => Some(id.into()),
            Identity::Ip(ip) => Some(ip.into()),
            Identity::Name { namespace, name } => Some((namespace, name).into()),
            Identity::PodDirectory { pod_uid, .. } => Some(pod_uid.into()),
            Identity::PodLog(log) => Some(UidRef::from(log.pod_uid).into()),
            // A cgroup and a link may lead to several keys, which `Identity::resolve` looks up in order. One of them alone could be
            // another pod's, or nobody's although the next one has a pod. The index does not know processes.
            Identity::Cgroup(_) | Identity::ContainerLog(_) | Identity::Pid(_) => None,
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn from(text: &'a str) -> Self {
        let uid = UidRef::from(text);
        if uid.usual.is_some() { Self::Uid(uid) } else { Self::Text(text) }
    }
}

macro_rules! from_texts {
    ($($text:ty),*) => {$(
        impl<'a> From<&'a $text> for Key<'a> {
            // As for `&str`.
            #[inline(always)]
            fn from(text: &'a $text) -> Self {
                Self::from(&**text)
            }
        }
    )*};
}

from_texts!(&str, String, Box<str>, Arc<str>, Cow<'_, str>);

impl<'a> From<UidRef<'a>> for Key<'a> {
    #[inline]
    fn from(uid: UidRef<'a>) -> Self {
        Self::Uid(uid)
    }
}

macro_rules! from_uids {
    ($($uid:ty),*) => {$(
        impl<'a> From<&'a $uid> for Key<'a> {
            #[inline]
            fn from(uid: &'a $uid) -> Self {
                Self::Uid(uid.as_uid_ref())
            }
        }
    )*};
}

from_uids!(PodUid, MirrorPodUid, ResolvedPodUid);

/// Namespace and name, as [`Snapshot::pod_by_name`](crate::Snapshot::pod_by_name) takes them.
impl<'a, N: AsRef<str> + ?Sized, M: AsRef<str> + ?Sized> From<(&'a N, &'a M)> for Key<'a> {
    #[inline]
    fn from((namespace, name): (&'a N, &'a M)) -> Self {
        Self::Name { namespace: namespace.as_ref(), name: name.as_ref() }
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
    #[inline]
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl From<Ipv4Addr> for Key<'_> {
    #[inline]
    fn from(ip: Ipv4Addr) -> Self {
        Self::Ip(ip.into())
    }
}

impl From<Ipv6Addr> for Key<'_> {
    #[inline]
    fn from(ip: Ipv6Addr) -> Self {
        Self::Ip(ip.into())
    }
}

/// Its IP: the port is of no pod alone.
impl From<SocketAddr> for Key<'_> {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip())
    }
}

impl<'a> From<(CustomKeyKind, &'a [u8])> for Key<'a> {
    fn from((kind, key): (CustomKeyKind, &'a [u8])) -> Self {
        Self::Custom(kind, key)
    }
}

copied!(Found);

shown!(Found<'_>, |it| pod: it.pod.uid(), container: it.container, by: it.by, removed_at: it.removed_at);
