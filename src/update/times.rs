//! Notes which pod holds which key, for lookups at a time. Container IDs and UIDs need no time.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Draft, full_name};
use crate::id::PodUid;
use crate::moment::{Coverage, Moment};
use crate::pod::{Claims, Lasts, Life, OwnedClaimedKey, PodKind, PodMeta};
use crate::pods::{EndCause, Key, OldObject};

/// What the old object of a pod says.
struct Before {
    keys: Vec<OwnedClaimedKey>,
    life: Life,
}

impl<P: PodMeta> Draft<'_, P> {
    /// A pod was stored, over its old object if there was one.
    pub(super) fn note_stored(&mut self, old: Option<&Arc<P>>, new: &Arc<P>, now: &Moment) {
        if self.times.is_none() {
            return;
        }
        // A pod that was removed, and returns with another name, has not had that since its creation.
        let returned = if old.is_none() { self.base().find(Key::Uid(new.uid().into())) } else { None };
        let returned = returned.map(|found| keys(&**found.pod));
        let Some(times) = self.times_mut() else { return };
        let uid = PodUid::from(new.uid());
        let life = new.life();
        let before = old.map(|old| Before { keys: keys(&**old), life: old.life() });
        let new_keys = keys(&**new);
        if let Some(before) = &before {
            for key in before.keys.iter().filter(|key| new_keys.binary_search(key).is_err()) {
                times.end(key, &uid, before.life, EndCause::KeyLost, now);
            }
        }
        for key in new_keys {
            let old_object = match (&before, &returned) {
                (Some(before), _) if before.keys.binary_search(&key).is_ok() => {
                    OldObject::WithKey(before.life)
                }
                (Some(_), _) => OldObject::WithoutKey,
                (None, Some(returned)) if returned.binary_search(&key).is_err() => OldObject::WithoutKey,
                (None, _) => OldObject::None,
            };
            times.begin(key, &uid, old_object, &life, now);
        }
    }

    /// All pods were stored, over these old ones.
    pub(super) fn note_all_stored<'a>(&mut self, old: impl Iterator<Item = &'a Arc<P>>, now: &Moment)
    where
        P: 'a,
    {
        if self.times.is_none() {
            return;
        }
        let old: HashMap<_, _> = old.map(|pod| (PodUid::from(pod.uid()), pod)).collect();
        let new: Vec<_> = self.pods().chain(self.mirror_pods()).cloned().collect();
        for pod in new {
            self.note_stored(old.get(&PodUid::from(pod.uid())).copied(), &pod, now);
        }
    }

    /// A pod was removed.
    pub(super) fn note_removed(&mut self, pod: &Arc<P>, now: &Moment) {
        let Some(times) = self.times_mut() else { return };
        let uid = PodUid::from(pod.uid());
        let life = pod.life();
        for key in keys(&**pod) {
            times.end(&key, &uid, life, EndCause::PodRemoved, now);
        }
    }

    /// The wall clock was set. What was known of the past is in the times of another clock.
    pub(crate) fn begin_times_anew(&mut self, now: &Moment) {
        let pods: Vec<_> = self.pods().chain(self.mirror_pods()).cloned().collect();
        let Some(times) = self.times_mut() else { return };
        let from_updates = times.begin_anew(now);
        for pod in pods {
            let uid = PodUid::from(pod.uid());
            let life = pod.life();
            for key in keys(&*pod) {
                let held = (key, uid.clone());
                let is_from_update = from_updates.contains(&held);
                let old_object = if is_from_update { OldObject::WithoutKey } else { OldObject::None };
                times.begin(held.0, &uid, old_object, &life, now);
            }
        }
    }

    /// Everything between these times is known, together with what this draft changed. Returns whether a gap before them
    /// changed what is known of the past.
    ///
    /// # Complexity
    /// O(1) without a gap, O(n) for n holds after one.
    pub(crate) fn cover(&mut self, coverage: Coverage, now: &Moment) -> bool {
        let Some(times) = self.times_mut() else { return false };
        let gap = times.gap_before(coverage);
        if let Some(gap) = gap {
            for (id, hold) in times.held_through(gap) {
                let pod = self.any_by_uid(id.uid.as_uid_ref());
                let life = pod.map(|pod| pod.life()).unwrap_or_default();
                let Some(times) = self.times_mut() else { continue };
                times.interrupt(id, hold, &life, gap, now);
            }
            let Some(times) = self.times_mut() else { return true };
            times.doubt_ends(gap, now);
        }
        if let Some(times) = self.times_mut() {
            times.cover(coverage);
        }
        gap.is_some()
    }
}

/// The keys of a pod that may be another's at another time, sorted.
fn keys<P: PodMeta>(pod: &P) -> Vec<OwnedClaimedKey> {
    let kind = PodKind::of(pod);
    let claims = if kind == PodKind::Pod { Claims::of(pod) } else { Claims::NONE };
    let name = full_name(kind, pod);
    let timed = claims.iter().map(|claim| claim.key).filter(|key| key.tenure().lasts != Lasts::Forever);
    let mut keys: Vec<_> = timed.chain([name]).map(OwnedClaimedKey::new).collect();
    // Only the name can be in a wrong place.
    keys.sort_unstable();
    keys
}
