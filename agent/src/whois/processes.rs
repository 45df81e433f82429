//! Finds the pods' cgroups of process IDs, through the host's `/proc`.
//!
//! A file of `/proc` may block. Processes are therefore read on threads for blocking work, a bounded number at a time. A
//! read that never ends keeps its thread, and from then on the others get an error after a few seconds.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pod_index_kubelet::process::{PidResolver, Placement, ResolveError, Roots};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::query::Process;
use crate::api::client::Share;

/// Maximum number of threads that read processes.
const READERS: usize = 2;
/// Timeout of the processes of one part of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The processes that a `/proc` shows. Clones share the readers.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    idle: Arc<Mutex<Vec<PidResolver>>>,
    readers: Arc<Semaphore>,
    roots: Arc<Roots>,
}

/// What each of some processes belongs to. A process that is missing was not read in time.
pub(super) type Placements = HashMap<Process, Result<Placement, ResolveError>>;

impl Processes {
    /// The processes of the `/proc` at this path. `root`: the kubelet's `cgroupRoot`, if it has one.
    pub(crate) fn new(proc: &Path, root: Option<&str>) -> Result<Self, ResolveError> {
        let resolver = || Ok(root.into_iter().fold(PidResolver::new(proc)?, PidResolver::cgroup_root));
        let roots = Arc::new(resolver()?.roots().clone());
        let idle = (0..READERS).map(|_| resolver()).collect::<Result<_, _>>()?;
        Ok(Self { idle: Arc::new(Mutex::new(idle)), readers: Arc::new(Semaphore::new(READERS)), roots })
    }

    /// The cgroups that may hold pods.
    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Reads these processes. Each client waits for its own before it waits for a reader.
    pub(super) async fn get(&self, client: &Share, processes: Vec<Process>) -> Placements {
        if processes.is_empty() {
            return Placements::new();
        }
        let deadline = Instant::now() + PATIENCE;
        let placements = async {
            let _own = client.processes.acquire().await.ok()?;
            let reader = Arc::clone(&self.readers).acquire_owned().await.ok()?;
            let idle = Arc::clone(&self.idle);
            let reading = spawn_blocking(move || {
                let mut resolver = idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
                let placements = processes.into_iter().map(|process| {
                    let placement = match process {
                        (pid, Some(started)) => resolver.resolve_started(pid, started),
                        (pid, None) => resolver.resolve_checked(pid),
                    };
                    (process, placement)
                });
                let placements = placements.collect();
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(resolver);
                drop(reader);
                Some(placements)
            });
            reading.await.ok()?
        };
        timeout_at(deadline, placements).await.ok().flatten().unwrap_or_default()
    }
}
