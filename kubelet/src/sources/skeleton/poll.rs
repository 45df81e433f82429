//! Reads an origin again and again, and emits its pods when they have changed.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use tokio::time::{self, sleep_until};

use super::admission::{Admitted, Emitted};
use super::follow::{Follow, follow};
use crate::backoff::{LEAST_PAUSE, bounded_pause};
use crate::blocking::OneThread;
use crate::sources::status::StatusWriter;
use crate::sources::{Nudge, Problem, SourceUpdate, Updates};

/// An origin of pods that is read as a whole: a path, a URL.
pub(in crate::sources) trait Read: Send + 'static {
    /// Reads the origin once. What may block (files, large bodies to decode) is done on `thread`, the only one of the source.
    ///
    /// Keep a job that is late, wait for it in the next read, and ask for that at once by [`Reading::again_within`] zero: a job that
    /// hangs keeps out all others, and its result would otherwise wait for the period. `Manifests` in `file/source.rs` does so.
    fn read(&mut self, thread: &OneThread) -> impl Future<Output = Reading> + Send;

    /// Called after `read` has panicked, before it is called again: drops what may be half done, such as a job.
    fn begin_anew(&mut self);
}

/// What one read has found.
#[derive(Debug)]
pub(in crate::sources) struct Reading {
    /// When the read began: the pods are at least as new as this.
    pub(in crate::sources) began: Instant,
    /// All pods. `None`: nothing is known of them, or they are those of the last reading that had some.
    pub(in crate::sources) pods: Option<Vec<Admitted>>,
    pub(in crate::sources) result: ReadResult,
    /// All current problems, also those that fail nothing.
    pub(in crate::sources) problems: Vec<Problem>,
    /// Read again after this, even if the period is longer.
    pub(in crate::sources) again_within: Option<Duration>,
}

/// How much a read says about the pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sources) enum ReadResult {
    /// These are all.
    Complete,
    /// The origin may have more.
    Incomplete,
    /// The same, but not of the pods of a kubelet's files.
    CompleteOfFiles,
    /// Nothing, as a rule. If there are pods all the same, the source has just these: none, of a path that is gone.
    Failed,
}

impl Reading {
    /// These are all pods; `None`: the same as before.
    pub(in crate::sources) fn complete(
        began: Instant,
        pods: Option<Vec<Admitted>>,
        problems: Vec<Problem>,
    ) -> Self {
        Self { began, pods, result: ReadResult::Complete, problems, again_within: None }
    }

    /// The read has failed as a whole.
    pub(in crate::sources) fn failed(began: Instant, problems: Vec<Problem>) -> Self {
        Self { began, pods: None, result: ReadResult::Failed, problems, again_within: None }
    }
}

/// When to read.
#[derive(Debug)]
pub(in crate::sources) struct Pace {
    /// The time between two reads.
    pub(in crate::sources) period: Duration,
    /// Causes a read at once. From outside, when another source has reported a change.
    pub(in crate::sources) nudge: Nudge,
    /// The same from within: the origin itself reports that it has changed.
    pub(in crate::sources) hint: Nudge,
    /// How long to wait after a nudge, if the last read took this long: more nudges may come, and become one read.
    pub(in crate::sources) settle: fn(Duration) -> Duration,
    /// The least time between a read and the next one that a nudge causes.
    pub(in crate::sources) apart: Duration,
    /// Whether to read repeatedly after a nudge, in intervals that double from `apart` to the period: the origin may not have
    /// the change yet.
    pub(in crate::sources) repeats: bool,
}

/// The updates of an origin that is read at this pace. `thread`: the name of the source's thread, in at most 15 bytes.
///
/// Reads at once, and then when the pace says so.
pub(in crate::sources) fn poll(
    reader: impl Read,
    mut pace: Pace,
    thread: &'static str,
    status: StatusWriter,
) -> Updates<Pod> {
    pace.period = bounded_pause(pace.period);
    let status = Arc::new(status);
    let polling = Polling {
        reader,
        thread: OneThread::new(thread),
        pause: pace.period,
        pace,
        status: Arc::clone(&status),
        last: None,
        emitted: Emitted::default(),
    };
    follow(polling, status)
}

struct Polling<R> {
    reader: R,
    thread: OneThread,
    pace: Pace,
    status: Arc<StatusWriter>,
    /// `None` before the first read, for which nothing waits.
    last: Option<LastRead>,
    /// The time from the last read to the next: the period, or less after a nudge.
    pause: Duration,
    emitted: Emitted,
}

/// The last read that has ended.
#[derive(Clone, Copy)]
struct LastRead {
    ended: time::Instant,
    took: Duration,
    again_within: Option<Duration>,
}

impl<R: Read> Follow<Pod> for Polling<R> {
    async fn next(&mut self) -> SourceUpdate<Pod> {
        loop {
            self.wait().await;
            self.status.tries_again(None);
            let reading = self.reader.read(&self.thread).await;
            self.last = Some(LastRead {
                ended: time::Instant::now(),
                took: reading.began.elapsed(),
                again_within: reading.again_within,
            });
            let Reading { began, pods, result, problems, .. } = reading;
            match result {
                ReadResult::Complete => self.status.read(began, problems),
                ReadResult::Incomplete | ReadResult::CompleteOfFiles => {
                    self.status.read_incompletely(began, problems);
                }
                ReadResult::Failed => self.status.failed(problems),
            }
            if result == ReadResult::Failed && pods.is_none() {
                continue;
            }
            let is_complete = match result {
                ReadResult::Complete | ReadResult::Failed => true,
                ReadResult::Incomplete | ReadResult::CompleteOfFiles => false,
            };
            if let Some(update) = self.emitted.news(pods, is_complete, &self.status) {
                return update;
            }
            // After a list that is news, only the next one says what is gone.
            if result == ReadResult::CompleteOfFiles
                && let Some(gone) = self.emitted.gone_of_files(&self.status)
            {
                return gone;
            }
        }
    }

    fn begin_anew(&mut self) {
        self.reader.begin_anew();
    }
}

impl<R> Polling<R> {
    /// Waits until the next read is due.
    async fn wait(&mut self) {
        let Some(last) = self.last else { return };
        let period = self.pace.period;
        let pause = last.again_within.unwrap_or(self.pause).min(self.pause);
        let due = last.ended + pause;
        self.status.tries_again(Some(due.into_std()));
        let is_nudged = tokio::select! {
            () = sleep_until(due) => false,
            () = self.pace.hint.notified() => true,
            () = self.pace.nudge.notified() => true,
        };
        if !is_nudged {
            self.pause = self.pause.saturating_mul(2).min(period);
            return;
        }
        if self.pace.repeats {
            self.pause = self.pace.apart.clamp(LEAST_PAUSE, period);
        }
        time::sleep((self.pace.settle)(last.took).min(period)).await;
        sleep_until(last.ended + self.pace.apart.min(period)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};
    use std::thread;

    use futures_util::StreamExt;

    use super::*;
    use crate::blocking::Job;
    use crate::sources::Source;

    const PATIENCE: Duration = Duration::from_millis(5);

    /// An origin on a mount that hangs until the sender is dropped. Each third read panics as well.
    struct Hanging {
        mount: Arc<Mutex<mpsc::Receiver<()>>>,
        job: Option<Job<()>>,
        reads: usize,
        /// The threads that are reading now.
        threads: Arc<AtomicUsize>,
        /// The most that there were.
        most: Arc<AtomicUsize>,
    }

    impl Read for Hanging {
        async fn read(&mut self, thread: &OneThread) -> Reading {
            self.reads += 1;
            assert!(!self.reads.is_multiple_of(3), "the test's panic");
            let began = Instant::now();
            if self.job.is_none() {
                let mount = Arc::clone(&self.mount);
                let threads = Arc::clone(&self.threads);
                let most = Arc::clone(&self.most);
                let work = move || {
                    most.fetch_max(threads.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let _ = mount.lock().unwrap().recv();
                    threads.fetch_sub(1, Ordering::SeqCst);
                };
                self.job = thread.start(work).ok();
            }
            let Some(job) = &mut self.job else { return Reading::failed(began, Vec::new()) };
            match job.within(PATIENCE).await {
                Ok(()) => {
                    self.job = None;
                    Reading::complete(began, Some(Vec::new()), Vec::new())
                }
                Err(_late) => Reading::failed(began, Vec::new()),
            }
        }

        fn begin_anew(&mut self) {
            self.job = None;
        }
    }

    fn pace(period: Duration) -> Pace {
        Pace {
            period,
            nudge: Nudge::default(),
            hint: Nudge::default(),
            settle: |_took| Duration::ZERO,
            apart: Duration::ZERO,
            repeats: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_mount_that_hangs_takes_one_thread_also_if_the_source_panics_and_none_once_it_answers() {
        let (mount, hanging) = mpsc::channel();
        let threads = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let source = Hanging {
            mount: Arc::new(Mutex::new(hanging)),
            job: None,
            reads: 0,
            threads: Arc::clone(&threads),
            most: Arc::clone(&most),
        };
        let status = StatusWriter::new(Source::File, "/pods");
        let mut updates = poll(source, pace(Duration::from_millis(10)), "test", status);
        let mut status = updates.status();
        // Ten panics among twenty reads that are late.
        tokio::select! {
            _ = updates.next() => panic!("the mount hangs"),
            failed = status.wait_for(|status| status.failed_checks >= 30) => drop(failed.unwrap()),
        }
        // The clock is paused, so it may be ahead of a thread that has only been started.
        while most.load(Ordering::SeqCst) == 0 {
            thread::sleep(PATIENCE);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
        drop(mount);
        assert!(matches!(updates.next().await, Some(SourceUpdate::Set(_))));
        drop(updates);
        while threads.load(Ordering::SeqCst) > 0 {
            thread::sleep(PATIENCE);
        }
        assert_eq!(most.load(Ordering::SeqCst), 1, "one after the other");
    }

    /// Counts its reads.
    struct Counting(Arc<AtomicUsize>);

    impl Read for Counting {
        async fn read(&mut self, _: &OneThread) -> Reading {
            self.0.fetch_add(1, Ordering::SeqCst);
            Reading::complete(Instant::now(), Some(Vec::new()), Vec::new())
        }

        fn begin_anew(&mut self) {}
    }

    /// An origin that answers the first read, and no other.
    struct Once {
        has_answered: bool,
    }

    impl Read for Once {
        async fn read(&mut self, _: &OneThread) -> Reading {
            if self.has_answered {
                return std::future::pending().await;
            }
            self.has_answered = true;
            Reading::complete(Instant::now(), Some(Vec::new()), Vec::new())
        }

        fn begin_anew(&mut self) {}
    }

    /// A read that hangs is not the next one.
    #[tokio::test(start_paused = true)]
    async fn the_status_says_when_the_next_read_is_due_and_nothing_while_one_hangs() {
        let period = Duration::from_secs(3600);
        let status = StatusWriter::new(Source::Http, "http://a/");
        let mut updates = poll(Once { has_answered: false }, pace(period), "test", status);
        assert_eq!(updates.status().borrow().until_next_try(), None);
        assert!(matches!(updates.next().await, Some(SourceUpdate::Set(_))));
        let status = updates.status();
        assert!(futures_util::poll!(updates.next()).is_pending());
        let left = status.borrow().until_next_try().unwrap();
        assert!(left <= period && left > period / 2, "{left:?}");

        time::advance(period).await;
        assert!(futures_util::poll!(updates.next()).is_pending());
        assert_eq!(status.borrow().until_next_try(), None);
    }

    /// After a nudge, an origin that may not have the change yet is read after 1, 2, 4 and 8 seconds, and then every 10 again.
    #[tokio::test(start_paused = true)]
    async fn reads_are_a_period_apart_and_after_a_nudge_in_intervals_that_grow_to_it() {
        let reads = Arc::new(AtomicUsize::new(0));
        let apart = Duration::from_secs(1);
        let pace = Pace { apart, repeats: true, ..pace(Duration::from_secs(10)) };
        let nudge = Arc::clone(&pace.nudge);
        let status = StatusWriter::new(Source::Http, "http://a/");
        let updates = poll(Counting(Arc::clone(&reads)), pace, "test", status);
        let polled = tokio::spawn(updates.for_each(|_| std::future::ready(())));
        let mut seconds = Vec::new();
        let start = time::Instant::now();
        for second in 0..40 {
            sleep_until(start + Duration::from_millis(second * 1000 + 500)).await;
            seconds.push(reads.load(Ordering::SeqCst));
            if second == 12 {
                nudge.notify_one();
            }
        }
        polled.abort();
        let read_in: Vec<_> = (1..40).filter(|second| seconds[*second] > seconds[*second - 1]).collect();
        // The nudge comes at 12.5 s, more than a second after the last read.
        assert_eq!(read_in, [10, 13, 14, 16, 20, 28, 38]);
    }
}
