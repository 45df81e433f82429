//! Standard process metrics of Prometheus, and the program's version.

use std::fmt;
use std::fs;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use rustix::time::{ClockId, clock_gettime};

use super::{gauge, gauges, number};
use crate::metrics::memory::Memory;

/// This process, read from `/proc`. Omits values that cannot be read there.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
        gauges(&mut encoder, "pod_index_build_info", "The program's version; always 1.", version)?;
        if let Some(bytes) = resident_memory() {
            let help = "Resident memory size in bytes.";
            gauge(&mut encoder, "process_resident_memory_bytes", help, bytes)?;
        }
        let (used, limit) = match Memory::read() {
            Some(Memory { used, limit }) => (i64::try_from(used).ok(), i64::try_from(limit).unwrap_or(0)),
            None => (resident_memory(), 0),
        };
        let help = "Limit of the cgroup's memory; 0 if there is none.";
        gauge(&mut encoder, "pod_index_memory_limit_bytes", help, limit)?;
        if let Some(bytes) = used {
            let help = "Memory of the cgroup without inactive page cache; without a limit, resident memory.";
            gauge(&mut encoder, "pod_index_memory_used_bytes", help, bytes)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of the entries is the directory's own descriptor.
            let open = number(open.count().saturating_sub(1));
            gauge(&mut encoder, "process_open_fds", "Number of open file descriptors.", open)?;
        }
        if let Some(most) = most_descriptors() {
            let help = "Maximum number of open file descriptors.";
            gauge(&mut encoder, "process_max_fds", help, most)?;
        }
        if let Some(seconds) = *START {
            let help = "Start time of the process since unix epoch in seconds.";
            gauge(&mut encoder, "process_start_time_seconds", help, seconds)?;
        }
        if let Some(seconds) = cpu_seconds() {
            let help = "Total user and system CPU time spent in seconds.";
            let encoder =
                encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(encoder)?;
        }
        Ok(())
    }
}

fn resident_memory() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

/// The limit as `getrlimit` returns it. `None` if unlimited, which no kernel allows.
fn most_descriptors() -> Option<i64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `USER_HZ`: constant in Linux' interface, whatever the kernel's own clock rate.
const TICKS: f64 = 100.0;

fn cpu_seconds() -> Option<f64> {
    let mut fields = stat_fields(11)?;
    Some((fields.next()? + fields.next()?) / TICKS)
}

/// Computed once, so that setting the clock does not change the value.
static START: LazyLock<Option<f64>> = LazyLock::new(start_time);

/// Does not read `/proc/stat`, because sandboxes hide it.
fn start_time() -> Option<f64> {
    let up = clock_gettime(ClockId::Boottime);
    let up = Duration::new(up.tv_sec.try_into().ok()?, up.tv_nsec.try_into().ok()?).as_secs_f64();
    let age = up - stat_fields(19)?.next()? / TICKS;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some(now - age)
}

/// The numbers in `/proc/self/stat`, `skipped` fields after the program's name, which may contain anything.
fn stat_fields(skipped: usize) -> Option<impl Iterator<Item = f64>> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<f64> =
        fields.split_whitespace().skip(skipped).map_while(|field| field.parse().ok()).collect();
    Some(fields.into_iter())
}
