//! The tables of a set of pods. A snapshot has one such set for the current pods and, if it keeps removed pods,
//! another one for those.
//!
//! Every table has the pod in its entries, so that a lookup by any key searches one table.
//!
//! If several pods claim a key, the one with the strongest claim is its *holder*: it is in the table. The others are
//! *contenders*. They are in one ordered set for all kinds of keys, sorted by key and then by strength. For container
//! IDs and IPs, the set is nearly always empty.

use std::sync::Arc;

use super::key::{CONTESTED, Mirror, UidKey};
use crate::id::{PodUid, UidRef};
use crate::identity::ContainerId;
use crate::map::{
    Entry, Hashing, Key, Labelled, Ordered, Place, PodValue, Table, Text, Value, Words, any_tag,
};
use crate::options::Kinds;
use crate::pod::{Claims, KeyKind, KeyRef, PodKind, PodMeta, Strength};

/// Declares the tables. This is the only list of them.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $value:ty,)*) => {
        /// The tables of a set of pods; see the module.
        pub(crate) struct Tables<V> {
            $($(#[$doc])* pub(crate) $name: Table<$key, $value>,)*
            /// Claims to keys that another pod holds.
            pub(crate) contenders: Ordered<Contender>,
        }

        impl<V> Tables<V> {
            pub(crate) const fn new() -> Self {
                Self { $($name: Table::new(),)* contenders: Ordered::new() }
            }

            $(pub(crate) const fn $name() -> Field<V, $key, $value> {
                Field(|tables| &mut tables.$name)
            })*
        }

        impl<V: PodValue> Tables<V> {
            /// Works on each table, given with the same table of another version.
            pub(crate) fn each(&mut self, other: &Self, work: &mut impl EachTable<V::Pod>) {
                $(work.table(&mut self.$name, &other.$name);)*
            }
        }
    };
}

tables! {
    /// Pods by UID.
    pods: Words => V,
    /// Again the static ones among them, for reads that need only those.
    static_pods: Words => V,
    /// Mirror pods by UID, with the UID's translation.
    mirrors: Words => Mirror<V>,
    /// Pods by full name.
    names: Text => V,
    /// Mirror pods by full name. The texts of the names are shared with `names`.
    mirror_names: Text => V,
    /// Pods by container ID, with the container's name.
    container_ids: Labelled => V,
    /// Pods by IP.
    ips: Words => V,
    /// Pods by custom key.
    keys: Text => V,
}

/// Names one of the tables. Only who may write to all of them can use it.
pub(crate) struct Field<V, K, T>(fn(&mut Tables<V>) -> &mut Table<K, T>);

/// What is done with each table.
pub(crate) trait EachTable<P> {
    fn table<K: Key, T: Value<Pod = P>>(&mut self, table: &mut Table<K, T>, other: &Table<K, T>);
}

/// A pod that can claim keys.
pub(crate) trait Claimant: PodValue<Pod: PodMeta> + Clone {
    /// Whether it claims its name as a key. The names of current pods have rules of their own.
    const CLAIMS_NAME: bool;
    /// The strength of its claims.
    fn strength(&self, kept: Kinds) -> Strength;
}

/// A pod that claims a key without holding it. Ordered by key, then by strength.
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
    Name(PodKind, Arc<str>, Arc<str>),
}

/// The claimants of a key, the strongest one first: its holder, then the contenders.
pub(crate) struct Claimants<'a, V> {
    tables: &'a Tables<V>,
    hashing: &'a Hashing,
    next: Next<'a, V>,
}

enum Next<'a, V> {
    Holder(&'a V, Option<&'a Contender>),
    Contender(Option<&'a Contender>),
}

impl<V, K, T> Field<V, K, T> {
    #[inline]
    pub(crate) fn of(self, tables: &mut Tables<V>) -> &mut Table<K, T> {
        self.0(tables)
    }
}

/// Asks for the same kinds of keys as when they were claimed: a pod may answer differently otherwise.
impl<P: PodMeta> Claimant for Arc<P> {
    const CLAIMS_NAME: bool = false;

    fn strength(&self, kept: Kinds) -> Strength {
        let mut claims = Claims::new();
        claims.collect(kept, |keys| self.keys(keys));
        claims.strength
    }
}

impl<V> Tables<V> {
    #[inline]
    pub(crate) fn of_names(&self, kind: PodKind) -> &Table<Text, V> {
        match kind {
            PodKind::Pod => &self.names,
            PodKind::Mirror => &self.mirror_names,
        }
    }

    pub(crate) fn names_of(kind: PodKind) -> Field<V, Text, V> {
        match kind {
            PodKind::Pod => Self::names(),
            PodKind::Mirror => Self::mirror_names(),
        }
    }

    /// The pod with a full name.
    #[inline]
    pub(crate) fn by_name(
        &self,
        kind: PodKind,
        name: &str,
        namespace: &str,
        hashing: &Hashing,
    ) -> Option<&V> {
        Some(&self.of_names(kind).find_text(hashing.pair(name, namespace), name, namespace)?.value)
    }

    #[inline]
    pub(crate) fn by_container_id(&self, id: ContainerId, hashing: &Hashing) -> Option<&Entry<Labelled, V>> {
        let (words, hash) = container_key(id, hashing);
        self.container_ids.find(hash, any_tag(hash), |entry| entry.key.words == words)
    }

    #[inline]
    pub(crate) fn by_ip(&self, ip: u128, hashing: &Hashing) -> Option<&V> {
        let (words, hash) = ip_key(ip, hashing);
        Some(&self.ips.find(hash, any_tag(hash), |entry| entry.key == words)?.value)
    }

    /// The pod that alone claims an IP.
    #[inline]
    pub(crate) fn by_uncontested_ip(&self, ip: u128, hashing: &Hashing) -> Option<&V> {
        // Nearly always.
        if self.contenders.len() == 0 {
            return self.by_ip(ip, hashing);
        }
        self.by_contested_ip(ip, hashing)
    }

    #[cold]
    fn by_contested_ip(&self, ip: u128, hashing: &Hashing) -> Option<&V> {
        let (words, hash) = ip_key(ip, hashing);
        let (place, entry) = self.ips.locate(hash, any_tag(hash), |entry| entry.key == words)?;
        (place.flags() & CONTESTED == 0).then_some(&entry.value)
    }

    /// The holder of a key, with the place of its entry.
    pub(crate) fn locate(&self, key: KeyRef<'_>, hashing: &Hashing) -> Option<(Place, &V)> {
        match key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, hashing);
                let (place, entry) =
                    self.container_ids.locate(hash, any_tag(hash), |entry| entry.key.words == words)?;
                Some((place, &entry.value))
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, hashing);
                let (place, entry) = self.ips.locate(hash, any_tag(hash), |entry| entry.key == words)?;
                Some((place, &entry.value))
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, hashing);
                let (place, entry) = self.keys.locate_text(hash, kind, key)?;
                Some((place, &entry.value))
            }
            KeyRef::Name(kind, name, namespace) => {
                let hash = hashing.pair(name, namespace);
                let (place, entry) = self.of_names(kind).locate_text(hash, name, namespace)?;
                Some((place, &entry.value))
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

/// For the writer.
impl<V: PodValue> Tables<V> {
    /// The claim of a contender.
    pub(crate) fn contention(&self, key: KeyRef<'_>, strength: Strength, uid: &PodUid) -> Option<&Contender> {
        let order = |one: &Contender| {
            one.key.as_ref().cmp(&key).then_with(|| (one.strength, &one.uid).cmp(&(strength, uid)))
        };
        self.contenders.first_not(|one| order(one).is_lt()).filter(|one| order(one).is_eq())
    }

    /// The claims of a contender to any key. O(n).
    pub(crate) fn contended_by(&self, uid: &PodUid) -> Vec<Contender> {
        let next = |last: Option<&Contender>| {
            self.contenders.first_not(|contender| last.is_some_and(|last| contender <= last))
        };
        let all = std::iter::successors(next(None), |last| next(Some(last)));
        all.filter(|contender| contender.uid == *uid).cloned().collect()
    }

    /// The keys that this pod holds. O(n).
    pub(crate) fn held_by(&self, pod: &V) -> Vec<OwnedKey>
    where
        V: Claimant,
    {
        let held = |entry: &V| entry.same(pod);
        let ids = self.container_ids.iter().filter(|entry| held(&entry.value));
        let ips = self.ips.iter().filter(|entry| held(&entry.value));
        let own = self.keys.iter().filter(|entry| held(&entry.value)).filter_map(|entry| {
            let (kind, bytes) = entry.key.record.bytes();
            let kind = KeyKind(u16::from_ne_bytes(kind.try_into().ok()?));
            Some(OwnedKey::new(KeyRef::Own(kind, bytes)))
        });
        let names = [PodKind::Pod, PodKind::Mirror].into_iter().filter(|_| V::CLAIMS_NAME).flat_map(|kind| {
            self.of_names(kind).iter().filter(|entry| held(&entry.value)).map(move |entry| {
                let (name, namespace) = entry.key.record.parts();
                OwnedKey::new(KeyRef::Name(kind, name, namespace))
            })
        });
        let ids = ids.map(|entry| OwnedKey::ContainerId(ContainerId::from_words(entry.key.words)));
        let ips = ips.map(|entry| OwnedKey::Ip(u128::from(entry.key.0) << 64 | u128::from(entry.key.1)));
        ids.chain(ips).chain(own).chain(names).collect()
    }
}

impl<V: PodValue<Pod: PodMeta>> Tables<V> {
    #[expect(clippy::inline_always, reason = "a call would pass the UID through memory")]
    #[inline(always)]
    pub(crate) fn pod(&self, uid: UidRef<'_>, hashing: &Hashing) -> Option<&V> {
        by_uid(&self.pods, uid, hashing)
    }

    #[expect(clippy::inline_always, reason = "a call would pass the UID through memory")]
    #[inline(always)]
    pub(crate) fn mirror(&self, uid: UidRef<'_>, hashing: &Hashing) -> Option<&Mirror<V>> {
        by_uid(&self.mirrors, uid, hashing)
    }

    /// The pods that claim this key, the strongest claim first.
    pub(crate) fn claimants<'a>(&'a self, key: KeyRef<'_>, hashing: &'a Hashing) -> Claimants<'a, V> {
        let next = match self.locate(key, hashing) {
            Some((place, holder)) if place.flags() & CONTESTED != 0 => {
                Next::Holder(holder, self.contender(key, None))
            }
            Some((_, holder)) => Next::Holder(holder, None),
            None => Next::Contender(None),
        };
        Claimants { tables: self, hashing, next }
    }

    /// The pod of a contender. `None` if the pod's own UID changed.
    pub(crate) fn contending(&self, contender: &Contender, hashing: &Hashing) -> Option<&V> {
        let uid = contender.uid.as_uid_ref();
        match contender.key {
            OwnedKey::Name(PodKind::Mirror, ..) => Some(&self.mirror(uid, hashing)?.pod),
            _ => self.pod(uid, hashing),
        }
    }
}

#[expect(clippy::inline_always, reason = "a call would pass the UID through memory")]
#[inline(always)]
fn by_uid<'a, T: PodValue<Pod: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let Some(packed) = uid.usual() else { return by_text_uid(table, uid, hashing) };
    let key = UidKey::packed(packed, hashing);
    Some(&table.find(key.hash, key.tag, |entry| entry.key == key.words)?.value)
}

/// For UIDs of unusual spellings; separate, to keep the usual path fast.
#[cold]
fn by_text_uid<'a, T: PodValue<Pod: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let key = UidKey::new(uid, hashing);
    Some(&table.find(key.hash, key.tag, |entry| key.is(entry))?.value)
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
    pub(crate) fn new(key: KeyRef<'_>) -> Self {
        match key {
            KeyRef::ContainerId(id) => Self::ContainerId(id),
            KeyRef::Ip(ip) => Self::Ip(ip),
            KeyRef::Own(kind, bytes) => Self::Own(kind, bytes.into()),
            KeyRef::Name(kind, name, namespace) => Self::Name(kind, name.into(), namespace.into()),
        }
    }

    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::ContainerId(id) => KeyRef::ContainerId(*id),
            Self::Ip(ip) => KeyRef::Ip(*ip),
            Self::Own(kind, key) => KeyRef::Own(*kind, key),
            Self::Name(kind, name, namespace) => KeyRef::Name(*kind, name, namespace),
        }
    }
}

impl<'a, V: PodValue<Pod: PodMeta>> Iterator for Claimants<'a, V> {
    type Item = &'a V;

    fn next(&mut self) -> Option<&'a V> {
        loop {
            match self.next {
                Next::Holder(holder, first) => {
                    self.next = Next::Contender(first);
                    return Some(holder);
                }
                Next::Contender(contender) => {
                    let contender = contender?;
                    let behind = self.tables.contender(contender.key.as_ref(), Some(contender));
                    self.next = Next::Contender(behind);
                    if let Some(pod) = self.tables.contending(contender, self.hashing) {
                        return Some(pod);
                    }
                }
            }
        }
    }
}

// Neither is derived: a derive would require the same of `V`.
impl<V> Clone for Claimants<'_, V> {
    fn clone(&self) -> Self {
        Self { tables: self.tables, hashing: self.hashing, next: self.next }
    }
}

impl<V> Clone for Next<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Next<'_, V> {}
