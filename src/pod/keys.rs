//! The additional keys of a pod: those that it names, within limits.
//!
//! This module collects the claims of one pod. `update` decides which pod gets a key.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::{PodKind, PodMeta};
use crate::identity::ContainerId;

/// Maximum number of keys per pod. The index ignores further ones and counts them in
/// [`Snapshot::ignored_key_count`](crate::Snapshot::ignored_key_count).
///
/// The API server stores no pod of more than 1.5 MiB, which is enough for a few hundred containers.
pub const MAX_KEYS_PER_POD: usize = 1024;

/// Maximum length in bytes of a custom key or a container's name. Longer ones are ignored and counted too.
pub const MAX_KEY_LENGTH: usize = 1024;

/// A kind of custom keys, such as "owner" or "label". IPs, names and container IDs need none.
///
/// The number has no meaning to the index. `KeyKind(u16::MAX)` is taken if pods are k8s-openapi's: it is
/// `pod_index::workload::WORKLOAD`, the key that those have of their workload. Any other is yours.
///
/// # Examples
/// ```
/// use pod_index::KeyKind;
///
/// const OWNER: KeyKind = KeyKind(1);
/// const VOLUME: KeyKind = KeyKind(2);
/// assert_ne!(OWNER, VOLUME);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyKind(pub u16);

/// Collects the keys that a pod names in [`PodMeta::keys`](crate::PodMeta::keys), and the strength of its
/// claim to them.
///
/// The order of calls matters only if there are too many keys: the first ones count. A repeated key is kept
/// once, but each time it is named counts towards the limit.
///
/// # Examples
/// See [`PodMeta::keys`](crate::PodMeta::keys).
pub struct PodKeys<'a> {
    claims: &'a mut Claims,
    /// Whether only the strength is asked for, so that the keys themselves need no list.
    only_strength: bool,
}

/// The strength of a pod's claim to its keys; the smallest is the strongest. If two are equally strong, the
/// smaller UID wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Strength {
    finished: bool,
    terminating: bool,
    created: Reverse<i64>,
}

/// A key as pods claim it. The order of the kinds has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum AnyClaim<B, S> {
    ContainerId(ContainerId),
    Ip(u128),
    Custom(KeyKind, B),
    /// A full name, of a pod or a mirror pod.
    Name(PodKind, S, S),
}

/// What a kind of key depends on in time: when a pod gets it and loses it, and whether two pods can have it at once. All rules
/// of time ask for this, and not for the kind itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tenure {
    /// It is one pod's for ever, so that nothing about times is stored: a container ID.
    Forever,
    /// On the pod's sandbox, which may be another one after a while; one pod has it at a time: an IP.
    Sandbox,
    /// On the pod's object; one pod has it at a time: a name.
    Object,
    /// On the pod's object, which can gain and lose it; many pods may have it at a time: a custom key.
    Shared,
}

impl<B, S> AnyClaim<B, S> {
    /// What this kind of key depends on in time.
    #[inline]
    pub(crate) const fn tenure(&self) -> Tenure {
        match self {
            Self::ContainerId(_) => Tenure::Forever,
            Self::Ip(_) => Tenure::Sandbox,
            Self::Name(..) => Tenure::Object,
            Self::Custom(..) => Tenure::Shared,
        }
    }
}

impl Tenure {
    /// Whether two pods never have a key of this kind at once.
    pub(crate) const fn is_exclusive(self) -> bool {
        match self {
            Self::Forever | Self::Sandbox | Self::Object => true,
            Self::Shared => false,
        }
    }
}

/// A claimed key that borrows its bytes.
pub(crate) type ClaimRef<'a> = AnyClaim<&'a [u8], &'a str>;

/// A claimed key that owns its bytes, with the same order.
pub(crate) type OwnedClaim = AnyClaim<Arc<[u8]>, Arc<str>>;

/// A key as a pod names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedClaim<'a> {
    pub(crate) key: ClaimRef<'a>,
    /// The container's name, if the key is a container ID.
    pub(crate) container: Option<&'a Arc<str>>,
}

/// The claims of one pod.
pub(crate) struct Claims {
    pub(crate) strength: Strength,
    /// Sorted, each once. Beside a container ID, the container's name.
    pub(crate) keys: Vec<(OwnedClaim, Option<Arc<str>>)>,
    /// Number of ignored keys.
    pub(crate) ignored: usize,
}

/// An IP address as a number; IPv4 is mapped to IPv6.
#[inline]
pub(crate) fn ip_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

impl PodKeys<'_> {
    /// A container of the pod, by its name and its ID: the 64 digits, alone or after `runtime://` as in
    /// statuses.
    ///
    /// Name the containers of all kinds, including the last terminated ones. An empty ID, of a container that
    /// has not started, is skipped. An invalid ID, such as its first 12 digits, is ignored and counted.
    pub fn container_id(&mut self, container: &str, id: &str) {
        if !id.is_empty() && !self.only_strength {
            let id = ContainerId::parse(id).filter(|_| container.len() <= MAX_KEY_LENGTH);
            self.add(id.map(OwnedClaim::ContainerId), Some(container));
        }
    }

    /// An IP address of the pod. An IPv4 address mapped to IPv6 equals the IPv4 address.
    ///
    /// A pod in its node's network has none.
    pub fn ip(&mut self, ip: IpAddr) {
        self.add(Some(OwnedClaim::Ip(ip_number(ip))), None);
    }

    /// Like [`ip`](Self::ip), from text. Empty text is skipped; an invalid address is ignored and counted.
    pub fn ip_text(&mut self, ip: &str) {
        if !ip.is_empty() && !self.only_strength {
            self.add(ip.parse().ok().map(|ip| OwnedClaim::Ip(ip_number(ip))), None);
        }
    }

    /// A custom key, which several pods may have. An empty key, and one of more than [`MAX_KEY_LENGTH`]
    /// bytes, is ignored and counted.
    pub fn key(&mut self, kind: KeyKind, key: impl AsRef<[u8]>) {
        if self.only_strength {
            return;
        }
        let key = Some(key.as_ref()).filter(|key| (1..=MAX_KEY_LENGTH).contains(&key.len()));
        self.add(key.map(|key| OwnedClaim::Custom(kind, key.into())), None);
    }

    /// When the pod was created, in whole seconds since 1970. If several pods name one key, the one created
    /// later has the stronger claim; a pod without this time has the weakest.
    pub fn created(&mut self, seconds: i64) {
        self.claims.strength.created = Reverse(seconds);
    }

    /// Whether the pod has finished (`Succeeded` or `Failed`); `false` by default. Its claims are weaker than
    /// those of all pods that have not.
    pub fn finished(&mut self, finished: bool) {
        self.claims.strength.finished = finished;
    }

    /// Whether the pod is being deleted (it has a `deletionTimestamp`); `false` by default. Of two pods that both have
    /// finished, or both have not, the one that is being deleted has the weaker claims.
    pub fn terminating(&mut self, terminating: bool) {
        self.claims.strength.terminating = terminating;
    }

    /// Ignores and counts an invalid key, which is `None`, and one too many.
    fn add(&mut self, key: Option<OwnedClaim>, container: Option<&str>) {
        if self.only_strength {
            return;
        }
        match key.filter(|_| self.claims.keys.len() < MAX_KEYS_PER_POD) {
            Some(key) => self.claims.keys.push((key, container.map(Arc::from))),
            None => self.claims.ignored += 1,
        }
    }
}

impl Strength {
    /// Of a pod that says nothing about itself.
    const DEFAULT: Self = Self { finished: false, terminating: false, created: Reverse(i64::MIN) };

    /// That of a pod's claims: what a contested key is decided by. Makes no list of the keys.
    pub(crate) fn of<P: PodMeta>(pod: &P) -> Self {
        let mut claims = Claims::NONE;
        pod.keys(&mut PodKeys { claims: &mut claims, only_strength: true });
        claims.strength
    }

    /// The claims of a removed pod: those of the last removal are the strongest.
    pub(crate) const fn of_removal(number: u64) -> Self {
        Self { created: Reverse(number.cast_signed()), ..Self::DEFAULT }
    }
}

impl Claims {
    /// Of no pod.
    pub(crate) const NONE: Self = Self { strength: Strength::DEFAULT, keys: Vec::new(), ignored: 0 };

    pub(crate) fn of<P: PodMeta>(pod: &P) -> Self {
        let mut claims = Self::NONE;
        pod.keys(&mut PodKeys { claims: &mut claims, only_strength: false });
        // Stable, so that of a key that is named twice, the first one stays.
        claims.keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        claims.keys.dedup_by(|(one, _), (other, _)| one == other);
        claims
    }

    /// Whether the pod named a key, even one that is ignored.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.keys.is_empty() || self.ignored > 0
    }

    /// Whether the pod named this key.
    pub(crate) fn has(&self, key: ClaimRef<'_>) -> bool {
        self.keys.binary_search_by(|(other, _)| other.as_ref().cmp(&key)).is_ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NamedClaim<'_>> {
        self.keys
            .iter()
            .map(|(key, container)| NamedClaim { key: key.as_ref(), container: container.as_ref() })
    }
}

impl OwnedClaim {
    pub(crate) fn new(key: ClaimRef<'_>) -> Self {
        match key {
            ClaimRef::ContainerId(id) => Self::ContainerId(id),
            ClaimRef::Ip(ip) => Self::Ip(ip),
            ClaimRef::Custom(kind, bytes) => Self::Custom(kind, bytes.into()),
            ClaimRef::Name(kind, name, namespace) => Self::Name(kind, name.into(), namespace.into()),
        }
    }

    pub(crate) fn as_ref(&self) -> ClaimRef<'_> {
        match self {
            Self::ContainerId(id) => ClaimRef::ContainerId(*id),
            Self::Ip(ip) => ClaimRef::Ip(*ip),
            Self::Custom(kind, key) => ClaimRef::Custom(*kind, key),
            Self::Name(kind, name, namespace) => ClaimRef::Name(*kind, name, namespace),
        }
    }
}
