//! The checkpoint thread.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time;

use super::disk::Disk;
use super::error::{CheckpointError, CheckpointErrorKind};
use super::keep::Keeper;
use super::status::CheckpointStatus;
use crate::HasPod;
use crate::backoff::{Backoff, FOREVER};
use pod_index::Reader;

/// The first and the longest wait before a failed operation is retried.
const LEAST_WAIT: Duration = Duration::from_secs(1);
const MOST_WAIT: Duration = Duration::from_secs(30);

/// The thread that keeps the files up to date. Dropping this handle ends the thread.
#[must_use = "dropping it ends the thread"]
pub struct Checkpointing {
    status: watch::Receiver<CheckpointStatus>,
    /// The thread ends after this is dropped.
    stop: oneshot::Sender<()>,
    /// Says which generation the index has now.
    generation: Box<dyn Fn() -> u64 + Send + Sync>,
    directory: PathBuf,
}

impl Checkpointing {
    pub(super) fn start<D, P>(keeper: Keeper<D, P>, reader: Reader<P>) -> io::Result<Self>
    where
        D: Disk,
        P: HasPod + Send + Sync + 'static,
    {
        let (sender, status) = watch::channel(keeper.status());
        let (stop, stopped) = oneshot::channel();
        let followed = reader.clone();
        // Without a trailing separator.
        let directory = keeper.disk.path("").components().collect();
        // A disk that hangs must not hold up other tasks.
        let runtime = runtime::Builder::new_current_thread().enable_time().build()?;
        let work = move || runtime.block_on(run(sender, keeper, &followed, stopped));
        thread::Builder::new().name("checkpoint".to_owned()).spawn(work)?;
        let generation = Box::new(move || reader.load().generation());
        Ok(Self { status, stop, generation, directory })
    }

    /// Waits until this generation of the index, or a later one, is on disk. After that, no kill or power loss
    /// loses it. Must be called within a tokio runtime with time enabled.
    ///
    /// # Errors
    /// If the timeout expires or the thread has ended: the disk's problem, or [`CheckpointErrorKind::Late`] if none is known.
    pub async fn wait_for(&self, generation: u64, timeout: Duration) -> Result<(), CheckpointError> {
        let reached = |status: &CheckpointStatus| status.generation >= Some(generation);
        acknowledged(&self.directory, self.status(), generation, timeout, reached).await
    }

    /// The status. The receiver keeps the last one after the thread has ended.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<CheckpointStatus> {
        self.status.clone()
    }

    /// Writes the current state of the index to disk and ends the thread. Failed operations are repeated
    /// once. If the disk hangs, this waits until the timeout. Must be called within a tokio runtime with time enabled.
    ///
    /// # Errors
    /// If the current state may not be on disk, like [`wait_for`](Self::wait_for).
    pub async fn finish(self, timeout: Duration) -> Result<(), CheckpointError> {
        let Self { status, stop, generation, directory } = self;
        let generation = generation();
        drop(stop);
        // Wait until the thread has ended, not only for the acknowledgement: it unlocks the directory at its end.
        acknowledged(&directory, status, generation, timeout, |_| false).await
    }
}

impl_debug!(Checkpointing, directory);

/// Waits until `is_so`, the thread's end or the timeout, whichever comes first.
async fn acknowledged(
    directory: &Path,
    mut status: watch::Receiver<CheckpointStatus>,
    generation: u64,
    timeout: Duration,
    is_so: impl Fn(&CheckpointStatus) -> bool,
) -> Result<(), CheckpointError> {
    let _ = time::timeout(timeout.min(FOREVER), status.wait_for(is_so)).await;
    let status = status.borrow();
    if status.generation >= Some(generation) {
        return Ok(());
    }
    Err(status.errors.first().cloned().unwrap_or_else(|| {
        let message = format!("generation {generation} is not known to be on disk");
        CheckpointError::new(CheckpointErrorKind::Late, directory, message)
    }))
}

/// `status` is dropped last, even after a panic: it tells of the end, and then the directory must be unlocked.
async fn run<D: Disk, P: HasPod>(
    status: watch::Sender<CheckpointStatus>,
    mut keeper: Keeper<D, P>,
    reader: &Reader<P>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut changes = reader.changes();
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    let mut retry_at = None::<Instant>;
    let mut is_last = false;
    loop {
        // The pass covers all publications so far.
        let _ = changes.try_next();
        let snapshot = reader.snapshot();
        let generation = snapshot.generation();
        let retry = is_last || retry_at.is_some_and(|at| Instant::now() >= at);
        let errors = keeper.pass(snapshot, retry);
        if errors.is_empty() {
            (backoff, retry_at) = (Backoff::new(LEAST_WAIT, MOST_WAIT), None);
        } else if retry || retry_at.is_none() {
            let now = Instant::now();
            retry_at = Some(now + backoff.wait(now));
        }
        acknowledge(&status, &keeper, generation, &errors);
        if is_last {
            return;
        }
        // A few at a time, so that no pod's checkpoint waits for them.
        let has_more = keeper.check_some();
        tokio::select! {
            // The next pass covers everything that was published before.
            _ = &mut stop => is_last = true,
            // Without a writer there are no more changes to wait for.
            Some(_) = changes.next() => {}
            () = time::sleep_until(retry_at.unwrap_or_else(|| Instant::now() + FOREVER).into()) => {}
            () = tokio::task::yield_now(), if has_more => {}
        }
    }
}

/// Acknowledges the generation, or logs new errors.
fn acknowledge<D: Disk, P: HasPod>(
    status: &watch::Sender<CheckpointStatus>,
    keeper: &Keeper<D, P>,
    generation: u64,
    errors: &[CheckpointError],
) {
    let generation = if errors.is_empty() { Some(generation) } else { status.borrow().generation };
    let now = CheckpointStatus { generation, errors: errors.to_vec(), ..keeper.status() };
    let before = status.send_replace(now).errors;
    // A full disk fails every file: one line, with their number. The status has all.
    let new: Vec<_> = errors.iter().filter(|error| !before.contains(error)).collect();
    if let [error, ..] = &new[..] {
        tracing::warn!(path = error.path, kind = error.kind.as_str(), files = new.len(), "{error}");
    }
    if errors.is_empty() && !before.is_empty() {
        tracing::info!("checkpoints are written again");
    }
}
