//! The time limits of a shutdown. One budget covers all of it and ends before the supervisor kills the agent.
//!
//! | step | limit |
//! |---|---|
//! | open requests | [`DRAIN`] |
//! | the last checkpoints | the rest of [`BUDGET`] |
//! | the last log lines, and the final message | [`LAST_LINES`] after it |
//! | all of it, if a part of the agent has stopped | [`STUCK`], and [`LAST_LINES`] |
//!
//! A process that has not ended by then kills itself: whatever hangs, a signal ends the agent.

use std::time::Duration;

/// From the signal to the last checkpoint. The `DaemonSet`'s grace period is 15 s, the unit's 20 s.
pub(crate) const BUDGET: Duration = Duration::from_secs(12);

/// Time limit for open requests. The rest is for checkpoints.
pub(crate) const DRAIN: Duration = Duration::from_secs(7);

/// Instead of [`BUDGET`], if a part of the agent has stopped: it would use up any limit.
pub(crate) const STUCK: Duration = Duration::from_millis(1500);

/// From the end of the budget to the end of the process: for the last lines of the log, which wait for whoever reads them.
pub(crate) const LAST_LINES: Duration = Duration::from_secs(1);

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
        // One second is for a slow machine.
        let needed = BUDGET + LAST_LINES + Duration::from_secs(1);
        for grace in [seconds(UNIT, "TimeoutStopSec="), seconds(DAEMONSET, "terminationGracePeriodSeconds:")]
        {
            assert!(needed < Duration::from_secs(grace), "{grace} s");
        }
    }

    #[test]
    fn an_agent_with_a_part_that_has_stopped_ends_within_three_seconds() {
        assert!(STUCK + LAST_LINES < Duration::from_secs(3));
    }

    #[test]
    fn draining_leaves_time_for_checkpoints() {
        assert!(DRAIN + Duration::from_secs(3) < BUDGET);
    }
}
