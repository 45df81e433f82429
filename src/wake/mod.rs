//! How each publication wakes the followers of an index.
//!
//! The writer must not wait for followers, take a lock that one of them may hold, or run their code. So it
//! does not wake them itself. It counts the publication in one atomic word. If that word says that followers
//! sleep, the writer wakes one thread, the *relay*, which wakes the others:
//!
//! ```text
//! writer ── adds 1 to the word ── ASLEEP? ──> sets CALLED, unparks the relay      (at most one system call)
//! relay ─── clears CALLED, then ASLEEP, then takes the list of wakers and wakes them all
//! follower ─ reads the word, looks at the index, puts its waker on the list, sets ASLEEP
//!            if the count has changed since it was read, looks again; otherwise sleeps
//! ```
//!
//! No wake-up is lost, because all of this is one word that is changed only by read-modify-writes, which have
//! one order:
//! - A publication before the follower sets ASLEEP changes the count, so the follower looks again.
//! - A publication after that finds ASLEEP and calls the relay, unless the relay has cleared ASLEEP in
//!   between. In that case the relay takes the list afterwards, with the follower's waker on it.
//!
//! The first follower that sleeps starts the relay, and dropping the writer ends it. This module knows
//! nothing of snapshots; `follow` looks at the index.

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
/// The relay has to check the list.
const CALLED: usize = 2;
/// The writer is gone.
const GONE: usize = 4;
/// One publication. The bits from here up count publications and may wrap around.
const PUBLICATION: usize = 8;

/// State shared by the writer, the readers and the followers of one index.
pub(crate) struct Wake {
    word: AtomicUsize,
    /// Set by the relay itself, before it first reads the word.
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

    /// Call this before looking at the index: [`sleep`](Self::sleep) detects later publications.
    pub(crate) fn look(&self) -> Seen {
        Seen(self.word.load(Ordering::Acquire))
    }

    /// Counts a publication that was just made. Never waits.
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

    /// Removes a follower's waker from the list.
    fn leave(&self, id: u64) {
        if has_failed() {
            return;
        }
        // Dropped after the lock is released: a waker is foreign code.
        drop(self.with_sleepers(|sleepers| sleepers.wakers.remove(&id)));
    }

    /// Registers `waker` for the next publication after `seen` and returns true. Returns false if there was
    /// one already.
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

    /// The relay's loop, until the writer is dropped.
    fn relay(&self) {
        let parker = self.relay.get_or_init(Parker::of_this_thread);
        loop {
            // A read-modify-write, like the writer's. If the writer's comes first, this one sees its bit. If it
            // comes later, the writer sees the parker.
            let word = self.word.fetch_and(!CALLED, Ordering::AcqRel);
            if word & (CALLED | GONE) == 0 {
                parker.park();
                continue;
            }
            // Before the list is taken: followers that come later set it again.
            if !planted("clears-after-taking") {
                self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
            }
            let wakers = self.with_sleepers(|sleepers| std::mem::take(&mut sleepers.wakers));
            if planted("clears-after-taking") {
                self.word.fetch_and(!ASLEEP, Ordering::AcqRel);
            }
            for waker in wakers.into_values() {
                // A waker is foreign code. If one panics, the others must still be woken.
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

    /// Create it before a publication and drop it afterwards. After a panic in between, followers wake up and may
    /// find nothing new.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::sync::park::UNPARKED;

    const SLEEPERS: usize = 20;

    struct Told(Sender<()>);

    impl std::task::Wake for Told {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    /// Puts all to sleep. Each sends when it is woken.
    fn put_to_sleep(followers: &mut [Follower]) -> Receiver<()> {
        let (told, woken) = mpsc::channel();
        let waker = Waker::from(Arc::new(Told(told)));
        for follower in followers {
            assert!(follower.poll(&Context::from_waker(&waker), || None::<()>).is_pending());
        }
        woken
    }

    /// The writer's only system call here is to unpark a thread.
    #[test]
    fn a_publication_unparks_one_thread_however_many_sleep_and_none_if_nobody_sleeps() {
        let wake = Arc::new(Wake::new());
        let herald = Herald::new(Arc::clone(&wake));
        let publish = || {
            let before = UNPARKED.get();
            drop(herald.publication());
            UNPARKED.get() - before
        };
        assert_eq!(publish(), 0, "there is no follower");
        let mut followers: Vec<_> = (0..SLEEPERS).map(|_| Follower::new(&wake)).collect();
        assert_eq!(publish(), 0, "no follower has slept yet");
        for round in 0..100 {
            let woken = put_to_sleep(&mut followers);
            let unparked = publish();
            // In the first round the relay may still be starting. It then checks the list without being unparked.
            assert!(unparked == 1 || round == 0 && unparked == 0, "{unparked} in round {round}");
            for _ in 0..SLEEPERS {
                woken.recv_timeout(Duration::from_secs(20)).expect("a wake-up is lost");
            }
            assert_eq!(publish(), 0, "all are awake");
        }
    }
}
