//! Compares file events, descriptors and memory with their limits.

use super::configuration::FileEvents;
use super::report::Finding;
use super::running::Metrics;

const FILE_EVENTS: &str = "file events";
const DESCRIPTORS: &str = "descriptors";
const MEMORY: &str = "memory";

/// Using more than this share of a limit is a warning.
const HIGH: f64 = 0.8;
/// Using more than this share of a limit is a failure.
const GRAVE: f64 = 0.95;

/// Whether the agent would notice changes of manifests at once. `events` is the result of an attempt.
pub(super) fn file_events(events: FileEvents) -> Finding {
    match events {
        FileEvents::NotNeeded => Finding::skipped(FILE_EVENTS, "no manifests are read from files"),
        FileEvents::Unread => Finding::skipped(FILE_EVENTS, "the manifests cannot be read"),
        FileEvents::No(why) => Finding::warning(
            FILE_EVENTS,
            why,
            "raise the limits, for example sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512; \
             until then changes are seen at the next listing (--file-check-frequency)",
        ),
        FileEvents::Yes => Finding::ok(FILE_EVENTS, "manifests can be watched"),
    }
}

/// The running agent's open files.
pub(super) fn descriptors(agent: Option<&Metrics>) -> Finding {
    let Some(metrics) = agent else {
        return Finding::skipped(DESCRIPTORS, "no agent answers");
    };
    let (Some(open), Some(most)) = (metrics.value("process_open_fds"), metrics.value("process_max_fds"))
    else {
        return Finding::skipped(DESCRIPTORS, "the agent does not know its limit");
    };
    let message = format!("the agent has {open} of {most} files open");
    let fix = "raise LimitNOFILE= of the unit or the runtime's ulimit; see \"Too many open files\" in docs/operators.md";
    by_share(DESCRIPTORS, open / most, message, fix)
}

/// The memory of the running agent's cgroup.
pub(super) fn memory(agent: Option<&Metrics>) -> Finding {
    const MIB: f64 = 1_048_576.0;
    let Some(metrics) = agent else {
        return Finding::skipped(MEMORY, "no agent answers");
    };
    let limit = metrics.value("pod_index_memory_limit_bytes").filter(|limit| *limit > 0.0);
    let (Some(used), Some(limit)) = (metrics.value("pod_index_memory_used_bytes"), limit) else {
        return Finding::ok(MEMORY, "the agent's cgroup has no limit");
    };
    let message = format!("the agent's cgroup uses {:.0} of {:.0} MiB", used / MIB, limit / MIB);
    let fix = "raise the limit (resources.limits.memory, MemoryMax=); see \"Memory\" in docs/operators.md";
    by_share(MEMORY, used / limit, message, fix)
}

fn by_share(check: &'static str, share: f64, message: String, fix: &str) -> Finding {
    if share > GRAVE {
        Finding::failure(check, message, fix)
    } else if share > HIGH {
        Finding::warning(check, message, fix)
    } else {
        Finding::ok(check, message)
    }
}
