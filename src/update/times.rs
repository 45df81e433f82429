//! Records which pod holds which key, for lookups at a time. Container IDs and UIDs need no time.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::PodUid;
use crate::pod::{Claims, KeyRef, OwnedKey, PodKind, PodMeta};
use crate::table::versions::Draft;

impl<P: PodMeta> Draft<'_, P> {
    /// A pod was stored, over its old object if there was one.
    pub(super) fn record(&mut self, old: Option<&Arc<P>>, new: &Arc<P>) {
        let Some((times, now)) = self.times() else { return };
        let (uid, life) = (PodUid::from(new.uid()), new.life());
        let before = old.map(|old| (keys(&**old), old.life()));
        let new_keys = keys(&**new);
        if let Some((old_keys, life)) = &before {
            for key in old_keys.iter().filter(|key| new_keys.binary_search(key).is_err()) {
                times.end(key, &uid, *life, false, now);
            }
        }
        for key in new_keys {
            let had = before.as_ref().filter(|(old_keys, _)| old_keys.binary_search(&key).is_ok());
            times.begin(key, &uid, had.map(|(_, life)| *life), &life, now);
        }
    }

    /// All pods were stored, over these old ones.
    pub(super) fn record_all<'a>(&mut self, old: impl Iterator<Item = &'a Arc<P>>)
    where
        P: 'a,
    {
        if self.times.is_none() {
            return;
        }
        let old: HashMap<_, _> = old.map(|pod| (PodUid::from(pod.uid()), pod)).collect();
        let new: Vec<_> = self.pods().chain(self.mirror_pods()).cloned().collect();
        for pod in new {
            self.record(old.get(&PodUid::from(pod.uid())).copied(), &pod);
        }
    }

    /// A pod was removed.
    pub(super) fn record_removal(&mut self, pod: &Arc<P>) {
        let Some((times, now)) = self.times() else { return };
        let (uid, life) = (PodUid::from(pod.uid()), pod.life());
        for key in keys(&**pod) {
            times.end(&key, &uid, life, true, now);
        }
    }
}

/// The keys of a pod that may be another's at another time, sorted.
fn keys<P: PodMeta>(pod: &P) -> Vec<OwnedKey> {
    let kind = PodKind::of(pod);
    let claims = if kind == PodKind::Pod { Claims::of(pod) } else { Claims::NONE };
    // Names come last.
    let name = KeyRef::Name(kind, pod.name(), pod.namespace());
    let timed = claims.iter().map(|named| named.key).filter(|key| !matches!(key, KeyRef::ContainerId(_)));
    timed.chain([name]).map(OwnedKey::new).collect()
}
