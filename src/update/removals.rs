//! Removed pods: which are kept, and until when.
//!
//! A pod is kept when its UID leaves the index, and forgotten when the UID returns, when its time is over, or when too
//! many were removed after it. The time is that of the write.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Draft, Known, full_name};
use crate::id::{PodUid, UidRef};
use crate::moment::Moment;
use crate::pod::{Claim, PodKind, PodMeta};
use crate::pods::{Claimant, HashedUid, RemovedPod, Translation};
use crate::table::Words;

/// A current pod that a set may remove. For a mirror, with its translation.
pub(super) struct Living<P> {
    kind: PodKind,
    pod: Arc<P>,
    target: Option<PodUid>,
}

impl<P: PodMeta> Draft<'_, P> {
    /// Removes a pod or mirror that was just found under this UID, and keeps it.
    pub(super) fn remove_and_keep(&mut self, uid: UidRef<'_>, known: Known<P>, now: &Moment) -> Arc<P> {
        let target = match known.kind {
            PodKind::Pod => None,
            PodKind::Mirror => self.pod_uid_of_mirror(uid),
        };
        let living = Living { kind: known.kind, pod: Arc::clone(&known.pod), target };
        let pod = self.remove_known(uid, known);
        self.keep(uid, &living, now);
        pod
    }

    /// All current pods, if the index keeps removed pods.
    pub(super) fn living(&self) -> Vec<Living<P>> {
        if self.removed.is_none() {
            return Vec::new();
        }
        let pods = self.pods().map(|pod| self.living_one(PodKind::Pod, pod));
        pods.chain(self.mirror_pods().map(|pod| self.living_one(PodKind::Mirror, pod))).collect()
    }

    fn living_one(&self, kind: PodKind, pod: &Arc<P>) -> Living<P> {
        let target = match kind {
            PodKind::Pod => None,
            PodKind::Mirror => self.pod_uid_of_mirror(pod.uid()),
        };
        Living { kind, pod: Arc::clone(pod), target }
    }

    /// Keeps those that no longer live. The one with the strongest claim counts as the last one removed.
    pub(super) fn keep_missing(&mut self, mut living: Vec<Living<P>>, now: &Moment) {
        let Some(limits) = self.removed.as_ref().map(|removed| removed.queue.limits) else { return };
        self.note_all_stored(living.iter().map(|one| &one.pod), now);
        living.retain(|one| self.any_by_uid(one.pod.uid().into()).is_none());
        living.sort_by_cached_key(|one| {
            let strength = (one.kind == PodKind::Pod).then(|| Claimant::strength(&one.pod));
            Reverse((strength.is_none(), strength, PodUid::from(one.pod.uid())))
        });
        // More than this would only push each other out.
        let surplus = living.len().saturating_sub(limits.max_pods);
        living.iter().take(surplus).for_each(|one| self.note_removed(&one.pod, now));
        for one in living.iter().skip(surplus) {
            self.keep(one.pod.uid().into(), one, now);
        }
    }

    /// Drops a removed pod whose UID returns.
    pub(super) fn drop_removed(&mut self, uid: UidRef<'_>) {
        let key = HashedUid::new(uid, &self.hashing);
        self.drop_removal(key, |words, pod| key.is(words, pod));
    }

    /// Forgets the removed pods and the ended holds that are too old. Returns the number of those pods.
    pub(crate) fn forget(&mut self, now: &Moment) -> usize {
        if let Some(times) = self.times_mut() {
            times.forget(now.instant);
        }
        let mut forgotten = 0;
        while self
            .queue_mut()
            .and_then(|queue| queue.deadline())
            .is_some_and(|deadline| now.instant >= deadline)
        {
            self.drop_first();
            forgotten += 1;
        }
        forgotten
    }

    fn keep(&mut self, uid: UidRef<'_>, Living { kind, pod, target }: &Living<P>, now: &Moment) {
        self.drop_removed(uid);
        self.note_removed(pod, now);
        let owner = PodUid::from(uid);
        let Some(queue) = self.queue_mut() else { return };
        let number = queue.number();
        let at = queue.insert(number, now.instant, owner.clone());
        let max_pods = queue.limits.max_pods;
        let removed = RemovedPod { pod: Arc::clone(pod), at, number };
        let key = HashedUid::new(uid, &self.hashing);
        let Some(mut tables) = self.removed_mut() else { return };
        tables.add_claim(
            Claim { key: full_name(*kind, &**pod), container: None },
            removed.strength(),
            &owner,
            &removed,
        );
        if *kind == PodKind::Pod {
            tables.change_claims(uid, None, Some(&removed));
        }
        let target = target.clone().map_or(Translation::Identity, Translation::Pod);
        tables.add_pod(*kind, key, removed, target);
        while self.queue_mut().is_some_and(|queue| queue.len() > max_pods) {
            self.drop_first();
        }
    }

    /// Drops the pod that was removed first.
    fn drop_first(&mut self) {
        let Some(queue) = self.queue_mut() else { return };
        let Some((number, uid)) = queue.first() else { return };
        queue.remove(number);
        // By its number: the pod itself may answer with another UID by now, although it must not.
        let key = HashedUid::new(uid.as_uid_ref(), &self.hashing);
        self.drop_removal(key, |_, removed| removed.number == number);
    }

    /// Drops the removed pod under this UID that `is` accepts.
    fn drop_removal(&mut self, key: HashedUid<'_>, is: impl Fn(Words, &RemovedPod<P>) -> bool) {
        let found = self.removed.as_ref().and_then(|removed| removed.tables.known(key, is));
        let Some((place, kind, removed)) = found else { return };
        let uid = key.uid;
        let removed = removed.clone();
        if let Some(queue) = self.queue_mut() {
            queue.remove(removed.number);
        }
        let Some(mut tables) = self.removed_mut() else { return };
        let name = full_name(kind, &*removed.pod);
        tables.remove_claim(name, removed.strength(), &uid.into(), &removed);
        tables.remove_pod(kind, place);
        if kind == PodKind::Pod {
            tables.change_claims(uid, Some(&removed), None);
        }
    }
}

#[cfg(all(test, not(any(pod_index_loom, pod_index_shuttle))))]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use crate::pod::{CustomKeyKind, PodKeys, PodMeta};
    use crate::{Moment, Operation, Options, Writer};

    /// A pod with a key of each kind. Each but one custom key is also a key of all others.
    struct Pod(String);

    /// To a name, a container ID, an IP and two custom keys.
    const CLAIMS: usize = 5;
    /// Of those that can be another pod's later.
    const TIMED_CLAIMS: usize = 4;

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
            keys.custom_key(CustomKeyKind(1), "of all");
            keys.custom_key(CustomKeyKind(1), &self.0);
        }
    }

    /// A key that is left behind finds nothing, so that only its memory tells.
    #[test]
    fn a_forgotten_pod_leaves_no_key_behind() {
        let options = Options::new().keep_removed(Duration::from_secs(10), 20).keep_times(true);
        let (mut writer, _reader) = crate::with_options(options);
        let check = |writer: &Writer<Pod>, left: usize| {
            let removed = writer.current().removed.as_ref().expect("kept");
            let tables = &removed.tables;
            assert_eq!(tables.pods.len(), left);
            assert_eq!(removed.queue.len(), left);
            let claims = tables.key_numbers().sum() + tables.contenders.numbers().sum();
            assert_eq!(claims, left * CLAIMS);
        };
        let start = Instant::now();
        let wall = SystemTime::now();
        let after = |seconds| {
            let passed = Duration::from_secs(seconds);
            Moment::new(start + passed, wall + passed)
        };
        for round in 0..5u64 {
            let pods = (0..8).map(|number| Pod(format!("{round}-{number}")).into());
            let applied = writer.apply_at(after(4 * round), [Operation::Set(pods.collect())]);
            assert!(applied.refused.is_empty());
            check(&writer, [0, 8, 16, 20, 20][usize::try_from(round).unwrap_or_default()]);
        }
        for number in 0..8 {
            let applied =
                writer.apply_at(after(16), [Operation::Remove(format!("4-{number}").as_str().into())]);
            assert!(applied.published);
        }
        check(&writer, 20);
        for (number, left) in (0..8).zip((0..20).rev()) {
            let pod = Pod(format!("4-{number}"));
            assert!(writer.apply_at(after(16), [Operation::Upsert(pod.into())]).refused.is_empty());
            check(&writer, left);
        }
        assert_eq!(writer.advance(after(60)), 12);
        check(&writer, 0);
        // Eight pods returned.
        let times = writer.current().times.as_ref().expect("kept");
        assert_eq!(times.counts(), (8 * TIMED_CLAIMS, 0));
    }
}
