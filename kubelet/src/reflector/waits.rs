//! The waits after failures.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// After this long without a compacted history, the next one counts as the first. If the history is compacted after each
/// list, the next time is seconds later.
const FORGET_EXPIRY: Duration = Duration::from_secs(20);

/// The waits after failures. A compacted history has its own: it is not the server's failure, and often the end
/// of an outage, so the next list must not wait as long as the outage's last attempt did.
pub(super) struct Waits {
    failures: Backoff,
    expiries: Backoff,
}

impl Waits {
    pub(super) fn new((least, most): (Duration, Duration)) -> Self {
        let backoff = Backoff::new(least, most);
        Self {
            // Who followed for as long as the longest wait asks no more often than one who still waits.
            failures: backoff.clone().forget_after(most),
            expiries: backoff.forget_after(FORGET_EXPIRY.max(most.saturating_mul(2))),
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

    #[test]
    fn an_expiry_at_the_end_of_an_outage_waits_little_soon_after_another_outage() {
        let mut waits = Waits::new((SECOND, 8 * SECOND));
        let mut now = Instant::now();
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
        let mut waits = Waits::new((SECOND, 8 * SECOND));
        let mut now = Instant::now();
        // More than a minute, however the waits are shortened.
        for _ in 0..40 {
            now += waits.wait(true, now);
        }
        assert!(waits.wait(true, now) > 5 * SECOND);
    }

    #[test]
    fn a_failure_after_the_longest_wait_without_one_waits_like_the_first_one() {
        let mut waits = Waits::new((SECOND, 8 * SECOND));
        let mut now = Instant::now();
        // More than a minute, however the waits are shortened.
        for _ in 0..40 {
            now += waits.wait(false, now);
        }
        now += 5 * SECOND;
        let wait = waits.wait(false, now);
        assert!(wait > 5 * SECOND, "still the same trouble");
        assert!(waits.wait(false, now + wait + 12 * SECOND) <= SECOND);
    }
}
