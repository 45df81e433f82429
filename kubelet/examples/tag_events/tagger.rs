//! Describes the pod of an event.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pod_index::{CachedReader, PodMeta, Reader};
use pod_index_kubelet::process::{CgroupOptions, CgroupResolver, PidResolver, Placement, ResolveError};

/// The record that an eBPF program writes to its ring buffer.
pub(crate) struct Event {
    pub(crate) what: &'static str,
    /// `bpf_get_current_cgroup_id()`. On a host with cgroup v1 it is the ID of the root.
    pub(crate) cgroup_id: u64,
    /// `bpf_get_current_pid_tgid() >> 32`
    pub(crate) pid: u32,
    /// `start_boottime` of the process. It distinguishes processes that had the same ID.
    pub(crate) started: Duration,
}

/// The state of the thread that reads the ring buffer.
pub(crate) struct Tagger {
    pods: CachedReader<Pod>,
    cgroups: CgroupResolver,
    processes: PidResolver,
}

impl Tagger {
    /// `proc` and `hierarchy` are the mount points of the host's file systems: `/proc` and `/sys/fs/cgroup` on
    /// the host itself.
    pub(crate) fn new(pods: &Reader<Pod>, proc: &str, hierarchy: &str) -> Result<Self, ResolveError> {
        let cgroups = CgroupResolver::new(hierarchy, CgroupOptions::default())?;
        Ok(Self { pods: pods.cached(), cgroups, processes: PidResolver::new(proc)? })
    }

    pub(crate) fn tag(&mut self, event: &Event) -> Result<String, ResolveError> {
        // Try the cgroup first: it may be known even if the process has ended. The root cgroup shows nothing about the
        // process.
        let place = match self.cgroups.resolve(event.cgroup_id) {
            place @ Placement::Pod(_) => place,
            _ => self.processes.resolve_started(event.pid, event.started)?,
        };
        let cgroup = match place {
            Placement::Pod(cgroup) => cgroup,
            Placement::NoPod => return Ok("the host".to_owned()),
            Placement::Gone => return Ok("a process that has ended".to_owned()),
        };
        // One snapshot for both lookups. The UID is known before any status names the container.
        let pods = self.pods.load();
        let container = cgroup.container_id.and_then(|id| pods.get(id));
        let pod = cgroup.pod_uid.and_then(|uid| pods.pod_by_uid(&uid)).or(container.map(|found| found.pod));
        let Some(pod) = pod else { return Ok("a pod that is not in the index".to_owned()) };
        let container = container.and_then(|found| found.container).unwrap_or("a container without a status");
        Ok(format!("{}/{}, {container}", pod.namespace(), pod.name()))
    }
}
