//! How long a command bears an agent that refuses for now, with 429 or 503.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of a command that does not say how long it waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Until when refusals are borne.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(super) longest: Duration,
    /// Since when, if all requests share it. `None`: since each request began.
    shared_since: Option<Instant>,
    /// Whether the user knows that the command waits.
    is_reported: AtomicBool,
}

impl Patience {
    /// Begins now, for all requests of a command line: if each had its own, the command would take as many times as long as it has
    /// queries.
    pub(crate) fn of(longest: Duration) -> Self {
        Self { longest, shared_since: Some(Instant::now()), is_reported: AtomicBool::new(false) }
    }

    /// Begins anew with each request. For a pipe, which may be open for days.
    pub(crate) fn of_each_request(longest: Duration) -> Self {
        Self { longest, shared_since: None, is_reported: AtomicBool::new(false) }
    }

    /// How long to wait before a request that began at this time is made again, if the agent wants to be asked after `after`.
    /// `None`: no longer. The last one is made at the end.
    pub(super) fn pause(&self, request_began: Instant, after: Duration) -> Option<Duration> {
        let began = self.shared_since.unwrap_or(request_began);
        let left = self.longest.saturating_sub(began.elapsed());
        (!left.is_zero()).then(|| after.min(left))
    }

    /// Whether the user has to be told that the command waits: once in each time that refusals are borne. `is_first`: of the
    /// refusals of a request.
    pub(super) fn is_to_report(&self, is_first: bool) -> bool {
        let was_reported = self.is_reported.swap(true, Ordering::Relaxed);
        if self.shared_since.is_some() { !was_reported } else { is_first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_agent_says_and_ends_with_the_patience() {
        let second = Duration::from_secs(1);
        let now = Instant::now();
        let patience = Patience::of(1_000 * second);
        assert_eq!(patience.pause(now, 5 * second), Some(5 * second));
        let last = patience.pause(now, 9_000 * second).unwrap();
        assert!(last <= 1_000 * second, "{last:?}");
        assert_eq!(Patience::of(Duration::ZERO).pause(now, second), None);
    }

    #[test]
    fn a_patience_begins_once_or_with_each_request() {
        let second = Duration::from_secs(1);
        let now = Instant::now();
        let earlier = now.checked_sub(1_000 * second).unwrap();
        let shared = Patience::of(500 * second);
        assert_eq!(shared.pause(earlier, second), Some(second), "whenever the request began");
        let over = Patience { shared_since: Some(earlier), ..shared };
        assert_eq!(over.pause(now, second), None);
        let of_each = Patience::of_each_request(500 * second);
        assert_eq!(of_each.pause(earlier, second), None);
        assert_eq!(of_each.pause(now, second), Some(second), "of the next request");
    }

    #[test]
    fn the_user_is_told_once() {
        let told = |patience: &Patience| [true, false, true].map(|is_first| patience.is_to_report(is_first));
        assert_eq!(told(&Patience::of(PATIENCE)), [true, false, false]);
        assert_eq!(told(&Patience::of_each_request(PATIENCE)), [true, false, true], "of the next request");
    }
}
