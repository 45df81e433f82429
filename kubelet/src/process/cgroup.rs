//! Finds the pod of a cgroup ID.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;

use super::Placement;
use super::clock::Clock;
use super::error::ResolveError;
use super::roots::Roots;
use super::tree::Tree;

/// How often events are read while every lookup finds its cgroup.
const BETWEEN_READS: Duration = Duration::from_millis(100);
/// The pause after a scan is at least this many times as long as the scan.
const REST: u32 = 20;
/// Maximum number of events per read. The kernel's queue holds 16,384 by default.
const MOST_EVENTS: usize = 32 * 1024;
/// Size of the buffer for events, in bytes.
const BUFFER: usize = 16 * 1024;

/// Options of a [`CgroupResolver`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use pod_index_kubelet::process::CgroupOptions;
///
/// let mut options = CgroupOptions::default().cgroup_root("/custom");
/// options.keep_removed = Duration::ZERO;
/// ```
#[derive(Debug)]
#[must_use = "options do nothing by themselves"]
pub struct CgroupOptions {
    /// Maximum number of cgroups to follow; 16,384 by default. Each takes about 500 bytes here and about 1 KiB in the
    /// kernel, for its watch. Also the maximum number of removed cgroups to keep.
    pub max_cgroups: usize,
    /// Maximum number of cgroups to follow below the cgroup of one pod; 128 by default. Some containers can create
    /// cgroups. This limit keeps them from using up `max_cgroups`.
    pub max_in_pod: usize,
    /// How long the ID of a removed cgroup still finds its pod; 2 s by default, and up to 100 ms more. Events often
    /// arrive after the process that caused them has ended. If a new cgroup gets the ID, the ID finds the new one.
    pub keep_removed: Duration,
    /// While any cgroup is not followed, an unknown ID causes a scan. This is the minimum time since the last scan; 1 s
    /// by default, and at least 20 times the duration of that scan.
    pub rescan: Duration,
    pub(super) roots: Roots,
    pub(super) clock: Clock,
}

impl Default for CgroupOptions {
    fn default() -> Self {
        Self {
            max_cgroups: 16_384,
            max_in_pod: 128,
            roots: Roots::default(),
            keep_removed: Duration::from_secs(2),
            rescan: Duration::from_secs(1),
            clock: Clock::default(),
        }
    }
}

impl CgroupOptions {
    /// Also accepts pods below this cgroup, the kubelet's `cgroupRoot`.
    pub fn cgroup_root(mut self, root: &str) -> Self {
        self.roots.add(root);
        self
    }

    /// Replaces the clock, for tests.
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(clock);
        self
    }
}

/// Finds the pod of a cgroup ID: the inode number of the cgroup's directory, which `bpf_get_current_cgroup_id` reports.
///
/// Scans cgroupfs once and then follows it with inotify. Uses no thread: [`resolve`](Self::resolve) reads the events.
///
/// # Consistency
/// - **A new cgroup** is found at once: an ID counts as unknown only after all queued events were read.
/// - **A removed cgroup** stays resolvable for [`keep_removed`](CgroupOptions#structfield.keep_removed), then it is
///   [`Placement::Gone`].
/// - **A reused ID**: since Linux 5.5, on 64-bit machines, no ID is used twice. Elsewhere an ID finds its former cgroup
///   until the next read of events, at most 100 ms later. [`catch_up`](Self::catch_up) reads them at once.
/// - **Lost events** (the kernel's queue was full) cause a scan. So does an unknown ID while there is a
///   [`problem`](Self::problem), at most once per [`rescan`](CgroupOptions#structfield.rescan): the limit may no longer be reached.
///   Scans take at most a twentieth of the time.
/// - **Cgroups that containers create** are found like others, even in the container's own namespaces.
///
/// # Limits
/// - Linux 5.5 or later, 64 bits. Elsewhere the inode number is not the cgroup ID.
/// - The root must be the mount point of cgroup v2: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` on hybrid hosts. In a
///   container, mount the host's, read-only. A mount in a cgroup namespace shows only the cgroups of that namespace.
/// - On cgroup v1, containers have no cgroup IDs. Use [`PidResolver`](super::PidResolver).
/// - Symbolic links are not followed.
/// - Depth and numbers are limited; see [`CgroupOptions`]. A cgroup that is not followed is `Gone`;
///   [`problem`](Self::problem) names the first such cgroup. If the kernel's limit is reached, raise
///   `fs.inotify.max_user_watches`.
///
/// # Complexity
/// A known ID takes a read of the coarse clock and a lookup in a hash table, and every 100 ms one system call. An
/// unknown ID takes a system call, and sometimes a scan of about five system calls per cgroup. If a lookup must never
/// wait for these, use [`get`](Self::get), and call [`catch_up`](Self::catch_up) when there is time.
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
    pub(super) root: PathBuf,
    pub(super) inotify: Arc<OwnedFd>,
    pub(super) tree: Tree,
    pub(super) options: CgroupOptions,
    /// The first cgroup since the start of the last scan that is not followed, and why.
    pub(super) problem: Option<ResolveError>,
    /// Events were lost.
    pub(super) is_stale: bool,
    pub(super) scans: u64,
    pub(super) last_scan: LastScan,
    /// The file system that the root belongs to.
    pub(super) device: u64,
    next_read: Duration,
}

/// When the last scan ended, by the resolver's clock, and how long it took.
#[derive(Clone, Copy, Default)]
pub(super) struct LastScan {
    pub(super) ended: Duration,
    pub(super) took: Duration,
}

impl CgroupResolver {
    /// A resolver for the cgroup v2 file system that is mounted at this path. Scans it.
    ///
    /// # Complexity
    /// O(cgroups), with a few system calls for each.
    ///
    /// # Errors
    /// If the root is not a directory that can be read and watched, or the kernel refuses an inotify instance
    /// (`fs.inotify.max_user_instances`). Problems with cgroups below the root are not errors; see
    /// [`problem`](Self::problem).
    pub fn new(root: impl AsRef<Path>, options: CgroupOptions) -> Result<Self, ResolveError> {
        let root = root.as_ref();
        let root = root.canonicalize().map_err(|error| ResolveError::unreadable(root, &error))?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|error| {
            let detail = format!("cannot be followed: {}", std::io::Error::from(error));
            ResolveError::new(&root, detail)
        })?;
        let mut resolver = Self {
            root,
            inotify: Arc::new(inotify),
            tree: Tree::default(),
            options,
            problem: None,
            is_stale: false,
            scans: 0,
            last_scan: LastScan::default(),
            device: 0,
            next_read: Duration::ZERO,
        };
        resolver.scan();
        match resolver.problem.take_if(|_| resolver.tree.len() == 0) {
            Some(problem) => Err(problem),
            None => Ok(resolver),
        }
    }

    /// The pod of the cgroup with this ID. [`Placement::Gone`] if no cgroup with this ID is followed.
    ///
    /// # Complexity
    /// A lookup in a hash table, and no system call, if the ID is known and the kernel's events were read a moment ago. Else the
    /// events are read first, O(events); if some were lost, or a cgroup could not be followed, all are scanned, at a
    /// limited rate.
    pub fn resolve(&mut self, id: u64) -> Placement {
        let now = self.options.clock.now();
        match self.get(id) {
            Some(resolved) if now < self.next_read => resolved.clone(),
            _ => self.read_and_resolve(id),
        }
    }

    /// Like [`resolve`](Self::resolve), but reads no events and makes no system call. `None` if the ID is not known
    /// yet.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u64) -> Option<&Placement> {
        self.tree.get(id)
    }

    /// Reads the queued events. If lookups may pause for long, call it regularly, so that the kernel's queue does not
    /// overflow. The resolver's file descriptor ([`AsFd`]) is readable when events are queued.
    pub fn catch_up(&mut self) {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = inotify::Reader::new(Arc::clone(&self.inotify), &mut buffer);
        for _ in 0..MOST_EVENTS {
            match events.next() {
                Ok(event) => self.apply(&event),
                Err(Errno::INTR) => {}
                // Nothing is queued. An open queue has no other error.
                Err(_) => break,
            }
        }
        if self.is_stale && self.may_scan(Duration::ZERO) {
            self.scan();
        }
        let now = self.options.clock.now();
        self.next_read = now.saturating_add(BETWEEN_READS);
        self.tree.expire(now, self.options.max_cgroups);
    }

    /// The first cgroup that is not followed, and why. A later scan may change this.
    #[must_use]
    pub fn problem(&self) -> Option<&ResolveError> {
        self.problem.as_ref()
    }

    /// Number of followed cgroups, including those that belong to no pod.
    #[must_use]
    pub fn followed(&self) -> usize {
        self.tree.len()
    }

    #[cold]
    fn read_and_resolve(&mut self, id: u64) -> Placement {
        self.catch_up();
        if self.get(id).is_none() && self.problem().is_some() && self.may_scan(self.options.rescan) {
            self.scan();
        }
        self.get(id).cloned().unwrap_or(Placement::Gone)
    }

    /// Whether the last scan ended long enough ago.
    fn may_scan(&self, interval: Duration) -> bool {
        let LastScan { ended, took } = self.last_scan;
        self.options.clock.now() >= ended.saturating_add(interval.max(took.saturating_mul(REST)))
    }
}

/// The inotify instance: readable when events are queued. Do not read from it.
impl AsFd for CgroupResolver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl_debug!(CgroupResolver, root);
