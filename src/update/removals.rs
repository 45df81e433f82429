//! Removed pods: which are kept, and until when.
//!
//! A pod is kept when its UID leaves the index, and forgotten when the UID returns, when its time is over, or when too
//! many were removed after it. The time is the last one that the writer was given.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::id::{FullName, PodUid, UidRef};
use crate::map::{Ordered, Place};
use crate::pod::{Claims, KeyRef, NamedKey, PodMeta};
use crate::snapshot::{Departed, Departure, LateKey, LateKeyRef, OwnedKey, PodKind, RemovedKey, UidKey};
use crate::versions::Draft;

/// A current pod that a set may remove. For a mirror, with its translation.
pub(super) struct Living<P> {
    kind: PodKind,
    pod: Arc<P>,
    target: Option<PodUid>,
}

impl<P: PodMeta> Draft<'_, P> {
    /// Removes the pod or mirror with this UID, and keeps it.
    pub(super) fn remove_and_keep(&mut self, uid: UidRef<'_>) -> Option<Arc<P>> {
        let key = UidKey::new(uid, &self.hashing);
        let (_, kind, pod) = self.known(key)?;
        let living = Living { kind, pod: Arc::clone(pod), target: self.translation(uid) };
        let pod = self.take(key)?;
        self.keep(uid, &living);
        Some(pod)
    }

    /// All current pods, if the index keeps removed pods.
    pub(super) fn living(&self) -> Vec<Living<P>> {
        if self.removed.is_none() || self.now().is_none() {
            return Vec::new();
        }
        let pods =
            self.pods().iter().map(|pod| Living { kind: PodKind::Pod, pod: Arc::clone(pod), target: None });
        let mirrors = self.mirror_pods().iter().map(|pod| Living {
            kind: PodKind::Mirror,
            pod: Arc::clone(pod),
            target: self.translation(pod.uid().into()),
        });
        pods.chain(mirrors).collect()
    }

    /// Keeps those that no longer live. The one with the strongest claim counts as the last one removed.
    pub(super) fn keep_missing(&mut self, mut living: Vec<Living<P>>) {
        let Some(limits) = self.removed.as_ref().map(|removed| removed.book.limits) else { return };
        living.retain(|one| self.any_by_uid(one.pod.uid().into()).is_none());
        living.sort_by_cached_key(|one| {
            let strength = (one.kind == PodKind::Pod).then(|| self.strength_of(&one.pod));
            Reverse((strength.is_none(), strength, PodUid::from(one.pod.uid())))
        });
        // More than this would only push each other out.
        for one in living.iter().skip(living.len().saturating_sub(limits.max_pods)) {
            self.keep(one.pod.uid().into(), one);
        }
    }

    /// Forgets a removed pod whose UID returns.
    pub(super) fn forget_removed(&mut self, uid: UidRef<'_>) {
        let Some(removed) = &self.removed else { return };
        let key = UidKey::new(uid, &self.hashing);
        if let Some((place, entry)) = removed.pods.locate(key.hash, key.tag, |entry| key.is(entry)) {
            let Departed { pod, kind, number, .. } = &entry.value;
            let (pod, kind, number) = (Arc::clone(pod), *kind, *number);
            self.forget(place, &pod, kind, number);
        }
    }

    /// Forgets the removed pods whose time is over. Returns their number.
    pub(crate) fn expire(&mut self) -> usize {
        let mut expired = 0;
        while let Some(removed) = &self.removed
            && let Some(deadline) = removed.book.deadline()
            && self.now().is_some_and(|now| now >= deadline)
        {
            self.forget_first();
            expired += 1;
        }
        expired
    }

    fn translation(&self, uid: UidRef<'_>) -> Option<PodUid> {
        self.target_of(&self.by_uid(&self.mirrors, uid)?.value).cloned()
    }

    fn keep(&mut self, uid: UidRef<'_>, Living { kind, pod, target }: &Living<P>) {
        self.forget_removed(uid);
        let (Some(at), Some(book)) = (self.now(), self.removed_book()) else { return };
        let (limits, number) = (book.limits, book.next);
        book.next += 1;
        let key = UidKey::new(uid, &self.hashing);
        let departed = Departed { pod: Arc::clone(pod), kind: *kind, at, number, target: target.clone() };
        if let Some(mut pods) = self.removed_pods_mut() {
            pods.insert(key.tag, key.words, departed, 0);
        }
        let departure = Departure { number, at, uid: PodUid::from(uid) };
        let priority = self.hashing.of(&number);
        if let Some(book) = self.removed_book() {
            book.by_age.insert(departure, priority);
        }
        if let Ok(full_name) = FullName::new(pod.name(), pod.namespace()) {
            self.store(LateKey::Name(*kind, full_name), number, uid, None);
        }
        if *kind == PodKind::Pod {
            self.each_key(pod, |draft, NamedKey { key, container }| {
                let (key, container) = match key {
                    KeyRef::ContainerId(id) => (OwnedKey::ContainerId(id), Some(container.into())),
                    KeyRef::Ip(ip) => (OwnedKey::Ip(ip), None),
                    KeyRef::Own(kind, bytes) => (OwnedKey::Own(kind, bytes.into()), None),
                };
                draft.store(LateKey::Key(key), number, uid, container);
            });
        }
        while self.removed.as_ref().is_some_and(|removed| removed.book.by_age.len() > limits.max_pods) {
            self.forget_first();
        }
    }

    fn store(&mut self, key: LateKey, number: u64, uid: UidRef<'_>, container: Option<Arc<str>>) {
        let hash = key.as_ref().hash(&self.hashing);
        let priority = self.hashing.of(&(hash, number));
        let stored = RemovedKey { hash, key, number: Reverse(number), uid: PodUid::from(uid), container };
        if let Some(book) = self.removed_book() {
            book.by_key.insert(stored, priority);
        }
    }

    /// Forgets the pod that was removed first.
    fn forget_first(&mut self) {
        let Some(removed) = &self.removed else { return };
        let Some(first) = removed.book.after(None).cloned() else { return };
        let key = UidKey::new(first.uid.as_uid_ref(), &self.hashing);
        // By its number: the pod itself may answer with another UID by now, although it must not.
        if let Some((place, entry)) =
            removed.pods.locate(key.hash, key.tag, |entry| entry.value.number == first.number)
        {
            let (pod, kind) = (Arc::clone(&entry.value.pod), entry.value.kind);
            self.forget(place, &pod, kind, first.number);
        }
        // Already done, but callers rely on it to make progress.
        if let Some(book) = self.removed_book() {
            book.by_age.remove(&first);
        }
    }

    fn forget(&mut self, place: Place, pod: &Arc<P>, kind: PodKind, number: u64) {
        self.unstore(LateKeyRef::Name(kind, pod.namespace(), pod.name()), number);
        if kind == PodKind::Pod {
            self.each_key(pod, |draft, named| draft.unstore(LateKeyRef::Key(named.key), number));
        }
        if let Some(mut pods) = self.removed_pods_mut() {
            pods.remove(place);
        }
        let left = self.removed.as_ref().map_or(0, |removed| removed.pods.len());
        let Some(book) = self.removed_book() else { return };
        let departure = book.after(number.checked_sub(1)).cloned();
        if let Some(departure) = departure.filter(|departure| departure.number == number) {
            book.by_age.remove(&departure);
        }
        // What pods left here whose keys changed.
        if left == 0 {
            book.by_key = Ordered::new();
        }
    }

    fn unstore(&mut self, key: LateKeyRef<'_>, number: u64) {
        let stored =
            self.removed.as_ref().and_then(|removed| removed.book.stored(key, number, &self.hashing));
        if let Some(stored) = stored.cloned()
            && let Some(book) = self.removed_book()
        {
            book.by_key.remove(&stored);
        }
    }

    /// Calls `work` with each key that the pod names.
    fn each_key(&mut self, pod: &P, mut work: impl FnMut(&mut Self, NamedKey<'_>)) {
        self.with_claims(Some(pod), None, |draft, [claims, _]: &mut [Claims; 2]| {
            claims.sort();
            for named in claims.iter() {
                work(draft, named);
            }
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::{Duration, Instant};

    use crate::pod::{KeyKind, PodKeys, PodMeta};
    use crate::{Options, Writer};

    struct Pod(String);

    impl PodMeta for Pod {
        fn uid(&self) -> &str {
            &self.0
        }
        fn name(&self) -> &str {
            &self.0
        }
        fn namespace(&self) -> &'static str {
            "default"
        }
        fn annotation(&self, _: &str) -> Option<&str> {
            None
        }
        fn keys(&self, keys: &mut PodKeys<'_>) {
            keys.container_id("a", &"3e5f0b1c".repeat(8));
            keys.ip([10, 0, 0, 7].into());
            keys.key(KeyKind(1), "of all");
            keys.key(KeyKind(1), &self.0);
        }
    }

    /// A key that is left behind finds nothing, so that only its memory tells.
    #[test]
    fn a_forgotten_pod_leaves_no_key_behind() {
        let options = Options::all().keep_removed(Duration::from_secs(10), 20);
        let (mut writer, _reader) = crate::with_options(options);
        let check = |writer: &Writer<Pod>, left: usize| {
            let removed = writer.current().removed.as_ref().expect("kept");
            let lens = (removed.pods.len(), removed.book.by_age.len(), removed.book.by_key.len());
            assert_eq!(lens, (left, left, 5 * left));
        };
        let start = Instant::now();
        for round in 0..5u64 {
            writer.expire(start + Duration::from_secs(4 * round));
            let pods = (0..8).map(|number| Pod(format!("{round}-{number}")));
            assert!(writer.set_pods(pods).refused.is_empty());
            check(&writer, [0, 8, 16, 20, 20][usize::try_from(round).unwrap_or_default()]);
        }
        for number in 0..8 {
            assert!(writer.remove_pod_by_uid(&format!("4-{number}")).is_some());
        }
        check(&writer, 20);
        for (number, left) in (0..8).zip((0..20).rev()) {
            assert!(writer.add_pod(Pod(format!("4-{number}"))).is_ok());
            check(&writer, left);
        }
        assert_eq!(writer.expire(start + Duration::from_secs(60)), 12);
        check(&writer, 0);
    }
}
