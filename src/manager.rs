//! Writer and reader behind one handle, for callers written against the kubelet's pod manager.

use std::ops::Deref;
use std::sync::{Arc, PoisonError};

use crate::error::Error;
use crate::id::{ResolvedPodUid, UidRef};
use crate::options::Options;
use crate::pod::PodMeta;
use crate::reader::Reader;
use crate::table::sync::{self, Mutex};
use crate::update::Upserted;
use crate::writer::{Applied, Writer};

/// A [`Writer`] and a [`Reader`] behind one handle that can be cloned and shared: the kubelet's methods, those of the
/// reader, and [`write`](Self::write) for all others of the writer.
///
/// Writers wait for each other on a mutex. Readers never wait, not even for an active writer. Don't write to
/// the same index from an iterator passed to a write, from what [`write`](Self::write) calls, from a pod's `Drop` or from
/// a method of [`PodMeta`]: that deadlocks. If such code panics, the panic continues to the caller of the write. That write was
/// published as a whole or not at all, and the manager can be used as before. If one thread does all the writing, prefer [`new`](crate::new), which lets the types enforce that.
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// let manager = pod_index::PodManager::new();
/// manager.add_pod(SimplePod::new("u1", "default", "web"))?;
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
}

impl<P: PodMeta> PodManager<P> {
    /// An empty index; as [`new`](crate::new).
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(Options::new())
    }

    /// An empty index; as [`with_options`](crate::with_options).
    #[must_use]
    pub fn with_options(options: Options) -> Self {
        let (writer, reader) = crate::with_options(options);
        Self { writer: sync::Arc::new(Mutex::new(writer)), reader }
    }

    /// Calls any other method of the [`Writer`]. Returns its result.
    ///
    /// Don't replace the writer by that of another index: this manager's readers would not see its writes.
    pub fn write<R>(&self, write: impl FnOnce(&mut Writer<P>) -> R) -> R {
        // A write may have panicked in the caller's code (an iterator, a pod's methods). It was published
        // completely or not at all, so the writer can be used again.
        write(&mut self.writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a pod, whether it is new or not: [`Writer::upsert_pod`].
    ///
    /// # Errors
    /// Those of [`Writer::upsert_pod`].
    ///
    /// Kubelet: `AddPod` (`pkg/kubelet/pod/pod_manager.go`), which calls `UpdatePod`.
    #[doc(alias = "AddPod")]
    pub fn add_pod(&self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        self.update_pod(pod)
    }

    /// The same as [`add_pod`](Self::add_pod). The kubelet's interface has both names.
    ///
    /// # Errors
    /// Those of [`Writer::upsert_pod`].
    ///
    /// Kubelet: `UpdatePod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "UpdatePod")]
    pub fn update_pod(&self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        self.write(|writer| writer.upsert_pod(pod))
    }

    /// See [`Writer::remove_pod`].
    #[doc(alias = "RemovePod")]
    #[doc(alias = "DeletePod")]
    pub fn remove_pod(&self, pod: &P) -> Option<Arc<P>> {
        self.write(|writer| writer.remove_pod(pod))
    }

    /// See [`Writer::set_pods`].
    #[doc(alias = "SetPods")]
    pub fn set_pods(&self, pods: impl IntoIterator<Item = impl Into<Arc<P>>>) -> Applied {
        self.write(|writer| writer.set_pods(pods))
    }

    /// See [`Snapshot::pod_by_uid`](crate::Snapshot::pod_by_uid).
    #[must_use]
    #[doc(alias = "GetPodByUID")]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        self.load().pod_by_uid(uid).cloned()
    }

    /// See [`Snapshot::pod_by_full_name`](crate::Snapshot::pod_by_full_name).
    #[must_use]
    #[doc(alias = "GetPodByFullName")]
    pub fn pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<Arc<P>> {
        self.load().pod_by_full_name(full_name).cloned()
    }

    /// See [`Snapshot::pod_by_name`](crate::Snapshot::pod_by_name).
    #[must_use]
    #[doc(alias = "GetPodByName")]
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<Arc<P>> {
        self.load().pod_by_name(namespace, name).cloned()
    }

    /// See [`Snapshot::pod_by_mirror_pod`](crate::Snapshot::pod_by_mirror_pod).
    #[must_use]
    #[doc(alias = "GetPodByMirrorPod")]
    pub fn pod_by_mirror_pod(&self, mirror: &P) -> Option<Arc<P>> {
        self.load().pod_by_mirror_pod(mirror).cloned()
    }

    /// See [`Snapshot::mirror_pod_by_pod`](crate::Snapshot::mirror_pod_by_pod).
    #[must_use]
    #[doc(alias = "GetMirrorPodByPod")]
    pub fn mirror_pod_by_pod(&self, pod: &P) -> Option<Arc<P>> {
        self.load().mirror_pod_by_pod(pod).cloned()
    }

    /// See [`Snapshot::translate_pod_uid`](crate::Snapshot::translate_pod_uid).
    #[must_use]
    #[doc(alias = "TranslatePodUID")]
    pub fn translate_pod_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> ResolvedPodUid {
        self.load().translate_pod_uid(uid.into())
    }
}

/// The reader gives out all other handles, finds pods by any key, and is followed. Its writer is gone when the last clone of
/// the manager is dropped.
impl<P> Deref for PodManager<P> {
    type Target = Reader<P>;

    fn deref(&self) -> &Reader<P> {
        &self.reader
    }
}

impl<P: PodMeta> Default for PodManager<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Clone for PodManager<P> {
    fn clone(&self) -> Self {
        Self { writer: sync::Arc::clone(&self.writer), reader: self.reader.clone() }
    }
}

shown!(PodManager, |manager| current: *manager.load());
