//! Which snapshots there are, and what may be freed.
//!
//! `map::node` says what the memory of a snapshot rests on, and **this module keeps its side of it**: the unsafe code here is
//! the promise that a version is gone, or that it is not. Every snapshot that was ever published is held here until nobody
//! else holds it, and only then is what it alone has freed, by the writer. A snapshot that outlives the writer keeps
//! everything that was there when the writer went, until the last one goes.
//!
//! It must not know what is in a snapshot, nor when it is time to publish.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::pod::PodMeta;
use crate::snapshot::{Remains, Snapshot};
use crate::sync::{self, Published};

/// Every snapshot of an index that somebody may look at.
pub(crate) struct Versions<P> {
    current: sync::Arc<Snapshot<P>>,
    /// Those that were published before, by ascending generation.
    retired: VecDeque<Retired<P>>,
    estate: Arc<Estate<P>>,
    /// Which of the retired is to be looked at next.
    next: usize,
}

struct Retired<P> {
    snapshot: sync::Arc<Snapshot<P>>,
    /// What it has and the snapshots after it have not.
    remains: Remains<P>,
}

/// What the writer leaves behind. Every snapshot holds it, so it goes with the last of them.
pub(crate) struct Estate<P>(OnceLock<Remains<P>>);

impl<P> Default for Estate<P> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<P> Drop for Estate<P> {
    fn drop(&mut self) {
        if let Some(remains) = self.0.take() {
            // SAFETY: no snapshot is left, nor the writer.
            unsafe { remains.hand_on(None) };
        }
    }
}

impl<P: PodMeta> Versions<P> {
    /// The empty snapshot, and the cell to publish the others in.
    pub(crate) fn new() -> (Self, Published<Snapshot<P>>) {
        let estate = Arc::default();
        let current = sync::Arc::new(Snapshot::empty(Arc::clone(&estate)));
        let published = Published::new(sync::Arc::clone(&current));
        (Self { current, retired: VecDeque::new(), estate, next: 0 }, published)
    }

    /// A draft of the snapshot that follows the current one. It does not borrow these versions, so that it can be published;
    /// each write of `Writer` makes one and publishes or drops it before it returns, while it has the versions to itself.
    pub(crate) fn draft(&self) -> Snapshot<P> {
        // SAFETY: the current snapshot is kept here. A draft of it is dropped while it still is the current one, because
        // the writes of `Writer`, which alone has versions, keep no draft; or it is published, once, by `publish`, which
        // does not take one that was made before another publication.
        unsafe { self.current.draft() }
    }
}

impl<P> Versions<P> {
    pub(crate) fn current(&self) -> &Snapshot<P> {
        &self.current
    }

    pub(crate) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Makes a draft of the current snapshot the current one.
    pub(crate) fn publish(&mut self, mut draft: Snapshot<P>, published: &Published<Snapshot<P>>) {
        // What `draft` rests on.
        assert_eq!(
            draft.generation,
            self.current.generation + 1,
            "a draft of another snapshot than the current one"
        );
        let remains = draft.publish();
        let next = sync::Arc::new(draft);
        self.current = sync::Arc::clone(&next);
        self.retired.push_back(Retired { snapshot: published.swap(next), remains });
        if let Some(last) = self.retired.back_mut() {
            last.remains.drop_scrap();
        }
    }

    /// Looks at a few of the retired snapshots, those first that were not looked at for longest, and frees what can be.
    pub(crate) fn free_some(&mut self, count: usize) {
        for _ in 0..count.min(self.retired.len()) {
            if self.next >= self.retired.len() {
                self.next = 0;
            }
            if !self.free(self.next) {
                self.next += 1;
            }
        }
    }

    /// Frees of the retired snapshots whatever can be.
    pub(crate) fn free_all(&mut self) {
        let mut at = 0;
        while at < self.retired.len() {
            if !self.free(at) {
                at += 1;
            }
        }
    }

    /// Frees one of the retired snapshots, unless somebody holds it.
    fn free(&mut self, at: usize) -> bool {
        // A glance first, because to take it out and put it back costs more.
        if !self.retired.get(at).is_some_and(|retired| sync::is_sole_owner(&retired.snapshot)) {
            return false;
        }
        let Some(Retired { snapshot, remains }) = self.retired.remove(at) else { return false };
        if let Err(snapshot) = sync::try_unwrap(snapshot) {
            // Somebody made another of a `Weak`.
            self.retired.insert(at, Retired { snapshot, remains });
            return false;
        }
        let older = at.checked_sub(1).and_then(|older| self.retired.get_mut(older));
        let older = older.map(|older| (older.snapshot.generation, &mut older.remains));
        // SAFETY: nobody held the snapshot but this module, and it is gone. Every other one that is left is in the queue, in
        // order, or newer than all of it.
        unsafe { remains.hand_on(older) };
        true
    }

    /// The writer goes. What somebody still holds waits in the cell, so that no reader frees one by dropping its guard.
    pub(crate) fn leave(&mut self, published: &Published<Snapshot<P>>) {
        self.free_all();
        let mut remains = self.current.remains();
        for retired in self.retired.drain(..) {
            remains.append(retired.remains);
            published.leave_behind([retired.snapshot]);
        }
        // Set once: whoever leaves does not come back.
        let _ = self.estate.0.set(remains);
    }
}
