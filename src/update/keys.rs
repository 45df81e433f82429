//! Decides which pod gets a key: container IDs, IPs, and custom keys; for a removed pod, its name too.
//!
//! The result depends only on the set of pods, not on the order of writes. If several pods claim a key, the one
//! with the strongest claim is in the table and the others are contenders. An added pod is compared with the
//! holder. When the holder is removed, the first contender takes over.
//!
//! A pod's list of keys is not stored: [`PodMeta::keys`] is called when the pod is added, and again when it is
//! replaced or removed.

use std::sync::Arc;

use crate::id::{PodUid, UidRef};
use crate::map::{Labelled, Place, Text, any_tag};
use crate::pod::{Claims, KeyRef, NamedKey, PodMeta, Strength};
use crate::snapshot::{CONTESTED, Claimant, Contender, OwnedKey, container_key, ip_key, own_key};
use crate::versions::{Draft, TablesMut};

/// The keys of the current pods.
impl<P: PodMeta> Draft<'_, P> {
    /// Claims the keys of an added pod.
    pub(super) fn claim_keys(&mut self, uid: UidRef<'_>, pod: &Arc<P>) {
        self.with_claims([None, Some(&**pod)], |draft, [_, new]| {
            draft.count_ignored(0, new.ignored);
            new.sort();
            draft.live_mut().claim_all(new, new.strength, &uid.into(), pod);
        });
    }

    /// Releases the keys of a removed pod.
    pub(super) fn release_keys(&mut self, uid: UidRef<'_>, pod: &Arc<P>) {
        self.with_claims([Some(&**pod), None], |draft, [old, _]| {
            draft.count_ignored(old.ignored, 0);
            old.sort();
            draft.live_mut().release_all(old, old.strength, &uid.into(), pod);
        });
    }

    /// Replaces the old pod by the new one, which has the same UID.
    pub(super) fn replace_keys(&mut self, uid: UidRef<'_>, old_pod: &Arc<P>, new_pod: &Arc<P>) {
        self.with_claims([Some(&**old_pod), Some(&**new_pod)], |draft, [old, new]| {
            draft.count_ignored(old.ignored, new.ignored);
            let (uid, mut tables) = (uid.into(), draft.live_mut());
            let is_as_strong = old.strength == new.strength;
            // Most updates change no key.
            if is_as_strong && old.alike(new) {
                return new.iter().for_each(|named| tables.keep(named, [old_pod, new_pod]));
            }
            old.sort();
            new.sort();
            if is_as_strong {
                tables.replace_all([old, new], &uid, [old_pod, new_pod]);
            } else {
                tables.release_all(old, old.strength, &uid, old_pod);
                tables.claim_all(new, new.strength, &uid, new_pod);
            }
        });
    }

    /// Calls `work` with the claims of the old and of the new pod, not sorted yet, unless there are none: most pods of some
    /// embedders have no keys.
    #[inline]
    pub(super) fn with_claims(
        &mut self,
        pods: [Option<&P>; 2],
        work: impl FnOnce(&mut Self, &mut [Claims; 2]),
    ) {
        let kept = self.kept;
        if !kept.any() {
            return;
        }
        let mut scratch = self.scratch().take().unwrap_or_default();
        let mut any = false;
        for (claims, pod) in scratch.iter_mut().zip(pods) {
            claims.collect(kept, |keys| pod.into_iter().for_each(|pod| pod.keys(keys)));
            any |= claims.any();
        }
        if any {
            work(self, &mut scratch);
            scratch.iter_mut().for_each(Claims::trim);
        }
        *self.scratch() = Some(scratch);
    }

    fn count_ignored(&mut self, old: usize, new: usize) {
        if old != new {
            let total = &mut self.history().ignored_keys;
            *total = total.wrapping_sub(old).wrapping_add(new);
        }
    }
}

/// The claims of one pod, sorted.
impl<V: Claimant> TablesMut<'_, V> {
    pub(super) fn claim_all(&mut self, claims: &Claims, strength: Strength, uid: &PodUid, pod: &V) {
        for named in claims.iter() {
            self.claim(named, strength, uid, pod);
        }
    }

    pub(super) fn release_all(&mut self, claims: &Claims, strength: Strength, uid: &PodUid, pod: &V) {
        claims.iter().for_each(|named| self.release(named.key, strength, uid, pod));
    }

    /// Replaces the old pod by the new one, whose claims are as strong.
    fn replace_all(&mut self, [old, new]: [&Claims; 2], uid: &PodUid, [old_pod, new_pod]: [&V; 2]) {
        for named in old.iter().filter(|named| !new.has(named.key)) {
            self.release(named.key, old.strength, uid, old_pod);
        }
        for named in new.iter() {
            if old.has(named.key) {
                self.keep(named, [old_pod, new_pod]);
            } else {
                self.claim(named, new.strength, uid, new_pod);
            }
        }
    }

    /// Stores the new pod under a key that the old one claimed too. If that one is a contender, only its UID is stored.
    fn keep(&mut self, named: NamedKey<'_>, [old, new]: [&V; 2]) {
        if let Some((place, holder)) = self.locate(named.key, self.hashing)
            && holder.same(old)
        {
            self.replace_entry(named, place, new, place.flags());
        }
    }

    /// Adds a key that this pod newly claims.
    pub(super) fn claim(&mut self, named: NamedKey<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.locate(named.key, self.hashing) else {
            return self.add_entry(named, pod, 0);
        };
        let (holder, kept) = (holder.clone(), self.kept);
        let (other, other_uid) = (holder.strength(kept), PodUid::from(holder.pod().uid()));
        if (strength, uid) < (other, &other_uid) {
            self.replace_entry(named, place, pod, CONTESTED);
            self.add_contender(named.key, other, other_uid);
        } else {
            if place.flags() & CONTESTED == 0 {
                self.replace_value(named.key, place, holder, CONTESTED);
            }
            self.add_contender(named.key, strength, uid.clone());
        }
    }

    /// Removes a key that this pod no longer claims.
    pub(super) fn release(&mut self, key: KeyRef<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.locate(key, self.hashing) else { return };
        if holder.same(pod) {
            return self.pass_on(key, place);
        }
        let (holder, uid) = (holder.clone(), uid.clone());
        self.contenders().remove(&Contender { key: OwnedKey::new(key), strength, uid });
        if self.first_contender(key).is_none() {
            self.replace_value(key, place, holder, 0);
        }
    }

    /// Passes a key on to the first contender.
    fn pass_on(&mut self, key: KeyRef<'_>, place: Place) {
        while place.flags() & CONTESTED != 0
            && let Some(contender) = self.first_contender(key).cloned()
        {
            self.contenders().remove(&contender);
            // Not found if its own UID changed.
            if let Some(heir) = self.contending(&contender, self.hashing).cloned() {
                return self.inherit(key, place, &heir);
            }
        }
        self.remove_entry(key, place);
    }

    /// Stores a key under the contender that takes over, which may give a container another name.
    fn inherit(&mut self, key: KeyRef<'_>, place: Place, heir: &V) {
        let mut claims = Claims::new();
        if let KeyRef::ContainerId(_) = key {
            claims.collect(self.kept, |keys| heir.pod().keys(keys));
        }
        let named = claims.iter().find(|named| named.key == key);
        let flags = if self.first_contender(key).is_some() { CONTESTED } else { 0 };
        self.replace_entry(named.unwrap_or(NamedKey { key, container: "" }), place, heir, flags);
    }

    fn add_contender(&mut self, key: KeyRef<'_>, strength: Strength, uid: PodUid) {
        let first = self.first_contender(key).map(|other| other.key.clone());
        let key = first.unwrap_or_else(|| OwnedKey::new(key));
        self.contenders().insert(Contender { key, strength, uid });
    }

    /// Stores a key without a holder.
    fn add_entry(&mut self, NamedKey { key, container }: NamedKey<'_>, pod: &V, flags: u16) {
        let pod = pod.clone();
        match key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, self.hashing);
                let label = self.memory().label(container);
                self.of(|tables| &mut tables.container_ids).insert(
                    any_tag(hash),
                    Labelled { words, label },
                    pod,
                    flags,
                );
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, self.hashing);
                self.of(|tables| &mut tables.ips).insert(any_tag(hash), words, pod, flags);
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, self.hashing);
                let record = self.memory().record(kind, key);
                self.of(|tables| &mut tables.keys).insert(any_tag(hash), Text { hash, record }, pod, flags);
            }
            KeyRef::Name(kind, name, namespace) => {
                let hash = self.hashing.pair(name, namespace);
                let record = self.memory().record(name, namespace);
                self.of(|tables| tables.of_names_mut(kind)).insert(
                    any_tag(hash),
                    Text { hash, record },
                    pod,
                    flags,
                );
            }
        }
    }

    /// Stores a key under another pod, which may give a container another name.
    fn replace_entry(&mut self, named: NamedKey<'_>, place: Place, pod: &V, flags: u16) {
        if let KeyRef::ContainerId(_) = named.key
            && self.container_ids.at(place).is_none_or(|entry| entry.key.label.as_str() != named.container)
        {
            self.remove_entry(named.key, place);
            return self.add_entry(named, pod, flags);
        }
        self.replace_value(named.key, place, pod.clone(), flags);
    }

    fn replace_value(&mut self, key: KeyRef<'_>, place: Place, pod: V, flags: u16) {
        match key {
            KeyRef::ContainerId(_) => self.of(|tables| &mut tables.container_ids).replace(place, pod, flags),
            KeyRef::Ip(_) => self.of(|tables| &mut tables.ips).replace(place, pod, flags),
            KeyRef::Own(..) => self.of(|tables| &mut tables.keys).replace(place, pod, flags),
            KeyRef::Name(kind, ..) => self.of(|tables| tables.of_names_mut(kind)).replace(place, pod, flags),
        }
    }

    fn remove_entry(&mut self, key: KeyRef<'_>, place: Place) {
        match key {
            KeyRef::ContainerId(_) => self.of(|tables| &mut tables.container_ids).remove(place),
            KeyRef::Ip(_) => self.of(|tables| &mut tables.ips).remove(place),
            KeyRef::Own(..) => self.of(|tables| &mut tables.keys).remove(place),
            KeyRef::Name(kind, ..) => self.of(|tables| tables.of_names_mut(kind)).remove(place),
        }
    }
}
