//! How long to wait after a failure.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// After so long without a failure, the next one counts as the first, as in client-go's reflector, if nothing else is said.
const FORGET: Duration = Duration::from_secs(120);

/// A hundred years: longer than anybody waits, and short enough to be added to any moment.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// For so long after a first failure, no wait is longer than half the most: most outages are over by then.
const EARLY: Duration = Duration::from_secs(60);

/// Waits that double from the least to the most, each shortened at random by up to a third.
#[derive(Clone, Debug)]
pub struct Backoff {
    least: Duration,
    most: Duration,
    forget: Duration,
    next: Duration,
    /// When the first failure was that is not forgotten.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Backoff {
    #[must_use]
    pub fn new(least: Duration, most: Duration) -> Self {
        // Longer ones could not be added to a moment.
        let (least, most) = (least.min(FOREVER), most.min(FOREVER));
        Self { least, most: most.max(least), forget: FORGET, next: least, first: None, last: None }
    }

    /// After so long without a failure, the next one counts as the first.
    #[must_use]
    pub fn forget_after(mut self, forget: Duration) -> Self {
        self.forget = forget;
        self
    }

    /// The shortest wait, whatever was before.
    #[must_use]
    pub fn least(&self) -> Duration {
        self.least.mul_f64(jitter())
    }

    /// The wait that a failure at `now` is answered with.
    #[must_use]
    pub fn wait(&mut self, now: Instant) -> Duration {
        // A success in between is not enough: a server that lists and cannot watch would be listed without a pause.
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > self.forget) {
            (self.next, self.first) = (self.least, None);
        }
        let is_early = now.saturating_duration_since(*self.first.get_or_insert(now)) < EARLY;
        let most = if is_early { self.most / 2 } else { self.most };
        let wait = self.next.min(most.max(self.least));
        self.next = (wait * 2).min(self.most);
        self.last = Some(now + wait);
        wait.mul_f64(jitter())
    }
}

/// A random number from 2/3 to 1.
pub(crate) fn jitter() -> f64 {
    (2.0 + random()) / 3.0
}

/// A random number from 0 to 1. The keys of a hash map need no dependency, and are random enough to spread agents.
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
    fn waits_double_up_to_the_most_and_start_afresh_after_a_long_peace() {
        let mut backoff = Backoff::new(SECOND, 10 * SECOND);
        let start = Instant::now();
        let mut now = start;
        // Half the most within the first minute.
        for (whole, at) in [(1, 0), (2, 2), (4, 5), (5, 10), (5, 59), (10, 61), (10, 75)] {
            now = start + at * SECOND;
            let wait = backoff.wait(now);
            assert!(within(wait, whole * SECOND), "{wait:?} of {whole} s");
        }
        now += 10 * SECOND;
        assert!(within(backoff.wait(now + FORGET + 20 * SECOND), SECOND));
    }

    #[test]
    fn two_agents_do_not_wait_alike() {
        let waits = || {
            let mut backoff = Backoff::new(SECOND, 30 * SECOND);
            [(); 8].map(|()| backoff.wait(Instant::now()))
        };
        assert_ne!(waits(), waits());
    }
}
