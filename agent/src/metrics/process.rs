//! Standard process metrics of Prometheus, and the program's version.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Scrape, memory};

/// This process. Omits values that cannot be read.
pub(super) fn show(started: SystemTime, to: &mut Scrape<'_>) {
    let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
    to.gauges("pod_index_build_info", "The program's version; always 1.", version);
    let resident = resident_memory();
    if let Some(bytes) = resident {
        to.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", bytes);
    }
    let (used, limit) = memory::read().map_or((resident, 0), |(used, limit)| (Some(used), limit));
    to.gauge("pod_index_memory_limit_bytes", "Limit of the cgroup's memory; 0 if there is none.", limit);
    if let Some(bytes) = used {
        let help = "Memory of the cgroup without inactive page cache; without a limit, resident memory.";
        to.gauge("pod_index_memory_used_bytes", help, bytes);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of the entries is the directory's own descriptor.
        let open = open.count().saturating_sub(1);
        to.gauge("process_open_fds", "Number of open file descriptors.", open);
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        to.gauge("process_max_fds", "Maximum number of open file descriptors.", most);
    }
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let help = "Start time of the process since unix epoch in seconds.";
    to.gauge("process_start_time_seconds", help, started);
    let cpu = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
    let help = "Total user and system CPU time spent in seconds.";
    to.counter("process_cpu_seconds", help, cpu.as_secs_f64());
}

fn resident_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
