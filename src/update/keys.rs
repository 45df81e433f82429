//! Decides which pod gets a key: container IDs, IPs, and custom keys; for a removed pod, its name too.
//!
//! The result depends only on the set of pods, not on the order of writes. If several pods claim a key, the one
//! with the strongest claim is in the table and the others are contenders. An added pod is compared with the
//! holder. When the holder is removed, the first contender takes over.
//!
//! A pod's list of keys is not stored: [`PodMeta::keys`] is called when the pod is added, and again when it is
//! replaced or removed. Its flags have the number of its keys. If fewer are found, its answers have changed, and all
//! tables are searched for the others: no key may lead to a pod that is gone.

use std::sync::Arc;

use crate::id::{PodUid, UidRef};
use crate::map::{Labelled, Place, Text, any_tag};
use crate::pod::{Claims, KeyRef, NamedKey, PodMeta, Strength};
use crate::snapshot::{CONTESTED, Claimant, Contender, OwnedKey, Tables, container_key, ip_key, own_key};
use crate::versions::{Draft, TablesMut};

/// The keys of the current pods.
impl<P: PodMeta> Draft<'_, P> {
    /// Claims the keys of an added pod. Returns their number.
    pub(super) fn claim_keys(&mut self, uid: UidRef<'_>, pod: &Arc<P>) -> usize {
        self.with_claims([None, Some(&**pod)], 0, |draft, [_, new]| {
            draft.count_ignored(0, new.ignored);
            draft.live_mut().claim_all(new, new.strength, &uid.into(), pod);
        })
    }

    /// Releases the keys of a removed pod, of which there were `claimed`.
    pub(super) fn release_keys(&mut self, uid: UidRef<'_>, pod: &Arc<P>, claimed: usize) {
        self.with_claims([Some(&**pod), None], claimed, |draft, [old, _]| {
            draft.count_ignored(old.ignored, 0);
            draft.live_mut().release_all(old, old.strength, &uid.into(), pod, claimed);
        });
    }

    /// Replaces the old pod, which claimed that many keys, by the new one, which has the same UID. Returns the number of
    /// the new one's keys.
    pub(super) fn replace_keys(
        &mut self,
        uid: UidRef<'_>,
        old_pod: &Arc<P>,
        new_pod: &Arc<P>,
        claimed: usize,
    ) -> usize {
        self.with_claims([Some(&**old_pod), Some(&**new_pod)], claimed, |draft, [old, new]| {
            draft.count_ignored(old.ignored, new.ignored);
            let (uid, mut tables) = (uid.into(), draft.live_mut());
            if old.strength == new.strength {
                tables.replace_all([old, new], &uid, [old_pod, new_pod], claimed);
            } else {
                tables.release_all(old, old.strength, &uid, old_pod, claimed);
                tables.claim_all(new, new.strength, &uid, new_pod);
            }
        })
    }

    /// Calls `work` with the claims of the old and of the new pod, sorted or [alike](Claims::alike), unless there are none: most pods of some
    /// embedders have no keys. Returns the number of the new one's keys.
    #[inline]
    pub(super) fn with_claims(
        &mut self,
        pods: [Option<&P>; 2],
        claimed: usize,
        work: impl FnOnce(&mut Self, &[Claims; 2]),
    ) -> usize {
        let kept = self.kept;
        if !kept.any() && claimed == 0 {
            return 0;
        }
        let mut scratch = self.scratch().take().unwrap_or_default();
        let mut any = claimed > 0;
        for (claims, pod) in scratch.iter_mut().zip(pods) {
            claims.collect(kept, |keys| pod.into_iter().for_each(|pod| pod.keys(keys)));
            any |= claims.any();
        }
        let claimed = if any { self.with_any_claims(&mut scratch, work) } else { 0 };
        *self.scratch() = Some(scratch);
        claimed
    }

    /// Not inlined, to keep the path of a pod without keys short.
    #[inline(never)]
    fn with_any_claims(
        &mut self,
        scratch: &mut [Claims; 2],
        work: impl FnOnce(&mut Self, &[Claims; 2]),
    ) -> usize {
        // Most updates change no key.
        if !scratch[0].alike(&scratch[1]) {
            scratch.iter_mut().for_each(Claims::sort);
        }
        work(self, scratch);
        let claimed = scratch[1].len();
        scratch.iter_mut().for_each(Claims::trim);
        claimed
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

    /// Releases the `claimed` keys of a pod.
    pub(super) fn release_all(
        &mut self,
        claims: &Claims,
        strength: Strength,
        uid: &PodUid,
        pod: &V,
        claimed: usize,
    ) {
        let released = claims.iter().filter(|named| self.release(named.key, strength, uid, pod));
        let found = released.count();
        if found < claimed {
            self.release_others(uid, pod);
        }
    }

    /// Replaces the old pod, which claimed that many keys, by the new one, whose claims are as strong.
    fn replace_all(
        &mut self,
        [old, new]: [&Claims; 2],
        uid: &PodUid,
        [old_pod, new_pod]: [&V; 2],
        claimed: usize,
    ) {
        let (mut of_old, mut of_new) = (old.iter(), new.iter());
        let (mut before, mut after) = (of_old.next(), of_new.next());
        let mut found = 0;
        loop {
            match (before, after) {
                (Some(one), Some(other)) if one.key == other.key => {
                    found += usize::from(self.keep(other, new.strength, uid, [old_pod, new_pod]));
                    (before, after) = (of_old.next(), of_new.next());
                }
                (Some(one), other) if other.is_none_or(|other| one.key < other.key) => {
                    found += usize::from(self.release(one.key, old.strength, uid, old_pod));
                    before = of_old.next();
                }
                (_, Some(other)) => {
                    self.claim(other, new.strength, uid, new_pod);
                    after = of_new.next();
                }
                (_, None) => break,
            }
        }
        if found < claimed {
            self.release_others(uid, old_pod);
            self.release_others(uid, new_pod);
            self.claim_all(new, new.strength, uid, new_pod);
        }
    }

    /// Stores the new pod under a key that the old one claimed too. Returns whether the old one did.
    fn keep(&mut self, named: NamedKey<'_>, strength: Strength, uid: &PodUid, [old, new]: [&V; 2]) -> bool {
        match self.locate(named.key, self.hashing()) {
            Some((place, holder)) if holder.same(old) => {
                self.replace_entry(named, place, new, place.flags());
                true
            }
            // A contender has the pod's UID, which stays.
            _ => self.contention(named.key, strength, uid).is_some(),
        }
    }

    /// Adds a key that this pod newly claims.
    pub(super) fn claim(&mut self, named: NamedKey<'_>, strength: Strength, uid: &PodUid, pod: &V) {
        let Some((place, holder)) = self.locate(named.key, self.hashing()) else {
            return self.add_entry(named, pod, 0);
        };
        let (holder, kept) = (holder.clone(), self.kept());
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

    /// Removes a key that this pod no longer claims. Returns whether it did.
    pub(super) fn release(&mut self, key: KeyRef<'_>, strength: Strength, uid: &PodUid, pod: &V) -> bool {
        match self.locate(key, self.hashing()) {
            Some((place, holder)) if holder.same(pod) => {
                self.pass_on(key, place);
                true
            }
            _ => {
                let contender = self.contention(key, strength, uid).cloned();
                contender.is_some_and(|contender| self.remove_contender(&contender))
            }
        }
    }

    /// Passes a key on to the first contender.
    fn pass_on(&mut self, key: KeyRef<'_>, place: Place) {
        while place.flags() & CONTESTED != 0
            && let Some(contender) = self.contender(key, None).cloned()
        {
            self.contenders().remove(&contender);
            // Not found if its own UID changed.
            if let Some(heir) = self.contending(&contender, self.hashing()).cloned() {
                return self.inherit(key, place, &heir);
            }
        }
        self.remove_entry(key, place);
    }

    /// Stores a key under the contender that takes over, which may give a container another name.
    fn inherit(&mut self, key: KeyRef<'_>, place: Place, heir: &V) {
        let mut claims = Claims::new();
        if let KeyRef::ContainerId(_) = key {
            claims.collect(self.kept(), |keys| heir.pod().keys(keys));
        }
        let named = claims.iter().find(|named| named.key == key);
        let flags = if self.contender(key, None).is_some() { CONTESTED } else { 0 };
        self.replace_entry(named.unwrap_or(NamedKey { key, container: "" }), place, heir, flags);
    }

    /// Releases what is left of a pod whose answers have changed. O(n).
    fn release_others(&mut self, uid: &PodUid, pod: &V) {
        let (held, contended) = (self.held_by(pod), self.contended_by(uid));
        for key in held {
            if let Some((place, _)) = self.locate(key.as_ref(), self.hashing()) {
                self.pass_on(key.as_ref(), place);
            }
        }
        for contender in contended {
            self.remove_contender(&contender);
        }
    }

    fn add_contender(&mut self, key: KeyRef<'_>, strength: Strength, uid: PodUid) {
        let key = match self.contender(key, None) {
            Some(other) => other.key.clone(),
            None => OwnedKey::new(key),
        };
        let contender = Contender { key, strength, uid };
        let priority = self.hashing().of(&contender);
        self.contenders().insert(contender, priority);
    }

    /// Returns whether there was such a contender.
    fn remove_contender(&mut self, contender: &Contender) -> bool {
        let was_there = self.contenders().remove(contender);
        let key = contender.key.as_ref();
        if was_there
            && self.contender(key, None).is_none()
            && let Some((place, holder)) = self.locate(key, self.hashing())
        {
            let holder = holder.clone();
            self.replace_value(key, place, holder, 0);
        }
        was_there
    }

    /// Stores a key without a holder.
    fn add_entry(&mut self, NamedKey { key, container }: NamedKey<'_>, pod: &V, flags: u16) {
        let pod = pod.clone();
        match key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, self.hashing());
                let label = self.memory().label(container);
                self.of(Tables::container_ids()).insert(any_tag(hash), Labelled { words, label }, pod, flags);
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, self.hashing());
                self.of(Tables::ips()).insert(any_tag(hash), words, pod, flags);
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, self.hashing());
                let record = self.memory().record(kind, key);
                self.of(Tables::keys()).insert(any_tag(hash), Text { hash, record }, pod, flags);
            }
            KeyRef::Name(kind, name, namespace) => {
                let hash = self.hashing().pair(name, namespace);
                let record = self.memory().record(name, namespace);
                self.of(Tables::names_of(kind)).insert(any_tag(hash), Text { hash, record }, pod, flags);
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
            KeyRef::ContainerId(_) => self.of(Tables::container_ids()).replace(place, pod, flags),
            KeyRef::Ip(_) => self.of(Tables::ips()).replace(place, pod, flags),
            KeyRef::Own(..) => self.of(Tables::keys()).replace(place, pod, flags),
            KeyRef::Name(kind, ..) => self.of(Tables::names_of(kind)).replace(place, pod, flags),
        }
    }

    fn remove_entry(&mut self, key: KeyRef<'_>, place: Place) {
        match key {
            KeyRef::ContainerId(_) => self.of(Tables::container_ids()).remove(place),
            KeyRef::Ip(_) => self.of(Tables::ips()).remove(place),
            KeyRef::Own(..) => self.of(Tables::keys()).remove(place),
            KeyRef::Name(kind, ..) => self.of(Tables::names_of(kind)).remove(place),
        }
    }
}
