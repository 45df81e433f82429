//! From a process ID to the pod.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use pod_index::identity::Cgroup;
use rustix::fs::{Mode, OFlags, open};
use rustix::param::clock_ticks_per_second;
use rustix::path::DecInt;

use super::Placement;
use super::clock::Clock;
use super::error::ResolveError;
use super::read::{self, Unread};

/// A process younger than this may still be moved to the cgroup where it belongs.
const YOUNG: Duration = Duration::from_secs(10);
/// How long an answer counts that may change soon.
const UNSETTLED_AGE: Duration = Duration::from_millis(10);

/// Finds the pod of a process, through `/proc/PID/cgroup`.
///
/// # Consistency
/// An answer that was read is given again, without a system call, for [`max_age`](Self::max_age) (1 s by default). Then
/// `/proc` is read again. So for that long, and no longer,
///
/// - a process that has ended still has its pod, which serves events that come late;
/// - a process that was given the ID of one that ended is taken for the latter. The kernel gives the IDs in turn, so
///   this takes as many new processes as there are IDs. If your events carry the start time of the process, use
///   [`resolve_started`](Self::resolve_started), which never takes one process for another. If they report the end of
///   processes, call [`forget`](Self::forget);
/// - a process that was moved to another pod's cgroup still has its former pod.
///
/// A runtime starts a process in its own cgroup and then moves it to the container's. Therefore, while a process is
/// younger than 10 s, only an answer with a container counts for `max_age`, any other for 10 ms. [`Placement::Gone`]
/// counts for 10 ms, too. The clock moves in steps of up to 10 ms, which come on top.
///
/// One read is about one process: if it ends meanwhile, the answer is `Gone`, even if the ID is in use again.
///
/// # Limits
/// - The IDs must be of the PID namespace of the mounted `/proc`. eBPF programs report the host's, so a container needs
///   `hostPID`, or the host's `/proc` mounted.
/// - `/proc` mounted with `hidepid` shows no processes of other users: they are `Gone`, or an error.
/// - In a cgroup namespace of its own, a reader may see a container without its pod. See
///   [`PodCgroup`](super::PodCgroup).
///
/// Why not pidfds: they report an end, not a move, need a file descriptor for each process, and know only the PID
/// namespace of the caller, not that of a `/proc` mounted elsewhere.
///
/// # Complexity
/// A remembered answer takes a read of the coarse clock and a lookup in a hash table. Any other takes about ten system
/// calls. At most [`capacity`](Self::capacity) answers are remembered, of about 110 bytes each; those that no longer
/// count are dropped about once in `max_age`, while lookups come.
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
    max_age: Duration,
    capacity: usize,
    remembered: HashMap<u32, Remembered, ahash::RandomState>,
    next_sweep: Duration,
    /// Reused from one read to the next.
    contents: Vec<u8>,
}

struct Remembered {
    resolved: Placement,
    /// In clock ticks. `None` if there was no process.
    started: Option<u64>,
    until: Duration,
}

impl PidResolver {
    /// A resolver that reads the `/proc` at this path, for example `/host/proc`.
    ///
    /// # Errors
    /// If it is not a directory that can be opened.
    pub fn new(root: impl Into<PathBuf>) -> Result<Self, ResolveError> {
        let root = root.into();
        let proc = open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| ResolveError::unreadable(&root, &error.into()))?;
        Ok(Self {
            root,
            proc,
            clock: Clock::default(),
            max_age: Duration::from_secs(1),
            capacity: 16_384,
            remembered: HashMap::default(),
            next_sweep: Duration::ZERO,
            contents: Vec::new(),
        })
    }

    /// For how long an answer counts; 1 s by default. With zero, each lookup reads `/proc`.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// How many answers are remembered at most; 16,384 by default. If there are more processes, some are read again
    /// earlier.
    #[must_use]
    pub fn capacity(mut self, processes: usize) -> Self {
        self.capacity = processes;
        self
    }

    /// Your own clock, for tests: the time since the machine was started.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(clock);
        self
    }

    /// The pod of the process, or of the thread, that has this ID.
    ///
    /// # Errors
    /// If a file of the process cannot be read, is longer than 64 KiB, or holds no start time. The error names the file
    /// and the field. It is not remembered.
    pub fn resolve(&mut self, pid: u32) -> Result<Placement, ResolveError> {
        let now = self.clock.now();
        match self.remembered.get(&pid) {
            Some(remembered) if now < remembered.until => Ok(remembered.resolved.clone()),
            _ => self.read(pid, now).map(|remembered| remembered.resolved.clone()),
        }
    }

    /// The pod of the process that has this ID and was started at this time, measured from the start of the machine
    /// (`CLOCK_BOOTTIME`; `start_boottime` in the kernel's `task_struct`).
    ///
    /// # Consistency
    /// As [`resolve`](Self::resolve), but never about another process with the same ID: if that one has it now, the
    /// answer is [`Placement::Gone`]. `/proc` shows start times in clock ticks (10 ms), so two processes are told apart
    /// if they were started in different ticks.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_started(&mut self, pid: u32, started: Duration) -> Result<Placement, ResolveError> {
        let started = ticks(started);
        let now = self.clock.now();
        let remembered = match self.remembered.get(&pid) {
            // A later process than the one that is remembered: the ID was given away again.
            Some(remembered) if now < remembered.until && remembered.started >= Some(started) => remembered,
            _ => self.read(pid, now)?,
        };
        let is_same = remembered.started == Some(started);
        Ok(if is_same { remembered.resolved.clone() } else { Placement::Gone })
    }

    /// Forgets the process with this ID. Call it when you learn that the process has ended or was moved.
    pub fn forget(&mut self, pid: u32) {
        self.remembered.remove(&pid);
    }

    /// How many processes are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.remembered.len()
    }

    /// Whether no process is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remembered.is_empty()
    }

    /// Reads `/proc` and remembers the answer.
    #[cold]
    fn read(&mut self, pid: u32, now: Duration) -> Result<&Remembered, ResolveError> {
        self.remembered.remove(&pid);
        let (started, resolved) = match self.read_process(pid) {
            Ok((started, resolved)) => (Some(started), resolved),
            Err((file, unread)) => match unread.error(&self.root.join(pid.to_string()).join(file)) {
                Some(error) => return Err(error),
                None => (None, Placement::Gone),
            },
        };
        let is_settled = match (&resolved, started) {
            (Placement::Pod(cgroup), _) if cgroup.container_id.is_some() => true,
            (_, None) => false,
            (_, Some(started)) => self.clock.since_boot().saturating_sub(time(started)) >= YOUNG,
        };
        let age = if is_settled { self.max_age } else { UNSETTLED_AGE.min(self.max_age) };
        self.make_room(now);
        let remembered = Remembered { resolved, started, until: now.saturating_add(age) };
        Ok(self.remembered.entry(pid).insert_entry(remembered).into_mut())
    }

    /// The start time and the pod of a process; or which file could not be read.
    fn read_process(&mut self, pid: u32) -> Result<(u64, Placement), (&'static str, Unread)> {
        // What is open stays with this process: if it has ended, what lies below cannot be opened, even if another
        // process has its ID.
        let process = read::open_directory(&self.proc, DecInt::new(pid).as_c_str(), OFlags::PATH)
            .map_err(|error| ("", error.into()))?;
        read::read(&process, c"stat", &mut self.contents).map_err(|error| ("stat", error))?;
        let started =
            read::start_time(&self.contents).ok_or(("stat", Unread::Malformed("start time (field 22)")))?;
        read::read(&process, c"cgroup", &mut self.contents).map_err(|error| ("cgroup", error))?;
        Ok((started, Cgroup::from_proc(&self.contents).into()))
    }

    /// Drops the answers that no longer count, now and then; and others, if there are too many.
    fn make_room(&mut self, now: Duration) {
        let is_full = self.remembered.len() >= self.capacity;
        if !is_full && now < self.next_sweep {
            return;
        }
        self.next_sweep = now.saturating_add(self.max_age);
        self.remembered.retain(|_, remembered| now < remembered.until);
        // To sweep a table for the sake of a few places would cost each lookup a sweep.
        if is_full && self.remembered.len() >= self.capacity - self.capacity / 8 {
            self.remembered.clear();
        }
    }
}

/// In clock ticks, as the kernel rounds it.
fn ticks(since_boot: Duration) -> u64 {
    let ticks = since_boot.as_nanos() * u128::from(clock_ticks_per_second()) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

fn time(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1_000) / clock_ticks_per_second().max(1))
}

impl fmt::Debug for PidResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PidResolver")
            .field("root", &self.root)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
