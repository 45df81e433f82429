//! Counts what is open, against a limit that may change meanwhile.
//!
//! A semaphore does not fit: it keeps the number with which it was made. Here whoever opens one passes the number of now. If that has
//! become smaller, what is open stays so, and no more are opened until there are fewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many are open. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenCount(Arc<AtomicUsize>);

/// One that is open, until it is dropped.
#[derive(Debug)]
pub(crate) struct Open(Arc<AtomicUsize>);

impl OpenCount {
    /// Opens one more. `None`: so many are open already, or more.
    pub(crate) fn open_one(&self, most: usize) -> Option<Open> {
        let one_more = |open: usize| (open < most).then(|| open + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Open(Arc::clone(&self.0)))
    }

    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
