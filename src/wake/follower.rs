//! A follower sleeps until the index has what it looks for: as a polled future, or by blocking its thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::Wake;
use crate::sync::park::{AtomicBool, Parker};

pub(crate) struct Follower {
    wake: Arc<Wake>,
    id: u64,
}

pub(crate) struct TimedOut;

impl Follower {
    pub(crate) fn new(wake: &Arc<Wake>) -> Self {
        Self { wake: Arc::clone(wake), id: wake.enter() }
    }

    /// What `look` finds in the index. `None`: nothing was found, and the writer is gone.
    pub(crate) fn poll<T>(
        &mut self,
        context: &Context<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        loop {
            let seen = self.wake.look();
            if let Some(found) = look() {
                return Poll::Ready(Some(found));
            }
            // The writer published before it was dropped, so the `look` above saw its last publication.
            if seen.writer_is_gone() {
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
    ) -> Result<Option<T>, TimedOut> {
        let sleeper = Arc::new(Sleeper { woken: AtomicBool::new(false), parker: Parker::of_this_thread() });
        let waker = Waker::from(Arc::clone(&sleeper));
        loop {
            if let Poll::Ready(found) = self.poll(&Context::from_waker(&waker), &mut look) {
                return Ok(found);
            }
            while !sleeper.woken.swap(false, Ordering::AcqRel) {
                let Some(deadline) = deadline else {
                    sleeper.parker.park();
                    continue;
                };
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(TimedOut);
                }
                sleeper.parker.park_timeout(left);
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.wake.leave(self.id);
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
