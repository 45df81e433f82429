//! How long to wait after a failure.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// Default reset time: a failure this long after the previous one counts as the first, as in client-go's
/// reflector.
const FORGET: Duration = Duration::from_secs(120);

/// A hundred years: longer than any real wait, and short enough to be added to any `Instant`.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The shortest pause of a loop.
pub(crate) const LEAST_PAUSE: Duration = Duration::from_millis(1);

/// A duration from outside, short enough to be added to any `Instant`: with [`Duration::MAX`], which means for ever, most
/// sums would panic.
pub(crate) fn bounded(duration: Duration) -> Duration {
    duration.min(FOREVER)
}

/// A pause from outside, short enough to be added to any `Instant`, and never zero: a loop without a pause would take a whole
/// core, and send a server one request after the other.
pub(crate) fn bounded_pause(pause: Duration) -> Duration {
    bounded(pause).max(LEAST_PAUSE)
}

/// How long to pause after failures. The pauses double from the first to the longest.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pod_index_kubelet::Pauses;
///
/// // 1, 2, 4, 8, 10, 10 … seconds, each shortened at random by up to a third.
/// let pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(10));
/// # assert_eq!(pauses.longest.as_secs(), 10);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Pauses {
    /// These pauses.
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The same, short enough to be added to any `Instant`, and never zero.
    pub(crate) fn bounded(self) -> Self {
        Self { first: bounded_pause(self.first), longest: bounded_pause(self.longest) }
    }
}

/// Waits that double from the minimum to the maximum, each shortened at random by up to a third.
#[derive(Clone, Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    forget: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    #[must_use]
    pub fn new(least: Duration, most: Duration) -> Self {
        // Longer waits could overflow an `Instant`.
        let least = least.min(FOREVER);
        let most = most.min(FOREVER);
        Self { least, most: most.max(least), forget: FORGET, next: least, last: None }
    }

    /// A failure this long after the previous one counts as the first.
    #[must_use]
    pub fn forget_after(mut self, forget: Duration) -> Self {
        self.forget = forget;
        self
    }

    /// How long to wait after a failure at `now`.
    #[must_use]
    pub fn wait(&mut self, now: Instant) -> Duration {
        // A success in between does not reset: a server that can list but not watch would be listed without a
        // pause.
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > self.forget) {
            self.next = self.least;
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.most);
        self.last = Some(now + wait);
        wait.mul_f64(jitter())
    }
}

/// A random number from 2/3 to 1.
#[must_use]
pub fn jitter() -> f64 {
    (2.0 + random()) / 3.0
}

/// A random number from 0 to 1. Hash map keys need no dependency and are random enough to spread agents out.
pub(crate) fn random() -> f64 {
    let random = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn within(wait: Duration, whole: Duration) -> bool {
        whole * 2 / 3 <= wait + Duration::from_nanos(1) && wait <= whole
    }

    #[test]
    fn waits_double_up_to_the_maximum_and_reset_after_a_long_time_without_failures() {
        let mut backoff = Backoff::new(SECOND, 10 * SECOND);
        let start = Instant::now();
        let mut now = start;
        for (whole, at) in [(1, 0), (2, 2), (4, 5), (8, 10), (10, 59), (10, 75)] {
            now = start + at * SECOND;
            let wait = backoff.wait(now);
            assert!(within(wait, whole * SECOND), "{wait:?} of {whole} s");
        }
        now += 10 * SECOND;
        assert!(within(backoff.wait(now + FORGET + 20 * SECOND), SECOND));
    }

    #[test]
    fn two_agents_wait_different_times() {
        let waits = || {
            let mut backoff = Backoff::new(SECOND, 30 * SECOND);
            [(); 8].map(|()| backoff.wait(Instant::now()))
        };
        assert_ne!(waits(), waits());
    }
}
