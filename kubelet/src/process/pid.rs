//! Finds the pod of a process ID.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::param::clock_ticks_per_second;
use rustix::path::DecInt;

use super::Placement;
use super::clock::Clock;
use super::error::ResolveError;
use super::read;
use super::roots::Roots;

/// A process younger than this may not have been moved to its container's cgroup yet.
const YOUNG: Duration = Duration::from_secs(10);
/// How long an answer that may change soon is remembered.
const UNSETTLED_AGE: Duration = Duration::from_millis(10);

/// Finds the pod of a process, through `/proc/PID/cgroup`.
///
/// # Consistency
/// An answer is remembered for [`max_age`](Self#structfield.max_age) (1 s by default). After that, `/proc` is read again. During
/// this time, and no longer:
///
/// - A process that has ended is still found. This helps with events that arrive late.
/// - A new process with the ID of one that has ended gets the pod of the ended one. The kernel assigns IDs in turn, so
///   this happens only after as many new processes as there are IDs. [`resolve_checked`](Self::resolve_checked) compares
///   the start of the process at each lookup. If your events carry the start time of the process,
///   use [`resolve_started`](Self::resolve_started), which never confuses processes. If they report the end of processes,
///   call [`forget`](Self::forget).
/// - A process that was moved to another pod's cgroup still gets its former pod.
///
/// A runtime starts a process in the runtime's own cgroup and then moves it to the container's. Therefore, while a
/// process is younger than 10 s, only an answer with a container is remembered for `max_age`, any other for 10 ms.
/// [`Placement::Gone`] is also remembered for 10 ms. The clock moves in steps of up to 10 ms, which can lengthen these
/// times.
///
/// All files of a read belong to one process: if the process ends during the read, the answer is `Gone`, even if the ID
/// is in use again.
///
/// # Limits
/// - The IDs must belong to the PID namespace of the mounted `/proc`. eBPF programs report the host's IDs, so a
///   container
///   needs `hostPID`, or the host's `/proc` mounted.
/// - A `/proc` mounted with `hidepid` hides processes of other users: they are `Gone`, or an error.
/// - In a cgroup namespace of its own, a reader may see a container without its pod. See
///   [`Placement`].
///
/// Pidfds are no alternative: they report that a process has ended but not that it was moved, each takes a file
/// descriptor, and they work only in the caller's PID namespace, not in that of a `/proc` mounted elsewhere.
///
/// # Complexity
/// A remembered answer takes a read of the coarse clock and a lookup in a hash table. Any other takes about ten system
/// calls. At most [`capacity`](Self#structfield.capacity) answers of about 110 bytes each are remembered. Lookups drop the expired
/// ones about once per `max_age`.
///
/// # Examples
/// ```
/// use std::process;
///
/// use pod_index_kubelet::process::{PidResolver, Placement};
///
/// let mut processes = PidResolver::new("/proc")?;
/// assert_ne!(processes.resolve(process::id())?, Placement::Gone);
/// assert_eq!(processes.resolve(u32::MAX)?, Placement::Gone);
/// # Ok::<(), pod_index_kubelet::process::ResolveError>(())
/// ```
///
/// cAdvisor: `getContainerNameForPid` reads the same file. The kubelet itself never goes from a process to a pod.
pub struct PidResolver {
    root: PathBuf,
    proc: OwnedFd,
    clock: Clock,
    /// How long an answer is remembered; 1 s by default. With zero, each lookup reads `/proc`.
    pub max_age: Duration,
    /// Maximum number of remembered answers; 16,384 by default. If there are more processes, some are read again
    /// earlier.
    pub capacity: usize,
    remembered: HashMap<u32, Remembered, ahash::RandomState>,
    next_sweep: Duration,
    roots: Roots,
    /// The content of the last file. Kept to reuse its memory.
    contents: Vec<u8>,
}

struct Remembered {
    resolved: Placement,
    /// In clock ticks. `None` if there was no process.
    started: Option<u64>,
    /// Whether a runtime may still move it to its container's cgroup.
    may_move: bool,
    until: Duration,
}

impl PidResolver {
    /// A resolver that reads the `/proc` at this path, for example `/host/proc`.
    ///
    /// # Errors
    /// If the path is not a directory that can be opened.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, ResolveError> {
        let root = root.into();
        let proc = open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| ResolveError::unreadable(&root, &error.into()))?;
        let mut roots = Roots::default();
        if let Ok(own) = std::fs::read(root.join("self/cgroup")) {
            roots.add_own(&own);
        }
        Ok(Self {
            root,
            proc,
            roots,
            clock: Clock::default(),
            max_age: Duration::from_secs(1),
            capacity: 16_384,
            remembered: HashMap::default(),
            next_sweep: Duration::ZERO,
            contents: Vec::new(),
        })
    }

    /// Also accepts pods below this cgroup, the kubelet's `cgroupRoot`.
    #[must_use]
    pub fn cgroup_root(mut self, root: &str) -> Self {
        self.roots.add(root);
        self
    }

    /// The cgroups that may hold pods, to judge the paths of cgroups in events by the same rule.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Replaces the clock, for tests. Returns the time since the machine was started.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(clock);
        self
    }

    /// The pod of the process or thread with this ID.
    ///
    /// # Consistency
    /// The answer may be up to [`max_age`](Self#structfield.max_age) old. If the ID was reused since, it is that of the
    /// earlier process; [`resolve_checked`](Self::resolve_checked) never does that.
    ///
    /// # Complexity
    /// A lookup in a hash table for a remembered answer. Else some system calls, which read two small files of `/proc`.
    ///
    /// # Errors
    /// If a file of the process cannot be read, is longer than 64 KiB, or has no valid start time. The error names the
    /// file and the field. It is not remembered.
    pub fn resolve(&mut self, pid: u32) -> Result<Placement, ResolveError> {
        let now = self.clock.now();
        match self.remembered.get(&pid) {
            Some(remembered) if now < remembered.until => Ok(remembered.resolved.clone()),
            _ => self.read(pid, now).map(|remembered| remembered.resolved.clone()),
        }
    }

    /// Like [`resolve`](Self::resolve), but never returns the answer of an earlier process with this ID, and finds no
    /// process that has ended.
    ///
    /// # Complexity
    /// Reads the process's start time, three system calls more than `resolve`, and the cgroup only if the answer is too
    /// old.
    ///
    /// # Errors
    /// Like [`resolve`](Self::resolve).
    pub fn resolve_checked(&mut self, pid: u32) -> Result<Placement, ResolveError> {
        if self.remembered.contains_key(&pid) {
            let process = self.directory(pid);
            let started = process.and_then(|process| self.started(&process)).ok();
            if self.remembered.get(&pid).is_some_and(|remembered| remembered.started != started) {
                self.remembered.remove(&pid);
            }
        }
        self.resolve(pid)
    }

    /// The pod of the process that has this ID and was started at this time, measured from the start of the machine
    /// (`CLOCK_BOOTTIME`; `start_boottime` in the kernel's `task_struct`).
    ///
    /// # Consistency
    /// Like [`resolve`](Self::resolve), but never returns another process with the same ID: if another one has the ID
    /// now, the answer is [`Placement::Gone`]. `/proc` shows start times in clock ticks (10 ms), so this distinguishes
    /// processes that were started in different ticks.
    ///
    /// # Errors
    /// Like [`resolve`](Self::resolve).
    pub fn resolve_started(&mut self, pid: u32, started: Duration) -> Result<Placement, ResolveError> {
        let started = ticks(started);
        let now = self.clock.now();
        let remembered = match self.remembered.get(&pid) {
            // A process that started later than the remembered one: the ID was reused.
            Some(remembered) if now < remembered.until && remembered.started >= Some(started) => remembered,
            _ => self.read(pid, now)?,
        };
        let is_same = remembered.started == Some(started);
        Ok(if is_same { remembered.resolved.clone() } else { Placement::Gone })
    }

    /// Whether the last answer about this process may change soon: it is younger than 10 s, and in no container's cgroup, so a
    /// runtime may still move it there. Call it after [`Placement::NoPod`], to tell a process of the host from one that is not in
    /// its pod's cgroup yet: for that one, ask again after a moment.
    ///
    /// `false` for a process that is not remembered.
    #[must_use]
    pub fn may_move(&self, pid: u32) -> bool {
        self.remembered.get(&pid).is_some_and(|remembered| remembered.may_move)
    }

    /// Forgets the process with this ID. Call it when you learn that the process has ended or was moved.
    pub fn forget(&mut self, pid: u32) {
        self.remembered.remove(&pid);
    }

    /// Number of remembered processes.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.remembered.len()
    }

    /// Reads `/proc` and remembers the answer.
    #[cold]
    fn read(&mut self, pid: u32, now: Duration) -> Result<&Remembered, ResolveError> {
        self.remembered.remove(&pid);
        let (started, resolved) = match self.read_process(pid) {
            Ok((started, resolved)) => (Some(started), resolved),
            Err((file, error)) => match read::unread(&self.root.join(pid.to_string()).join(file), &error) {
                Some(error) => return Err(error),
                None => (None, Placement::Gone),
            },
        };
        let is_in_container = matches!(&resolved, Placement::Pod(cgroup) if cgroup.container_id.is_some());
        let is_young = |started| self.clock.since_boot().saturating_sub(time(started)) < YOUNG;
        let may_move = !is_in_container && started.is_some_and(is_young);
        let is_settled = started.is_some() && !may_move;
        let age = if is_settled { self.max_age } else { UNSETTLED_AGE.min(self.max_age) };
        self.make_room(now);
        let remembered = Remembered { resolved, started, may_move, until: now.saturating_add(age) };
        Ok(self.remembered.entry(pid).insert_entry(remembered).into_mut())
    }

    /// The start time and the pod of a process, or the file that could not be read.
    fn read_process(&mut self, pid: u32) -> Result<(u64, Placement), (&'static str, io::Error)> {
        let process = self.directory(pid)?;
        let started = self.started(&process)?;
        read::read(&process, c"cgroup", &mut self.contents).map_err(|error| ("cgroup", error))?;
        Ok((started, self.roots.placement_in(&self.contents)))
    }

    /// The open directory stays with this process: once the process has ended, no file in it can be opened, even if
    /// another process has the ID.
    fn directory(&self, pid: u32) -> Result<OwnedFd, (&'static str, io::Error)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.proc, DecInt::new(pid).as_c_str(), flags, Mode::empty())
            .map_err(|error| ("", error.into()))
    }

    fn started(&mut self, process: &OwnedFd) -> Result<u64, (&'static str, io::Error)> {
        read::read(process, c"stat", &mut self.contents).map_err(|error| ("stat", error))?;
        let malformed = || ("stat", io::Error::other("has no valid start time (field 22)"));
        read::start_time(&self.contents).ok_or_else(malformed)
    }

    /// Drops expired answers from time to time, and others if there are too many.
    fn make_room(&mut self, now: Duration) {
        let is_full = self.remembered.len() >= self.capacity;
        if !is_full && now < self.next_sweep {
            return;
        }
        self.next_sweep = now.saturating_add(self.max_age);
        self.remembered.retain(|_, remembered| now < remembered.until);
        // Few answers have expired: drop all, so that not each of the next lookups sweeps the table.
        if is_full && self.remembered.len() >= self.capacity - self.capacity / 8 {
            self.remembered.clear();
        }
    }
}

/// Converts to clock ticks, rounded like in the kernel.
fn ticks(since_boot: Duration) -> u64 {
    let ticks = since_boot.as_nanos() * u128::from(clock_ticks_per_second()) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1_000) / clock_ticks_per_second().max(1))
}

impl_debug!(PidResolver, root);
