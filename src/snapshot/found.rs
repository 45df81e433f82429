//! The keys by which pods are looked up, and the result of a lookup.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::id::{FullName, UidRef};
use crate::identity::ContainerId;
use crate::pod::{KeyKind, KeyRef, PodKind, ip_number};

/// The result of a lookup: a pod, and by what it was found.
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

/// A key by which [`Snapshot::get`](crate::Snapshot::get) finds a pod.
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
/// # Ok::<(), pod_index::ParseIdError>(())
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
    /// As for [`Snapshot::pods_by_key`](crate::Snapshot::pods_by_key).
    Own(KeyKind, &'a [u8]),
}

impl<'a> Key<'a> {
    #[inline]
    pub(crate) fn found_by(self) -> FoundBy {
        match self {
            Self::Uid(_) => FoundBy::Uid,
            Self::Name { .. } => FoundBy::Name,
            Self::ContainerId(_) => FoundBy::ContainerId,
            Self::Ip(_) => FoundBy::Ip,
            Self::Own(..) => FoundBy::Key,
        }
    }

    /// The key as pods of this kind claim it. `None` if they do not: a UID has only one pod, and mirror pods claim only
    /// names.
    #[inline]
    pub(crate) fn claimed(self, kind: PodKind) -> Option<KeyRef<'a>> {
        match self {
            Self::Uid(_) => None,
            Self::Name { namespace, name } => Some(KeyRef::Name(kind, name, namespace)),
            _ if kind == PodKind::Mirror => None,
            Self::ContainerId(id) => Some(KeyRef::ContainerId(id)),
            Self::Ip(ip) => Some(KeyRef::Ip(ip_number(ip))),
            Self::Own(kind, key) => Some(KeyRef::Own(kind, key)),
        }
    }
}

/// Whatever lookups by UID take.
impl<'a, T: Into<UidRef<'a>>> From<T> for Key<'a> {
    #[expect(clippy::inline_always, reason = "see `Packed::parse`")]
    #[inline(always)]
    fn from(uid: T) -> Self {
        Self::Uid(uid.into())
    }
}

/// Namespace and name, as [`Snapshot::pod_by_name`](crate::Snapshot::pod_by_name) takes them.
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

copied!(Found);

shown!(Found<'_>, |it| pod: it.pod.uid(), container: it.container, by: it.by, removed_at: it.removed_at);
