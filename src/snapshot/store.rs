//! The pods themselves, by place.

use std::sync::Arc;

use super::entry::{NameEntry, Place, UidEntry, World};
use crate::id::{PodUid, UidRef};
use crate::map::{Slab, Value};
use crate::pod::PodMeta;

/// Two slabs, one for each world. Static pods are marked, so that a view over them never looks at the others; a slab of
/// their own would put a branch that cannot be foreseen into every look-up.
pub(crate) struct Store<P> {
    pub(crate) pods: Slab<Arc<P>>,
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
        Self { pods: Slab::default(), mirrors: Slab::default() }
    }

    /// Whoever is at `place`, mirror or not.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Arc<P>> {
        match place.pod() {
            Some(number) => self.pods.get(number),
            None => self.mirror_at(place).map(|mirror| &mirror.pod),
        }
    }

    #[inline]
    pub(crate) fn mirror_at(&self, place: Place) -> Option<&Mirror<P>> {
        self.mirrors.get(place.mirror()?)
    }

    pub(crate) fn mirror_at_mut(&mut self, place: Place) -> Option<&mut Mirror<P>> {
        self.mirrors.get_mut(place.mirror()?)
    }

    /// Whoever is at `place`, to replace.
    pub(crate) fn at_mut(&mut self, place: Place) -> Option<&mut Arc<P>> {
        match place.pod() {
            Some(number) => self.pods.get_mut(number),
            None => self.mirror_at_mut(place).map(|mirror| &mut mirror.pod),
        }
    }

    /// Whether the slab of this world takes no more.
    pub(crate) fn is_full(&self, world: World) -> bool {
        let len = match world {
            World::Pods => self.pods.len(),
            World::Mirrors => self.mirrors.len(),
        };
        len == Slab::<P>::MAX_LEN
    }

    /// Puts a pod into the slab of its world. Nowhere if that is full.
    pub(crate) fn insert(&mut self, world: World, pod: Arc<P>) -> Option<Place> {
        let number = match world {
            World::Pods => self.pods.insert(pod),
            World::Mirrors => self.mirrors.insert(Mirror { pod, target: Target::Itself }),
        }?;
        Some(Place::new(world, number))
    }

    /// Says whether the pod at `place` is a static one.
    pub(crate) fn mark_static(&mut self, place: Place, is_static: bool) {
        if let Some(number) = place.pod() {
            self.pods.mark(number, is_static);
        }
    }

    pub(crate) fn remove(&mut self, place: Place) {
        if let Some(number) = place.pod() {
            self.pods.remove(number);
        } else if let Some(number) = place.mirror() {
            self.mirrors.remove(number);
        }
    }
}

impl<P: PodMeta> Store<P> {
    /// Whether the pod of `entry`, whose key is that of `uid`, has this very UID.
    #[inline]
    pub(crate) fn is_uid(&self, entry: &UidEntry, uid: UidRef<'_>) -> bool {
        uid.usual().is_some() || self.at(entry.place()).is_some_and(|pod| pod.uid() == uid.other())
    }

    /// Whether the pods of `entry`, whose hash is that of the full name, have this very full name.
    #[inline]
    pub(crate) fn is_name(&self, entry: &NameEntry, name: &str, namespace: &str) -> bool {
        self.at(entry.any()).is_some_and(|pod| pod.name() == name && pod.namespace() == namespace)
    }
}

// Not derived, because a derive would ask for `P: Clone`.
impl<P> Clone for Store<P> {
    fn clone(&self) -> Self {
        Self { pods: self.pods.clone(), mirrors: self.mirrors.clone() }
    }
}

impl<P> Clone for Mirror<P> {
    fn clone(&self) -> Self {
        Self { pod: Arc::clone(&self.pod), target: self.target.clone() }
    }
}

impl<P> Value for Mirror<P> {
    fn touch(&self) -> usize {
        self.pod.touch()
    }
}
