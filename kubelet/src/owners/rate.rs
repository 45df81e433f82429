//! Limits the rate of requests, also while the API server fails.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;

/// Pause between two requests.
pub(super) const PACE: Duration = Duration::from_millis(20);
/// After so many failed requests of a pass, the API server counts as away: what pods need now waits, and what new pods
/// need does not. The order is random, so that the next pass requests others.
const FAILURES: usize = 3;
/// The first and the longest pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The rate of all requests of a follower.
pub(super) struct Rate {
    backoff: Backoff,
    /// Of this pass. Missing rights do not count: the server has answered.
    failures: usize,
}

impl Rate {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), failures: 0 }
    }

    /// A pass over all owners begins.
    pub(super) fn begin_pass(&mut self) {
        self.failures = 0;
    }

    /// Waits after a request.
    pub(super) async fn pace(&self) {
        sleep(PACE).await;
    }

    /// A request has failed.
    pub(super) fn failed(&mut self) {
        self.failures += 1;
    }

    /// Whether the API server counts as away.
    pub(super) fn is_server_away(&self) -> bool {
        self.failures >= FAILURES
    }

    /// When to request again what has just failed. All that failed become due at the same time, the `earlier` one: then few
    /// requests show whether the server is back.
    pub(super) fn retry_at(&mut self, earlier: Option<Instant>) -> Instant {
        let now = Instant::now();
        match earlier {
            Some(earlier) if earlier > now => earlier,
            _ => now + self.backoff.wait(now.into_std()),
        }
    }
}
