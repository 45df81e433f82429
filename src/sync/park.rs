//! How a thread sleeps until another one wakes it: std's parking, or the same built on loom's and shuttle's
//! locks.
//!
//! Their own `park` is not used: loom's `unpark` wakes a thread from any wait, including a lock.

#[cfg(not(any(loom, shuttle)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread::{self, Thread};
    use std::time::Duration;

    /// Lets one thread sleep. Only the thread that created it may sleep on it.
    pub(crate) struct Parker(Thread);

    impl Parker {
        pub(crate) fn of_this_thread() -> Self {
            Self(thread::current())
        }

        /// Sleeps until [`unpark`](Self::unpark), which may have been called earlier. May return spuriously.
        pub(crate) fn park(&self) {
            debug_assert_eq!(self.0.id(), thread::current().id());
            thread::park();
        }

        /// Like [`park`](Self::park), for at most `limit`.
        pub(crate) fn park_timeout(&self, limit: Duration) {
            debug_assert_eq!(self.0.id(), thread::current().id());
            thread::park_timeout(limit);
        }

        /// Never waits. One system call if the thread sleeps, none otherwise.
        pub(crate) fn unpark(&self) {
            #[cfg(test)]
            UNPARKED.set(UNPARKED.get() + 1);
            self.0.unpark();
        }
    }

    #[cfg(test)]
    thread_local! {
        /// How often this thread has unparked another.
        pub(crate) static UNPARKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
        let started = thread::Builder::new().name(name.to_owned()).spawn(run);
        if let Err(error) = started {
            panic!("the thread {name} cannot be started: {error}");
        }
    }

    /// No bugs are planted here.
    pub(crate) const fn planted(_bug: &str) -> bool {
        false
    }

    /// Whether the run of a model has failed, so that another step would hide the reason.
    pub(crate) const fn has_failed() -> bool {
        false
    }
}

#[cfg(any(loom, shuttle))]
mod modelled {
    use std::time::Duration;

    #[cfg(loom)]
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize};
    #[cfg(loom)]
    use loom::{
        sync::{Condvar, Mutex},
        thread,
    };
    #[cfg(shuttle)]
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
    #[cfg(shuttle)]
    use shuttle::{
        sync::{Condvar, Mutex},
        thread,
    };

    pub(crate) use crate::sync::model::planted;

    /// Like `real::Parker`.
    pub(crate) struct Parker {
        unparked: Mutex<bool>,
        sleeps: Condvar,
    }

    impl Parker {
        pub(crate) fn of_this_thread() -> Self {
            Self { unparked: Mutex::new(false), sleeps: Condvar::new() }
        }

        pub(crate) fn park(&self) {
            let mut unparked = self.unparked.lock().expect("no panic");
            while !*unparked {
                unparked = self.sleeps.wait(unparked).expect("no panic");
            }
            *unparked = false;
        }

        /// The explorers have no time: the limit is never reached.
        pub(crate) fn park_timeout(&self, _limit: Duration) {
            self.park();
        }

        pub(crate) fn unpark(&self) {
            *self.unparked.lock().expect("no panic") = true;
            self.sleeps.notify_one();
        }
    }

    pub(crate) fn spawn(_name: &str, run: impl FnOnce() + Send + 'static) {
        drop(thread::spawn(run));
    }

    /// Like `real::has_failed`.
    pub(crate) fn has_failed() -> bool {
        std::thread::panicking()
    }
}

#[cfg(any(loom, shuttle))]
pub(crate) use self::modelled::{AtomicBool, AtomicUsize, Parker, has_failed, planted, spawn};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use self::real::UNPARKED;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::real::{AtomicBool, AtomicUsize, Parker, has_failed, planted, spawn};
