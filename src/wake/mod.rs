//! How those who follow an index are woken by each publication.
//!
//! The writer must not wait for them, take a lock that one of them may hold, or run code of theirs. So it does not wake
//! them itself. It counts the publication in one word and, if that word says that somebody sleeps, wakes one thread, the
//! *relay*, which wakes the rest:
//!
//! ```text
//! writer ── adds 1 to the word ── ASLEEP? ──> sets CALLED, unparks the relay      (at most one system call)
//! relay ─── clears CALLED, then ASLEEP, then takes the list of wakers and wakes them all
//! follower ─ reads the word, looks at the index, puts its waker on the list, sets ASLEEP
//!            if the word has counted on since it was read, looks again; otherwise sleeps
//! ```
//!
//! No wake-up is lost, because all of it is one word that everybody changes by read-modify-writes, which have one order:
//! - A publication that comes before the follower sets ASLEEP shows in the count, and the follower looks again.
//! - One that comes after it finds ASLEEP, and calls the relay, unless the relay has cleared ASLEEP in between. Then the
//!   relay takes the list after that, with the follower's waker on it.
//!
//! The relay is started by the first follower that sleeps and ends when the writer goes. This room knows nothing of
//! snapshots; `follow` looks at the index.

mod follower;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::Waker;

use crate::sync::Mutex;
use crate::sync::park::{AtomicUsize, Parker, has_failed, planted, spawn};

pub(crate) use self::follower::{Follower, TimedOut};

/// There are wakers on the list.
const ASLEEP: usize = 1;
/// The relay is to look at the list.
const CALLED: usize = 2;
/// The writer is gone.
const GONE: usize = 4;
/// One publication. The bits above count them, and may wrap around.
const PUBLICATION: usize = 8;

/// What the writer, the readers and the followers of one index share.
pub(crate) struct Wake {
    word: AtomicUsize,
    /// Set by the relay itself, before it looks at the word for the first time.
    relay: OnceLock<Parker>,
    sleepers: Mutex<Sleepers>,
}

struct Sleepers {
    relay_started: bool,
    next_id: u64,
    wakers: BTreeMap<u64, Waker>,
}

/// The state of the word at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Seen(usize);

impl Seen {
    pub(crate) fn writer_is_gone(self) -> bool {
        self.0 & GONE != 0
    }

    fn publications(self) -> usize {
        self.0 / PUBLICATION
    }
}

impl Wake {
    pub(crate) fn new() -> Self {
        let sleepers = Sleepers { relay_started: false, next_id: 0, wakers: BTreeMap::new() };
        Self { word: AtomicUsize::new(0), relay: OnceLock::new(), sleepers: Mutex::new(sleepers) }
    }

    /// To be asked before one looks at the index: what is published later shows in [`sleep`](Self::sleep).
    pub(crate) fn look(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// Counts a publication, after it was made. Waits for nobody.
    fn published(&self) {
        let before = self.word.fetch_add(PUBLICATION, Ordering::AcqRel);
        if before & ASLEEP != 0 && !planted("calls-nobody") {
            self.call();
        }
    }

    fn writer_goes(&self) {
        self.word.fetch_or(GONE, Ordering::AcqRel);
        if !planted("goes-in-silence") {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // Once is enough until the relay has cleared it.
        if self.word.fetch_or(CALLED, Ordering::AcqRel) & CALLED == 0
            && let Some(relay) = self.relay.get()
        {
            relay.unpark();
        }
    }

    fn with_sleepers<R>(&self, run: impl FnOnce(&mut Sleepers) -> R) -> R {
        run(&mut self.sleepers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of a new follower.
    fn enter(&self) -> u64 {
        self.with_sleepers(|sleepers| {
            sleepers.next_id += 1;
            sleepers.next_id
        })
    }

    /// Takes a follower's waker off the list.
    fn leave(&self, id: u64) {
        if has_failed() {
            return;
        }
        // Dropped after the lock is released: a waker's code is not ours.
        drop(self.with_sleepers(|sleepers| sleepers.wakers.remove(&id)));
    }

    /// Has `waker` woken by the next publication after `seen`, and returns true; or returns false if that was already.
    ///
    /// # Panics
    /// If the relay cannot be started.
    fn sleep(self: &Arc<Self>, id: u64, waker: Waker, seen: Seen) -> bool {
        let replaced = self.with_sleepers(|sleepers| {
            if !sleepers.relay_started {
                let wake = Arc::clone(self);
                spawn("pod-index-wake", move || wake.relay());
                sleepers.relay_started = true;
            }
            sleepers.wakers.insert(id, waker)
        });
        drop(replaced);
        let now = Seen(self.word.fetch_or(ASLEEP, Ordering::AcqRel));
        if planted("sleeps-without-looking-again") {
            return true;
        }
        now.publications() == seen.publications() && !now.writer_is_gone()
    }

    /// What the relay does, as long as the writer is there.
    fn relay(&self) {
        let parker = self.relay.get_or_init(Parker::of_this_thread);
        loop {
            // A read-modify-write. If the writer's own comes first, it shows here; if it comes later, the writer sees
            // the parker.
            let word = self.word.fetch_and(!CALLED, Ordering::AcqRel);
            if word & (CALLED | GONE) == 0 {
                parker.park();
                continue;
            }
            // Before the list is taken: a follower that comes later sets it again.
            if !planted("clears-after-taking") {
                self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
            }
            let wakers = self.with_sleepers(|sleepers| std::mem::take(&mut sleepers.wakers));
            if planted("clears-after-taking") {
                self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
            }
            for waker in wakers.into_values() {
                // A waker's code is not ours. The followers of all others must be woken nevertheless.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
            if word & GONE != 0 {
                return;
            }
        }
    }
}

/// The writer's side.
pub(crate) struct Herald(Arc<Wake>);

impl Herald {
    pub(crate) fn new(wake: Arc<Wake>) -> Self {
        Self(wake)
    }

    /// To be made before a publication and dropped after it. If something panics in between, followers look in vain at
    /// worst.
    pub(crate) fn publication(&self) -> Publication<'_> {
        Publication(&self.0)
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        if has_failed() {
            return;
        }
        self.0.writer_goes();
    }
}

pub(crate) struct Publication<'a>(&'a Wake);

impl Drop for Publication<'_> {
    fn drop(&mut self) {
        if has_failed() {
            return;
        }
        self.0.published();
    }
}
