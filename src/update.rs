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
use crate::map::{Hashing, Slot, Table};
use crate::pod::{PodMeta, is_mirror_pod, is_static_pod};
use crate::snapshot::{
    ByUid, MirrorEntry, NameEntry, PodEntry, STATIC, Shadowed, Snapshot, Target, UidKey, World, find,
};

/// Room is made beforehand for so many pods at most, whatever an iterator's `size_hint` claims.
const BELIEVED: usize = 1 << 20;

/// What [`Writer::add_pod`](crate::Writer::add_pod) and [`Writer::update_pod`](crate::Writer::update_pod) did.
#[non_exhaustive]
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
    pub(crate) fn upsert(&mut self, pod: &Arc<P>) -> Result<Upserted<P>, Error> {
        check(&**pod)?;
        let world = if is_mirror_pod(&**pod) { World::Mirrors } else { World::Pods };
        let key = UidKey::new(UidRef::from(pod.uid()), &self.hashing);
        let known = self.known(key);
        if let Some((of, old, tag)) = known
            && of == world
            && old.name() == pod.name()
            && old.namespace() == pod.namespace()
            && let Some(name) = self.name_held_by(world, old)
        {
            if Arc::ptr_eq(old, pod) {
                return Ok(Upserted::Unchanged);
            }
            let name = name.with_holder(world, Some(Arc::clone(pod)));
            let old = Arc::clone(old);
            self.replace(world, key, tag, name, &old, pod);
            return Ok(Upserted::Replaced(old));
        }
        // One path for all that is not a plain replacement: whatever the old object's name or world, it is taken
        // out, and the new one is filed as if it were new.
        let old = if known.is_some() { self.take(key) } else { None };
        self.insert(world, key, pod);
        Ok(old.map_or(Upserted::Added, Upserted::Replaced))
    }

    /// The draft with `pods` alone in it, stored one by one in their order; whether that says anything new; and those
    /// that were refused.
    pub(crate) fn set(self, pods: impl IntoIterator<Item = Arc<P>>) -> (Self, bool, Vec<(usize, Error)>) {
        let pods = pods.into_iter();
        let mut next = self.instead(pods.size_hint().0.min(BELIEVED));
        let mut refused = Vec::new();
        for (position, pod) in pods.enumerate() {
            if let Err(error) = next.upsert(&pod) {
                refused.push((position, error));
            }
        }
        // Who is shadowed, and what a mirror translates to without a pod, is history that a set does not keep.
        let same = self.departed.is_empty()
            && next.shadowed == self.shadowed
            && next.pods.len() == self.pods.len()
            && next.mirrors.len() == self.mirrors.len()
            && next.pods().iter().chain(next.mirror_pods()).all(|pod| self.has(pod));
        if same { (self, false, refused) } else { (next, true, refused) }
    }

    /// Whether this very object is in the snapshot.
    fn has(&self, pod: &Arc<P>) -> bool {
        self.any_by_uid(UidRef::from(pod.uid())).is_some_and(|known| Arc::ptr_eq(known, pod))
    }

    /// Takes out whoever has this UID.
    pub(crate) fn remove(&mut self, uid: UidRef<'_>) -> Option<Arc<P>> {
        self.take(UidKey::new(uid, &self.hashing))
    }

    /// Puts `pod` where `old` is, an object of the same UID, name and world, which is filed under `tag`. `name` is the
    /// entry of the name with the new pod in it.
    fn replace(
        &mut self,
        world: World,
        key: UidKey<'_>,
        tag: u64,
        name: NameEntry<P>,
        old: &Arc<P>,
        pod: &Arc<P>,
    ) {
        let hash = name.hash;
        let is = |slot: &Slot<NameEntry<P>>| slot.entry().is_held_by(world, old);
        self.names.replace(hash, |entry| entry.hash == hash, is, name, NAME);
        match world {
            World::Pods => {
                self.count(&**pod, usize::wrapping_add);
                self.count(&**old, usize::wrapping_sub);
                let is_static = is_static_pod(&**pod);
                put(&mut self.pods, key, PodEntry::new(key, Arc::clone(pod)), key.tag(is_static));
                match (tag & STATIC != 0, is_static) {
                    (false, false) => {}
                    (false, true) => self.insert_static(key, pod),
                    (true, false) => take_out(&mut self.static_pods, key, &self.hashing),
                    (true, true) => {
                        put(&mut self.static_pods, key, PodEntry::new(key, Arc::clone(pod)), key.tag(true));
                    }
                }
            }
            World::Mirrors => {
                let target = find(&self.mirrors, key).map_or(Target::Itself, |mirror| mirror.target.clone());
                let mirror = MirrorEntry::new(key, Arc::clone(pod), target);
                put(&mut self.mirrors, key, mirror, key.tag(false));
            }
        }
    }

    /// Files a pod whose UID is not in the index.
    fn insert(&mut self, world: World, key: UidKey<'_>, pod: &Arc<P>) {
        self.reconsider_departed(world, pod);
        match world {
            World::Pods => {
                self.count(&**pod, usize::wrapping_add);
                let is_static = is_static_pod(&**pod);
                self.pods.insert(PodEntry::new(key, Arc::clone(pod)), key.tag(is_static), &self.hashing);
                if is_static {
                    self.insert_static(key, pod);
                }
            }
            World::Mirrors => {
                let mirror = MirrorEntry::new(key, Arc::clone(pod), Target::Itself);
                self.mirrors.insert(mirror, key.tag(false), &self.hashing);
            }
        }
        let (previous, other) = self.set_holder(world, Some(pod), pod);
        match world {
            World::Pods => self.translate(other.as_ref(), pod),
            World::Mirrors => self.link_mirror(pod, previous.as_ref(), other.as_ref()),
        }
        if let Some(previous) = previous
            && let Some(shadowed) = Shadowed::new(world, &*previous)
        {
            self.shadowed.insert(shadowed);
        }
    }

    fn insert_static(&mut self, key: UidKey<'_>, pod: &Arc<P>) {
        self.static_pods.insert(PodEntry::new(key, Arc::clone(pod)), key.tag(true), &self.hashing);
    }

    /// Takes out whoever has the UID of `key`, and passes on what it held.
    ///
    /// The entries that go are those that lead to this very object, whatever it says of itself by now.
    fn take(&mut self, key: UidKey<'_>) -> Option<Arc<P>> {
        let (world, pod, tag) = self.known(key)?;
        let pod = Arc::clone(pod);
        if self.name_held_by(world, &pod).is_some() {
            match self.successor(world, &*pod) {
                Some(successor) => self.succeed(world, &pod, &successor),
                None => self.vacate(world, &pod),
            }
        } else if let Some(shadowed) = Shadowed::new(world, &*pod) {
            self.shadowed.remove(&shadowed);
        }
        match world {
            World::Pods => {
                self.count(&*pod, usize::wrapping_sub);
                take_out(&mut self.pods, key, &self.hashing);
                if tag & STATIC != 0 {
                    take_out(&mut self.static_pods, key, &self.hashing);
                }
            }
            World::Mirrors => take_out(&mut self.mirrors, key, &self.hashing),
        }
        Some(pod)
    }

    /// Keeps the count of ephemeral containers. Wraps, so that a pod which does not always tell the same cannot panic.
    fn count(&mut self, pod: &P, change: fn(usize, usize) -> usize) {
        self.ephemeral_containers = change(self.ephemeral_containers, pod.ephemeral_container_count());
    }

    /// Whoever has the UID of `key`, in which world, and the tag it is filed under.
    fn known(&self, key: UidKey<'_>) -> Option<(World, &Arc<P>, u64)> {
        if let Some(slot) = self.pods.find(key.hash, |entry| key.matches(entry), |slot| key.is(slot)) {
            return Some((World::Pods, slot.entry().pod()?, slot.tag()));
        }
        Some((World::Mirrors, find(&self.mirrors, key)?.pod()?, 0))
    }
}

/// Puts `entry` in the place of the one with the UID of `key`.
fn put<E: ByUid>(table: &mut Table<E>, key: UidKey<'_>, entry: E, tag: u64) {
    table.replace(key.hash, |entry| key.matches(entry), |slot| key.is(slot), entry, tag);
}

/// Takes out the entry with the UID of `key`.
fn take_out<E: ByUid>(table: &mut Table<E>, key: UidKey<'_>, hashing: &Hashing) {
    table.remove(key.hash, |entry| key.matches(entry), |slot| key.is(slot), hashing);
}

/// The tag of all names.
const NAME: u64 = 1;

/// Who holds a full name.
impl<P: PodMeta> Snapshot<P> {
    /// The entry of the full name of `pod`, if `pod` is the one that holds the name in its world.
    fn name_held_by(&self, world: World, pod: &Arc<P>) -> Option<&NameEntry<P>> {
        let hash = self.hashing.pair(pod.name(), pod.namespace());
        let is = |slot: &Slot<NameEntry<P>>| slot.entry().is_held_by(world, pod);
        Some(self.names.find(hash, |entry| entry.hash == hash, is)?.entry())
    }

    /// Makes `holder` the one that holds the full name of `pod`; returns who held it until now, and who holds it in the
    /// other world.
    fn set_holder(
        &mut self,
        world: World,
        holder: Option<&Arc<P>>,
        pod: &P,
    ) -> (Option<Arc<P>>, Option<Arc<P>>) {
        let (name, namespace) = (pod.name(), pod.namespace());
        if let Some(entry) = self.entry_by_name(name, namespace) {
            let holders = (entry.holder(world).cloned(), entry.holder(world.other()).cloned());
            let (hash, entry) = (entry.hash, entry.with_holder(world, holder.cloned()));
            let is = |slot: &Slot<NameEntry<P>>| slot.entry().is(name, namespace);
            self.names.replace(hash, |entry| entry.hash == hash, is, entry, NAME);
            return holders;
        }
        let entry = NameEntry { hash: self.hashing.pair(name, namespace), pod: None, mirror: None };
        self.names.insert(entry.with_holder(world, holder.cloned()), NAME, &self.hashing);
        (None, None)
    }

    /// Of those who bear the full name of `pod` without holding it, the one with the smallest UID.
    fn successor(&self, world: World, pod: &P) -> Option<Arc<P>> {
        if self.shadowed.is_empty() {
            return None;
        }
        let first = Shadowed { uid: PodUid::from(""), ..Shadowed::new(world, pod)? };
        let next = self.shadowed.get_next(&first)?;
        let same = next.full_name == first.full_name && next.world == world;
        same.then(|| self.any_by_uid(next.uid.as_uid_ref()).cloned())?
    }

    /// `heir` takes over the full name of `pod`, and what comes with it.
    fn succeed(&mut self, world: World, pod: &Arc<P>, heir: &Arc<P>) {
        if let Some(shadowed) = Shadowed::new(world, &**heir) {
            self.shadowed.remove(&shadowed);
        }
        let (_, other) = self.set_holder(world, Some(heir), pod);
        match world {
            World::Pods => self.translate(other.as_ref(), heir),
            World::Mirrors => self.link_mirror(heir, Some(pod), other.as_ref()),
        }
    }

    /// Nobody holds the full name of `pod` in its world any more; until now `pod` did.
    fn vacate(&mut self, world: World, pod: &Arc<P>) {
        let Some(entry) = self.name_held_by(world, pod) else { return };
        let (hash, rest) = (entry.hash, entry.with_holder(world, None));
        match world {
            World::Mirrors => self.set_target(pod, Target::Itself),
            World::Pods if rest.mirror.is_some() => {
                // The mirror goes on translating to the pod that is gone.
                if let Ok(full_name) = FullName::new(pod.name(), pod.namespace()) {
                    self.departed.insert(PodUid::from(pod.uid()), full_name);
                }
            }
            World::Pods => {}
        }
        let is = |slot: &Slot<NameEntry<P>>| slot.entry().is_held_by(world, pod);
        if rest.holder(world.other()).is_some() {
            self.names.replace(hash, |entry| entry.hash == hash, is, rest, NAME);
        } else {
            self.names.remove(hash, |entry| entry.hash == hash, is, &self.hashing);
        }
    }
}

/// What mirrors translate to. Only the mirror that holds a full name keeps a target; the others follow it.
impl<P: PodMeta> Snapshot<P> {
    /// `mirror`, if there is one, translates to `pod` from now on. Both hold the same full name.
    fn translate(&mut self, mirror: Option<&Arc<P>>, pod: &P) {
        if let Some(mirror) = mirror {
            self.set_target(mirror, Target::Pod(PodUid::from(pod.uid())));
        }
    }

    /// `mirror`, which holds its full name from now on, translates to the pod that holds it or, if there is none, to
    /// what the `previous` mirror translated to.
    fn link_mirror(&mut self, mirror: &Arc<P>, previous: Option<&Arc<P>>, pod: Option<&Arc<P>>) {
        let inherited = previous.and_then(|previous| self.exchange_target(previous, Target::AsHolder));
        let target = match pod {
            Some(pod) => Target::Pod(PodUid::from(pod.uid())),
            None => inherited.unwrap_or(Target::Itself),
        };
        self.exchange_target(mirror, target);
    }

    /// `mirror` translates to `target` from now on. A pod that is gone and was kept in mind for its sake is forgotten.
    fn set_target(&mut self, mirror: &Arc<P>, target: Target) {
        let unchanged = |old: &MirrorEntry<P>| old.target == target;
        if self.mirror_entry(mirror).is_none_or(|(_, old)| unchanged(old)) {
            return;
        }
        if let Some(Target::Pod(uid)) = self.exchange_target(mirror, target) {
            self.departed.remove(&uid);
        }
    }

    /// Changes what `mirror` translates to; returns what it translated to before.
    fn exchange_target(&mut self, mirror: &Arc<P>, target: Target) -> Option<Target> {
        let (key, entry) = self.mirror_entry(mirror)?;
        let old = entry.target.clone();
        put(&mut self.mirrors, key, MirrorEntry::new(key, Arc::clone(mirror), target), key.tag(false));
        Some(old)
    }

    /// The entry of this very mirror.
    fn mirror_entry<'m>(&self, mirror: &'m Arc<P>) -> Option<(UidKey<'m>, &MirrorEntry<P>)> {
        let key = UidKey::new(UidRef::from(mirror.uid()), &self.hashing);
        let entry = find(&self.mirrors, key)?;
        entry.pod().is_some_and(|pod| Arc::ptr_eq(pod, mirror)).then_some((key, entry))
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
            && let Some(entry) = self.entry_by_name(full_name.name(), full_name.namespace())
            && let Some(mirror) = entry.mirror.clone()
        {
            self.set_target(&mirror, Target::Itself);
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
