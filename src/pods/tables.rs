//! The tables of a set of pods. A snapshot has one such set for the current pods and, if it keeps removed pods,
//! another one for those.
//!
//! Every table has the pod in its entries, so that a lookup by any key searches one table.
//!
//! If several pods claim a key, the one with the strongest claim is its *holder*: it is in the table. Exception: the holder
//! of a current pod's name is the one stored last. The others are *contenders*. They are in two ordered sets, sorted by key
//! and then by strength.

use std::sync::Arc;
use std::time::Instant;

use super::contenders::Contenders;
use super::found::{Found, FoundBy, Key};
use super::hashed_key::{HashedKey, HashedName};
use super::hashed_uid::HashedUid;
use super::key_numbers::KeyNumbers;
use super::mirror::Mirror;
use crate::id::{PodUid, UidRef};
use crate::identity::ContainerId;
use crate::pod::{ClaimedKeyRef, Claims, PodKind, PodMeta, Strength, ip_number};
use crate::table::{Hashing, Place, Table, Text, Value, Words, tables};

tables! {
    /// The tables of a set of pods; see the module. This is the only list of them.
    pub(crate) struct Tables<V> beside {
        /// Claims to keys that another pod holds.
        contenders: Contenders,
    }

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
    custom_keys: Text => V,
}

/// A pod that can claim keys.
pub(crate) trait Claimant: Value<Item: PodMeta> + Clone {
    fn claims(&self) -> Claims {
        Claims::of(&**self.item())
    }

    /// The strength of its claims, without a list of them.
    fn strength(&self) -> Strength {
        Strength::of(&**self.item())
    }

    fn removed_at(&self) -> Option<Instant>;

    /// Whether this is the very same object. A removed pod that returned and was removed again may be.
    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.item(), other.item())
    }

    #[inline]
    fn found(&self, by: FoundBy) -> Found<'_, Self::Item> {
        Found { pod: self.item(), container: None, by, removed_at: self.removed_at() }
    }
}

/// A pod with the name of one of its containers.
pub(crate) struct Container<V> {
    pub(crate) pod: V,
    pub(crate) name: Arc<str>,
}

impl<V: Value> Value for Container<V> {
    type Item = V::Item;

    fn item(&self) -> &Arc<V::Item> {
        self.pod.item()
    }

    fn into_parts(self) -> (Arc<V::Item>, Option<Arc<str>>) {
        (self.pod.into_parts().0, Some(self.name))
    }
}

impl<P: PodMeta> Claimant for Arc<P> {
    #[inline]
    fn removed_at(&self) -> Option<Instant> {
        None
    }
}

impl<V> Tables<V> {
    /// How many different keys of each kind the pods claim.
    pub(crate) fn key_numbers(&self) -> KeyNumbers {
        // All tables are named, so that a new one has to be counted, or listed among those by UID.
        let Self { pods: _, mirrors: _, names, container_ids, ips, custom_keys, contenders: _ } = self;
        KeyNumbers {
            names: names.len(),
            container_ids: container_ids.len(),
            ips: ips.len(),
            custom_keys: custom_keys.len(),
        }
    }

    /// The holder of a key, with the place of its entry.
    #[expect(clippy::inline_always, reason = "a lookup knows the kind of its key")]
    #[inline(always)]
    pub(crate) fn find(&self, key: ClaimedKeyRef<'_>, hashing: &Hashing) -> Option<(Place, &V)> {
        match key {
            ClaimedKeyRef::ContainerId(id) => {
                let (place, container) = self.find_container(id, hashing)?;
                Some((place, &container.pod))
            }
            ClaimedKeyRef::Ip(ip) => {
                let HashedKey { key: words, tag, hash } = HashedKey::ip(ip, hashing);
                let (place, entry) = self.ips.find(hash, tag, |entry| entry.key == words)?;
                Some((place, &entry.value))
            }
            ClaimedKeyRef::Custom(kind, key) => {
                let HashedKey { key: kind, tag, hash } = HashedKey::custom(kind, key, hashing);
                let (place, entry) = self.custom_keys.find(hash, tag, |entry| entry.key.is(&kind, key))?;
                Some((place, &entry.value))
            }
            ClaimedKeyRef::Name { kind, namespace, name } => {
                let HashedName { tag, hash } = HashedName::new(kind, namespace, name, hashing);
                let name = name.as_bytes();
                let namespace = namespace.as_bytes();
                let (place, entry) = self.names.find(hash, tag, |entry| entry.key.is(name, namespace))?;
                Some((place, &entry.value))
            }
        }
    }

    #[expect(clippy::inline_always, reason = "a call would pass the place through memory")]
    #[inline(always)]
    fn find_container(&self, id: ContainerId, hashing: &Hashing) -> Option<(Place, &Container<V>)> {
        let HashedKey { key: words, tag, hash } = HashedKey::container_id(id, hashing);
        let (place, entry) = self.container_ids.find(hash, tag, |entry| entry.key == words)?;
        Some((place, &entry.value))
    }
}

impl<V: Claimant> Tables<V> {
    /// The pod that holds this key, without mirrors.
    #[expect(clippy::inline_always, reason = "a lookup knows the kind of its key")]
    #[inline(always)]
    pub(crate) fn get(&self, key: Key<'_>, hashing: &Hashing) -> Option<Found<'_, V::Item>> {
        match key {
            Key::Uid(uid) => Some(self.pod(uid, hashing)?.found(FoundBy::Uid)),
            Key::Text(text) => self.get_text(text, hashing),
            Key::ContainerId(id) => {
                let (_, Container { pod, name }) = self.find_container(id, hashing)?;
                Some(Found { container: Some(name), ..pod.found(FoundBy::ContainerId) })
            }
            // Not by `claimed`, which would copy the key to memory.
            Key::Ip(ip) => Some(self.find(ClaimedKeyRef::Ip(ip_number(ip)), hashing)?.1.found(FoundBy::Ip)),
            Key::Custom(kind, key) => {
                Some(self.find(ClaimedKeyRef::Custom(kind, key), hashing)?.1.found(FoundBy::Custom))
            }
            Key::Name { namespace, name } => {
                let key = ClaimedKeyRef::Name { kind: PodKind::Pod, namespace, name };
                Some(self.find(key, hashing)?.1.found(FoundBy::Name))
            }
        }
    }

    /// The pod with this UID, or else with what the text is parsed as.
    #[cold]
    fn get_text(&self, text: &str, hashing: &Hashing) -> Option<Found<'_, V::Item>> {
        self.get(Key::Uid(text.into()), hashing).or_else(|| self.get(Key::parse(text)?, hashing))
    }

    /// The key for which a text stands: a UID, if a pod has it.
    pub(crate) fn meant<'k>(&self, key: Key<'k>, hashing: &Hashing) -> Key<'k> {
        let Key::Text(text) = key else { return key };
        let uid = Key::Uid(text.into());
        if self.get(uid, hashing).is_some() { uid } else { Key::parse(text).unwrap_or(uid) }
    }

    /// The mirror pod with this UID or name.
    pub(crate) fn get_mirror(&self, key: Key<'_>, hashing: &Hashing) -> Option<Found<'_, V::Item>> {
        let pod = match key {
            Key::Uid(uid) => &self.mirror(uid, hashing)?.pod,
            Key::Text(text) => {
                let uid = Key::Uid(text.into());
                let by_uid = self.get_mirror(uid, hashing);
                return by_uid.or_else(|| self.get_mirror(Key::parse(text)?, hashing));
            }
            Key::Name { .. } => self.find(key.claimed_by_mirrors()?, hashing)?.1,
            // Mirror pods claim none of these.
            Key::ContainerId(_) | Key::Ip(_) | Key::Custom(..) => return None,
        };
        Some(pod.found(key.found_by()))
    }

    /// All pods with this key, without mirrors: its holder, then the contenders, the strongest claim first.
    pub(crate) fn all<'a>(
        &'a self,
        key: Key<'a>,
        hashing: &'a Hashing,
    ) -> impl Iterator<Item = Found<'a, V::Item>> {
        let key = self.meant(key, hashing);
        let holder = self.get(key, hashing);
        let claimed = holder.and(key.claimed_by_pods());
        let contested = claimed.filter(|claimed| self.contenders.first_of(*claimed).is_some());
        let contenders = contested.into_iter().flat_map(move |claimed| self.contenders.of(claimed));
        let others =
            contenders.filter_map(move |other| self.claimant(other.key.as_ref(), &other.uid, hashing));
        holder.into_iter().chain(others.map(move |pod| pod.found(key.found_by())))
    }
}

impl<V: Value<Item: PodMeta>> Tables<V> {
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
        key: HashedUid<'_>,
        is: impl Fn(Words, &V) -> bool,
    ) -> Option<(Place, PodKind, &V)> {
        if let Some((place, entry)) = self.pods.find(key.hash, key.tag, |entry| is(entry.key, &entry.value)) {
            return Some((place, PodKind::Pod, &entry.value));
        }
        let (place, entry) = self.mirrors.find(key.hash, key.tag, |entry| is(entry.key, &entry.value.pod))?;
        Some((place, PodKind::Mirror, &entry.value.pod))
    }

    /// The pod that claims a key and is stored under this UID. `None` if the pod's own UID changed.
    pub(crate) fn claimant(&self, key: ClaimedKeyRef<'_>, uid: &PodUid, hashing: &Hashing) -> Option<&V> {
        let uid = uid.as_uid_ref();
        match key {
            ClaimedKeyRef::Name { kind: PodKind::Mirror, .. } => Some(&self.mirror(uid, hashing)?.pod),
            ClaimedKeyRef::Name { kind: PodKind::Pod, .. }
            | ClaimedKeyRef::ContainerId(_)
            | ClaimedKeyRef::Ip(_)
            | ClaimedKeyRef::Custom(..) => self.pod(uid, hashing),
        }
    }
}

#[expect(clippy::inline_always, reason = "a call would pass the UID through memory")]
#[inline(always)]
fn by_uid<'a, T: Value<Item: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let Some(packed) = uid.usual else { return by_text_uid(table, uid, hashing) };
    let key = HashedUid::packed(packed, hashing);
    Some(&table.find(key.hash, key.tag, |entry| entry.key == key.words)?.1.value)
}

/// For UIDs of unusual spellings; separate, to keep the usual path fast.
#[cold]
fn by_text_uid<'a, T: Value<Item: PodMeta>>(
    table: &'a Table<Words, T>,
    uid: UidRef<'_>,
    hashing: &Hashing,
) -> Option<&'a T> {
    let key = HashedUid::new(uid, hashing);
    Some(&table.find(key.hash, key.tag, |entry| key.is(entry.key, &entry.value))?.1.value)
}
