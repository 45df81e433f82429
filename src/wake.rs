//! How a publication wakes the followers of an index: threads and tasks that sleep until it has what they look for.
//!
//! The writer counts each publication in one atomic word, and then wakes those who sleep:
//!
//! ```text
//! writer ─── publishes, adds 1 to the word ─── ASLEEP? ──> clears ASLEEP, takes the list of wakers, wakes them all
//! follower ─ reads the word, looks at the index, puts its waker on the list, sets ASLEEP
//!            if the count has changed since it was read, looks again; otherwise sleeps
//! ```
//!
//! No wake-up is lost, because all of this is one word that is changed only by read-modify-writes, which have
//! one order:
//! - A publication before the follower sets ASLEEP changes the count, so the follower looks again.
//! - A publication after that finds ASLEEP and takes the list, on which the follower is, unless an earlier
//!   publication has cleared ASLEEP in between. In that case the earlier one takes the list afterwards.
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

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Parker, has_failed};

/// There are wakers on the list.
const ASLEEP: usize = 1;
/// The writer is gone.
const GONE: usize = 2;
/// One publication. The bits from here up count publications and may wrap around.
const PUBLICATION: usize = 4;

/// State shared by the writer, the readers and the followers of one index.
pub(crate) struct Wake {
    word: AtomicUsize,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    next_id: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Wake {
    pub(crate) fn new() -> Self {
        Self { word: AtomicUsize::new(0), sleepers: Mutex::new(Sleepers::default()) }
    }

    pub(crate) fn has_writer(&self) -> bool {
        self.word.load(Ordering::Acquire) & GONE == 0
    }

    /// Counts a publication that was just made, or the end of the writer, and wakes who sleeps.
    fn count(&self, news: usize) {
        if self.word.fetch_add(news, Ordering::AcqRel) & ASLEEP != 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        // Before the list is taken: a follower that comes later sets it again.
        self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
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

    /// Registers `waker` for the next news after the word was `seen`, and returns true. Returns false if there was some
    /// already.
    fn sleep(&self, id: u64, waker: Waker, seen: usize) -> bool {
        // Dropped after the lock is released: a waker is foreign code.
        drop(self.with_sleepers(|sleepers| sleepers.wakers.insert(id, waker)));
        let now = self.word.fetch_or(ASLEEP, Ordering::AcqRel);
        now | ASLEEP == seen | ASLEEP
    }
}

/// The writer's side. Dropped with the writer.
pub(crate) struct Announcer(pub(crate) Arc<Wake>);

impl Announcer {
    pub(crate) fn published(&self) {
        self.0.count(PUBLICATION);
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        if !has_failed() {
            self.0.count(GONE);
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
        loop {
            // Before looking at the index: `sleep` detects what is published afterwards.
            let seen = self.wake.word.load(Ordering::Acquire);
            if let Some(found) = look() {
                return Poll::Ready(Some(found));
            }
            // The writer published before it was dropped, so the `look` above saw its last publication.
            if seen & GONE != 0 {
                return Poll::Ready(None);
            }
            if self.wake.sleep(self.id, context.waker().clone(), seen) {
                return Poll::Pending;
            }
        }
    }

    /// Like [`poll`](Self::poll), but sleeps in between, at most until the deadline.
    pub(crate) fn block<T>(
        &mut self,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, WaitError> {
        let sleeper = Arc::new(Sleeper { woken: AtomicBool::new(false), parker: Parker::of_this_thread() });
        let waker = Waker::from(Arc::clone(&sleeper));
        loop {
            if let Poll::Ready(found) = self.poll(&Context::from_waker(&waker), &mut look) {
                return found.ok_or(WaitError::WriterGone);
            }
            while !sleeper.woken.swap(false, Ordering::AcqRel) {
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
    /// An unpark alone is not enough: other code of the thread may use it too.
    woken: AtomicBool,
    parker: Parker,
}

impl std::task::Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.parker.unpark();
        }
    }
}
