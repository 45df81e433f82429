//! The time limits of a shutdown. One budget covers all of it and ends before the supervisor kills the agent.
//!
//! | step | limit |
//! |---|---|
//! | open requests | [`DRAIN`] |
//! | the last checkpoints | the rest of [`BUDGET`] |
//! | the last log lines | one second after it |

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// From the signal to the last checkpoint. The `DaemonSet`'s grace period is 15 s, the unit's 20 s.
pub(crate) const BUDGET: Duration = Duration::from_secs(12);

/// Time limit for open requests. The rest is for checkpoints.
pub(crate) const DRAIN: Duration = Duration::from_secs(7);

/// Measures the time since the shutdown began.
#[derive(Debug, Default)]
pub(crate) struct Leaving(OnceLock<Instant>);

impl Leaving {
    /// Begins the shutdown, unless it has begun.
    pub(crate) fn begin(&self) {
        self.0.get_or_init(Instant::now);
    }

    /// The rest of the budget. All of it before the shutdown begins.
    pub(crate) fn left(&self) -> Duration {
        self.0.get().map_or(BUDGET, |began| BUDGET.saturating_sub(began.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../deploy/systemd/pod-index.service");
    const DAEMONSET: &str = include_str!("../../../deploy/kubernetes/base/daemonset.yaml");

    /// The number after `key` in a line of its own.
    fn seconds(text: &str, key: &str) -> u64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key)).expect(key);
        line.trim().parse().expect(key)
    }

    #[test]
    fn the_agent_exits_before_systemd_or_a_kubelet_kills_it() {
        // The last log lines take at most a second. The other second is for a slow machine.
        let needed = BUDGET + Duration::from_secs(2);
        for grace in [seconds(UNIT, "TimeoutStopSec="), seconds(DAEMONSET, "terminationGracePeriodSeconds:")]
        {
            assert!(needed < Duration::from_secs(grace), "{grace} s");
        }
    }

    #[test]
    fn draining_leaves_time_for_checkpoints_and_both_share_one_budget() {
        assert!(DRAIN + Duration::from_secs(3) < BUDGET);
        let leaving = Leaving::default();
        assert_eq!(leaving.left(), BUDGET);
        leaving.begin();
        let first = leaving.left();
        assert!(first <= BUDGET);
        leaving.begin();
        assert!(leaving.left() <= first, "a second signal gives no more time");
    }
}
