//! A key in the form in which pods claim it, and how its kind behaves in time.

use std::net::IpAddr;
use std::sync::Arc;

use super::{CustomKeyKind, PodKind};
use crate::identity::ContainerId;

/// A key in the form in which pods claim it: any key but a UID, which has one pod only. The order of the kinds has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum ClaimedKey<B, S> {
    ContainerId(ContainerId),
    /// See [`ip_number`].
    Ip(u128),
    Custom(CustomKeyKind, B),
    /// A full name, of a pod or a mirror pod. The name is compared before the namespace, because it tells more of them apart.
    Name {
        kind: PodKind,
        name: S,
        namespace: S,
    },
}

/// A claimed key that borrows its bytes.
pub(crate) type ClaimedKeyRef<'a> = ClaimedKey<&'a [u8], &'a str>;

/// A claimed key that owns its bytes, with the same order.
pub(crate) type OwnedClaimedKey = ClaimedKey<Arc<[u8]>, Arc<str>>;

/// How a kind of key behaves in time. All rules of time ask for this, and not for the kind itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tenure {
    pub(crate) lasts: Lasts,
    /// Whether two pods never have one key of this kind at once.
    pub(crate) is_exclusive: bool,
}

/// How long a pod has a key, which says what shows that it had it at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lasts {
    /// For ever: no other pod ever gets it, so that nothing about times is stored.
    Forever,
    /// As long as the pod's sandbox, which gives it and may be another one after a while.
    AsLongAsSandbox,
    /// As long as the pod's object, from its creation on: no update of an API server adds it or takes it away. If another
    /// source's update does, the pod has it from then on, or until then.
    AsLongAsObject,
    /// As long as the pod's object names it: any update may add it or take it away.
    AsLongAsNamed,
}

impl<B, S> ClaimedKey<B, S> {
    /// How this kind of key behaves in time.
    #[inline]
    pub(crate) const fn tenure(&self) -> Tenure {
        match self {
            Self::ContainerId(_) => Tenure { lasts: Lasts::Forever, is_exclusive: true },
            Self::Ip(_) => Tenure { lasts: Lasts::AsLongAsSandbox, is_exclusive: true },
            Self::Name { .. } => Tenure { lasts: Lasts::AsLongAsObject, is_exclusive: true },
            Self::Custom(..) => Tenure { lasts: Lasts::AsLongAsNamed, is_exclusive: false },
        }
    }
}

impl OwnedClaimedKey {
    pub(crate) fn new(key: ClaimedKeyRef<'_>) -> Self {
        match key {
            ClaimedKeyRef::ContainerId(id) => Self::ContainerId(id),
            ClaimedKeyRef::Ip(ip) => Self::Ip(ip),
            ClaimedKeyRef::Custom(kind, bytes) => Self::Custom(kind, bytes.into()),
            ClaimedKeyRef::Name { kind, namespace, name } => {
                Self::Name { kind, namespace: namespace.into(), name: name.into() }
            }
        }
    }

    pub(crate) fn as_ref(&self) -> ClaimedKeyRef<'_> {
        match self {
            Self::ContainerId(id) => ClaimedKeyRef::ContainerId(*id),
            Self::Ip(ip) => ClaimedKeyRef::Ip(*ip),
            Self::Custom(kind, key) => ClaimedKeyRef::Custom(*kind, key),
            Self::Name { kind, namespace, name } => ClaimedKeyRef::Name { kind: *kind, namespace, name },
        }
    }
}

/// An IP address as a number; IPv4 is mapped to IPv6.
#[inline]
pub(crate) fn ip_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}
