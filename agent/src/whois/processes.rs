//! Finds the pod's cgroup of a process ID, through the host's `/proc`.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pod_index_kubelet::process::{PidResolver, Placement, PodCgroup, ResolveError};

/// The processes that a `/proc` shows.
#[derive(Debug)]
pub(crate) struct Processes(Mutex<PidResolver>);

/// What a process belongs to.
#[derive(Debug)]
pub(super) enum Process {
    Pod(PodCgroup),
    NoPod,
    Gone,
    Unreadable(ResolveError),
}

impl Processes {
    /// The processes of the `/proc` at this path.
    pub(crate) fn new(proc: &Path) -> Result<Self, ResolveError> {
        PidResolver::new(proc).map(|resolver| Self(Mutex::new(resolver)))
    }

    pub(super) fn get(&self, pid: u32) -> Process {
        // The resolver stays usable after a panic.
        let resolved = self.0.lock().unwrap_or_else(PoisonError::into_inner).resolve(pid);
        match resolved {
            Ok(Placement::Pod(cgroup)) => Process::Pod(cgroup),
            Ok(Placement::NoPod) => Process::NoPod,
            Ok(Placement::Gone) => Process::Gone,
            Err(error) => Process::Unreadable(error),
        }
    }
}
