//! Creates the next snapshot from the current one.
//!
//! Operations work on a draft, which shares everything unchanged with the current snapshot. No atomics, no I/O, no
//! effects visible to others. This file keeps all indices consistent with each other. A refused
//! pod is refused before any change.
//!
//! Rules beyond the kubelet's:
//!
//! - a UID belongs either to a pod or to a mirror; an upsert can change that;
//! - the pod last upserted under a full name holds it; when the holder is removed, the remaining pod of that
//!   name with the smallest UID takes over;
//! - all mirrors of one full name translate to the pod that holds it or, while none does, to its last holder.
//!
//! `set` replaces all pods. `keys` decides which pod gets an additional key: a container ID, an IP or a custom key. `removals`
//! decides which removed pods are kept.

mod keys;
mod removals;
mod set;
mod times;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use keys::IgnoredKeys;
pub(crate) use set::RefusedPod;

use crate::error::{Error, ErrorKind};
use crate::id::{FullName, PodUid, SEPARATOR, UidRef};
use crate::moment::Moment;
use crate::pod::{Claim, ClaimedKeyRef, Claims, OwnedClaimedKey, PodKind, PodMeta};
use crate::pods::{
    Contender, HashedUid, History, Mirror, Removals, RemovedPod, RemovedSet, Tables, Times, Translation,
};
use crate::snapshot::{Snapshot, between};
use crate::table::versions::{self, TablesMut};
use crate::table::{Entry, Place};

/// The next snapshot, while it is being written.
pub(crate) type Draft<'w, P> = versions::Draft<'w, Snapshot<P>>;

/// The result of [`Writer::upsert_pod`](crate::Writer::upsert_pod).
///
/// # Examples
/// ```
/// use pod_index::{SimplePod, Upserted};
///
/// let (mut writer, _reader) = pod_index::new();
/// let web = SimplePod::new("u1", "default", "web");
/// assert!(matches!(writer.upsert_pod(web.clone())?, Upserted::Added));
/// // Another object under the same UID: the old one is returned.
/// let Upserted::Replaced(old) = writer.upsert_pod(SimplePod { name: "db".into(), ..web })? else { unreachable!() };
/// assert_eq!(old.name, "web");
/// # Ok::<(), pod_index::Error>(())
/// ```
#[non_exhaustive]
pub enum Upserted<P> {
    /// The very same object was already stored; nothing was published.
    Unchanged,
    /// The UID is new.
    Added,
    /// The UID was known; holds its previous object.
    Replaced(Arc<P>),
}

impl<P: PodMeta> Snapshot<P> {
    /// The pod or mirror with this UID.
    pub(crate) fn find_known(&self, uid: UidRef<'_>) -> Option<Known<P>> {
        let key = HashedUid::new(uid, &self.hashing);
        let (place, kind, pod) = self.live.known(key, |words, pod| key.is(words, pod))?;
        Some(Known { place, kind, pod: Arc::clone(pod) })
    }
}

/// A current pod or mirror pod, and the place of its entry by UID.
pub(crate) struct Known<P> {
    place: Place,
    kind: PodKind,
    pod: Arc<P>,
}

impl<P: PodMeta> Draft<'_, P> {
    /// Stores `pod` under its UID, known or not. An index that keeps removed pods needs the moment.
    pub(crate) fn upsert(&mut self, pod: &Arc<P>, now: Option<&Moment>) -> Result<Upserted<P>, Error> {
        let upserted = self.store(pod)?;
        if let Some(now) = now {
            match &upserted {
                Upserted::Unchanged => {}
                Upserted::Added => self.note_stored(None, pod, now),
                Upserted::Replaced(old) => self.note_stored(Some(old), pod, now),
            }
        }
        Ok(upserted)
    }

    /// Stores `pod` under its UID, known or not, without the times.
    pub(crate) fn store(&mut self, pod: &Arc<P>) -> Result<Upserted<P>, Error> {
        if let Err(error) = check(&**pod) {
            // Its `Drop` may panic.
            self.drop_later(Arc::clone(pod));
            return Err(error);
        }
        let kind = PodKind::of(&**pod);
        let key = HashedUid::new(UidRef::from(pod.uid()), &self.hashing);
        let known = self.known(key);
        if let Some((place, known_kind, old)) = known
            && known_kind == kind
            && let Some(name) = self.place_if_held(full_name(kind, &**pod), old)
        {
            if Arc::ptr_eq(old, pod) {
                return Ok(Upserted::Unchanged);
            }
            let old = Arc::clone(old);
            self.live_mut().of(|tables| &mut tables.names).replace(name, Arc::clone(pod));
            match kind {
                PodKind::Pod => {
                    self.change_keys(key.uid, Some(&old), Some(pod));
                    self.live_mut().of(|tables| &mut tables.pods).replace(place, Arc::clone(pod));
                }
                PodKind::Mirror => {
                    let mirror = self.live.mirror(key.uid, &self.hashing);
                    let target = mirror.map_or(Translation::Identity, |mirror| mirror.target.clone());
                    let mirror = Mirror { pod: Arc::clone(pod), target };
                    self.live_mut().of(|tables| &mut tables.mirrors).replace(place, mirror);
                }
            }
            return Ok(Upserted::Replaced(old));
        }
        // Everything except a plain replacement takes one path: the old object is removed, and the new one is
        // stored as if its UID were unknown.
        let known = known.map(|(place, kind, pod)| Known { place, kind, pod: Arc::clone(pod) });
        let old = known.map(|known| self.remove_known(key.uid, known));
        self.insert(kind, key, pod);
        Ok(old.map_or(Upserted::Added, Upserted::Replaced))
    }

    /// Whether the current pods differ from those of the base version. Everything else follows from the pods, the mirror
    /// pods, their history, and which of several pods holds a name.
    pub(crate) fn pods_differ(&self) -> bool {
        let old = self.base();
        self.history != old.history
            || self.live.contenders != old.live.contenders
            || between(old, self, |_| ControlFlow::Break(())).is_break()
    }

    /// Whether the removed pods differ from those of the base version. Each removal has a number of its own.
    pub(crate) fn removed_pods_differ(&self) -> bool {
        let state = |removed: &RemovedSet<P>| (removed.queue.len(), removed.queue.last());
        self.removed.as_deref().map(state) != self.base().removed.as_deref().map(state)
    }

    /// Removes the pod or mirror with this UID.
    pub(crate) fn remove(&mut self, uid: UidRef<'_>, now: Option<&Moment>) -> Option<Arc<P>> {
        let known = self.find_known(uid)?;
        Some(self.remove_found(uid, known, now))
    }

    /// Removes a pod or mirror that was found under this UID, in this draft or in its base.
    pub(crate) fn remove_found(&mut self, uid: UidRef<'_>, known: Known<P>, now: Option<&Moment>) -> Arc<P> {
        match now {
            Some(now) if self.removed.is_some() => self.remove_and_keep(uid, known, now),
            _ => self.remove_known(uid, known),
        }
    }

    /// Replaces the keys of the old pod by those of the new one.
    fn change_keys(&mut self, uid: UidRef<'_>, old: Option<&Arc<P>>, new: Option<&Arc<P>>) {
        let IgnoredKeys { before, after } = self.live_mut().change_claims(uid, old, new);
        if before != after {
            let ignored = &mut self.history_mut().ignored_keys;
            *ignored = ignored.wrapping_sub(before).wrapping_add(after);
        }
    }

    /// Stores a pod whose UID is not in the index.
    fn insert(&mut self, kind: PodKind, key: HashedUid<'_>, pod: &Arc<P>) {
        self.reconsider_tombstones(kind, pod);
        if self.removed.is_some() {
            self.drop_removed(key.uid);
        }
        if kind == PodKind::Pod {
            self.change_keys(key.uid, None, Some(pod));
        }
        self.live_mut().add_pod(kind, key, Arc::clone(pod), Translation::Identity);
        let previous = self.set_holder(kind, pod);
        self.link(kind, pod, previous.as_ref());
        let Some(previous) = previous else { return };
        // A pod whose name has changed may have left its former name behind when it was removed. A pod that answers with
        // another UID than it is stored under would make that pod the next holder.
        let uid = PodUid::from(previous.uid());
        let stored = self.any_by_uid(uid.as_uid_ref());
        if stored.is_some_and(|stored| Arc::ptr_eq(stored, &previous)) {
            let contender = name_contender(kind, &*previous, uid);
            self.live_mut().contenders_mut().insert(contender);
        }
    }

    /// Removes a pod or mirror that was just found under this UID, and passes on the keys and the name that it held.
    fn remove_known(&mut self, uid: UidRef<'_>, Known { place, kind, pod }: Known<P>) -> Arc<P> {
        let key = full_name(kind, &*pod);
        if let Some(name) = self.place_if_held(key, &pod) {
            match self.live_mut().pass_on(key, name) {
                Some(next) => self.link(kind, &next, Some(&pod)),
                None => self.unlink(kind, &pod),
            }
        } else {
            let contender = name_contender(kind, &*pod, uid.into());
            self.live_mut().contenders_mut().remove(&contender);
        }
        // What was changed so far moved no entry of this table: a translation is replaced in its place.
        self.live_mut().remove_pod(kind, place);
        if kind == PodKind::Pod {
            self.change_keys(uid, Some(&pod), None);
        }
        pod
    }

    /// The pod or mirror with the UID of `key`, and its place.
    fn known(&self, key: HashedUid<'_>) -> Option<(Place, PodKind, &Arc<P>)> {
        self.live.known(key, |words, pod| key.is(words, pod))
    }
}

/// What a draft writes to.
impl<P> Draft<'_, P> {
    /// Marks the draft as one that changes no pods and no mirror pods.
    pub(crate) fn changes_no_pods(&mut self) {
        let generation = self.base().pods_generation;
        self.state_mut().pods_generation = generation;
    }

    fn history_mut(&mut self) -> &mut History {
        &mut self.state_mut().history
    }

    fn times_mut(&mut self) -> Option<&mut Times> {
        self.state_mut().times.as_deref_mut()
    }

    fn queue_mut(&mut self) -> Option<&mut Removals> {
        Some(&mut self.state_mut().removed.as_mut()?.queue)
    }

    /// The tables of the current pods.
    #[inline]
    fn live_mut(&mut self) -> TablesMut<'_, Tables<Arc<P>>> {
        self.tables_mut(|snapshot| &mut snapshot.live)
    }

    /// The tables of the removed pods, if the index keeps those.
    fn removed_mut(&mut self) -> Option<TablesMut<'_, Tables<RemovedPod<P>>>> {
        self.optional_tables_mut(|snapshot| Some(&mut snapshot.removed.as_mut()?.tables))
    }
}

/// Holders of full names.
impl<P: PodMeta> Draft<'_, P> {
    /// The place of a full name's entry, if this pod holds the name.
    fn place_if_held(&self, full_name: ClaimedKeyRef<'_>, pod: &Arc<P>) -> Option<Place> {
        let (place, holder) = self.live.find(full_name, &self.hashing)?;
        Arc::ptr_eq(holder, pod).then_some(place)
    }

    /// Makes `holder` the holder of its full name. Returns the previous one.
    fn set_holder(&mut self, kind: PodKind, holder: &Arc<P>) -> Option<Arc<P>> {
        let key = full_name(kind, &**holder);
        let claim = Claim { key, container: None };
        let mut tables = self.live_mut();
        let Some((place, known)) = tables.find(key, tables.hashing) else {
            tables.add_entry(claim, holder);
            return None;
        };
        let previous = Arc::clone(known);
        tables.replace_entry(claim, place, Arc::clone(holder));
        Some(previous)
    }
}

/// Translations. Only the mirror that holds a full name stores a target; the others follow it.
impl<P: PodMeta> Draft<'_, P> {
    /// Updates the translations after `pod` became the holder of its full name, replacing `previous`.
    fn link(&mut self, kind: PodKind, pod: &Arc<P>, previous: Option<&Arc<P>>) {
        match kind {
            PodKind::Pod => {
                if let Some(mirror) = self.mirror_pod_by_pod(pod).cloned() {
                    self.set_target(&mirror, Translation::Pod(pod.uid().into()));
                }
            }
            // To the pod that holds the name or, if there is none, to the previous mirror's translation.
            PodKind::Mirror => {
                let inherited =
                    previous.and_then(|mirror| self.exchange_target(mirror, Translation::ViaHolder));
                let target = match self.pod_by_mirror_pod(pod) {
                    Some(pod) => Translation::Pod(pod.uid().into()),
                    None => inherited.unwrap_or(Translation::Identity),
                };
                self.exchange_target(pod, target);
            }
        }
    }

    /// Updates the translations after `pod`, which held its full name, left it to nobody.
    fn unlink(&mut self, kind: PodKind, pod: &Arc<P>) {
        match kind {
            PodKind::Mirror => self.set_target(pod, Translation::Identity),
            PodKind::Pod if self.live.mirrors.len() > 0 && self.mirror_pod_by_pod(pod).is_some() => {
                // The mirror still translates to the removed pod.
                if let Ok(full_name) = FullName::new(pod.namespace(), pod.name()) {
                    self.history_mut().tombstones.insert(PodUid::from(pod.uid()), full_name);
                }
            }
            PodKind::Pod => {}
        }
    }

    /// Makes `mirror` translate to `target`. Removes the tombstone of the pod to which it translated before.
    fn set_target(&mut self, mirror: &Arc<P>, target: Translation) {
        if self.locate_mirror(mirror).is_none_or(|(_, old)| old.target == target) {
            return;
        }
        if let Some(Translation::Pod(uid)) = self.exchange_target(mirror, target) {
            self.history_mut().tombstones.remove(&uid);
        }
    }

    /// Changes the translation of `mirror`. Returns the previous one.
    fn exchange_target(&mut self, mirror: &Arc<P>, target: Translation) -> Option<Translation> {
        let (place, entry) = self.locate_mirror(mirror)?;
        let old = entry.target.clone();
        let mirror = Mirror { pod: Arc::clone(mirror), target };
        self.live_mut().of(|tables| &mut tables.mirrors).replace(place, mirror);
        Some(old)
    }

    /// The entry of this very mirror.
    fn locate_mirror(&self, mirror: &Arc<P>) -> Option<(Place, &Mirror<Arc<P>>)> {
        let key = HashedUid::new(UidRef::from(mirror.uid()), &self.hashing);
        let is = |entry: &Entry<_, _>| key.is(entry.key, &entry.value);
        let (place, entry) = self.live.mirrors.find(key.hash, key.tag, is)?;
        Arc::ptr_eq(&entry.value.pod, mirror).then_some((place, &entry.value))
    }

    /// Handles a removed UID to which mirrors still translate and that returns with `pod`. If it returns
    /// under another full name or as a mirror, the translation would be wrong, so it ends.
    fn reconsider_tombstones(&mut self, kind: PodKind, pod: &P) {
        if self.history.tombstones.is_empty() {
            return;
        }
        let Some(full_name) = self.history_mut().tombstones.remove(&PodUid::from(pod.uid())) else { return };
        let same = full_name.name() == pod.name() && full_name.namespace() == pod.namespace();
        if (kind == PodKind::Mirror || !same)
            && let Some(mirror) = self.mirror_pod_by_full_name(full_name.as_str()).cloned()
        {
            self.set_target(&mirror, Translation::Identity);
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

/// The claim of a pod to its full name, which another pod holds. All such claims are equally strong.
fn name_contender<P: PodMeta>(kind: PodKind, pod: &P, uid: PodUid) -> Contender {
    let key = OwnedClaimedKey::new(full_name(kind, pod));
    Contender { key, strength: Claims::NONE.strength, uid }
}

/// A pod's full name, as it claims it.
fn full_name<P: PodMeta>(kind: PodKind, pod: &P) -> ClaimedKeyRef<'_> {
    ClaimedKeyRef::Name { kind, namespace: pod.namespace(), name: pod.name() }
}

/// Refuses pods that could not be found again.
fn check<P: PodMeta>(pod: &P) -> Result<(), Error> {
    let names = [("metadata.name", pod.name()), ("metadata.namespace", pod.namespace())];
    for (field, value) in [("metadata.uid", pod.uid())].into_iter().chain(names) {
        if value.is_empty() {
            return Err(Error::new(field, ErrorKind::Empty, pod));
        }
    }
    match names.into_iter().find(|(_, value)| value.contains(SEPARATOR)) {
        Some((field, _)) => Err(Error::new(field, ErrorKind::Separator, pod)),
        None => Ok(()),
    }
}
