//! The waits after failures.

use std::time::{Duration, Instant};

use crate::backoff::{Backoff, Pauses};

/// After this long without a failure, the next one counts as the first.
const FORGET: Duration = Duration::from_secs(30);
/// The same for a compacted history. If the history is compacted after each list, the next time is seconds later.
const FORGET_EXPIRY: Duration = Duration::from_secs(20);

/// The waits after failures. A compacted history has its own: it is not the server's failure, and often the end
/// of an outage, so the next list must not wait as long as the outage's last attempt did.
pub(super) struct Waits {
    failures: Backoff,
    expiries: Backoff,
    times: Pauses,
}

impl Waits {
    pub(super) fn new(times: Pauses) -> Self {
        let backoff = |forget: Duration| {
            Backoff::new(times.first, times.longest).forget_after(forget.max(times.longest.saturating_mul(2)))
        };
        Self { failures: backoff(FORGET), expiries: backoff(FORGET_EXPIRY), times }
    }

    /// Records how long a watch lasted that failed. If it lasted as long as the longest wait, its failure counts as the first:
    /// even with the shortest wait, the server is asked no more often than by one that still waits.
    pub(super) fn followed(&mut self, lasted: Duration) {
        if lasted >= self.times.longest {
            self.failures = Self::new(self.times).failures;
        }
    }

    pub(super) fn wait(&mut self, is_expiry: bool, now: Instant) -> Duration {
        if is_expiry { self.expiries.wait(now) } else { self.failures.wait(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits() -> Waits {
        Waits::new(Pauses::new(SECOND, 8 * SECOND))
    }

    /// These waits after more than a minute of failures, however they are shortened, and the time then.
    fn long_failing(is_expiry: bool) -> (Waits, Instant) {
        let (mut waits, mut now) = (waits(), Instant::now());
        for _ in 0..40 {
            now += waits.wait(is_expiry, now);
        }
        (waits, now)
    }

    #[test]
    fn an_expiry_at_the_end_of_an_outage_waits_little_soon_after_another_outage() {
        let (mut waits, mut now) = (waits(), Instant::now());
        for _ in 0..2 {
            for _ in 0..10 {
                now += waits.wait(false, now);
            }
            let wait = waits.wait(true, now);
            assert!(wait <= 2 * SECOND, "{wait:?}");
            now += wait;
        }
    }

    #[test]
    fn a_history_that_is_compacted_again_after_each_list_waits_longer_each_time() {
        let (mut waits, now) = long_failing(true);
        assert!(waits.wait(true, now) > 5 * SECOND);
    }

    #[test]
    fn a_failure_after_half_a_minute_of_quiet_waits_like_the_first_one() {
        let (mut waits, now) = long_failing(false);
        assert!(waits.wait(false, now + 20 * SECOND) > 5 * SECOND, "still the same trouble");
        assert!(waits.wait(false, now + 60 * SECOND) <= SECOND);
    }

    #[test]
    fn a_watch_that_lasted_as_long_as_the_longest_wait_ends_the_trouble() {
        let (mut waits, now) = long_failing(false);
        waits.followed(7 * SECOND);
        assert!(waits.wait(false, now) > 5 * SECOND);
        waits.followed(8 * SECOND);
        assert!(waits.wait(false, now) <= SECOND);
    }
}
