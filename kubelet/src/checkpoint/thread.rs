//! The checkpoint thread and its status.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::core::v1::Pod;

use super::disk::Disk;
use super::error::CheckpointError;
use super::keep::Keeper;
use crate::backoff::{Backoff, FOREVER};
use pod_index::Reader;

/// The first and the longest wait before a failed operation is retried.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(30);

/// The thread that keeps the files up to date. Dropping this handle ends the thread.
#[derive(Debug)]
#[must_use = "dropping it ends the thread"]
pub struct Checkpointing {
    shared: Arc<Shared>,
    thread: Thread,
    reader: Reader<Pod>,
}

/// Status of the checkpoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CheckpointStatus {
    /// The latest generation of the index that is completely on disk. `None` before the first.
    pub generation: Option<u64>,
    /// Number of checkpoints on disk.
    pub files: usize,
    /// Current errors, at most 100. Each is retried until it is resolved.
    pub errors: Vec<CheckpointError>,
    /// Number of pods whose checkpoints do not match the index.
    pub wrong: usize,
    /// Number of checkpoints written so far.
    pub written: u64,
    /// Number of checkpoints removed so far.
    pub removed: u64,
    /// Number of failed writes and removals.
    pub failures: u64,
    /// When a write or removal last failed.
    pub last_failure: Option<SystemTime>,
    /// Number of files that were set aside.
    pub set_aside: usize,
    /// Number of files that could not be read at the start and were not replaced or removed since.
    pub unread: usize,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    status: CheckpointStatus,
    stop: bool,
    ended: bool,
}

impl State {
    fn has_reached(&self, generation: u64) -> bool {
        self.status.generation.is_some_and(|reached| reached >= generation)
    }

    fn acknowledged(&self, generation: u64) -> Result<(), NotAcknowledged> {
        if self.has_reached(generation) {
            return Ok(());
        }
        Err(NotAcknowledged { generation, error: self.status.errors.first().cloned() })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpointing {
    pub(super) fn start<D: Disk>(keeper: Keeper<D>, reader: Reader<Pod>) -> io::Result<Self> {
        let state = Mutex::new(State { status: keeper.status(), stop: false, ended: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let ends = Ends(Arc::clone(&shared));
        let followed = reader.clone();
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
            run(keeper, &followed, &ends.0);
        })?;
        Ok(Self { shared, thread: thread.thread().clone(), reader })
    }

    /// Waits until this generation of the index, or a later one, is on disk. After that, no kill or power loss
    /// loses it.
    ///
    /// Blocks the calling thread; in async code, use `spawn_blocking`.
    ///
    /// # Errors
    /// If the timeout expires or the thread has ended. The error includes the disk's problem, if known.
    pub fn wait_for(&self, generation: u64, timeout: Duration) -> Result<(), NotAcknowledged> {
        let state = self.wait(timeout, |state| state.has_reached(generation));
        state.acknowledged(generation)
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> CheckpointStatus {
        self.shared.lock().status.clone()
    }

    /// A function that returns the current [`status`](Self::status) and outlives this handle.
    pub fn observer(&self) -> impl Fn() -> CheckpointStatus + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.lock().status.clone()
    }

    /// Writes the current state of the index to disk and ends the thread. Failed operations are repeated
    /// once. If the disk hangs, this waits until the timeout.
    ///
    /// # Errors
    /// If the current state may not be on disk. The error includes the reason, if known.
    pub fn finish(self, timeout: Duration) -> Result<(), NotAcknowledged> {
        let generation = self.reader.load().generation();
        drop(self.stop());
        // Wait until the thread has ended, not only for the acknowledgement: it unlocks the directory at its end.
        self.wait(timeout, |_| false).acknowledged(generation)
    }

    /// Waits until `is_so` returns true, the thread has ended, or the timeout expires.
    fn wait(&self, timeout: Duration, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let deadline = Instant::now() + timeout.min(FOREVER);
        let mut state = self.shared.lock();
        while !(state.ended || is_so(&state)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    fn stop(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.lock();
        state.stop = true;
        self.thread.unpark();
        state
    }
}

impl Drop for Checkpointing {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// A generation that may not be on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAcknowledged {
    generation: u64,
    error: Option<CheckpointError>,
}

impl NotAcknowledged {
    /// The problem, if known. `None` means the disk is slow.
    #[must_use]
    pub fn error(&self) -> Option<&CheckpointError> {
        self.error.as_ref()
    }
}

impl std::fmt::Display for NotAcknowledged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "generation {} is not known to be on disk", self.generation)?;
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotAcknowledged {}

/// Reports the thread's end, even after a panic.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Wakes the thread, which then checks all conditions again.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn run<D: Disk>(mut keeper: Keeper<D>, reader: &Reader<Pod>, shared: &Shared) {
    let mut changes = reader.changes();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut seen = None;
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    let mut retry_at = None;
    loop {
        // Read this before loading the snapshot, so that the snapshot includes everything published before the stop
        // was requested.
        let stop = shared.lock().stop;
        let snapshot = reader.snapshot();
        let generation = snapshot.generation();
        let retry = retry_at.is_some_and(|at| Instant::now() >= at) || stop && keeper.has_failed();
        if seen != Some(generation) || retry {
            let errors = keeper.pass(snapshot, retry);
            seen = Some(generation);
            if !keeper.has_failed() {
                (backoff, retry_at) = (Backoff::new(LEAST_WAIT, MOST_WAIT), None);
            } else if retry || retry_at.is_none() {
                let now = Instant::now();
                retry_at = Some(now + backoff.wait(now));
            }
            acknowledge(shared, &keeper, generation, &errors);
            if !stop {
                // Check again before parking: a lock or a logger that blocked in the meantime may have
                // consumed the unpark of `stop`.
                continue;
            }
        }
        if stop {
            return;
        }
        // Either a change was published since the check above, or the next publication wakes this thread.
        if let Poll::Ready(Some(_)) = changes.poll_next(&mut Context::from_waker(&waker)) {
            continue;
        }
        match retry_at {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// Acknowledges the generation, or logs new errors.
fn acknowledge<D: Disk>(shared: &Shared, keeper: &Keeper<D>, generation: u64, errors: &[CheckpointError]) {
    let mut state = shared.lock();
    let generation = if keeper.has_failed() { state.status.generation } else { Some(generation) };
    let status = CheckpointStatus { generation, errors: errors.to_vec(), ..keeper.status() };
    let before = std::mem::replace(&mut state.status, status).errors;
    drop(state);
    shared.changed.notify_all();
    // Logs without the lock, so that a status request does not wait for the log.
    for (error, alike) in counted(errors.iter().filter(|error| !before.contains(error))) {
        let (path, kind) = (error.path(), error.kind().as_str());
        tracing::warn!(path, kind, files = alike, "{error}");
    }
    if errors.is_empty() && !before.is_empty() {
        tracing::info!("checkpoints are written again");
    }
}

/// The first of the errors that differ only in their paths, and their number: a full disk fails every file.
fn counted<'a>(errors: impl Iterator<Item = &'a CheckpointError>) -> Vec<(&'a CheckpointError, usize)> {
    let mut counted: Vec<(&CheckpointError, usize)> = Vec::new();
    for error in errors {
        match counted.iter_mut().find(|(first, _)| first.is_like(error)) {
            Some((_, alike)) => *alike += 1,
            None => counted.push((error, 1)),
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::counted;
    use crate::checkpoint::{CheckpointError, CheckpointErrorKind};

    #[test]
    fn a_full_disk_is_one_line_with_a_count() {
        let error = |file: usize, message| {
            CheckpointError::new(CheckpointErrorKind::Write, Path::new(&format!("/c/{file}")), message)
        };
        let errors: Vec<_> =
            (0..100).map(|file| error(file, if file == 7 { "denied" } else { "disk full" })).collect();
        let counted = counted(errors.iter());
        assert_eq!(counted, [(&errors[0], 99), (&errors[7], 1)]);
    }
}
