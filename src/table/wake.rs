//! How a publication wakes the followers of an index: threads and tasks that sleep until it has what they look for.
//!
//! ```text
//! writer ─── publishes ─── takes `asleep`. Was it set? ──> takes the list of wakers, wakes them all
//! follower ─ puts its waker on the list, sets `asleep`, and looks at the index for the last time before it sleeps
//! ```
//!
//! No wake-up is lost, because `asleep` is changed only by swaps, which have one order:
//! - If the writer's swap is first, the follower's swap reads from it, so that the follower sees the publication.
//! - If the follower's swap is first, the writer finds the flag set, unless an earlier publication has taken it in
//!   between. One of the two takes the list afterwards, on which the follower is.
//!
//! Without sleepers a publication takes no lock. With sleepers it takes the lock of the list, which a follower holds
//! only to put its waker there or to remove it. No waker runs or is dropped under the lock.
//!
//! This module knows nothing of snapshots; `follow` looks at the index.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::table::sync::{AtomicBool, Mutex, Parker, has_failed};

/// State shared by the writer, the readers and the followers of one index.
#[derive(Default)]
pub(crate) struct Wake {
    /// There may be wakers on the list.
    asleep: AtomicBool,
    /// The writer is gone.
    gone: AtomicBool,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    next_id: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Wake {
    pub(crate) fn has_writer(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    /// Wakes who sleeps, after a publication or the end of the writer.
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let wakers = self.with_sleepers(|sleepers| std::mem::take(&mut sleepers.wakers));
        for waker in wakers.into_values() {
            // A waker is foreign code. If one panics, the others must still be woken, and the write has succeeded.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                // Its `Drop` is foreign code, too.
                std::mem::forget(panic);
            }
        }
    }

    fn with_sleepers<R>(&self, run: impl FnOnce(&mut Sleepers) -> R) -> R {
        run(&mut self.sleepers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The writer's side. Dropped with the writer.
pub(crate) struct Announcer(pub(crate) Arc<Wake>);

impl Announcer {
    pub(crate) fn published(&self) {
        self.0.wake();
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        if !has_failed() {
            self.0.gone.store(true, Ordering::Release);
            self.0.wake();
        }
    }
}

/// Sleeps until the index has what it looks for: as a polled future, or by blocking its thread.
pub(crate) struct Follower {
    wake: Arc<Wake>,
    id: u64,
}

/// Why there is nothing to return.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// Nothing was published since the last step.
    Empty,
    /// The deadline has passed.
    TimedOut,
    /// The writer is gone, so nothing more will be published.
    WriterGone,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "nothing was published since the last step",
            Self::TimedOut => "timed out",
            Self::WriterGone => "the index has no writer any more",
        })
    }
}

impl std::error::Error for WaitError {}

impl Follower {
    pub(crate) fn new(wake: &Arc<Wake>) -> Self {
        let id = wake.with_sleepers(|sleepers| {
            sleepers.next_id += 1;
            sleepers.next_id
        });
        Self { wake: Arc::clone(wake), id }
    }

    /// What `look` finds in the index. `None`: nothing was found, and the writer is gone.
    pub(crate) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        if let Some(found) = look() {
            return Poll::Ready(Some(found));
        }
        // Dropped after the lock is released: a waker is foreign code.
        let waker = context.waker().clone();
        drop(self.wake.with_sleepers(|sleepers| sleepers.wakers.insert(self.id, waker)));
        self.wake.asleep.swap(true, Ordering::AcqRel);
        // The writer published before it was dropped, so `look` sees its last publication.
        let has_writer = self.wake.has_writer();
        match look() {
            None if has_writer => Poll::Pending,
            found => Poll::Ready(found),
        }
    }

    /// Like [`poll`](Self::poll), but sleeps in between, at most until the deadline.
    pub(crate) fn block<T>(
        &mut self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let sleeper =
            Arc::new(Sleeper { is_woken: AtomicBool::new(false), parker: Parker::of_this_thread() });
        let waker = Waker::from(Arc::clone(&sleeper));
        loop {
            if let Poll::Ready(found) = self.poll(&Context::from_waker(&waker), &mut look) {
                return found.ok_or(WaitError::WriterGone);
            }
            while !sleeper.is_woken.swap(false, Ordering::AcqRel) {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(WaitError::TimedOut);
                }
                sleeper.parker.park(left);
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if !has_failed() {
            // Dropped after the lock is released: a waker is foreign code.
            drop(self.wake.with_sleepers(|sleepers| sleepers.wakers.remove(&self.id)));
        }
    }
}

/// A sleeping thread.
struct Sleeper {
    /// An unpark alone is not enough: `look` runs foreign code, which may park the thread and so use it up.
    is_woken: AtomicBool,
    parker: Parker,
}

impl std::task::Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.parker.unpark();
        }
    }
}

#[cfg(all(test, not(any(pod_index_loom, pod_index_shuttle))))]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_look_that_parks_its_thread_takes_no_wake_up_away() {
        let wake = Arc::new(Wake::default());
        let announcer = Announcer(Arc::clone(&wake));
        let mut looks = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        let found = Follower::new(&wake).block(Some(deadline), || {
            looks += 1;
            if looks == 2 {
                announcer.published();
                // As a lock or a channel of foreign code may.
                thread::park_timeout(Duration::ZERO);
            }
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Ok(3));
        assert!(Instant::now() < deadline, "it slept until the deadline");
    }
}
