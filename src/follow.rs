//! Following an index: a subscriber that each publication wakes, and waiting for one pod.
//!
//! This module compares snapshots. `wake` does the waking.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::pod::PodMeta;
use crate::pods::Key;
use crate::reader::{OwnedSnapshot, Reader};
use crate::snapshot::{Change, Snapshot};
use crate::table::wake::Follower;
pub use crate::table::wake::WaitError;

/// A subscriber: yields the changes of an index, step by step. Created by [`Reader::changes`].
///
/// Each [`Step`] leads from the snapshot that the subscriber saw last to the current one. The first step
/// reports every pod as added. As long as nothing was published, there is no first step.
///
/// | you have | use |
/// |---|---|
/// | a thread to block | [`wait`](Self::wait), [`wait_until`](Self::wait_until) |
/// | an async task, on any runtime | [`next`](Self::next) |
/// | a `Future` or `Stream` of your own | [`poll_next`](Self::poll_next), as in `futures_util::stream::poll_fn` |
/// | a loop that polls | [`try_next`](Self::try_next) |
///
/// # Consistency
/// The subscriber always reaches the latest state, and no queue builds up: each step compares two snapshots,
/// however many publications there were in between. A pod that was added and removed in between does not
/// appear. Steps never go back in time. If a pod was replaced by one with the same name and another UID, the
/// step has a removal and an addition.
///
/// # Complexity
/// A publication costs the writer one atomic exchange if no subscriber sleeps. Otherwise it also calls the waker of
/// each sleeping subscriber, on its own thread: a system call for a sleeping thread. With hundreds of sleeping
/// subscribers, publish batches.
///
/// A waker must not write to the same index, and must not wait for a thread that does. Those of async runtimes
/// do neither. If a waker panics, the others are woken and the write succeeds.
///
/// A subscriber holds the snapshot that it saw last; before its first step, none. One that waits moves on with each publication, so
/// only one that is not polled [holds an old one](OwnedSnapshot#what-it-costs-to-hold-one). Take steps regularly, or drop it.
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// use std::collections::HashMap;
///
/// let (mut writer, reader) = pod_index::new::<SimplePod>();
/// let mut changes = reader.changes();
/// let follower = std::thread::spawn(move || {
///     let mut by_uid = HashMap::new();
///     // Until the writer is gone.
///     while let Some(step) = changes.wait() {
///         for change in step.changes() {
///             match change.after() {
///                 Some(pod) => by_uid.insert(change.uid().to_owned(), pod.clone()),
///                 None => by_uid.remove(change.uid()),
///             };
///         }
///     }
///     by_uid.len()
/// });
/// writer.upsert_pod(SimplePod::new("u1", "default", "u1"))?;
/// writer.upsert_pod(SimplePod::new("u2", "default", "u2"))?;
/// writer.remove_pod_by_uid("u1");
/// drop(writer);
/// assert_eq!(follower.join().unwrap(), 1);
/// # Ok::<(), pod_index::Error>(())
/// ```
pub struct Changes<P> {
    reader: Reader<P>,
    follower: Follower,
    seen: Option<OwnedSnapshot<P>>,
}

/// The difference between two snapshots that a subscriber saw. It holds both of them: drop it when you have read its changes.
///
/// # Examples
/// See [`Changes`].
pub struct Step<P> {
    before: Option<OwnedSnapshot<P>>,
    after: OwnedSnapshot<P>,
}

impl<P: PodMeta> Changes<P> {
    /// The next step, if there is one now.
    ///
    /// # Errors
    /// [`WaitError::Empty`] if nothing was published since the last step, [`WaitError::WriterGone`] if
    /// nothing more will be.
    pub fn try_next(&mut self) -> Result<Step<P>, WaitError> {
        // In this order, so that the last publication is seen even if the writer is dropped in between.
        let has_writer = self.reader.has_writer();
        let error = if has_writer { WaitError::Empty } else { WaitError::WriterGone };
        step(&self.reader, &mut self.seen).ok_or(error)
    }

    /// Blocks until there is a next step. `None`: the writer is gone and all its publications were seen.
    pub fn wait(&mut self) -> Option<Step<P>> {
        self.follower.block(None, || step(&self.reader, &mut self.seen)).ok()
    }

    /// Blocks until there is a next step, but not past the deadline.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] at the deadline, [`WaitError::WriterGone`] if there will be no next step.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{SimplePod, WaitError};
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let mut changes = reader.changes();
    /// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
    /// let soon = Instant::now() + Duration::from_millis(10);
    /// assert_eq!(changes.wait_until(soon).expect("it was published").changes().len(), 1);
    /// assert_eq!(changes.wait_until(soon).expect_err("no news"), WaitError::TimedOut);
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    pub fn wait_until(&mut self, deadline: Instant) -> Result<Step<P>, WaitError> {
        self.follower.block(Some(deadline), || step(&self.reader, &mut self.seen))
    }

    /// Waits for the next step. `None`: the writer is gone and all its publications were seen.
    ///
    /// Works on any async runtime. Dropping the future loses no step.
    pub async fn next(&mut self) -> Option<Step<P>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Polls for the next step; otherwise like [`next`](Self::next). Only the waker of the last poll is
    /// woken.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Step<P>>> {
        self.follower.poll(context, || step(&self.reader, &mut self.seen))
    }

    /// The snapshot of the last step; `None` before the first.
    #[must_use]
    pub fn seen(&self) -> Option<&Snapshot<P>> {
        self.seen.as_deref()
    }
}

/// The step from `seen` to the current snapshot, unless they are the same.
fn step<P: PodMeta>(reader: &Reader<P>, seen: &mut Option<OwnedSnapshot<P>>) -> Option<Step<P>> {
    let last = seen.as_ref().map_or(0, |seen| seen.generation());
    if reader.load().generation() == last {
        return None;
    }
    let after = reader.snapshot();
    let before = seen.replace(after.clone());
    Some(Step { before, after })
}

impl<P: PodMeta> Step<P> {
    /// The snapshot that the subscriber saw before; `None` in the first step.
    #[must_use]
    pub fn before(&self) -> Option<&Snapshot<P>> {
        self.before.as_deref()
    }

    /// The snapshot that was current when the step was taken.
    #[must_use]
    pub fn after(&self) -> &Snapshot<P> {
        &self.after
    }

    /// The differences: as in [`Snapshot::changes_since`], or everything as added in the first step. Removals
    /// come first.
    ///
    /// Empty if the publications in between cancel out.
    ///
    /// # Complexity
    /// That of [`Snapshot::changes_since`]; O(n) for the first step.
    #[must_use]
    pub fn changes(&self) -> Vec<Change<'_, P>> {
        match &self.before {
            Some(before) => self.after.changes_since(before),
            None => self.after.pods().chain(self.after.mirror_pods()).map(Change::Added).collect(),
        }
    }
}

impl<P: PodMeta> Reader<P> {
    /// A subscriber that first reports every pod, then the changes. See [`Changes`].
    #[must_use]
    pub fn changes(&self) -> Changes<P> {
        Changes { reader: self.clone(), follower: Follower::new(&self.wake), seen: None }
    }

    /// Blocks until the index has this pod, or until the deadline. Ignores mirror pods.
    ///
    /// Use it when an event arrives before its pod, or before the status that names its container or its IP. It
    /// does not poll.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] at the deadline, [`WaitError::WriterGone`] if the pod can no longer be added.
    ///
    /// # Complexity
    /// One lookup for each publication.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{PodMeta, SimplePod};
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// std::thread::spawn(move || writer.upsert_pod(SimplePod::new("u1", "default", "web")));
    /// let pod = reader.wait_for("u1", Instant::now() + Duration::from_secs(10))?;
    /// assert_eq!(pod.name(), "web");
    /// # Ok::<(), pod_index::WaitError>(())
    /// ```
    pub fn wait_for<'k>(&self, key: impl Into<Key<'k>>, deadline: Instant) -> Result<Arc<P>, WaitError> {
        let key = key.into();
        Follower::new(&self.wake).block(Some(deadline), || self.pod(key))
    }

    /// Like [`wait_for`](Self::wait_for), for async tasks; combine it with the runtime's timeout. `None`: the
    /// writer is gone, so the pod can no longer be added.
    pub async fn wait_for_async<'k>(&self, key: impl Into<Key<'k>>) -> Option<Arc<P>> {
        let key = key.into();
        let mut follower = Follower::new(&self.wake);
        poll_fn(|context| follower.poll(context, || self.pod(key))).await
    }
}

shown!(Step, |step| before: step.before().map(Snapshot::generation), after: step.after().generation());
shown!(Changes, |changes| seen: changes.seen().map(Snapshot::generation));
