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

/// Open while the server answers.
pub(super) struct Gate(watch::Sender<Option<Outage>>);

#[derive(Clone, Debug)]
struct Outage {
    since: Instant,
    /// Failed attempts since the outage began.
    failures: u32,
    /// No attempt starts before this time.
    next: Instant,
    /// An attempt is under way.
    is_probed: bool,
    why: Arc<str>,
}

/// The server is unreachable: another request has just tried and failed.
#[derive(Clone, Debug)]
pub(super) struct Away(Arc<str>);

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Away {}

impl Gate {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Waits until a request may be sent. Fails if another request's attempt to reach the server has just
    /// failed.
    pub(super) async fn pass(&self) -> Result<Pass<'_>, Away> {
        let mut changes = self.0.subscribe();
        let failures_before = changes.borrow_and_update().as_ref().map(|outage| outage.failures);
        loop {
            let mut is_probe = false;
            let mut outage = None;
            self.0.send_if_modified(|state| {
                if let Some(state) = state {
                    is_probe = !state.is_probed && state.next <= Instant::now();
                    state.is_probed |= is_probe;
                    outage = Some(state.clone());
                }
                // Do not wake the waiters: nothing changes for them when an attempt begins.
                false
            });
            let Some(outage) = outage else { return Ok(Pass { gate: self, is_probe, is_told: false }) };
            if is_probe {
                return Ok(Pass { gate: self, is_probe, is_told: false });
            }
            if Some(outage.failures) > failures_before {
                return Err(Away(outage.why));
            }
            tokio::select! {
                // The sender is in `self`.
                _ = changes.changed() => {}
                () = time::sleep_until(outage.next), if !outage.is_probed => {}
            }
        }
    }

    /// Waits for an attempt to fail.
    pub(super) async fn failure(&self) -> Away {
        let mut changes = self.0.subscribe();
        let before = changes.borrow_and_update().as_ref().map_or(0, |outage| outage.failures);
        loop {
            let _ = changes.changed().await;
            if let Some(outage) = &*changes.borrow()
                && outage.failures > before
            {
                return Away(Arc::clone(&outage.why));
            }
        }
    }

    /// The cause of the last failure may be gone: the next attempt does not wait.
    pub(super) fn try_now(&self) {
        self.0.send_if_modified(|state| state.as_mut().map(|outage| outage.next = Instant::now()).is_some());
    }

    fn unclear(&self) {
        self.0.send_if_modified(|state| {
            let Some(outage) = state else { return false };
            (outage.is_probed, outage.next) = (false, Instant::now());
            true
        });
    }

    fn opened(&self) {
        self.0.send_if_modified(|state| state.take().is_some());
    }

    fn failed(&self, is_probe: bool, why: &str, not_before: Duration) {
        let now = Instant::now();
        self.0.send_if_modified(|state| match state {
            // The first failure may affect only one connection, so the next request may try at once.
            None => {
                let next = now + not_before;
                *state = Some(Outage { since: now, failures: 0, next, is_probed: false, why: why.into() });
                true
            }
            Some(outage) if is_probe => {
                let longest = LONGEST_PAUSES[usize::from(outage.since.elapsed() >= EARLY)];
                let pause = FIRST_PAUSE.saturating_mul(1 << outage.failures.min(8)).min(longest);
                outage.failures += 1;
                outage.next = now + pause.mul_f64(1.0 + jitter() / 5.0).max(not_before);
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
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    is_probe: bool,
    is_told: bool,
}

impl Pass<'_> {
    /// The server answered.
    pub(super) fn answered(mut self) {
        self.is_told = true;
        self.gate.opened();
    }

    /// The answer does not show whether the server serves other requests. During an outage, the next request may
    /// try at once.
    pub(super) fn unclear(mut self) {
        self.is_told = true;
        if self.is_probe {
            self.gate.unclear();
        }
    }

    /// The server could not be reached, or serves no requests. In the second case it may ask for a pause
    /// (`not_before`).
    pub(super) fn failed(mut self, why: &str, not_before: Duration) {
        self.is_told = true;
        self.gate.failed(self.is_probe, why, not_before);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.is_told && self.is_probe {
            self.gate.failed(true, "the API server does not answer", Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The times, in seconds since the start, at which `callers` that retry forever attempt to reach an
    /// unavailable server.
    async fn attempts(gate: Arc<Gate>, callers: usize, seconds: u64) -> Vec<f64> {
        let start = Instant::now();
        let times = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (gate, times) = (Arc::clone(&gate), Arc::clone(&times));
            tasks.spawn(async move {
                loop {
                    if let Ok(pass) = gate.pass().await {
                        times.lock().unwrap().push(start.elapsed().as_secs_f64());
                        time::sleep(SECOND / 100).await;
                        pass.failed("refused", Duration::ZERO);
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
        let gate = Arc::new(Gate::new());
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        let times = attempts(gate, 300, 300).await;
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
        let gate = Arc::new(Gate::new());
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        let probe = gate.pass().await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let gate = Arc::clone(&gate);
            waiting.spawn(async move { gate.pass().await.map(|_| ()).map_err(|away| away.to_string()) });
        }
        time::sleep(SECOND).await;
        probe.failed("unplugged", Duration::ZERO);
        while let Some(told) = waiting.join_next().await {
            assert_eq!(told.unwrap(), Err("unplugged".to_owned()));
        }
        time::sleep(SECOND).await;
        let probe = gate.pass().await.unwrap();
        let start = Instant::now();
        let other = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.pass().await.is_ok() }
        });
        tokio::task::yield_now().await;
        probe.answered();
        assert!(other.await.unwrap());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_with_new_credentials_does_not_wait() {
        let gate = Arc::new(Gate::new());
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        for _ in 0..40 {
            gate.pass().await.unwrap().failed("401", Duration::ZERO);
        }
        let waiting = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.pass().await.is_ok() }
        });
        tokio::task::yield_now().await;
        let start = Instant::now();
        gate.try_now();
        assert!(waiting.await.unwrap(), "a waiting request continues too");
        assert_eq!(start.elapsed(), Duration::ZERO);
        gate.pass().await.unwrap().failed("401", Duration::ZERO);
        assert!(start.elapsed() >= 5 * SECOND, "the one before was dropped, so this one waited");
        gate.pass().await.unwrap().answered();
        gate.try_now();
        gate.pass().await.unwrap().answered();
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_unclear_answer_the_next_request_tries_at_once() {
        let gate = Gate::new();
        gate.pass().await.unwrap().unclear();
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        let probe = gate.pass().await.unwrap();
        let start = Instant::now();
        let (next, ()) = tokio::join!(gate.pass(), async { probe.unclear() });
        assert!(next.unwrap().is_probe, "the outage goes on");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_attempt_counts_as_failed_and_the_next_one_waits() {
        let gate = Gate::new();
        gate.pass().await.unwrap().failed("refused", Duration::ZERO);
        drop(gate.pass().await.unwrap());
        let start = Instant::now();
        let next = gate.pass().await.unwrap();
        assert!(start.elapsed() >= FIRST_PAUSE);
        next.failed("busy", 40 * SECOND);
        let start = Instant::now();
        gate.pass().await.unwrap().answered();
        assert!(start.elapsed() >= 40 * SECOND, "the server asked for that");
        drop(gate.pass().await.unwrap());
        drop(gate.pass().await.unwrap());
    }
}
