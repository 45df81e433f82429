//! Finds the pods' cgroups of process IDs, through the host's `/proc`.
//!
//! A file of `/proc` may block. Processes are therefore read by a few threads that do nothing else: work elsewhere that hangs
//! does not keep them, nor the reverse. A read that never ends keeps its thread, and once all are kept, others get an error
//! after a few seconds.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use pod_index_kubelet::process::{PidResolver, Placement, ResolveError, Roots};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use super::query_text::Process;
use crate::api::client::ClientLimits;

/// Maximum number of threads that read processes.
pub(super) const READERS: usize = 2;
/// Timeout of the processes of one part of an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The processes that a `/proc` shows. Clones share the threads.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    work: Sender<Work>,
    /// One for each thread that has no work.
    idle: Arc<Semaphore>,
    roots: Arc<Roots>,
}

/// Processes to read.
struct Work {
    processes: Vec<Process>,
    answer: oneshot::Sender<Placements>,
    /// Dropped when the thread is idle again.
    _reader: OwnedSemaphorePermit,
}

/// What a process belongs to.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) placement: Placement,
    /// It is young, and a container runtime may still move it to its pod's cgroup.
    pub(super) may_move: bool,
}

/// What each of some processes belongs to. A process that is missing was not read in time.
pub(super) type Placements = HashMap<Process, Result<Placed, ResolveError>>;

impl Processes {
    /// The processes of the `/proc` at this path. `root`: the kubelet's `cgroupRoot`, if it has one.
    pub(crate) fn new(proc: &Path, root: Option<&str>) -> Result<Self, ResolveError> {
        let resolver = || Ok(root.into_iter().fold(PidResolver::new(proc)?, PidResolver::cgroup_root));
        let roots = Arc::new(resolver()?.roots().clone());
        let (work, waiting) = crossbeam_channel::unbounded();
        for _ in 0..READERS {
            let resolver = resolver()?;
            let waiting = waiting.clone();
            // Without threads, each query of a process gets an error.
            let _ =
                thread::Builder::new().name("processes".to_owned()).spawn(move || read(resolver, &waiting));
        }
        Ok(Self { work, idle: Arc::new(Semaphore::new(READERS)), roots })
    }

    /// Reads nothing, and counts the processes that it is asked for.
    #[cfg(test)]
    pub(super) fn counting(asked: Arc<AtomicUsize>) -> Self {
        let (work, waiting) = crossbeam_channel::unbounded::<Work>();
        thread::spawn(move || {
            for Work { processes, answer, _reader } in waiting {
                asked.fetch_add(processes.len(), Ordering::Relaxed);
                let _ = answer.send(Placements::new());
            }
        });
        Self { work, idle: Arc::new(Semaphore::new(READERS)), roots: Arc::default() }
    }

    /// The cgroups that may hold pods.
    pub(super) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Reads these processes. Each client waits for its own before it waits for a thread.
    pub(super) async fn get(&self, client: &ClientLimits, processes: Vec<Process>) -> Placements {
        if processes.is_empty() {
            return Placements::new();
        }
        let deadline = Instant::now() + PATIENCE;
        let placements = async {
            let _own = client.processes.acquire().await.ok()?;
            let reader = Arc::clone(&self.idle).acquire_owned().await.ok()?;
            let (answer, placements) = oneshot::channel();
            self.work.send(Work { processes, answer, _reader: reader }).ok()?;
            placements.await.ok()
        };
        timeout_at(deadline, placements).await.ok().flatten().unwrap_or_default()
    }
}

/// Reads processes for ever.
fn read(mut resolver: PidResolver, waiting: &Receiver<Work>) {
    for Work { processes, answer, _reader } in waiting {
        let placements = processes.into_iter().map(|process| {
            let placement = match process.started {
                Some(started) => resolver.resolve_started(process.id, started),
                None => resolver.resolve_checked(process.id),
            };
            let may_move = resolver.may_move(process.id);
            (process, placement.map(|placement| Placed { placement, may_move }))
        });
        // Fails if the client has gone.
        let _ = answer.send(placements.collect());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime;

    use super::*;
    use crate::api::client::Clients;

    /// Other work that blocks keeps the runtime's threads for it.
    #[test]
    fn a_process_is_read_while_the_threads_for_blocking_work_are_kept() {
        let mut runtime = runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap();
        let (release, released) = mpsc::channel::<()>();
        runtime.spawn_blocking(move || released.recv());
        let processes = Processes::new(Path::new("/proc"), None).unwrap();
        let client = Clients::new().named("client");
        let process = Process { id: std::process::id(), started: None };
        let read = || runtime.block_on(processes.get(&client, vec![process])).contains_key(&process);
        // On a busy machine, one attempt may be too short.
        assert!((0..10).any(|_| read()), "no thread reads it");
        drop(release);
    }
}
