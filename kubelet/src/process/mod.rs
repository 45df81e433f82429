//! Finds the pod and the container of a process ID or a cgroup ID.
//!
//! eBPF programs report a process ID (`bpf_get_current_pid_tgid`) and a cgroup ID (`bpf_get_current_cgroup_id`).
//! [`PidResolver`] reads `/proc`, [`CgroupResolver`] follows cgroupfs. Both remember what they read, so that most
//! lookups make no system call. They need no privileges beyond reading these two file systems.
//!
//! Only cgroups below the places where kubelets put their pods count: the root, kind's `/kubelet`, the runtime's service,
//! the place of the reader's own pod, and what you add with `cgroup_root`. Anyone with a delegated cgroup may name the
//! cgroups below it like those of a pod.
//!
//! Each resolver belongs to one thread, as a [`CachedReader`](pod_index::CachedReader) does.
//!
//! # Choosing
//! | | [`PidResolver`] | [`CgroupResolver`] |
//! |---|---|---|
//! | key | a process ID or a thread ID in the host's PID namespace | the inode number of a cgroup v2 directory |
//! | an answer may be stale by | an age that you set, 1 s by default; [`resolve_checked`](PidResolver::resolve_checked) never confuses processes | nothing: no cgroup ID is used twice (Linux 5.5) |
//! | a process that has ended | not found, unless it was looked up before | found, as long as its cgroup exists |
//! | kernel memory | none | an inotify watch for each cgroup, about 1 KiB |
//! | works on cgroup v1 | yes | no |
//!
//! Prefer the cgroup ID if your events carry it.
//!
//! # Examples
//! ```no_run
//! use pod_index::Reader;
//! use pod_index_kubelet::process::PidResolver;
//! # use k8s_openapi::api::core::v1::Pod;
//!
//! fn events(reader: &Reader<Pod>, pids: impl Iterator<Item = u32>) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut pods = reader.cached();
//!     let mut processes = PidResolver::new("/proc")?;
//!     for pid in pids {
//!         let Some(cgroup) = processes.resolve(pid)?.pod() else { continue };
//!         let pod = cgroup.pod_uid.and_then(|uid| pods.get(&uid));
//!         println!("{pid}: {:?}", pod.map(|found| &found.pod.metadata.name));
//!     }
//!     Ok(())
//! }
//! ```

mod cgroup;
mod clock;
mod error;
mod pid;
mod read;
mod roots;
mod tree;
mod walk;

use pod_index::identity::Cgroup;

pub use cgroup::{CgroupOptions, CgroupResolver};
pub use error::ResolveError;
pub use pid::PidResolver;
pub use roots::Roots;

/// The result for a process ID or a cgroup ID.
///
/// # Examples
/// ```
/// use pod_index_kubelet::process::Placement;
///
/// assert_eq!(Placement::Gone.pod(), None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// It belongs to a pod. Look up the pod by its UID first, which is known before any status names the container. Only a
    /// reader in a cgroup namespace of its own may see a container without its pod.
    Pod(Cgroup),
    /// It exists and belongs to no pod.
    NoPod,
    /// It does not exist: it has ended, never existed, or belongs to another PID namespace or mount.
    Gone,
}

impl Placement {
    /// The pod and the container, if it belongs to a pod.
    #[must_use]
    pub fn pod(self) -> Option<Cgroup> {
        if let Self::Pod(cgroup) = self { Some(cgroup) } else { None }
    }
}

impl From<Option<Cgroup>> for Placement {
    fn from(cgroup: Option<Cgroup>) -> Self {
        cgroup.map_or(Self::NoPod, Self::Pod)
    }
}
