//! Finds pods by process ID and by cgroup ID. Compares each with the lookup by UID that it ends with.
//!
//! `cargo bench -p pod-index-benches --features resolve --bench resolve [-- N...]`, by default for 1,000 and 10,000 pods.
//! Linux only. It makes a directory that looks like `/proc` and one that looks like cgroupfs.

use std::collections::HashMap;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io, process};

use pod_index::{CachedReader, PodMeta, PodUid};
use pod_index_kubelet::process::{CgroupOptions, CgroupResolver, PidResolver, Placement};
use support::figures;
use support::rounds::Rounds;
use support::sizes;
use support::workload::{Pod, Workload};

const WHO: &str = "resolver";
/// What all others are compared with.
const BY_UID: &str = "UID";
/// Lookups in one run.
const RUN: usize = 100_000;
/// Reads of `/proc` in one run.
const READS: usize = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let time = if sizes::smoke() { Duration::ZERO } else { Duration::from_secs(5) };
    for n in sizes::of(&[1_000, 10_000]) {
        let mut workload = Workload::new(n);
        let node = Node::new(&workload)?;
        let mut processes = PidResolver::new(node.path.join("proc"))?;
        (processes.capacity, processes.max_age) = (2 * n, Duration::MAX);
        let mut reading = PidResolver::new("/proc")?;
        reading.max_age = Duration::ZERO;
        let mut options = CgroupOptions::default();
        (options.max_cgroups, options.rescan) = (4 * n, Duration::MAX);
        let mut cgroups = CgroupResolver::new(node.path.join("cgroup"), options)?;
        let (mut writer, reader) = pod_index::new();
        let _ = writer.set_pods(workload.all());
        let (mut by_uid, mut by_pid, mut by_cgroup) = (reader.cached(), reader.cached(), reader.cached());

        let uids = workload.hits(n, |pod| PodUid::from(pod.uid()));
        let pids = workload.hits(n, |pod| node.processes[pod.uid()].0);
        let ids = workload.hits(n, |pod| node.processes[pod.uid()].1);
        let own = process::id();
        let repeats = RUN.div_ceil(n);
        let mut rounds = Rounds::default();
        rounds.case(BY_UID, WHO, repeats * n, || {
            for uid in (0..repeats).flat_map(|_| &uids) {
                black_box(by_uid.load().pod_by_uid(black_box(uid)));
            }
        });
        rounds.case("process ID, then UID", WHO, repeats * n, || {
            for pid in (0..repeats).flat_map(|_| &pids) {
                let found = processes.resolve(black_box(*pid)).expect("it is there");
                black_box(pod(&mut by_pid, found));
            }
        });
        rounds.case("cgroup ID, then UID", WHO, repeats * n, || {
            for id in (0..repeats).flat_map(|_| &ids) {
                black_box(pod(&mut by_cgroup, cgroups.resolve(black_box(*id))));
            }
        });
        rounds.case("process ID, read from /proc", WHO, READS, || {
            for _ in 0..READS {
                black_box(reading.resolve(black_box(own)).expect("it is there"));
            }
        });
        println!("\n{n} pods; ns, and the ratio to the lookup by UID\n");
        figures::print(&rounds.measure(n, time), |_| (BY_UID.to_owned(), WHO.to_owned()));
    }
    Ok(())
}

fn pod(pods: &mut CachedReader<Pod>, found: Placement) -> Option<&Arc<Pod>> {
    pods.load().pod_by_uid(&found.pod()?.pod_uid?)
}

/// A process in a container of each pod, in directories that look like `/proc` and cgroupfs.
struct Node {
    path: PathBuf,
    /// By the pod's UID: the process ID and the cgroup ID.
    processes: HashMap<String, (u32, u64)>,
}

impl Node {
    fn new(workload: &Workload) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("pod-index-bench-{}", process::id()));
        let mut node = Self { path, processes: HashMap::new() };
        for (pid, pod) in (1..).zip(&workload.pods) {
            let cgroup = format!("kubepods/burstable/pod{}/{:064x}", pod.uid(), pid);
            let directory = node.path.join("cgroup").join(&cgroup);
            fs::create_dir_all(&directory)?;
            let proc = node.path.join(format!("proc/{pid}"));
            fs::create_dir_all(&proc)?;
            fs::write(proc.join("stat"), format!("{pid} (x) S{}\n", " 1".repeat(19)))?;
            fs::write(proc.join("cgroup"), format!("0::/{cgroup}\n"))?;
            node.processes.insert(pod.uid().to_owned(), (pid, fs::metadata(directory)?.ino()));
        }
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
