//! The thread that keeps the files, and what is known of how far it is.

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

/// The waits before what failed is tried again: the first, and the longest.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(30);

/// Keeps the files as the index is, on a thread of its own. Dropping it lets the thread end by itself.
#[derive(Debug)]
#[must_use = "dropping it ends the thread"]
pub struct Checkpointing {
    shared: Arc<Shared>,
    thread: Thread,
    reader: Reader<Pod>,
}

/// How the checkpoints are doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CheckpointStatus {
    /// The last generation of the index that is on disk with all that was before it; nothing: none yet.
    pub generation: Option<u64>,
    /// How many checkpoints there are.
    pub files: usize,
    /// What is wrong now, the first hundred of it. It is tried again until it is not.
    pub errors: Vec<CheckpointError>,
    /// How many pods' checkpoints are not as they should be.
    pub wrong: usize,
    /// How many checkpoints have been written so far.
    pub written: u64,
    /// How many have been removed.
    pub removed: u64,
    /// How often a write or a removal has failed.
    pub failures: u64,
    /// When that was the case last.
    pub last_failure: Option<SystemTime>,
    /// How many files were set aside.
    pub set_aside: usize,
    /// How many files could not be read at the start, and have not been replaced or removed since.
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
        let status = CheckpointStatus {
            generation: None,
            files: keeper.files(),
            errors: Vec::new(),
            wrong: 0,
            written: 0,
            removed: 0,
            failures: 0,
            last_failure: None,
            set_aside: keeper.done().set_aside,
            unread: keeper.unread(),
        };
        let state = Mutex::new(State { status, stop: false, ended: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let ends = Ends(Arc::clone(&shared));
        let followed = reader.clone();
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(move || {
            run(keeper, &followed, &ends.0);
        })?;
        Ok(Self { shared, thread: thread.thread().clone(), reader })
    }

    /// Waits until this generation of the index, or a later one, is on disk: no kill and no loss of power takes it away.
    /// A pod that is too large for a checkpoint is not waited for; [`status`](Self::status) tells of it.
    ///
    /// It blocks the thread; in async code, call it on one that may be blocked.
    ///
    /// # Errors
    /// If the time is over, or if the thread has ended. The error tells what is wrong with the disk, if it is known.
    pub fn wait_for(&self, generation: u64, timeout: Duration) -> Result<(), NotAcknowledged> {
        let state = self.wait(timeout, |state| state.has_reached(generation));
        state.acknowledged(generation)
    }

    /// How the checkpoints are doing.
    #[must_use]
    pub fn status(&self) -> CheckpointStatus {
        self.shared.lock().status.clone()
    }

    /// What tells how the checkpoints are doing, as [`status`](Self::status), to be kept by the one who shows it.
    pub fn observer(&self) -> impl Fn() -> CheckpointStatus + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.lock().status.clone()
    }

    /// Brings the index as it is now to disk, and ends the thread. What has failed is tried once more, and then no more;
    /// a disk that hangs is waited for until the time is over.
    ///
    /// # Errors
    /// If the index as it is now is not known to be on disk, and why, if that is known.
    pub fn finish(self, timeout: Duration) -> Result<(), NotAcknowledged> {
        let generation = self.reader.load().generation();
        drop(self.stop());
        // Not only until it is acknowledged: who has finished has let go of the directory.
        self.wait(timeout, |_| false).acknowledged(generation)
    }

    /// Waits until it is so, the thread has ended, or the time is over.
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

/// A generation of which it is not known whether it is on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAcknowledged {
    generation: u64,
    error: Option<CheckpointError>,
}

impl NotAcknowledged {
    /// What is wrong, if that is known; nothing: the disk is slow.
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

/// Tells, however the thread ends, that it has.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// Wakes a thread. The thread looks again whenever it is woken.
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
        // Before the snapshot is loaded: what was published before the end was asked for is in it.
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
            tell(shared, &keeper, generation, &errors);
            if !stop {
                // To look again before the thread is parked: whatever blocked it in the meantime (a lock, a logger) may
                // have taken the call to stop for its own.
                continue;
            }
        }
        if stop {
            return;
        }
        // Something was published since the look above, or the next publication wakes this thread.
        if let Poll::Ready(Some(_)) = changes.poll_next(&mut Context::from_waker(&waker)) {
            continue;
        }
        match retry_at {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

/// Acknowledges, or logs what is newly wrong.
fn tell<D: Disk>(shared: &Shared, keeper: &Keeper<D>, generation: u64, errors: &[CheckpointError]) {
    let mut state = shared.lock();
    let status = &mut state.status;
    status.files = keeper.files();
    status.wrong = keeper.wrong();
    status.unread = keeper.unread();
    let done = keeper.done();
    (status.written, status.removed, status.set_aside) = (done.written, done.removed, done.set_aside);
    (status.failures, status.last_failure) = (done.failures, done.last_failure);
    if !keeper.has_failed() {
        status.generation = Some(generation);
    }
    let before = std::mem::replace(&mut status.errors, errors.to_vec());
    drop(state);
    shared.changed.notify_all();
    // Unlocked: whoever asks for the status does not wait for the log.
    for error in errors.iter().filter(|error| !before.contains(error)) {
        tracing::warn!(path = error.path(), kind = error.kind().as_str(), "{error}");
    }
    if errors.is_empty() && !before.is_empty() {
        tracing::info!("checkpoints are written again");
    }
}
