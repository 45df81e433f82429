//! Those that read: three ways to hold a snapshot, and what each costs.
//!
//! This module knows how long a snapshot is held. What can be asked of it is `snapshot`'s.

use std::fmt;
use std::ops::Deref;

use crate::id::{ResolvedPodUid, UidRef};
use crate::pod::PodMeta;
use crate::snapshot::Snapshot;
use crate::sync::{self, Published};
use crate::versions::Version;
use crate::wake::Wake;

/// A handle to read an index by, from any thread; clone it freely.
///
/// | handle | for | cost |
/// |---|---|---|
/// | [`cached`](Self::cached) | a thread that looks up all the time | one relaxed atomic load a look-up |
/// | [`load`](Self::load) | one piece of work now and then | some ten nanoseconds; keep the guard short |
/// | [`snapshot`](Self::snapshot) | keeping, or holding across an `await` | a shared reference count |
///
/// # Consistency
/// Reads never block and never wait for the writer. This is a cache and may be stale. What one handle shows never goes
/// back: generations only grow.
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
/// let (mut writer, reader) = pod_index::new();
/// writer.add_pod(Slim)?;
///
/// let mut cached = reader.cached();
/// std::thread::spawn(move || assert!(cached.pod_by_uid("u1").is_some())).join().unwrap();
/// # Ok::<(), pod_index::Error>(())
/// ```
pub struct Reader<P> {
    published: Published<Version<P>>,
    wake: std::sync::Arc<Wake>,
}

impl<P> Reader<P> {
    pub(crate) fn new(published: Published<Version<P>>, wake: std::sync::Arc<Wake>) -> Self {
        Self { published, wake }
    }

    pub(crate) fn wake(&self) -> &std::sync::Arc<Wake> {
        &self.wake
    }

    /// Whether the writer is still there. If not, the current snapshot is the last one.
    ///
    /// To be woken when the writer goes, use [`changes`](Self::changes).
    ///
    /// # Complexity
    /// O(1): one atomic load.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        !self.wake.look().writer_is_gone()
    }

    /// The current snapshot, for one piece of work.
    ///
    /// # Consistency
    /// While the guard lives, what it shows stays as it is.
    ///
    /// # Complexity
    /// O(1), no allocation, no shared reference count. Lock-free always and wait-free in practice: arc-swap keeps a few
    /// slots for each thread, and falls back to a reference count for a thread that holds more guards than that (eight)
    /// at once.
    ///
    /// # Examples
    /// ```
    /// # fn f<P: pod_index::PodMeta>(reader: &pod_index::Reader<P>) {
    /// let snapshot = reader.load();
    /// let pods = snapshot.pods().len();
    /// let mirrors = snapshot.mirror_pods().len(); // of the very same moment
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn load(&self) -> Guard<P> {
        Guard(self.published.load())
    }

    /// The current snapshot, to keep or to hold across an `await`.
    ///
    /// # Complexity
    /// O(1), no allocation; one shared reference count, so not for a hot path that many threads share.
    #[must_use]
    pub fn snapshot(&self) -> OwnedSnapshot<P> {
        OwnedSnapshot(self.published.load_full())
    }

    /// A handle for one thread that remembers the snapshot it saw last.
    ///
    /// # Complexity
    /// As [`snapshot`](Self::snapshot), once; see [`CachedReader`] for its look-ups.
    #[must_use]
    pub fn cached(&self) -> CachedReader<P> {
        CachedReader { cached: self.published.cached() }
    }
}

/// Look-ups for a caller that wants one answer to keep.
///
/// # Consistency
/// Each call answers from the snapshot that is current when it is made, and two calls may see two; for more than one answer,
/// [`load`](Self::load) one.
///
/// # Complexity
/// As the method of [`Snapshot`] and a [`load`](Self::load), and, to keep the pod, its shared reference count: not for a hot
/// path on which many threads look up the same pods. No allocation, but where the method of [`Snapshot`] has one.
impl<P: PodMeta> Reader<P> {
    /// As [`Snapshot::pod_by_uid`].
    #[must_use]
    pub fn pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<std::sync::Arc<P>> {
        self.load().pod_by_uid(uid).cloned()
    }

    /// As [`Snapshot::mirror_pod_by_uid`].
    #[must_use]
    pub fn mirror_pod_by_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> Option<std::sync::Arc<P>> {
        self.load().mirror_pod_by_uid(uid).cloned()
    }

    /// As [`Snapshot::pod_by_full_name`].
    #[must_use]
    pub fn pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<std::sync::Arc<P>> {
        self.load().pod_by_full_name(full_name).cloned()
    }

    /// As [`Snapshot::mirror_pod_by_full_name`].
    #[must_use]
    pub fn mirror_pod_by_full_name(&self, full_name: impl AsRef<str>) -> Option<std::sync::Arc<P>> {
        self.load().mirror_pod_by_full_name(full_name).cloned()
    }

    /// As [`Snapshot::pod_by_name`].
    #[must_use]
    pub fn pod_by_name(&self, namespace: &str, name: &str) -> Option<std::sync::Arc<P>> {
        self.load().pod_by_name(namespace, name).cloned()
    }

    /// As [`Snapshot::pod_by_mirror_pod`].
    #[must_use]
    pub fn pod_by_mirror_pod(&self, mirror: &P) -> Option<std::sync::Arc<P>> {
        self.load().pod_by_mirror_pod(mirror).cloned()
    }

    /// As [`Snapshot::mirror_pod_by_pod`].
    #[must_use]
    pub fn mirror_pod_by_pod(&self, pod: &P) -> Option<std::sync::Arc<P>> {
        self.load().mirror_pod_by_pod(pod).cloned()
    }

    /// As [`Snapshot::translate_pod_uid`].
    #[must_use]
    pub fn translate_pod_uid<'u>(&self, uid: impl Into<UidRef<'u>>) -> ResolvedPodUid {
        self.load().translate_pod_uid(uid)
    }
}

/// The current snapshot, borrowed for one piece of work. See [`Reader::load`].
///
/// Dropping it frees nothing, however long it was held: replaced snapshots are the writer's to free. Only a guard that
/// outlives every handle of its index frees what it shows.
pub struct Guard<P>(sync::Guard<Version<P>>);

impl<P> Deref for Guard<P> {
    type Target = Snapshot<P>;

    #[inline]
    fn deref(&self) -> &Snapshot<P> {
        &self.0
    }
}

/// A snapshot to keep, or to hold across an `await`. See [`Reader::snapshot`].
///
/// Cloning and dropping one counts a shared reference, allocates nothing and frees nothing; only the last handle of an
/// index that has no writer any more frees what is left.
pub struct OwnedSnapshot<P>(sync::Arc<Version<P>>);

#[cfg(not(any(loom, shuttle)))]
impl<P> OwnedSnapshot<P> {
    /// How many references the snapshot has right now. For tests: what each handle counts is not promised.
    #[doc(hidden)]
    #[must_use]
    pub fn reference_count(&self) -> usize {
        sync::Arc::strong_count(&self.0)
    }
}

impl<P> Deref for OwnedSnapshot<P> {
    type Target = Snapshot<P>;

    #[inline]
    fn deref(&self) -> &Snapshot<P> {
        &self.0
    }
}

impl<P> Clone for OwnedSnapshot<P> {
    fn clone(&self) -> Self {
        Self(sync::Arc::clone(&self.0))
    }
}

impl<P: PodMeta> fmt::Debug for OwnedSnapshot<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A reader for one thread that looks up all the time.
///
/// It remembers the snapshot it saw last; each look-up asks, with one relaxed atomic load, whether that is still the
/// current one, and writes to nothing that another thread reads. Give each thread its own.
///
/// Two answers at once need one snapshot: borrow it with [`load`](Self::load), and ask that.
///
/// An idle one goes on holding the snapshot it saw last, and with it the memory of that state. Drop it, or
/// [`refresh`](Self::refresh) it now and then.
///
/// # Examples
/// ```
/// # fn f<P: pod_index::PodMeta + Send + Sync + 'static>(reader: &pod_index::Reader<P>) {
/// for _ in 0..4 {
///     let mut cached = reader.cached();
///     std::thread::spawn(move || {
///         if let Some(pod) = cached.pod_by_name("default", "web") {
///             println!("{}", pod.uid());
///         }
///     });
/// }
/// # }
/// ```
pub struct CachedReader<P> {
    cached: sync::Cached<Version<P>>,
}

impl<P> CachedReader<P> {
    /// The current snapshot.
    ///
    /// # Consistency
    /// The borrowed snapshot does not change until the next call.
    ///
    /// # Complexity
    /// One relaxed atomic load; as [`Reader::snapshot`] when there is a new one.
    #[inline]
    pub fn load(&mut self) -> &Snapshot<P> {
        self.cached.load()
    }

    /// Lets go of a snapshot that is no longer the current one.
    pub fn refresh(&mut self) {
        self.cached.load();
    }
}

impl<P: PodMeta> CachedReader<P> {
    /// As [`Snapshot::pod_by_uid`], on the current snapshot.
    #[inline]
    pub fn pod_by_uid<'u>(&mut self, uid: impl Into<UidRef<'u>>) -> Option<&std::sync::Arc<P>> {
        self.load().pod_by_uid(uid)
    }

    /// As [`Snapshot::mirror_pod_by_uid`], on the current snapshot.
    #[inline]
    pub fn mirror_pod_by_uid<'u>(&mut self, uid: impl Into<UidRef<'u>>) -> Option<&std::sync::Arc<P>> {
        self.load().mirror_pod_by_uid(uid)
    }

    /// As [`Snapshot::pod_by_full_name`], on the current snapshot.
    #[inline]
    pub fn pod_by_full_name(&mut self, full_name: impl AsRef<str>) -> Option<&std::sync::Arc<P>> {
        self.load().pod_by_full_name(full_name)
    }

    /// As [`Snapshot::mirror_pod_by_full_name`], on the current snapshot.
    #[inline]
    pub fn mirror_pod_by_full_name(&mut self, full_name: impl AsRef<str>) -> Option<&std::sync::Arc<P>> {
        self.load().mirror_pod_by_full_name(full_name)
    }

    /// As [`Snapshot::pod_by_name`], on the current snapshot.
    #[inline]
    pub fn pod_by_name(&mut self, namespace: &str, name: &str) -> Option<&std::sync::Arc<P>> {
        self.load().pod_by_name(namespace, name)
    }

    /// As [`Snapshot::pod_by_mirror_pod`], on the current snapshot.
    #[inline]
    pub fn pod_by_mirror_pod(&mut self, mirror: &P) -> Option<&std::sync::Arc<P>> {
        self.load().pod_by_mirror_pod(mirror)
    }

    /// As [`Snapshot::mirror_pod_by_pod`], on the current snapshot.
    #[inline]
    pub fn mirror_pod_by_pod(&mut self, pod: &P) -> Option<&std::sync::Arc<P>> {
        self.load().mirror_pod_by_pod(pod)
    }

    /// As [`Snapshot::translate_pod_uid`], on the current snapshot.
    #[inline]
    pub fn translate_pod_uid<'u>(&mut self, uid: impl Into<UidRef<'u>>) -> ResolvedPodUid {
        self.load().translate_pod_uid(uid)
    }
}

impl<P> Clone for Reader<P> {
    fn clone(&self) -> Self {
        Self { published: self.published.clone(), wake: std::sync::Arc::clone(&self.wake) }
    }
}

impl<P> Clone for CachedReader<P> {
    fn clone(&self) -> Self {
        Self { cached: self.cached.clone() }
    }
}

impl<P: PodMeta> fmt::Debug for Reader<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&*self.load()).finish()
    }
}

impl<P: PodMeta> fmt::Debug for Guard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<P> fmt::Debug for CachedReader<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedReader").finish_non_exhaustive()
    }
}
