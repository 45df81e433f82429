//! Writer and reader behind one handle, for callers that are written against the kubelet's pod manager.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::error::Error;
use crate::follow::{Changes, PodKey, WaitError};
use crate::id::{ResolvedPodUid, UidRef};
use crate::pod::PodMeta;
use crate::reader::{Guard, OwnedSnapshot, Reader};
use crate::sync::{self, Mutex};
use crate::update::Upserted;
use crate::writer::{Applied, Operation, Writer};

/// A [`Writer`] and a [`Reader`] behind one handle that can be cloned and shared.
///
/// Writers wait for each other on a mutex; readers wait for nobody, not even for a writer that is at work. What a write
/// runs of the caller's (an iterator it is given, the `Drop` of a pod it frees) must not write to the same index: it would
/// wait for itself. Prefer
/// [`new`](crate::new) where one thread does all the writing: that is then a fact of the types.
///
/// # Examples
/// ```
/// # struct Slim;
/// # impl pod_index::PodMeta for Slim {
/// #     fn uid(&self) -> &str { "u1" }
/// #     fn name(&self) -> &str { "web" }
/// #     fn namespace(&self) -> &str { "default" }
/// #     fn annotation(&self, _: &str) -> Option<&str> { None }
/// # }
/// let manager = pod_index::PodManager::new();
/// manager.add_pod(Slim)?;
/// assert!(manager.pod_by_uid("u1").is_some());
/// assert_eq!(manager.load().pods().len(), 1);
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// Kubelet: `Manager`, made by `NewBasicPodManager` (`pkg/kubelet/pod/pod_manager.go`).
#[doc(alias = "NewBasicPodManager")]
#[doc(alias = "Manager")]
pub struct PodManager<P> {
    writer: sync::Arc<Mutex<Writer<P>>>,
    reader: Reader<P>,
    /// What the writer said last of its retire queue.
    retired: Arc<AtomicUsize>,
}

impl<P: PodMeta> PodManager<P> {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        let (writer, reader) = crate::new();
        Self { writer: sync::Arc::new(Mutex::new(writer)), reader, retired: Arc::default() }
    }

    /// A reader of this index; see there for the handles it gives.
    #[must_use]
    pub fn reader(&self) -> &Reader<P> {
        &self.reader
    }

    /// The current snapshot; as [`Reader::load`].
    #[must_use]
    pub fn load(&self) -> Guard<P> {
        self.reader.load()
    }

    /// The current snapshot, to keep; as [`Reader::snapshot`].
    #[must_use]
    pub fn snapshot(&self) -> OwnedSnapshot<P> {
        self.reader.snapshot()
    }

    /// A subscriber; as [`Reader::changes`]. The writer is gone when the last clone of the manager is.
    #[must_use]
    pub fn changes(&self) -> Changes<P> {
        self.reader.changes()
    }

    /// As [`Reader::wait_for`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_for<'k>(&self, key: impl Into<PodKey<'k>>, deadline: Instant) -> Result<Arc<P>, WaitError> {
        self.reader.wait_for(key, deadline)
    }

    /// As [`Reader::wait_for_async`].
    pub async fn wait_for_async<'k>(&self, key: impl Into<PodKey<'k>>) -> Option<Arc<P>> {
        self.reader.wait_for_async(key).await
    }

    /// As [`Writer::add_pod`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "AddPod")]
    pub fn add_pod(&self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        self.write(|writer| writer.add_pod(pod))
    }

    /// As [`Writer::update_pod`].
    ///
    /// # Errors
    /// As there.
    #[doc(alias = "UpdatePod")]
    pub fn update_pod(&self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        self.write(|writer| writer.update_pod(pod))
    }

    /// As [`Writer::remove_pod`].
    #[doc(alias = "RemovePod")]
    #[doc(alias = "DeletePod")]
    pub fn remove_pod(&self, pod: &P) -> Option<Arc<P>> {
        self.write(|writer| writer.remove_pod(pod))
    }

    /// As [`Writer::remove_pod_by_uid`].
    pub fn remove_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        self.write(|writer| writer.remove_pod_by_uid(uid))
    }

    /// As [`Writer::set_pods`].
    #[doc(alias = "SetPods")]
    pub fn set_pods(&self, pods: impl IntoIterator<Item = impl Into<Arc<P>>>) -> Applied {
        self.write(|writer| writer.set_pods(pods))
    }

    /// As [`Writer::apply`].
    pub fn apply(&self, batch: impl IntoIterator<Item = Operation<P>>) -> Applied {
        self.write(|writer| writer.apply(batch))
    }

    /// As [`Writer::reclaim`].
    #[must_use = "the number left tells whether readers hold on to old snapshots"]
    pub fn reclaim(&self) -> usize {
        self.write(Writer::reclaim)
    }

    /// As [`Writer::retired_snapshots`].
    #[must_use]
    pub fn retired_snapshots(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }

    /// As [`Snapshot::pod_by_uid`](crate::Snapshot::pod_by_uid).
    #[must_use]
    #[doc(alias = "GetPodByUID")]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        self.reader.pod_by_uid(uid)
    }

    /// As [`Snapshot::mirror_pod_by_uid`](crate::Snapshot::mirror_pod_by_uid).
    #[must_use]
    pub fn mirror_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        self.reader.mirror_pod_by_uid(uid)
    }

    /// As [`Snapshot::pod_by_full_name`](crate::Snapshot::pod_by_full_name).
    #[must_use]
    #[doc(alias = "GetPodByFullName")]
    pub fn pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Arc<P>> {
        self.reader.pod_by_full_name(full_name)
    }

    /// As [`Snapshot::mirror_pod_by_full_name`](crate::Snapshot::mirror_pod_by_full_name).
    #[must_use]
    pub fn mirror_pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Arc<P>> {
        self.reader.mirror_pod_by_full_name(full_name)
    }

    /// As [`Snapshot::pod_by_name`](crate::Snapshot::pod_by_name).
    #[must_use]
    #[doc(alias = "GetPodByName")]
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<Arc<P>> {
        self.reader.pod_by_name(namespace, name)
    }

    /// As [`Snapshot::pod_by_mirror_pod`](crate::Snapshot::pod_by_mirror_pod).
    #[must_use]
    #[doc(alias = "GetPodByMirrorPod")]
    pub fn pod_by_mirror_pod(&self, mirror: &P) -> Option<Arc<P>> {
        self.reader.pod_by_mirror_pod(mirror)
    }

    /// As [`Snapshot::mirror_pod_by_pod`](crate::Snapshot::mirror_pod_by_pod).
    #[must_use]
    #[doc(alias = "GetMirrorPodByPod")]
    pub fn mirror_pod_by_pod(&self, pod: &P) -> Option<Arc<P>> {
        self.reader.mirror_pod_by_pod(pod)
    }

    /// As [`Snapshot::translate_pod_uid`](crate::Snapshot::translate_pod_uid).
    #[must_use]
    #[doc(alias = "TranslatePodUID")]
    pub fn translate_pod_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> ResolvedPodUid {
        self.reader.translate_pod_uid(uid)
    }

    fn write<R>(&self, write: impl FnOnce(&mut Writer<P>) -> R) -> R {
        // A write may have panicked in code of the caller's (an iterator, a pod's methods). It was published either as a
        // whole or not at all, and the writer can go on.
        let mut writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let result = write(&mut writer);
        self.retired.store(writer.retired_snapshots(), Ordering::Relaxed);
        result
    }
}

impl<P: PodMeta> Default for PodManager<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Clone for PodManager<P> {
    fn clone(&self) -> Self {
        let Self { writer, reader, retired } = self;
        Self { writer: sync::Arc::clone(writer), reader: reader.clone(), retired: Arc::clone(retired) }
    }
}

impl<P: PodMeta> fmt::Debug for PodManager<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PodManager").field(&*self.load()).finish()
    }
}
