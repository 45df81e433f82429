//! How one snapshot comes out of another.
//!
//! Pure: an operation works on a copy of a snapshot, which shares with the original whatever it does not change. No
//! atomics, no I/O, nothing that anybody else sees yet. Everything that keeps the indices in step with each other is in
//! this file. A pod that is refused is refused before anything is touched.
//!
//! Rules beyond the kubelet's:
//! - a UID lives in one world; an upsert moves it;
//! - a full name is held by whoever was upserted last under it; when the holder goes, the living bearer with the smallest
//!   UID takes it over;
//! - all mirrors of one full name translate to the pod that holds it or, while none does, held it last.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::id::{FullName, PodUid, SEPARATOR, UidRef};
use crate::pod::{PodMeta, is_mirror_pod, is_static_pod};
use crate::snapshot::{NameEntry, Place, Shadowed, Snapshot, Target, UidEntry, UidKey, World};

/// What [`Writer::add_pod`](crate::Writer::add_pod) and [`Writer::update_pod`](crate::Writer::update_pod) did.
pub enum Upserted<P> {
    /// The very same object was there already; nothing was published.
    Unchanged,
    /// The UID is new.
    Added,
    /// The UID was known; this is the object it had.
    Replaced(Arc<P>),
}

impl<P: PodMeta> Snapshot<P> {
    /// Stores `pod` under its UID, whether or not the UID is known.
    pub(crate) fn upsert(&mut self, pod: Arc<P>) -> Result<Upserted<P>, Error> {
        check(&*pod)?;
        let world = if is_mirror_pod(&*pod) { World::Mirrors } else { World::Pods };
        let place = self.place_by_uid(UidRef::from(pod.uid()));
        if let Some(place) = place
            && place.world() == world
            && let Some(old) = self.at(place)
            && old.name() == pod.name()
            && old.namespace() == pod.namespace()
            && self.holds(place, &*pod)
        {
            return Ok(self.replace(place, pod));
        }
        if self.store.is_full(world) {
            return Err(Error::new(ErrorKind::Full, &*pod));
        }
        // One path for all that is not a plain replacement: whatever the old object's name or world, it is taken
        // out, and the new one is filed as if it were new.
        let old = place.and_then(|place| self.take(place, UidRef::from(pod.uid())));
        self.insert(world, &pod);
        Ok(old.map_or(Upserted::Added, Upserted::Replaced))
    }

    /// A snapshot of `pods` alone, stored one by one in their order, and those that were refused. No snapshot if it
    /// would say the same as this one.
    pub(crate) fn set(&self, pods: impl IntoIterator<Item = Arc<P>>) -> (Option<Self>, Vec<(usize, Error)>) {
        let mut next = Self::with_hashing(self.hashing.clone());
        let mut refused = Vec::new();
        for (position, pod) in pods.into_iter().enumerate() {
            if let Err(error) = next.upsert(pod) {
                refused.push((position, error));
            }
        }
        // Who is shadowed, and what a mirror translates to without a pod, is history that a set does not keep.
        let same = self.departed.is_empty()
            && next.shadowed == self.shadowed
            && next.uids.len() == self.uids.len()
            && next.pods().iter().chain(next.mirror_pods()).all(|pod| self.has(pod));
        ((!same).then_some(next), refused)
    }

    /// Whether this very object is in the snapshot.
    fn has(&self, pod: &Arc<P>) -> bool {
        let place = self.place_by_uid(UidRef::from(pod.uid()));
        place.and_then(|place| self.at(place)).is_some_and(|known| Arc::ptr_eq(known, pod))
    }

    /// Takes out whoever has this UID.
    pub(crate) fn remove(&mut self, uid: UidRef<'_>) -> Option<Arc<P>> {
        self.take(self.place_by_uid(uid)?, uid)
    }

    /// Puts `pod` where an object of the same UID, name and world is. Touches one slab and no map.
    fn replace(&mut self, place: Place, pod: Arc<P>) -> Upserted<P> {
        if self.at(place).is_some_and(|old| Arc::ptr_eq(old, &pod)) {
            return Upserted::Unchanged;
        }
        self.store.mark_static(place, is_static_pod(&*pod));
        self.count(place.world(), &*pod, usize::wrapping_add);
        let Some(slot) = self.store.at_mut(place) else { return Upserted::Unchanged };
        let old = std::mem::replace(slot, pod);
        self.count(place.world(), &*old, usize::wrapping_sub);
        Upserted::Replaced(old)
    }

    /// Files a pod whose UID is not in the index. There must be room for it.
    fn insert(&mut self, world: World, pod: &Arc<P>) {
        self.reconsider_departed(world, pod);
        self.count(world, pod, usize::wrapping_add);
        let Some(place) = self.store.insert(world, Arc::clone(pod)) else { return };
        self.store.mark_static(place, is_static_pod(pod));
        let key = UidKey::new(UidRef::from(pod.uid()), &self.hashing);
        self.uids.insert(UidEntry::new(key, place), &self.hashing);

        let (previous, other) = self.set_holder(world, place, pod);
        match world {
            World::Pods => self.translate(other, pod),
            World::Mirrors => self.link_mirror(place, previous, other),
        }
        if let Some(previous) = self.at(previous)
            && let Some(shadowed) = Shadowed::new(world, &**previous)
        {
            self.shadowed.insert(shadowed);
        }
    }

    /// Takes out whoever is at `place`, filed under `uid`, and passes on what it held.
    ///
    /// The entries that go are those that lead to `place`, whatever the pod says of itself by now.
    fn take(&mut self, place: Place, uid: UidRef<'_>) -> Option<Arc<P>> {
        let pod = Arc::clone(self.at(place)?);
        let world = place.world();
        if self.holds(place, &*pod) {
            match self.successor(world, &*pod) {
                Some(successor) => self.succeed(place, successor, &*pod),
                None => self.vacate(place, &*pod),
            }
        } else if let Some(shadowed) = Shadowed::new(world, &*pod) {
            self.shadowed.remove(&shadowed);
        }
        let hashing = &self.hashing;
        let key = UidKey::new(uid, hashing);
        self.uids.remove(key.hash(hashing), |entry| entry.has(key), |entry| entry.place() == place, hashing);
        self.store.remove(place);
        self.count(world, &*pod, usize::wrapping_sub);
        Some(pod)
    }

    /// Keeps the count of ephemeral containers. Wraps, so that a pod which does not always tell the same cannot panic.
    fn count(&mut self, world: World, pod: &P, change: fn(usize, usize) -> usize) {
        if world == World::Pods {
            self.ephemeral_containers = change(self.ephemeral_containers, pod.ephemeral_container_count());
        }
    }
}

/// Who holds a full name.
impl<P: PodMeta> Snapshot<P> {
    /// Whether the pod at `place` holds its full name in its world.
    fn holds(&self, place: Place, pod: &P) -> bool {
        // Where nobody is shadowed, everybody holds.
        self.shadowed.is_empty()
            || self
                .entry_by_name(pod.name(), pod.namespace())
                .is_some_and(|entry| entry.pod == place || entry.mirror == place)
    }

    /// Makes `place` the holder of the full name of `pod`; returns who held it until now, and who holds it in the other
    /// world.
    fn set_holder(&mut self, world: World, place: Place, pod: &P) -> (Place, Place) {
        let (name, namespace) = (pod.name(), pod.namespace());
        let hash = self.hashing.pair(name, namespace);
        let store = &self.store;
        if let Some(entry) = self.names.find_mut(
            hash,
            |entry| entry.hash == hash,
            |entry| store.is_name(entry, name, namespace),
        ) {
            let previous = std::mem::replace(entry.holder(world), place);
            return (previous, *entry.holder(world.other()));
        }
        let mut entry = NameEntry { hash, pod: Place::NOWHERE, mirror: Place::NOWHERE };
        *entry.holder(world) = place;
        self.names.insert(entry, &self.hashing);
        (Place::NOWHERE, Place::NOWHERE)
    }

    /// Of those who bear the full name of `pod` without holding it, the one with the smallest UID.
    fn successor(&self, world: World, pod: &P) -> Option<Place> {
        if self.shadowed.is_empty() {
            return None;
        }
        let first = Shadowed { uid: PodUid::from(""), ..Shadowed::new(world, pod)? };
        let next = self.shadowed.get_next(&first)?;
        let same = next.full_name == first.full_name && next.world == world;
        same.then(|| self.place_by_uid(next.uid.as_uid_ref()))?
    }

    /// `successor` takes over the full name of `pod`, which is at `place`, and what comes with it.
    fn succeed(&mut self, place: Place, successor: Place, pod: &P) {
        let Some(heir) = self.at(successor).map(Arc::clone) else { return };
        let world = place.world();
        if let Some(shadowed) = Shadowed::new(world, &*heir) {
            self.shadowed.remove(&shadowed);
        }
        let (_, other) = self.set_holder(world, successor, pod);
        match world {
            World::Pods => self.translate(other, &*heir),
            World::Mirrors => self.link_mirror(successor, place, other),
        }
    }

    /// Nobody holds the full name of `pod`, which is at `place`, in its world any more.
    fn vacate(&mut self, place: Place, pod: &P) {
        let (name, namespace) = (pod.name(), pod.namespace());
        let Some(&entry) = self.entry_by_name(name, namespace) else { return };
        if place == entry.mirror {
            self.set_target(place, Target::Itself);
        } else if place != entry.pod {
            // Its name was another when it was filed: this entry is somebody else's.
            return;
        } else if !entry.mirror.is_nowhere()
            && let Ok(full_name) = FullName::new(name, namespace)
        {
            // The mirror goes on translating to the pod that is gone.
            self.departed.insert(PodUid::from(pod.uid()), full_name);
        }
        let store = &self.store;
        if entry.pod.is_nowhere() || entry.mirror.is_nowhere() {
            let hash = entry.hash;
            self.names.remove(
                hash,
                |entry| entry.hash == hash,
                |entry| store.is_name(entry, name, namespace),
                &self.hashing,
            );
        } else {
            self.set_holder(place.world(), Place::NOWHERE, pod);
        }
    }
}

/// What mirrors translate to. Only the mirror that holds a full name keeps a target; the others follow it.
impl<P: PodMeta> Snapshot<P> {
    /// The mirror at `mirror`, if there is one, translates to `pod` from now on. Both hold the same full name.
    fn translate(&mut self, mirror: Place, pod: &P) {
        if !mirror.is_nowhere() {
            self.set_target(mirror, Target::Pod(PodUid::from(pod.uid())));
        }
    }

    /// The mirror at `place`, which holds its full name from now on, translates to the pod that holds it or, if there is
    /// none, to what the mirror at `previous` translated to.
    fn link_mirror(&mut self, place: Place, previous: Place, pod: Place) {
        let inherited = self
            .store
            .mirror_at_mut(previous)
            .map(|previous| std::mem::replace(&mut previous.target, Target::AsHolder));
        let target = match self.at(pod) {
            Some(pod) => Target::Pod(PodUid::from(pod.uid())),
            None => inherited.unwrap_or(Target::Itself),
        };
        if let Some(mirror) = self.store.mirror_at_mut(place) {
            mirror.target = target;
        }
    }

    /// The mirror at `place` translates to `target` from now on. A pod that is gone and was kept in mind for its sake
    /// is forgotten.
    fn set_target(&mut self, place: Place, target: Target) {
        let Some(old) = self.store.mirror_at(place).map(|mirror| &mirror.target) else { return };
        if *old == target {
            return;
        }
        if let Target::Pod(uid) = old {
            self.departed.remove(&uid.clone());
        }
        if let Some(mirror) = self.store.mirror_at_mut(place) {
            mirror.target = target;
        }
    }

    /// A UID that mirrors still translate to, although its pod was gone, comes back with `pod`. If it comes back under
    /// another full name, or as a mirror, the translation would join what does not belong together, and ends.
    fn reconsider_departed(&mut self, world: World, pod: &P) {
        if self.departed.is_empty() {
            return;
        }
        let Some(full_name) = self.departed.remove(&PodUid::from(pod.uid())) else { return };
        let same = full_name.name() == pod.name() && full_name.namespace() == pod.namespace();
        if (world == World::Mirrors || !same)
            && let Some(mirror) = self.entry_by_name(full_name.name(), full_name.namespace())
        {
            self.set_target(mirror.mirror, Target::Itself);
        }
    }
}

// Neither is derived, because a derive would ask the same of `P`.
impl<P> Clone for Upserted<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Unchanged => Self::Unchanged,
            Self::Added => Self::Added,
            Self::Replaced(old) => Self::Replaced(Arc::clone(old)),
        }
    }
}

impl<P> fmt::Debug for Upserted<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "Unchanged",
            Self::Added => "Added",
            Self::Replaced(_) => "Replaced(..)",
        })
    }
}

impl Shadowed {
    fn new<P: PodMeta>(world: World, pod: &P) -> Option<Self> {
        let full_name = FullName::new(pod.name(), pod.namespace()).ok()?;
        Some(Self { full_name, world, uid: PodUid::from(pod.uid()) })
    }
}

/// Refuses what could not be found again.
fn check<P: PodMeta>(pod: &P) -> Result<(), Error> {
    let kind = if pod.uid().is_empty() {
        ErrorKind::EmptyUid
    } else if pod.name().is_empty() {
        ErrorKind::EmptyName
    } else if pod.namespace().is_empty() {
        ErrorKind::EmptyNamespace
    } else if pod.name().contains(SEPARATOR) {
        ErrorKind::SeparatorInName
    } else if pod.namespace().contains(SEPARATOR) {
        ErrorKind::SeparatorInNamespace
    } else {
        return Ok(());
    };
    Err(Error::new(kind, pod))
}
