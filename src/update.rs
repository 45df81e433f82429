//! How one snapshot comes out of another.
//!
//! Pure: an operation works on a draft, which shares with the current snapshot whatever it does not change. No atomics, no
//! I/O, nothing that anybody else sees yet. Everything that keeps the indices in step with each other is in
//! this file. A pod that is refused is refused before anything is touched.
//!
//! Rules beyond the kubelet's:
//! - a UID is a pod's or a mirror's; an upsert moves it;
//! - a full name is held by whoever was upserted last under it; when the holder goes, of the others with
//!   that name the one with the smallest UID takes it over;
//! - all mirrors of one full name translate to the pod that holds it or, while none does, held it last.
//!
//! Who gets a container ID, an IP or another key is `keys`' business.

mod keys;

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::id::{FullName, PodUid, SEPARATOR, UidRef};
use crate::map::{Place, Text, Words, any_tag};
use crate::pod::{PodMeta, is_mirror_pod, is_static_pod};
use crate::snapshot::{EPHEMERAL, History, Mirror, PodKind, STATIC, Shadowed, Translation, UidKey};
use crate::versions::Draft;

/// Room is made beforehand for so many pods at most, whatever an iterator's `size_hint` claims.
const MAX_PRESIZE: usize = 1 << 20;

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

impl<P: PodMeta> Draft<'_, P> {
    /// Stores `pod` under its UID, whether or not the UID is known.
    pub(crate) fn upsert(&mut self, pod: &Arc<P>) -> Result<Upserted<P>, Error> {
        check(&**pod)?;
        let kind = if is_mirror_pod(&**pod) { PodKind::Mirror } else { PodKind::Pod };
        let key = UidKey::new(UidRef::from(pod.uid()), &self.hashing);
        let known = self.known(key);
        if let Some((place, known_kind, old)) = known
            && known_kind == kind
            && let Some(name) = self.name_of(kind, old, &**pod)
        {
            if Arc::ptr_eq(old, pod) {
                return Ok(Upserted::Unchanged);
            }
            let old = Arc::clone(old);
            self.names_mut(kind).replace(name, Arc::clone(pod), 0);
            match kind {
                PodKind::Pod => {
                    self.replace_pod(key, place, &old, pod);
                    self.exchange_keys(&old, pod);
                }
                PodKind::Mirror => self.replace_mirror(key, pod),
            }
            return Ok(Upserted::Replaced(old));
        }
        // One path for all that is not a plain replacement: whatever the old object's name or kind, it is taken out, and
        // the new one is filed as if it were new.
        let old = if known.is_some() { self.take(key) } else { None };
        self.insert(kind, key, pod);
        Ok(old.map_or(Upserted::Added, Upserted::Replaced))
    }

    /// Makes `pods`, stored one by one in their order, all that the draft has. Returns those that were refused.
    pub(crate) fn set(&mut self, pods: impl IntoIterator<Item = Arc<P>>) -> Vec<(usize, Error)> {
        let pods = pods.into_iter();
        let expected = pods.size_hint().0.min(MAX_PRESIZE);
        let mirrors = self.mirrors.len().min(expected);
        let static_pods = self.static_pods.len().min(expected - mirrors);
        self.pods_mut().clear(expected - mirrors);
        self.names_mut(PodKind::Pod).clear(expected - mirrors);
        self.static_pods_mut().clear(static_pods);
        self.mirrors_mut().clear(mirrors);
        self.names_mut(PodKind::Mirror).clear(mirrors);
        self.clear_keys(expected);
        *self.history() = History::default();
        let mut refused = Vec::new();
        for (position, pod) in pods.enumerate() {
            if let Err(error) = self.upsert(&pod) {
                refused.push((position, error));
            }
        }
        self.pods_mut().trim();
        self.names_mut(PodKind::Pod).trim();
        self.static_pods_mut().trim();
        self.mirrors_mut().trim();
        self.names_mut(PodKind::Mirror).trim();
        self.trim_keys();
        // The pages left smaller ones behind when they grew, more than a write needs.
        self.memory().trim();
        refused
    }

    /// Whether the draft says anything that the version it was made from does not. The tables by name and by further keys, and
    /// that of the static pods, follow from what is compared.
    pub(crate) fn differs(&self) -> bool {
        let (old, equal) = (self.base(), |one: &Words, other: &Words| one == other);
        self.history != old.history
            || !self.pods.same(&old.pods, equal, &self.hashing)
            || !self.mirrors.same(&old.mirrors, equal, &self.hashing)
    }

    /// Takes out whoever has this UID.
    pub(crate) fn remove(&mut self, uid: UidRef<'_>) -> Option<Arc<P>> {
        self.take(UidKey::new(uid, &self.hashing))
    }

    /// Puts `pod` in the place of `old`, which has the same UID.
    fn replace_pod(&mut self, key: UidKey<'_>, place: Place, old: &P, pod: &Arc<P>) {
        let (before, flags) = (self.pods.flags(place), self.count_in(pod));
        self.count_out(old, before);
        self.pods_mut().replace(place, Arc::clone(pod), flags);
        let known =
            |draft: &Self| Some(draft.static_pods.locate(key.hash, key.tag, |entry| key.is(entry))?.0);
        match (before & STATIC != 0, flags & STATIC != 0) {
            (false, false) => {}
            (false, true) => self.static_pods_mut().insert(key.tag, key.words, Arc::clone(pod), 0),
            (true, now) => {
                if let Some(place) = known(self) {
                    if now {
                        self.static_pods_mut().replace(place, Arc::clone(pod), 0);
                    } else {
                        self.static_pods_mut().remove(place);
                    }
                }
            }
        }
    }

    /// Puts `pod` in the place of the mirror that has the same UID and name.
    fn replace_mirror(&mut self, key: UidKey<'_>, pod: &Arc<P>) {
        if let Some((place, mirror)) = self.mirrors.locate(key.hash, key.tag, |entry| key.is(entry)) {
            let target = mirror.value.target.clone();
            self.mirrors_mut().replace(place, Mirror { pod: Arc::clone(pod), target }, 0);
        }
    }

    /// Files a pod whose UID is not in the index.
    fn insert(&mut self, kind: PodKind, key: UidKey<'_>, pod: &Arc<P>) {
        self.reconsider_tombstones(kind, pod);
        match kind {
            PodKind::Pod => {
                let flags = self.count_in(pod);
                self.pods_mut().insert(key.tag, key.words, Arc::clone(pod), flags);
                if flags & STATIC != 0 {
                    self.static_pods_mut().insert(key.tag, key.words, Arc::clone(pod), 0);
                }
                self.claim_keys(pod);
            }
            PodKind::Mirror => {
                let mirror = Mirror { pod: Arc::clone(pod), target: Translation::Identity };
                self.mirrors_mut().insert(key.tag, key.words, mirror, 0);
            }
        }
        let previous = self.set_holder(kind, pod, &**pod);
        self.link(kind, pod, previous.as_ref());
        if let Some(shadowed) = previous.and_then(|previous| Shadowed::new(kind, &*previous)) {
            self.history().shadowed.insert(shadowed);
        }
    }

    /// Takes out whoever has the UID of `key`, and passes on what it held.
    ///
    /// The entries that go are those that lead to this very object, whatever it says of itself by now.
    fn take(&mut self, key: UidKey<'_>) -> Option<Arc<P>> {
        let (_, kind, pod) = self.known(key)?;
        let pod = Arc::clone(pod);
        if let Some(name) = self.name_of(kind, &pod, &*pod) {
            match self.successor(kind, &*pod) {
                Some(successor) => self.succeed(kind, &pod, &successor),
                None => self.vacate(kind, &pod, name),
            }
        } else if Shadowed::new(kind, &*pod).and_then(|it| self.history().shadowed.remove(&it)).is_none() {
            self.forget_name(kind, &pod);
        }
        let (place, ..) = self.known(key)?;
        match kind {
            PodKind::Pod => {
                let flags = self.pods.flags(place);
                self.count_out(&pod, flags);
                self.pods_mut().remove(place);
                if let Some((place, _)) = self.static_pods.locate(key.hash, key.tag, |entry| key.is(entry)) {
                    self.static_pods_mut().remove(place);
                }
                self.give_up_keys(&pod);
            }
            PodKind::Mirror => self.mirrors_mut().remove(place),
        }
        Some(pod)
    }

    /// Takes a pod out of the table by name that has another name by now than it was filed under: it must not be found
    /// once it is gone. O(n), for pods that break their promise alone.
    fn forget_name(&mut self, kind: PodKind, pod: &Arc<P>) {
        let names = self.names(kind);
        let filed = names.iter().find(|entry| Arc::ptr_eq(&entry.value, pod));
        let place = filed.and_then(|entry| {
            let (name, namespace) = entry.key.record.parts();
            names.locate_text(entry.key.hash, name, namespace)
        });
        if let Some((place, _)) = place {
            self.names_mut(kind).remove(place);
        }
    }

    /// Counts the ephemeral containers of a pod that comes; returns what to file it with.
    fn count_in(&mut self, pod: &P) -> u8 {
        let (count, is_static) = (pod.ephemeral_container_count(), is_static_pod(pod));
        let total = &mut self.history().ephemeral_containers;
        *total = total.wrapping_add(count);
        (if is_static { STATIC } else { 0 }) | (if count > 0 { EPHEMERAL } else { 0 })
    }

    /// Takes the ephemeral containers of a pod that goes off the count. Wraps, so that a pod which does not always tell the
    /// same cannot panic.
    fn count_out(&mut self, pod: &P, flags: u8) {
        if flags & EPHEMERAL != 0 {
            let total = &mut self.history().ephemeral_containers;
            *total = total.wrapping_sub(pod.ephemeral_container_count());
        }
    }

    /// Whoever has the UID of `key`, and where.
    fn known(&self, key: UidKey<'_>) -> Option<(Place, PodKind, &Arc<P>)> {
        if let Some((place, entry)) = self.pods.locate(key.hash, key.tag, |entry| key.is(entry)) {
            return Some((place, PodKind::Pod, &entry.value));
        }
        let (place, entry) = self.mirrors.locate(key.hash, key.tag, |entry| key.is(entry))?;
        Some((place, PodKind::Mirror, &entry.value.pod))
    }
}

/// Who holds a full name.
impl<P: PodMeta> Draft<'_, P> {
    /// Where `holder` is filed by name, if it holds the full name of `pod`.
    fn name_of(&self, kind: PodKind, holder: &Arc<P>, pod: &P) -> Option<Place> {
        let (name, namespace) = (pod.name(), pod.namespace());
        let (place, entry) =
            self.names(kind).locate_text(self.hashing.pair(name, namespace), name, namespace)?;
        Arc::ptr_eq(&entry.value, holder).then_some(place)
    }

    /// Makes `holder` the one that holds the full name of `pod`; returns who held it until now.
    fn set_holder(&mut self, kind: PodKind, holder: &Arc<P>, pod: &P) -> Option<Arc<P>> {
        let (name, namespace) = (pod.name(), pod.namespace());
        let hash = self.hashing.pair(name, namespace);
        if let Some((place, entry)) = self.names(kind).locate_text(hash, name, namespace) {
            let previous = Arc::clone(&entry.value);
            self.names_mut(kind).replace(place, Arc::clone(holder), 0);
            return Some(previous);
        }
        let other = self.names(kind.other()).find_text(hash, name, namespace);
        let shared = other.map(|entry| entry.key.record.share());
        let record = self.memory().record(shared, name, namespace);
        self.names_mut(kind).insert(any_tag(hash), Text { hash, record }, Arc::clone(holder), 0);
        None
    }

    /// Of those who have the full name of `pod` without holding it, the one with the smallest UID.
    fn successor(&self, kind: PodKind, pod: &P) -> Option<Arc<P>> {
        let shadowed = &self.history.shadowed;
        if shadowed.is_empty() {
            return None;
        }
        let first = Shadowed { uid: PodUid::from(""), ..Shadowed::new(kind, pod)? };
        let next = shadowed.get_next(&first)?;
        let same = next.full_name == first.full_name && next.kind == kind;
        same.then(|| self.any_by_uid(next.uid.as_uid_ref()).cloned())?
    }

    /// `heir` takes over the full name of `pod`, and what comes with it.
    fn succeed(&mut self, kind: PodKind, pod: &Arc<P>, heir: &Arc<P>) {
        if let Some(shadowed) = Shadowed::new(kind, &**heir) {
            self.history().shadowed.remove(&shadowed);
        }
        self.set_holder(kind, heir, &**pod);
        self.link(kind, heir, Some(pod));
    }

    /// Nobody holds the full name of `pod` any more, which is filed at `name`.
    fn vacate(&mut self, kind: PodKind, pod: &Arc<P>, name: Place) {
        match kind {
            PodKind::Mirror => self.set_target(pod, Translation::Identity),
            PodKind::Pod if self.mirror_pod_by_pod(pod).is_some() => {
                // The mirror goes on translating to the pod that is gone.
                if let Ok(full_name) = FullName::new(pod.name(), pod.namespace()) {
                    self.history().tombstones.insert(PodUid::from(pod.uid()), full_name);
                }
            }
            PodKind::Pod => {}
        }
        self.names_mut(kind).remove(name);
    }
}

/// What mirrors translate to. Only the mirror that holds a full name keeps a target; the others follow it.
impl<P: PodMeta> Draft<'_, P> {
    /// `pod` holds its full name from now on, after `previous`: its translation follows.
    fn link(&mut self, kind: PodKind, pod: &Arc<P>, previous: Option<&Arc<P>>) {
        match kind {
            PodKind::Pod => {
                if let Some(mirror) = self.mirror_pod_by_pod(pod).cloned() {
                    self.set_target(&mirror, Translation::Pod(pod.uid().into()));
                }
            }
            // To the pod that holds the name or, if there is none, to what the previous mirror translated to.
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

    /// `mirror` translates to `target` from now on. The tombstone of the pod that it translated to goes.
    fn set_target(&mut self, mirror: &Arc<P>, target: Translation) {
        if self.locate_mirror(mirror).is_none_or(|(_, old)| old.target == target) {
            return;
        }
        if let Some(Translation::Pod(uid)) = self.exchange_target(mirror, target) {
            self.history().tombstones.remove(&uid);
        }
    }

    /// Changes what `mirror` translates to; returns what it translated to before.
    fn exchange_target(&mut self, mirror: &Arc<P>, target: Translation) -> Option<Translation> {
        let (place, entry) = self.locate_mirror(mirror)?;
        let old = entry.target.clone();
        self.mirrors_mut().replace(place, Mirror { pod: Arc::clone(mirror), target }, 0);
        Some(old)
    }

    /// The entry of this very mirror.
    fn locate_mirror(&self, mirror: &Arc<P>) -> Option<(Place, &Mirror<P>)> {
        let key = UidKey::new(UidRef::from(mirror.uid()), &self.hashing);
        let (place, entry) = self.mirrors.locate(key.hash, key.tag, |entry| key.is(entry))?;
        Arc::ptr_eq(&entry.value.pod, mirror).then_some((place, &entry.value))
    }

    /// A UID that mirrors still translate to, although its pod was gone, comes back with `pod`. If it comes back under
    /// another full name, or as a mirror, the translation would join what does not belong together, and ends.
    fn reconsider_tombstones(&mut self, kind: PodKind, pod: &P) {
        if self.history.tombstones.is_empty() {
            return;
        }
        let Some(full_name) = self.history().tombstones.remove(&PodUid::from(pod.uid())) else { return };
        let same = full_name.name() == pod.name() && full_name.namespace() == pod.namespace();
        if (kind == PodKind::Mirror || !same)
            && let Some(mirror) = self.mirror_pod_by_full_name(full_name.as_str()).cloned()
        {
            self.set_target(&mirror, Translation::Identity);
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
    fn new<P: PodMeta>(kind: PodKind, pod: &P) -> Option<Self> {
        let full_name = FullName::new(pod.name(), pod.namespace()).ok()?;
        Some(Self { full_name, kind, uid: PodUid::from(pod.uid()) })
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
