//! Decides which pod gets a key, and writes the entries of all keys.
//!
//! The rules of this file are those of container IDs, IPs and custom keys, and of the names of removed pods. Who holds a current
//! pod's name follows another rule, which is in `update`: the pod that was stored last. Its entry is written here too.
//!
//! The result depends only on the set of pods, not on the order of writes. If several pods claim a key, the one
//! with the strongest claim is in the table and the others are contenders. An added pod is compared with the
//! holder. When the holder is removed, the first contender takes over.
//!
//! A pod's list of keys is not stored: [`PodMeta::keys`] is called when the pod is added, and again when
//! it is replaced or removed.

use crate::id::{PodUid, UidRef};
use crate::pod::{ClaimRef, Claims, NamedClaim, OwnedClaim, PodKind, PodMeta, Strength};
use crate::pods::{
    Claimant, Container, Contender, Contenders, HashedUid, Mirror, Tables, Translation, container_key,
    custom_key, ip_key, name_key,
};
use crate::table::versions::TablesMut;
use crate::table::{Place, Text, any_tag};

/// The numbers of ignored keys of a pod, before and after a change.
pub(super) struct IgnoredKeys {
    pub(super) before: usize,
    pub(super) after: usize,
}

impl<V: Claimant> TablesMut<'_, Tables<V>> {
    /// Replaces the claims of the old pod by those of the new one, which has the same UID. Returns the numbers of their ignored
    /// keys.
    pub(super) fn change_claims(&mut self, uid: UidRef<'_>, old: Option<&V>, new: Option<&V>) -> IgnoredKeys {
        let had = old.map_or(Claims::NONE, Claimant::claims);
        let has = new.map_or(Claims::NONE, Claimant::claims);
        // Most pods of some embedders have no keys.
        if had.any() || has.any() {
            let uid = PodUid::from(uid);
            let is_as_strong = had.strength == has.strength;
            // Most updates change no key.
            let is_alike = had.keys == has.keys;
            let keeps = |other: &Claims, key| is_as_strong && (is_alike || other.has(key));
            for named in had.iter().filter(|named| !keeps(&has, named.key)) {
                if let Some(old) = old {
                    self.release(named.key, had.strength, &uid, old);
                }
            }
            for named in has.iter() {
                let Some(new) = new else { break };
                match old.filter(|_| keeps(&had, named.key)) {
                    Some(old) => self.keep(named, old, new),
                    None => self.claim(named, has.strength, &uid, new),
                }
            }
        }
        IgnoredKeys { before: had.ignored, after: has.ignored }
    }

    /// Stores the new pod under a key that the old one claimed too. If that one is a contender, only its UID is stored.
    fn keep(&mut self, named: NamedClaim<'_>, old: &V, new: &V) {
        if let Some((place, holder)) = self.find(named.key, self.hashing)
            && holder.same(old)
        {
            self.replace_entry(named, place, new.clone());
        }
    }

    /// Adds a key that this pod newly claims.
    pub(super) fn claim(&mut self, named: NamedClaim<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.find(named.key, self.hashing) else {
            return self.add_entry(named, pod);
        };
        let other = holder.strength();
        let other_uid = PodUid::from(holder.shared().uid());
        if (strength, uid) < (other, &other_uid) {
            // A pod that answers with another UID than it is stored under would pass the key on to that pod.
            let is_stored =
                self.claimant(named.key, &other_uid, self.hashing).is_some_and(|stored| stored.same(holder));
            self.replace_entry(named, place, pod.clone());
            if is_stored {
                self.add_contender(named.key, other, other_uid);
            }
        } else {
            self.add_contender(named.key, strength, uid.clone());
        }
    }

    /// Removes a key that this pod no longer claims.
    pub(super) fn release(&mut self, key: ClaimRef<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.find(key, self.hashing) else { return };
        if holder.same(pod) {
            self.pass_on(key, place);
        } else {
            let contender = Contender { key: OwnedClaim::new(key), strength, uid: uid.clone() };
            self.contenders_mut().remove(&contender);
        }
    }

    /// Passes a key on to the first contender, which may give a container another name. Returns that pod. Without a
    /// contender, removes the key.
    pub(super) fn pass_on(&mut self, key: ClaimRef<'_>, place: Place) -> Option<V> {
        while let Some(contender) = self.contenders.first_of(key).cloned() {
            self.contenders_mut().remove(&contender);
            // Not found if its own UID changed.
            let Some(next) = self.claimant(key, &contender.uid, self.hashing).cloned() else { continue };
            let claims = if let ClaimRef::ContainerId(_) = key { next.claims() } else { Claims::NONE };
            let named = claims.iter().find(|named| named.key == key);
            self.replace_entry(named.unwrap_or(NamedClaim { key, container: None }), place, next.clone());
            return Some(next);
        }
        self.remove_entry(key, place);
        None
    }

    pub(super) fn contenders_mut(&mut self) -> &mut Contenders {
        self.beside(|tables| &mut tables.contenders)
    }

    fn add_contender(&mut self, key: ClaimRef<'_>, strength: Strength, uid: PodUid) {
        // Contenders of one key share its bytes.
        let first = self.contenders.first_of(key).map(|other| other.key.clone());
        let owned = first.unwrap_or_else(|| OwnedClaim::new(key));
        self.contenders_mut().insert(Contender { key: owned, strength, uid });
    }

    /// Stores a pod under a UID that the tables do not have. A mirror pod has a translation.
    pub(super) fn add_pod(&mut self, kind: PodKind, key: HashedUid<'_>, pod: V, target: Translation) {
        let HashedUid { hash, tag, words, .. } = key;
        match kind {
            PodKind::Pod => self.of(|tables| &mut tables.pods).insert(hash, tag, words, pod),
            PodKind::Mirror => {
                self.of(|tables| &mut tables.mirrors).insert(hash, tag, words, Mirror { pod, target });
            }
        }
    }

    /// Removes what [`add_pod`](Self::add_pod) stored.
    pub(super) fn remove_pod(&mut self, kind: PodKind, place: Place) {
        match kind {
            PodKind::Pod => self.of(|tables| &mut tables.pods).remove(place),
            PodKind::Mirror => self.of(|tables| &mut tables.mirrors).remove(place),
        }
    }

    /// Stores a key without a holder.
    pub(super) fn add_entry(&mut self, NamedClaim { key, container }: NamedClaim<'_>, pod: &V) {
        let hashing = self.hashing;
        let pod = pod.clone();
        match key {
            ClaimRef::ContainerId(id) => {
                let (words, hash) = container_key(id, hashing);
                let container = Container { pod, name: container.cloned().unwrap_or_default() };
                self.of(|tables| &mut tables.container_ids).insert(hash, any_tag(hash), words, container);
            }
            ClaimRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, hashing);
                self.of(|tables| &mut tables.ips).insert(hash, any_tag(hash), words, pod);
            }
            ClaimRef::Custom(kind, key) => {
                let (kind, hash) = custom_key(kind, key, hashing);
                let text = Text::new(&kind, key);
                self.of(|tables| &mut tables.keys).insert(hash, any_tag(hash), text, pod);
            }
            ClaimRef::Name(kind, name, namespace) => {
                let (tag, hash) = name_key(kind, name, namespace, hashing);
                let text = Text::new(name.as_bytes(), namespace.as_bytes());
                self.of(|tables| &mut tables.names).insert(hash, tag, text, pod);
            }
        }
    }

    /// Stores another pod in an entry. It may give a container another name.
    pub(super) fn replace_entry(
        &mut self,
        NamedClaim { key, container }: NamedClaim<'_>,
        place: Place,
        pod: V,
    ) {
        match key {
            ClaimRef::ContainerId(_) => {
                let container = Container { pod, name: container.cloned().unwrap_or_default() };
                self.of(|tables| &mut tables.container_ids).replace(place, container);
            }
            ClaimRef::Ip(_) => self.of(|tables| &mut tables.ips).replace(place, pod),
            ClaimRef::Custom(..) => self.of(|tables| &mut tables.keys).replace(place, pod),
            ClaimRef::Name(..) => self.of(|tables| &mut tables.names).replace(place, pod),
        }
    }

    fn remove_entry(&mut self, key: ClaimRef<'_>, place: Place) {
        match key {
            ClaimRef::ContainerId(_) => self.of(|tables| &mut tables.container_ids).remove(place),
            ClaimRef::Ip(_) => self.of(|tables| &mut tables.ips).remove(place),
            ClaimRef::Custom(..) => self.of(|tables| &mut tables.keys).remove(place),
            ClaimRef::Name(..) => self.of(|tables| &mut tables.names).remove(place),
        }
    }
}
