//! The tables of a set of pods. A snapshot has one such set for the current pods and, if it keeps removed pods,
//! another one for those.
//!
//! Every table has the pod in its entries, so that a lookup by any key searches one table.
//!
//! If several pods claim a key, the one with the strongest claim is its *holder*: it is in the table. The others are
//! *contenders*. They are in one ordered set for all kinds of keys, sorted by key and then by strength. For container
//! IDs and IPs, the set is nearly always empty.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use equivalent::{Comparable, Equivalent};

use super::found::{Found, FoundBy, Key as Sought};
use super::key::{CONTESTED, Mirror, UidKey};
use crate::id::{PodUid, UidRef};
use crate::identity::ContainerId;
use crate::map::{
    Entry, Hashing, Key, Labelled, OrdSet, Place, PodValue, Table, Text, Value, Words, any_tag,
};
use crate::options::Kinds;
use crate::pod::{Claims, KeyKind, KeyRef, PodKind, PodMeta, Strength, ip_number};

/// Declares the tables. This is the only list of them.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $value:ty,)*) => {
        /// The tables of a set of pods; see the module.
        pub(crate) struct Tables<V> {
            $($(#[$doc])* pub(crate) $name: Table<$key, $value>,)*
            /// Claims to keys that another pod holds.
            pub(crate) contenders: OrdSet<Contender>,
        }

        impl<V> Tables<V> {
            pub(crate) fn new() -> Self {
                Self { $($name: Table::new(),)* contenders: OrdSet::new() }
            }

            /// Empty tables for the next version, with the same contenders.
            pub(crate) fn next(&self) -> Self {
                Self { contenders: self.contenders.clone(), ..Self::new() }
            }
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
    /// Mirror pods by UID, with the UID's translation.
    mirrors: Words => Mirror<V>,
    /// Pods by full name.
    names: Text => V,
    /// Mirror pods by full name.
    mirror_names: Text => V,
    /// Pods by container ID, with the container's name.
    container_ids: Labelled => V,
    /// Pods by IP.
    ips: Words => V,
    /// Pods by custom key.
    keys: Text => V,
}

/// What is done with each table.
pub(crate) trait EachTable<P> {
    fn table<K: Key, T: Value<Pod = P>>(&mut self, table: &mut Table<K, T>, other: &Table<K, T>);
}

/// A pod that can claim keys.
pub(crate) trait Claimant: PodValue<Pod: PodMeta> + Clone {
    /// The strength of its claims.
    fn strength(&self, kept: Kinds) -> Strength;

    fn removed_at(&self) -> Option<Instant>;

    /// Whether this is the very same object. A removed pod that returned and was removed again may be.
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.pod(), other.pod())
    }

    #[inline]
    fn found(&self, by: FoundBy) -> Found<'_, Self::Pod> {
        Found { pod: self.pod(), container: None, by, removed_at: self.removed_at() }
    }
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

/// The place in an ordered set before all items with this key.
pub(crate) struct Before<'a>(pub(crate) KeyRef<'a>);

/// An item of an ordered set that is sorted by key first.
pub(crate) trait Keyed {
    fn key(&self) -> KeyRef<'_>;
}

impl<T: Keyed> Equivalent<T> for Before<'_> {
    fn equivalent(&self, _: &T) -> bool {
        false
    }
}

impl<T: Keyed> Comparable<T> for Before<'_> {
    fn compare(&self, item: &T) -> Ordering {
        self.0.cmp(&item.key()).then(Ordering::Less)
    }
}

impl Keyed for Contender {
    fn key(&self) -> KeyRef<'_> {
        self.key.as_ref()
    }
}

/// Asks for the same kinds of keys as when they were claimed: a pod may answer differently otherwise.
impl<P: PodMeta> Claimant for Arc<P> {
    fn strength(&self, kept: Kinds) -> Strength {
        let mut claims = Claims::new();
        claims.collect(kept, |keys| self.keys(keys));
        claims.strength
    }

    #[inline]
    fn removed_at(&self) -> Option<Instant> {
        None
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

    pub(crate) fn of_names_mut(&mut self, kind: PodKind) -> &mut Table<Text, V> {
        match kind {
            PodKind::Pod => &mut self.names,
            PodKind::Mirror => &mut self.mirror_names,
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
    pub(crate) fn by_ip(&self, ip: u128, hashing: &Hashing) -> Option<&V> {
        let (words, hash) = ip_key(ip, hashing);
        Some(&self.ips.find(hash, any_tag(hash), |entry| entry.key == words)?.value)
    }

    /// The pod that alone claims an IP.
    #[inline]
    pub(crate) fn by_uncontested_ip(&self, ip: u128, hashing: &Hashing) -> Option<&V> {
        // Nearly always.
        if self.contenders.is_empty() {
            return self.by_ip(ip, hashing);
        }
        let (place, pod) = self.locate(KeyRef::Ip(ip), hashing)?;
        (place.flags() & CONTESTED == 0).then_some(pod)
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

    /// The contenders for a key, the strongest claim first.
    pub(crate) fn contenders_of<'a>(&'a self, key: KeyRef<'a>) -> impl Iterator<Item = &'a Contender> {
        self.contenders.range(Before(key)..).take_while(move |contender| contender.key() == key)
    }

    pub(crate) fn first_contender(&self, key: KeyRef<'_>) -> Option<&Contender> {
        self.contenders.get_next(&Before(key)).filter(|contender| contender.key() == key)
    }
}

impl<V: Claimant> Tables<V> {
    /// The pod with this key that has the strongest claim, without mirrors.
    #[inline]
    pub(crate) fn get(&self, key: Sought<'_>, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        let pod = match key {
            Sought::Uid(uid) => self.pod(uid, hashing)?,
            Sought::Name { namespace, name } => self.by_name(PodKind::Pod, name, namespace, hashing)?,
            Sought::ContainerId(id) => return self.by_container_id(id, hashing),
            Sought::Ip(ip) => self.by_ip(ip_number(ip), hashing)?,
            Sought::Own(kind, key) => self.locate(KeyRef::Own(kind, key), hashing)?.1,
        };
        Some(pod.found(key.found_by()))
    }

    #[inline]
    pub(crate) fn by_container_id(&self, id: ContainerId, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        let (words, hash) = container_key(id, hashing);
        let Entry { key, value } =
            self.container_ids.find(hash, any_tag(hash), |entry| entry.key.words == words)?;
        Some(Found { container: Some(key.label.as_str()), ..value.found(FoundBy::ContainerId) })
    }

    /// The mirror pod with this UID or name.
    pub(crate) fn get_mirror(&self, key: Sought<'_>, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        let pod = match key {
            Sought::Uid(uid) => &self.mirror(uid, hashing)?.pod,
            Sought::Name { namespace, name } => self.by_name(PodKind::Mirror, name, namespace, hashing)?,
            _ => return None,
        };
        Some(pod.found(key.found_by()))
    }

    /// All pods with this key, the strongest claim first, without mirrors.
    pub(crate) fn all<'a>(
        &'a self,
        key: Sought<'a>,
        hashing: &'a Hashing,
    ) -> impl Iterator<Item = Found<'a, V::Pod>> {
        let others = key.claimed(PodKind::Pod).into_iter();
        let others = others.flat_map(move |claimed| self.claimants(claimed, hashing).skip(1));
        self.get(key, hashing).into_iter().chain(others.map(move |pod| pod.found(key.found_by())))
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

    /// The pods that claim this key, the strongest claim first: its holder, then the contenders.
    pub(crate) fn claimants<'a>(
        &'a self,
        key: KeyRef<'a>,
        hashing: &'a Hashing,
    ) -> impl Iterator<Item = &'a V> {
        let holder = self.locate(key, hashing);
        let is_contested = holder.is_some_and(|(place, _)| place.flags() & CONTESTED != 0);
        let contenders = is_contested.then_some(()).into_iter().flat_map(move |()| self.contenders_of(key));
        let others = contenders.filter_map(move |contender| self.contending(contender, hashing));
        holder.map(|(_, pod)| pod).into_iter().chain(others)
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
    let Some(packed) = uid.usual else { return by_text_uid(table, uid, hashing) };
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
