//! Whether anybody asks for the owners of a kind: what nobody asks for is requested late, or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Shared by those who ask, and the follower.
#[derive(Debug, Default)]
pub(super) struct Interest {
    asked: Mutex<Asked>,
    /// Whether those that are missing are wanted at once.
    is_urgent: AtomicBool,
    /// Wakes the follower.
    woken: Notify,
}

/// The requests for owners of a kind.
#[derive(Debug, Default)]
struct Asked {
    last: Option<Instant>,
    /// The request that last woke the follower.
    woke: Option<Instant>,
}

/// Minimum time between two requests that wake the follower.
const WAKE: Duration = Duration::from_secs(60);

impl Interest {
    /// Somebody asks for the owners.
    pub(super) fn ask(&self) {
        let now = Instant::now();
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.last = Some(now);
            if asked.woke.is_none_or(|woke| now.duration_since(woke) >= WAKE) {
                asked.woke = Some(now);
                self.woken.notify_one();
            }
        }
        self.hurry();
    }

    /// What is missing is wanted at once.
    pub(super) fn hurry(&self) {
        if !self.is_urgent.swap(true, Ordering::Relaxed) {
            self.woken.notify_one();
        }
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::Relaxed)
    }

    /// When somebody last asked for owners of the kind.
    pub(super) fn asked_at(&self) -> Option<Instant> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// Waits for a reason to look what is due.
    pub(super) async fn woken(&self) {
        self.woken.notified().await;
    }
}
