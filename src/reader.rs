//! Readers: three ways to hold a snapshot, and their costs. (A fourth is to follow the index: `follow`.)
//!
//! This module decides how long a snapshot is held. `snapshot` answers queries. `docs::table` says what a held one keeps.

use std::ops::Deref;

use crate::pod::PodMeta;
use crate::pods::{Found, Key};
use crate::snapshot::Snapshot;
use crate::table::sync::{self, Published};
use crate::table::versions::Version;
use crate::table::wake::Wake;

/// Reads an index, from any thread. Clone it freely.
///
/// | handle | for | cost |
/// |---|---|---|
/// | [`cached`](Self::cached) | a thread with frequent lookups | one relaxed atomic load per lookup |
/// | [`load`](Self::load) | an occasional piece of work | some ten nanoseconds; keep the guard short |
/// | [`snapshot`](Self::snapshot) | keeping, or holding across an `await` | a shared reference count |
///
/// # Consistency
/// Reads never block and never wait for the writer. This is a cache and may be stale. One handle never goes
/// back in time: generations only grow.
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// let (mut writer, reader) = pod_index::new();
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
///
/// let mut cached = reader.cached();
/// std::thread::spawn(move || assert!(cached.get("u1").is_some())).join().unwrap();
/// # Ok::<(), pod_index::Error>(())
/// ```
pub struct Reader<P> {
    pub(crate) published: Published<Version<Snapshot<P>>>,
    pub(crate) wake: std::sync::Arc<Wake>,
}

impl<P> Reader<P> {
    /// Whether the writer still exists. If not, the current snapshot is the last one.
    ///
    /// To be woken when the writer is dropped, use [`changes`](Self::changes).
    ///
    /// # Complexity
    /// O(1): one atomic load.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.wake.has_writer()
    }

    /// The current snapshot, for one piece of work.
    ///
    /// # Consistency
    /// The snapshot does not change while the guard lives.
    ///
    /// # Complexity
    /// O(1), no allocation, no shared reference count. Always lock-free, and wait-free in practice: arc-swap
    /// keeps eight slots per thread, and uses a reference count for a thread that holds more guards at once.
    /// Exception: a thread's first load may allocate its slots; later threads reuse them.
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
    /// O(1), no allocation except as with [`load`](Self::load). Increments a shared reference count, so avoid it on a hot
    /// path that many threads share.
    ///
    /// # Examples
    /// ```
    /// use pod_index::SimplePod;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// writer.upsert_pod(SimplePod::new("u1", "shop", "web"))?;
    /// let before = reader.snapshot();
    /// writer.remove_pod_by_uid("u1");
    /// assert_eq!((before.pods().len(), reader.load().pods().len()), (1, 0)); // it stays as it was
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> OwnedSnapshot<P> {
        OwnedSnapshot(self.published.load_full())
    }

    /// A handle for one thread that caches the last snapshot.
    ///
    /// # Complexity
    /// That of [`snapshot`](Self::snapshot), once. See [`CachedReader`] for its lookups.
    #[must_use]
    pub fn cached(&self) -> CachedReader<P> {
        CachedReader { cached: self.published.cached() }
    }
}

impl<P: PodMeta> Reader<P> {
    /// The current pod with this key, to keep: the pod of [`Snapshot::get`], without by what it was found. For that, or for
    /// several results of one moment, [`load`](Self::load) a snapshot.
    ///
    /// # Complexity
    /// That of [`Snapshot::get`], a [`load`](Self::load), and the pod's shared reference count: avoid it on a hot path on
    /// which many threads look up the same pods.
    ///
    /// # Examples
    /// ```
    /// use pod_index::SimplePod;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// writer.upsert_pod(SimplePod::new("u1", "shop", "web"))?;
    /// let pod = reader.pod(("shop", "web")).expect("it was published");
    /// writer.remove_pod_by_uid("u1");
    /// assert_eq!(pod.uid, "u1"); // it is ours
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    #[must_use]
    pub fn pod<'k>(&self, key: impl Into<Key<'k>>) -> Option<std::sync::Arc<P>> {
        self.load().get(key).map(|found| found.pod.clone())
    }
}

/// The current snapshot, borrowed for one piece of work.
///
/// # Examples
/// See [`Reader::load`].
///
/// Dropping it frees nothing, however long it was held: the writer frees replaced snapshots. Exception: a
/// guard that outlives all other handles of its index frees what is left of the index. One that outlives a publication is counted
/// from then on, and occupies no slot of its thread. So holding it for long costs what it costs to
/// hold an [`OwnedSnapshot`](OwnedSnapshot#what-it-costs-to-hold-one).
pub struct Guard<P>(sync::Guard<Version<Snapshot<P>>>);

impl<P> Deref for Guard<P> {
    type Target = Snapshot<P>;

    #[inline]
    fn deref(&self) -> &Snapshot<P> {
        &self.0
    }
}

/// A snapshot to keep, or to hold across an `await`.
///
/// Cloning or dropping one changes a shared reference count, allocates nothing and frees nothing. Exception:
/// the last handle, after the writer is gone, frees what is left.
///
/// # What it costs to hold one
/// Memory, while it is held: what this snapshot has and the current one has no longer. That grows with each pod that is replaced,
/// and is at most all of its pods and their index once more, however many snapshots come meanwhile.
///
/// Time, when it is let go: not of the reader, but of the writer. [`reclaim`](crate::Writer::reclaim), or the publication that checks
/// this snapshot, frees all of that in one go, and calls the `Drop` of each pod that only this snapshot had. (A publication checks four
/// replaced snapshots in turn: usually that is the next one, and if many are held a later one.)
/// So if 100,000 pods were replaced during an hour, one write drops 100,000 pods before it returns. Readers have its result
/// by then: freeing comes last.
///
/// [`Writer::oldest_retired`](crate::Writer::oldest_retired) shows that a snapshot is held for long.
/// [A held version, step by step](crate::docs::table#a-held-version-step-by-step) has an example, what is kept and freed when, and what
/// each handle holds.
///
/// # Examples
/// See [`Reader::snapshot`].
pub struct OwnedSnapshot<P>(sync::Arc<Version<Snapshot<P>>>);

#[cfg(not(any(pod_index_loom, pod_index_shuttle)))]
impl<P> OwnedSnapshot<P> {
    /// The number of references to the snapshot. For tests only: what each handle counts is not a guarantee.
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

/// A reader for one thread with frequent lookups.
///
/// It caches the last snapshot. Each lookup checks, with one relaxed atomic load, whether that is still
/// current, and writes to no memory that other threads read. Exception: the first lookup after a publication changes a
/// shared reference count. Give each thread its own.
///
/// For two consistent lookups, borrow a snapshot with [`load`](Self::load) and use that.
///
/// An idle one still holds its last snapshot, which costs what it costs to hold an
/// [`OwnedSnapshot`](OwnedSnapshot#what-it-costs-to-hold-one). Drop it, or call [`refresh`](Self::refresh) now and then.
///
/// # Examples
/// ```
/// # fn f<P: pod_index::PodMeta + Send + Sync + 'static>(reader: &pod_index::Reader<P>) {
/// for _ in 0..4 {
///     let mut cached = reader.cached();
///     std::thread::spawn(move || {
///         if let Some(found) = cached.get(("default", "web")) {
///             println!("{}", found.pod.uid());
///         }
///     });
/// }
/// # }
/// ```
pub struct CachedReader<P> {
    cached: sync::Cached<Version<Snapshot<P>>>,
}

impl<P> CachedReader<P> {
    /// The current snapshot.
    ///
    /// # Consistency
    /// The borrowed snapshot does not change until the next call.
    ///
    /// # Complexity
    /// One relaxed atomic load. If there is a new snapshot, that of [`Reader::snapshot`].
    #[inline]
    pub fn load(&mut self) -> &Snapshot<P> {
        self.cached.load()
    }

    /// Releases a snapshot that is no longer current.
    pub fn refresh(&mut self) {
        self.cached.load();
    }
}

impl<P: PodMeta> CachedReader<P> {
    /// [`Snapshot::get`] on the current snapshot.
    #[inline]
    pub fn get<'k>(&mut self, key: impl Into<Key<'k>>) -> Option<Found<'_, P>> {
        self.load().get(key)
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

shown!(Reader, |reader| current: *reader.load());
shown!(Guard, |guard| snapshot: **guard);
shown!(OwnedSnapshot, |it| snapshot: **it);
shown!(CachedReader, |_it| );
