//! Work that may block for ever, such as reading a file on a mount that hangs.
//!
//! The runtime's threads for blocking work are few and shared, and each waits for the end of the runtime. So such work gets
//! a thread of its own, at most one for each user ([`OneThread`]): while it hangs, no other starts. A thread ends with its
//! work, also if nobody waits for that any more.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Why work has no result.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// It has not ended within this time. It goes on.
    Late(Duration),
    /// Earlier work of the same user has not ended.
    Busy,
    Panicked,
    /// The system gave no thread for it.
    NotStarted(std::io::Error),
}

/// In words that fit any work: who asked for it says in front of them what it was about.
impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(patience) => write!(f, "no answer within {patience:?}"),
            Self::Busy => f.write_str("an earlier attempt has not ended"),
            Self::Panicked => f.write_str("the attempt panicked"),
            Self::NotStarted(error) => write!(f, "no thread for it: {error}"),
        }
    }
}

/// What work has returned, or what it has panicked with.
type Outcome<T> = Result<T, Box<dyn Any + Send>>;

/// Does one piece of work at a time, each on a thread that ends with it.
#[derive(Debug)]
pub(crate) struct OneThread {
    name: &'static str,
    is_busy: Arc<AtomicBool>,
}

impl OneThread {
    /// `name`: of the thread, in at most 15 bytes.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, is_busy: Arc::default() }
    }

    /// Starts work.
    ///
    /// # Errors
    /// If other work has not ended, even if nobody waits for it any more.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Unfinished> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(Unfinished::Busy);
        }
        let is_busy = Arc::clone(&self.is_busy);
        let started = Instant::now();
        let result = start(self.name, move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // Before the result is sent: who receives it may start other work.
            is_busy.store(false, Ordering::Release);
            outcome
        });
        match result {
            Ok(result) => Ok(Job { result, started }),
            Err(error) => {
                self.is_busy.store(false, Ordering::Release);
                Err(Unfinished::NotStarted(error))
            }
        }
    }
}

/// Work that a [`OneThread`] has started.
#[derive(Debug)]
pub(crate) struct Job<T> {
    result: oneshot::Receiver<Outcome<T>>,
    pub(crate) started: Instant,
}

impl<T> Job<T> {
    /// Waits for the result. After [`Unfinished::Late`], wait again: work that takes long has a result all the same.
    ///
    /// # Errors
    /// If there is none within `patience`.
    ///
    /// # Panics
    /// If the work has panicked, with its message. The job is over then.
    pub(crate) async fn within(&mut self, patience: Duration) -> Result<T, Unfinished> {
        let ended = tokio::time::timeout(patience, self.ended()).await;
        ended.map_err(|_elapsed| Unfinished::Late(patience))
    }

    /// Waits for the result, however long that takes.
    ///
    /// # Panics
    /// As [`within`](Self::within).
    pub(crate) async fn ended(&mut self) -> T {
        match (&mut self.result).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_closed) => unreachable!("the thread sends an outcome, also of work that panics"),
        }
    }
}

/// The result of `work`, which is done on a thread of its own. The caller sees to it that there are not many.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let result = start(name, work).map_err(Unfinished::NotStarted)?;
    result.await.map_err(|_closed| Unfinished::Panicked)
}

/// Starts a thread with this name that does `work`. If it panics, the channel of the result is closed.
///
/// # Errors
/// If the system has no thread.
pub(crate) fn start<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<oneshot::Receiver<T>> {
    let (sender, result) = oneshot::channel();
    let work = move || {
        // Fails if nobody waits any more.
        let _ = sender.send(work());
    };
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn while_work_hangs_no_other_starts_and_its_result_counts_once_it_ends() {
        let thread = OneThread::new("test");
        let (release, released) = mpsc::channel::<()>();
        let mut hanging = thread.start(move || released.recv().map(|()| 1)).unwrap();
        for _ in 0..5 {
            assert!(matches!(hanging.within(SHORT).await, Err(Unfinished::Late(_))));
            assert!(matches!(thread.start(|| 2), Err(Unfinished::Busy)));
        }
        release.send(()).unwrap();
        assert_eq!(hanging.within(LONG).await.unwrap(), Ok(1));
        assert_eq!(thread.start(|| 2).unwrap().within(LONG).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_keeps_other_work_out_until_it_ends() {
        let thread = OneThread::new("test");
        let (release, released) = mpsc::channel::<()>();
        drop(thread.start(move || released.recv()).unwrap());
        assert!(matches!(thread.start(|| 2), Err(Unfinished::Busy)));
        release.send(()).unwrap();
        while matches!(thread.start(|| ()), Err(Unfinished::Busy)) {
            tokio::time::sleep(SHORT).await;
        }
    }

    #[tokio::test]
    async fn a_panic_reaches_who_waits_and_ends_nothing_else() {
        let thread = OneThread::new("test");
        let mut job = thread.start(|| panic!("the test's panic")).unwrap();
        let waiting = AssertUnwindSafe(job.within(LONG));
        let panic = waiting.catch_unwind().await.err().unwrap();
        assert_eq!(panic.downcast_ref(), Some(&"the test's panic"));
        assert_eq!(thread.start(|| 3).unwrap().within(LONG).await.unwrap(), 3);
    }
}
