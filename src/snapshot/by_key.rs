//! Pods by container ID, by IP and by custom keys.
//!
//! If several pods name a key, the one with the strongest claim is its *holder*. The table has the holder's UID,
//! not its pod: a lookup probes a second table, but an update of the pod changes no table of keys. The others
//! are *contenders*. They are in one ordered set for all kinds, sorted by key and then by strength. For
//! container IDs and IPs, the set is nearly always empty.

use std::fmt;
use std::iter::FusedIterator;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Holder, Snapshot};
use crate::id::PodUid;
use crate::identity::ContainerId;
use crate::map::{Entry, Hashing, Labelled, Ordered, Place, Table, Text, Words, any_tag};
use crate::options::Kinds;
use crate::pod::{KeyKind, KeyRef, PodMeta, Strength, ip_number};

/// The tables of additional keys, and the contenders.
pub(crate) struct ByKey<P> {
    /// The kinds to keep. The tables of the other kinds are empty.
    pub(crate) kept: Kinds,
    pub(crate) container_ids: Table<Labelled, Holder<P>>,
    pub(crate) ips: Table<Words, Holder<P>>,
    pub(crate) keys: Table<Text, Holder<P>>,
    pub(crate) contenders: Ordered<Contender>,
}

/// A pod that names a key without holding it. Ordered by key, then by strength.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Contender {
    pub(crate) key: OwnedKey,
    pub(crate) strength: Strength,
    pub(crate) uid: PodUid,
}

/// An owned [`KeyRef`], with the same order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum OwnedKey {
    ContainerId(ContainerId),
    Ip(u128),
    /// Contenders of one key share the bytes.
    Own(KeyKind, Arc<[u8]>),
}

/// The result of [`Snapshot::pod_by_container_id`]: a pod and one of its containers.
#[non_exhaustive]
pub struct ContainerMatch<'a, P> {
    /// The pod.
    pub pod: &'a Arc<P>,
    /// The container's name in the pod.
    pub container: &'a str,
}

/// The pods that name a key, strongest claim first. See [`Snapshot::pods_by_key`].
pub struct PodsByKey<'a, P> {
    snapshot: &'a Snapshot<P>,
    next: Next<'a, P>,
}

/// Numbers of keys in a snapshot. See [`Snapshot::key_counts`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct KeyCounts {
    /// Distinct container IDs.
    pub container_ids: usize,
    /// Distinct IPs.
    pub ips: usize,
    /// Distinct custom keys.
    pub keys: usize,
    /// Number of claims to keys that another pod holds.
    pub contended: usize,
}

enum Next<'a, P> {
    /// The holder of a key.
    Holder(&'a Entry<Text, Holder<P>>),
    /// The next pod after the holder of this key, or after this contender.
    Behind(KeyRef<'a>, Option<&'a Contender>),
    End,
}

impl<P> ByKey<P> {
    pub(crate) const fn new(kept: Kinds) -> Self {
        Self {
            kept,
            container_ids: Table::new(),
            ips: Table::new(),
            keys: Table::new(),
            contenders: Ordered::new(),
        }
    }

    /// The holder of a key, and its place.
    pub(crate) fn locate(&self, key: KeyRef<'_>, hashing: &Hashing) -> Option<(Place, &PodUid)> {
        match key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, hashing);
                let found = self.container_ids.locate(hash, any_tag(hash), |entry| entry.key.words == words);
                found.map(|(place, entry)| (place, &entry.value.uid))
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, hashing);
                let found = self.ips.locate(hash, any_tag(hash), |entry| entry.key == words);
                found.map(|(place, entry)| (place, &entry.value.uid))
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, hashing);
                self.keys.locate_text(hash, kind, key).map(|(place, entry)| (place, &entry.value.uid))
            }
        }
    }

    /// The strongest contender for a key; with `last`, the next one after it.
    pub(crate) fn contender(&self, key: KeyRef<'_>, last: Option<&Contender>) -> Option<&Contender> {
        let next = match last {
            Some(last) => self.contenders.first_not(|contender| contender <= last),
            None => self.contenders.first_not(|contender| contender.key.as_ref() < key),
        };
        next.filter(|contender| contender.key.as_ref() == key)
    }
}

/// The table key of a container ID.
#[inline]
pub(crate) fn container_key(id: ContainerId, hashing: &Hashing) -> ([u64; 4], u64) {
    let words = id.words();
    (words, hashing.four_words(words))
}

/// The table key of an IP.
#[inline]
pub(crate) fn ip_key(ip: u128, hashing: &Hashing) -> (Words, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let words = ((ip >> 64) as u64, ip as u64);
    (Words(words.0, words.1), hashing.words(words))
}

/// The number that is stored with a custom key's bytes.
#[inline]
pub(crate) fn own_key(kind: KeyKind, key: &[u8], hashing: &Hashing) -> ([u8; 2], u64) {
    let kind = kind.0.to_ne_bytes();
    (kind, hashing.bytes(&kind, key))
}

impl OwnedKey {
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::ContainerId(id) => KeyRef::ContainerId(*id),
            Self::Ip(ip) => KeyRef::Ip(*ip),
            Self::Own(kind, key) => KeyRef::Own(*kind, key),
        }
    }
}

impl<P: PodMeta> Snapshot<P> {
    /// The pod with this container, and the container's name. The ID is a [`ContainerId`] or text in any of
    /// its spellings.
    ///
    /// If several pods name the ID, returns the one with the strongest claim; see [`PodMeta::keys`]. A prefix
    /// of an ID finds nothing. Neither does the ID of a sandbox, because no pod status names it.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    ///
    /// # Examples
    /// ```
    /// # struct Slim(String);
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { "u1" }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.container_id("nginx", &self.0); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// let id = "3e5f0b1c".repeat(8);
    /// writer.add_pod(Slim(format!("containerd://{id}")))?;
    ///
    /// let pods = reader.load();
    /// let found = pods.pod_by_container_id(&id).expect("it was published");
    /// assert_eq!(found.container, "nginx");
    /// assert!(pods.pod_by_container_id("3e5f0b1c3e5f").is_none());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_container_id(&self, id: impl TryInto<ContainerId>) -> Option<ContainerMatch<'_, P>> {
        let (words, hash) = container_key(id.try_into().ok()?, &self.hashing);
        let entry = self.by_key.container_ids.find(hash, any_tag(hash), |entry| entry.key.words == words)?;
        Some(ContainerMatch { pod: self.pod_by_uid(&entry.value.uid)?, container: entry.key.label.as_str() })
    }

    /// The pod with this IP. An IPv4 address mapped to IPv6 equals the IPv4 address.
    ///
    /// If several pods name the IP, returns the one with the strongest claim; see [`PodMeta::keys`]. Pods in
    /// their node's network have no IP of their own, so this does not find them.
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
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// #     fn keys(&self, keys: &mut pod_index::PodKeys<'_>) { keys.ip_text("10.0.0.7"); }
    /// # }
    /// # let (mut writer, reader) = pod_index::new();
    /// writer.add_pod(Slim)?;
    /// assert!(reader.load().pod_by_ip([10, 0, 0, 7].into()).is_some());
    /// assert!(reader.load().pod_by_ip("::ffff:10.0.0.7".parse().unwrap()).is_some());
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pod_by_ip(&self, ip: IpAddr) -> Option<&Arc<P>> {
        let (words, hash) = ip_key(ip_number(ip), &self.hashing);
        let entry = self.by_key.ips.find(hash, any_tag(hash), |entry| entry.key == words)?;
        self.pod_by_uid(&entry.value.uid)
    }

    /// The pods that name this custom key, strongest claim first; see [`PodMeta::keys`].
    ///
    /// # Complexity
    /// O(1) expected for the first pod, O(log n) for each further one; no allocation.
    ///
    /// # Examples
    /// See [`PodMeta::keys`].
    #[must_use]
    pub fn pods_by_key(&self, kind: KeyKind, key: &[u8]) -> PodsByKey<'_, P> {
        let (kind, hash) = own_key(kind, key, &self.hashing);
        let next = self.by_key.keys.find_text(hash, kind, key).map_or(Next::End, Next::Holder);
        PodsByKey { snapshot: self, next }
    }

    /// Number of distinct keys that the pods of this snapshot name.
    ///
    /// # Complexity
    /// O(1).
    #[must_use]
    pub fn key_counts(&self) -> KeyCounts {
        let ByKey { container_ids, ips, keys, contenders, .. } = &self.by_key;
        let (container_ids, ips, keys) = (container_ids.len(), ips.len(), keys.len());
        KeyCounts { container_ids, ips, keys, contended: contenders.len() }
    }

    /// Number of ignored keys of all pods: those beyond [`MAX_KEYS_PER_POD`](crate::MAX_KEYS_PER_POD), empty
    /// ones, ones longer than [`MAX_KEY_LENGTH`](crate::MAX_KEY_LENGTH), and invalid container IDs and IPs.
    ///
    /// The pods themselves and all their other keys are in the index.
    ///
    /// # Complexity
    /// O(1).
    #[must_use]
    pub fn ignored_key_count(&self) -> usize {
        self.history.ignored_keys
    }
}

impl<'a, P: PodMeta> Iterator for PodsByKey<'a, P> {
    type Item = &'a Arc<P>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match std::mem::replace(&mut self.next, Next::End) {
                Next::End => return None,
                Next::Holder(entry) => {
                    let (kind, key) = entry.key.record.bytes();
                    let kind = KeyKind(u16::from_ne_bytes(kind.try_into().ok()?));
                    self.next = Next::Behind(KeyRef::Own(kind, key), None);
                    if let Some(pod) = self.snapshot.pod_by_uid(&entry.value.uid) {
                        return Some(pod);
                    }
                }
                Next::Behind(key, last) => {
                    let contender = self.snapshot.by_key.contender(key, last)?;
                    self.next = Next::Behind(key, Some(contender));
                    // A pod whose keys changed may have left its claim.
                    if let Some(pod) = self.snapshot.pod_by_uid(&contender.uid) {
                        return Some(pod);
                    }
                }
            }
        }
    }
}

impl<P: PodMeta> FusedIterator for PodsByKey<'_, P> {}

// None of these is derived: a derive would require the same of `P`.
impl<P> Clone for PodsByKey<'_, P> {
    fn clone(&self) -> Self {
        Self { snapshot: self.snapshot, next: self.next }
    }
}

impl<P> Clone for Next<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Next<'_, P> {}

impl<P: PodMeta> fmt::Debug for PodsByKey<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone().map(PodMeta::uid)).finish()
    }
}

impl<P> Clone for ContainerMatch<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for ContainerMatch<'_, P> {}

impl<P: PodMeta> fmt::Debug for ContainerMatch<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, container } = self;
        f.debug_struct("ContainerMatch").field("pod", &pod.uid()).field("container", container).finish()
    }
}
