//! The pods themselves, by place.

use std::sync::Arc;

use super::entry::{Kind, NameEntry, Place, UidEntry, UidKey};
use crate::id::{PodUid, UidRef};
use crate::map::Slab;
use crate::pod::PodMeta;

/// Three slabs, one for each kind of pod.
pub(crate) struct Store<P> {
    pub(crate) plain: Slab<Arc<P>>,
    pub(crate) statics: Slab<Arc<P>>,
    pub(crate) mirrors: Slab<Mirror<P>>,
}

/// A mirror pod and what its UID translates to.
pub(crate) struct Mirror<P> {
    pub(crate) pod: Arc<P>,
    pub(crate) target: Target,
}

/// What the UID of a mirror translates to.
#[derive(Clone, PartialEq)]
pub(crate) enum Target {
    /// To itself: no pod of its full name was ever seen beside it.
    Itself,
    /// To the pod that holds its full name, or held it last.
    Pod(PodUid),
    /// To what the mirror that holds its full name translates to.
    AsHolder,
}

impl<P> Store<P> {
    pub(crate) fn new() -> Self {
        Self { plain: Slab::default(), statics: Slab::default(), mirrors: Slab::default() }
    }

    /// Whoever is at `place`, mirror or not.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Arc<P>> {
        match place.kind()? {
            Kind::Plain => self.plain.get(place.number()),
            Kind::Static => self.statics.get(place.number()),
            Kind::Mirror => self.mirrors.get(place.number()).map(|mirror| &mirror.pod),
        }
    }

    pub(crate) fn mirror_at(&self, place: Place) -> Option<&Mirror<P>> {
        (place.kind()? == Kind::Mirror).then(|| self.mirrors.get(place.number()))?
    }

    pub(crate) fn mirror_at_mut(&mut self, place: Place) -> Option<&mut Mirror<P>> {
        (place.kind()? == Kind::Mirror).then(|| self.mirrors.get_mut(place.number()))?
    }

    /// Whoever is at `place`, to replace.
    pub(crate) fn at_mut(&mut self, place: Place) -> Option<&mut Arc<P>> {
        match place.kind()? {
            Kind::Plain => self.plain.get_mut(place.number()),
            Kind::Static => self.statics.get_mut(place.number()),
            Kind::Mirror => self.mirrors.get_mut(place.number()).map(|mirror| &mut mirror.pod),
        }
    }

    /// How many pods of this kind there are.
    pub(crate) fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Plain => self.plain.len(),
            Kind::Static => self.statics.len(),
            Kind::Mirror => self.mirrors.len(),
        }
    }

    /// Puts a pod into the slab of its kind. Nowhere if that is full.
    pub(crate) fn insert(&mut self, kind: Kind, pod: Arc<P>) -> Option<Place> {
        let number = match kind {
            Kind::Plain => self.plain.insert(pod),
            Kind::Static => self.statics.insert(pod),
            Kind::Mirror => self.mirrors.insert(Mirror { pod, target: Target::Itself }),
        }?;
        Some(Place::new(kind, number))
    }

    pub(crate) fn remove(&mut self, place: Place) {
        match place.kind() {
            Some(Kind::Plain) => drop(self.plain.remove(place.number())),
            Some(Kind::Static) => drop(self.statics.remove(place.number())),
            Some(Kind::Mirror) => drop(self.mirrors.remove(place.number())),
            None => {}
        }
    }
}

impl<P: PodMeta> Store<P> {
    /// Whether `entry` is the one for `uid`, whose key is `key`.
    #[inline]
    pub(crate) fn is_uid(&self, entry: &UidEntry, key: UidKey, uid: UidRef<'_>) -> bool {
        entry.key == key
            && !entry.place.is_nowhere()
            && match uid.unusual() {
                None => true,
                Some(text) => self.at(entry.place).is_some_and(|pod| pod.uid() == text),
            }
    }

    /// Whether `entry` is the one for this full name, whose hash is `hash`.
    #[inline]
    pub(crate) fn is_name(&self, entry: &NameEntry, hash: u64, name: &str, namespace: &str) -> bool {
        entry.hash == hash
            && self.at(entry.any()).is_some_and(|pod| pod.name() == name && pod.namespace() == namespace)
    }
}

// Not derived, because a derive would ask for `P: Clone`.
impl<P> Clone for Store<P> {
    fn clone(&self) -> Self {
        Self { plain: self.plain.clone(), statics: self.statics.clone(), mirrors: self.mirrors.clone() }
    }
}

impl<P> Clone for Mirror<P> {
    fn clone(&self) -> Self {
        Self { pod: Arc::clone(&self.pod), target: self.target.clone() }
    }
}
