//! Compares descriptors and memory with their limits.

use super::report::Finding;
use crate::api::seen::value;

const DESCRIPTORS: &str = "descriptors";
const MEMORY: &str = "memory";

/// Shares of a limit: using more than the first is a warning, more than the second a failure.
const SHARES: (f64, f64) = (0.8, 0.95);

/// The open files of the running agent, by its metrics.
pub(super) fn descriptors(metrics: Result<&str, &str>) -> Finding {
    let values =
        metrics.map(|metrics| (value(metrics, "process_open_fds"), value(metrics, "process_max_fds")));
    let (open, most) = match values {
        Ok((Some(open), Some(most))) => (open, most),
        Ok(_) => return Finding::skipped(DESCRIPTORS, "the agent does not know its limit"),
        Err(why) => return Finding::skipped(DESCRIPTORS, why),
    };
    let message = format!("the agent has {open} of {most} files open");
    let fix = "raise LimitNOFILE= of the unit or the runtime's ulimit";
    Finding::by_size(DESCRIPTORS, open / most, SHARES, message, fix)
}

/// The memory of the running agent's cgroup, by its metrics.
pub(super) fn memory(metrics: Result<&str, &str>) -> Finding {
    const MIB: f64 = 1_048_576.0;
    let metrics = match metrics {
        Ok(metrics) => metrics,
        Err(why) => return Finding::skipped(MEMORY, why),
    };
    let limit = value(metrics, "pod_index_memory_limit_bytes").filter(|limit| *limit > 0.0);
    let (Some(used), Some(limit)) = (value(metrics, "pod_index_memory_used_bytes"), limit) else {
        return Finding::ok(MEMORY, "the agent's cgroup has no limit");
    };
    let message = format!("the agent's cgroup uses {:.0} of {:.0} MiB", used / MIB, limit / MIB);
    let fix = "raise the limit (resources.limits.memory, MemoryMax=), or hold fewer pods: without --all-nodes, or with a \
               selector";
    Finding::by_size(MEMORY, used / limit, SHARES, message, fix)
}
