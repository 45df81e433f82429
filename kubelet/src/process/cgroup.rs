//! From a cgroup ID to the pod.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;

use super::Placement;
use super::clock::Clock;
use super::error::{ResolveError, ResolveErrorKind};
use super::walk::{Limits, Walk};

/// How often events are read while all lookups find what they ask for.
const BETWEEN_READS: Duration = Duration::from_millis(100);
/// A scan is followed by at least this many times its duration without one.
const REST: u32 = 20;
/// Events that are read at once. The kernel's queue holds 16,384 by default.
const MOST_EVENTS: usize = 32 * 1024;
/// Bytes of events that are read at once.
const BUFFER: usize = 16 * 1024;

/// Options of a [`CgroupResolver`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use pod_index_kubelet::process::CgroupOptions;
///
/// let options = CgroupOptions::default().max_cgroups(1_000).keep_removed(Duration::ZERO);
/// # drop(options);
/// ```
#[must_use = "options do nothing by themselves"]
pub struct CgroupOptions {
    limits: Limits,
    keep_removed: Duration,
    rescan: Duration,
    clock: Clock,
}

impl Default for CgroupOptions {
    fn default() -> Self {
        Self {
            limits: Limits { depth: 16, cgroups: 16_384, in_pod: 128 },
            keep_removed: Duration::from_secs(2),
            rescan: Duration::from_secs(1),
            clock: Clock::default(),
        }
    }
}

impl CgroupOptions {
    /// How many cgroups are followed at most; 16,384 by default. Each takes about 500 bytes here and about 1 KiB in the
    /// kernel, for its watch. As many removed ones are kept at most.
    pub fn max_cgroups(mut self, cgroups: usize) -> Self {
        self.limits.cgroups = cgroups;
        self
    }

    /// How many cgroups of one pod are followed at most, its own not counted; 128 by default. A container may be
    /// allowed to make cgroups of its own, and must not use up those of other pods.
    pub fn max_in_pod(mut self, cgroups: usize) -> Self {
        self.limits.in_pod = cgroups;
        self
    }

    /// How deep below the root cgroups are followed; 16 by default.
    pub fn max_depth(mut self, depth: usize) -> Self {
        self.limits.depth = depth;
        self
    }

    /// For how long the ID of a removed cgroup is resolved; 2 s by default, and up to 100 ms more. Events often come
    /// later than the end of what caused them. If a new cgroup gets the ID, that one counts.
    pub fn keep_removed(mut self, time: Duration) -> Self {
        self.keep_removed = time;
        self
    }

    /// While some cgroup is not followed, an unknown ID causes a scan. How long after the last one; 1 s by default, and
    /// at least 20 times as long as that took.
    pub fn rescan(mut self, interval: Duration) -> Self {
        self.rescan = interval;
        self
    }

    /// Your own clock, for tests.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(clock);
        self
    }
}

impl fmt::Debug for CgroupOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CgroupOptions")
            .field("limits", &self.limits)
            .field("keep_removed", &self.keep_removed)
            .field("rescan", &self.rescan)
            .finish_non_exhaustive()
    }
}

/// Finds the pod of a cgroup ID: the inode number of the cgroup's directory, which `bpf_get_current_cgroup_id` reports.
///
/// Walks cgroupfs once and then follows it with inotify. No thread: [`resolve`](Self::resolve) reads the events.
///
/// # Consistency
/// - **A new cgroup** is found at once: before an ID counts as unknown, the events that are waiting are read.
/// - **A removed cgroup** stays resolvable for [`keep_removed`](CgroupOptions::keep_removed), then it is
///   [`Placement::Gone`].
/// - **A reused ID**: since Linux 5.5, on 64-bit machines, no ID is used twice. Elsewhere an ID means its former cgroup
///   until events are read: 100 ms after they were read last at the latest, or with [`catch_up`](Self::catch_up).
/// - **Lost events** (the kernel's queue was full) cause a scan. So does an unknown ID while there is a
///   [`problem`](Self::problem), at most once in [`rescan`](CgroupOptions::rescan): there may be room by now. Scans
///   take at most a twentieth of the time.
/// - **Cgroups that containers make** are found like others, also if they use a mount and a cgroup namespace of their
///   own.
///
/// # Limits
/// - Linux 5.5 or later, 64 bits; before, the inode number is not the ID.
/// - The root must be the mount point of cgroup v2: `/sys/fs/cgroup`, on hybrid hosts `/sys/fs/cgroup/unified`; in a
///   container, the host's, mounted (read-only is enough). A mount in a cgroup namespace shows only what is below.
/// - On cgroup v1, containers have no cgroup IDs. Use [`PidResolver`](super::PidResolver).
/// - Symbolic links are not followed.
/// - Depth and numbers are bounded, see [`CgroupOptions`]. What is not followed is `Gone`; [`problem`](Self::problem)
///   names the first such cgroup. Raise `fs.inotify.max_user_watches` if that is the bound.
///
/// # Complexity
/// A known ID takes a read of the coarse clock and a lookup in a hash table; once in 100 ms a system call. An unknown
/// ID takes a system call, sometimes a scan: about five system calls a cgroup. If a lookup must never wait for these,
/// ask [`get`](Self::get), and call [`catch_up`](Self::catch_up) when there is time.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::process::{CgroupOptions, CgroupResolver};
///
/// let mut cgroups = CgroupResolver::new("/sys/fs/cgroup", CgroupOptions::default())?;
/// if let Some(cgroup) = cgroups.resolve(4711).pod() {
///     println!("{:?} {:?}", cgroup.pod_uid, cgroup.container_id);
/// }
/// # Ok::<(), pod_index_kubelet::process::ResolveError>(())
/// ```
///
/// cAdvisor: `watchForNewContainers` (`container/raw/watcher.go`) follows cgroupfs in the same way, by path.
pub struct CgroupResolver {
    inotify: OwnedFd,
    walk: Walk,
    keep_removed: Duration,
    rescan: Duration,
    clock: Clock,
    next_read: Duration,
    /// The end of the last scan, and what it took.
    scanned: (Duration, Duration),
}

impl CgroupResolver {
    /// A resolver for the cgroup v2 file system that is mounted at this path. Scans it.
    ///
    /// # Errors
    /// If the root is not a directory that can be read and watched, or the kernel gives no inotify instance
    /// (`fs.inotify.max_user_instances`). Problems with cgroups below are no error; see [`problem`](Self::problem).
    pub fn new(root: impl AsRef<Path>, options: CgroupOptions) -> Result<Self, ResolveError> {
        let CgroupOptions { limits, keep_removed, rescan, clock } = options;
        let root = root.as_ref();
        let root = root.canonicalize().map_err(|error| ResolveError::unreadable(root, &error))?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|error| {
            let detail = format!("cannot be followed: {}", std::io::Error::from(error));
            ResolveError::new(ResolveErrorKind::NoWatch, &root, detail)
        })?;
        let walk = Walk::new(root, limits);
        let scanned = (Duration::ZERO, Duration::ZERO);
        let next_read = Duration::ZERO;
        let mut resolver = Self { inotify, walk, keep_removed, rescan, clock, next_read, scanned };
        resolver.scan();
        match resolver.walk.problem.take_if(|_| resolver.walk.tree.len() == 0) {
            Some(problem) => Err(problem),
            None => Ok(resolver),
        }
    }

    /// The pod of the cgroup with this ID. [`Placement::Gone`] if no cgroup with this ID is followed.
    pub fn resolve(&mut self, id: u64) -> Placement {
        let now = self.clock.now();
        match self.get(id) {
            Some(resolved) if now < self.next_read => resolved.clone(),
            _ => self.read_and_resolve(id),
        }
    }

    /// As [`resolve`](Self::resolve), but from what is known already: no system call. `None` if the ID is unknown.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u64) -> Option<&Placement> {
        self.walk.tree.get(id)
    }

    /// Reads the events that are waiting. Call it now and then if lookups may pause for long, so that the kernel's
    /// queue does not overflow. The resolver's file descriptor ([`AsFd`]) is readable when events are waiting.
    pub fn catch_up(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = inotify::Reader::new(self.inotify.as_fd(), &mut buffer);
        for _ in 0..MOST_EVENTS {
            match events.next() {
                Ok(event) => self.walk.apply(&self.inotify, &event),
                Err(Errno::INTR) => {}
                // Nothing is waiting. There is no other error for an open queue.
                Err(_) => break,
            }
        }
        if self.walk.is_stale && self.may_scan(Duration::ZERO) {
            self.scan();
        }
        let now = self.clock.now();
        self.next_read = now.saturating_add(BETWEEN_READS);
        self.walk.tree.expire(now, self.keep_removed, self.walk.limits.cgroups);
    }

    /// The first cgroup that is not followed, and why. A later scan may find it, or another one.
    #[must_use]
    pub fn problem(&self) -> Option<&ResolveError> {
        self.walk.problem.as_ref()
    }

    /// How many cgroups are followed, those of no pod included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.walk.tree.len()
    }

    /// Whether no cgroup is followed, because the file system is gone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cold]
    fn read_and_resolve(&mut self, id: u64) -> Placement {
        self.catch_up();
        if self.get(id).is_none() && self.problem().is_some() && self.may_scan(self.rescan) {
            self.scan();
        }
        self.get(id).cloned().unwrap_or(Placement::Gone)
    }

    /// Whether the last scan ended long enough ago.
    fn may_scan(&self, interval: Duration) -> bool {
        let (end, took) = self.scanned;
        self.clock.now() >= end.saturating_add(interval.max(took.saturating_mul(REST)))
    }

    fn scan(&mut self) {
        let start = self.clock.now();
        self.walk.scan(&self.inotify);
        let end = self.clock.now();
        self.scanned = (end, end.saturating_sub(start));
        self.walk.tree.expire(end, self.keep_removed, self.walk.limits.cgroups);
    }
}

/// The inotify instance: readable when events are waiting. Do not read from it.
impl AsFd for CgroupResolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl fmt::Debug for CgroupResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CgroupResolver")
            .field("root", &self.walk.root)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
