//! Runs a source for ever, also if it panics.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::stream::unfold;

use crate::backoff::{Backoff, Pauses};
use crate::sources::status::StatusWriter;
use crate::sources::{SourceUpdate, Updates};

/// How long to pause after a panic. A decoder that panics on an object will do so again, until that object has changed.
const AFTER_PANIC: Pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(60));

/// A source of objects `P`: waits for changes, and reports them.
pub(in crate::sources) trait Follow<P>: Send + 'static {
    /// The next update. Failures are recorded in the status, and retried after a pause.
    fn next(&mut self) -> impl Future<Output = SourceUpdate<P>> + Send;

    /// Called after `next` has panicked, before it is called again: drops what may be half done. What was emitted so far
    /// still counts.
    fn begin_anew(&mut self);
}

/// The updates of a source, whose status this is.
pub(in crate::sources) fn follow<P: 'static>(
    source: impl Follow<P>,
    status: Arc<StatusWriter>,
) -> Updates<P> {
    let receiver = status.subscribe();
    let following =
        Following { source, status, pauses: Backoff::new(AFTER_PANIC.first, AFTER_PANIC.longest) };
    let updates = unfold(following, async |mut following| {
        let update = following.next().await;
        Some((update, following))
    });
    Updates::new(updates, receiver)
}

struct Following<F> {
    source: F,
    status: Arc<StatusWriter>,
    pauses: Backoff,
}

impl<F> Following<F> {
    async fn next<P>(&mut self) -> SourceUpdate<P>
    where
        F: Follow<P>,
    {
        loop {
            if let Ok(update) = AssertUnwindSafe(self.source.next()).catch_unwind().await {
                return update;
            }
            self.status.panicked();
            self.source.begin_anew();
            let now = Instant::now();
            let pause = self.pauses.wait(now);
            self.status.tries_again(Some(now + pause));
            tokio::time::sleep(pause).await;
            self.status.tries_again(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use tokio::time::Instant;

    use super::*;
    use crate::sources::{ProblemKind, Source};

    /// Panics three times, then has no pods.
    struct Panicking {
        status: Arc<StatusWriter>,
        calls: u32,
        anew: u32,
    }

    impl Follow<()> for Panicking {
        async fn next(&mut self) -> SourceUpdate<()> {
            self.calls += 1;
            assert!(self.calls > 3, "the test's panic");
            assert_eq!(self.anew, 3, "each panic was followed by a new beginning");
            self.status.read(std::time::Instant::now(), Vec::new());
            SourceUpdate::Set(Vec::new())
        }

        fn begin_anew(&mut self) {
            self.anew += 1;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_panics_begins_again_after_a_pause_that_grows_and_its_status_says_so() {
        let status = Arc::new(StatusWriter::new(Source::Http, "http://a/"));
        let source = Panicking { status: Arc::clone(&status), calls: 0, anew: 0 };
        let mut updates = follow(source, status);
        let status = updates.status();
        let start = Instant::now();
        tokio::select! {
            _ = updates.next() => panic!("it pauses first"),
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        {
            let status = status.borrow();
            let [problem] = &status.problems[..] else { panic!("one problem, not {:?}", status.problems) };
            assert_eq!(problem.kind, ProblemKind::Defect);
            assert_eq!((status.failed_checks, status.failing().is_some()), (1, true));
            let pause = status.until_next_try().unwrap();
            assert!(pause > Duration::ZERO && pause <= Duration::from_secs(1), "{pause:?}");
        }
        assert!(matches!(updates.next().await, Some(SourceUpdate::Set(_))));
        // Pauses of 1, 2 and 4 seconds, each shortened by a third at most.
        let lasted = start.elapsed();
        assert!(Duration::from_secs(4) < lasted && lasted < Duration::from_secs(8), "{lasted:?}");
        let status = status.borrow();
        assert_eq!((&status.problems[..], status.failed_checks, status.failing()), (&[][..], 3, None));
        assert_eq!(status.until_next_try(), None, "it does not pause any more");
    }
}
