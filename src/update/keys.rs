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
use crate::options::Kinds;
use crate::pod::{Claims, KeyRef, NamedKey, PodMeta, Strength};
use crate::snapshot::{Contender, OwnedKey, container_key, ip_key, own_key};
use crate::versions::Draft;

impl<P: PodMeta> Draft<'_, P> {
    /// Claims the keys of an added pod.
    pub(super) fn claim_keys(&mut self, pod: &Arc<P>) {
        self.with_claims(None, Some(&**pod), |draft, [_, new]| {
            new.sort();
            draft.count_ignored(0, new.ignored);
            for named in new.iter() {
                draft.claim(named, new.strength, pod);
            }
        });
    }

    /// Releases the keys of a removed pod.
    pub(super) fn give_up_keys(&mut self, pod: &Arc<P>) {
        self.with_claims(Some(&**pod), None, |draft, [old, _]| {
            old.sort();
            draft.count_ignored(old.ignored, 0);
            for named in old.iter() {
                draft.give_up(named.key, old.strength, pod);
            }
        });
    }

    /// Replaces the old pod by the new one, which has the same UID. A key that both name stays, with the new pod.
    pub(super) fn exchange_keys(&mut self, old_pod: &Arc<P>, new_pod: &Arc<P>) {
        self.with_claims(Some(&**old_pod), Some(&**new_pod), |draft, [old, new]| {
            if old == new {
                for named in new.iter() {
                    draft.hand_over(named, old_pod, new_pod, false);
                }
                return;
            }
            draft.count_ignored(old.ignored, new.ignored);
            old.sort();
            new.sort();
            if old.strength != new.strength {
                for named in old.iter() {
                    draft.give_up(named.key, old.strength, old_pod);
                }
                for named in new.iter() {
                    draft.claim(named, new.strength, new_pod);
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
                    (Some(_), Some(named)) => draft.hand_over(named, old_pod, new_pod, true),
                    (Some(named), None) => draft.give_up(named.key, old.strength, old_pod),
                    (None, Some(named)) => draft.claim(named, new.strength, new_pod),
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
        let mut any = false;
        for (claims, pod) in scratch.iter_mut().zip([old, new]) {
            if let Some(pod) = pod {
                claims.collect(kept, |keys| pod.keys(keys));
                any |= claims.any();
            }
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

    /// Adds a key that `pod` newly names.
    fn claim(&mut self, named: NamedKey<'_>, strength: Strength, pod: &Arc<P>) {
        let Some((place, holder)) = self.by_key.locate(named.key, &self.hashing) else {
            return self.file(named, pod);
        };
        let holder = Arc::clone(holder);
        let other = strength_of(&*holder);
        if (strength, pod.uid()) < (other, holder.uid()) {
            self.refile(named, place, pod);
            self.contend(named.key, other, &*holder);
        } else {
            self.contend(named.key, strength, &**pod);
        }
    }

    /// Removes a key that `pod` no longer names.
    fn give_up(&mut self, key: KeyRef<'_>, strength: Strength, pod: &Arc<P>) {
        let place = match self.by_key.locate(key, &self.hashing) {
            Some((place, holder)) if Arc::ptr_eq(holder, pod) => place,
            _ => {
                let next = self.by_key.contender(key, None);
                if let Some(key) = next.map(|next| next.key.clone()) {
                    self.withdraw(&Contender { key, strength, uid: pod.uid().into() });
                }
                return;
            }
        };
        // If the contender no longer names the key, use the next one.
        while let Some(contender) = self.by_key.contender(key, None).cloned() {
            self.withdraw(&contender);
            if let Some(heir) = self.pod_by_uid(&contender.uid).cloned() {
                return self.inherit(key, place, &heir);
            }
        }
        self.unfile(key, place);
    }

    /// Stores a key under the contender that takes over.
    fn inherit(&mut self, key: KeyRef<'_>, place: Place, heir: &Arc<P>) {
        let mut claims = Claims::new();
        if let KeyRef::ContainerId(_) = key {
            // The heir may give the container another name.
            claims.collect(Kinds { container_ids: true, ..Kinds::default() }, |keys| heir.keys(keys));
        }
        let named = claims.iter().find(|named| named.key == key);
        self.refile(named.unwrap_or(NamedKey { key, container: "" }), place, heir);
    }

    /// Both `old` and `new` name this key. Contenders are stored by UID, so only the holder of a key changes.
    fn hand_over(&mut self, named: NamedKey<'_>, old: &Arc<P>, new: &Arc<P>, may_be_renamed: bool) {
        if let Some((place, holder)) = self.by_key.locate(named.key, &self.hashing)
            && Arc::ptr_eq(holder, old)
        {
            if may_be_renamed {
                self.refile(named, place, new);
            } else {
                self.repoint(named.key, place, new);
            }
        }
    }

    fn contend(&mut self, key: KeyRef<'_>, strength: Strength, pod: &P) {
        let key = match key {
            KeyRef::ContainerId(id) => OwnedKey::ContainerId(id),
            KeyRef::Ip(ip) => OwnedKey::Ip(ip),
            KeyRef::Own(kind, bytes) => match self.by_key.contender(key, None) {
                Some(other) => other.key.clone(),
                None => OwnedKey::Own(kind, bytes.into()),
            },
        };
        let contender = Contender { key, strength, uid: PodUid::from(pod.uid()) };
        let priority = self.hashing.of(&contender);
        self.contenders_mut().insert(contender, priority);
    }

    fn withdraw(&mut self, contender: &Contender) {
        self.contenders_mut().remove(contender);
    }

    /// Stores a key without a holder.
    fn file(&mut self, named: NamedKey<'_>, pod: &Arc<P>) {
        let pod = Arc::clone(pod);
        match named.key {
            KeyRef::ContainerId(id) => {
                let (words, hash) = container_key(id, &self.hashing);
                let label = self.memory().label(named.container);
                self.container_ids_mut().insert(any_tag(hash), Labelled { words, label }, pod, 0);
            }
            KeyRef::Ip(ip) => {
                let (words, hash) = ip_key(ip, &self.hashing);
                self.ips_mut().insert(any_tag(hash), words, pod, 0);
            }
            KeyRef::Own(kind, key) => {
                let (kind, hash) = own_key(kind, key, &self.hashing);
                let record = self.memory().record(None, kind, key);
                self.keys_mut().insert(any_tag(hash), Text { hash, record }, pod, 0);
            }
        }
    }

    /// Stores a key under another pod, which may have another name for the container.
    fn refile(&mut self, named: NamedKey<'_>, place: Place, pod: &Arc<P>) {
        if let KeyRef::ContainerId(_) = named.key
            && self
                .by_key
                .container_ids
                .at(place)
                .is_none_or(|entry| entry.key.label.as_str() != named.container)
        {
            self.unfile(named.key, place);
            return self.file(named, pod);
        }
        self.repoint(named.key, place, pod);
    }

    fn repoint(&mut self, key: KeyRef<'_>, place: Place, pod: &Arc<P>) {
        let pod = Arc::clone(pod);
        match key {
            KeyRef::ContainerId(_) => self.container_ids_mut().replace(place, pod, 0),
            KeyRef::Ip(_) => self.ips_mut().replace(place, pod, 0),
            KeyRef::Own(..) => self.keys_mut().replace(place, pod, 0),
        }
    }

    fn unfile(&mut self, key: KeyRef<'_>, place: Place) {
        match key {
            KeyRef::ContainerId(_) => self.container_ids_mut().remove(place),
            KeyRef::Ip(_) => self.ips_mut().remove(place),
            KeyRef::Own(..) => self.keys_mut().remove(place),
        }
    }
}

/// The strength of a pod's claims.
pub(super) fn strength_of<P: PodMeta>(pod: &P) -> Strength {
    let mut claims = Claims::new();
    claims.collect(Kinds::default(), |keys| pod.keys(keys));
    claims.strength
}
