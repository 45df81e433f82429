//! Limits attempts to reach the API server during an outage: one request at a time, with pauses. Knows
//! nothing of HTTP.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::backoff::jitter;

/// The pause after the first failed attempt. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause in the first minute of an outage, and after it.
const LONGEST_PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(5)];
const EARLY: Duration = Duration::from_secs(60);

/// The current outage. `None` while the server answers.
pub(super) struct Outages(watch::Sender<Option<Outage>>);

#[derive(Clone, Debug)]
struct Outage {
    since: Instant,
    /// Failed attempts since the outage began.
    failures: u32,
    /// Failed attempts and those with an unclear answer. The pause depends on them.
    attempts: u32,
    /// No attempt starts before this time.
    next: Instant,
    /// After an unclear answer: no attempt that may again have one starts before this time.
    next_unclear: Instant,
    /// An attempt is under way.
    is_probed: bool,
    why: Arc<str>,
}

/// The server is unreachable: another request has just tried and failed.
#[derive(Clone, Debug)]
pub(super) struct Unreachable(Arc<str>);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

impl Outage {
    /// Whether an attempt has failed since the state `before`. The failure that began the outage does not count.
    fn has_failed_since(&self, before: Option<&Self>) -> bool {
        let same = before.filter(|before| before.since == self.since);
        self.failures > same.map_or(0, |before| before.failures)
    }

    /// The pause after another attempt.
    fn pause(&mut self) -> Duration {
        let longest = LONGEST_PAUSES[usize::from(self.since.elapsed() >= EARLY)];
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(8)).min(longest);
        self.attempts = self.attempts.saturating_add(1);
        pause.mul_f64(1.0 + jitter() / 5.0)
    }
}

impl Outages {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Waits until a request may be sent. Fails if another request's attempt to reach the server has just
    /// failed. `is_clear`: every answer to this request shows whether the server serves requests. Such a request
    /// does not wait after an unclear answer to another one.
    pub(super) async fn attempt(&self, is_clear: bool) -> Result<Attempt<'_>, Unreachable> {
        let mut changes = self.0.subscribe();
        let before = changes.borrow_and_update().clone();
        loop {
            let mut is_probe = false;
            let mut outage = None;
            let start = |outage: &Outage| {
                if is_clear { outage.next } else { outage.next.max(outage.next_unclear) }
            };
            self.0.send_if_modified(|state| {
                if let Some(state) = state {
                    is_probe = !state.is_probed && start(state) <= Instant::now();
                    state.is_probed |= is_probe;
                    outage = Some(state.clone());
                }
                // Do not wake the waiters: nothing changes for them when an attempt begins.
                false
            });
            let Some(outage) = outage else {
                return Ok(Attempt { outages: self, is_probe, is_reported: false });
            };
            if is_probe {
                return Ok(Attempt { outages: self, is_probe, is_reported: false });
            }
            if outage.has_failed_since(before.as_ref()) {
                return Err(Unreachable(outage.why));
            }
            tokio::select! {
                // The sender is in `self`.
                _ = changes.changed() => {}
                () = time::sleep_until(start(&outage)), if !outage.is_probed => {}
            }
        }
    }

    /// Waits for an attempt to fail.
    pub(super) async fn failure(&self) -> Unreachable {
        let mut changes = self.0.subscribe();
        let before = changes.borrow_and_update().clone();
        loop {
            let _ = changes.changed().await;
            if let Some(outage) = &*changes.borrow()
                && outage.has_failed_since(before.as_ref())
            {
                return Unreachable(Arc::clone(&outage.why));
            }
        }
    }

    /// The cause of the last failure may be gone: the next attempt does not wait.
    pub(super) fn try_now(&self) {
        self.0.send_if_modified(|state| {
            let Some(outage) = state else { return false };
            outage.next = Instant::now();
            outage.next_unclear = outage.next;
            true
        });
    }

    fn unclear(&self) {
        self.0.send_if_modified(|state| {
            let Some(outage) = state else { return false };
            outage.is_probed = false;
            outage.next_unclear = Instant::now() + outage.pause();
            true
        });
    }

    fn ended(&self) {
        self.0.send_if_modified(|state| state.take().is_some());
    }

    fn failed(&self, is_probe: bool, why: &str, not_before: Duration) {
        let now = Instant::now();
        self.0.send_if_modified(|state| match state {
            // The first failure may affect only one connection, so the next request may try at once.
            None => {
                let next = now + not_before;
                *state = Some(Outage {
                    since: now,
                    failures: 0,
                    attempts: 0,
                    next,
                    next_unclear: next,
                    is_probed: false,
                    why: why.into(),
                });
                true
            }
            Some(outage) if is_probe => {
                outage.failures += 1;
                outage.next = now + outage.pause().max(not_before);
                outage.is_probed = false;
                outage.why = why.into();
                true
            }
            // The request was sent before the outage was known.
            Some(_) => false,
        });
    }
}

/// The right to send one request. Report its outcome with `answered` or `failed`; dropping it counts as a
/// failure.
pub(super) struct Attempt<'a> {
    outages: &'a Outages,
    is_probe: bool,
    is_reported: bool,
}

impl Attempt<'_> {
    /// The server answered.
    pub(super) fn answered(mut self) {
        self.is_reported = true;
        self.outages.ended();
    }

    /// The answer does not show whether the server serves other requests. During an outage, the next attempt may
    /// start at once if its answer will be clear. Otherwise it waits as after a failure.
    pub(super) fn unclear(mut self) {
        self.is_reported = true;
        if self.is_probe {
            self.outages.unclear();
        }
    }

    /// The server could not be reached, or serves no requests. In the second case it may ask for a pause
    /// (`not_before`).
    pub(super) fn failed(mut self, why: &str, not_before: Duration) {
        self.is_reported = true;
        self.outages.failed(self.is_probe, why, not_before);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_reported && self.is_probe {
            self.outages.failed(true, "the API server does not answer", Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The times, in seconds since the start, at which `callers` that retry forever attempt to reach an
    /// unavailable server.
    async fn attempts(outages: Arc<Outages>, callers: usize, seconds: u64) -> Vec<f64> {
        let start = Instant::now();
        let times = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (outages, times) = (Arc::clone(&outages), Arc::clone(&times));
            tasks.spawn(async move {
                loop {
                    if let Ok(attempt) = outages.attempt(true).await {
                        times.lock().unwrap().push(start.elapsed().as_secs_f64());
                        time::sleep(SECOND / 100).await;
                        attempt.failed("refused", Duration::ZERO);
                    }
                }
            });
        }
        time::sleep(Duration::from_secs(seconds)).await;
        drop(tasks);
        times.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_first_minute_any_number_of_callers_make_one_attempt_in_five_seconds() {
        let outages = Arc::new(Outages::new());
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        let times = attempts(outages, 300, 300).await;
        let late: Vec<_> = times.iter().filter(|time| **time > 64.0).collect();
        assert!(late.len() > 230 / 7, "it keeps trying: {late:?}");
        for pair in late.windows(2) {
            assert!((5.0..7.0).contains(&(pair[1] - pair[0])), "{pair:?}");
        }
        let early: Vec<_> = times.iter().filter(|time| **time <= 60.0).collect();
        assert!((15..=24).contains(&early.len()), "{early:?}");
        assert!(early.windows(2).all(|pair| pair[1] - pair[0] < 4.0), "{early:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_lets_all_waiters_through_and_a_failure_reaches_all_waiters() {
        let outages = Arc::new(Outages::new());
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        let probe = outages.attempt(true).await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let outages = Arc::clone(&outages);
            waiting.spawn(async move {
                outages.attempt(true).await.map(|_| ()).map_err(|unreachable| unreachable.to_string())
            });
        }
        time::sleep(SECOND).await;
        probe.failed("unplugged", Duration::ZERO);
        while let Some(told) = waiting.join_next().await {
            assert_eq!(told.unwrap(), Err("unplugged".to_owned()));
        }
        time::sleep(SECOND).await;
        let probe = outages.attempt(true).await.unwrap();
        let start = Instant::now();
        let other = tokio::spawn({
            let outages = Arc::clone(&outages);
            async move { outages.attempt(true).await.is_ok() }
        });
        tokio::task::yield_now().await;
        probe.answered();
        assert!(other.await.unwrap());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    /// The old outage may have had more failures than the new one.
    #[tokio::test(start_paused = true)]
    async fn a_failure_in_a_new_outage_reaches_those_who_waited_in_the_old_one() {
        let outages = Outages::new();
        for _ in 0..4 {
            outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        }
        let probe = outages.attempt(true).await.unwrap();
        let attempt = async { outages.attempt(true).await.err().map(|unreachable| unreachable.to_string()) };
        let failure = async { outages.failure().await.to_string() };
        let (attempt, failure, ()) =
            tokio::join!(time::timeout(SECOND / 10, attempt), time::timeout(SECOND / 10, failure), async {
                time::sleep(SECOND / 100).await;
                // No waiter runs between these.
                probe.answered();
                outages.attempt(true).await.unwrap().failed("reset", Duration::ZERO);
                outages.attempt(true).await.unwrap().failed("unplugged", Duration::ZERO);
            });
        assert_eq!(attempt, Ok(Some("unplugged".to_owned())));
        assert_eq!(failure, Ok("unplugged".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_with_new_credentials_does_not_wait() {
        let outages = Arc::new(Outages::new());
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        for _ in 0..40 {
            outages.attempt(true).await.unwrap().failed("401", Duration::ZERO);
        }
        let waiting = tokio::spawn({
            let outages = Arc::clone(&outages);
            async move { outages.attempt(true).await.is_ok() }
        });
        tokio::task::yield_now().await;
        let start = Instant::now();
        outages.try_now();
        assert!(waiting.await.unwrap(), "a waiting request continues too");
        assert_eq!(start.elapsed(), Duration::ZERO);
        outages.attempt(true).await.unwrap().failed("401", Duration::ZERO);
        assert!(start.elapsed() >= 5 * SECOND, "the one before was dropped, so this one waited");
        outages.attempt(true).await.unwrap().answered();
        outages.try_now();
        outages.attempt(true).await.unwrap().answered();
    }

    #[tokio::test(start_paused = true)]
    async fn an_unclear_answer_delays_only_requests_with_such_answers() {
        let outages = Outages::new();
        outages.attempt(false).await.unwrap().unclear();
        outages.attempt(false).await.unwrap().failed("refused", Duration::ZERO);
        outages.attempt(false).await.unwrap().failed("refused", Duration::ZERO);
        let probe = outages.attempt(false).await.unwrap();
        let start = Instant::now();
        let (next, ()) = tokio::join!(outages.attempt(true), async { probe.unclear() });
        assert_eq!(start.elapsed(), Duration::ZERO);
        let next = next.unwrap();
        assert!(next.is_probe, "the outage goes on");
        next.unclear();
        assert!(outages.attempt(false).await.unwrap().is_probe);
        assert!(start.elapsed() >= FIRST_PAUSE, "the first pause");
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_unclear_answers_are_five_seconds_apart_after_the_first_minute() {
        let outages = Arc::new(Outages::new());
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        let start = Instant::now();
        let times = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..300 {
            let (outages, times) = (Arc::clone(&outages), Arc::clone(&times));
            tasks.spawn(async move {
                loop {
                    let attempt = outages.attempt(false).await.unwrap();
                    times.lock().unwrap().push(start.elapsed().as_secs_f64());
                    time::sleep(SECOND / 100).await;
                    attempt.unclear();
                }
            });
        }
        time::sleep(300 * SECOND).await;
        drop(tasks);
        let times = times.lock().unwrap();
        let late: Vec<_> = times.iter().filter(|time| **time > 64.0).collect();
        assert!(late.len() > 230 / 7, "it keeps trying: {late:?}");
        assert!(late.windows(2).all(|pair| pair[1] - pair[0] >= 5.0), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unclear_answer_does_not_end_the_pause_that_the_server_asked_for() {
        let outages = Outages::new();
        let (first, second) = (outages.attempt(true).await.unwrap(), outages.attempt(true).await.unwrap());
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        let probe = outages.attempt(false).await.unwrap();
        first.answered();
        second.failed("busy", 40 * SECOND);
        probe.unclear();
        let start = Instant::now();
        outages.attempt(true).await.unwrap().answered();
        assert!(start.elapsed() >= 40 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_attempt_counts_as_failed_and_the_next_one_waits() {
        let outages = Outages::new();
        outages.attempt(true).await.unwrap().failed("refused", Duration::ZERO);
        drop(outages.attempt(true).await.unwrap());
        let start = Instant::now();
        let next = outages.attempt(true).await.unwrap();
        assert!(start.elapsed() >= FIRST_PAUSE);
        next.failed("busy", 40 * SECOND);
        let start = Instant::now();
        outages.attempt(true).await.unwrap().answered();
        assert!(start.elapsed() >= 40 * SECOND, "the server asked for that");
        drop(outages.attempt(true).await.unwrap());
        drop(outages.attempt(true).await.unwrap());
    }
}
