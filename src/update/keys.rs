//! Decides which pod gets a key, and writes the entries of all keys.
//!
//! The rules of this file are those of the additional keys, and of the names of removed pods. Who holds a current pod's name
//! follows another rule, which is in `update`: the pod that was stored last. Its entry is written here too.
//!
//! The result depends only on the set of pods, not on the order of writes. If several pods claim a key, the one
//! with the strongest claim is in the table and the others are contenders. An added pod is compared with the
//! holder. When the holder is removed, the first contender takes over.
//!
//! A pod's list of keys is not stored: [`PodMeta::keys`] is called when the pod is added, and again when
//! it is replaced or removed.

use crate::id::{PodUid, UidRef};
use crate::pod::{Claim, ClaimedKeyRef, Claims, OwnedClaimedKey, PodKind, PodMeta, Strength};
use crate::pods::{
    Claimant, Container, Contender, Contenders, HashedKey, HashedName, HashedUid, Mirror, Tables, Translation,
};
use crate::table::versions::TablesMut;
use crate::table::{Place, Text};

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
            let is_alike = had.same_keys(&has);
            let stays = |other: &Claims, key| is_as_strong && (is_alike || other.has(key));
            for claim in had.iter().filter(|claim| !stays(&has, claim.key)) {
                if let Some(old) = old {
                    self.remove_claim(claim.key, had.strength, &uid, old);
                }
            }
            for claim in has.iter() {
                let Some(new) = new else { break };
                match old.filter(|_| stays(&had, claim.key)) {
                    Some(old) => self.renew_claim(claim, old, new),
                    None => self.add_claim(claim, has.strength, &uid, new),
                }
            }
        }
        IgnoredKeys { before: had.ignored, after: has.ignored }
    }

    /// Stores the new pod under a key that the old one claimed too. If that one is a contender, only its UID is stored.
    fn renew_claim(&mut self, claim: Claim<'_>, old: &V, new: &V) {
        if let Some((place, holder)) = self.find(claim.key, self.hashing)
            && holder.same(old)
        {
            self.replace_entry(claim, place, new.clone());
        }
    }

    /// Adds a key that this pod newly claims.
    pub(super) fn add_claim(&mut self, claim: Claim<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.find(claim.key, self.hashing) else {
            return self.add_entry(claim, pod);
        };
        let other = holder.strength();
        let other_uid = PodUid::from(holder.item().uid());
        if (strength, uid) < (other, &other_uid) {
            // A pod that answers with another UID than it is stored under would pass the key on to that pod.
            let is_stored =
                self.claimant(claim.key, &other_uid, self.hashing).is_some_and(|stored| stored.same(holder));
            self.replace_entry(claim, place, pod.clone());
            if is_stored {
                self.add_contender(claim.key, other, other_uid);
            }
        } else {
            self.add_contender(claim.key, strength, uid.clone());
        }
    }

    /// Removes a key that this pod no longer claims.
    pub(super) fn remove_claim(&mut self, key: ClaimedKeyRef<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.find(key, self.hashing) else { return };
        if holder.same(pod) {
            self.pass_on(key, place);
        } else {
            let contender = Contender { key: OwnedClaimedKey::new(key), strength, uid: uid.clone() };
            self.contenders_mut().remove(&contender);
        }
    }

    /// Passes a key on to the first contender, which may give a container another name. Returns that pod. Without a
    /// contender, removes the key.
    pub(super) fn pass_on(&mut self, key: ClaimedKeyRef<'_>, place: Place) -> Option<V> {
        while let Some(contender) = self.contenders.first_of(key).cloned() {
            self.contenders_mut().remove(&contender);
            // Not found if its own UID changed.
            let Some(next) = self.claimant(key, &contender.uid, self.hashing).cloned() else { continue };
            let claims = match key {
                // Its entry has more than the pod.
                ClaimedKeyRef::ContainerId(_) => next.claims(),
                ClaimedKeyRef::Ip(_) | ClaimedKeyRef::Custom(..) | ClaimedKeyRef::Name { .. } => Claims::NONE,
            };
            let claim = claims.iter().find(|claim| claim.key == key);
            self.replace_entry(claim.unwrap_or(Claim { key, container: None }), place, next.clone());
            return Some(next);
        }
        self.remove_entry(key, place);
        None
    }

    pub(super) fn contenders_mut(&mut self) -> &mut Contenders {
        self.beside(|tables| &mut tables.contenders)
    }

    fn add_contender(&mut self, key: ClaimedKeyRef<'_>, strength: Strength, uid: PodUid) {
        let shared = match key {
            // Contenders of one key share its bytes.
            ClaimedKeyRef::Custom(..) | ClaimedKeyRef::Name { .. } => {
                self.contenders.first_of(key).map(|other| other.key.clone())
            }
            // These have none.
            ClaimedKeyRef::ContainerId(_) | ClaimedKeyRef::Ip(_) => None,
        };
        let key = shared.unwrap_or_else(|| OwnedClaimedKey::new(key));
        self.contenders_mut().insert(Contender { key, strength, uid });
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
    pub(super) fn add_entry(&mut self, Claim { key, container }: Claim<'_>, pod: &V) {
        let hashing = self.hashing;
        let pod = pod.clone();
        match key {
            ClaimedKeyRef::ContainerId(id) => {
                let HashedKey { key: words, tag, hash } = HashedKey::container_id(id, hashing);
                let container = Container { pod, name: container.cloned().unwrap_or_default() };
                self.of(|tables| &mut tables.container_ids).insert(hash, tag, words, container);
            }
            ClaimedKeyRef::Ip(ip) => {
                let HashedKey { key: words, tag, hash } = HashedKey::ip(ip, hashing);
                self.of(|tables| &mut tables.ips).insert(hash, tag, words, pod);
            }
            ClaimedKeyRef::Custom(kind, key) => {
                let HashedKey { key: kind, tag, hash } = HashedKey::custom(kind, key, hashing);
                let text = Text::new(&kind, key);
                self.of(|tables| &mut tables.custom_keys).insert(hash, tag, text, pod);
            }
            ClaimedKeyRef::Name { kind, namespace, name } => {
                let HashedName { tag, hash } = HashedName::new(kind, namespace, name, hashing);
                let text = Text::new(name.as_bytes(), namespace.as_bytes());
                self.of(|tables| &mut tables.names).insert(hash, tag, text, pod);
            }
        }
    }

    /// Stores another pod in an entry. It may give a container another name.
    pub(super) fn replace_entry(&mut self, Claim { key, container }: Claim<'_>, place: Place, pod: V) {
        match key {
            ClaimedKeyRef::ContainerId(_) => {
                let container = Container { pod, name: container.cloned().unwrap_or_default() };
                self.of(|tables| &mut tables.container_ids).replace(place, container);
            }
            ClaimedKeyRef::Ip(_) => self.of(|tables| &mut tables.ips).replace(place, pod),
            ClaimedKeyRef::Custom(..) => self.of(|tables| &mut tables.custom_keys).replace(place, pod),
            ClaimedKeyRef::Name { .. } => self.of(|tables| &mut tables.names).replace(place, pod),
        }
    }

    fn remove_entry(&mut self, key: ClaimedKeyRef<'_>, place: Place) {
        match key {
            ClaimedKeyRef::ContainerId(_) => self.of(|tables| &mut tables.container_ids).remove(place),
            ClaimedKeyRef::Ip(_) => self.of(|tables| &mut tables.ips).remove(place),
            ClaimedKeyRef::Custom(..) => self.of(|tables| &mut tables.custom_keys).remove(place),
            ClaimedKeyRef::Name { .. } => self.of(|tables| &mut tables.names).remove(place),
        }
    }
}
