//! Whole-set reads: views that borrow from a snapshot and copy nothing.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use super::{Mirror, PodKind, Snapshot};
use crate::id::{FullName, MirrorPodUid, PodUid, UidRef};
use crate::map::{self, PodValue, Text, Words};
use crate::pod::PodMeta;

/// Declares a view that is only a borrowed snapshot.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<'a, P> {
            pub(super) snapshot: &'a Snapshot<P>,
        }

        impl<P> Clone for $name<'_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P> Copy for $name<'_, P> {}

        impl<P: PodMeta> fmt::Debug for $name<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(self.snapshot).finish()
            }
        }
    };
}

/// Gives a view `iter` and `IntoIterator`, using `$iter`.
macro_rules! iterable {
    ($name:ident, $iter:ident) => {
        impl<'a, P: PodMeta> IntoIterator for $name<'a, P> {
            type Item = &'a Arc<P>;
            type IntoIter = $iter<'a, P>;

            fn into_iter(self) -> $iter<'a, P> {
                self.iter()
            }
        }

        impl<'a, P: PodMeta> IntoIterator for &$name<'a, P> {
            type Item = &'a Arc<P>;
            type IntoIter = $iter<'a, P>;

            fn into_iter(self) -> $iter<'a, P> {
                self.iter()
            }
        }

        impl<'a, P: PodMeta> Iterator for $iter<'a, P> {
            type Item = &'a Arc<P>;

            #[inline]
            fn next(&mut self) -> Option<Self::Item> {
                self.0.next().map(|entry| entry.value.pod())
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.0.size_hint()
            }
        }

        impl<P: PodMeta> ExactSizeIterator for $iter<'_, P> {}

        impl<P: PodMeta> FusedIterator for $iter<'_, P> {}

        impl<P> Clone for $iter<'_, P> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }

        impl<P: PodMeta> fmt::Debug for $iter<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($iter)).field("left", &self.0.len()).finish_non_exhaustive()
            }
        }
    };
}

view! {
    /// All pods of a snapshot, mirrors excluded. See [`Snapshot::pods`].
    Pods
}

view! {
    /// All static pods of a snapshot. See [`Snapshot::static_pods`].
    StaticPods
}

view! {
    /// All mirror pods of a snapshot. See [`Snapshot::mirror_pods`].
    MirrorPods
}

view! {
    /// The full names of the mirrors without a pod. See [`Snapshot::orphaned_mirror_pod_full_names`].
    FullNames
}

view! {
    /// Static pods and their mirrors. See [`Snapshot::static_pods_with_mirrors`].
    StaticPodsWithMirrors
}

view! {
    /// Both directions of the translation. See [`Snapshot::uid_translations`].
    UidTranslations
}

/// The result of [`Snapshot::pods_and_mirror_pods`]: three views of one snapshot.
#[non_exhaustive]
pub struct PodsAndMirrorPods<'a, P> {
    /// All pods.
    pub pods: Pods<'a, P>,
    /// All mirror pods.
    pub mirror_pods: MirrorPods<'a, P>,
    /// The full names of the mirror pods without a pod.
    pub orphaned_mirror_pod_full_names: FullNames<'a, P>,
}

// Not derived: a derive would require `P: Clone`.
impl<P> Clone for PodsAndMirrorPods<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for PodsAndMirrorPods<'_, P> {}

impl<P: PodMeta> fmt::Debug for PodsAndMirrorPods<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PodsAndMirrorPods").field(self.pods.snapshot).finish()
    }
}

/// An iterator over [`Pods`].
pub struct PodsIter<'a, P>(map::Iter<'a, Words, Arc<P>>);
/// An iterator over [`StaticPods`].
pub struct StaticPodsIter<'a, P>(map::Iter<'a, Words, Arc<P>>);
/// An iterator over [`MirrorPods`].
pub struct MirrorPodsIter<'a, P>(map::Iter<'a, Words, Mirror<P>>);

/// An iterator over [`FullNames`].
pub struct FullNamesIter<'a, P> {
    snapshot: &'a Snapshot<P>,
    mirrors: map::Iter<'a, Text, Arc<P>>,
}

/// An iterator over [`StaticPodsWithMirrors`].
pub struct StaticPodsWithMirrorsIter<'a, P> {
    snapshot: &'a Snapshot<P>,
    static_pods: StaticPodsIter<'a, P>,
}

/// An iterator over [`UidTranslations`], from mirror to pod.
pub struct MirrorToPodIter<'a, P> {
    snapshot: &'a Snapshot<P>,
    mirrors: map::Iter<'a, Words, Mirror<P>>,
}

impl<P: PodMeta> Iterator for FullNamesIter<'_, P> {
    type Item = FullName;

    fn next(&mut self) -> Option<FullName> {
        let names = &self.snapshot.names;
        self.mirrors.by_ref().map(|mirror| &mirror.key).find_map(|key| {
            let (name, namespace) = key.record.parts();
            let orphan = names.find_text(key.hash, name, namespace).is_none();
            orphan.then(|| FullName::new(name, namespace).ok()).flatten()
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.mirrors.len()))
    }
}

impl<'a, P: PodMeta> Iterator for StaticPodsWithMirrorsIter<'a, P> {
    type Item = (&'a Arc<P>, Option<&'a Arc<P>>);

    fn next(&mut self) -> Option<Self::Item> {
        let pod = self.static_pods.next()?;
        Some((pod, self.snapshot.mirror_pod_by_pod(pod)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.static_pods.size_hint()
    }
}

impl<P: PodMeta> ExactSizeIterator for StaticPodsWithMirrorsIter<'_, P> {}

impl<P: PodMeta> Iterator for MirrorToPodIter<'_, P> {
    type Item = (MirrorPodUid, PodUid);

    fn next(&mut self) -> Option<Self::Item> {
        let snapshot = self.snapshot;
        self.mirrors.by_ref().map(|mirror| &mirror.value).find_map(|mirror| {
            let target = snapshot.target_of(mirror)?;
            Some((mirror.pod.uid().into(), target.clone()))
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.mirrors.len()))
    }
}

/// Implements what all iterators and views have in common, for an iterator that uses its snapshot.
macro_rules! paired {
    ($name:ident, $iter:ident, $field:ident, $item:ty) => {
        impl<'a, P: PodMeta> IntoIterator for $name<'a, P> {
            type Item = $item;
            type IntoIter = $iter<'a, P>;

            fn into_iter(self) -> $iter<'a, P> {
                self.iter()
            }
        }

        impl<'a, P: PodMeta> IntoIterator for &$name<'a, P> {
            type Item = $item;
            type IntoIter = $iter<'a, P>;

            fn into_iter(self) -> $iter<'a, P> {
                self.iter()
            }
        }

        impl<P: PodMeta> FusedIterator for $iter<'_, P> {}

        impl<P> Clone for $iter<'_, P> {
            fn clone(&self) -> Self {
                Self { snapshot: self.snapshot, $field: self.$field.clone() }
            }
        }

        impl<P: PodMeta> fmt::Debug for $iter<'_, P> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (_, at_most) = self.size_hint();
                f.debug_struct(stringify!($iter)).field("at_most", &at_most).finish_non_exhaustive()
            }
        }
    };
}

paired!(FullNames, FullNamesIter, mirrors, FullName);
paired!(StaticPodsWithMirrors, StaticPodsWithMirrorsIter, static_pods, (&'a Arc<P>, Option<&'a Arc<P>>));
paired!(UidTranslations, MirrorToPodIter, mirrors, (MirrorPodUid, PodUid));

iterable!(Pods, PodsIter);
iterable!(StaticPods, StaticPodsIter);
iterable!(MirrorPods, MirrorPodsIter);

impl<'a, P: PodMeta> Pods<'a, P> {
    /// Number of pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.pods.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the pods.
    #[must_use]
    pub fn iter(&self) -> PodsIter<'a, P> {
        PodsIter(self.snapshot.pods.iter())
    }
}

impl<'a, P: PodMeta> StaticPods<'a, P> {
    /// Number of static pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.static_pods.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the static pods.
    #[must_use]
    pub fn iter(&self) -> StaticPodsIter<'a, P> {
        StaticPodsIter(self.snapshot.static_pods.iter())
    }
}

impl<'a, P: PodMeta> MirrorPods<'a, P> {
    /// Number of mirror pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.mirrors.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the mirror pods.
    #[must_use]
    pub fn iter(&self) -> MirrorPodsIter<'a, P> {
        MirrorPodsIter(self.snapshot.mirrors.iter())
    }
}

impl<'a, P: PodMeta> FullNames<'a, P> {
    /// Whether every mirror has a pod. O(mirror pods).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Iterates over the full names, each once.
    #[must_use]
    pub fn iter(&self) -> FullNamesIter<'a, P> {
        FullNamesIter { snapshot: self.snapshot, mirrors: self.snapshot.mirror_names.iter() }
    }
}

impl<'a, P: PodMeta> StaticPodsWithMirrors<'a, P> {
    /// Number of static pods. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.snapshot.static_pods.len()
    }

    /// Whether there are no static pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the static pods, each with the mirror that holds its full name.
    #[must_use]
    pub fn iter(&self) -> StaticPodsWithMirrorsIter<'a, P> {
        StaticPodsWithMirrorsIter { snapshot: self.snapshot, static_pods: self.snapshot.static_pods().iter() }
    }
}

impl<'a, P: PodMeta> UidTranslations<'a, P> {
    /// Like [`mirror_to_pod`](Self::mirror_to_pod).
    #[must_use]
    pub fn iter(&self) -> MirrorToPodIter<'a, P> {
        self.mirror_to_pod()
    }

    /// Every mirror that translates, with the UID it translates to.
    ///
    /// # Complexity
    /// O(mirror pods) to iterate; no allocation for UIDs in a usual spelling.
    #[must_use]
    pub fn mirror_to_pod(&self) -> MirrorToPodIter<'a, P> {
        MirrorToPodIter { snapshot: self.snapshot, mirrors: self.snapshot.mirrors.iter() }
    }

    /// Every static pod, and every other UID that a mirror translates to, with the mirror's UID. A static pod
    /// without a mirror has `None`. If several mirrors have one full name, the one that holds it is used.
    ///
    /// # Complexity
    /// O(static pods + mirror pods) to iterate, with one lookup per static pod; no allocation for UIDs in a
    /// usual spelling.
    pub fn pod_to_mirror(&self) -> impl Iterator<Item = (PodUid, Option<MirrorPodUid>)> + use<'a, P> {
        let snapshot = self.snapshot;
        let mirrored = snapshot.mirrors.iter().filter_map(|mirror| {
            let target = mirror.value.target.uid()?;
            Some((target.clone(), Some(mirror.value.pod.uid().into())))
        });
        let unmirrored = snapshot
            .static_pods()
            .iter()
            .filter(|pod| snapshot.mirror_of_holder(pod).is_none())
            .map(|pod| (pod.uid().into(), None));
        mirrored.chain(unmirrored)
    }

    /// The static pod's UID to which this mirror UID translates, if it does.
    ///
    /// # Complexity
    /// O(1) expected; no allocation.
    pub fn pod_uid<'u>(&self, mirror: impl Into<UidRef<'u>>) -> Option<PodUid> {
        let mirror = self.snapshot.by_uid(&self.snapshot.mirrors, mirror.into())?;
        self.snapshot.target_of(&mirror.value).cloned()
    }

    /// The UID of the mirror that translates to this pod UID, if there is one.
    ///
    /// # Complexity
    /// O(1) expected, O(log n) for a removed pod; no allocation for UIDs in a usual spelling.
    pub fn mirror_pod_uid<'u>(&self, pod: impl Into<UidRef<'u>>) -> Option<MirrorPodUid> {
        let (uid, snapshot) = (pod.into(), self.snapshot);
        let mirror = match snapshot.pod_by_uid(uid) {
            Some(pod) => snapshot.mirror_of_holder(pod)?,
            None if snapshot.history.tombstones.is_empty() => return None,
            None => {
                let full_name = snapshot.history.tombstones.get(&PodUid::from(uid))?;
                snapshot.mirror_pod_by_full_name(full_name.as_str())?
            }
        };
        Some(mirror.uid().into())
    }
}

impl<P: PodMeta> Snapshot<P> {
    /// The mirror of `pod`, if `pod` holds its full name.
    fn mirror_of_holder(&self, pod: &Arc<P>) -> Option<&Arc<P>> {
        let holder = self.by_name(PodKind::Pod, pod.name(), pod.namespace())?;
        Arc::ptr_eq(holder, pod).then_some(self.mirror_pod_by_pod(pod))?
    }
}
