//! The one that writes: makes the next snapshot, publishes it, and frees the ones before.
//!
//! This module knows when to publish and when to free. How a snapshot comes about is `update`'s.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::id::{PodUid, UidRef};
use crate::pod::PodMeta;
use crate::snapshot::Snapshot;
use crate::update::Upserted;
use crate::versions::{Draft, Versions};
use crate::wake::Herald;

/// How many retired snapshots a publication looks at. More than one, so that the queue shrinks after a time in which
/// readers held many; few, so that a thousand idle readers do not make each publication slow.
const RECLAIM_PER_PUBLICATION: usize = 4;

/// The only way to change an index.
///
/// There is one per index: it is not `Clone`, and its methods take `&mut self`. Put it on a thread of its own behind a
/// channel, or share it as a [`PodManager`](crate::PodManager).
///
/// # Freeing
/// A snapshot that was replaced goes into the writer's retire queue and is freed, by the writer, once no reader holds it:
/// every publication looks at the oldest few. An idle writer frees nothing, so call [`reclaim`](Self::reclaim) now and
/// then. When the writer is dropped, what readers still hold is kept until the last handle of the index goes.
///
/// Pages that were freed are used again: the writer keeps up to two mebibytes of them.
///
/// # Examples
/// ```
/// # struct Slim(&'static str, &'static str);
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { self.0 }
/// #     fn name(&self) -> &str { self.1 }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// let (mut writer, reader) = pod_index::new();
/// writer.add_pod(Slim("u1", "web"))?;
/// writer.update_pod(Slim("u1", "web"))?;
/// assert_eq!(reader.load().generation(), 2);
/// writer.remove_pod_by_uid("u1");
/// assert!(reader.load().pods().is_empty());
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// A writer cannot be cloned:
/// ```compile_fail
/// fn assert_clone<T: Clone>() {}
/// # struct Slim;
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { "" }
/// #     fn name(&self) -> &str { "" }
/// #     fn namespace(&self) -> &str { "" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// assert_clone::<pod_index::Writer<Slim>>();
/// ```
pub struct Writer<P> {
    versions: Versions<P>,
    /// Tells followers that the writer is gone, when it is dropped.
    herald: Herald,
}

/// One write of a batch; see [`Writer::apply`].
pub enum Operation<P> {
    /// As [`Writer::set_pods`].
    Set(Vec<Arc<P>>),
    /// As [`Writer::add_pod`].
    Add(Arc<P>),
    /// As [`Writer::update_pod`].
    Update(Arc<P>),
    /// As [`Writer::remove_pod_by_uid`].
    Remove(PodUid),
}

/// What became of a [`Writer::set_pods`] or a [`Writer::apply`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "some pods may have been refused"]
pub struct Applied {
    /// The generation of the snapshot that holds the result.
    pub generation: u64,
    /// Whether that snapshot was published by this write. A write that changes nothing publishes nothing, also if what it
    /// does cancels out. To add the very object that is stored again is a change only if another pod holds its name.
    pub published: bool,
    /// The pods that were refused. All others were applied.
    pub refused: Vec<Refused>,
}

/// A pod that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refused {
    /// Which operation of the batch it was in, from 0.
    pub operation: usize,
    /// Which pod of that operation it was, from 0; always 0 but for a set.
    pub position: usize,
    /// Why.
    pub error: Error,
}

impl<P: PodMeta> Writer<P> {
    pub(crate) fn new(versions: Versions<P>, herald: Herald) -> Self {
        Self { versions, herald }
    }

    /// The snapshot published last.
    #[must_use]
    pub fn current(&self) -> &Snapshot<P> {
        self.versions.current()
    }

    /// Stores a pod under its UID, in place of the stored one, if any, and publishes.
    ///
    /// `add_pod` and [`update_pod`](Self::update_pod) do the same, as in the kubelet: an unknown UID is added, a known one
    /// is replaced, and neither is an error. The returned [`Upserted`] says which it was. Use the name that reads better.
    ///
    /// A stored pod that has another full name, or was a mirror where the new one is not (or the other way round), loses
    /// its old entries in the same step. If the very object is stored already, nothing is published.
    ///
    /// A pod that carries [`CONFIG_MIRROR_ANNOTATION`](crate::CONFIG_MIRROR_ANNOTATION) is filed as a mirror pod.
    ///
    /// # Errors
    /// If the UID, the name or the namespace is empty, or if name or namespace contain `_`. The index is unchanged and
    /// nothing is published.
    ///
    /// # Complexity
    /// O(log n) and a few allocations.
    ///
    /// Kubelet: `AddPod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "AddPod")]
    pub fn add_pod(&mut self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        self.update_pod(pod)
    }

    /// Stores a pod under its UID, in place of the stored one, if any, and publishes. The same as
    /// [`add_pod`](Self::add_pod): an unknown UID is no error and is added.
    ///
    /// # Errors
    /// As [`add_pod`](Self::add_pod).
    ///
    /// # Complexity
    /// O(log n) and a few allocations.
    ///
    /// Kubelet: `UpdatePod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "UpdatePod")]
    pub fn update_pod(&mut self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        let mut draft = self.versions.draft();
        let upserted = draft.upsert(&pod.into())?;
        if !matches!(upserted, Upserted::Unchanged) {
            publish(draft, &self.herald);
            self.versions.reclaim_some(RECLAIM_PER_PUBLICATION);
        }
        Ok(upserted)
    }

    /// Removes the pod that is stored under the UID of `pod`, publishes, and returns what was stored.
    ///
    /// The stored object counts, however the given one differs. An unknown UID is no error: nothing is published and
    /// `None` returned.
    ///
    /// # Complexity
    /// O(log n) and a few allocations.
    ///
    /// Kubelet: `RemovePod`, until 1.27 `DeletePod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "RemovePod")]
    #[doc(alias = "DeletePod")]
    pub fn remove_pod(&mut self, pod: &P) -> Option<Arc<P>> {
        self.remove_pod_by_uid(pod.uid())
    }

    /// Removes the pod or mirror pod with this UID; otherwise as [`remove_pod`](Self::remove_pod).
    pub fn remove_pod_by_uid<'u>(&mut self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        let uid = uid.into();
        // A miss costs a look-up and no draft.
        self.current().any_by_uid(uid)?;
        let mut draft = self.versions.draft();
        let removed = draft.remove(uid)?;
        publish(draft, &self.herald);
        self.versions.reclaim_some(RECLAIM_PER_PUBLICATION);
        Some(removed)
    }

    /// Replaces everything by `pods` in one publication.
    ///
    /// The result is the same as that of adding them one by one, in their order, to an empty index. Pods that are refused
    /// are left out. If the very same objects are there already, nothing is published.
    ///
    /// # Consistency
    /// Readers see either all of the old set or all of the new one.
    ///
    /// # Complexity
    /// O(n). Freeing the old set, later, is O(n) as well, and is the writer's work, never a reader's.
    ///
    /// Kubelet: `SetPods` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "SetPods")]
    pub fn set_pods(&mut self, pods: impl IntoIterator<Item = impl Into<Arc<P>>>) -> Applied {
        let mut draft = self.versions.draft();
        let refused = draft.set(pods.into_iter().map(Into::into)).into_iter();
        let refused = refused.map(|(position, error)| Refused { operation: 0, position, error }).collect();
        let published = publish_if_it_differs(draft, &self.herald);
        self.applied(published, refused)
    }

    /// Applies any mix of operations, in their order, and publishes once.
    ///
    /// What is refused is reported and left out; the rest is applied. If nothing changes, nothing is published.
    ///
    /// # Consistency
    /// Readers see either nothing of the batch or all of it.
    ///
    /// # Complexity
    /// O(log n) for each changed pod. Operations on the same parts of the index share their copies, so a large batch costs
    /// less per pod than single writes.
    ///
    /// # Examples
    /// ```
    /// # struct Slim(&'static str);
    /// # impl pod_index::PodMeta for Slim {
    /// #     fn uid(&self) -> &str { self.0 }
    /// #     fn name(&self) -> &str { "web" }
    /// #     fn namespace(&self) -> &str { "default" }
    /// #     fn annotation(&self, _: &str) -> Option<&str> { None }
    /// # }
    /// use pod_index::Operation;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let applied = writer.apply([
    ///     Operation::Add(Slim("u1").into()),
    ///     Operation::Add(Slim("").into()),
    ///     Operation::Add(Slim("u2").into()),
    ///     Operation::Remove("u1".into()),
    /// ]);
    /// assert_eq!(applied.refused[0].operation, 1);
    /// assert_eq!(reader.load().pods().len(), 1);
    /// assert_eq!(reader.load().generation(), 1);
    /// ```
    pub fn apply(&mut self, batch: impl IntoIterator<Item = Operation<P>>) -> Applied {
        let mut draft = self.versions.draft();
        let mut refused = Vec::new();
        for (operation, change) in batch.into_iter().enumerate() {
            match change {
                Operation::Set(pods) => {
                    let errors = draft.set(pods).into_iter();
                    refused.extend(errors.map(|(position, error)| Refused { operation, position, error }));
                }
                Operation::Add(pod) | Operation::Update(pod) => {
                    if let Err(error) = draft.upsert(&pod) {
                        refused.push(Refused { operation, position: 0, error });
                    }
                }
                Operation::Remove(uid) => drop(draft.remove(uid.as_uid_ref())),
            }
        }
        let published = publish_if_it_differs(draft, &self.herald);
        self.applied(published, refused)
    }

    fn applied(&mut self, published: bool, refused: Vec<Refused>) -> Applied {
        if published {
            self.versions.reclaim_some(RECLAIM_PER_PUBLICATION);
        }
        Applied { generation: self.current().generation(), published, refused }
    }
}

/// Returns whether the draft was published.
fn publish_if_it_differs<P: PodMeta>(draft: Draft<'_, P>, herald: &Herald) -> bool {
    let differs = draft.differs();
    if differs {
        publish(draft, herald);
    }
    differs
}

fn publish<P>(draft: Draft<'_, P>, herald: &Herald) {
    let publication = herald.publication();
    draft.publish();
    // Wakes those who follow, before anything is freed.
    drop(publication);
}

impl<P> Writer<P> {
    /// Frees the replaced snapshots that no reader holds any more, and returns how many are left.
    ///
    /// # Complexity
    /// O(retired snapshots), and what it costs to drop the pods that only those held.
    pub fn reclaim(&mut self) -> usize {
        self.versions.reclaim_all();
        self.versions.retired()
    }

    /// How many replaced snapshots wait for readers to let go of them.
    ///
    /// After [`reclaim`](Self::reclaim) at most as many as there are guards, cached readers and kept snapshots alive;
    /// before, about a third more, because a publication looks at a few only. A number that grows shows a reader that
    /// holds on.
    #[must_use]
    pub fn retired_snapshots(&self) -> usize {
        self.versions.retired()
    }
}

// Not derived, because a derive would ask for `P: Clone`.
impl<P> Clone for Operation<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Set(pods) => Self::Set(pods.clone()),
            Self::Add(pod) => Self::Add(Arc::clone(pod)),
            Self::Update(pod) => Self::Update(Arc::clone(pod)),
            Self::Remove(uid) => Self::Remove(uid.clone()),
        }
    }
}

impl<P: PodMeta> fmt::Debug for Operation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(pods) => write!(f, "Set({} pods)", pods.len()),
            Self::Add(pod) => write!(f, "Add({})", pod.uid()),
            Self::Update(pod) => write!(f, "Update({})", pod.uid()),
            Self::Remove(uid) => write!(f, "Remove({uid})"),
        }
    }
}

impl<P: PodMeta> fmt::Debug for Writer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("current", self.versions.current())
            .field("retired_snapshots", &self.versions.retired())
            .finish_non_exhaustive()
    }
}
