//! Compares file events, descriptors and memory with their limits.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::configuration::FileEvents;
use super::report::Finding;
use super::running::Metrics;
use crate::metrics::memory::Memory;

const FILE_EVENTS: &str = "file events";
const DESCRIPTORS: &str = "descriptors";
const MEMORY: &str = "memory";

/// Using more than this share of a limit is a warning.
const HIGH: f64 = 0.8;
/// Using more than this share of a limit is a failure.
const GRAVE: f64 = 0.95;

/// Whether the agent would notice changes of manifests at once. `events` is the result of an attempt.
pub(super) fn file_events(events: FileEvents) -> Finding {
    let proc = Path::new("/proc");
    let limits = limit(proc, "watches").zip(limit(proc, "instances"));
    let (watches, instances) = used(proc);
    let figures = limits.map_or_else(String::new, |(most_watches, most_instances)| {
        format!("; this user has {watches} of {most_watches} inotify watches and {instances} of {most_instances} instances")
    });
    let fix = "raise the limits, for example sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512; \
               until then changes are seen at the next listing (--file-check-frequency)";
    match events {
        FileEvents::NotNeeded => Finding::skipped(FILE_EVENTS, "no manifests are read from files"),
        FileEvents::Unread => Finding::skipped(FILE_EVENTS, "the manifests cannot be read"),
        FileEvents::No(why) => Finding::warning(FILE_EVENTS, format!("{why}{figures}"), fix),
        FileEvents::Yes => {
            let is_high = |used: u64, most: u64| as_float(used) > HIGH * as_float(most);
            let message = format!("manifests can be watched{figures}");
            match limits {
                Some((most_watches, most_instances))
                    if is_high(watches, most_watches) || is_high(instances, most_instances) =>
                {
                    Finding::warning(FILE_EVENTS, message, fix)
                }
                _ => Finding::ok(FILE_EVENTS, message),
            }
        }
    }
}

/// The lower of the system's limit and the user namespace's.
fn limit(proc: &Path, of: &str) -> Option<u64> {
    let read = |path: String| fs::read_to_string(proc.join(path)).ok()?.trim().parse().ok();
    let limits = [format!("sys/fs/inotify/max_user_{of}"), format!("sys/user/max_inotify_{of}")];
    limits.into_iter().filter_map(read).min()
}

/// The watches and the instances of this user's processes, as far as `/proc` shows them.
fn used(proc: &Path) -> (u64, u64) {
    let uid = fs::metadata(proc.join("self")).map(|own| own.uid()).ok();
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let processes = entries(proc).filter(|process| {
        let is_number = process.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        is_number && process.metadata().ok().map(|metadata| metadata.uid()) == uid
    });
    let (mut watches, mut instances) = (0, 0);
    for process in processes {
        for descriptor in entries(&process.path().join("fd")) {
            let is_inotify = fs::read_link(descriptor.path())
                .is_ok_and(|target| target.as_os_str() == "anon_inode:inotify");
            if !is_inotify {
                continue;
            }
            instances += 1;
            let info = process.path().join("fdinfo").join(descriptor.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            watches += info.lines().filter(|line| line.starts_with("inotify ")).count() as u64;
        }
    }
    (watches, instances)
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

/// The running agent's memory. Without an agent, the limit of this process's cgroup.
pub(super) fn memory(agent: Option<&Metrics>) -> Finding {
    const MIB: f64 = 1_048_576.0;
    let reported = agent.and_then(|metrics| {
        let used = metrics.value("pod_index_memory_used_bytes")?;
        Some((used, metrics.value("pod_index_memory_limit_bytes").filter(|limit| *limit > 0.0)?))
    });
    if let Some((used, limit)) = reported {
        let message = format!("the agent's cgroup uses {:.0} of {:.0} MiB", used / MIB, limit / MIB);
        let fix =
            "raise the limit (resources.limits.memory, MemoryMax=); see \"Memory\" in docs/operators.md";
        return by_share(MEMORY, used / limit, message, fix);
    }
    match (agent, Memory::read()) {
        (Some(_), _) => Finding::ok(MEMORY, "the agent's cgroup has no limit"),
        (None, Some(memory)) => {
            let limit = as_float(memory.limit) / MIB;
            Finding::skipped(MEMORY, format!("no agent answers; the limit of this process is {limit:.0} MiB"))
        }
        (None, None) => Finding::skipped(MEMORY, "no agent answers; this process has no limit"),
    }
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

#[allow(clippy::cast_precision_loss, reason = "limits and shares of them")]
fn as_float(number: u64) -> f64 {
    number as f64
}
