//! Decides which pod gets a key: container IDs, IPs, and custom keys.
//!
//! The result depends only on the set of pods, not on the order of writes. If several pods name a key, the one
//! with the strongest claim is in the table and the others are contenders. An added pod is compared with the
//! holder. When the holder is removed, the first contender takes over.
//!
//! A pod's list of keys is not stored: [`PodMeta::keys`] is called when the pod is added, and again when it is
//! removed.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::id::PodUid;
use crate::map::{Labelled, Ordered, Place, Text, any_tag};
use crate::pod::{Claims, KeyRef, NamedKey, PodMeta, Strength};
use crate::snapshot::{Contender, Holder, OwnedKey, UidKey, container_key, ip_key, own_key};
use crate::versions::Draft;

impl<P: PodMeta> Draft<'_, P> {
    /// Claims the keys of an added pod.
    pub(super) fn claim_keys(&mut self, key: &UidKey<'_>, pod: &Arc<P>) {
        self.with_claims(None, Some(&**pod), |draft, [_, new]| {
            let uid = key.uid().into();
            new.sort();
            draft.count_ignored(0, new.ignored);
            for named in new.iter() {
                draft.claim(named, new.strength, &uid);
            }
        });
    }

    /// Releases the keys of a removed pod.
    pub(super) fn give_up_keys(&mut self, key: &UidKey<'_>, pod: &Arc<P>) {
        self.with_claims(Some(&**pod), None, |draft, [old, _]| {
            let uid = key.uid().into();
            old.sort();
            draft.count_ignored(old.ignored, 0);
            for named in old.iter() {
                draft.give_up(named.key, old.strength, &uid);
            }
        });
    }

    /// Replaces the old pod by the new one, which has the same UID. The entry of a key that both name has this UID, so it
    /// does not change.
    pub(super) fn exchange_keys(&mut self, key: &UidKey<'_>, old_pod: &Arc<P>, new_pod: &Arc<P>) {
        self.with_claims(Some(&**old_pod), Some(&**new_pod), |draft, [old, new]| {
            if old == new {
                return;
            }
            let uid = key.uid().into();
            draft.count_ignored(old.ignored, new.ignored);
            old.sort();
            new.sort();
            if old.strength != new.strength {
                for named in old.iter() {
                    draft.give_up(named.key, old.strength, &uid);
                }
                for named in new.iter() {
                    draft.claim(named, new.strength, &uid);
                }
                return;
            }
            // Both are sorted.
            let (mut of_old, mut of_new) = (old.iter().peekable(), new.iter().peekable());
            loop {
                let order = match (of_old.peek(), of_new.peek()) {
                    (Some(one), Some(other)) => one.key.cmp(&other.key),
                    (Some(_), None) => Ordering::Less,
                    (None, _) => Ordering::Greater,
                };
                match (of_old.next_if(|_| order.is_le()), of_new.next_if(|_| order.is_ge())) {
                    (Some(_), Some(named)) => draft.rename(named, &uid),
                    (Some(named), None) => draft.give_up(named.key, old.strength, &uid),
                    (None, Some(named)) => draft.claim(named, new.strength, &uid),
                    (None, None) => break,
                }
            }
        });
    }

    /// Removes all keys, and reserves pages for the keys of this many pods.
    pub(super) fn clear_keys(&mut self, expected: usize) {
        let (container_ids, ips, keys) =
            (self.by_key.container_ids.len(), self.by_key.ips.len(), self.by_key.keys.len());
        // Reserve as many pages as now, but at most four keys of each kind per expected pod.
        let most = expected.saturating_mul(4);
        self.container_ids_mut().clear(container_ids.min(most));
        self.ips_mut().clear(ips.min(most));
        self.keys_mut().clear(keys.min(most));
        *self.contenders_mut() = Ordered::new();
    }

    /// Frees pages that were reserved but not used.
    pub(super) fn trim_keys(&mut self) {
        self.container_ids_mut().trim();
        self.ips_mut().trim();
        self.keys_mut().trim();
    }

    /// Calls `work` with the claims of the old and of the new pod, unless there are none: most pods of some
    /// embedders have no keys.
    #[inline]
    pub(super) fn with_claims(
        &mut self,
        old: Option<&P>,
        new: Option<&P>,
        work: impl FnOnce(&mut Self, &mut [Claims; 2]),
    ) {
        let kept = self.by_key.kept;
        if !kept.any() {
            return;
        }
        let mut scratch = self.scratch().take().unwrap_or_default();
        let ([of_old, of_new], mut any) = (&mut *scratch, false);
        if let Some(pod) = old {
            of_old.collect(kept, |keys| pod.keys(keys));
            any = of_old.any();
        }
        if let Some(pod) = new {
            of_new.collect(kept, |keys| pod.keys(keys));
            any |= of_new.any();
        }
        if any {
            self.with_any_claims(&mut scratch, work);
        }
        *self.scratch() = Some(scratch);
    }

    /// Not inlined, to keep the path of a pod without keys short.
    #[inline(never)]
    fn with_any_claims(&mut self, scratch: &mut [Claims; 2], work: impl FnOnce(&mut Self, &mut [Claims; 2])) {
        work(self, scratch);
        scratch.iter_mut().for_each(Claims::trim);
    }

    fn count_ignored(&mut self, old: usize, new: usize) {
        if old != new {
            let total = &mut self.history().ignored_keys;
            *total = total.wrapping_sub(old).wrapping_add(new);
        }
    }

    /// Adds a key that the pod with this UID newly names.
    fn claim(&mut self, named: NamedKey<'_>, strength: Strength, uid: &PodUid) {
        let Some((place, holder)) = self.by_key.locate(named.key, &self.hashing) else {
            return self.file(named, uid);
        };
        let holder = holder.clone();
        match self.pod_by_uid(&holder).filter(|_| holder != *uid).map(|pod| self.strength_of(&**pod)) {
            Some(other) if (strength, uid) < (other, &holder) => {
                self.refile(named, place, uid);
                self.contend(named.key, other, holder);
            }
            Some(_) => self.contend(named.key, strength, uid.clone()),
            // Left by a pod whose keys changed.
            None => self.refile(named, place, uid),
        }
    }

    /// Removes a key that the pod with this UID no longer names.
    fn give_up(&mut self, key: KeyRef<'_>, strength: Strength, uid: &PodUid) {
        let place = match self.by_key.locate(key, &self.hashing) {
            Some((place, holder)) if holder == uid => place,
            _ => {
                let next = self.by_key.contender(key, None);
                if let Some(key) = next.map(|next| next.key.clone()) {
                    self.withdraw(&Contender { key, strength, uid: uid.clone() });
                }
                return;
            }
        };
        // If the contender no longer names the key, use the next one.
        while let Some(contender) = self.by_key.contender(key, None).cloned() {
            self.withdraw(&contender);
            if let Some(heir) = self.pod_by_uid(&contender.uid).cloned() {
                return self.inherit(key, place, &contender.uid, &heir);
            }
        }
        self.unfile(key, place);
    }

    /// Stores a key under the contender that takes over.
    fn inherit(&mut self, key: KeyRef<'_>, place: Place, uid: &PodUid, heir: &Arc<P>) {
        let mut claims = Claims::new();
        if let KeyRef::ContainerId(_) = key {
            // The heir may give the container another name.
            claims.collect(self.by_key.kept, |keys| heir.keys(keys));
        }
        let named = claims.iter().find(|named| named.key == key);
        self.refile(named.unwrap_or(NamedKey { key, container: "" }), place, uid);
    }

    /// The pod with this UID names a key as before, but may have another name for the container.
    fn rename(&mut self, named: NamedKey<'_>, uid: &PodUid) {
        if let KeyRef::ContainerId(_) = named.key
            && let Some((place, holder)) = self.by_key.locate(named.key, &self.hashing)
            && holder == uid
            && !self.is_named(named, place)
        {
            self.unfile(named.key, place);
            self.file(named, uid);
        }
    }

    /// The strength of a pod's claims. Asks for the same kinds of keys as when they were claimed: a pod may answer
    /// differently otherwise.
    pub(super) fn strength_of(&self, pod: &P) -> Strength {
        let mut claims = Claims::new();
        claims.collect(self.by_key.kept, |keys| pod.keys(keys));
        claims.strength
    }

    fn contend(&mut self, key: KeyRef<'_>, strength: Strength, uid: PodUid) {
        let key = match key {
            KeyRef::ContainerId(id) => OwnedKey::ContainerId(id),
            KeyRef::Ip(ip) => OwnedKey::Ip(ip),
            KeyRef::Own(kind, bytes) => match self.by_key.contender(key, None) {
                Some(other) => other.key.clone(),
                None => OwnedKey::Own(kind, bytes.into()),
            },
        };
        let contender = Contender { key, strength, uid };
        let priority = self.hashing.of(&contender);
        self.contenders_mut().insert(contender, priority);
    }

    fn withdraw(&mut self, contender: &Contender) {
        self.contenders_mut().remove(contender);
    }

    /// Stores a key without a holder.
    fn file(&mut self, named: NamedKey<'_>, uid: &PodUid) {
        let holder = Holder::new(uid.clone());
        match named.key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, &self.hashing);
                let label = self.memory().label(named.container);
                self.container_ids_mut().insert(any_tag(hash), Labelled { words, label }, holder, 0);
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, &self.hashing);
                self.ips_mut().insert(any_tag(hash), words, holder, 0);
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, &self.hashing);
                let record = self.memory().record(None, kind, key);
                self.keys_mut().insert(any_tag(hash), Text { hash, record }, holder, 0);
            }
        }
    }

    /// Stores a key under another pod, which may have another name for the container.
    fn refile(&mut self, named: NamedKey<'_>, place: Place, uid: &PodUid) {
        if !self.is_named(named, place) {
            self.unfile(named.key, place);
            return self.file(named, uid);
        }
        let holder = Holder::new(uid.clone());
        match named.key {
            KeyRef::ContainerId(_) => self.container_ids_mut().replace(place, holder, 0),
            KeyRef::Ip(_) => self.ips_mut().replace(place, holder, 0),
            KeyRef::Own(..) => self.keys_mut().replace(place, holder, 0),
        }
    }

    /// Whether the entry of a key has the container's name, if the key is a container ID.
    fn is_named(&self, named: NamedKey<'_>, place: Place) -> bool {
        let KeyRef::ContainerId(_) = named.key else { return true };
        let entry = self.by_key.container_ids.at(place);
        entry.is_some_and(|entry| entry.key.label.as_str() == named.container)
    }

    fn unfile(&mut self, key: KeyRef<'_>, place: Place) {
        match key {
            KeyRef::ContainerId(_) => self.container_ids_mut().remove(place),
            KeyRef::Ip(_) => self.ips_mut().remove(place),
            KeyRef::Own(..) => self.keys_mut().remove(place),
        }
    }
}
