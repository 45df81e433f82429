//! Compares descriptors and memory with their limits.

use super::report::Finding;
use crate::api::seen::value;

const DESCRIPTORS: &str = "descriptors";
const MEMORY: &str = "memory";

/// Shares of a limit: using more than the first is a warning, more than the second a failure.
const SHARES: (f64, f64) = (0.8, 0.95);

/// `metrics`: those of the running agent, if it answers.
pub(super) fn check(metrics: Option<&str>) -> [Finding; 2] {
    match metrics {
        Some(metrics) => [descriptors(metrics), memory(metrics)],
        None => [DESCRIPTORS, MEMORY].map(|check| Finding::skipped(check, "no agent answers")),
    }
}

/// The open files of the running agent, by its metrics.
fn descriptors(metrics: &str) -> Finding {
    let values = value(metrics, "process_open_fds").zip(value(metrics, "process_max_fds"));
    let Some((open, most)) = values else {
        return Finding::skipped(DESCRIPTORS, "the agent does not know its limit");
    };
    let message = format!("the agent has {open} of {most} files open");
    let fix = "raise LimitNOFILE= of the unit or the runtime's ulimit";
    Finding::by_size(DESCRIPTORS, open / most, SHARES, message, fix)
}

/// The memory of the running agent's cgroup, by its metrics.
fn memory(metrics: &str) -> Finding {
    const MIB: f64 = 1_048_576.0;
    let limit = value(metrics, "pod_index_memory_limit_bytes").filter(|limit| *limit > 0.0);
    let (Some(used), Some(limit)) = (value(metrics, "pod_index_memory_used_bytes"), limit) else {
        return Finding::ok(MEMORY, "the agent's cgroup has no limit");
    };
    let message = format!("the agent's cgroup uses {:.0} of {:.0} MiB", used / MIB, limit / MIB);
    let fix = "raise the limit (resources.limits.memory, MemoryMax=), or hold fewer pods: without --all-nodes, or with a \
               selector";
    Finding::by_size(MEMORY, used / limit, SHARES, message, fix)
}
