//! Work that may block for ever, such as reading a file on a mount that hangs.
//!
//! The runtime's threads for blocking work are few and shared, and each waits for the end of the runtime. So such work gets
//! a thread of its own, at most one for each user: while it hangs, no other starts.

use std::fmt;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// Why work has no result.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// It has not ended yet.
    Late(Duration),
    Panicked,
    /// The system gave no thread for it.
    NotStarted(std::io::Error),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late(patience) => write!(f, "not read within {patience:?}"),
            Self::Panicked => f.write_str("reading it failed: it panicked"),
            Self::NotStarted(error) => write!(f, "no thread to read it: {error}"),
        }
    }
}

/// Does work on one thread at a time.
pub(crate) struct OneThread<T> {
    name: &'static str,
    /// The result of the work that has not ended yet.
    running: Option<oneshot::Receiver<T>>,
}

impl<T: Send + 'static> OneThread<T> {
    /// `name`: of the thread, in at most 15 bytes.
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, running: None }
    }

    /// The result of `work`, or of earlier work that was late and has ended now. While that still runs, `work` is not done.
    ///
    /// # Errors
    /// If there is no result within `patience`.
    pub(crate) async fn run(
        &mut self,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unfinished> {
        let running = match &mut self.running {
            Some(running) => running,
            idle => idle.insert(start(self.name, work)?),
        };
        let result = tokio::time::timeout(patience, running).await.map_err(|_| Unfinished::Late(patience))?;
        self.running = None;
        result.map_err(|_| Unfinished::Panicked)
    }
}

/// The result of `work`, which is done on a thread of its own. The caller sees to it that there are not many.
#[cfg(feature = "api-server")]
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    start(name, work)?.await.map_err(|_| Unfinished::Panicked)
}

fn start<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, Unfinished> {
    let (sender, result) = oneshot::channel();
    let work = move || {
        // Fails if nobody waits any more.
        let _ = sender.send(work());
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Unfinished::NotStarted)?;
    Ok(result)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};

    use super::*;

    #[tokio::test]
    async fn while_work_hangs_no_other_starts_and_its_result_counts_once_it_ends() {
        let started = Arc::new(AtomicUsize::new(0));
        let (release, released) = mpsc::channel::<()>();
        let mut thread = OneThread::new("test");
        let counted = Arc::clone(&started);
        let hanging = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            released.recv().unwrap();
            1
        };
        let patience = Duration::from_millis(10);
        assert!(matches!(thread.run(patience, hanging).await, Err(Unfinished::Late(_))));
        for _ in 0..5 {
            let counted = Arc::clone(&started);
            let other = move || counted.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(thread.run(patience, other).await, Err(Unfinished::Late(_))));
        }
        release.send(()).unwrap();
        let long = Duration::from_secs(60);
        assert_eq!(thread.run(long, || 2).await.unwrap(), 1, "the first work's result");
        assert_eq!(thread.run(long, || 2).await.unwrap(), 2);
        assert_eq!(started.load(Ordering::Relaxed), 1);
        assert!(matches!(thread.run(long, || panic!("the test's panic")).await, Err(Unfinished::Panicked)));
        assert_eq!(thread.run(long, || 3).await.unwrap(), 3);
    }
}
