//! From a process ID to the cgroup, through the host's `/proc`.

use std::io;
use std::path::PathBuf;

use pod_index::PodUid;
use pod_index::identity::{Cgroup, ContainerId};

/// The processes that a `/proc` shows.
#[derive(Debug)]
pub(crate) struct Processes {
    proc: PathBuf,
}

/// The pod and the container of a process. At least one of the two is there.
#[derive(Clone, Debug)]
pub(super) struct PodCgroup {
    pub(super) pod_uid: Option<PodUid>,
    pub(super) container_id: Option<ContainerId>,
}

/// What a process belongs to.
#[derive(Debug)]
pub(super) enum Process {
    Pod(PodCgroup),
    NoPod,
    Gone,
    Unreadable(String),
}

impl Processes {
    /// The processes of the `/proc` at this path.
    pub(crate) fn new(proc: PathBuf) -> Self {
        Self { proc }
    }

    pub(super) fn get(&self, pid: u32) -> Process {
        let path = self.proc.join(pid.to_string()).join("cgroup");
        match std::fs::read(&path) {
            Ok(contents) => match Cgroup::from_proc(&contents) {
                Some(cgroup) => Process::Pod(PodCgroup {
                    pod_uid: cgroup.pod_uid.map(pod_index::identity::CgroupUid::to_pod_uid),
                    container_id: cgroup.container_id,
                }),
                None => Process::NoPod,
            },
            // The process may end while its file is read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Process::Gone,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Process::Gone,
            Err(error) => Process::Unreadable(format!("{}: {error}", path.display())),
        }
    }
}
