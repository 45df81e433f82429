//! The tables of a set of pods. A snapshot has one such set for the current pods and, if it keeps removed pods,
//! another one for those.
//!
//! Every table has the pod in its entries, so that a lookup by any key searches one table.
//!
//! If several pods claim a key, the one with the strongest claim is its *holder*: it is in the table. Exception: the holder
//! of a current pod's name is the one stored last. The others are *contenders*. They are in two ordered sets, sorted by key
//! and then by strength.

use std::cmp::Ordering;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use equivalent::{Comparable, Equivalent};

use super::found::{Found, FoundBy, Key as Sought};
use super::key::{Mirror, UidKey};
use crate::id::{PodUid, UidRef};
use crate::identity::ContainerId;
pub(crate) use crate::pod::OwnedKey;
use crate::pod::{Claims, KeyKind, KeyRef, PodKind, PodMeta, Strength, ip_number};
use crate::table::{Hashing, Key, OrdSet, Place, Table, Text, Value, Words, any_tag, tag};

/// Declares the tables. This is the only list of them.
macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $key:ty => $value:ty,)*) => {
        /// The tables of a set of pods; see the module.
        pub(crate) struct Tables<V> {
            $($(#[$doc])* pub(crate) $name: Table<$key, $value>,)*
            /// Claims to keys that another pod holds: to IPs and container IDs, and to all others. The first set is nearly
            /// always empty, which makes lookups of IPs at a time fast; many pods share custom keys.
            pub(crate) contenders: [OrdSet<Contender>; 2],
        }

        impl<V> Tables<V> {
            pub(crate) fn new() -> Self {
                Self { $($name: Table::new(),)* contenders: Default::default() }
            }

            /// Empty tables for the next version, with the same contenders.
            pub(crate) fn next(&self) -> Self {
                Self { contenders: self.contenders.clone(), ..Self::new() }
            }
        }

        impl<V: Value> Tables<V> {
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
    /// Pods and mirror pods by full name. Each kind has its own tags.
    names: Text => V,
    /// Pods by container ID, with the container's name.
    container_ids: [Words; 2] => Container<V>,
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
pub(crate) trait Claimant: Value<Pod: PodMeta> + Clone {
    fn claims(&self) -> Claims {
        Claims::of(&**self.pod())
    }

    /// The strength of its claims.
    fn strength(&self) -> Strength {
        self.claims().strength
    }

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

/// A pod with the name of one of its containers.
pub(crate) struct Container<V> {
    pub(crate) pod: V,
    pub(crate) name: Arc<str>,
}

impl<V: Value> Value for Container<V> {
    type Pod = V::Pod;

    fn pod(&self) -> &Arc<V::Pod> {
        self.pod.pod()
    }

    fn into_parts(self) -> (Arc<V::Pod>, Option<Arc<str>>) {
        (self.pod.into_parts().0, Some(self.name))
    }
}

/// A pod that claims a key without holding it. Ordered by key, then by strength.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Contender {
    pub(crate) key: OwnedKey,
    pub(crate) strength: Strength,
    pub(crate) uid: PodUid,
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

impl<P: PodMeta> Claimant for Arc<P> {
    #[inline]
    fn removed_at(&self) -> Option<Instant> {
        None
    }
}

impl<V> Tables<V> {
    /// The holder of a key, with the place of its entry.
    #[expect(clippy::inline_always, reason = "a lookup knows the kind of its key")]
    #[inline(always)]
    pub(crate) fn find(&self, key: KeyRef<'_>, hashing: &Hashing) -> Option<(Place, &V)> {
        match key {
            KeyRef::ContainerId(id) => {
                let (place, container) = self.find_container(id, hashing)?;
                Some((place, &container.pod))
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, hashing);
                let (place, entry) = self.ips.find(hash, any_tag(hash), |entry| entry.key == words)?;
                Some((place, &entry.value))
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, hashing);
                let (place, entry) = self.keys.find(hash, any_tag(hash), |entry| entry.key.is(&kind, key))?;
                Some((place, &entry.value))
            }
            KeyRef::Name(kind, name, namespace) => {
                let (tag, hash) = name_key(kind, name, namespace, hashing);
                let (name, namespace) = (name.as_bytes(), namespace.as_bytes());
                let (place, entry) = self.names.find(hash, tag, |entry| entry.key.is(name, namespace))?;
                Some((place, &entry.value))
            }
        }
    }

    #[expect(clippy::inline_always, reason = "a call would pass the place through memory")]
    #[inline(always)]
    fn find_container(&self, id: ContainerId, hashing: &Hashing) -> Option<(Place, &Container<V>)> {
        let (words, hash) = container_key(id, hashing);
        let (place, entry) = self.container_ids.find(hash, any_tag(hash), |entry| entry.key == words)?;
        Some((place, &entry.value))
    }

    /// The contenders for a key, the strongest claim first.
    pub(crate) fn contenders_of<'a>(&'a self, key: KeyRef<'a>) -> impl Iterator<Item = &'a Contender> {
        self.contenders[set_of(key)].range(Before(key)..).take_while(move |contender| contender.key() == key)
    }

    #[expect(clippy::inline_always, reason = "the key need not be in memory for what is nearly always done")]
    #[inline(always)]
    pub(crate) fn first_contender(&self, key: KeyRef<'_>) -> Option<&Contender> {
        let contenders = &self.contenders[set_of(key)];
        if contenders.is_empty() {
            return None;
        }
        contenders.get_next(&Before(key)).filter(|contender| contender.key() == key)
    }
}

impl<V: Claimant> Tables<V> {
    /// The pod that holds this key, without mirrors.
    #[expect(clippy::inline_always, reason = "a lookup knows the kind of its key")]
    #[inline(always)]
    pub(crate) fn get(&self, key: Sought<'_>, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        match key {
            Sought::Uid(uid) => Some(self.pod(uid, hashing)?.found(FoundBy::Uid)),
            Sought::Text(text) => self.get_text(text, hashing),
            Sought::ContainerId(id) => {
                let (_, Container { pod, name }) = self.find_container(id, hashing)?;
                Some(Found { container: Some(name), ..pod.found(FoundBy::ContainerId) })
            }
            // Not by `claimed`, which would copy the key to memory.
            Sought::Ip(ip) => Some(self.find(KeyRef::Ip(ip_number(ip)), hashing)?.1.found(FoundBy::Ip)),
            Sought::Own(kind, key) => Some(self.find(KeyRef::Own(kind, key), hashing)?.1.found(FoundBy::Key)),
            Sought::Name { namespace, name } => {
                let key = KeyRef::Name(PodKind::Pod, name, namespace);
                Some(self.find(key, hashing)?.1.found(FoundBy::Name))
            }
        }
    }

    /// The pod with this UID, or else with what the text is parsed as.
    #[cold]
    fn get_text(&self, text: &str, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        self.get(Sought::Uid(text.into()), hashing).or_else(|| self.get(Sought::parse(text)?, hashing))
    }

    /// The key for which a text stands: a UID, if a pod has it.
    pub(crate) fn meant<'k>(&self, key: Sought<'k>, hashing: &Hashing) -> Sought<'k> {
        let Sought::Text(text) = key else { return key };
        let uid = Sought::Uid(text.into());
        if self.get(uid, hashing).is_some() { uid } else { Sought::parse(text).unwrap_or(uid) }
    }

    /// The mirror pod with this UID or name.
    pub(crate) fn get_mirror(&self, key: Sought<'_>, hashing: &Hashing) -> Option<Found<'_, V::Pod>> {
        let pod = match key {
            Sought::Uid(uid) => &self.mirror(uid, hashing)?.pod,
            Sought::Text(text) => {
                let uid = Sought::Uid(text.into());
                let by_uid = self.get_mirror(uid, hashing);
                return by_uid.or_else(|| self.get_mirror(Sought::parse(text)?, hashing));
            }
            _ => self.find(key.claimed(PodKind::Mirror)?, hashing)?.1,
        };
        Some(pod.found(key.found_by()))
    }

    /// All pods with this key, without mirrors: its holder, then the contenders, the strongest claim first.
    pub(crate) fn all<'a>(
        &'a self,
        key: Sought<'a>,
        hashing: &'a Hashing,
    ) -> impl Iterator<Item = Found<'a, V::Pod>> {
        let key = self.meant(key, hashing);
        let holder = self.get(key, hashing);
        let claimed = holder.and(key.claimed(PodKind::Pod));
        let contested = claimed.filter(|claimed| self.first_contender(*claimed).is_some());
        let contenders = contested.into_iter().flat_map(move |claimed| self.contenders_of(claimed));
        let others =
            contenders.filter_map(move |other| self.claimant(other.key.as_ref(), &other.uid, hashing));
        holder.into_iter().chain(others.map(move |pod| pod.found(key.found_by())))
    }
}

impl<V: Value<Pod: PodMeta>> Tables<V> {
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

    /// The pod or mirror pod under this UID whose words and value `is` accepts, with the place of its entry.
    pub(crate) fn known(
        &self,
        key: UidKey<'_>,
        is: impl Fn(Words, &V) -> bool,
    ) -> Option<(Place, PodKind, &V)> {
        if let Some((place, entry)) = self.pods.find(key.hash, key.tag, |entry| is(entry.key, &entry.value)) {
            return Some((place, PodKind::Pod, &entry.value));
        }
        let (place, entry) = self.mirrors.find(key.hash, key.tag, |entry| is(entry.key, &entry.value.pod))?;
        Some((place, PodKind::Mirror, &entry.value.pod))
    }

    /// The pod that claims a key and is stored under this UID. `None` if the pod's own UID changed.
    pub(crate) fn claimant(&self, key: KeyRef<'_>, uid: &PodUid, hashing: &Hashing) -> Option<&V> {
        let uid = uid.as_uid_ref();
        match key {
            KeyRef::Name(PodKind::Mirror, ..) => Some(&self.mirror(uid, hashing)?.pod),
            _ => self.pod(uid, hashing),
        }
    }
}

#[expect(clippy::inline_always, reason = "a call would pass the UID through memory")]
#[inline(always)]
fn by_uid<'a, T: Value<Pod: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let Some(packed) = uid.usual else { return by_text_uid(table, uid, hashing) };
    let key = UidKey::packed(packed, hashing);
    Some(&table.find(key.hash, key.tag, |entry| entry.key == key.words)?.1.value)
}

/// For UIDs of unusual spellings; separate, to keep the usual path fast.
#[cold]
fn by_text_uid<'a, T: Value<Pod: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let key = UidKey::new(uid, hashing);
    Some(&table.find(key.hash, key.tag, |entry| key.is(entry.key, &entry.value))?.1.value)
}

/// Which of the two sets has the contenders for a key.
#[inline]
pub(crate) fn set_of(key: KeyRef<'_>) -> usize {
    usize::from(matches!(key, KeyRef::Own(..) | KeyRef::Name(..)))
}

/// The table key of a container ID.
#[inline]
pub(crate) fn container_key(id: ContainerId, hashing: &Hashing) -> ([Words; 2], u64) {
    let words @ [a, b, c, d] = id.words();
    ([Words(a, b), Words(c, d)], hashing.four_words(words))
}

/// The table key of an IP.
#[inline]
pub(crate) fn ip_key(ip: u128, hashing: &Hashing) -> (Words, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let words = ((ip >> 64) as u64, ip as u64);
    (Words(words.0, words.1), hashing.words(words))
}

/// The tag and the hash of a full name. Names of pods have the lower half of the tags, those of mirror pods the upper.
#[expect(clippy::inline_always, reason = "a call would pass the texts through memory")]
#[inline(always)]
pub(crate) fn name_key(kind: PodKind, name: &str, namespace: &str, hashing: &Hashing) -> (NonZero<u8>, u64) {
    let hash = hashing.pair(name, namespace);
    let (first, count) = match kind {
        PodKind::Pod => (NonZero::<u8>::MIN, 128),
        PodKind::Mirror => (NonZero::<u8>::MIN.saturating_add(128), 127),
    };
    (tag(hash, first, count), hash)
}

/// The number that is stored with a custom key's bytes.
#[inline]
pub(crate) fn own_key(kind: KeyKind, key: &[u8], hashing: &Hashing) -> ([u8; 2], u64) {
    let kind = kind.0.to_ne_bytes();
    (kind, hashing.pair(kind, key))
}
