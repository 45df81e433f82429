//! How long a command bears an agent that refuses for now, with 429 or 503.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Of a command that does not say how long it waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Until when refusals are borne. All requests of a command line share one: otherwise it would take as many times as long as it has
/// queries. Whoever reads lines has a new one for each batch of them.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(super) longest: Duration,
    began: Instant,
    /// Whether the user knows that the command waits.
    is_reported: AtomicBool,
}

impl Patience {
    /// Begins now.
    pub(crate) fn of(longest: Duration) -> Self {
        Self { longest, began: Instant::now(), is_reported: AtomicBool::new(false) }
    }

    /// How long to wait before the next request, if the agent wants to be asked again after this time. `None`: no longer. The last
    /// request is made at the end.
    pub(super) fn pause(&self, after: Duration) -> Option<Duration> {
        let left = self.longest.saturating_sub(self.began.elapsed());
        (!left.is_zero()).then(|| after.min(left))
    }

    /// Whether the user has to be told that the command waits: once.
    pub(super) fn is_to_report(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_as_long_as_the_agent_says_and_ends_with_the_patience() {
        let second = Duration::from_secs(1);
        let patience = Patience::of(1_000 * second);
        assert_eq!(patience.pause(5 * second), Some(5 * second));
        let last = patience.pause(9_000 * second).unwrap();
        assert!(last <= 1_000 * second, "{last:?}");
        assert_eq!(Patience::of(Duration::ZERO).pause(second), None);
        let began = Instant::now().checked_sub(2 * second).unwrap();
        assert_eq!(Patience { began, ..Patience::of(second) }.pause(second), None, "it is over");
    }

    #[test]
    fn the_user_is_told_once() {
        let patience = Patience::of(PATIENCE);
        assert_eq!([patience.is_to_report(), patience.is_to_report()], [true, false]);
    }
}
