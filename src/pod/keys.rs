//! The additional keys of a pod, which are those that it names beside its UID and its full name, within limits.
//!
//! This module collects the claims of one pod. `update` decides which pod gets a key.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::PodMeta;
use super::claimed_key::{ClaimedKeyRef, OwnedClaimedKey, ip_number};
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
/// The number has no meaning to the index. `CustomKeyKind(u16::MAX)` is taken if pods are k8s-openapi's: it is
/// `pod_index::workload::WORKLOAD`, the key that those have of their workload. Any other is yours.
///
/// # Examples
/// ```
/// use pod_index::CustomKeyKind;
///
/// const OWNER: CustomKeyKind = CustomKeyKind(1);
/// const VOLUME: CustomKeyKind = CustomKeyKind(2);
/// assert_ne!(OWNER, VOLUME);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CustomKeyKind(pub u16);

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

/// A pod's claim to one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) key: ClaimedKeyRef<'a>,
    /// The container's name, if the key is a container ID.
    pub(crate) container: Option<&'a Arc<str>>,
}

/// A claim that owns its key.
#[derive(PartialEq, Eq)]
struct OwnedClaim {
    key: OwnedClaimedKey,
    container: Option<Arc<str>>,
}

/// The claims of one pod.
pub(crate) struct Claims {
    pub(crate) strength: Strength,
    /// Sorted by key, each key once.
    list: Vec<OwnedClaim>,
    /// Number of ignored keys.
    pub(crate) ignored: usize,
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
            self.add(id.map(OwnedClaimedKey::ContainerId), Some(container));
        }
    }

    /// An IP address of the pod. An IPv4 address mapped to IPv6 equals the IPv4 address.
    ///
    /// A pod in its node's network has none.
    pub fn ip(&mut self, ip: IpAddr) {
        self.add(Some(OwnedClaimedKey::Ip(ip_number(ip))), None);
    }

    /// Like [`ip`](Self::ip), from text. Empty text is skipped; an invalid address is ignored and counted.
    pub fn ip_text(&mut self, ip: &str) {
        if !ip.is_empty() && !self.only_strength {
            self.add(ip.parse().ok().map(|ip| OwnedClaimedKey::Ip(ip_number(ip))), None);
        }
    }

    /// A custom key, which several pods may have. An empty key, and one of more than [`MAX_KEY_LENGTH`]
    /// bytes, is ignored and counted.
    pub fn custom_key(&mut self, kind: CustomKeyKind, key: impl AsRef<[u8]>) {
        if self.only_strength {
            return;
        }
        let key = Some(key.as_ref()).filter(|key| (1..=MAX_KEY_LENGTH).contains(&key.len()));
        self.add(key.map(|key| OwnedClaimedKey::Custom(kind, key.into())), None);
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
    fn add(&mut self, key: Option<OwnedClaimedKey>, container: Option<&str>) {
        if self.only_strength {
            return;
        }
        match key.filter(|_| self.claims.list.len() < MAX_KEYS_PER_POD) {
            Some(key) => self.claims.list.push(OwnedClaim { key, container: container.map(Arc::from) }),
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

    pub(crate) const fn is_finished(self) -> bool {
        self.finished
    }

    /// The claims of a removed pod: those of the last removal are the strongest.
    pub(crate) const fn of_removal(number: u64) -> Self {
        Self { created: Reverse(number.cast_signed()), ..Self::DEFAULT }
    }
}

impl Claims {
    /// Of no pod.
    pub(crate) const NONE: Self = Self { strength: Strength::DEFAULT, list: Vec::new(), ignored: 0 };

    pub(crate) fn of<P: PodMeta>(pod: &P) -> Self {
        let mut claims = Self::NONE;
        pod.keys(&mut PodKeys { claims: &mut claims, only_strength: false });
        // Stable, so that of a key that is named twice, the first one stays.
        claims.list.sort_by(|one, other| one.key.cmp(&other.key));
        claims.list.dedup_by(|one, other| one.key == other.key);
        claims
    }

    /// Whether the pod named a key, even one that is ignored.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.list.is_empty() || self.ignored > 0
    }

    /// Whether the pod named this key.
    pub(crate) fn has(&self, key: ClaimedKeyRef<'_>) -> bool {
        self.list.binary_search_by(|claim| claim.key.as_ref().cmp(&key)).is_ok()
    }

    /// Whether these are claims to the same keys, and the containers have the same names.
    pub(crate) fn same_keys(&self, other: &Self) -> bool {
        self.list == other.list
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Claim<'_>> {
        self.list
            .iter()
            .map(|OwnedClaim { key, container }| Claim { key: key.as_ref(), container: container.as_ref() })
    }
}
