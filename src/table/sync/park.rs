//! How a thread sleeps until another one wakes it.

use std::thread::{self, Thread};
use std::time::Duration;

/// Lets one thread sleep. Only the thread that created it may sleep on it.
pub(crate) struct Parker(Thread);

impl Parker {
    pub(crate) fn of_this_thread() -> Self {
        Self(thread::current())
    }

    /// Sleeps until [`unpark`](Self::unpark), which may have been called earlier, but no longer than the limit. May return
    /// spuriously.
    pub(crate) fn park(&self, limit: Option<Duration>) {
        debug_assert_eq!(self.0.id(), thread::current().id());
        limit.map_or_else(thread::park, thread::park_timeout);
    }

    /// Never waits. One system call if the thread sleeps, none otherwise.
    pub(crate) fn unpark(&self) {
        self.0.unpark();
    }
}

/// Whether the run of a model has failed, so that another step would hide the reason.
pub(crate) const fn has_failed() -> bool {
    false
}
