//! The additional keys of a pod: those that it names, within limits.
//!
//! This module collects the claims of one pod. `update` decides which pod gets a key.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::Range;

use super::PodKind;
use crate::identity::ContainerId;
use crate::options::Kinds;

/// Maximum number of keys per pod. The index ignores further ones and counts them in
/// [`Snapshot::ignored_key_count`](crate::Snapshot::ignored_key_count).
///
/// The API server stores no pod of more than 1.5 MiB, which is enough for a few hundred containers.
pub const MAX_KEYS_PER_POD: usize = 1024;

/// Maximum length in bytes of a custom key or a container's name. Longer ones are ignored and counted too.
pub const MAX_KEY_LENGTH: usize = 1024;

/// A kind of custom keys, such as "owner" or "label". The number has no meaning to the index.
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
pub struct PodKeys<'a> {
    kept: Kinds,
    claims: &'a mut Claims,
}

/// The strength of a pod's claim to its keys; the smallest is the strongest. If two are equally strong, the
/// smaller UID wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Strength {
    finished: bool,
    terminating: bool,
    created: Reverse<i64>,
}

/// A key that borrows its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum KeyRef<'a> {
    ContainerId(ContainerId),
    Ip(u128),
    Own(KeyKind, &'a [u8]),
    /// The name and the namespace of a removed pod.
    Name(PodKind, &'a str, &'a str),
}

/// A key as named by a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedKey<'a> {
    pub(crate) key: KeyRef<'a>,
    /// The container's name, if the key is a container ID; otherwise empty.
    pub(crate) container: &'a str,
}

/// The claims of one pod. Reused for one pod after the other, to reuse its memory.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) strength: Strength,
    items: Vec<Item>,
    /// Custom keys that items refer to, concatenated.
    bytes: Vec<u8>,
    /// Names of containers that items refer to, concatenated.
    names: String,
    /// Number of ignored keys.
    pub(crate) ignored: usize,
}

#[derive(Debug)]
enum Item {
    ContainerId(ContainerId, Range<u32>),
    Ip(u128),
    Own(KeyKind, Range<u32>),
}

/// Memory beyond this is not kept for the next pod.
const MAX_KEPT_BYTES: usize = 1 << 14;

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
        if !self.kept.container_ids || id.is_empty() {
            return;
        }
        match ContainerId::try_from(id) {
            Ok(id) if container.len() <= MAX_KEY_LENGTH && self.has_room() => {
                let start = self.claims.names.len();
                self.claims.names.push_str(container);
                self.claims.items.push(Item::ContainerId(id, range(start, self.claims.names.len())));
            }
            _ => self.claims.ignored += 1,
        }
    }

    /// An IP address of the pod. An IPv4 address mapped to IPv6 equals the IPv4 address.
    ///
    /// A pod in its node's network has none.
    pub fn ip(&mut self, ip: IpAddr) {
        if !self.kept.ips {
            return;
        }
        if self.has_room() {
            self.claims.items.push(Item::Ip(ip_number(ip)));
        } else {
            self.claims.ignored += 1;
        }
    }

    /// Like [`ip`](Self::ip), from text. Empty text is skipped; an invalid address is ignored and counted.
    pub fn ip_text(&mut self, ip: &str) {
        if !self.kept.ips || ip.is_empty() {
            return;
        }
        match ip.parse() {
            Ok(ip) => self.ip(ip),
            Err(_) => self.claims.ignored += 1,
        }
    }

    /// A custom key, which several pods may have. An empty key, and one of more than [`MAX_KEY_LENGTH`]
    /// bytes, is ignored and counted.
    pub fn key(&mut self, kind: KeyKind, key: impl AsRef<[u8]>) {
        if !self.kept.keys {
            return;
        }
        let key = key.as_ref();
        if (1..=MAX_KEY_LENGTH).contains(&key.len()) && self.has_room() {
            let start = self.claims.bytes.len();
            self.claims.bytes.extend_from_slice(key);
            self.claims.items.push(Item::Own(kind, range(start, self.claims.bytes.len())));
        } else {
            self.claims.ignored += 1;
        }
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

    /// Whether the index keeps container IDs. If not, there is no need to name them; likewise for the other
    /// kinds.
    #[must_use]
    pub fn wants_container_ids(&self) -> bool {
        self.kept.container_ids
    }

    /// Whether the index keeps IPs.
    #[must_use]
    pub fn wants_ips(&self) -> bool {
        self.kept.ips
    }

    /// Whether the index keeps custom keys.
    #[must_use]
    pub fn wants_keys(&self) -> bool {
        self.kept.keys
    }

    fn has_room(&self) -> bool {
        self.claims.items.len() < MAX_KEYS_PER_POD
    }
}

impl std::fmt::Debug for PodKeys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodKeys").field("keys", &self.claims.items.len()).finish_non_exhaustive()
    }
}

impl Strength {
    /// Of a pod that says nothing about itself.
    const DEFAULT: Self = Self { finished: false, terminating: false, created: Reverse(i64::MIN) };

    /// The claims of a removed pod: those of the last removal are the strongest.
    pub(crate) const fn of_removal(number: u64) -> Self {
        Self { created: Reverse(number.cast_signed()), ..Self::DEFAULT }
    }
}

impl Claims {
    pub(crate) const fn new() -> Self {
        let strength = Strength::DEFAULT;
        Self { strength, items: Vec::new(), bytes: Vec::new(), names: String::new(), ignored: 0 }
    }

    /// Clears the claims, and collects those of `name`.
    #[inline]
    pub(crate) fn collect(&mut self, kept: Kinds, name: impl FnOnce(&mut PodKeys<'_>)) {
        self.items.clear();
        self.bytes.clear();
        self.names.clear();
        self.ignored = 0;
        self.strength = Strength::DEFAULT;
        name(&mut PodKeys { kept, claims: self });
    }

    /// Whether the pod named a key, even one that is ignored.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.items.is_empty() || self.ignored > 0
    }

    /// Sorts the keys and removes duplicates: the one named first stays.
    pub(crate) fn sort(&mut self) {
        let Self { items, bytes, .. } = self;
        // Stable, so that the first one named stays first.
        if !items.is_sorted_by(|one, other| one.key(bytes) < other.key(bytes)) {
            items.sort_by(|one, other| one.key(bytes).cmp(&other.key(bytes)));
            items.dedup_by(|one, other| one.key(bytes) == other.key(bytes));
        }
    }

    /// Whether both name the same few keys in the same order, each once. Then they need not be sorted.
    pub(crate) fn alike(&self, other: &Self) -> bool {
        const FEW: usize = 8;
        let mut both = self.items.iter().zip(&other.items).enumerate();
        let is_short = self.items.len() == other.items.len() && self.items.len() <= FEW;
        is_short
            && both.all(|(at, (one, other_one))| {
                let key = one.key(&self.bytes);
                let is_new = self.items[..at].iter().all(|before| before.key(&self.bytes) != key);
                is_new && key == other_one.key(&other.bytes)
            })
    }

    /// Whether the pod named this key. The keys are sorted.
    pub(crate) fn has(&self, key: KeyRef<'_>) -> bool {
        self.items.binary_search_by(|item| item.key(&self.bytes).cmp(&key)).is_ok()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NamedKey<'_>> {
        self.items
            .iter()
            .map(|item| NamedKey { key: item.key(&self.bytes), container: item.container(&self.names) })
    }

    /// Frees the memory of a pod with unusually many keys.
    pub(crate) fn trim(&mut self) {
        let texts = self.bytes.capacity() + self.names.capacity();
        if texts + self.items.capacity() * size_of::<Item>() > MAX_KEPT_BYTES {
            *self = Self::new();
        }
    }
}

impl Default for Claims {
    fn default() -> Self {
        Self::new()
    }
}

impl Item {
    #[inline]
    fn key<'a>(&self, bytes: &'a [u8]) -> KeyRef<'a> {
        match self {
            Self::ContainerId(id, _) => KeyRef::ContainerId(*id),
            Self::Ip(ip) => KeyRef::Ip(*ip),
            Self::Own(kind, key) => {
                KeyRef::Own(*kind, bytes.get(key.start as usize..key.end as usize).unwrap_or_default())
            }
        }
    }

    #[inline]
    fn container<'a>(&self, names: &'a str) -> &'a str {
        match self {
            Self::ContainerId(_, name) => {
                names.get(name.start as usize..name.end as usize).unwrap_or_default()
            }
            Self::Ip(_) | Self::Own(..) => "",
        }
    }
}

/// Shorter than a range of `usize`. A pod's keys have at most a mebibyte.
#[inline]
fn range(start: usize, end: usize) -> Range<u32> {
    let number = |at| u32::try_from(at).unwrap_or(u32::MAX);
    number(start)..number(end)
}
